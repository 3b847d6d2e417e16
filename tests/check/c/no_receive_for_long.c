/* no-receive: a SEND waits for a second, since the peer has posted no receive. */
#include "pair.h"

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad));
}

int main(void)
{
	make_pair();
#ifdef CORRECT
	receive(64, there.mr->lkey);
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
#ifndef CORRECT
	double limit = seconds() + 1.5;
	struct ibv_wc none;
	while (seconds() < limit)
		CHECK(ibv_poll_cq(here.cq, 1, &none) == 0);
	receive(64, there.mr->lkey);
#endif
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
