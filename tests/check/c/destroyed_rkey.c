/* destroyed-key: the region is deregistered before the peer writes to it. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, IBV_ACCESS_LOCAL_WRITE);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, ALL_ACCESS); /* registered */
	CHECK(there.mr);
	connect_both();

	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
#ifndef CORRECT
	OK(ibv_dereg_mr(there.mr)); /* deregistered */
	there.mr = NULL;
#endif
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
