/* overlapping-requests: a SEND of bytes that a READ before it has not brought yet. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge room = {(uintptr_t)there.memory + 1024, 64, there.mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad_receive;
	OK(ibv_post_recv(there.qp, &receive, &bad_receive));
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr read = request(IBV_WR_RDMA_READ, &sge), send = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &read, &bad)); /* posted */
	send.send_flags |= RIGHT(IBV_SEND_FENCE, 0);
	OK(ibv_post_send(here.qp, &send, &bad)); /* posted */
	expect(here.cq, IBV_WC_SUCCESS, 7);
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
