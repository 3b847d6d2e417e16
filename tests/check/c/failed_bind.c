/* failed-bind: a window is bound to a region without IBV_ACCESS_MW_BIND. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, RIGHT(ALL_ACCESS, ALL_ACCESS & ~IBV_ACCESS_MW_BIND));
	connect_both();
	struct ibv_mw *mw = ibv_alloc_mw(there.pd, IBV_MW_TYPE_2);
	CHECK(mw);
	struct ibv_send_wr bind = {.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	bind.bind_mw.mw = mw;
	bind.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind.bind_mw.bind_info =
		(struct ibv_mw_bind_info){there.mr, (uintptr_t)there.memory + 64, 64, IBV_ACCESS_REMOTE_WRITE};
	struct ibv_send_wr *bad;
	OK(ibv_post_send(there.qp, &bind, &bad)); /* posted */
	finish(there.cq, IBV_WC_MW_BIND_ERR);
	OK(ibv_dealloc_mw(mw));
	unmake_pair();
	return 0;
}
