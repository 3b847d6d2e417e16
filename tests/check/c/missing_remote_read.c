/* missing-access: a READ of a region that peers may only write. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	int access = RIGHT(ALL_ACCESS, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, access); /* registered */
	CHECK(there.mr);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
