/* refused-verb: more private data than a request for a connection has room for. */
#include "connecting.h"

int main(void)
{
	bind_listener();
	OK(rdma_listen(listener, 1));
	struct rdma_cm_id *id = routed_client();
	char data[100] = "hello";
	struct rdma_conn_param param = {.private_data = data, .private_data_len = RIGHT(56, 100), .retry_count = 7};
	int status = rdma_connect(id, &param); /* called */
	CHECK((status == 0) == RIGHT(1, 0));
	if (status == 0) {
		struct rdma_cm_id *request = next_request();
		OK(rdma_reject(request, NULL, 0));
		OK(rdma_destroy_id(request));
		next_is(id->channel, RDMA_CM_EVENT_REJECTED);
	}
	destroy_client(id);
	destroy_listener();
	return 0;
}
