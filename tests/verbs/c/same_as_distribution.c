/*
 * The functions of libibverbs that need no device answer like the distribution's.
 *
 *     same_as_distribution OUR-LIBRARY THE-DISTRIBUTION'S
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <infiniband/sa.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_sa.h>
#include <rdma/ib_user_verbs.h>

static void *ours, *theirs;
static int failures;

static void *symbol(void *library, const char *name, const char *version)
{
	void *address = dlvsym(library, name, version);
	if (!address) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	return address;
}

static void differ(const char *name, int argument)
{
	printf("%s(%d) differs\n", name, argument);
	failures++;
}

static void compare_strings(const char *name, int from, int to)
{
	const char *(*a)(int) = symbol(ours, name, "IBVERBS_1.1");
	const char *(*b)(int) = symbol(theirs, name, "IBVERBS_1.1");
	for (int i = from; i <= to; i++)
		if (strcmp(a(i), b(i))) {
			differ(name, i);
			printf("  ours \"%s\", theirs \"%s\"\n", a(i), b(i));
		}
}

static void compare_numbers(const char *name, const char *version, int from, int to)
{
	int (*a)(int) = symbol(ours, name, version);
	int (*b)(int) = symbol(theirs, name, version);
	for (int i = from; i <= to; i++)
		if (a(i) != b(i)) {
			differ(name, i);
			printf("  ours %d, theirs %d\n", a(i), b(i));
		}
}

/* Fills both destinations alike, converts the same random source, and compares every byte. */
static void compare_conversion(const char *name, const char *version, size_t to, size_t from)
{
	void (*a)(void *, void *) = symbol(ours, name, version);
	void (*b)(void *, void *) = symbol(theirs, name, version);
	for (int round = 0; round < 100; round++) {
		unsigned char source[512], x[512], y[512];
		for (size_t i = 0; i < from; i++)
			source[i] = (unsigned char)rand();
		memset(x, 0, sizeof x);
		memset(y, 0, sizeof y);
		a(x, source);
		b(y, source);
		for (size_t i = 0; i < to; i++)
			if (x[i] != y[i]) {
				printf("%s: byte %zu is %u, the distribution says %u\n", name, i, x[i], y[i]);
				failures++;
				return;
			}
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	ours = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
	theirs = dlopen(argv[2], RTLD_NOW | RTLD_LOCAL);
	if (!ours || !theirs) {
		fprintf(stderr, "%s\n", dlerror());
		return 2;
	}
	compare_strings("ibv_node_type_str", -2, 12);
	compare_strings("ibv_port_state_str", -2, 12);
	compare_strings("ibv_event_type_str", -2, 25);
	compare_strings("ibv_wc_status_str", -2, 30);
	compare_numbers("ibv_rate_to_mult", "IBVERBS_1.0", -2, 40);
	compare_numbers("mult_to_ibv_rate", "IBVERBS_1.0", -2, 600);
	compare_numbers("ibv_rate_to_mbps", "IBVERBS_1.1", -2, 40);
	compare_numbers("mbps_to_ibv_rate", "IBVERBS_1.1", -2, 1300000);
	compare_conversion("ibv_copy_ah_attr_from_kern", "IBVERBS_1.1", sizeof(struct ibv_ah_attr),
			   sizeof(struct ib_uverbs_ah_attr));
	compare_conversion("ibv_copy_qp_attr_from_kern", "IBVERBS_1.0", sizeof(struct ibv_qp_attr),
			   sizeof(struct ib_uverbs_qp_attr));
	compare_conversion("ibv_copy_path_rec_from_kern", "IBVERBS_1.0", sizeof(struct ibv_sa_path_rec),
			   sizeof(struct ib_user_path_rec));
	compare_conversion("ibv_copy_path_rec_to_kern", "IBVERBS_1.0", sizeof(struct ib_user_path_rec),
			   sizeof(struct ibv_sa_path_rec));
	printf("%d differences\n", failures);
	return failures != 0;
}
