// Registers many regions, says so, and waits.

#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 1;
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;
	struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;
	static char buffer[4096];

	if (!pd)
		return 1;
	for (int i = 0; i < count; i++)
		if (!ibv_reg_mr(pd, buffer, sizeof(buffer), IBV_ACCESS_LOCAL_WRITE))
			return 1;
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
