/* Prints the opcode and byte_len of a failed completion, which mean nothing. */
#include "../c/pair.h"

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	wr.wr.rdma.rkey ^= 0x100;
	OK(ibv_post_send(here.qp, &wr, &bad));
	struct ibv_wc wc = completion_of(here.cq);
	CHECK(wc.wr_id == 7 && wc.status == IBV_WC_REM_ACCESS_ERR && wc.qp_num == here.qp->qp_num &&
	      wc.vendor_err == 0x201);
	printf("%#x %#x\n", wc.opcode, wc.byte_len);
	unmake_pair();
	return 0;
}
