
/* ---- work ---- */

#define SGES 4

/* The end of ibv_qp_ex, which grew by these two. */
struct newer_ops {
	void (*atomic_write)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, const void *value);
	void (*flush)(struct ibv_qp_ex *, uint32_t rkey, uint64_t addr, size_t len, uint8_t type, uint8_t level);
};
#define NEWER_OPS_OFFSET 344
#define FLUSH_TYPE_GLOBAL 1

/* `addr:length:lkey` with commas between. */
static int sges(struct ibv_sge *list)
{
	const char *rest = text("sges");
	int n = 0;

	while (rest && *rest && n < SGES) {
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
	struct ibv_sge list[SGES];
	struct ibv_recv_wr wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = sges(list)}, *bad;
	struct queue *queue = the_queue();

	if (the_srq())
		result("ibv_post_srq_recv", ibv_post_srq_recv(the_srq(), &wr, &bad));
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

/* Through ibv_wr_*: ATOMIC WRITE and FLUSH, which ibv_post_send does not have, and atomics, in which it refuses some
 * mistakes before the peer sees them. */
static int build_and_post(struct queue *queue, const char *op, const struct ibv_sge *sge, unsigned flags)
{
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(queue->qp);
	bool flush = strcmp(op, "flush") == 0, write = strcmp(op, "atomic_write") == 0, cas = strcmp(op, "cas") == 0;
	uint64_t newer = flush ? SEND_OPS_FLUSH : write ? SEND_OPS_ATOMIC_WRITE : 0, va = number("va", 0);
	const void *value = write ? atomic_value(sge) : NULL;
	uint32_t rkey = number("rkey", 0);
	struct newer_ops ops;

	if (!ex || (queue->newer & newer) != newer || (write && !value) || (!newer && !cas && strcmp(op, "faa")))
		return EOPNOTSUPP;
	if (newer)
		memcpy(&ops, (char *)ex + NEWER_OPS_OFFSET,
		       queue->newer & SEND_OPS_FLUSH ? sizeof ops : offsetof(struct newer_ops, flush));
	ibv_wr_start(ex);
	ex->wr_id = number("wr", 0);
	ex->wr_flags = flags;
	if (flush)
		ops.flush(ex, rkey, va, number("length", 0), FLUSH_TYPE_GLOBAL, number("whole", 0));
	else if (write)
		ops.atomic_write(ex, rkey, va, value);
	else if (cas)
		ibv_wr_atomic_cmp_swp(ex, rkey, va, number("compare", 0), number("swap", 0));
	else
		ibv_wr_atomic_fetch_add(ex, rkey, va, number("add", 0));
	if (!newer)
		ibv_wr_set_sge(ex, sge->lkey, sge->addr, sge->length);
	if (text("srqn"))
		ibv_wr_set_xrc_srqn(ex, number("srqn", 0));
	return ibv_wr_complete(ex);
}

static int bind_window(struct queue *queue, const struct ibv_sge *sge, unsigned flags)
{
	struct ibv_mw *window = the_window();
	struct region *region = the_region();
	struct ibv_send_wr wr = {.wr_id = number("wr", 0), .opcode = IBV_WR_BIND_MW, .send_flags = flags}, *bad;
	struct ibv_mw_bind_info info = {
		.mr = region ? region->mr : NULL,
		.addr = sge->addr,
		.length = sge->length,
		.mw_access_flags =
			number("access", IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC),
	};
	int error;

	if (!info.mr || !window)
		return EINVAL;
	if (flag("zero"))
		info.mw_access_flags |= IBV_ACCESS_ZERO_BASED;
	if (window->type == IBV_MW_TYPE_1) {
		struct ibv_mw_bind old = {.wr_id = wr.wr_id, .send_flags = flags, .bind_info = info};
		return ibv_bind_mw(queue->qp, window, &old);
	}
	wr.bind_mw.mw = window;
	wr.bind_mw.rkey = ibv_inc_rkey(window->rkey);
	if (text("tag"))
		wr.bind_mw.rkey = (window->rkey & ~UINT32_C(0xff)) | (number("tag", 0) & 0xff);
	wr.bind_mw.bind_info = info;
	error = ibv_post_send(queue->qp, &wr, &bad);
	/* Some libraries name the window by the key that it has here, and leave it to the application to keep it. */
	if (!error)
		window->rkey = wr.bind_mw.rkey;
	return error;
}

/* The opcode of an operation that ibv_post_send has; -1 if it has none. */
static int opcode_of(const char *op)
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
		{"faa", IBV_WR_ATOMIC_FETCH_AND_ADD},
		{"invalidate", IBV_WR_LOCAL_INV},
	};

	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (strcmp(op, operations[i].name) == 0)
			return operations[i].opcode;
	return -1;
}

static int post(struct queue *queue)
{
	const char *op = text("op"), *data = text("inline");
	uint8_t inlined[64];
	struct ibv_sge list[SGES] = {{0}};
	struct ibv_send_wr wr = {.wr_id = number("wr", 0), .sg_list = list, .num_sge = sges(list)}, *bad;

	wr.send_flags = (number("signaled", 1) ? IBV_SEND_SIGNALED : 0) | (flag("fence") ? IBV_SEND_FENCE : 0) |
			(flag("solicited") ? IBV_SEND_SOLICITED : 0);
	if (!op)
		return EINVAL;
	if (flag("builder") || strcmp(op, "atomic_write") == 0 || strcmp(op, "flush") == 0)
		return build_and_post(queue, op, list, wr.send_flags);
	if (strcmp(op, "bind") == 0)
		return bind_window(queue, list, wr.send_flags);
	if (opcode_of(op) < 0)
		return EOPNOTSUPP;
	wr.opcode = opcode_of(op);
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
		wr.wr.atomic.compare_add = number("compare", number("add", 0));
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
	int error = queue ? post(queue) : EINVAL;

	if (error)
		failed("post", error);
	else
		fprintf(answer, "ok rkey=%u\n", the_window() ? the_window()->rkey : 0);
}

/* ---- what comes of it ---- */

/* The next completion, waiting at most `ms` for it; 0 if there is none, negative if the queue is broken. */
static int next_completion(struct ibv_cq *cq, struct ibv_wc *wc)
{
	uint64_t deadline = now_ms() + number("ms", 0);
	int found;

	while ((found = ibv_poll_cq(cq, 1, wc)) == 0 && now_ms() < deadline)
		if (!flag("busy"))
			usleep(200);
	return found;
}

/* A word for each completion: its `wr_id`, status and QPN; if it succeeded also its opcode, length, flags, immediate data
 * or invalidated key, and source QPN. */
static void complete(void)
{
	uint64_t most = number("n", 1), count = 0;
	struct ibv_wc wc;
	int found = 1;

	if (!the_cq()) {
		failed("complete", EINVAL);
		return;
	}
	while (count < most && (found = next_completion(the_cq(), &wc)) > 0) {
		fprintf(answer, "%s %" PRIu64 ":%d:%u", count++ ? "" : "ok", wc.wr_id, wc.status, wc.qp_num);
		if (wc.status == IBV_WC_SUCCESS) /* the rest means nothing otherwise */
			fprintf(answer, ":%d:%u:%u:%u:%u", wc.opcode, wc.byte_len, wc.wc_flags,
				wc.wc_flags & IBV_WC_WITH_IMM ? ntohl(wc.imm_data) : wc.invalidated_rkey, wc.src_qp);
	}
	if (found < 0 && !count)
		failed("ibv_poll_cq", EIO);
	else
		fprintf(answer, "%s\n", count ? "" : "ok");
}

/* One asynchronous event, waiting at most `ms` for it, and the number of its queue pair or SRQ. */
static void event(void)
{
	uint64_t deadline = now_ms() + number("ms", 0);
	struct device *device = the_device();
	struct ibv_async_event got;
	int object = -1;

	if (!device) {
		failed("event", EINVAL);
		return;
	}
	while (ibv_get_async_event(device->context, &got)) {
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
