/* written-buffer: a message is used as soon as it is there, and its completion is polled later. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge room = all_of(&there, 64), sge = all_of(&here, 64);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad_receive;
	OK(ibv_post_recv(there.qp, &receive, &bad_receive)); /* posted */
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	here.memory[0] = 1;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
#ifdef CORRECT
	expect(there.cq, IBV_WC_SUCCESS, 1);
	there.memory[0]++;
#else
	while (((volatile char *)there.memory)[0] == 0)
		;
	there.memory[0]++;
	expect(there.cq, IBV_WC_SUCCESS, 1);
#endif
	unmake_pair();
	return 0;
}
