/* no-receive: a SEND to a QP without a receive. */
#include "pair.h"

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad));
}

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_briefly(77, 1);
#ifdef CORRECT
	receive(64, there.mr->lkey);
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_RNR_RETRY_EXC_ERR);
	unmake_pair();
	return 0;
}
