/* Sends to a queue pair that has no receive, and waits for ever: `softrnic why` says so. */
#include "check.h"

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp *here = new_qp(pd, cq), *there = new_qp(pd, cq);
	connect_to(here, there->qp_num);
	connect_to(there, here->qp_num);
	struct ibv_send_wr wr = {.wr_id = 7, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED}, *bad;
	OK(ibv_post_send(here, &wr, &bad));
	struct ibv_wc wc;
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		usleep(1000);
	return 1;
}
