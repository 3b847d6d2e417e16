/* old-key: a window was bound again, and the peer uses its first key. */
#include "pair.h"

static void bind_window(struct ibv_mw *mw, uint32_t rkey)
{
	struct ibv_send_wr bind = {.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = rkey;
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){there.mr, (uintptr_t)there.memory, 64, IBV_ACCESS_REMOTE_WRITE};
	OK(ibv_post_send(there.qp, &bind, &bad));
	expect(there.cq, IBV_WC_SUCCESS, 3);
	mw->rkey = rkey;
}

int main(void)
{
	make_pair();
	struct ibv_mw *mw = ibv_alloc_mw(there.pd, IBV_MW_TYPE_2); /* allocated */
	CHECK(mw);
	bind_window(mw, ibv_inc_rkey(mw->rkey));
	uint32_t told = mw->rkey;
	(void)told;
	struct ibv_send_wr invalidate = {.wr_id = 4, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED}, *bad;
	invalidate.invalidate_rkey = mw->rkey;
	OK(ibv_post_send(there.qp, &invalidate, &bad));
	expect(there.cq, IBV_WC_SUCCESS, 4);
	bind_window(mw, ibv_inc_rkey(mw->rkey));
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	wr.wr.rdma.rkey = RIGHT(mw->rkey, told);
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dealloc_mw(mw));
	unmake_pair();
	return 0;
}
