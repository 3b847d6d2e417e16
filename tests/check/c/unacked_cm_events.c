/* unacked-cm-events: an identifier is destroyed before its event is acknowledged. */
#include "connecting.h"

/* Ends the wait, which would be for ever. */
static void *acknowledge(void *event)
{
	sleep(4);
	OK(rdma_ack_cm_event(event));
	return NULL;
}

int main(void)
{
	bind_listener();
	OK(rdma_listen(listener, 1));
	struct rdma_event_channel *channel = rdma_create_event_channel();
	CHECK(channel);
	struct rdma_cm_id *id;
	struct rdma_cm_event *event;
	struct sockaddr_in to = loopback(rdma_get_src_port(listener));
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000));
	OK(rdma_get_cm_event(channel, &event));
#ifdef CORRECT
	OK(rdma_ack_cm_event(event));
#else
	pthread_t thread;
	OK(pthread_create(&thread, NULL, acknowledge, event));
#endif
	OK(rdma_destroy_id(id)); /* called */
	rdma_destroy_event_channel(channel);
	destroy_listener();
	return 0;
}
