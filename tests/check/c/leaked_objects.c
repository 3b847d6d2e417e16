/* leaked-object: the program does not deallocate a domain. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_pd *pd = ibv_alloc_pd(here.context); /* allocated */
	CHECK(pd);
#ifdef CORRECT
	OK(ibv_dealloc_pd(pd));
#endif
	unmake(&here);
	unmake(&there);
	OK(ibv_dealloc_pd(here.pd));
	OK(ibv_close_device(here.context));
	return 0;
}
