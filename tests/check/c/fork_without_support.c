/* fork-without-support: the program forks while memory is registered. */
#include <sys/wait.h>

#include "pair.h"

int main(void)
{
#ifdef CORRECT
	OK(ibv_fork_init());
#endif
	make_both(IBV_QPT_RC);
	here.mr = ibv_reg_mr(here.pd, here.memory, SIZE, ALL_ACCESS); /* registered */
	CHECK(here.mr);
	pid_t child = fork(); /* called */
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	unmake_pair();
	return 0;
}
