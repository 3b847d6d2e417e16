/* unmapped-memory: memory is moved by mremap() while it is registered. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "pair.h"

#define LONG (1 << 20)

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&there, ALL_ACCESS);
	connect_both();
	char *memory = mmap(NULL, LONG, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(memory);
	memset(memory, 1, LONG);
	here.mr = ibv_reg_mr(here.pd, memory, LONG, IBV_ACCESS_LOCAL_WRITE); /* registered */
	CHECK(here.mr);
	struct ibv_sge sge = {(uintptr_t)memory + LONG / 2, 64, here.mr->lkey};
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
#ifndef CORRECT
	char *moved = mmap(NULL, LONG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mremap(memory, LONG, LONG, MREMAP_MAYMOVE | MREMAP_FIXED, moved) == moved);
#endif
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	unmake_pair();
	return 0;
}
