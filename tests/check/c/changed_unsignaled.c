/* changed-buffer: the buffer of an unsignaled WRITE is used again for the next one. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	wr.send_flags = 0;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	sge.addr += RIGHT(64, 0);
	*(char *)(uintptr_t)sge.addr = 1;
	wr.send_flags = IBV_SEND_SIGNALED;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
