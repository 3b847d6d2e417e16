/*
 * Connects two devices of this process, and says what identifiers of rdma_cm are told from then on.
 *
 *     cm_changes CLIENT-ADDRESS SERVER-ADDRESS PORT
 */
#include <netinet/in.h>
#include <rdma/rdma_cma.h>

#include "check.h"

static struct rdma_event_channel *channel;

static struct sockaddr_in at(const char *address, int port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};

	CHECK(inet_pton(AF_INET, address, &in.sin_addr) == 1);
	return in;
}

static struct rdma_cm_id *named(const char *name)
{
	struct rdma_cm_id *id;

	CHECK(rdma_create_id(channel, &id, (void *)name, RDMA_PS_TCP) == 0);
	return id;
}

static void give_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.cap = {1, 1, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	CHECK(rdma_create_qp(id, NULL, &init) == 0);
}

int main(int argc, char **argv)
{
	struct rdma_conn_param param = {.responder_resources = 1, .initiator_depth = 1, .retry_count = 7};
	struct rdma_cm_event *event;

	CHECK(argc == 4);
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK((channel = rdma_create_event_channel()));
	struct sockaddr_in from = at(argv[1], 0), to = at(argv[2], atoi(argv[3]));
	struct rdma_cm_id *listener = named("listener"), *client = named("client");

	CHECK(rdma_bind_addr(listener, (struct sockaddr *)&to) == 0 && rdma_listen(listener, 1) == 0);
	CHECK(rdma_resolve_addr(client, (struct sockaddr *)&from, (struct sockaddr *)&to, 5000) == 0);
	while (rdma_get_cm_event(channel, &event) == 0) {
		struct rdma_cm_id *id = event->id;

		switch (event->event) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			CHECK(rdma_resolve_route(id, 5000) == 0);
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			give_qp(id);
			CHECK(rdma_connect(id, &param) == 0);
			break;
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			id->context = "server";
			give_qp(id);
			CHECK(rdma_accept(id, &param) == 0);
			break;
		default:
			printf("%s: %s\n", (const char *)id->context, rdma_event_str(event->event));
		}
		rdma_ack_cm_event(event);
	}
	return 1;
}
