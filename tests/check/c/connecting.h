/* A listener and clients of one process, each with a channel of its own. */
#include <pthread.h>
#include <rdma/rdma_cma.h>

#include "pair.h"

static struct rdma_event_channel *serving;
static struct rdma_cm_id *listener;

static inline struct sockaddr_in loopback(in_port_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = port, .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
}

static inline void bind_listener(void)
{
	struct sockaddr_in any = loopback(0);
	serving = rdma_create_event_channel();
	CHECK(serving);
	OK(rdma_create_id(serving, &listener, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(listener, (struct sockaddr *)&any));
}

static inline void next_is(struct rdma_event_channel *channel, enum rdma_cm_event_type expected)
{
	struct rdma_cm_event *event;
	OK(rdma_get_cm_event(channel, &event));
	CHECK(event->event == expected);
	OK(rdma_ack_cm_event(event));
}

static inline void make_cm_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {4, 4, 1, 1, 0}};
	OK(rdma_create_qp(id, NULL, &init));
}

/* A client whose route is known. */
static inline struct rdma_cm_id *routed_client(void)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *id;
	struct sockaddr_in to = loopback(rdma_get_src_port(listener));
	CHECK(channel);
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	next_is(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	next_is(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_cm_qp(id);
	return id;
}

static inline void destroy_client(struct rdma_cm_id *id)
{
	struct rdma_event_channel *channel = id->channel;
	rdma_destroy_qp(id);
	OK(rdma_destroy_id(id));
	rdma_destroy_event_channel(channel);
}

static inline void destroy_listener(void)
{
	OK(rdma_destroy_id(listener));
	rdma_destroy_event_channel(serving);
}

/* The identifier of the next request. */
static inline struct rdma_cm_id *next_request(void)
{
	struct rdma_cm_event *event;
	OK(rdma_get_cm_event(serving, &event));
	CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
	struct rdma_cm_id *id = event->id;
	OK(rdma_ack_cm_event(event));
	return id;
}
