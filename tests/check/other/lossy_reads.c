/* READs of several packets, of which the network loses some: what is asked for again may come behind the rest. */
#include "../c/pair.h"

int main(void)
{
	make_pair();
	for (int round = 1; round <= 2000; round++) {
		memset(there.memory, round, SIZE);
		struct ibv_sge sge = all_of(&here, SIZE);
		struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge), *bad;
		OK(ibv_post_send(here.qp, &wr, &bad));
		expect(here.cq, IBV_WC_SUCCESS, 7);
		CHECK(memcmp(here.memory, there.memory, SIZE) == 0);
	}
	unmake_pair();
	return 0;
}
