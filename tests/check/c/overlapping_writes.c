/* overlapping-requests: two QPs WRITE to the same bytes of the peer at once. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_qp_init_attr init = attributes_of(here.cq, IBV_QPT_RC);
	struct ibv_qp *ends[2];
	for (int i = 0; i < 2; i++) {
		ends[i] = ibv_create_qp(here.pd, &init);
		CHECK(ends[i]);
	}
	connect_to(ends[0], ends[1]->qp_num);
	connect_to(ends[1], ends[0]->qp_num);
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	wr.wr.rdma.remote_addr += RIGHT(64, 63);
	OK(ibv_post_send(ends[0], &wr, &bad)); /* posted */
	expect(here.cq, IBV_WC_SUCCESS, 7);
	expect(here.cq, IBV_WC_SUCCESS, 7);
	OK(ibv_destroy_qp(ends[0]));
	OK(ibv_destroy_qp(ends[1]));
	unmake_pair();
	return 0;
}
