/* refused-verb: a region is deregistered twice. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_mr *mr = here.mr;
	OK(ibv_dereg_mr(here.mr));
	here.mr = NULL;
#ifndef CORRECT
	FAILS(ibv_dereg_mr(mr), ENOENT); /* called */
#else
	(void)mr;
#endif
	unmake_pair();
	return 0;
}
