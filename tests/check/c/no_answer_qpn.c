/* no-answer: dest_qp_num is the number of another QP, which is connected elsewhere. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	struct ibv_qp_init_attr init = attributes_of(there.cq, IBV_QPT_RC);
	struct ibv_qp *other = ibv_create_qp(there.pd, &init);
	CHECK(other);
	connect_briefly(77, 1);
	OK(to_init(other));
	OK(to_rtr(other, RIGHT(other->qp_num, here.qp->qp_num)));
#ifndef CORRECT
	/* `there` is connected to itself. */
	struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
	OK(ibv_modify_qp(there.qp, &reset, IBV_QP_STATE));
	OK(to_init(there.qp));
	OK(to_rtr(there.qp, there.qp->qp_num)); /* set */
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_RETRY_EXC_ERR);
	OK(ibv_destroy_qp(other));
	unmake_pair();
	return 0;
}
