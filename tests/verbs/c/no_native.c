/* Preloaded, it refuses native addresses (AF_IB) as a kernel without them does. librdmacm then goes by its older commands:
 * BIND_IP, RESOLVE_IP, QUERY_ROUTE and JOIN_IP_MCAST. What it writes is counted on standard error when the process ends.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <rdma/rdma_user_cm.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Not in the C library's headers. */
#define AF_IB 27

static unsigned counts[RDMA_USER_CM_CMD_JOIN_MCAST + 1];

ssize_t write(int fd, const void *bytes, size_t length)
{
	static ssize_t (*next)(int, const void *, size_t);
	struct rdma_ucm_cmd_hdr header;
	struct rdma_ucm_bind bind;
	if (!next)
		next = (ssize_t(*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
	if (length >= sizeof header) {
		memcpy(&header, bytes, sizeof header);
		int is_command = header.in + sizeof header == length && header.cmd <= RDMA_USER_CM_CMD_JOIN_MCAST;
		if (is_command && header.cmd == RDMA_USER_CM_CMD_BIND && header.in == sizeof bind) {
			memcpy(&bind, (const char *)bytes + sizeof header, sizeof bind);
			if (bind.addr.ss_family == AF_IB) {
				errno = EINVAL;
				return -1;
			}
		}
		if (is_command)
			counts[header.cmd]++;
	}
	return next(fd, bytes, length);
}

__attribute__((destructor)) static void tell(void)
{
	unsigned older = counts[RDMA_USER_CM_CMD_BIND_IP] + counts[RDMA_USER_CM_CMD_RESOLVE_IP] +
			 counts[RDMA_USER_CM_CMD_QUERY_ROUTE] + counts[RDMA_USER_CM_CMD_JOIN_IP_MCAST];
	unsigned newer = counts[RDMA_USER_CM_CMD_BIND] + counts[RDMA_USER_CM_CMD_RESOLVE_ADDR] +
			 counts[RDMA_USER_CM_CMD_QUERY] + counts[RDMA_USER_CM_CMD_JOIN_MCAST];
	if (older + newer)
		fprintf(stderr, "%u older and %u newer commands\n", older, newer);
}
