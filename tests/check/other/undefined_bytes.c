/* Prints the byte behind a received message, which means nothing. */
#include "../c/pair.h"

int main(void)
{
	make_pair();
	memset(there.memory, 0, SIZE);
	struct ibv_sge room = all_of(&there, 512), sge = all_of(&here, 60);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad_receive;
	OK(ibv_post_recv(there.qp, &receive, &bad_receive));
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	struct ibv_wc wc = expect(there.cq, IBV_WC_SUCCESS, 1);
	CHECK(wc.byte_len == 60);
	printf("%#x %#x %#x\n", there.memory[59], there.memory[60], there.memory[64]);
	unmake_pair();
	return 0;
}
