/* refused-verb: a region with IBV_ACCESS_REMOTE_WRITE and without IBV_ACCESS_LOCAL_WRITE. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	int access = IBV_ACCESS_REMOTE_WRITE | RIGHT(IBV_ACCESS_LOCAL_WRITE, 0);
	here.mr = ibv_reg_mr(here.pd, here.memory, SIZE, access); /* called */
	CHECK((here.mr == NULL) == RIGHT(0, 1));
	unmake_pair();
	return 0;
}
