/* wrong-domain: the lkey is of a region of another protection domain. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	struct ibv_pd *other = ibv_alloc_pd(here.context); /* allocated */
	CHECK(other);
	struct ibv_mr *mr = ibv_reg_mr(RIGHT(here.pd, other), here.memory, SIZE, ALL_ACCESS); /* registered */
	CHECK(mr);
	sge.lkey = mr->lkey;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(other));
	unmake_pair();
	return 0;
}
