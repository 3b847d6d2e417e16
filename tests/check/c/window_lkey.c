/* window-key: the key of a window is used as an lkey. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_mw *mw = ibv_alloc_mw(here.pd, IBV_MW_TYPE_2); /* allocated */
	CHECK(mw);
	struct ibv_send_wr bind = {.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){here.mr, (uintptr_t)here.memory, 64, IBV_ACCESS_REMOTE_WRITE};
	OK(ibv_post_send(here.qp, &bind, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 3);
	struct ibv_sge sge = all_of(&here, 64);
	sge.lkey = RIGHT(here.mr->lkey, mw->rkey);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	OK(ibv_dealloc_mw(mw));
	unmake_pair();
	return 0;
}
