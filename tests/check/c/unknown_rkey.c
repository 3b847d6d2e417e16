/* unknown-key: an rkey that nobody has. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	wr.wr.rdma.rkey ^= RIGHT(0, 0x100);
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
