/* Opens a device, and leaves without closing it: in order, or by a signal. */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = list && list[0] ? ibv_open_device(list[0]) : NULL;

	(void)argv;
	if (!context)
		return 1;
	if (argc > 1)
		abort();
	puts(ibv_get_device_name(context->device));
	return 0;
}
