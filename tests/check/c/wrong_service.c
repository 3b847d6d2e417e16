/* no-answer: the QP at the other end is of another service. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(there.qp));
	struct ibv_qp_init_attr init = attributes_of(there.cq, RIGHT(IBV_QPT_RC, IBV_QPT_UC));
	there.qp = ibv_create_qp(there.pd, &init); /* created */
	CHECK(there.qp);
	connect_briefly(77, 1);
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_RETRY_EXC_ERR);
	unmake_pair();
	return 0;
}
