/* send-queue-full: no request is ever signaled, so the send queue fills up. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	int count = 0, status = 0;
	for (; count < 1000 && !status; count++) {
		wr.send_flags = RIGHT(count % 8 == 7, 0) ? IBV_SEND_SIGNALED : 0;
		status = ibv_post_send(here.qp, &wr, &bad); /* called */
		if (wr.send_flags)
			expect(here.cq, IBV_WC_SUCCESS, 7);
	}
	CHECK(status == RIGHT(0, ENOMEM));
	unmake_pair();
	return 0;
}
