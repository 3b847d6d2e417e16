/* written-buffer: the buffer of a receive is prepared after it was posted. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge room = all_of(&there, 64), sge = all_of(&here, 64);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad_receive;
#ifdef CORRECT
	memset(there.memory, 0xff, 64);
#endif
	OK(ibv_post_recv(there.qp, &receive, &bad_receive)); /* posted */
#ifndef CORRECT
	memset(there.memory, 0xff, 64);
#endif
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	expect(there.cq, IBV_WC_SUCCESS, 1);
	unmake_pair();
	return 0;
}
