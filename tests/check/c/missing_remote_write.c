/* missing-access: a WRITE to a region that peers may not write. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, RIGHT(ALL_ACCESS, IBV_ACCESS_LOCAL_WRITE)); /* registered */
	CHECK(there.mr);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
