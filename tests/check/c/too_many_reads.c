/* too-many-reads: 16 READs at once to a peer that accepts 1. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_to(here.qp, there.qp->qp_num);
	OK(to_init(there.qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = here.qp->qp_num,
		.rq_psn = 77,
		.max_dest_rd_atomic = RIGHT(16, 1),
		.min_rnr_timer = 12,
		.ah_attr = address_of(there.context),
	};
	OK(ibv_modify_qp(there.qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	OK(to_rts(there.qp));
	struct ibv_sge sge[16];
	struct ibv_send_wr chain[16], *bad;
	for (int i = 0; i < 16; i++) {
		sge[i] = (struct ibv_sge){(uintptr_t)here.memory + 256 * i, 256, here.mr->lkey};
		chain[i] = request(IBV_WR_RDMA_READ, &sge[i]);
		chain[i].send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
		chain[i].next = i == 15 ? NULL : &chain[i + 1];
	}
	OK(ibv_post_send(here.qp, chain, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_INV_REQ_ERR);
	unmake_pair();
	return 0;
}
