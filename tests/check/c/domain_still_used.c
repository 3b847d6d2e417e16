/* still-used: a protection domain is deallocated before its region. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_pd *pd = ibv_alloc_pd(here.context); /* allocated */
	CHECK(pd);
	struct ibv_mr *mr = ibv_reg_mr(pd, here.memory, SIZE, 0); /* registered */
	CHECK(mr);
#ifndef CORRECT
	FAILS(ibv_dealloc_pd(pd), EBUSY); /* called */
#endif
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(pd));
	unmake_pair();
	return 0;
}
