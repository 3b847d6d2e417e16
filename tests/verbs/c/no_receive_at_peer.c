/* A server that accepts a connection and never posts a receive, and a client that sends to it and waits for ever. */
#include <rdma/rdma_verbs.h>

#include "check.h"

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	int is_server = strcmp(argv[1], "server") == 0;
	struct rdma_addrinfo hints = {.ai_flags = is_server ? RAI_PASSIVE : 0, .ai_port_space = RDMA_PS_TCP}, *found;
	OK(rdma_getaddrinfo("127.0.0.1", argv[2], &hints, &found));
	struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1};
	struct rdma_cm_id *id, *connection;
	OK(rdma_create_ep(&id, found, NULL, &init));
	if (is_server) {
		OK(rdma_listen(id, 1));
		OK(rdma_get_request(id, &connection));
		OK(rdma_accept(connection, NULL));
		for (;;)
			pause();
	}
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	OK(rdma_connect(id, &param));
	static char message[64];
	struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof(message));
	CHECK(mr);
	OK(rdma_post_send(id, NULL, message, sizeof(message), mr, 0));
	struct ibv_wc wc;
	while (ibv_poll_cq(id->send_cq, 1, &wc) == 0)
		usleep(1000);
	return 1;
}
