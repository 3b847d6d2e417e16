/* written-buffer: the program writes to where a READ puts its bytes, before the READ is complete. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge), *bad;
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
