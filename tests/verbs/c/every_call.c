/*
 * Uses every call of libibverbs at least once, in one process whose queue pairs talk to each other, and checks what
 * comes of it. Meant for Valgrind and sanitizers as well: all that is made is destroyed again.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

enum { SIZE = 16384 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;
static char *near, *far;
static struct ibv_mr *near_mr, *far_mr;

static struct ibv_sge near_sge(int length)
{
	return (struct ibv_sge){(uintptr_t)near, length, near_mr->lkey};
}

static struct ibv_sge far_sge(int length)
{
	return (struct ibv_sge){(uintptr_t)far, length, far_mr->lkey};
}

static void post(struct ibv_qp *qp, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad = NULL;
	OK(ibv_post_send(qp, wr, &bad));
}

static void post_receive(struct ibv_qp *qp, uint64_t id, struct ibv_sge sge)
{
	struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad = NULL;
	OK(ibv_post_recv(qp, &wr, &bad));
}

static struct ibv_qp *make_qp(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 128},
		.qp_type = type,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && init.cap.max_send_wr >= 16 && init.cap.max_inline_data >= 128);
	CHECK(qp->state == IBV_QPS_RESET && qp->qp_type == type && qp->send_cq == cq && qp->pd == pd);
	return qp;
}

static struct ibv_qp *make_qp_ex(enum ibv_qp_type type, uint64_t ops)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16,
			.max_recv_wr = 16,
			.max_send_sge = 2,
			.max_recv_sge = 2,
			.max_inline_data = 128},
		.qp_type = type,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = ops,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	return qp;
}

/* The device, its port and tables. */
static void queries(void)
{
	struct ibv_device_attr attr;
	OK(ibv_query_device(context, &attr));
	CHECK(attr.max_qp > 0 && attr.phys_port_cnt == 1 && attr.max_sge > 1);
	CHECK(attr.node_guid == ibv_get_device_guid(context->device) && attr.node_guid != 0);
	struct ibv_device_attr_ex ex;
	OK(ibv_query_device_ex(context, NULL, &ex));
	CHECK(!memcmp(&ex.orig_attr, &attr, offsetof(struct ibv_device_attr, phys_port_cnt) + 1));
	struct ibv_query_device_ex_input input = {.comp_mask = 1};
	FAILS(ibv_query_device_ex(context, &input, &ex), EINVAL);
	struct ibv_port_attr port;
	OK(ibv_query_port(context, 1, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.pkey_tbl_len == 1);
	FAILS(ibv_query_port(context, 0, &port), EINVAL);
	FAILS(ibv_query_port(context, 2, &port), EINVAL);

	union ibv_gid gid, zero = {.raw = {0}};
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0 && gid.raw[10] == 0xff && gid.raw[12] == 127);
	CHECK(ibv_query_gid(context, 1, 999, &zero) == 0 && zero.global.interface_id == 0);
	CHECK(ibv_query_gid(context, 1, port.gid_tbl_len, &zero) == -1 && errno == EINVAL);
	struct ibv_gid_entry entry, table[4];
	OK(ibv_query_gid_ex(context, 1, 0, &entry, 0));
	CHECK(entry.gid_type == IBV_GID_TYPE_ROCE_V2 && !memcmp(&entry.gid, &gid, 16) && entry.ndev_ifindex > 0);
	/* perftest asks a thousand times: that takes no socket. */
	struct rlimit files, none = {0, 0};
	OK(getrlimit(RLIMIT_NOFILE, &files));
	none.rlim_max = files.rlim_max;
	OK(setrlimit(RLIMIT_NOFILE, &none));
	OK(ibv_query_gid_ex(context, 1, 0, &table[0], 0));
	OK(setrlimit(RLIMIT_NOFILE, &files));
	CHECK(table[0].ndev_ifindex == entry.ndev_ifindex);
	FAILS(ibv_query_gid_ex(context, 1, 999, &entry, 0), ENODATA);
	CHECK(ibv_query_gid_table(context, table, 4, 0) >= 1 && !memcmp(table, &entry, sizeof entry));
	CHECK(ibv_query_gid_table(context, table, 0, 0) == -EINVAL);
	__be16 pkey;
	CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && ntohs(pkey) == 0xffff);
	CHECK(ibv_query_pkey(context, 1, 1, &pkey) == -1);
	CHECK(ibv_get_pkey_index(context, 1, htons(0xffff)) == 0);
	CHECK(ibv_get_pkey_index(context, 1, htons(0x7fff)) == -1);

	struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK}, later = values;
	OK(ibv_query_rt_values_ex(context, &values));
	OK(ibv_query_rt_values_ex(context, &later));
	CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && later.raw_clock.tv_nsec > values.raw_clock.tv_nsec);

	CHECK(ibv_get_device_index(context->device) == 0);
	CHECK(!strcmp(ibv_get_device_name(context->device), context->device->name));
	CHECK(ibv_fork_init() == 0 && ibv_is_fork_initialized() == IBV_FORK_UNNEEDED);
	uint8_t mac[6];
	struct ibv_ah_attr address = address_of(context);
	extern int ibv_resolve_eth_l2_from_gid(struct ibv_context *, struct ibv_ah_attr *, uint8_t[6], uint16_t *);
	uint16_t vid = 0;
	OK(ibv_resolve_eth_l2_from_gid(context, &address, mac, &vid));
	CHECK(vid == 0xffff);
}

/* SEND and RECV, with immediate data, inline, from several pieces, and in lists. */
static void sends(enum ibv_qp_type type)
{
	struct ibv_qp *a = make_qp(type), *b = make_qp(type);
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
	int reliable = type == IBV_QPT_RC;
	strcpy(near, "a message");
	memset(far, 0, SIZE);
	post_receive(b, 1, far_sge(SIZE));
	struct ibv_sge pieces[2] = {near_sge(2), {(uintptr_t)near + 2, 5000, near_mr->lkey}};
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = pieces,
				 .num_sge = 2,
				 .opcode = IBV_WR_SEND_WITH_IMM,
				 .send_flags = IBV_SEND_SIGNALED,
				 .imm_data = htonl(0x12345678)};
	post(a, &wr);
	struct ibv_wc first = completion_of(cq), second = completion_of(cq);
	struct ibv_wc sent = first.wr_id == 2 ? first : second, received = first.wr_id == 2 ? second : first;
	CHECK(sent.status == IBV_WC_SUCCESS && sent.opcode == IBV_WC_SEND && sent.qp_num == a->qp_num);
	CHECK(received.status == IBV_WC_SUCCESS && received.opcode == IBV_WC_RECV && received.byte_len == 5002);
	CHECK(received.wc_flags & IBV_WC_WITH_IMM && ntohl(received.imm_data) == 0x12345678);
	CHECK(!memcmp(near, far, 5002));

	/* Inline data need no key, may be changed at once, and the unsignaled one of two says nothing. */
	char text[] = "inline";
	post_receive(b, 3, far_sge(SIZE));
	post_receive(b, 4, far_sge(SIZE));
	struct ibv_sge inline_sge = {(uintptr_t)text, sizeof text, 0};
	struct ibv_send_wr two = {.wr_id = 6,
				  .sg_list = &inline_sge,
				  .num_sge = 1,
				  .opcode = IBV_WR_SEND,
				  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE | IBV_SEND_SOLICITED};
	struct ibv_send_wr one = two;
	one.wr_id = 5;
	one.send_flags = IBV_SEND_INLINE;
	one.next = &two;
	post(a, &one);
	memset(text, 'x', sizeof text);
	int seen = 0;
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = completion_of(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id != 5);
		seen |= 1 << wc.wr_id;
	}
	CHECK(seen == (1 << 3 | 1 << 4 | 1 << 6) && !strcmp(far, "inline"));

	/* RDMA WRITE, also with immediate data. */
	memset(near, 'w', 3000);
	struct ibv_sge sge = near_sge(3000);
	struct ibv_send_wr write = {.wr_id = 7,
				    .sg_list = &sge,
				    .num_sge = 1,
				    .opcode = IBV_WR_RDMA_WRITE,
				    .send_flags = IBV_SEND_SIGNALED};
	write.wr.rdma.remote_addr = (uintptr_t)far;
	write.wr.rdma.rkey = far_mr->rkey;
	post(a, &write);
	expect(cq, IBV_WC_SUCCESS, 7);
	if (reliable)
		CHECK(!memcmp(near, far, 3000));
	post_receive(b, 8, far_sge(1));
	write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
	write.imm_data = htonl(99);
	write.send_flags = 0;
	post(a, &write);
	struct ibv_wc wc = expect(cq, IBV_WC_SUCCESS, 8);
	CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 3000 && ntohl(wc.imm_data) == 99);

	/* What cannot be is refused, and said to be so. */
	struct ibv_send_wr wrong = {.sg_list = &sge, .num_sge = 3, .opcode = IBV_WR_SEND}, *bad = NULL;
	FAILS(ibv_post_send(a, &wrong, &bad), EINVAL);
	CHECK(bad == &wrong);
	wrong.num_sge = 1;
	wrong.opcode = 77;
	FAILS(ibv_post_send(a, &wrong, &bad), EINVAL);
	wrong.opcode = IBV_WR_SEND;
	wrong.send_flags = IBV_SEND_INLINE;
	FAILS(ibv_post_send(a, &wrong, &bad), EINVAL);
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* READ, atomics, key faults, flushing, and attributes. */
static void reliable(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC), *b = make_qp(IBV_QPT_RC);
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
	struct ibv_sge sge = near_sge(4096), word = near_sge(8);
	memset(far, 'r', 4096);
	struct ibv_send_wr wr = {.wr_id = 1,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_READ,
				 .send_flags = IBV_SEND_SIGNALED | IBV_SEND_FENCE};
	wr.wr.rdma.remote_addr = (uintptr_t)far;
	wr.wr.rdma.rkey = far_mr->rkey;
	post(a, &wr);
	CHECK(expect(cq, IBV_WC_SUCCESS, 1).opcode == IBV_WC_RDMA_READ && !memcmp(near, far, 4096));

	uint64_t value = 40;
	memcpy(far, &value, 8);
	wr.sg_list = &word;
	wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
	wr.wr.atomic.remote_addr = (uintptr_t)far;
	wr.wr.atomic.rkey = far_mr->rkey;
	wr.wr.atomic.compare_add = 2;
	post(a, &wr);
	CHECK(expect(cq, IBV_WC_SUCCESS, 1).opcode == IBV_WC_FETCH_ADD);
	CHECK(*(uint64_t *)near == 40 && *(uint64_t *)far == 42);
	wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
	wr.wr.atomic.compare_add = 42;
	wr.wr.atomic.swap = 7;
	post(a, &wr);
	CHECK(expect(cq, IBV_WC_SUCCESS, 1).opcode == IBV_WC_COMP_SWAP);
	CHECK(*(uint64_t *)near == 42 && *(uint64_t *)far == 7);

	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(a, &attr, IBV_QP_STATE | IBV_QP_CAP, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == b->qp_num && attr.cap.max_send_wr >= 16);
	CHECK(init.send_cq == cq && init.qp_type == IBV_QPT_RC && attr.ah_attr.is_global == 1);
	CHECK(attr.timeout == 14 && attr.retry_cnt == 7 && attr.path_mtu == IBV_MTU_1024);
	CHECK(ibv_query_qp_data_in_order(a, IBV_WR_SEND, 0) == 0);
	struct ibv_ece ece = {0};
	FAILS(ibv_query_ece(a, &ece), EOPNOTSUPP);
	FAILS(ibv_set_ece(a, &ece), EOPNOTSUPP);
	attr.qp_state = IBV_QPS_INIT;
	FAILS(ibv_modify_qp(a, &attr, IBV_QP_STATE), EINVAL);
	CHECK(a->state == IBV_QPS_RTS);

	/* A wrong key: the requester hears of it, and both sides stop. */
	post_receive(a, 9, near_sge(64));
	wr.opcode = IBV_WR_RDMA_WRITE;
	wr.wr.rdma.remote_addr = (uintptr_t)far;
	wr.wr.rdma.rkey = far_mr->rkey ^ 0x5500;
	post(a, &wr);
	expect(cq, IBV_WC_REM_ACCESS_ERR, 1);
	expect(cq, IBV_WC_WR_FLUSH_ERR, 9);
	OK(ibv_query_qp(a, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_ERR && a->state == IBV_QPS_ERR);
	attr.qp_state = IBV_QPS_RESET;
	OK(ibv_modify_qp(a, &attr, IBV_QP_STATE));
	CHECK(a->state == IBV_QPS_RESET);
	struct ibv_send_wr *bad;
	FAILS(ibv_post_send(a, &wr, &bad), EINVAL);
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* Memory: each way to register it, and each to change that. */
static void memory(void)
{
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, near, SIZE, 0x10000 + ((uintptr_t)near & 4095), ALL_ACCESS);
	CHECK(mr && mr->addr == near && mr->length == SIZE);
	OK(ibv_dereg_mr(mr));
	NULL_WITH(ibv_reg_mr_iova(pd, near, SIZE, (uintptr_t)near + 1, ALL_ACCESS), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, near, SIZE, IBV_ACCESS_REMOTE_WRITE), EINVAL);
	NULL_WITH(ibv_reg_mr(pd, (void *)4096, 4096, IBV_ACCESS_LOCAL_WRITE), EFAULT);
	mr = ibv_reg_mr(pd, near, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	struct ibv_pd *other = ibv_alloc_pd(context);
	CHECK(other);
	OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, other, NULL, 0, 0));
	CHECK(mr->pd == other);
	FAILS(ibv_dealloc_pd(other), EBUSY);
	OK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, NULL, far, 100, ALL_ACCESS));
	CHECK(mr->addr == far && mr->length == 100);
	FAILS(ibv_rereg_mr(mr, 0, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	OK(ibv_dereg_mr(mr));
	OK(ibv_dealloc_pd(other));

	mr = ibv_alloc_null_mr(pd);
	CHECK(mr);
	OK(ibv_dereg_mr(mr));

	/* A file that can be mapped stands in for a DMA buffer. */
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	mr = ibv_reg_dmabuf_mr(pd, 4096, 8192, 0, fd, ALL_ACCESS);
	CHECK(mr && mr->length == 8192);
	OK(ibv_dereg_mr(mr));
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 0, 4096, 0, -1, ALL_ACCESS), EBADF);
	NULL_WITH(ibv_reg_dmabuf_mr(pd, 4096, SIZE, 0, fd, ALL_ACCESS), EINVAL);
	close(fd);

	/* On-demand memory, advice about it, and memory that goes away under it. */
	struct ibv_device_attr_ex attr;
	OK(ibv_query_device_ex(context, NULL, &attr));
	if (attr.odp_caps.general_caps & IBV_ODP_SUPPORT) {
		char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		mr = ibv_reg_mr(pd, page, 8192, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr);
		struct ibv_sge sge = {(uintptr_t)page, 8192, mr->lkey};
		OK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, IBV_ADVISE_MR_FLAG_FLUSH, &sge, 1));
		OK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1));
		munmap(page, 8192);
		struct ibv_qp *qp = make_qp(IBV_QPT_RC);
		connect_to(qp, qp->qp_num);
		struct ibv_send_wr wr = {.wr_id = 3,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED};
		post_receive(qp, 4, far_sge(SIZE));
		post(qp, &wr);
		expect(cq, IBV_WC_LOC_PROT_ERR, 3);
		expect(cq, IBV_WC_WR_FLUSH_ERR, 4);
		OK(ibv_destroy_qp(qp));
		OK(ibv_dereg_mr(mr));
		mr = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_ON_DEMAND | IBV_ACCESS_LOCAL_WRITE);
		CHECK(mr);
		OK(ibv_dereg_mr(mr));
	}

	struct ibv_alloc_dm_attr dm_attr = {.length = 4096};
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	CHECK(dm);
	char word[8] = "dm data";
	OK(ibv_memcpy_to_dm(dm, 16, word, 8));
	memset(word, 0, 8);
	OK(ibv_memcpy_from_dm(word, dm, 16, 8));
	CHECK(!strcmp(word, "dm data"));
	FAILS(ibv_memcpy_to_dm(dm, 4096, word, 8), EINVAL);
	mr = ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | ALL_ACCESS);
	CHECK(mr);
	FAILS(ibv_free_dm(dm), EBUSY);
	OK(ibv_dereg_mr(mr));

	/* Everything once more by way of a duplicate of the context. */
	struct ibv_context *imported = ibv_import_device(dup(context->cmd_fd));
	CHECK(imported);
	struct ibv_pd *same = ibv_import_pd(imported, pd->handle);
	struct ibv_mr *shared = ibv_import_mr(same, near_mr->handle);
	struct ibv_dm *dm_again = ibv_import_dm(imported, dm->handle);
	CHECK(same && shared && shared->rkey == near_mr->rkey && dm_again);
	OK(ibv_memcpy_from_dm(word, dm_again, 16, 8));
	CHECK(!strcmp(word, "dm data"));
	NULL_WITH(ibv_import_pd(imported, 0xffffff), ENOENT);
	ibv_unimport_dm(dm_again);
	ibv_unimport_mr(shared);
	ibv_unimport_pd(same);
	OK(ibv_close_device(imported));
	OK(ibv_free_dm(dm));
	NULL_WITH(ibv_import_device(0), EINVAL);
}

/* Memory windows of both types. */
static void windows(void)
{
	struct ibv_qp *a = make_qp(IBV_QPT_RC), *b = make_qp(IBV_QPT_RC);
	connect_to(a, b->qp_num);
	connect_to(b, a->qp_num);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	CHECK(mw && mw->type == IBV_MW_TYPE_1);
	uint32_t before = mw->rkey;
	struct ibv_mw_bind bind = {.wr_id = 1,
				   .send_flags = IBV_SEND_SIGNALED,
				   .bind_info = {far_mr, (uintptr_t)far, 4096, IBV_ACCESS_REMOTE_WRITE}};
	OK(ibv_bind_mw(b, mw, &bind));
	CHECK(expect(cq, IBV_WC_SUCCESS, 1).opcode == IBV_WC_BIND_MW && mw->rkey != before);
	FAILS(ibv_dereg_mr(far_mr), EBUSY);
	strcpy(near, "through a window");
	struct ibv_sge sge = near_sge(17);
	struct ibv_send_wr wr = {.wr_id = 2,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)far;
	wr.wr.rdma.rkey = mw->rkey;
	post(a, &wr);
	expect(cq, IBV_WC_SUCCESS, 2);
	CHECK(!strcmp(far, "through a window"));
	OK(ibv_dealloc_mw(mw));

	/* Type 2: bound by a work request, and invalidated by the peer's SEND. */
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(mw);
	FAILS(ibv_bind_mw(b, mw, &bind), EINVAL);
	struct ibv_send_wr bind_wr = {.wr_id = 3, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
	bind_wr.bind_mw.mw = mw;
	bind_wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	bind_wr.bind_mw.bind_info = bind.bind_info;
	post(b, &bind_wr);
	expect(cq, IBV_WC_SUCCESS, 3);
	mw->rkey = bind_wr.bind_mw.rkey;
	post_receive(b, 4, far_sge(100));
	wr.opcode = IBV_WR_SEND_WITH_INV;
	wr.invalidate_rkey = mw->rkey;
	wr.send_flags = 0;
	post(a, &wr);
	struct ibv_wc wc = expect(cq, IBV_WC_SUCCESS, 4);
	CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == mw->rkey);
	bind_wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	post(b, &bind_wr);
	expect(cq, IBV_WC_SUCCESS, 3);
	struct ibv_send_wr invalidate = {.wr_id = 5,
					 .opcode = IBV_WR_LOCAL_INV,
					 .send_flags = IBV_SEND_SIGNALED,
					 .invalidate_rkey = bind_wr.bind_mw.rkey};
	post(b, &invalidate);
	CHECK(expect(cq, IBV_WC_SUCCESS, 5).opcode == IBV_WC_LOCAL_INV);
	OK(ibv_dealloc_mw(mw));
	NULL_WITH(ibv_alloc_mw(pd, 3), EINVAL);
	OK(ibv_destroy_qp(a));
	OK(ibv_destroy_qp(b));
}

/* Datagrams, address handles, and multicast. */
static void datagrams(void)
{
	struct ibv_qp *qp = make_qp(IBV_QPT_UD);
	connect_to(qp, 0);
	struct ibv_ah_attr attr = address_of(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(ah && ah->pd == pd);
	attr.is_global = 0;
	NULL_WITH(ibv_create_ah(pd, &attr), EINVAL);
	strcpy(near, "datagram");
	struct ibv_sge sge = near_sge(64);
	struct ibv_send_wr wr = {
		.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_IMM, .imm_data = htonl(5)};
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	post_receive(qp, 2, far_sge(200));
	post(qp, &wr);
	struct ibv_wc wc = expect(cq, IBV_WC_SUCCESS, 2);
	CHECK(wc.byte_len == 104 && wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM) && wc.src_qp == qp->qp_num);
	CHECK(!strcmp(far + 40, "datagram"));

	/* The way back. */
	struct ibv_ah_attr back;
	CHECK(ibv_init_ah_from_wc(context, 1, &wc, (struct ibv_grh *)far, &back) == 0);
	struct ibv_ah_attr own = address_of(context);
	CHECK(back.is_global && !memcmp(&back.grh.dgid, &own.grh.dgid, 16) && back.grh.sgid_index == 0);
	struct ibv_ah *returning = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)far, 1);
	CHECK(returning);
	OK(ibv_destroy_ah(returning));

	/* A group, of which we are the only member. */
	union ibv_gid group = {.raw = {[10] = 0xff, [11] = 0xff, [12] = 239, [13] = 17, [14] = 2, [15] = 3}};
	OK(ibv_attach_mcast(qp, &group, 0));
	FAILS(ibv_destroy_qp(qp), EBUSY);
	attr = address_of(context);
	attr.grh.dgid = group;
	attr.grh.hop_limit = 1;
	struct ibv_ah *group_ah = ibv_create_ah(pd, &attr);
	CHECK(group_ah);
	post_receive(qp, 3, far_sge(200));
	wr.wr.ud.ah = group_ah;
	wr.wr.ud.remote_qpn = 0xffffff;
	post(qp, &wr);
	CHECK(expect(cq, IBV_WC_SUCCESS, 3).src_qp == qp->qp_num);
	OK(ibv_destroy_ah(group_ah));
	OK(ibv_detach_mcast(qp, &group, 0));

	/* A group of a family that the device has no address of: as rxe takes it. It is perftest's own. */
	union ibv_gid other = {.raw = {0xff, 1, 0, 0, 0, 2, 201, 133}};
	OK(ibv_attach_mcast(qp, &other, 0));
	OK(ibv_detach_mcast(qp, &other, 0));
	FAILS(ibv_detach_mcast(qp, &group, 0), EINVAL);

	wr.wr.ud.ah = NULL;
	struct ibv_send_wr *bad;
	FAILS(ibv_post_send(qp, &wr, &bad), EINVAL);
	OK(ibv_destroy_ah(ah));
	OK(ibv_destroy_qp(qp));
}

/* Completion channels, asynchronous events, resizing. */
static void events(void)
{
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	CHECK(channel);
	int mark;
	struct ibv_cq *own = ibv_create_cq(context, 8, &mark, channel, 0);
	CHECK(own && own->cqe >= 8 && own->channel == channel);
	FAILS(ibv_destroy_comp_channel(channel), EBUSY);
	NULL_WITH(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_cq(context, 8, NULL, NULL, context->num_comp_vectors), EINVAL);
	NULL_WITH(ibv_create_cq(context, 8, NULL, NULL, -1), EINVAL);
	struct ibv_cq *before = cq;
	cq = own;
	struct ibv_qp *qp = make_qp(IBV_QPT_RC);
	connect_to(qp, qp->qp_num);
	OK(ibv_req_notify_cq(own, 1));
	post_receive(qp, 1, far_sge(64));
	struct ibv_sge sge = near_sge(8);
	struct ibv_send_wr wr = {
		.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SOLICITED};
	post(qp, &wr);
	struct pollfd poll_fd = {.fd = channel->fd, .events = POLLIN};
	CHECK(poll(&poll_fd, 1, 20000) == 1);
	struct ibv_cq *which;
	void *cq_context;
	OK(ibv_get_cq_event(channel, &which, &cq_context));
	CHECK(which == own && cq_context == &mark);
	expect(own, IBV_WC_SUCCESS, 1);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	CHECK(ibv_get_cq_event(channel, &which, &cq_context) == -1 && errno == EAGAIN);
	ibv_ack_cq_events(own, 1);
	OK(ibv_resize_cq(own, 64));
	CHECK(own->cqe >= 64);
	struct ibv_modify_cq_attr moderation = {.attr_mask = IBV_CQ_ATTR_MODERATE};
	FAILS(ibv_modify_cq(own, &moderation), EOPNOTSUPP);

	/* The QP has told of its first message. */
	CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
	struct ibv_async_event event;
	CHECK(ibv_get_async_event(context, &event) == -1 && errno == EAGAIN);
	FAILS(ibv_destroy_cq(own), EBUSY);
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_cq(own));
	OK(ibv_destroy_comp_channel(channel));
	cq = before;
}

/* Shared receive queues, with their event. */
static void shared_receives(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = 16, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	CHECK(srq && init.attr.max_wr >= 16);
	struct ibv_srq_attr attr = {.srq_limit = 2};
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT));
	OK(ibv_query_srq(srq, &attr));
	CHECK(attr.srq_limit == 2 && attr.max_wr >= 16 && attr.max_sge >= 1);
	uint32_t number;
	CHECK(ibv_get_srq_num(srq, &number) != 0);
	struct ibv_qp_init_attr qp_init = {.send_cq = cq,
					   .recv_cq = cq,
					   .srq = srq,
					   .qp_type = IBV_QPT_RC,
					   .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &qp_init);
	CHECK(qp && qp->srq == srq);
	FAILS(ibv_destroy_srq(srq), EBUSY);
	connect_to(qp, qp->qp_num);
	for (int i = 0; i < 2; i++) {
		struct ibv_sge sge = far_sge(64);
		struct ibv_recv_wr wr = {.wr_id = 10 + i, .sg_list = &sge, .num_sge = 1}, *bad;
		OK(ibv_post_srq_recv(srq, &wr, &bad));
	}
	struct ibv_sge sge = near_sge(8);
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	post(qp, &wr);
	expect(cq, IBV_WC_SUCCESS, 10);
	struct ibv_async_event event;
	struct pollfd poll_fd = {.fd = context->async_fd, .events = POLLIN};
	CHECK(poll(&poll_fd, 1, 20000) == 1);
	OK(ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
	ibv_ack_async_event(&event);
	attr.max_wr = 64;
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));

	/* A QP with a shared queue says when it will take no more from it. */
	struct ibv_qp_attr to_error = {.qp_state = IBV_QPS_ERR};
	OK(ibv_modify_qp(qp, &to_error, IBV_QP_STATE));
	CHECK(poll(&poll_fd, 1, 20000) == 1);
	OK(ibv_get_async_event(context, &event));
	CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == qp);
	ibv_ack_async_event(&event);
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_srq(srq));
}

/* Where a list of pieces may be, so may inline data that takes its place. */
static void inline_unasked(void)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 3, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp && init.cap.max_inline_data >= 3 * sizeof(struct ibv_sge));
	OK(ibv_destroy_qp(qp));
}

/* Extended connections. */
static void xrc(void)
{
	struct ibv_xrcd_init_attr xrcd_init = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	struct ibv_xrcd *xrcd = ibv_open_xrcd(context, &xrcd_init);
	CHECK(xrcd);
	struct ibv_srq_init_attr_ex srq_init = {
		.attr = {.max_wr = 8, .max_sge = 1},
		.comp_mask =
			IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_PD,
		.srq_type = IBV_SRQT_XRC,
		.xrcd = xrcd,
		.cq = cq,
		.pd = pd,
	};
	struct ibv_srq *srq = ibv_create_srq_ex(context, &srq_init);
	uint32_t number;
	CHECK(srq);
	OK(ibv_get_srq_num(srq, &number));
	struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV,
					   .pd = pd,
					   .xrcd = xrcd,
					   .send_cq = cq,
					   .recv_cq = cq,
					   .srq = srq,
					   .comp_mask = IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_PD};
	struct ibv_qp *target = ibv_create_qp_ex(context, &init);
	CHECK(target);
	/* It uses none of them, but a program finds there what it gave. */
	CHECK(target->pd == pd && target->send_cq == cq && target->recv_cq == cq && target->srq == srq);
	init = (struct ibv_qp_init_attr_ex){.qp_type = IBV_QPT_XRC_SEND,
					    .comp_mask = IBV_QP_INIT_ATTR_PD,
					    .pd = pd,
					    .send_cq = cq,
					    .cap = {.max_send_wr = 4, .max_send_sge = 1}};
	struct ibv_qp *initiator = ibv_create_qp_ex(context, &init);
	CHECK(initiator);
	connect_to(target, initiator->qp_num);
	connect_to(initiator, target->qp_num);
	struct ibv_qp_open_attr open_attr = {
		.comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
		.qp_num = target->qp_num,
		.xrcd = xrcd,
		.qp_type = IBV_QPT_XRC_RECV,
	};
	struct ibv_qp *again = ibv_open_qp(context, &open_attr);
	CHECK(again && again->qp_num == target->qp_num && again->state == IBV_QPS_RTS);
	struct ibv_sge receive = far_sge(64), sge = near_sge(8);
	struct ibv_recv_wr recv_wr = {.wr_id = 1, .sg_list = &receive, .num_sge = 1}, *bad;
	OK(ibv_post_srq_recv(srq, &recv_wr, &bad));
	struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
	wr.qp_type.xrc.remote_srqn = number;
	post(initiator, &wr);
	expect(cq, IBV_WC_SUCCESS, 1);
	FAILS(ibv_close_xrcd(xrcd), EBUSY);
	OK(ibv_destroy_qp(again));
	OK(ibv_destroy_qp(target));
	OK(ibv_destroy_qp(initiator));
	OK(ibv_destroy_srq(srq));
	OK(ibv_close_xrcd(xrcd));
}

/* Work requests that are built call by call, and completions that are read the same way. */
static void extended(void)
{
	uint64_t ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_SEND |
		       IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
		       IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW |
		       IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_ATOMIC_WRITE;
	struct ibv_cq_init_attr_ex cq_init = {
		.cqe = 64,
		.wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
			    IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
	};
	struct ibv_cq_ex *ex = ibv_create_cq_ex(context, &cq_init);
	CHECK(ex);
	struct ibv_cq *before = cq;
	cq = ibv_cq_ex_to_cq(ex);
	struct ibv_qp *plain = make_qp(IBV_QPT_RC);
	CHECK(ibv_qp_to_qp_ex(plain) == NULL);
	OK(ibv_destroy_qp(plain));
	struct ibv_qp *qp = make_qp_ex(IBV_QPT_RC, ops);
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	CHECK(qpx);
	connect_to(qp, qp->qp_num);

	/* One batch of everything. */
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_mw_bind_info bind = {far_mr, (uintptr_t)far, 64, IBV_ACCESS_REMOTE_WRITE};
	struct ibv_data_buf buffers[2] = {{"in", 2}, {"line", 5}};
	struct ibv_sge sges[2] = {near_sge(4), near_sge(4)};
	uint32_t window_key = ibv_inc_rkey(mw->rkey);
	uint64_t atomic = 0x1122334455667788;
	for (int i = 0; i < 3; i++)
		post_receive(qp, 100 + i, far_sge(64));
	ibv_wr_start(qpx);
	qpx->wr_flags = IBV_SEND_SIGNALED;
	qpx->wr_id = 1;
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data_list(qpx, 2, buffers);
	qpx->wr_id = 2;
	ibv_wr_send_imm(qpx, htonl(7));
	ibv_wr_set_sge_list(qpx, 2, sges);
	qpx->wr_id = 3;
	ibv_wr_rdma_write(qpx, far_mr->rkey, (uintptr_t)far + 64);
	ibv_wr_set_inline_data(qpx, "abcd", 4);
	qpx->wr_id = 4;
	ibv_wr_rdma_write_imm(qpx, far_mr->rkey, (uintptr_t)far + 128, htonl(8));
	ibv_wr_set_sge(qpx, near_mr->lkey, (uintptr_t)near, 4);
	qpx->wr_id = 5;
	ibv_wr_rdma_read(qpx, far_mr->rkey, (uintptr_t)far + 64);
	ibv_wr_set_sge(qpx, near_mr->lkey, (uintptr_t)near + 512, 4);
	qpx->wr_id = 6;
	ibv_wr_atomic_fetch_add(qpx, far_mr->rkey, (uintptr_t)far + 256, 3);
	ibv_wr_set_sge(qpx, near_mr->lkey, (uintptr_t)near + 1024, 8);
	qpx->wr_id = 7;
	ibv_wr_atomic_cmp_swp(qpx, far_mr->rkey, (uintptr_t)far + 256, 3, 9);
	ibv_wr_set_sge(qpx, near_mr->lkey, (uintptr_t)near + 1032, 8);
	qpx->wr_id = 8;
	ibv_wr_atomic_write(qpx, far_mr->rkey, (uintptr_t)far + 264, &atomic);
	qpx->wr_id = 9;
	ibv_wr_bind_mw(qpx, mw, window_key, &bind);
	qpx->wr_id = 10;
	ibv_wr_local_inv(qpx, window_key);
	memset(far, 0, SIZE);
	OK(ibv_wr_complete(qpx));

	struct ibv_poll_cq_attr poll_attr = {0};
	double limit = seconds() + 60;
	int sent = 0, received = 0;
	uint64_t last = 0;
	while (sent < 10 || received < 3) {
		CHECK(seconds() < limit);
		int status = ibv_start_poll(ex, &poll_attr);
		if (status == ENOENT)
			continue;
		OK(status);
		do {
			CHECK(ex->status == IBV_WC_SUCCESS && ibv_wc_read_qp_num(ex) == qp->qp_num);
			CHECK(ibv_wc_read_vendor_err(ex) == 0 && ibv_wc_read_slid(ex) == 0);
			CHECK(ibv_wc_read_sl(ex) == 0 && ibv_wc_read_dlid_path_bits(ex) == 0);
			CHECK(ibv_wc_read_completion_ts(ex) >= last);
			last = ibv_wc_read_completion_ts(ex);
			CHECK(ibv_wc_read_completion_wallclock_ns(ex) / 1000000000 + 60 > (uint64_t)time(NULL));
			if (ibv_wc_read_opcode(ex) < IBV_WC_RECV) {
				CHECK(ex->wr_id == (uint64_t)++sent);
				continue;
			}
			CHECK(ex->wr_id == 100 + (uint64_t)received);
			unsigned length[3] = {7, 8, 4}, imm[3] = {0, 7, 8};
			CHECK(ibv_wc_read_byte_len(ex) == length[received]);
			CHECK(!(ibv_wc_read_wc_flags(ex) & IBV_WC_WITH_IMM) == !imm[received]);
			CHECK(!imm[received] || ntohl(ibv_wc_read_imm_data(ex)) == imm[received]);
			CHECK(ibv_wc_read_src_qp(ex) == 0);
			received++;
		} while ((status = ibv_next_poll(ex)) == 0);
		CHECK(status == ENOENT);
		ibv_end_poll(ex);
	}
	CHECK(!memcmp(far + 64, "abcd", 4) && !memcmp(near + 512, "abcd", 4));
	CHECK(*(uint64_t *)(near + 1024) == 0 && *(uint64_t *)(near + 1032) == 3);
	CHECK(*(uint64_t *)(far + 256) == 9 && *(uint64_t *)(far + 264) == atomic);

	/* Nothing of a batch that was aborted, or has a mistake in it. */
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_abort(qpx);
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data(qpx, far, 4096);
	FAILS(ibv_wr_complete(qpx), EINVAL);
	ibv_wr_start(qpx);
	ibv_wr_send(qpx);
	ibv_wr_set_inline_data_list(qpx, 1, NULL);
	FAILS(ibv_wr_complete(qpx), EINVAL);
	CHECK(ibv_start_poll(ex, &poll_attr) == ENOENT);
	OK(ibv_dealloc_mw(mw));
	OK(ibv_destroy_qp(qp));

	struct ibv_qp *ud = make_qp_ex(IBV_QPT_UD, IBV_QP_EX_WITH_SEND);
	struct ibv_qp_ex *udx = ibv_qp_to_qp_ex(ud);
	connect_to(ud, 0);
	struct ibv_ah_attr attr = address_of(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	post_receive(ud, 1, far_sge(200));
	ibv_wr_start(udx);
	udx->wr_id = 2;
	udx->wr_flags = 0;
	ibv_wr_send(udx);
	ibv_wr_set_ud_addr(udx, ah, ud->qp_num, QKEY);
	ibv_wr_set_sge(udx, near_mr->lkey, (uintptr_t)near, 16);
	OK(ibv_wr_complete(udx));
	completion_of(cq);
	completion_of(cq);
	OK(ibv_destroy_ah(ah));
	OK(ibv_destroy_qp(ud));
	OK(ibv_destroy_cq(cq));
	cq = before;

	cq_init.wc_flags = IBV_WC_EX_WITH_CVLAN;
	NULL_WITH(ibv_create_cq_ex(context, &cq_init), EOPNOTSUPP);
}

/* Domains of threads, and what this device has not. */
static void the_rest(void)
{
	struct ibv_td_init_attr td_init = {0};
	struct ibv_td *td = ibv_alloc_td(context, &td_init);
	CHECK(td);
	struct ibv_parent_domain_init_attr init = {.pd = pd, .td = td};
	struct ibv_pd *parent = ibv_alloc_parent_domain(context, &init);
	CHECK(parent);
	FAILS(ibv_dealloc_td(td), EBUSY);
	OK(ibv_dealloc_pd(parent));
	OK(ibv_dealloc_td(td));
	FAILS(ibv_dealloc_pd(pd), EBUSY);

	struct ibv_wq_init_attr wq = {.pd = pd, .cq = cq, .max_wr = 1, .max_sge = 1};
	NULL_WITH(ibv_create_wq(context, &wq), EOPNOTSUPP);
	struct ibv_rwq_ind_table_init_attr table = {0};
	NULL_WITH(ibv_create_rwq_ind_table(context, &table), EOPNOTSUPP);
	struct ibv_counters_init_attr counters = {0};
	NULL_WITH(ibv_create_counters(context, &counters), EOPNOTSUPP);
	struct ibv_qp_init_attr raw = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RAW_PACKET};
	NULL_WITH(ibv_create_qp(pd, &raw), EOPNOTSUPP);
	raw.qp_type = 99;
	NULL_WITH(ibv_create_qp(pd, &raw), EINVAL);

	/* Null is refused, not followed. */
	NULL_WITH(ibv_open_device(NULL), EINVAL);
	NULL_WITH(ibv_alloc_pd(NULL), EINVAL);
	FAILS(ibv_dealloc_pd(NULL), EINVAL);
	FAILS(ibv_dereg_mr(NULL), EINVAL);
	FAILS(ibv_destroy_cq(NULL), EINVAL);
	FAILS(ibv_destroy_qp(NULL), EINVAL);
	FAILS(ibv_destroy_srq(NULL), EINVAL);
	FAILS(ibv_destroy_ah(NULL), EINVAL);
	FAILS(ibv_destroy_comp_channel(NULL), EINVAL);
	FAILS(ibv_close_device(NULL), EINVAL);
	NULL_WITH(ibv_create_cq(NULL, 1, NULL, NULL, 0), EINVAL);
	NULL_WITH(ibv_create_qp(pd, NULL), EINVAL);
	NULL_WITH(ibv_create_ah(pd, NULL), EINVAL);
	FAILS(ibv_query_device(context, NULL), EINVAL);
}

int main(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 256, NULL, NULL, 0);
	near = aligned_alloc(4096, SIZE);
	far = aligned_alloc(4096, SIZE);
	CHECK(pd && cq && near && far);
	memset(near, 0, SIZE);
	memset(far, 0, SIZE);
	near_mr = ibv_reg_mr(pd, near, SIZE, ALL_ACCESS);
	far_mr = ibv_reg_mr(pd, far, SIZE, ALL_ACCESS);
	CHECK(near_mr && far_mr);

	queries();
	sends(IBV_QPT_RC);
	sends(IBV_QPT_UC);
	reliable();
	memory();
	windows();
	datagrams();
	events();
	shared_receives();
	inline_unasked();
	xrc();
	extended();
	the_rest();

	struct ibv_wc wc;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	OK(ibv_dereg_mr(near_mr));
	OK(ibv_dereg_mr(far_mr));
	free(near);
	free(far);
	OK(ibv_destroy_cq(cq));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	puts("every call is all right");
	return 0;
}
