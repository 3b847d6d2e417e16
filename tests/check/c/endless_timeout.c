/* endless-timeout: timeout is 0, so nothing is ever sent again. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_to(there.qp, here.qp->qp_num);
	OK(to_init(here.qp));
	OK(to_rtr(here.qp, there.qp->qp_num));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS, .sq_psn = 77, .timeout = RIGHT(14, 0), .retry_cnt = 7, .rnr_retry = 7};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
		   IBV_QP_MAX_QP_RD_ATOMIC;
	OK(ibv_modify_qp(here.qp, &attr, mask)); /* called */
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
