/*
 * Rules that programs learn from hardware, one by its name at a time: what is refused and with which error, and what
 * is checked where. One process whose queue pairs talk to each other.
 */
#include "check.h"

enum { SIZE = 4096 };

static struct ibv_context *context;
static struct ibv_pd *pd, *other_pd;
static struct ibv_cq *cq;
static char *near, *far, *foreign;
/* `foreign` is memory of the other domain. */
static struct ibv_mr *near_mr, *far_mr, *foreign_mr;

static struct ibv_mr *region(struct ibv_pd *of, char **memory)
{
	*memory = aligned_alloc(4096, SIZE);
	CHECK(*memory);
	memset(*memory, 0, SIZE);
	struct ibv_mr *mr = ibv_reg_mr(of, *memory, SIZE, ALL_ACCESS);
	CHECK(mr);
	return mr;
}

static struct ibv_sge piece(struct ibv_mr *mr, int length)
{
	return (struct ibv_sge){(uintptr_t)mr->addr, length, mr->lkey};
}

static struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.srq = srq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 64},
		.qp_type = type,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void connect_pair(struct ibv_qp *a, struct ibv_qp *b)
{
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
}

static void reset(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	OK(ibv_modify_qp(qp, &attr, IBV_QP_STATE));
}

/* Both again as they were made and connected. */
static void again(struct ibv_qp *a, struct ibv_qp *b)
{
	reset(a);
	reset(b);
	connect_pair(a, b);
}

static int try_post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	return ibv_post_send(qp, wr, &bad);
}

/* Sends `length` bytes, on UD by way of `ah`. */
static void send_bytes(struct ibv_qp *qp, uint64_t id, int length, struct ibv_ah *ah, uint32_t to)
{
	struct ibv_sge sge = piece(near_mr, length);
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = to;
		wr.wr.ud.remote_qkey = QKEY;
	}
	OK(try_post(qp, &wr));
}

static struct ibv_wc two(uint64_t of)
{
	struct ibv_wc first = completion_of(cq), second = completion_of(cq);
	return first.wr_id == of ? first : second;
}

static struct ibv_srq *make_srq(struct ibv_pd *of)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 2}};
	struct ibv_srq *srq = ibv_create_srq(of, &init);
	CHECK(srq);
	return srq;
}

static void receive_shared(struct ibv_srq *srq, uint64_t id, struct ibv_mr *mr)
{
	struct ibv_sge sge = piece(mr, 100);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	OK(ibv_post_srq_recv(srq, &wr, &bad));
}

/* A receive from an SRQ is placed in the domain of the SRQ, whatever that of the QP. */
static void srq_domain(void)
{
	enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
		struct ibv_srq *srq = make_srq(other_pd);
		struct ibv_qp *a = make_qp(types[i], NULL), *b = make_qp(types[i], srq);
		connect_pair(a, b);
		struct ibv_ah_attr attr = address_of(context);
		struct ibv_ah *ah = types[i] == IBV_QPT_UD ? ibv_create_ah(pd, &attr) : NULL;
		int header = ah ? 40 : 0;
		strcpy(near, "into the other domain");
		memset(foreign, 0, SIZE);
		memset(far, 0, SIZE);
		receive_shared(srq, 1, foreign_mr);
		send_bytes(a, 2, 30, ah, b->qp_num);
		struct ibv_wc wc = two(1);
		CHECK(wc.status == IBV_WC_SUCCESS && (int)wc.byte_len == 30 + header);
		CHECK(!strcmp(foreign + header, near));
		receive_shared(srq, 3, far_mr);
		send_bytes(a, 4, 30, ah, b->qp_num);
		wc = two(3);
		CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
		CHECK(!far[0] && !far[header]);
		OK(ibv_destroy_qp(a));
		OK(ibv_destroy_qp(b));
		if (ah)
			OK(ibv_destroy_ah(ah));
		OK(ibv_destroy_srq(srq));
	}
}

static struct ibv_send_wr write_to(struct ibv_mr *mr, uint32_t rkey, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {.wr_id = 20, .sg_list = sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE};
	wr.wr.rdma.remote_addr = (uintptr_t)mr->addr;
	wr.wr.rdma.rkey = rkey;
	return wr;
}

static struct ibv_mw *make_window(enum ibv_mw_type type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);
	CHECK(mw);
	return mw;
}

static struct ibv_send_wr bind_wr(struct ibv_mw *mw, uint32_t rkey, struct ibv_mr *mr)
{
	struct ibv_send_wr wr = {.wr_id = 30, .opcode = IBV_WR_BIND_MW};
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = rkey;
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mr, (uintptr_t)far, SIZE, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};
	return wr;
}

static void bind_with(struct ibv_qp *qp, int extended, struct ibv_mw *mw, uint32_t rkey)
{
	struct ibv_send_wr wr = bind_wr(mw, rkey, far_mr);
	if (!extended) {
		OK(try_post(qp, &wr));
		return;
	}
	struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(ex);
	ex->wr_id = 30;
	ex->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_bind_mw(ex, mw, rkey, &wr.bind_mw.bind_info);
	OK(ibv_wr_complete(ex));
}

/* Of the key that a bind asks for the low eight bits count. The window has the key that results from the posting on. */
static void window_key(void)
{
	for (int extended = 0; extended < 2; extended++) {
		struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b;
		struct ibv_qp_init_attr_ex init = {
			.send_cq = cq,
			.recv_cq = cq,
			.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2},
			.qp_type = IBV_QPT_RC,
			.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
			.pd = pd,
			.sq_sig_all = 1,
			.send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV,
		};
		CHECK(b = ibv_create_qp_ex(context, &init));
		connect_pair(a, b);
		struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
		uint32_t made = mw->rkey, foreign_key = ~made ^ 0x5a;
		struct ibv_send_wr refused = bind_wr(mw, foreign_key, NULL);
		FAILS(try_post(b, &refused), EINVAL);
		CHECK(mw->rkey == made);
		bind_with(b, extended, mw, foreign_key);
		CHECK(mw->rkey == ((made & ~0xffu) | (foreign_key & 0xff)));
		expect(cq, IBV_WC_SUCCESS, 30);

		struct ibv_sge sge = piece(near_mr, 30);
		strcpy(near, "through the window");
		memset(far, 0, SIZE);
		struct ibv_send_wr wr = write_to(far_mr, mw->rkey, &sge);
		OK(try_post(a, &wr));
		expect(cq, IBV_WC_SUCCESS, 20);
		CHECK(!strcmp(far, near));
		wr = write_to(far_mr, foreign_key, &sge);
		OK(try_post(a, &wr));
		expect(cq, IBV_WC_REM_ACCESS_ERR, 20);
		OK(ibv_dealloc_mw(mw));
		OK(ibv_destroy_qp(a));
		OK(ibv_destroy_qp(b));
	}
}

/* A region is in use as long as a window is bound to it. */
static void region_below_a_window(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	struct ibv_mw *one = make_window(IBV_MW_TYPE_1), *two = make_window(IBV_MW_TYPE_2);
	struct ibv_mw_bind bind = {.wr_id = 1,
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {far_mr, (uintptr_t)far, SIZE, IBV_ACCESS_REMOTE_WRITE}};
	OK(ibv_bind_mw(a, one, &bind));
	expect(cq, IBV_WC_SUCCESS, 1);
	errno = 0;
	FAILS(ibv_dereg_mr(far_mr), EBUSY);
	CHECK(errno == EBUSY);
	bind.bind_info.length = 0;
	OK(ibv_bind_mw(a, one, &bind));
	expect(cq, IBV_WC_SUCCESS, 1);
	bind_with(a, 0, two, two->rkey + 1);
	expect(cq, IBV_WC_SUCCESS, 30);
	FAILS(ibv_dereg_mr(far_mr), EBUSY);
	/* The region is what it was. */
	struct ibv_sge sge = piece(near_mr, 30);
	strcpy(near, "still there");
	struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge);
	OK(try_post(b, &wr));
	expect(cq, IBV_WC_SUCCESS, 20);
	CHECK(!strcmp(far, near));
	OK(ibv_dealloc_mw(two));
	OK(ibv_dealloc_mw(one));
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* A datagram that is longer than the receive is lost, and the receive is there for the next. */
static void datagram_too_long(void)
{
	struct ibv_ah_attr attr = address_of(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah);
	for (int shared = 0; shared < 2; shared++) {
		struct ibv_srq *srq = shared ? make_srq(pd) : NULL;
		struct ibv_qp *a = make_qp(IBV_QPT_UD, NULL), *b = make_qp(IBV_QPT_UD, srq);
		connect_pair(a, b);
		struct ibv_sge sge = piece(far_mr, 100);
		struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
		OK(shared ? ibv_post_srq_recv(srq, &receive, &bad) : ibv_post_recv(b, &receive, &bad));
		strcpy(near, "sixty bytes at most");
		memset(far, 0, SIZE);
		send_bytes(a, 2, 61, ah, b->qp_num);
		expect(cq, IBV_WC_SUCCESS, 2);
		send_bytes(a, 3, 60, ah, b->qp_num);
		struct ibv_wc wc = two(1);
		CHECK(wc.wr_id == 1 && wc.status == IBV_WC_SUCCESS && wc.byte_len == 100);
		CHECK(!strcmp(far + 40, near));
		CHECK(ibv_poll_cq(cq, 1, &wc) == 0 && b->state == IBV_QPS_RTS);
		OK(ibv_destroy_qp(a));
		OK(ibv_destroy_qp(b));
		if (srq)
			OK(ibv_destroy_srq(srq));
	}
	OK(ibv_destroy_ah(ah));
}

/* Regions of no bytes can be registered, and serve operations on none. */
static void no_bytes(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	struct ibv_mr *empty[] = {
		ibv_reg_mr(pd, near, 0, ALL_ACCESS),
		ibv_reg_mr(pd, NULL, 0, ALL_ACCESS),
		ibv_reg_mr(pd, near, 0, ALL_ACCESS | IBV_ACCESS_ON_DEMAND),
	};
	for (unsigned i = 0; i < sizeof empty / sizeof *empty; i++) {
		CHECK(empty[i] && empty[i]->length == 0);
		struct ibv_sge sge = piece(empty[i], 0);
		struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
		OK(ibv_post_recv(b, &receive, &bad));
		enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_SEND};
		for (unsigned j = 0; j < 3; j++) {
			struct ibv_send_wr wr = write_to(empty[i], empty[i]->rkey, &sge);
			wr.opcode = opcodes[j];
			OK(try_post(a, &wr));
			struct ibv_wc wc = opcodes[j] == IBV_WR_SEND ? two(20) : completion_of(cq);
			CHECK(wc.status == IBV_WC_SUCCESS);
		}
		/* One byte is more than there is. */
		struct ibv_sge byte = piece(near_mr, 1);
		struct ibv_send_wr wr = write_to(empty[i], empty[i]->rkey, &byte);
		OK(try_post(a, &wr));
		expect(cq, IBV_WC_REM_ACCESS_ERR, 20);
		OK(ibv_dereg_mr(empty[i]));
		again(a, b);
	}
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* No more address handles than are advertised. (What other objects there may be is tested with fewer, in the engine.) */
static void handles(void)
{
	struct ibv_device_attr device;
	OK(ibv_query_device(context, &device));
	struct ibv_ah **all = calloc(device.max_ah, sizeof *all);
	CHECK(all);
	struct ibv_ah_attr attr = address_of(context);
	for (int i = 0; i < device.max_ah; i++)
		CHECK(all[i] = ibv_create_ah(pd, &attr));
	NULL_WITH(ibv_create_ah(pd, &attr), ENOMEM);
	OK(ibv_destroy_ah(all[0]));
	CHECK(all[0] = ibv_create_ah(pd, &attr));
	NULL_WITH(ibv_create_ah(pd, &attr), ENOMEM);
	for (int i = 0; i < device.max_ah; i++)
		OK(ibv_destroy_ah(all[i]));
	free(all);
}

static void receive(struct ibv_qp *qp, uint64_t id)
{
	struct ibv_sge sge = piece(far_mr, 100);
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	OK(ibv_post_recv(qp, &wr, &bad));
}

/* How programs find out whether DMA-BUFs can be registered: by the error for a descriptor that is none. */
static void dmabuf_probes(void)
{
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
	/* NCCL's, and UCX's. */
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 0, 0, -1, 0), EBADF);
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, access), EBADF);
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, 9999, access), EBADF);
	/* The kernel looks at these before it looks at the descriptor. */
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 4096, 1, -1, access), EINVAL);
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	/* And these later. */
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 0, 0, 0, access), EINVAL);
}

static void expect_flags(struct ibv_wc wc, unsigned flags, uint32_t length)
{
	if (wc.status != IBV_WC_SUCCESS || wc.wc_flags != flags || wc.byte_len != length) {
		fprintf(stderr, "completion of %llu: %s, flags %#x, %u bytes; expected %#x, %u\n",
			(unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.wc_flags, wc.byte_len, flags,
			length);
		exit(1);
	}
}

/* What completions of either side say, for each service. */
static void flags(void)
{
	struct ibv_ah_attr attr = address_of(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	CHECK(ah);
	enum ibv_qp_type types[] = {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD};
	for (unsigned i = 0; i < sizeof types / sizeof *types; i++) {
		struct ibv_qp *a = make_qp(types[i], NULL), *b = make_qp(types[i], NULL);
		connect_pair(a, b);
		int datagram = types[i] == IBV_QPT_UD;
		/* Only datagrams have a network header before them. */
		unsigned grh = datagram ? IBV_WC_GRH : 0, header = datagram ? 40 : 0;
		struct ibv_sge sge = piece(near_mr, 30);
		enum ibv_wr_opcode opcodes[] = {IBV_WR_SEND, IBV_WR_SEND_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM,
						IBV_WR_SEND_WITH_INV};
		unsigned count = datagram ? 2 : types[i] == IBV_QPT_UC ? 3 : 4;
		for (unsigned j = 0; j < count; j++) {
			struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge);
			wr.opcode = opcodes[j];
			wr.imm_data = htonl(0x12345678);
			if (datagram) {
				wr.wr.ud.ah = ah;
				wr.wr.ud.remote_qpn = b->qp_num;
				wr.wr.ud.remote_qkey = QKEY;
			}
			if (opcodes[j] == IBV_WR_SEND_WITH_INV) {
				bind_with(b, 0, mw, mw->rkey + 1);
				expect(cq, IBV_WC_SUCCESS, 30);
				wr.invalidate_rkey = mw->rkey;
			}
			memset(far, 0xee, SIZE);
			receive(b, 1);
			OK(try_post(a, &wr));
			struct ibv_wc first = completion_of(cq), second = completion_of(cq);
			struct ibv_wc got = first.wr_id == 1 ? first : second, sent = first.wr_id == 1 ? second : first;
			int immediate = opcodes[j] == IBV_WR_SEND_WITH_IMM || opcodes[j] == IBV_WR_RDMA_WRITE_WITH_IMM;
			unsigned extra = immediate ? IBV_WC_WITH_IMM : 0;
			expect_flags(sent, extra, 30);
			if (opcodes[j] == IBV_WR_SEND_WITH_INV)
				extra = IBV_WC_WITH_INV;
			expect_flags(got, extra | grh, 30 + header);
			CHECK(!immediate || ntohl(got.imm_data) == 0x12345678);
			if (datagram)
				for (int at = 0; at < 20; at++)
					CHECK(far[at] == 0);
		}
		OK(ibv_destroy_qp(a));
		OK(ibv_destroy_qp(b));
	}
	OK(ibv_dealloc_mw(mw));
	OK(ibv_destroy_ah(ah));
}

/* A WRITE with immediate data whose key is refused ends the receive that it would take, if there is one. */
static void immediate_with_bad_key(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	for (int receives = 0; receives < 2; receives++) {
		again(a, b);
		if (receives)
			receive(b, 1);
		struct ibv_sge sge = piece(near_mr, 30);
		struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey ^ 0x5500, &sge);
		wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
		OK(try_post(a, &wr));
		if (!receives) {
			expect(cq, IBV_WC_REM_ACCESS_ERR, 20);
			continue;
		}
		struct ibv_wc first = completion_of(cq), second = completion_of(cq);
		struct ibv_wc got = first.wr_id == 1 ? first : second, sent = first.wr_id == 1 ? second : first;
		CHECK(sent.status == IBV_WC_REM_ACCESS_ERR && got.status == IBV_WC_LOC_ACCESS_ERR);
	}
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* Of a window that another queue pair has bound, neither it nor its peer can be the end. */
static void window_of_another_qp(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	struct ibv_qp *owner = make_qp(IBV_QPT_RC, NULL), *peer = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	connect_pair(owner, peer);
	struct ibv_mw *mw = make_window(IBV_MW_TYPE_2);
	bind_with(owner, 0, mw, mw->rkey + 1);
	expect(cq, IBV_WC_SUCCESS, 30);
	struct ibv_send_wr wr = {.wr_id = 40, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};
	OK(try_post(b, &wr));
	expect(cq, IBV_WC_MW_BIND_ERR, 40);
	again(a, b);
	receive(b, 1);
	struct ibv_sge sge = piece(near_mr, 30);
	wr = (struct ibv_send_wr){.wr_id = 41,
				  .sg_list = &sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND_WITH_INV,
				  .invalidate_rkey = mw->rkey};
	OK(try_post(a, &wr));
	CHECK(two(1).status == IBV_WC_REM_INV_REQ_ERR);
	/* It is bound as before. */
	wr = write_to(far_mr, mw->rkey, &sge);
	OK(try_post(peer, &wr));
	expect(cq, IBV_WC_SUCCESS, 20);
	OK(ibv_dealloc_mw(mw));
	struct ibv_qp *all[] = {a, b, owner, peer};
	for (int i = 0; i < 4; i++)
		OK(ibv_destroy_qp(all[i]));
}

/* Where both keys are wrong, the local one tells: it is looked at before anything is sent. */
static void both_keys_wrong(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	enum ibv_wr_opcode opcodes[] = {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD};
	for (unsigned i = 0; i < 3; i++) {
		again(a, b);
		struct ibv_sge sge = piece(near_mr, 8);
		sge.lkey ^= 0x5500;
		struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey ^ 0x5500, &sge);
		wr.opcode = opcodes[i];
		if (opcodes[i] == IBV_WR_ATOMIC_FETCH_AND_ADD) {
			wr.wr.atomic.remote_addr = (uintptr_t)far;
			wr.wr.atomic.rkey = far_mr->rkey ^ 0x5500;
		}
		OK(try_post(a, &wr));
		expect(cq, IBV_WC_LOC_PROT_ERR, 20);
		struct ibv_qp_attr attr;
		struct ibv_qp_init_attr init;
		OK(ibv_query_qp(b, &attr, IBV_QP_STATE, &init));
		CHECK(attr.qp_state == IBV_QPS_RTS);
	}
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* What can never be done is taken when it is posted, as on hardware, and fails when it is its turn. */
static void impossible_requests(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	struct ibv_sge sge = piece(near_mr, 8);
	struct ibv_send_wr atomic = {.wr_id = 50, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD};
	atomic.wr.atomic.remote_addr = (uintptr_t)far;
	atomic.wr.atomic.rkey = far_mr->rkey;
	atomic.wr.atomic.compare_add = 7;
	/* The answer has eight bytes. More room is no mistake; less is. */
	sge.length = 4;
	FAILS(try_post(a, &atomic), EINVAL);
	*(uint64_t *)far = 35;
	memset(near, 0xee, SIZE);
	sge.length = SIZE;
	OK(try_post(a, &atomic));
	struct ibv_wc wc = expect(cq, IBV_WC_SUCCESS, 50);
	CHECK(wc.byte_len == 8 && *(uint64_t *)near == 35 && *(uint64_t *)far == 42 && (unsigned char)near[8] == 0xee);
	/* Nothing is changed at an address that is not aligned. */
	sge.length = 8;
	atomic.wr.atomic.remote_addr = (uintptr_t)far + 4;
	enum ibv_wr_opcode atomics[] = {IBV_WR_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_FETCH_AND_ADD};
	for (unsigned i = 0; i < 2; i++) {
		again(a, b);
		atomic.opcode = atomics[i];
		OK(try_post(a, &atomic));
		expect(cq, IBV_WC_REM_INV_REQ_ERR, 50);
	}
	CHECK(*(uint64_t *)far == 42 && *(uint64_t *)(far + 8) == 0);

	const struct {
		enum ibv_wr_opcode opcode;
		int datagrams_only;
	} requests[] = {
		{IBV_WR_RDMA_WRITE, 1},
		{IBV_WR_RDMA_WRITE_WITH_IMM, 1},
		{IBV_WR_RDMA_READ, 0},
		{IBV_WR_ATOMIC_CMP_AND_SWP, 0},
		{IBV_WR_ATOMIC_FETCH_AND_ADD, 0},
		{IBV_WR_LOCAL_INV, 1},
		{IBV_WR_BIND_MW, 1},
		{IBV_WR_SEND_WITH_INV, 0},
	};
	for (unsigned i = 0; i < sizeof requests / sizeof *requests; i++)
		for (int datagrams = 0; datagrams < 2; datagrams++) {
			if (requests[i].datagrams_only && !datagrams)
				continue;
			struct ibv_qp *qp = make_qp(datagrams ? IBV_QPT_UD : IBV_QPT_UC, NULL);
			connect_to(qp, qp->qp_num);
			struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge), *bad = NULL;
			wr.opcode = requests[i].opcode;
			OK(ibv_post_send(qp, &wr, &bad));
			expect(cq, IBV_WC_LOC_QP_OP_ERR, 20);
			OK(ibv_destroy_qp(qp));
		}
	/* An opcode that nothing here has. */
	struct ibv_qp *ud = make_qp(IBV_QPT_UD, NULL);
	connect_to(ud, ud->qp_num);
	struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge), *bad = NULL;
	wr.opcode = IBV_WR_TSO;
	FAILS(ibv_post_send(ud, &wr, &bad), EINVAL);
	CHECK(bad == &wr && ud->state == IBV_QPS_RTS);
	struct ibv_qp *all[] = {a, b, ud};
	for (int i = 0; i < 3; i++)
		OK(ibv_destroy_qp(all[i]));
}

/* A registration that could not be changed as asked is as it was, in every part. */
static void failed_reregistration(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	struct ibv_mr before = *far_mr;
	int all = IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS | IBV_REREG_MR_CHANGE_TRANSLATION;
	/* The domain and the rights would do; the memory is not there. */
	errno = 0;
	CHECK(ibv_rereg_mr(far_mr, all, other_pd, (void *)4096, SIZE, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_CMD);
	CHECK(errno == EFAULT && !memcmp(&before, far_mr, sizeof before));
	/* The memory would do; the rights contradict each other, which the kernel is the one to say. */
	errno = 0;
	CHECK(ibv_rereg_mr(far_mr, all, other_pd, near, SIZE, IBV_ACCESS_REMOTE_WRITE) == IBV_REREG_MR_ERR_CMD);
	CHECK(errno == EINVAL && !memcmp(&before, far_mr, sizeof before));
	/* What libibverbs itself refuses: unknown flags, new memory that is none, rights that are not to be changed. */
	int memory = IBV_REREG_MR_CHANGE_TRANSLATION, domain = IBV_REREG_MR_CHANGE_PD;
	const struct {
		int flags;
		void *addr;
		size_t length;
		int access, code;
	} refusals[] = {
		{1 << 5, NULL, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{memory, NULL, SIZE, 0, IBV_REREG_MR_ERR_INPUT},
		{memory, near, 0, 0, IBV_REREG_MR_ERR_INPUT},
		{domain, NULL, 0, IBV_ACCESS_LOCAL_WRITE, IBV_REREG_MR_ERR_INPUT},
		{0, NULL, 0, IBV_ACCESS_LOCAL_WRITE, IBV_REREG_MR_ERR_INPUT},
		/* And the kernel: nothing to change. */
		{0, NULL, 0, 0, IBV_REREG_MR_ERR_CMD},
	};
	for (unsigned i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		errno = 0;
		CHECK(ibv_rereg_mr(far_mr, refusals[i].flags, other_pd, refusals[i].addr, refusals[i].length,
				   refusals[i].access) == refusals[i].code);
		CHECK(errno == EINVAL && !memcmp(&before, far_mr, sizeof before));
	}
	struct ibv_sge sge = piece(near_mr, 30);
	strcpy(near, "as before");
	struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge);
	OK(try_post(a, &wr));
	expect(cq, IBV_WC_SUCCESS, 20);
	CHECK(!strcmp(far, near));
	/* Nothing of it counts as a user of the other domain. */
	struct ibv_pd *third = ibv_alloc_pd(context);
	CHECK(third);
	CHECK(ibv_rereg_mr(far_mr, all, third, (void *)4096, SIZE, IBV_ACCESS_LOCAL_WRITE) == IBV_REREG_MR_ERR_CMD);
	OK(ibv_dealloc_pd(third));
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* Asking a CQ without a channel for notification is possible, and without effect. */
static void notification_without_channel(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC, NULL), *b = make_qp(IBV_QPT_RC, NULL);
	connect_pair(a, b);
	OK(ibv_req_notify_cq(cq, 0));
	OK(ibv_req_notify_cq(cq, 1));
	struct ibv_sge sge = piece(near_mr, 30);
	struct ibv_send_wr wr = write_to(far_mr, far_mr->rkey, &sge);
	OK(try_post(a, &wr));
	expect(cq, IBV_WC_SUCCESS, 20);
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/*
 * Everything that ibv_modify_qp refuses with EINVAL. "refused N" on stderr follows what the library says of the Nth, for
 * the test to read.
 */
static void refused_changes(void)
{
	int count = 0;
#define REFUSED(qp, mask, ...)                                                                                         \
	do {                                                                                                           \
		struct ibv_qp_attr attr_ = {__VA_ARGS__};                                                              \
		FAILS(ibv_modify_qp(qp, &attr_, mask), EINVAL);                                                        \
		fprintf(stderr, "refused %d\n", count++);                                                              \
	} while (0)
	struct ibv_qp *rc = make_qp(IBV_QPT_RC, NULL), *ud = make_qp(IBV_QPT_UD, NULL),
		      *init = make_qp(IBV_QPT_RC, NULL);
	OK(to_init(init));
	struct ibv_ah_attr there = address_of(context), nowhere = there, local = there, port = there, place = there;
	memset(&nowhere.grh.dgid, 0, 16);
	local.is_global = 0;
	port.port_num = 2;
	place.grh.sgid_index = 200;
	int state = IBV_QP_STATE, to_init_mask = state | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	int to_rtr_mask = state | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
#define RTR .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 5

	FAILS(ibv_modify_qp(rc, NULL, state), EINVAL);
	fprintf(stderr, "refused %d\n", count++);
	FAILS(ibv_modify_qp(NULL, &(struct ibv_qp_attr){0}, state), EINVAL);
	fprintf(stderr, "refused %d\n", count++);
	FAILS(ibv_modify_qp((struct ibv_qp *)cq, &(struct ibv_qp_attr){0}, state), EINVAL);
	fprintf(stderr, "refused %d\n", count++);
	/* Transitions, and what they need and allow. */
	REFUSED(rc, state, .qp_state = IBV_QPS_RTS);
	REFUSED(rc, state, .qp_state = 77);
	REFUSED(rc, state | IBV_QP_CUR_STATE, .qp_state = IBV_QPS_RESET, .cur_qp_state = 77);
	REFUSED(init, state | IBV_QP_CUR_STATE, .qp_state = IBV_QPS_RESET, .cur_qp_state = IBV_QPS_RTS);
	REFUSED(rc, state, .qp_state = IBV_QPS_INIT);
	REFUSED(rc, to_init_mask | IBV_QP_QKEY, .qp_state = IBV_QPS_INIT, .port_num = 1);
	REFUSED(rc, to_init_mask | 1 << 30, .qp_state = IBV_QPS_INIT, .port_num = 1);
	REFUSED(ud, to_init_mask, .qp_state = IBV_QPS_INIT, .port_num = 1);
	/* Values. */
	REFUSED(rc, to_init_mask, .qp_state = IBV_QPS_INIT, .port_num = 2);
	REFUSED(rc, to_init_mask, .qp_state = IBV_QPS_INIT, .port_num = 1, .pkey_index = 1);
	REFUSED(init, to_rtr_mask, .qp_state = IBV_QPS_RTR, .dest_qp_num = 5, .ah_attr = there, .path_mtu = 0);
	REFUSED(init, to_rtr_mask, .qp_state = IBV_QPS_RTR, .dest_qp_num = 5, .ah_attr = there, .path_mtu = 6);
	REFUSED(init, to_rtr_mask, RTR, .ah_attr = there, .max_dest_rd_atomic = 255);
	REFUSED(init, to_rtr_mask, RTR, .ah_attr = local);
	REFUSED(init, to_rtr_mask, RTR, .ah_attr = port);
	REFUSED(init, to_rtr_mask, RTR, .ah_attr = nowhere);
	REFUSED(init, to_rtr_mask, RTR, .ah_attr = place);
	OK(to_rtr(init, 5));
	int to_rts_mask =
		state | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	REFUSED(init, to_rts_mask, .qp_state = IBV_QPS_RTS, .retry_cnt = 8);
	REFUSED(init, to_rts_mask, .qp_state = IBV_QPS_RTS, .rnr_retry = 8);
	REFUSED(init, to_rts_mask, .qp_state = IBV_QPS_RTS, .timeout = 32);
	REFUSED(init, to_rts_mask, .qp_state = IBV_QPS_RTS, .max_rd_atomic = 255);
	REFUSED(init, to_rts_mask | IBV_QP_ALT_PATH, .qp_state = IBV_QPS_RTS, .alt_ah_attr = there, .alt_port_num = 1);
	struct ibv_qp *all[] = {rc, ud, init};
	for (int i = 0; i < 3; i++)
		OK(ibv_destroy_qp(all[i]));
	printf("%d refusals\n", count);
}

/* The parts of an address that mean nothing here come back as they were given. */
static void address_as_given(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_RC, NULL);
	OK(to_init(qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = address_of(context),
	};
	attr.ah_attr.sl = 3;
	attr.ah_attr.static_rate = IBV_RATE_40_GBPS;
	attr.ah_attr.grh.traffic_class = 106;
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	struct ibv_qp_attr told;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(qp, &told, IBV_QP_AV, &init));
	CHECK(told.ah_attr.sl == 3 && told.ah_attr.static_rate == IBV_RATE_40_GBPS);
	CHECK(told.ah_attr.is_global && told.ah_attr.grh.traffic_class == 106);
	CHECK(!memcmp(&told.ah_attr.grh.dgid, &attr.ah_attr.grh.dgid, 16));
	OK(ibv_destroy_qp(qp));
}

/* One verb of each kind, for the log, which is the test's to read. */
static void refused_verbs(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_UD, NULL);
	OK(to_init(qp));
	union ibv_gid no_group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 1, [14] = 2, [15] = 3}};
	FAILS(ibv_attach_mcast(qp, &no_group, 7), EINVAL);
	CHECK(!ibv_create_cq(context, -5, NULL, NULL, 0));
	CHECK(!ibv_alloc_mw(pd, 99));
	OK(ibv_destroy_qp(qp));

	struct ibv_qp *rc = make_qp(IBV_QPT_RC, NULL);
	connect_to(rc, rc->qp_num);
	struct ibv_sge sges[5] = {piece(near_mr, 1000)};
	struct ibv_send_wr wr = {.wr_id = 41, .sg_list = sges, .num_sge = 1, .send_flags = IBV_SEND_INLINE}, *bad;
	FAILS(ibv_post_send(rc, &wr, &bad), EINVAL);
	wr.send_flags = 1 << 20;
	FAILS(ibv_post_send(rc, &wr, &bad), EINVAL);
	wr.send_flags = 0;
	wr.opcode = 77;
	FAILS(ibv_post_send(rc, &wr, &bad), EINVAL);
	wr.opcode = IBV_WR_SEND;
	wr.num_sge = 1000;
	FAILS(ibv_post_send(rc, &wr, &bad), EINVAL);
	struct ibv_recv_wr receive = {.wr_id = 42, .sg_list = sges, .num_sge = -1}, *bad_receive;
	FAILS(ibv_post_recv(rc, &receive, &bad_receive), EINVAL);
	OK(ibv_destroy_qp(rc));
}

static const struct {
	const char *name;
	void (*run)(void);
} rules[] = {
	{"address_as_given", address_as_given},
	{"srq_domain", srq_domain},
	{"window_key", window_key},
	{"region_below_a_window", region_below_a_window},
	{"datagram_too_long", datagram_too_long},
	{"no_bytes", no_bytes},
	{"handles", handles},
	{"dmabuf_probes", dmabuf_probes},
	{"flags", flags},
	{"immediate_with_bad_key", immediate_with_bad_key},
	{"window_of_another_qp", window_of_another_qp},
	{"both_keys_wrong", both_keys_wrong},
	{"impossible_requests", impossible_requests},
	{"failed_reregistration", failed_reregistration},
	{"notification_without_channel", notification_without_channel},
	{"refused_changes", refused_changes},
	{"refused_verbs", refused_verbs},
};

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	context = open_first();
	pd = ibv_alloc_pd(context);
	other_pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 100, NULL, NULL, 0);
	CHECK(pd && other_pd && cq);
	near_mr = region(pd, &near);
	far_mr = region(pd, &far);
	foreign_mr = region(other_pd, &foreign);
	for (unsigned i = 0; i < sizeof rules / sizeof *rules; i++)
		if (!strcmp(rules[i].name, argv[1])) {
			rules[i].run();
			OK(ibv_dereg_mr(near_mr));
			OK(ibv_dereg_mr(far_mr));
			OK(ibv_dereg_mr(foreign_mr));
			OK(ibv_destroy_cq(cq));
			OK(ibv_dealloc_pd(other_pd));
			OK(ibv_dealloc_pd(pd));
			OK(ibv_close_device(context));
			puts("as it should be");
			return 0;
		}
	fprintf(stderr, "there is no rule %s\n", argv[1]);
	return 2;
}
