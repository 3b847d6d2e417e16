/* missing-access: a READ into a region without IBV_ACCESS_LOCAL_WRITE. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	here.mr = ibv_reg_mr(here.pd, here.memory, SIZE, RIGHT(IBV_ACCESS_LOCAL_WRITE, 0)); /* registered */
	CHECK(here.mr);
	enroll(&there, ALL_ACCESS);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	unmake_pair();
	return 0;
}
