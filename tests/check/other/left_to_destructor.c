/* A program whose destructors, which run after those of its threads' variables, make a second mistake. */
#include "../c/pair.h"

static struct ibv_pd *pd;
static struct ibv_mr *mr;

static __attribute__((destructor)) void end(void)
{
	FAILS(ibv_dealloc_pd(pd), EBUSY); /* last */
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(pd));
	unmake_pair();
}

int main(void)
{
	make_pair();
	pd = ibv_alloc_pd(here.context);
	CHECK(pd);
	mr = ibv_reg_mr(pd, here.memory, SIZE, 0);
	CHECK(mr);
	FAILS(ibv_dealloc_pd(pd), EBUSY); /* first */
	return 0;
}
