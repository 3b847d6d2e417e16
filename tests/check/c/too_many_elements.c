/* refused-request: more scatter/gather elements than the QP was created for. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge[3] = {all_of(&here, 8), all_of(&here, 8), all_of(&here, 8)};
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, sge), *bad;
	wr.num_sge = RIGHT(2, 3);
	int status = ibv_post_send(here.qp, &wr, &bad); /* called */
	CHECK(status == RIGHT(0, EINVAL));
	if (!status)
		expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
