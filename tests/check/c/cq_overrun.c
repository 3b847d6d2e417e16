/* cq-overrun: a completion queue of 4 entries for 16 receives and sends. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(here.qp));
	OK(ibv_destroy_cq(here.cq));
	here.cq = ibv_create_cq(here.context, RIGHT(16, 4), NULL, NULL, 0); /* created */
	CHECK(here.cq);
	struct ibv_qp_init_attr init = attributes_of(here.cq, IBV_QPT_RC);
	here.qp = ibv_create_qp(here.pd, &init);
	CHECK(here.qp);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	for (int i = 0; i < RIGHT(16, here.cq->cqe + 1); i++)
		OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	struct ibv_wc wc;
	double limit = seconds() + RIGHT(0, 0.5);
	while (seconds() < limit)
		ibv_poll_cq(there.cq, 1, &wc);
	unmake_pair();
	return 0;
}
