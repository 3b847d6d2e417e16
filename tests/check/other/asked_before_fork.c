/* A program that forks while memory is registered, and has asked whether that takes ibv_fork_init(). */
#include <sys/wait.h>

#include "../c/pair.h"

int main(void)
{
	CHECK(ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		_exit(0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	unmake_pair();
	return 0;
}
