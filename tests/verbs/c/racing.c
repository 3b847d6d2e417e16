/* A verbs program with a data race of its own, which a race detector is to find. */
#include <pthread.h>

#include "check.h"

static int races;

static void *run(void *argument)
{
	struct ibv_context *context = argument;
	struct ibv_pd *pd = ibv_alloc_pd(context);
	races++;
	OK(ibv_dealloc_pd(pd));
	return NULL;
}

int main(void)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context != NULL);
	pthread_t threads[2];
	for (int i = 0; i < 2; i++)
		CHECK(pthread_create(&threads[i], NULL, run, context) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	OK(ibv_close_device(context));
	ibv_free_device_list(list);
	printf("%d\n", races);
	return 0;
}
