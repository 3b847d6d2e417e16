/* unmapped-memory: the memory of a region is unmapped before it is used. */
#include <sys/mman.h>

#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&there, ALL_ACCESS);
	connect_both();
	char *mapped = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(mapped != MAP_FAILED);
	struct ibv_sge sge;
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	here.mr = ibv_reg_mr(here.pd, mapped, SIZE, 0); /* registered */
	CHECK(here.mr);
	sge = (struct ibv_sge){(uintptr_t)mapped, 64, here.mr->lkey};
#ifndef CORRECT
	munmap(mapped, SIZE);
#endif
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_PROT_ERR);
	unmake_pair();
	return 0;
}
