/* window-elsewhere: the window is bound to another QP than the one that uses it. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	struct ibv_mw *mw = ibv_alloc_mw(there.pd, IBV_MW_TYPE_2); /* allocated */
	CHECK(mw);
	struct ibv_send_wr bind = {.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){there.mr, (uintptr_t)there.memory + 64, 64, IBV_ACCESS_REMOTE_WRITE};
	struct end *binder = RIGHT(&there, &here);
	OK(ibv_post_send(binder->qp, &bind, &bad));
	expect(binder->cq, IBV_WC_SUCCESS, 3);
	wr.wr.rdma.rkey = mw->rkey;
	wr.wr.rdma.remote_addr += 64;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	OK(ibv_dealloc_mw(mw));
	unmake_pair();
	return 0;
}
