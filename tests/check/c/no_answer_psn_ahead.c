/* no-answer: sq_psn of one side is ahead of rq_psn of the other, which asks for what was never sent. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_briefly(RIGHT(77, 77 + 1000), 1);
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_RETRY_EXC_ERR);
	unmake_pair();
	return 0;
}
