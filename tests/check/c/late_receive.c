/* late-receive: the receive is posted when the message has come already. */
#include "pair.h"

static void receive(void)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, 64, there.mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad)); /* posted */
}

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
#ifdef CORRECT
	OK(to_init(there.qp));
	receive();
	OK(to_rtr(there.qp, here.qp->qp_num));
	OK(to_rts(there.qp));
	connect_to(here.qp, there.qp->qp_num);
#else
	connect_both();
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
#ifndef CORRECT
	double limit = seconds() + 0.3;
	struct ibv_wc none;
	while (seconds() < limit)
		CHECK(ibv_poll_cq(here.cq, 1, &none) == 0);
	receive();
#endif
	expect(here.cq, IBV_WC_SUCCESS, 7);
	unmake_pair();
	return 0;
}
