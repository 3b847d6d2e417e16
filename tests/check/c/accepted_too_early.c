/* late-receive: a connection is accepted before a receive is posted. */
#include "connecting.h"

static char memory[2][64];

static void receive(struct ibv_qp *qp, struct ibv_mr *mr)
{
	struct ibv_sge sge = {(uintptr_t)memory[0], 64, mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(qp, &wr, &bad)); /* posted */
}

int main(void)
{
	bind_listener();
	OK(rdma_listen(listener, 1));
	struct rdma_cm_id *client = routed_client();
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	OK(rdma_connect(client, &param));
	struct rdma_cm_id *server = next_request();
	make_cm_qp(server);
	struct ibv_mr *to = ibv_reg_mr(server->pd, memory[0], 64, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *from = ibv_reg_mr(client->pd, memory[1], 64, 0);
	CHECK(to && from);
#ifdef CORRECT
	receive(server->qp, to);
#endif
	OK(rdma_accept(server, &param)); /* accepted */
	next_is(client->channel, RDMA_CM_EVENT_ESTABLISHED);
	next_is(serving, RDMA_CM_EVENT_ESTABLISHED);
	struct ibv_sge sge = {(uintptr_t)memory[1], 64, from->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	OK(ibv_post_send(client->qp, &wr, &bad));
#ifndef CORRECT
	double limit = seconds() + 0.3;
	struct ibv_wc none;
	while (seconds() < limit)
		CHECK(ibv_poll_cq(client->send_cq, 1, &none) == 0);
	receive(server->qp, to);
#endif
	expect(client->send_cq, IBV_WC_SUCCESS, 0);
	OK(rdma_disconnect(client));
	next_is(serving, RDMA_CM_EVENT_DISCONNECTED);
	OK(rdma_disconnect(server));
	next_is(client->channel, RDMA_CM_EVENT_DISCONNECTED);
	OK(ibv_dereg_mr(to));
	OK(ibv_dereg_mr(from));
	destroy_client(client);
	rdma_destroy_qp(server);
	OK(rdma_destroy_id(server));
	destroy_listener();
	return 0;
}
