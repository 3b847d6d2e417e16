/*
 * Finds verbs as NCCL does: dlopen and dlvsym, each symbol with its version. With a number, does all of it so many
 * times, closing the library in between.
 *
 *     dlvsym [TIMES]
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/verbs.h>

#undef ibv_query_port
#undef ibv_reg_mr

static void *library;

static void *symbol(const char *name, const char *version)
{
	void *address = dlvsym(library, name, version);
	if (!address) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	return address;
}

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s failed: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void once(void)
{
	library = dlopen("libibverbs.so.1", RTLD_NOW);
	check(library != NULL, "dlopen");
	struct ibv_device **(*get_list)(int *) = symbol("ibv_get_device_list", "IBVERBS_1.1");
	void (*free_list)(struct ibv_device **) = symbol("ibv_free_device_list", "IBVERBS_1.1");
	struct ibv_context *(*open_device)(struct ibv_device *) = symbol("ibv_open_device", "IBVERBS_1.1");
	int (*close_device)(struct ibv_context *) = symbol("ibv_close_device", "IBVERBS_1.1");
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *) =
		symbol("ibv_query_port", "IBVERBS_1.1");
	struct ibv_pd *(*alloc_pd)(struct ibv_context *) = symbol("ibv_alloc_pd", "IBVERBS_1.1");
	int (*dealloc_pd)(struct ibv_pd *) = symbol("ibv_dealloc_pd", "IBVERBS_1.1");
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, unsigned) =
		symbol("ibv_reg_mr_iova2", "IBVERBS_1.8");
	int (*dereg_mr)(struct ibv_mr *) = symbol("ibv_dereg_mr", "IBVERBS_1.1");
	symbol("ibv_reg_dmabuf_mr", "IBVERBS_1.12");
	symbol("ibv_query_ece", "IBVERBS_1.10");
	symbol("ibv_set_ece", "IBVERBS_1.10");
	check(dlvsym(library, "ibv_open_device", "IBVERBS_1.2") == NULL, "a version that is not there");

	int count = 0;
	struct ibv_device **list = get_list(&count);
	check(list && count == 1 && list[0] && !list[1], "the device list");
	struct ibv_context *context = open_device(list[0]);
	check(context != NULL, "ibv_open_device");
	free_list(list);

	/* The old entry point knows nothing of what came later. */
	struct ibv_port_attr attr;
	memset(&attr, 0xee, sizeof attr);
	check(query_port(context, 1, &attr) == 0 && attr.state == IBV_PORT_ACTIVE, "ibv_query_port");
	check(attr.link_layer == IBV_LINK_LAYER_ETHERNET, "the link layer");
	unsigned char *beyond = (unsigned char *)&attr.port_cap_flags2;
	check(beyond[0] == 0xee && beyond[1] == 0xee, "what is beyond the old struct is left alone");

	struct ibv_pd *pd = alloc_pd(context);
	static char memory[4096];
	struct ibv_mr *mr = reg_mr(pd, memory, sizeof memory, (uintptr_t)memory, IBV_ACCESS_LOCAL_WRITE);
	check(mr != NULL, "ibv_reg_mr_iova2");
	check(dereg_mr(mr) == 0 && dealloc_pd(pd) == 0 && close_device(context) == 0, "tearing down");
	check(dlclose(library) == 0, "dlclose");
}

int main(int argc, char **argv)
{
	int times = argc > 1 ? atoi(argv[1]) : 1;
	for (int i = 0; i < times; i++)
		once();
	puts("all right");
	return 0;
}
