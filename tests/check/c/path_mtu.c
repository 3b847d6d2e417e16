/* broken-request: the path MTU of the sender is larger than that of the receiver. */
#include "pair.h"

static void connect_with(struct ibv_qp *qp, uint32_t peer, enum ibv_mtu mtu)
{
	OK(to_init(qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = mtu,
		.dest_qp_num = peer,
		.rq_psn = 77,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = address_of(qp->context),
	};
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	OK(ibv_modify_qp(qp, &attr, mask)); /* set */
	OK(to_rts(qp));
}

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_with(there.qp, here.qp->qp_num, IBV_MTU_512);
	connect_with(here.qp, there.qp->qp_num, RIGHT(IBV_MTU_512, IBV_MTU_1024));
	struct ibv_sge sge = all_of(&here, 2048);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_INV_REQ_ERR);
	unmake_pair();
	return 0;
}
