/* changed-buffer: the buffer of a WRITE is used again before its completion. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, ALL_ACCESS);
	CHECK(there.mr);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
#ifdef CORRECT
	expect(here.cq, IBV_WC_SUCCESS, 7);
	here.memory[0]++;
#else
	here.memory[0]++;
	expect(here.cq, IBV_WC_SUCCESS, 7);
#endif
	unmake_pair();
	return 0;
}
