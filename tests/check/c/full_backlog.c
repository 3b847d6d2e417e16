/* full-backlog: more clients at once than the backlog holds. */
#include "connecting.h"

#define CLIENTS 3

int main(void)
{
	bind_listener();
	OK(rdma_listen(listener, RIGHT(CLIENTS, 1))); /* called */
	struct rdma_cm_id *ids[CLIENTS];
	for (int i = 0; i < CLIENTS; i++) {
		struct rdma_conn_param param = {.retry_count = 7};
		ids[i] = routed_client();
		OK(rdma_connect(ids[i], &param));
	}
	usleep(300000);
	/* Those that found no room are not waited for: they ask again after seconds. */
	for (int i = 0; i < RIGHT(CLIENTS, 1); i++) {
		struct rdma_cm_id *request = next_request();
		OK(rdma_reject(request, NULL, 0));
		OK(rdma_destroy_id(request));
	}
	for (int i = 0; i < CLIENTS; i++)
		destroy_client(ids[i]);
	destroy_listener();
	return 0;
}
