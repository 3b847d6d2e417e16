/* refused-request: a SEND on a QP that is not in RTS yet. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
#ifdef CORRECT
	connect_both();
#else
	OK(to_init(here.qp));
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	int status = ibv_post_send(here.qp, &wr, &bad); /* called */
	CHECK(status == RIGHT(0, EINVAL));
	if (!status)
		expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
