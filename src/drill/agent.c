/*
 * The agent of `softrnic drill`: makes queue pairs and memory, and posts what a script says.
 *
 *   cc -O2 -o drill-agent drill-agent.c -libverbs
 *   ./drill-agent [PORT]
 *
 * It listens on TCP port 18791 (or PORT) of the addresses that the RDMA devices have when it starts, and serves one client
 * at a time: a command a line, an answer a line, `ok …` or `error ERRNO …`. The device is the one with the address that
 * the client connected to. When the client goes, all that it made is destroyed. Who can reach the port can have this
 * machine send RDMA traffic: let only a lab reach it.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define OBJECTS 32
#define ADDRESSES 64
#define PAGE 4096
#define LINE (1 << 20)
#define BACKGROUND(i) ((uint8_t)((i) * 37 + 11))

/* Newer than the headers that some distributions have. */
#define SEND_OPS_FLUSH (UINT64_C(1) << 11)
#define SEND_OPS_ATOMIC_WRITE (UINT64_C(1) << 12)
#define DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

/* The end of ibv_qp_ex, which grew by these two. */
struct newer_ops {
	void (*atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, const void *value);
	void (*flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);
};
#define NEWER_OPS_OFFSET 344

struct queue {
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	uint64_t newer;
};

struct region {
	struct ibv_mr *mr;
	uint8_t *base;
	size_t size;
};

/* An address of a device, and who connects there. */
struct address {
	struct ibv_context *context;
	int gid_index;
	int listener;
};

static struct address addresses[ADDRESSES];
static int address_count;

/* The device of the first client, which all have. */
static struct ibv_context *context;
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq;
static struct ibv_xrcd *xrcd;
static union ibv_gid peer;
static int gid_index;
static uint64_t more_caps;

static struct queue queues[OBJECTS];
static struct ibv_srq *srqs[OBJECTS];
static struct region regions[OBJECTS];
static struct ibv_mw *windows[OBJECTS];

static char *line, *words[64];
static int word_count;
static FILE *answer;

/* ---- commands ---- */

static const char *text(const char *name)
{
	size_t length = strlen(name);

	for (int i = 1; i < word_count; i++)
		if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	return NULL;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *value = text(name);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

static int id(const char *name)
{
	uint64_t value = number(name, OBJECTS);

	return value < OBJECTS ? (int)value : -1;
}

static void failed(const char *what, int error)
{
	fprintf(answer, "error %d %s: %s\n", error, what, strerror(error));
}

static void result(const char *what, int error)
{
	if (error)
		failed(what, error);
	else
		fprintf(answer, "ok\n");
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000) + t.tv_nsec / 1000000;
}

static struct queue *the_queue(void)
{
	int i = id("qp");

	return i >= 0 && queues[i].qp ? &queues[i] : NULL;
}

static struct region *the_region(void)
{
	int i = id("mr");

	return i >= 0 && regions[i].base ? &regions[i] : NULL;
}

/* ---- the device ---- */

/* A socket that listens at a GID that is an IP address, if this machine has it. */
static int listen_at(const union ibv_gid *gid, int port)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int on = 1, off = 0, listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);

	/* An IPv4 address is one of IPv6 here, as in the GID. */
	memcpy(&address.sin6_addr, gid, sizeof *gid);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0)
		return listener;
	if (listener >= 0)
		close(listener);
	return -1;
}

/* Listens at the addresses of a device; returns how many those are. */
static int listen_for(struct ibv_context *device, int port)
{
	static const union ibv_gid none;
	struct ibv_port_attr attributes;
	int before = address_count;
	union ibv_gid gid;

	if (ibv_query_port(device, 1, &attributes))
		return 0;
	for (int i = 0; i < attributes.gid_tbl_len && address_count < ADDRESSES; i++) {
		struct address *address = &addresses[address_count];

		if (ibv_query_gid(device, 1, i, &gid) || memcmp(&gid, &none, sizeof gid) == 0)
			continue;
		/* The same address may be there for several versions of RoCE: then it is taken. */
		*address = (struct address){device, i, listen_at(&gid, port)};
		if (address->listener >= 0)
			address_count++;
	}
	return address_count - before;
}

static void listen_for_devices(int port)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int d = 0; list && list[d]; d++) {
		struct ibv_context *device = ibv_open_device(list[d]);

		if (device && listen_for(device, port) == 0)
			ibv_close_device(device);
	}
	if (list)
		ibv_free_device_list(list);
}

/* Uses the device with this address from now on. */
static int use_device(const struct address *address)
{
	struct ibv_device_attr_ex attributes;

	if (context && (context != address->context || gid_index != address->gid_index))
		return EADDRNOTAVAIL;
	context = address->context;
	gid_index = address->gid_index;
	memset(&attributes, 0, sizeof attributes);
	if (ibv_query_device_ex(context, NULL, &attributes) == 0)
		more_caps = attributes.device_cap_flags_ex;
	return fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK) ? errno : 0;
}

static void hello(void)
{
	const char *address = text("peer");
	int error = address && inet_pton(AF_INET6, address, &peer) == 1 ? 0 : EINVAL;

	if (!error && !pd && (!(pd = ibv_alloc_pd(context)) || !(other_pd = ibv_alloc_pd(context))))
		error = errno;
	if (!error && !cq && !(cq = ibv_create_cq(context, 1024, NULL, NULL, 0)))
		error = errno;
	if (error)
		failed("cannot use the device with this address", error);
	else
		fprintf(answer, "ok device=%s atomic_write=%d flush=%d\n", ibv_get_device_name(context->device),
			!!(more_caps & DEVICE_ATOMIC_WRITE), !!(more_caps & DEVICE_FLUSH_GLOBAL));
}

/* ---- objects ---- */

static int make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	if (!xrcd)
		xrcd = ibv_open_xrcd(context, &attr);
	return xrcd ? 0 : errno;
}

static void make_srq(void)
{
	int i = id("id");
	uint32_t srqn = 0;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = number("places", 16), .max_sge = 4},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
		.pd = number("elsewhere", 0) ? other_pd : pd,
	};
	int error = i < 0 || srqs[i] ? EINVAL : 0;

	if (!error && number("xrc", 0) && !(error = make_xrcd())) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.xrcd = xrcd;
		attr.cq = cq;
	}
	if (!error && !(srqs[i] = ibv_create_srq_ex(context, &attr)))
		error = errno;
	if (error) {
		failed("SRQ", error);
		return;
	}
	ibv_get_srq_num(srqs[i], &srqn);
	fprintf(answer, "ok srqn=%u\n", srqn);
}

static void limit_srq(void)
{
	int i = id("id");
	struct ibv_srq_attr attr = {.srq_limit = number("limit", 0)};

	result("limit", i < 0 || !srqs[i] ? EINVAL : ibv_modify_srq(srqs[i], &attr, IBV_SRQ_LIMIT));
}

static void destroy_srq(void)
{
	int i = id("id");
	int error = i < 0 || !srqs[i] ? EINVAL : ibv_destroy_srq(srqs[i]);

	if (!error)
		srqs[i] = NULL;
	result("ibv_destroy_srq", error);
}

static enum ibv_qp_type type_of(const char *name)
{
	static const struct {
		const char *name;
		enum ibv_qp_type type;
	} types[] = {
		{"uc", IBV_QPT_UC}, {"ud", IBV_QPT_UD}, {"xrc_ini", IBV_QPT_XRC_SEND}, {"xrc_tgt", IBV_QPT_XRC_RECV}};

	for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
		if (strcmp(name, types[i].name) == 0)
			return types[i].type;
	return IBV_QPT_RC;
}

static void make_qp(void)
{
	const uint64_t newer[] = {SEND_OPS_ATOMIC_WRITE | SEND_OPS_FLUSH, SEND_OPS_ATOMIC_WRITE, 0};
	uint64_t can = (more_caps & DEVICE_ATOMIC_WRITE ? SEND_OPS_ATOMIC_WRITE : 0) |
		       (more_caps & DEVICE_FLUSH_GLOBAL ? SEND_OPS_FLUSH : 0);
	int i = id("id"), srq = id("srq");
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq >= 0 ? srqs[srq] : NULL,
		.cap = {.max_send_wr = number("depth", 16),
			.max_recv_wr = number("receives", 16),
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = type_of(text("type")),
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd,
	};
	struct queue *queue = i >= 0 ? &queues[i] : NULL;
	int error = !queue || queue->qp ? EINVAL : 0;

	if (!error && attr.qp_type == IBV_QPT_XRC_RECV && !(error = make_xrcd())) {
		attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr.xrcd = xrcd;
	}
	for (size_t n = 0; !error && !queue->qp && n < sizeof newer / sizeof *newer; n++) {
		queue->newer = attr.qp_type == IBV_QPT_RC || attr.qp_type == IBV_QPT_XRC_SEND ? newer[n] & can : 0;
		attr.comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		if (queue->newer)
			attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		attr.send_ops_flags = queue->newer | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND;
		queue->qp = ibv_create_qp_ex(context, &attr);
	}
	if (!error && !queue->qp)
		error = errno;
	if (error)
		failed("queue pair", error);
	else
		fprintf(answer, "ok qpn=%u\n", queue->qp->qp_num);
}

static int enum_mtu(uint64_t bytes)
{
	int mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (UINT64_C(128) << mtu) < bytes)
		mtu++;
	return mtu;
}

/* To the state with this number, with the attributes that the way there needs. */
static void modify_qp(void)
{
	struct queue *queue = the_queue();
	enum ibv_qp_state state = number("state", IBV_QPS_ERR);
	enum ibv_qp_type type;
	int error, responds, requests, mask = IBV_QP_STATE;
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qkey = number("qkey", 0),
		.qp_access_flags = number("access", 0),
		.path_mtu = enum_mtu(number("mtu", 1024)),
		.dest_qp_num = number("dest", 0),
		.rq_psn = number("rq_psn", 0),
		.sq_psn = number("sq_psn", 0),
		.max_rd_atomic = number("rd", 0),
		.max_dest_rd_atomic = number("dest_rd", 0),
		.min_rnr_timer = number("rnr_timer", 0),
		.timeout = number("timeout", 14),
		.retry_cnt = number("retry", 7),
		.rnr_retry = number("rnr_retry", 7),
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = peer,
				    .sgid_index = gid_index,
				    .hop_limit = 64,
				    .traffic_class = number("tos", 0)}},
	};

	if (!queue) {
		failed("modify", EINVAL);
		return;
	}
	type = queue->qp->qp_type;
	responds = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
	requests = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (state == IBV_QPS_RTR && type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	if (state == IBV_QPS_RTS && number("begin", 0)) {
		mask |= IBV_QP_SQ_PSN;
		if (requests)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		else if (responds)
			mask |= IBV_QP_TIMEOUT;
	}
	if (state == IBV_QPS_SQD && number("notify", 0)) {
		mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
		attr.en_sqd_async_notify = 1;
	}
	error = ibv_modify_qp(queue->qp, &attr, mask);
	if (!error && type == IBV_QPT_UD && state == IBV_QPS_RTR && !queue->ah)
		error = (queue->ah = ibv_create_ah(pd, &attr.ah_attr)) ? 0 : errno;
	result("ibv_modify_qp", error);
}

static void query_qp(void)
{
	struct queue *queue = the_queue();
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = queue ? ibv_query_qp(queue->qp, &attr, IBV_QP_STATE, &init) : EINVAL;

	if (error)
		failed("ibv_query_qp", error);
	else
		fprintf(answer, "ok state=%d\n", attr.qp_state);
}

static int remove_qp(struct queue *queue)
{
	int error = ibv_destroy_qp(queue->qp);

	if (!error && queue->ah)
		ibv_destroy_ah(queue->ah);
	if (!error)
		memset(queue, 0, sizeof *queue);
	return error;
}

static void destroy_qp(void)
{
	struct queue *queue = the_queue();

	result("ibv_destroy_qp", queue ? remove_qp(queue) : EINVAL);
}

static void make_mr(void)
{
	int i = id("mr");
	size_t size = (number("size", PAGE) + PAGE - 1) / PAGE * PAGE;
	struct region *region = i >= 0 ? &regions[i] : NULL;

	if (!region || region->base) {
		failed("memory", EINVAL);
		return;
	}
	region->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region->base == MAP_FAILED) {
		region->base = NULL;
		failed("memory", errno);
		return;
	}
	region->size = size;
	for (size_t at = 0; at < size; at++)
		region->base[at] = BACKGROUND(at);
	region->mr = ibv_reg_mr(number("elsewhere", 0) ? other_pd : pd, region->base, number("size", PAGE),
				number("access", 0));
	if (!region->mr)
		failed("ibv_reg_mr", errno);
	else
		fprintf(answer, "ok lkey=%u rkey=%u addr=%" PRIu64 "\n", region->mr->lkey, region->mr->rkey,
			(uint64_t)(uintptr_t)region->base);
}

static void deregister(void)
{
	struct region *region = the_region();
	int error = region && region->mr ? ibv_dereg_mr(region->mr) : EINVAL;

	if (!error)
		region->mr = NULL;
	result("ibv_dereg_mr", error);
}

/* Takes the pages from `page` on away from a region, which stays registered. They are not the region's any more: something
 * else may be mapped there next. */
static void unmap(void)
{
	struct region *region = the_region();
	uint64_t page = number("page", 0);
	int error;

	if (!region || page >= region->size / PAGE) {
		failed("unmap", EINVAL);
		return;
	}
	error = munmap(region->base + page * PAGE, region->size - page * PAGE) ? errno : 0;
	if (!error)
		region->size = page * PAGE;
	result("munmap", error);
}

static void make_mw(void)
{
	int i = id("mw");

	if (i < 0 || windows[i])
		failed("window", EINVAL);
	else if (!(windows[i] = ibv_alloc_mw(pd, number("type", 2) == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)))
		failed("ibv_alloc_mw", errno);
	else
		fprintf(answer, "ok rkey=%u\n", windows[i]->rkey);
}

/* ---- memory ---- */

static uint8_t *bytes(uint64_t length)
{
	struct region *region = the_region();
	uint64_t offset = number("off", 0);

	return region && offset <= region->size && length <= region->size - offset ? region->base + offset : NULL;
}

static void read_memory(void)
{
	uint64_t length = number("len", 0);
	const uint8_t *from = bytes(length);

	if (!from) {
		failed("no such memory", EFAULT);
		return;
	}
	fprintf(answer, "ok data=");
	for (uint64_t i = 0; i < length; i++)
		fprintf(answer, "%02x", from[i]);
	fprintf(answer, "\n");
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t unhex(uint8_t *to, const char *from, size_t room)
{
	size_t n = 0;

	for (; n < room && hex(from[2 * n]) >= 0 && hex(from[2 * n + 1]) >= 0; n++)
		to[n] = hex(from[2 * n]) << 4 | hex(from[2 * n + 1]);
	return n;
}

static void write_memory(void)
{
	const char *data = text("data");
	size_t length = data ? strlen(data) / 2 : 0;
	uint8_t *to = bytes(length);

	result("no such memory", to && unhex(to, data ? data : "", length) == length ? 0 : EFAULT);
}

/* ---- work ---- */

/* `addr:length:lkey` with commas between. */
static int sges(struct ibv_sge *list)
{
	const char *rest = text("sges");
	int n = 0;

	while (rest && *rest && n < 4) {
		char *end;
		list[n].addr = strtoull(rest, &end, 0);
		list[n].length = *end ? strtoul(end + 1, &end, 0) : 0;
		list[n].lkey = *end ? strtoul(end + 1, &end, 0) : 0;
		rest = *end ? end + 1 : NULL;
		n++;
	}
	return n;
}

static void post_receive(void)
{
	struct ibv_sge list[4];
	struct ibv_recv_wr wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = sges(list)}, *bad;
	struct queue *queue = the_queue();
	int srq = id("srq");

	if (srq >= 0 && srqs[srq])
		result("ibv_post_srq_recv", ibv_post_srq_recv(srqs[srq], &wr, &bad));
	else
		result("ibv_post_recv", queue ? ibv_post_recv(queue->qp, &wr, &bad) : EINVAL);
}

/* Where the eight bytes are that an ATOMIC WRITE takes along, if they are in memory of ours. */
static const void *atomic_value(const struct ibv_sge *sge)
{
	for (int i = 0; i < OBJECTS; i++) {
		const struct ibv_mr *mr = regions[i].mr;
		uint64_t base = (uintptr_t)regions[i].base;

		if (mr && mr->lkey == sge->lkey && sge->length == 8 && sge->addr >= base && regions[i].size >= 8 &&
		    sge->addr - base <= regions[i].size - 8)
			return (const void *)(uintptr_t)sge->addr;
	}
	return NULL;
}

/* ATOMIC WRITE and FLUSH, which ibv_post_send does not have. */
static int post_newer(struct queue *queue, const char *op, const struct ibv_sge *sge, unsigned flags)
{
	struct ibv_qp_ex *ex = queue->newer ? ibv_qp_to_qp_ex(queue->qp) : NULL;
	uint64_t wanted = strcmp(op, "flush") == 0 ? SEND_OPS_FLUSH : SEND_OPS_ATOMIC_WRITE;
	const void *value = atomic_value(sge);
	struct newer_ops ops;

	if (!ex || !(queue->newer & wanted) || (wanted == SEND_OPS_ATOMIC_WRITE && !value))
		return EOPNOTSUPP;
	memcpy(&ops, (char *)ex + NEWER_OPS_OFFSET, sizeof ops);
	ibv_wr_start(ex);
	ex->wr_id = number("wr", 0);
	ex->wr_flags = flags;
	if (wanted == SEND_OPS_FLUSH) {
		ops.flush(ex, number("rkey", 0), number("va", 0), number("length", 0), 1, number("whole", 0));
	} else {
		ops.atomic_write(ex, number("rkey", 0), number("va", 0), value);
	}
	if (text("srqn"))
		ibv_wr_set_xrc_srqn(ex, number("srqn", 0));
	return ibv_wr_complete(ex);
}

static int bind_window(struct queue *queue, const struct ibv_sge *sge, unsigned flags)
{
	int w = id("mw"), r = id("mr"), error;
	struct ibv_send_wr wr = {.wr_id = number("wr", 0), .opcode = IBV_WR_BIND_MW, .send_flags = flags}, *bad;
	struct ibv_mw_bind_info info = {
		.mr = r >= 0 ? regions[r].mr : NULL,
		.addr = sge->addr,
		.length = sge->length,
		.mw_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC,
	};

	if (!info.mr)
		return EINVAL;
	if (number("zero", 0))
		info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	if (w >= 0 && windows[w] && windows[w]->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind old = {.wr_id = wr.wr_id, .send_flags = flags, .bind_info = info};
		return ibv_bind_mw(queue->qp, windows[w], &old);
	}
	if (w < 0 || !windows[w])
		return EINVAL;
	wr.bind_mw.mw = windows[w];
	wr.bind_mw.rkey = (windows[w]->rkey & ~UINT32_C(0xff)) | (number("tag", 0) & 0xff);
	wr.bind_mw.bind_info = info;
	error = ibv_post_send(queue->qp, &wr, &bad);
	/* Some libraries name the window by the key that it has here, and leave it to the application to keep it. */
	if (!error)
		windows[w]->rkey = wr.bind_mw.rkey;
	return error;
}

static int post(struct queue *queue)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode opcode;
	} operations[] = {
		{"send", IBV_WR_SEND},
		{"send_imm", IBV_WR_SEND_WITH_IMM},
		{"send_inv", IBV_WR_SEND_WITH_INV},
		{"write", IBV_WR_RDMA_WRITE},
		{"write_imm", IBV_WR_RDMA_WRITE_WITH_IMM},
		{"read", IBV_WR_RDMA_READ},
		{"cas", IBV_WR_ATOMIC_CMP_AND_SWP},
		{"fadd", IBV_WR_ATOMIC_FETCH_AND_ADD},
		{"invalidate", IBV_WR_LOCAL_INV},
	};
	const char *op = text("op"), *data = text("inline");
	uint8_t inlined[64];
	struct ibv_sge list[4] = {{0}};
	struct ibv_send_wr wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = sges(list)}, *bad;
	size_t i = 0;

	wr.send_flags = (number("signaled", 1) ? IBV_SEND_SIGNALED : 0) | (number("fence", 0) ? IBV_SEND_FENCE : 0) |
			(number("solicited", 0) ? IBV_SEND_SOLICITED : 0);
	if (!op)
		return EINVAL;
	if (strcmp(op, "awrite") == 0 || strcmp(op, "flush") == 0)
		return post_newer(queue, op, list, wr.send_flags);
	if (strcmp(op, "bind") == 0)
		return bind_window(queue, list, wr.send_flags);
	while (i < sizeof operations / sizeof *operations && strcmp(op, operations[i].name))
		i++;
	if (i == sizeof operations / sizeof *operations)
		return EOPNOTSUPP;
	wr.opcode = operations[i].opcode;
	if (data) {
		list[0].addr = (uintptr_t)inlined;
		list[0].length = unhex(inlined, data, sizeof inlined);
		wr.num_sge = 1;
		wr.send_flags |= IBV_SEND_INLINE;
	}
	if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = number("rkey", 0);
	else
		wr.imm_data = htonl(number("imm", 0));
	if (queue->qp->qp_type == IBV_QPT_UD) {
		if (!queue->ah)
			return EINVAL;
		wr.wr.ud.ah = queue->ah;
		wr.wr.ud.remote_qpn = number("dest", 0);
		wr.wr.ud.remote_qkey = number("qkey", 0);
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = number("va", 0);
		wr.wr.atomic.rkey = number("rkey", 0);
		wr.wr.atomic.compare_add = number("compare", 0);
		wr.wr.atomic.swap = number("swap", 0);
	} else {
		wr.wr.rdma.remote_addr = number("va", 0);
		wr.wr.rdma.rkey = number("rkey", 0);
	}
	if (queue->qp->qp_type == IBV_QPT_XRC_SEND)
		wr.qp_type.xrc.remote_srqn = number("srqn", 0);
	return ibv_post_send(queue->qp, &wr, &bad);
}

static void post_send(void)
{
	struct queue *queue = the_queue();
	int w = id("mw"), error = queue ? post(queue) : EINVAL;

	if (error)
		failed("post", error);
	else
		fprintf(answer, "ok rkey=%u\n", w >= 0 && windows[w] ? windows[w]->rkey : 0);
}

/* One completion, waiting at most `ms` for it. */
static void complete(void)
{
	uint64_t deadline = now_ms() + number("ms", 0);
	struct ibv_wc wc;
	int found;

	while ((found = ibv_poll_cq(cq, 1, &wc)) == 0 && now_ms() < deadline)
		usleep(200);
	if (found < 0)
		failed("ibv_poll_cq", EIO);
	else if (found == 0)
		fprintf(answer, "ok none=1\n");
	else if (wc.status != IBV_WC_SUCCESS) /* the rest means nothing then */
		fprintf(answer, "ok wr=%" PRIu64 " status=%d qpn=%u\n", wc.wr_id, wc.status, wc.qp_num);
	else
		fprintf(answer, "ok wr=%" PRIu64 " status=0 qpn=%u opcode=%d len=%u flags=%u extra=%u src=%u\n",
			wc.wr_id, wc.qp_num, wc.opcode, wc.byte_len, wc.wc_flags,
			wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : wc.invalidated_rkey, wc.src_qp);
}

/* One asynchronous event, waiting at most `ms` for it. */
static void event(void)
{
	uint64_t deadline = now_ms() + number("ms", 0);
	struct ibv_async_event got;
	int object = -1;

	while (ibv_get_async_event(context, &got)) {
		if (now_ms() >= deadline) {
			fprintf(answer, "ok none=1\n");
			return;
		}
		usleep(200);
	}
	for (int i = 0; i < OBJECTS; i++)
		if ((queues[i].qp && got.element.qp == queues[i].qp) || (srqs[i] && got.element.srq == srqs[i]))
			object = i;
	fprintf(answer, "ok event=%d object=%d\n", got.event_type, object);
	ibv_ack_async_event(&got);
}

/* Destroys all that a client made. */
static void clear(void)
{
	struct ibv_async_event got;
	struct ibv_wc wc;

	for (int i = 0; i < OBJECTS; i++)
		if (windows[i] && ibv_dealloc_mw(windows[i]) == 0)
			windows[i] = NULL;
	for (int i = 0; i < OBJECTS; i++)
		if (queues[i].qp)
			remove_qp(&queues[i]);
	for (int i = 0; i < OBJECTS; i++) {
		if (windows[i] && ibv_dealloc_mw(windows[i]) == 0)
			windows[i] = NULL;
		if (srqs[i] && ibv_destroy_srq(srqs[i]) == 0)
			srqs[i] = NULL;
		if (regions[i].mr)
			ibv_dereg_mr(regions[i].mr);
		if (regions[i].base)
			munmap(regions[i].base, regions[i].size);
		memset(&regions[i], 0, sizeof regions[i]);
	}
	if (context)
		while (ibv_get_async_event(context, &got) == 0)
			ibv_ack_async_event(&got);
	while (cq && ibv_poll_cq(cq, 1, &wc) > 0)
		;
}

static void ping(void)
{
	fprintf(answer, "ok\n");
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{"ping", ping},		{"hello", hello},	 {"qp", make_qp},	  {"modify", modify_qp},
	{"state", query_qp},	{"destroy", destroy_qp}, {"srq", make_srq},	  {"limit", limit_srq},
	{"unsrq", destroy_srq}, {"mr", make_mr},	 {"dereg", deregister},	  {"unmap", unmap},
	{"mw", make_mw},	{"read", read_memory},	 {"write", write_memory}, {"recv", post_receive},
	{"post", post_send},	{"complete", complete},	 {"event", event},
};

static void obey(void)
{
	char *rest = line;

	word_count = 0;
	while (word_count < 64 && (words[word_count] = strtok_r(rest, " \r\n", &rest)))
		word_count++;
	for (size_t i = 0; word_count && i < sizeof commands / sizeof *commands; i++)
		if (strcmp(words[0], commands[i].name) == 0) {
			if (commands[i].run != hello && !cq)
				failed("say hello first", EPROTO);
			else
				commands[i].run();
			return;
		}
	failed("no such command", ENOSYS);
}

static void serve(int fd, const struct address *address)
{
	int on = 1, error;
	FILE *in = fdopen(fd, "r");

	answer = fdopen(dup(fd), "w");
	if (!in || !answer)
		exit(1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	error = use_device(address);
	if (error == EADDRNOTAVAIL)
		fprintf(answer, "error %d this agent serves another address; start one for each\n", error);
	else if (error)
		failed("cannot use the device with this address", error);
	while (!error && fgets(line, LINE, in)) {
		obey();
		if (fflush(answer))
			break;
	}
	if (!error)
		clear();
	fclose(answer);
	fclose(in);
}

int main(int argc, char **argv)
{
	struct pollfd waiting[ADDRESSES];
	int port = argc > 1 ? atoi(argv[1]) : 18791;

	signal(SIGPIPE, SIG_IGN);
	line = malloc(LINE);
	listen_for_devices(port);
	if (!line || address_count == 0) {
		fprintf(stderr, "drill-agent: there is no RDMA device with an address where TCP port %d is free\n",
			port);
		return 1;
	}
	for (int i = 0; i < address_count; i++)
		waiting[i] = (struct pollfd){.fd = addresses[i].listener, .events = POLLIN};
	for (;;) {
		if (poll(waiting, address_count, -1) < 0)
			continue;
		for (int i = 0; i < address_count; i++) {
			int fd = waiting[i].revents ? accept(waiting[i].fd, NULL, NULL) : -1;

			if (fd >= 0)
				serve(fd, &addresses[i]);
		}
	}
}
