/* short-receive: the message is 40 bytes longer than the receive. */
#include "pair.h"

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad)); /* posted */
}

int main(void)
{
	make_pair();
	receive(RIGHT(64, 24), there.mr->lkey); /* posted */
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_INV_REQ_ERR);
	unmake_pair();
	return 0;
}
