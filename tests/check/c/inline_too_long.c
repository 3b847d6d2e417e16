/* refused-request: an inline request that is longer than max_inline_data. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	sge.length = RIGHT(16, 2048);
	wr.send_flags |= IBV_SEND_INLINE;
	int status = ibv_post_send(here.qp, &wr, &bad); /* called */
	CHECK(status == RIGHT(0, EINVAL));
	if (!status)
		expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
