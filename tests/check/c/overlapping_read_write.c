/* overlapping-requests: a WRITE to bytes that a READ before it has not fetched yet. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge to = all_of(&here, 64), from = {(uintptr_t)here.memory + 1024, 32, here.mr->lkey};
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &to), write = request(IBV_WR_RDMA_WRITE, &from), *bad;
	write.wr.rdma.remote_addr += 32;
	OK(ibv_post_send(here.qp, &read, &bad)); /* posted */
#ifdef CORRECT
	expect(here.cq, IBV_WC_SUCCESS, 7);
#endif
	OK(ibv_post_send(here.qp, &write, &bad)); /* posted */
#ifndef CORRECT
	expect(here.cq, IBV_WC_SUCCESS, 7);
#endif
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
