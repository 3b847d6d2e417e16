/*
 * Asks a device for one thing, and says what it got, or the error number's name. For tests of `--like`.
 *
 *     like query                     what the device reports
 *     like gids                      indices, types and whether a GID is usable
 *     like qp SERVICE SEND_WR RECV_WR SEND_SGE RECV_SGE INLINE [OPS]
 *     like cq CQE | like srq WR SGE [RESIZED]
 *     like atomics RD_ATOMIC DEST    modify_qp with these
 *     like slots                     how send slots become free
 *     like post cas|add|write        posts one request
 *     like make mw1|mw2|dm|null|odp|xrcd
 */
#include <fcntl.h>

#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static uint64_t memory[512];

static const char *name(int number)
{
	switch (number) {
	case EINVAL:
		return "EINVAL";
	case ENOMEM:
		return "ENOMEM";
	case EOPNOTSUPP:
		return "EOPNOTSUPP";
	case 0:
		return "ok";
	default:
		return strerror(number);
	}
}

static void query(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_port_attr port;
	OK(ibv_query_device_ex(context, NULL, &attr));
	OK(ibv_query_port(context, 1, &port));
	struct ibv_device_attr *old = &attr.orig_attr;
	printf("vendor_id %#x part_id %u fw_ver %s hw_ver %u\n", old->vendor_id, old->vendor_part_id, old->fw_ver,
	       old->hw_ver);
	printf("max_qp_wr %d max_sge %d max_cqe %d rd_atom %d init %d atomic %d\n", old->max_qp_wr, old->max_sge,
	       old->max_cqe, old->max_qp_rd_atom, old->max_qp_init_rd_atom, old->atomic_cap);
	printf("srq %d wr %d sge %d mcast %d ack_delay %d dm %llu\n", old->max_srq, old->max_srq_wr, old->max_srq_sge,
	       old->max_mcast_grp, old->local_ca_ack_delay, (unsigned long long)attr.max_dm_size);
	printf("odp %d xrc %d 2b %d resize %d gids %d message %u\n", (int)attr.odp_caps.general_caps & 1,
	       !!(old->device_cap_flags & IBV_DEVICE_XRC), !!(old->device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B),
	       !!(old->device_cap_flags & IBV_DEVICE_SRQ_RESIZE), port.gid_tbl_len, port.max_msg_sz);
}

static struct ibv_cq *a_cq(void)
{
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(cq);
	return cq;
}

static struct ibv_qp *a_qp(struct ibv_cq *cq, int depth)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = depth, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

/* The path to ourselves, from the first GID for RoCE v2 that is usable. */
static int to_ourselves(struct ibv_qp *qp, int dest_rd_atomic, int rd_atomic)
{
	struct ibv_gid_entry entries[64];
	ssize_t found = ibv_query_gid_table(context, entries, 64, 0);
	CHECK(found > 0);
	int at = 0;
	while (at < found && entries[at].gid_type != IBV_GID_TYPE_ROCE_V2)
		at++;
	CHECK(at < found);
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.rq_psn = 7,
		.max_dest_rd_atomic = dest_rd_atomic,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = entries[at].gid, .sgid_index = entries[at].gid_index, .hop_limit = 64}},
	};
	OK(to_init(qp));
	int status = ibv_modify_qp(qp, &attr,
				   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
	if (status)
		return status;
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = 7,
				    .timeout = 14,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = rd_atomic};
	return ibv_modify_qp(qp, &attr,
			     IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

static void gids(void)
{
	struct ibv_gid_entry entries[64];
	ssize_t found = ibv_query_gid_table(context, entries, 64, 0);
	CHECK(found > 0);
	for (ssize_t at = 0; at < found; at++) {
		struct ibv_ah_attr attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = {.dgid = entries[at].gid, .sgid_index = entries[at].gid_index, .hop_limit = 64}};
		errno = 0;
		struct ibv_ah *ah = ibv_create_ah(pd, &attr);
		printf("%u v%d %s\n", entries[at].gid_index, entries[at].gid_type == IBV_GID_TYPE_ROCE_V2 ? 2 : 1,
		       ah ? "ok" : name(errno));
	}
}

static void make_qp(int argc, char **argv)
{
	CHECK(argc == 6 || argc == 7);
	struct ibv_cq *cq = a_cq();
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = strcmp(argv[0], "rc") == 0	? IBV_QPT_RC
			   : strcmp(argv[0], "uc") == 0 ? IBV_QPT_UC
							: IBV_QPT_UD,
		.cap = {atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]), atoi(argv[5])},
		.comp_mask = IBV_QP_INIT_ATTR_PD,
		.pd = pd};
	if (argc == 7) {
		init.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
		init.send_ops_flags = IBV_QP_EX_WITH_SEND;
		if (strcmp(argv[6], "write") == 0)
			init.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE;
		if (strcmp(argv[6], "atomic") == 0)
			init.send_ops_flags |= IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	}
	errno = 0;
	if (!ibv_create_qp_ex(context, &init)) {
		puts(name(errno));
		return;
	}
	printf("%u %u %u %u %u\n", init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge,
	       init.cap.max_recv_sge, init.cap.max_inline_data);
}

static void make_cq(const char *entries)
{
	errno = 0;
	struct ibv_cq *cq = ibv_create_cq(context, atoi(entries), NULL, NULL, 0);
	if (cq)
		printf("%d\n", cq->cqe);
	else
		puts(name(errno));
}

static void make_srq(int argc, char **argv)
{
	CHECK(argc == 2 || argc == 3);
	struct ibv_srq_init_attr init = {.attr = {.max_wr = atoi(argv[0]), .max_sge = atoi(argv[1])}};
	errno = 0;
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	if (!srq) {
		puts(name(errno));
		return;
	}
	printf("%u %u\n", init.attr.max_wr, init.attr.max_sge);
	if (argc == 3) {
		struct ibv_srq_attr attr = {.max_wr = atoi(argv[2])};
		puts(name(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR)));
	}
}

static struct ibv_mr *mr;

static int post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, int flags)
{
	struct ibv_sge sge = {(uintptr_t)memory, 8, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = flags}, *bad;
	if (opcode == IBV_WR_RDMA_WRITE) {
		wr.wr.rdma.remote_addr = (uintptr_t)&memory[64];
		wr.wr.rdma.rkey = mr->rkey;
	} else {
		wr.wr.atomic.remote_addr = (uintptr_t)&memory[64];
		wr.wr.atomic.rkey = mr->rkey;
	}
	return ibv_post_send(qp, &wr, &bad);
}

/* Fills the send queue, and looks when a slot is free again. */
static void slots(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4096, NULL, channel, 0), *same;
	void *cq_context;
	CHECK(channel && cq);
	struct ibv_qp *qp = a_qp(cq, 16);
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(qp, &attr, IBV_QP_CAP, &init));
	int depth = init.cap.max_send_wr;
	OK(to_ourselves(qp, 1, 1));
	/* The last request of each half is signaled. */
	OK(ibv_req_notify_cq(cq, 0));
	for (int i = 1; i <= depth; i++)
		OK(post(qp, IBV_WR_RDMA_WRITE, i == depth / 2 || i == depth ? IBV_SEND_SIGNALED : 0));
	OK(ibv_get_cq_event(channel, &same, &cq_context));
	ibv_ack_cq_events(cq, 1);
	/* Half of them are complete, and nobody has polled. */
	int status = post(qp, IBV_WR_RDMA_WRITE, 0);
	printf("complete: %s\n", name(status));
	if (status == 0)
		return;
	expect(cq, IBV_WC_SUCCESS, 0);
	int freed = 0;
	while (post(qp, IBV_WR_RDMA_WRITE, 0) == 0)
		freed++;
	printf("first polled: %s\n", freed == depth / 2 ? "half" : "other");
	expect(cq, IBV_WC_SUCCESS, 0);
	for (freed = 0; post(qp, IBV_WR_RDMA_WRITE, 0) == 0;)
		freed++;
	printf("second polled: %s\n", freed == depth - depth / 2 ? "half" : "other");
	/* All were posted without a signal: the queue is full for ever, until it is reset. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RESET};
	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
	OK(to_ourselves(qp, 1, 1));
	for (int i = 1; i <= depth; i++)
		OK(post(qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
	for (int i = 1; i <= 3 * depth; i++) {
		expect(cq, IBV_WC_SUCCESS, 0);
		OK(post(qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED));
		CHECK(post(qp, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED) == ENOMEM);
	}
	puts("after a reset: one by one");
}

static void make(const char *what)
{
	void *made = NULL;
	errno = 0;
	if (strcmp(what, "mw1") == 0)
		made = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	else if (strcmp(what, "mw2") == 0)
		made = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	else if (strcmp(what, "null") == 0)
		made = ibv_alloc_null_mr(pd);
	else if (strcmp(what, "odp") == 0)
		made = ibv_reg_mr(pd, memory, sizeof memory, IBV_ACCESS_ON_DEMAND);
	else if (strcmp(what, "dm") == 0) {
		struct ibv_alloc_dm_attr attr = {.length = 4096};
		made = ibv_alloc_dm(context, &attr);
	} else if (strcmp(what, "xrcd") == 0) {
		struct ibv_xrcd_init_attr attr = {
			.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
		made = ibv_open_xrcd(context, &attr);
	} else
		CHECK(!"known");
	puts(made ? "ok" : name(errno));
}

int main(int argc, char **argv)
{
	CHECK(argc >= 2);
	context = open_first();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	CHECK(mr);
	const char *what = argv[1];
	if (strcmp(what, "query") == 0)
		query();
	else if (strcmp(what, "gids") == 0)
		gids();
	else if (strcmp(what, "qp") == 0)
		make_qp(argc - 2, argv + 2);
	else if (strcmp(what, "cq") == 0)
		make_cq(argv[2]);
	else if (strcmp(what, "srq") == 0)
		make_srq(argc - 2, argv + 2);
	else if (strcmp(what, "slots") == 0)
		slots();
	else if (strcmp(what, "make") == 0)
		make(argv[2]);
	else if (strcmp(what, "atomics") == 0)
		puts(name(to_ourselves(a_qp(a_cq(), 16), atoi(argv[3]), atoi(argv[2]))));
	else if (strcmp(what, "post") == 0) {
		struct ibv_qp *qp = a_qp(a_cq(), 16);
		OK(to_ourselves(qp, 1, 1));
		puts(name(post(qp,
			       strcmp(argv[2], "cas") == 0   ? IBV_WR_ATOMIC_CMP_AND_SWP
			       : strcmp(argv[2], "add") == 0 ? IBV_WR_ATOMIC_FETCH_AND_ADD
							     : IBV_WR_RDMA_WRITE,
			       IBV_SEND_SIGNALED)));
	} else
		CHECK(!"known");
	return 0;
}
