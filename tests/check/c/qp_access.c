/* qp-access: the region allows WRITEs, the QP does not. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	struct ibv_qp_attr attr = {.qp_access_flags = RIGHT(IBV_ACCESS_REMOTE_WRITE, IBV_ACCESS_REMOTE_READ)};
	OK(ibv_modify_qp(there.qp, &attr, IBV_QP_ACCESS_FLAGS));
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_INV_REQ_ERR);
	unmake_pair();
	return 0;
}
