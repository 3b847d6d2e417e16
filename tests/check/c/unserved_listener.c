/* unserved-listener: nobody takes the requests of a listener. */
#include "connecting.h"

int main(void)
{
	bind_listener();
	OK(rdma_listen(listener, 1)); /* called */
	struct rdma_cm_id *id = routed_client();
	struct rdma_conn_param param = {.retry_count = 7};
	OK(rdma_connect(id, &param));
#ifndef CORRECT
	sleep(4);
#endif
	struct rdma_cm_id *request = next_request();
	OK(rdma_reject(request, NULL, 0));
	OK(rdma_destroy_id(request));
	next_is(id->channel, RDMA_CM_EVENT_REJECTED);
	destroy_client(id);
	destroy_listener();
	return 0;
}
