/* destroyed-key: the region of a receive is deregistered before the message comes. */
#include "pair.h"

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad)); /* posted */
}

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, IBV_ACCESS_LOCAL_WRITE); /* registered */
	CHECK(there.mr);
	connect_both();
	receive(64, there.mr->lkey); /* posted */
#ifndef CORRECT
	OK(ibv_dereg_mr(there.mr)); /* deregistered */
	there.mr = NULL;
#endif
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_REM_OP_ERR);
	unmake_pair();
	return 0;
}
