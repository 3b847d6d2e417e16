/* misaligned-atomic: the operand of an atomic is at an odd multiple of 4. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge), *bad;
	sge.length = 8;
	wr.wr.atomic.remote_addr = (uintptr_t)there.memory + RIGHT(8, 4);
	wr.wr.atomic.rkey = there.mr->rkey;
	wr.wr.atomic.compare_add = 1;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_INV_REQ_ERR);
	unmake_pair();
	return 0;
}
