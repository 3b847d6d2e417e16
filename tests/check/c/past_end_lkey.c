/* past-end: the local bytes end past the region. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	sge.addr += RIGHT(SIZE - 64, SIZE - 10);
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	unmake_pair();
	return 0;
}
