
/* ---- objects ---- */

#define OBJECTS 256
#define PAGE 4096
#define BACKGROUND(i) ((uint8_t)((i) * 37 + 11)) /* what is in memory that nobody has written */
#define SEND_OPS_FLUSH (UINT64_C(1) << 11)	 /* newer than the headers that some distributions have */
#define SEND_OPS_ATOMIC_WRITE (UINT64_C(1) << 12)

struct queue {
	struct ibv_qp *qp;
	struct ibv_ah *ah;
	struct device *device;
	uint64_t newer;
};

struct region {
	struct ibv_mr *mr;
	uint8_t *base;
	size_t size;
};

static struct ibv_cq *cqs[OBJECTS];
static struct ibv_srq *srqs[OBJECTS];
static struct queue queues[OBJECTS];
static struct region regions[OBJECTS];
static struct ibv_mw *windows[OBJECTS];

/* The number that a command has for an object; -1 if it has none that can be. */
static int id(const char *kind)
{
	uint64_t value = number(kind, OBJECTS);

	return value < OBJECTS ? (int)value : -1;
}

static struct ibv_cq *the_cq(void)
{
	int i = id("cq");

	return i >= 0 ? cqs[i] : NULL;
}

static struct ibv_srq *the_srq(void)
{
	int i = id("srq");

	return i >= 0 ? srqs[i] : NULL;
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

static struct ibv_mw *the_window(void)
{
	int i = id("mw");

	return i >= 0 ? windows[i] : NULL;
}

static void make_cq(void)
{
	struct device *device = the_device();
	int i = id("cq");

	if (!device || i < 0 || cqs[i])
		failed("CQ", EINVAL);
	else
		result("ibv_create_cq",
		       (cqs[i] = ibv_create_cq(device->context, number("depth", 1024), NULL, NULL, 0)) ? 0 : errno);
}

static void destroy_cq(void)
{
	int error = the_cq() ? ibv_destroy_cq(the_cq()) : EINVAL;

	if (!error)
		cqs[id("cq")] = NULL;
	result("ibv_destroy_cq", error);
}

static void make_srq(void)
{
	struct device *device = the_device();
	int i = id("srq");
	uint32_t srqn = 0;
	struct ibv_srq_init_attr_ex attr = {
		.attr = {.max_wr = number("places", 16), .max_sge = 4},
		.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_BASIC,
	};
	int error = !device || i < 0 || srqs[i] ? EINVAL : 0;

	if (!error)
		attr.pd = flag("elsewhere") ? device->other_pd : device->pd;
	if (!error && flag("xrc") && !(error = open_xrcd(device))) {
		attr.comp_mask |= IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
		attr.srq_type = IBV_SRQT_XRC;
		attr.xrcd = device->xrcd;
		attr.cq = the_cq();
	}
	if (!error && !(srqs[i] = ibv_create_srq_ex(device->context, &attr)))
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
	struct ibv_srq_attr attr = {.srq_limit = number("limit", 0)};

	result("limit", the_srq() ? ibv_modify_srq(the_srq(), &attr, IBV_SRQ_LIMIT) : EINVAL);
}

static void destroy_srq(void)
{
	int error = the_srq() ? ibv_destroy_srq(the_srq()) : EINVAL;

	if (!error)
		srqs[id("srq")] = NULL;
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

/* A queue pair with as many of the newer operations as the library and the device have; for RC also with ibv_wr_*. */
static struct ibv_qp *create_qp(struct queue *queue, struct ibv_qp_init_attr_ex *attr)
{
	const uint64_t rc = IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND_WITH_IMM |
			    IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
			    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
			    IBV_QP_EX_WITH_SEND_WITH_INV;
	const uint64_t usual = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_SEND | (attr->qp_type == IBV_QPT_RC ? rc : 0);
	const uint64_t newer[] = {SEND_OPS_ATOMIC_WRITE | SEND_OPS_FLUSH, SEND_OPS_ATOMIC_WRITE, 0};
	uint64_t caps = queue->device->more_caps;
	uint64_t can = (caps & DEVICE_ATOMIC_WRITE ? SEND_OPS_ATOMIC_WRITE : 0) |
		       (caps & DEVICE_FLUSH_GLOBAL ? SEND_OPS_FLUSH : 0);
	bool extended = attr->qp_type == IBV_QPT_RC || attr->qp_type == IBV_QPT_XRC_SEND;
	struct ibv_qp *qp = NULL;

	attr->comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	for (size_t n = 0; extended && !qp && n < sizeof newer / sizeof *newer; n++) {
		queue->newer = newer[n] & can;
		attr->send_ops_flags = usual | queue->newer;
		qp = ibv_create_qp_ex(queue->device->context, attr);
	}
	attr->comp_mask &= ~(uint32_t)IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
	return qp ? qp : ibv_create_qp_ex(queue->device->context, attr);
}

static void make_qp(void)
{
	struct device *device = the_device();
	int i = id("qp");
	struct queue *queue = i >= 0 ? &queues[i] : NULL;
	struct ibv_qp_init_attr_ex attr = {
		.send_cq = the_cq(),
		.recv_cq = the_cq(),
		.srq = the_srq(),
		.cap = {.max_send_wr = number("depth", 16),
			.max_recv_wr = number("receives", 16),
			.max_send_sge = 4,
			.max_recv_sge = 4,
			.max_inline_data = 64},
		.qp_type = type_of(text("type")),
		.comp_mask = IBV_QP_INIT_ATTR_PD,
	};
	int error = !device || !queue || queue->qp || !the_cq() ? EINVAL : 0;

	if (!error)
		attr.pd = device->pd;
	if (!error && attr.qp_type == IBV_QPT_XRC_RECV && !(error = open_xrcd(device))) {
		attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
		attr.xrcd = device->xrcd;
	}
	if (!error) {
		*queue = (struct queue){.device = device};
		queue->qp = create_qp(queue, &attr);
		error = queue->qp ? 0 : errno;
	}
	if (error)
		failed("queue pair", error);
	else
		fprintf(answer, "ok qpn=%u atomic_write=%d flush=%d\n", queue->qp->qp_num,
			!!(queue->newer & SEND_OPS_ATOMIC_WRITE), !!(queue->newer & SEND_OPS_FLUSH));
}

static enum ibv_mtu mtu_of(uint64_t bytes)
{
	int mtu = IBV_MTU_256;

	while (mtu < IBV_MTU_4096 && (UINT64_C(128) << mtu) < bytes)
		mtu++;
	return mtu;
}

/* The attributes that the way to a state needs. */
static int mask_for(enum ibv_qp_type type, enum ibv_qp_state state)
{
	bool responds = type == IBV_QPT_RC || type == IBV_QPT_XRC_RECV;
	bool requests = type == IBV_QPT_RC || type == IBV_QPT_XRC_SEND;
	int mask = IBV_QP_STATE;

	if (state == IBV_QPS_INIT)
		mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS);
	if (state == IBV_QPS_RTR && type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			(responds ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0);
	if (state == IBV_QPS_RTS && flag("begin")) {
		mask |= IBV_QP_SQ_PSN;
		if (requests)
			mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
		else if (responds)
			mask |= IBV_QP_TIMEOUT;
	}
	if (state == IBV_QPS_SQD && flag("notify"))
		mask |= IBV_QP_EN_SQD_ASYNC_NOTIFY;
	return mask;
}

/* Where a datagram QP sends to. */
static int renew_ah(struct queue *queue, struct ibv_ah_attr *attr)
{
	if (queue->ah)
		ibv_destroy_ah(queue->ah);
	queue->ah = ibv_create_ah(queue->device->pd, attr);
	return queue->ah ? 0 : errno;
}

static void modify_qp(void)
{
	struct queue *queue = the_queue();
	enum ibv_qp_state state = number("state", IBV_QPS_ERR);
	const char *gid = text("gid");
	struct ibv_qp_attr attr = {
		.qp_state = state,
		.port_num = 1,
		.qkey = number("qkey", 0),
		.qp_access_flags = number("access", 0),
		.path_mtu = mtu_of(number("mtu", 1024)),
		.dest_qp_num = number("dest", 0),
		.rq_psn = number("rq_psn", 0),
		.sq_psn = number("sq_psn", 0),
		.max_rd_atomic = number("rd", 0),
		.max_dest_rd_atomic = number("dest_rd", 0),
		.min_rnr_timer = number("rnr_timer", 0),
		.timeout = number("timeout", 14),
		.retry_cnt = number("retry", 7),
		.rnr_retry = number("rnr_retry", 7),
		.en_sqd_async_notify = 1,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .traffic_class = number("tos", 0)}},
	};
	int error;

	if (!queue || (state == IBV_QPS_RTR && (!gid || inet_pton(AF_INET6, gid, &attr.ah_attr.grh.dgid) != 1))) {
		failed("modify", EINVAL);
		return;
	}
	attr.ah_attr.grh.sgid_index = queue->device->gid_index;
	error = ibv_modify_qp(queue->qp, &attr, mask_for(queue->qp->qp_type, state));
	if (!error && queue->qp->qp_type == IBV_QPT_UD && state == IBV_QPS_RTR)
		error = renew_ah(queue, &attr.ah_attr);
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

/* Memory for a region, if it has none. */
static int give_memory(struct region *region, size_t size)
{
	size_t whole = (size + PAGE - 1) / PAGE * PAGE;

	if (region->base)
		return size <= region->size ? 0 : EINVAL;
	region->base = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (region->base == MAP_FAILED) {
		region->base = NULL;
		return errno;
	}
	region->size = whole;
	for (size_t at = 0; at < whole; at++)
		region->base[at] = BACKGROUND(at);
	return 0;
}

static void make_mr(void)
{
	struct device *device = the_device();
	int i = id("mr");
	struct region *region = i >= 0 ? &regions[i] : NULL;
	size_t size = number("size", PAGE);
	int error = !device || !region || region->mr ? EINVAL : give_memory(region, size);

	if (error) {
		failed("memory", error);
		return;
	}
	region->mr =
		ibv_reg_mr(flag("elsewhere") ? device->other_pd : device->pd, region->base, size, number("access", 0));
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
	struct device *device = the_device();
	int i = id("mw");

	if (!device || i < 0 || windows[i])
		failed("window", EINVAL);
	else if (!(windows[i] = ibv_alloc_mw(device->pd, number("type", 2) == 1 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2)))
		failed("ibv_alloc_mw", errno);
	else
		fprintf(answer, "ok rkey=%u\n", windows[i]->rkey);
}

static void destroy_mw(void)
{
	int error = the_window() ? ibv_dealloc_mw(the_window()) : EINVAL;

	if (!error)
		windows[id("mw")] = NULL;
	result("ibv_dealloc_mw", error);
}

static void remove_windows(void)
{
	for (int i = 0; i < OBJECTS; i++)
		if (windows[i] && ibv_dealloc_mw(windows[i]) == 0)
			windows[i] = NULL;
}

static void discard_events(struct device *device)
{
	struct ibv_async_event event;

	while (ibv_get_async_event(device->context, &event) == 0)
		ibv_ack_async_event(&event);
}

/* Destroys all that a client made. Devices stay open: their addresses are listened at. */
static void clear(void)
{
	remove_windows();
	for (int i = 0; i < OBJECTS; i++)
		if (queues[i].qp)
			remove_qp(&queues[i]);
	/* Some providers keep a window that is bound for as long as its queue pair is there. */
	remove_windows();
	for (int i = 0; i < OBJECTS; i++) {
		if (srqs[i] && ibv_destroy_srq(srqs[i]) == 0)
			srqs[i] = NULL;
		if (regions[i].mr)
			ibv_dereg_mr(regions[i].mr);
		if (regions[i].base)
			munmap(regions[i].base, regions[i].size);
		memset(&regions[i], 0, sizeof regions[i]);
	}
	for (int i = 0; i < OBJECTS; i++)
		if (cqs[i] && ibv_destroy_cq(cqs[i]) == 0)
			cqs[i] = NULL;
	for (int i = 0; i < DEVICES; i++)
		if (devices[i])
			discard_events(devices[i]);
	memset(devices, 0, sizeof devices);
}
