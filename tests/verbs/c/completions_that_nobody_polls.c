/* Sends, and waits for something else than the completion: `softrnic why` says so. */
#include "check.h"

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	connect_to(qp, qp->qp_num);
	struct ibv_recv_wr receive = {.wr_id = 1}, *bad_receive;
	OK(ibv_post_recv(qp, &receive, &bad_receive));
	struct ibv_send_wr send = {.wr_id = 7, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad_send;
	OK(ibv_post_send(qp, &send, &bad_send));
	for (;;)
		pause();
}
