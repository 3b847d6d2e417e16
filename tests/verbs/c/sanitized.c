/*
 * What a sanitizer's runtime meets: a verbs program that ends well, or with an access after free.
 *
 *     sanitized [after-free]
 */
#include "check.h"

#ifdef OPTIONS
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return OPTIONS;
}
#endif

int main(int argc, char **argv)
{
	(void)argv;
	int count = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(count == 1);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	char *volatile memory = malloc(16);
	memory[0] = 1;
	if (argc > 1)
		free(memory);
	printf("%d device, %d\n", count, memory[0]);
	if (argc == 1)
		free(memory);
	OK(ibv_close_device(context));
	ibv_free_device_list(list);
	return 0;
}
