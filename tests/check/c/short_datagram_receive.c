/* short-datagram-receive: a receive of a UD QP without room for the 40 bytes of the header. */
#include "pair.h"

static void receive(uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)there.memory, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &wr, &bad)); /* posted */
}

int main(void)
{
	make_both(IBV_QPT_UD);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_both();
	receive(RIGHT(64 + 40, 32), there.mr->lkey); /* posted */
	unmake_pair();
	return 0;
}
