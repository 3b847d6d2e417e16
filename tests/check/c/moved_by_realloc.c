/* unmapped-memory: a buffer is moved by realloc() while it is registered. */
#include "pair.h"

#define LONG (1 << 20)

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&there, ALL_ACCESS);
	connect_both();
	char *memory = malloc(LONG);
	CHECK(memory);
	memset(memory, 1, LONG);
	here.mr = ibv_reg_mr(here.pd, memory, LONG, IBV_ACCESS_LOCAL_WRITE); /* registered */
	CHECK(here.mr);
	struct ibv_sge sge = {(uintptr_t)memory + LONG / 2, 64, here.mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
#ifndef CORRECT
	/* Behind it there is no room to grow. */
	char *moved = realloc(memory, 64 * LONG);
	CHECK(moved && moved != memory);
#endif
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	unmake_pair();
	return 0;
}
