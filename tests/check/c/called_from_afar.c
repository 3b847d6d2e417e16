/* unknown-key: the request is posted by a function of a function. */
#include "pair.h"

static int __attribute__((noinline)) post(struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;
	int status = ibv_post_send(here.qp, wr, &bad); /* posted */
	asm volatile("" ::: "memory");		       /* No tail call. */
	return status;
}

static int __attribute__((noinline)) write_block(struct ibv_send_wr *wr)
{
	wr->wr.rdma.rkey ^= RIGHT(0, 0x100);
	int status = post(wr);	       /* posted */
	asm volatile("" ::: "memory"); /* No tail call. */
	return status;
}

int main(void)
{
	make_pair();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge);
	int status = write_block(&wr); /* posted */
	OK(status);
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
