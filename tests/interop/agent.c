/*
 * One end of an interoperability cell: a verbs program that does what it is told.
 *
 * It reads a command a line from standard input and answers each with one line, `ok …` or `error …`. The same
 * binary runs on kernel rxe, with the distribution's libibverbs, and on SoftRNIC. Objects are numbered by whoever
 * gives the commands, and stay until they are destroyed, so that a cell costs a few packets and no set-up.
 *
 *   open     dev gid                                  device with this GID, and a domain on it
 *   mr       mr dev size access [huge]                memory, registered
 *   dereg    mr
 *   mw       mw dev                                   type 2 window
 *   bind     mw qp mr off len access                  binds it; answers with its key
 *   unmw     mw
 *   qp       qp dev type(rc|uc|ud) [depth] [srq]
 *   connect  qp gid qpn mtu rq_psn sq_psn [timeout retry rnr min_rnr rd_atomic dest_rd_atomic access qkey until]
 *   error    qp                                       to the error state
 *   destroy  qp
 *   fill     mr off len seed back                     pattern, within a background
 *   frame    mr off len back                          the background around a buffer alone
 *   check    mr off len seed back [head]              the pattern and what surrounds it and a header
 *   prefix   mr off len seed back mtu                 how many bytes of the pattern, in whole packets, come before
 *                                                     the background
 *   which    mr off len seed count                    which of `count` consecutive seeds the bytes are from
 *   word     mr off [set]                             eight bytes as a number
 *   recv     qp id mr off len [key]
 *   post     qp id op mr off len [addr rkey imm qpn compare swap add key inline wr]
 *   wait     qp n ms                                  that many completions
 *   state    qp
 *   events   dev                                      asynchronous events that are there
 *   die                                               by SIGKILL, with everything open
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <infiniband/verbs.h>

/* Newer than the headers that some distributions have. */
#define SEND_OPS_FLUSH (1u << 11)
#define SEND_OPS_ATOMIC_WRITE (1u << 12)
#define ACCESS_FLUSH_GLOBAL (1u << 8)
#define FLUSH_TYPE_GLOBAL 1
#define FLUSH_LEVEL_RANGE 0
#define DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38)
#define DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

/* The end of ibv_qp_ex, which grew by these two. */
struct newer_ops {
	void (*atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, const void *value);
	void (*flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);
};
#define NEWER_OPS_OFFSET 344

#define MARGIN 64 /* bytes on either side of a buffer that must not change */
#define GRH_BYTES 40

struct device {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int gid_index;
	uint64_t more_caps;
};

struct region {
	struct ibv_mr *mr;
	uint8_t *base;
	size_t size;
};

struct window {
	struct ibv_mw *mw;
};

struct queue {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_ah *ah;
	struct device *device;
	uint64_t ops;
	uint32_t qkey;
};

static struct device devices[8];
static struct region regions[64];
static struct window windows[64];
static struct queue queues[256];

/* ---- a command and its answer ---- */

static char *words[64];
static int word_count;
static char answer[1 << 16];
static size_t answered;

static const char *text(const char *name, const char *otherwise)
{
	size_t length = strlen(name);

	for (int i = 1; i < word_count; i++)
		if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	return otherwise;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *value = text(name, NULL);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	if (answered < sizeof answer)
		answered += vsnprintf(answer + answered, sizeof answer - answered, format, args);
	va_end(args);
}

static void failed(const char *what, int error)
{
	answered = 0;
	say("error %s: errno=%d %s", what, error, strerror(error));
}

static void ok(void)
{
	say("ok");
}

static struct device *the_device(void)
{
	uint64_t index = number("dev", 0);

	return index < 8 ? &devices[index] : NULL;
}

static struct region *the_region(void)
{
	uint64_t index = number("mr", 0);

	return index < 64 ? &regions[index] : NULL;
}

static struct queue *the_queue(void)
{
	uint64_t index = number("qp", 0);

	return index < 256 ? &queues[index] : NULL;
}

/* The bytes that a command names, with the margins around them; NULL when they are not in the region. */
static uint8_t *buffer(struct region *region, size_t *length)
{
	uint64_t offset = number("off", 0);

	*length = number("len", 0);
	if (!region || !region->base || offset < MARGIN || offset > region->size || *length > region->size - offset ||
	    region->size - offset - *length < MARGIN) {
		failed("no such buffer", EINVAL);
		return NULL;
	}
	return region->base + offset;
}

/* ---- patterns ---- */

/* Eight bytes of the pattern with this seed; different for every place and every seed. */
static uint64_t pattern(uint64_t seed, uint64_t place)
{
	uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + place * UINT64_C(0xbf58476d1ce4e5b9);

	z = (z ^ (z >> 30)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* The part of those eight bytes that begins at byte `first` of the pattern: where it is, and how long. */
static size_t part(uint64_t *value, uint64_t seed, uint64_t first, size_t length)
{
	size_t rest = 8 - first % 8;

	*value = pattern(seed, first / 8) >> (8 * (first % 8));
	return rest < length ? rest : length;
}

static void write_pattern(uint8_t *bytes, uint64_t first, size_t length, uint64_t seed)
{
	uint64_t value;

	for (size_t n, i = 0; i < length; i += n) {
		n = part(&value, seed, first + i, length - i);
		memcpy(bytes + i, &value, n);
	}
}

/* The first byte that differs, or `length`. */
static size_t same(const uint8_t *bytes, uint64_t first, size_t length, uint64_t seed)
{
	uint64_t value;

	for (size_t n, i = 0; i < length; i += n) {
		n = part(&value, seed, first + i, length - i);
		if (memcmp(bytes + i, &value, n) == 0)
			continue;
		while (bytes[i] == (uint8_t)value) {
			value >>= 8;
			i++;
		}
		return i;
	}
	return length;
}

static void write_margins(struct region *region, uint8_t *bytes, size_t length, uint64_t back)
{
	uint64_t at = bytes - region->base;

	write_pattern(bytes - MARGIN, at - MARGIN, MARGIN, back);
	write_pattern(bytes + length, at + length, MARGIN, back);
}

static bool margins_are(struct region *region, const uint8_t *bytes, size_t length, uint64_t back)
{
	uint64_t at = bytes - region->base, head = number("head", 0);

	if (head > at - MARGIN || same(bytes - head - MARGIN, at - head - MARGIN, MARGIN, back) != MARGIN) {
		say("error bytes before the buffer were written");
		return false;
	}
	if (same(bytes + length, at + length, MARGIN, back) != MARGIN) {
		say("error bytes after the buffer were written");
		return false;
	}
	return true;
}

static void fill(void)
{
	struct region *region = the_region();
	size_t length;
	uint8_t *bytes = buffer(region, &length);
	uint64_t back = number("back", 0), seed = number("seed", back);

	if (!bytes)
		return;
	write_margins(region, bytes, length, back);
	if (seed == back)
		write_pattern(bytes, bytes - region->base, length, back);
	else
		write_pattern(bytes, 0, length, seed);
	ok();
}

static void frame(void)
{
	struct region *region = the_region();
	size_t length;
	uint8_t *bytes = buffer(region, &length);

	if (!bytes)
		return;
	write_margins(region, bytes, length, number("back", 0));
	ok();
}

static void check(void)
{
	struct region *region = the_region();
	size_t length, good;
	uint8_t *bytes = buffer(region, &length);
	uint64_t seed = number("seed", 0), back = number("back", 0);

	if (!bytes)
		return;
	good = seed == back ? same(bytes, bytes - region->base, length, back) : same(bytes, 0, length, seed);
	if (good != length) {
		say("error byte %zu of %zu is wrong: %02x", good, length, bytes[good]);
		return;
	}
	if (margins_are(region, bytes, length, back))
		ok();
}

static void prefix(void)
{
	struct region *region = the_region();
	size_t length, there, rest;
	uint8_t *bytes = buffer(region, &length);
	uint64_t back = number("back", 0);

	if (!bytes)
		return;
	there = same(bytes, 0, length, number("seed", 0));
	if (there != length)
		there -= there % number("mtu", 1024); /* a byte of the background may look like the pattern */
	rest = length - there;
	if (same(bytes + there, bytes + there - region->base, rest, back) != rest) {
		say("error after %zu of %zu bytes comes something else", there, length);
		return;
	}
	if (margins_are(region, bytes, length, back))
		say("ok bytes=%zu", there);
}

static void which(void)
{
	size_t length;
	uint8_t *bytes = buffer(the_region(), &length);
	uint64_t seed = number("seed", 0), count = number("count", 1);

	if (!bytes)
		return;
	for (uint64_t i = 0; i < count; i++)
		if (same(bytes, 0, length, seed + i) == length) {
			say("ok index=%" PRIu64, i);
			return;
		}
	say("error the bytes are from none of them");
}

static void word(void)
{
	size_t length;
	uint8_t *bytes = buffer(the_region(), &length);
	uint64_t value;

	if (!bytes)
		return;
	value = number("set", 0);
	if (text("set", NULL))
		memcpy(bytes, &value, sizeof value);
	memcpy(&value, bytes, sizeof value);
	say("ok value=%" PRIu64, value);
}

/* ---- objects ---- */

static bool find_gid(struct device *device, struct ibv_context *context, const union ibv_gid *wanted)
{
	struct ibv_port_attr port;

	if (ibv_query_port(context, 1, &port))
		return false;
	for (int i = 0; i < port.gid_tbl_len; i++) {
		union ibv_gid gid;
		if (ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(&gid, wanted, sizeof gid) == 0) {
			device->gid_index = i;
			return true;
		}
	}
	return false;
}

static void open_device(void)
{
	struct device *device = the_device();
	struct ibv_device_attr_ex attributes = {0};
	struct ibv_device **list = ibv_get_device_list(NULL);
	int error = ENODEV;

	if (!list || !device || inet_pton(AF_INET6, text("gid", ""), &device->gid) != 1) {
		failed("open", EINVAL);
		return;
	}
	for (int i = 0; list[i]; i++) {
		struct ibv_context *context = ibv_open_device(list[i]);
		if (!context) {
			error = errno;
			continue;
		}
		if (!find_gid(device, context, &device->gid)) {
			ibv_close_device(context);
			continue;
		}
		device->context = context;
		device->pd = ibv_alloc_pd(context);
		if (ibv_query_device_ex(context, NULL, &attributes) == 0)
			device->more_caps = attributes.device_cap_flags_ex;
		fcntl(context->async_fd, F_SETFL, fcntl(context->async_fd, F_GETFL) | O_NONBLOCK);
		say("ok name=%s gid_index=%d atomic_write=%d flush=%d", ibv_get_device_name(list[i]), device->gid_index,
		    !!(device->more_caps & DEVICE_ATOMIC_WRITE), !!(device->more_caps & DEVICE_FLUSH_GLOBAL));
		ibv_free_device_list(list);
		return;
	}
	ibv_free_device_list(list);
	failed("no device has that GID", error);
}

static void register_region(void)
{
	struct region *region = the_region();
	struct device *device = the_device();
	size_t size = number("size", 4096);

	if (!region || !device || !device->pd) {
		failed("mr", EINVAL);
		return;
	}
	if (region->base && region->size < size) {
		failed("the region has memory of another size", EINVAL);
		return;
	}
	if (!region->base) {
		region->base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		region->size = size;
	}
	region->mr = ibv_reg_mr(device->pd, region->base, size, number("access", 0));
	if (!region->mr)
		failed("ibv_reg_mr", errno);
	else
		say("ok addr=%" PRIu64 " lkey=%u rkey=%u", (uint64_t)(uintptr_t)region->base, region->mr->lkey,
		    region->mr->rkey);
}

static void deregister_region(void)
{
	struct region *region = the_region();
	int error = region && region->mr ? ibv_dereg_mr(region->mr) : EINVAL;

	if (error) {
		failed("ibv_dereg_mr", error);
		return;
	}
	region->mr = NULL;
	ok();
}

/* One completion of the queue, waiting at most so long. */
static bool next_completion(struct queue *queue, struct ibv_wc *wc, uint64_t milliseconds)
{
	struct timespec now;
	uint64_t deadline = 0;

	for (;;) {
		if (ibv_poll_cq(queue->cq, 1, wc) > 0)
			return true;
		clock_gettime(CLOCK_MONOTONIC, &now);
		uint64_t t = now.tv_sec * UINT64_C(1000) + now.tv_nsec / 1000000;
		if (!deadline)
			deadline = t + milliseconds;
		else if (t >= deadline)
			return false;
	}
}

static struct window *the_window(void)
{
	uint64_t index = number("mw", 0);

	return index < 64 ? &windows[index] : NULL;
}

static void bind_window(void)
{
	struct window *window = the_window();
	struct queue *queue = the_queue();
	struct region *region = the_region();
	struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED}, *bad;
	struct ibv_wc wc;
	int error;

	if (!queue || !queue->qp || !region || !region->mr || !window || !window->mw) {
		failed("bind", EINVAL);
		return;
	}
	wr.bind_mw.mw = window->mw;
	wr.bind_mw.rkey = ibv_inc_rkey(window->mw->rkey);
	wr.bind_mw.bind_info.mr = region->mr;
	wr.bind_mw.bind_info.addr = (uintptr_t)region->base + number("off", 0);
	wr.bind_mw.bind_info.length = number("len", 0);
	wr.bind_mw.bind_info.mw_access_flags = number("access", 0);
	error = ibv_post_send(queue->qp, &wr, &bad);
	if (error) {
		failed("ibv_post_send", error);
		return;
	}
	if (!next_completion(queue, &wc, 5000) || wc.status != IBV_WC_SUCCESS) {
		failed("binding", EIO);
		return;
	}
	window->mw->rkey = wr.bind_mw.rkey;
	say("ok rkey=%u", window->mw->rkey);
}

static void make_window(void)
{
	struct window *window = the_window();
	struct device *device = the_device();

	if (!window || window->mw || !device || !device->pd) {
		failed("mw", EINVAL);
		return;
	}
	window->mw = ibv_alloc_mw(device->pd, IBV_MW_TYPE_2);
	if (!window->mw)
		failed("ibv_alloc_mw", errno);
	else
		ok();
}

static void free_window(void)
{
	struct window *window = the_window();
	int error = window && window->mw ? ibv_dealloc_mw(window->mw) : EINVAL;

	if (error) {
		failed("ibv_dealloc_mw", error);
		return;
	}
	window->mw = NULL;
	ok();
}

static enum ibv_qp_type the_type(void)
{
	const char *type = text("type", "rc");

	return strcmp(type, "uc") == 0 ? IBV_QPT_UC : strcmp(type, "ud") == 0 ? IBV_QPT_UD : IBV_QPT_RC;
}

static const uint64_t all_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
				IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ |
				IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD |
				IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;

/* An RC queue pair for ibv_wr_*, with as many of the newer operations as the library and the device have. */
static struct ibv_qp *create_qp(struct queue *queue, enum ibv_qp_type type, const struct ibv_qp_cap *cap)
{
	struct device *device = queue->device;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = queue->cq,
		.recv_cq = queue->cq,
		.srq = queue->srq,
		.cap = *cap,
		.qp_type = type,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = device->pd,
	};
	const uint64_t newer[] = {SEND_OPS_ATOMIC_WRITE | SEND_OPS_FLUSH, SEND_OPS_ATOMIC_WRITE, 0};
	struct ibv_qp *qp;

	if (type != IBV_QPT_RC) {
		attr.comp_mask &= ~IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		return ibv_create_qp_ex(device->context, &attr);
	}
	for (int i = 0; i < 3; i++) {
		queue->ops = newer[i];
		if (!(device->more_caps & DEVICE_ATOMIC_WRITE))
			queue->ops &= ~(uint64_t)SEND_OPS_ATOMIC_WRITE;
		if (!(device->more_caps & DEVICE_FLUSH_GLOBAL))
			queue->ops &= ~(uint64_t)SEND_OPS_FLUSH;
		attr.send_ops_flags = all_ops | queue->ops;
		if ((qp = ibv_create_qp_ex(device->context, &attr)))
			return qp;
	}
	return NULL;
}

static void make_queue(void)
{
	struct queue *queue = the_queue();
	struct device *device = the_device();
	uint32_t depth = number("depth", 64);
	struct ibv_qp_cap cap = {
		.max_send_wr = depth,
		.max_recv_wr = depth,
		.max_send_sge = 2,
		.max_recv_sge = 2,
		.max_inline_data = 64,
	};

	if (!queue || !device || !device->pd || queue->qp) {
		failed("qp", EINVAL);
		return;
	}
	queue->device = device;
	queue->cq = ibv_create_cq(device->context, 2 * depth, NULL, NULL, 0);
	if (text("srq", NULL)) {
		struct ibv_srq_init_attr srq = {.attr = {.max_wr = depth, .max_sge = 2}};
		queue->srq = ibv_create_srq(device->pd, &srq);
	}
	queue->qp = queue->cq ? create_qp(queue, the_type(), &cap) : NULL;
	if (!queue->qp) {
		failed("cannot create the queue pair", errno);
		return;
	}
	say("ok qpn=%u atomic_write=%d flush=%d", queue->qp->qp_num, !!(queue->ops & SEND_OPS_ATOMIC_WRITE),
	    !!(queue->ops & SEND_OPS_FLUSH));
}

static void destroy_queue(void)
{
	struct queue *queue = the_queue();
	int error = queue && queue->qp ? ibv_destroy_qp(queue->qp) : EINVAL;

	if (error) {
		failed("ibv_destroy_qp", error);
		return;
	}
	if (queue->srq)
		ibv_destroy_srq(queue->srq);
	if (queue->ah)
		ibv_destroy_ah(queue->ah);
	ibv_destroy_cq(queue->cq);
	memset(queue, 0, sizeof *queue);
	ok();
}

static struct ibv_ah_attr address_of(struct queue *queue, const union ibv_gid *peer)
{
	struct ibv_ah_attr address = {
		.is_global = 1,
		.port_num = 1,
		.grh = {.dgid = *peer, .sgid_index = queue->device->gid_index, .hop_limit = 64},
	};

	return address;
}

static enum ibv_mtu the_mtu(void)
{
	switch (number("mtu", 1024)) {
	case 256:
		return IBV_MTU_256;
	case 512:
		return IBV_MTU_512;
	case 2048:
		return IBV_MTU_2048;
	case 4096:
		return IBV_MTU_4096;
	default:
		return IBV_MTU_1024;
	}
}

/* What is still there of earlier cells must not be taken for completions of the next. */
static void drain(struct queue *queue)
{
	struct ibv_wc wc[16];

	while (ibv_poll_cq(queue->cq, 16, wc) > 0)
		;
}

/* From any state to RTS, or to the state that `until` names. */
static void connect_queue(void)
{
	struct queue *queue = the_queue();
	const char *until = text("until", "rts");
	union ibv_gid peer;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	int error, mask;

	if (!queue || !queue->qp || inet_pton(AF_INET6, text("gid", ""), &peer) != 1) {
		failed("connect", EINVAL);
		return;
	}
	enum ibv_qp_type type = queue->qp->qp_type;
	if ((error = ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE))) {
		failed("to RESET", error);
		return;
	}
	drain(queue);
	attr.qp_state = IBV_QPS_INIT;
	attr.port_num = 1;
	attr.qkey = queue->qkey = number("qkey", 0x11111111);
	attr.qp_access_flags =
		number("access", IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
					 (queue->device->more_caps & DEVICE_FLUSH_GLOBAL ? ACCESS_FLUSH_GLOBAL : 0));
	if (type == IBV_QPT_UC)
		attr.qp_access_flags &= IBV_ACCESS_REMOTE_WRITE;
	mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	if ((error = ibv_modify_qp(queue->qp, &attr,
				   mask | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)))) {
		failed("to INIT", error);
		return;
	}
	attr.qp_state = IBV_QPS_RTR;
	attr.path_mtu = the_mtu();
	attr.dest_qp_num = number("qpn", 0);
	attr.rq_psn = number("rq_psn", 0);
	attr.max_dest_rd_atomic = number("dest_rd_atomic", 16);
	attr.min_rnr_timer = number("min_rnr", 1);
	attr.ah_attr = address_of(queue, &peer);
	mask = IBV_QP_STATE;
	if (type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	if ((error = ibv_modify_qp(queue->qp, &attr, mask))) {
		failed("to RTR", error);
		return;
	}
	if (type == IBV_QPT_UD) {
		if (queue->ah)
			ibv_destroy_ah(queue->ah);
		queue->ah = ibv_create_ah(queue->device->pd, &attr.ah_attr);
		if (!queue->ah) {
			failed("ibv_create_ah", errno);
			return;
		}
	}
	if (strcmp(until, "rtr") == 0) {
		ok();
		return;
	}
	attr.qp_state = IBV_QPS_RTS;
	attr.sq_psn = number("sq_psn", 0);
	attr.timeout = number("timeout", 14);
	attr.retry_cnt = number("retry", 7);
	attr.rnr_retry = number("rnr", 7);
	attr.max_rd_atomic = number("rd_atomic", 16);
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	if ((error = ibv_modify_qp(queue->qp, &attr, mask)))
		failed("to RTS", error);
	else
		ok();
}

static void to_error(void)
{
	struct queue *queue = the_queue();
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error = queue && queue->qp ? ibv_modify_qp(queue->qp, &attr, IBV_QP_STATE) : EINVAL;

	if (error)
		failed("to ERR", error);
	else
		ok();
}

/* ---- work ---- */

static bool local_buffer(struct ibv_sge *sge)
{
	struct region *region = the_region();

	if (!region || !region->base) {
		failed("no such region", EINVAL);
		return false;
	}
	sge->addr = (uintptr_t)region->base + number("off", 0);
	sge->length = number("len", 0);
	sge->lkey = number("key", region->mr ? region->mr->lkey : 0);
	return true;
}

static void post_receive(void)
{
	struct queue *queue = the_queue();
	struct ibv_sge sge;
	struct ibv_recv_wr wr = {.wr_id = number("id", 0), .sg_list = &sge, .num_sge = 1}, *bad;
	int error;

	if (!queue || !queue->qp) {
		failed("recv", EINVAL);
		return;
	}
	if (!local_buffer(&sge))
		return;
	error = queue->srq ? ibv_post_srq_recv(queue->srq, &wr, &bad) : ibv_post_recv(queue->qp, &wr, &bad);
	if (error)
		failed("ibv_post_recv", error);
	else
		ok();
}

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
	{"faa", IBV_WR_ATOMIC_FETCH_AND_ADD},
};

/* Through ibv_wr_*, which alone has the newest operations and refuses nothing before the peer sees it. */
static int build_and_post(struct queue *queue, const char *op, const struct ibv_sge *sge)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(queue->qp);
	struct newer_ops newer;
	uint32_t rkey = number("rkey", 0);
	uint64_t address = number("addr", 0);

	if (!ex)
		return EOPNOTSUPP;
	if (queue->ops)
		memcpy(&newer, (char *)ex + NEWER_OPS_OFFSET,
		       queue->ops & SEND_OPS_FLUSH ? sizeof newer : offsetof(struct newer_ops, flush));
	ibv_wr_start(ex);
	ex->wr_id = number("id", 0);
	ex->wr_flags = IBV_SEND_SIGNALED;
	if (strcmp(op, "atomic_write") == 0 && (queue->ops & SEND_OPS_ATOMIC_WRITE)) {
		newer.atomic_write(ex, rkey, address, (void *)(uintptr_t)sge->addr);
	} else if (strcmp(op, "flush") == 0 && (queue->ops & SEND_OPS_FLUSH)) {
		newer.flush(ex, rkey, address, sge->length, FLUSH_TYPE_GLOBAL, FLUSH_LEVEL_RANGE);
	} else if (strcmp(op, "cas") == 0) {
		ibv_wr_atomic_cmp_swp(ex, rkey, address, number("compare", 0), number("swap", 0));
		ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	} else if (strcmp(op, "faa") == 0) {
		ibv_wr_atomic_fetch_add(ex, rkey, address, number("add", 0));
		ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	} else {
		ibv_wr_abort(ex);
		return EOPNOTSUPP;
	}
	return ibv_wr_complete(ex);
}

static int post_list(struct queue *queue, const char *op, struct ibv_sge *sge)
{
	struct ibv_send_wr wr =
				   {
					   .wr_id = number("id", 0),
					   .sg_list = sge,
					   .num_sge = 1,
					   .send_flags = IBV_SEND_SIGNALED,
				   },
			   *bad;
	size_t i = 0;

	while (i < sizeof operations / sizeof *operations && strcmp(op, operations[i].name))
		i++;
	if (i == sizeof operations / sizeof *operations)
		return EOPNOTSUPP;
	wr.opcode = operations[i].opcode;
	if (number("inline", 0))
		wr.send_flags |= IBV_SEND_INLINE;
	if (wr.opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = number("rkey", 0);
	else
		wr.imm_data = htonl(number("imm", 0));
	if (queue->qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = queue->ah;
		wr.wr.ud.remote_qpn = number("qpn", 0);
		wr.wr.ud.remote_qkey = number("qkey", queue->qkey);
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = number("addr", 0);
		wr.wr.atomic.rkey = number("rkey", 0);
		wr.wr.atomic.compare_add = number("compare", number("add", 0));
		wr.wr.atomic.swap = number("swap", 0);
	} else {
		wr.wr.rdma.remote_addr = number("addr", 0);
		wr.wr.rdma.rkey = number("rkey", 0);
	}
	return ibv_post_send(queue->qp, &wr, &bad);
}

static void post_send(void)
{
	struct queue *queue = the_queue();
	const char *op = text("op", "");
	struct ibv_sge sge;
	int error;

	if (!queue || !queue->qp) {
		failed("post", EINVAL);
		return;
	}
	if (!local_buffer(&sge))
		return;
	if (number("wr", 0) || strcmp(op, "atomic_write") == 0 || strcmp(op, "flush") == 0)
		error = build_and_post(queue, op, &sge);
	else
		error = post_list(queue, op, &sge);
	if (error)
		failed("post", error);
	else
		ok();
}

static void wait_for(void)
{
	struct queue *queue = the_queue();
	uint64_t wanted = number("n", 1), milliseconds = number("ms", 5000);
	struct ibv_wc wc;

	if (!queue || !queue->cq) {
		failed("wait", EINVAL);
		return;
	}
	say("ok");
	for (uint64_t i = 0; i < wanted && next_completion(queue, &wc, milliseconds); i++) {
		/* After an error only these two mean something. */
		if (wc.status != IBV_WC_SUCCESS)
			say(" %" PRIu64 ":%d", wc.wr_id, wc.status);
		else
			say(" %" PRIu64 ":%d:%d:%u:%u:%u:%u", wc.wr_id, wc.status, wc.opcode, wc.byte_len, wc.wc_flags,
			    wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : wc.invalidated_rkey, wc.src_qp);
	}
}

static void query_state(void)
{
	struct queue *queue = the_queue();
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = queue && queue->qp ? ibv_query_qp(queue->qp, &attr, IBV_QP_STATE, &init) : EINVAL;

	if (error)
		failed("ibv_query_qp", error);
	else
		say("ok state=%d", attr.qp_state);
}

static void list_events(void)
{
	struct device *device = the_device();
	struct ibv_async_event event;

	if (!device || !device->context) {
		failed("events", EINVAL);
		return;
	}
	say("ok");
	while (ibv_get_async_event(device->context, &event) == 0) {
		say(" %d", event.event_type);
		ibv_ack_async_event(&event);
	}
}

static void die(void)
{
	kill(getpid(), SIGKILL);
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{"open", open_device},
	{"mr", register_region},
	{"dereg", deregister_region},
	{"mw", make_window},
	{"qp", make_queue},
	{"connect", connect_queue},
	{"error", to_error},
	{"destroy", destroy_queue},
	{"fill", fill},
	{"frame", frame},
	{"check", check},
	{"prefix", prefix},
	{"which", which},
	{"word", word},
	{"recv", post_receive},
	{"post", post_send},
	{"wait", wait_for},
	{"state", query_state},
	{"events", list_events},
	{"bind", bind_window},
	{"unmw", free_window},
	{"die", die},
};

static void obey(char *line)
{
	char *rest = line, *next;

	word_count = 0;
	while (word_count < 64 && (next = strtok_r(rest, " \n", &rest)))
		words[word_count++] = next;
	answered = 0;
	answer[0] = '\0';
	if (!word_count)
		return;
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (strcmp(words[0], commands[i].name) == 0) {
			commands[i].run();
			return;
		}
	failed(words[0], ENOSYS);
}

int main(void)
{
	static char line[4096];

	/* A line at a time, to a pipe as well. */
	setvbuf(stdout, NULL, _IOFBF, sizeof answer);
	while (fgets(line, sizeof line, stdin)) {
		obey(line);
		puts(answer);
		fflush(stdout);
	}
	return 0;
}
