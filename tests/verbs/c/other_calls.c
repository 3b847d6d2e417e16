/*
 * What every_call.c leaves out: calls that verbs.h of Debian 12 does not declare, the newer ones of rdma-core 64 among
 * them, and those that only compute. Meant for Valgrind as well.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <sys/mman.h>

#include "check.h"

enum { SIZE = 8192 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static char *memory;

static void *symbol(const char *name, const char *version)
{
	void *found = dlvsym(RTLD_DEFAULT, name, version);
	if (!found)
		fprintf(stderr, "%s@%s is missing\n", name, version);
	CHECK(found);
	return found;
}

static void names_and_rates(void)
{
	CHECK(!strcmp(ibv_node_type_str(IBV_NODE_CA), "InfiniBand channel adapter"));
	CHECK(!strcmp(ibv_port_state_str(IBV_PORT_ACTIVE), "active"));
	CHECK(!strcmp(ibv_event_type_str(IBV_EVENT_QP_FATAL), "local work queue catastrophic error"));
	CHECK(ibv_rate_to_mult(IBV_RATE_10_GBPS) == 4 && mult_to_ibv_rate(4) == IBV_RATE_10_GBPS);
	CHECK(ibv_rate_to_mbps(IBV_RATE_100_GBPS) == 103125 && mbps_to_ibv_rate(103125) == IBV_RATE_100_GBPS);
}

static void files(void)
{
	extern const char *ibv_get_sysfs_path(void);
	extern int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
	char text[32];
	CHECK(ibv_get_sysfs_path());
	CHECK(ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof text) == 5 && !strcmp(text, "Linux"));
	CHECK(ibv_read_sysfs_file("/proc/sys/kernel", "nothing", text, sizeof text) == -1);
}

static void forking(void)
{
	int (*dontfork)(void *, size_t) = symbol("ibv_dontfork_range", "IBVERBS_1.1");
	int (*dofork)(void *, size_t) = symbol("ibv_dofork_range", "IBVERBS_1.1");
	OK(dontfork(memory, SIZE));
	OK(dofork(memory, SIZE));
}

static void newer(void)
{
	int access = ALL_ACCESS;
	struct ibv_mr *mr = ibv_reg_mr_iova2(pd, memory, SIZE, (uintptr_t)memory, access);
	CHECK(mr);
	OK(ibv_dereg_mr(mr));

	void *(*alloc_buf)(struct ibv_pd *, size_t, void **) = symbol("ibv_alloc_buf", "IBVERBS_1.17");
	void (*free_buf)(void *) = symbol("ibv_free_buf", "IBVERBS_1.17");
	struct ibv_mr *(*reg_buf_mr)(struct ibv_pd *, void *, void *, size_t, int) =
		symbol("ibv_reg_buf_mr", "IBVERBS_1.17");
	void *buffer;
	char *place = alloc_buf(pd, SIZE, &buffer);
	CHECK(place);
	memset(place, 1, SIZE);
	mr = reg_buf_mr(pd, buffer, place + 4096, 4096, access);
	CHECK(mr && mr->addr == place + 4096);
	OK(ibv_dereg_mr(mr));
	NULL_WITH(reg_buf_mr(pd, buffer, place + 4096, SIZE, access), EINVAL);

	struct {
		size_t length;
		int access;
		uint64_t mask, iova;
		void *addr;
		int fd;
		uint64_t fd_offset;
		void *dmah, *buf;
	} init = {.length = SIZE, .access = access, .mask = 1 << 1, .addr = memory};
	struct ibv_mr *(*reg_mr_ex)(struct ibv_pd *, void *) = symbol("ibv_reg_mr_ex", "IBVERBS_1.15");
	mr = reg_mr_ex(pd, &init);
	CHECK(mr && mr->addr == memory && mr->length == SIZE);
	OK(ibv_dereg_mr(mr));
	init.mask = 1 << 1 | 1 << 5;
	init.addr = place;
	init.buf = buffer;
	mr = reg_mr_ex(pd, &init);
	CHECK(mr);
	OK(ibv_dereg_mr(mr));
	int fd = memfd_create("buffer", MFD_CLOEXEC);
	CHECK(fd >= 0 && ftruncate(fd, SIZE) == 0);
	init.mask = 1 | 1 << 2 | 1 << 3;
	init.fd = fd;
	mr = reg_mr_ex(pd, &init);
	CHECK(mr);
	OK(ibv_dereg_mr(mr));
	close(fd);
	init.mask = 1 << 1 | 1 << 4;
	NULL_WITH(reg_mr_ex(pd, &init), EOPNOTSUPP);
	init.mask = 0;
	NULL_WITH(reg_mr_ex(pd, &init), EINVAL);
	free_buf(buffer);

	int (*query_port_speed)(struct ibv_context *, uint32_t, uint64_t *) =
		symbol("ibv_query_port_speed", "IBVERBS_1.16");
	uint64_t speed = 0;
	OK(query_port_speed(context, 1, &speed));
	CHECK(speed > 0);
	FAILS(query_port_speed(context, 2, &speed), EINVAL);
	void *(*alloc_dmah)(struct ibv_context *, void *) = symbol("ibv_alloc_dmah", "IBVERBS_1.15");
	int (*dealloc_dmah)(void *) = symbol("ibv_dealloc_dmah", "IBVERBS_1.15");
	int (*dm_export)(void *) = symbol("ibv_dm_export_dmabuf_fd", "IBVERBS_1.16");
	uint64_t nothing[4] = {0};
	NULL_WITH(alloc_dmah(context, nothing), EOPNOTSUPP);
	FAILS(dealloc_dmah(nothing), EOPNOTSUPP);
	CHECK(dm_export(nothing) == -1 && errno == EOPNOTSUPP);
}

/* FLUSH, which stands behind the end of Debian 12's ibv_qp_ex, and a SEND that invalidates. */
static void newer_requests(void)
{
	enum { WITH_FLUSH = 1 << 11, ACCESS_FLUSH_GLOBAL = 0x100, WC_FLUSH = 8 };
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	struct ibv_mr *mr = ibv_reg_mr_iova2(pd, memory, SIZE, (uintptr_t)memory, ALL_ACCESS | ACCESS_FLUSH_GLOBAL);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = WITH_FLUSH | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW,
	};
	struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	CHECK(cq && mr && qp && mw);
	connect_to(qp, qp->qp_num);
	struct ibv_qp_attr attr = {.qp_access_flags = ALL_ACCESS | ACCESS_FLUSH_GLOBAL};
	OK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS));
	struct ibv_qp_ex *qpx = ibv_qp_to_qp_ex(qp);
	void (*flush)(struct ibv_qp_ex *, uint32_t, uint64_t, size_t, uint8_t, uint8_t);
	memcpy(&flush, (char *)qpx + sizeof *qpx, sizeof flush);
	CHECK(flush);

	ibv_wr_start(qpx);
	qpx->wr_id = 1;
	flush(qpx, mr->rkey, (uintptr_t)memory, 4096, 1, 0);
	OK(ibv_wr_complete(qpx));
	CHECK((int)expect(cq, IBV_WC_SUCCESS, 1).opcode == WC_FLUSH);
	ibv_wr_start(qpx);
	flush(qpx, mr->rkey, (uintptr_t)memory, 4096, 1, 7);
	FAILS(ibv_wr_complete(qpx), EINVAL);

	struct ibv_sge sge = {(uintptr_t)memory, 64, mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 4, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(qp, &receive, &bad));
	struct ibv_mw_bind_info bind = {mr, (uintptr_t)memory, 64, IBV_ACCESS_REMOTE_WRITE};
	uint32_t key = ibv_inc_rkey(mw->rkey);
	ibv_wr_start(qpx);
	qpx->wr_id = 2;
	ibv_wr_bind_mw(qpx, mw, key, &bind);
	qpx->wr_id = 3;
	ibv_wr_send_inv(qpx, key);
	ibv_wr_set_sge(qpx, mr->lkey, (uintptr_t)memory + 4096, 8);
	OK(ibv_wr_complete(qpx));
	int seen = 0;
	for (int i = 0; i < 3; i++) {
		struct ibv_wc wc = completion_of(cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == 4)
			CHECK(wc.wc_flags & IBV_WC_WITH_INV && wc.invalidated_rkey == key);
		seen |= 1 << wc.wr_id;
	}
	CHECK(seen == (1 << 2 | 1 << 3 | 1 << 4));
	OK(ibv_dealloc_mw(mw));
	OK(ibv_destroy_qp(qp));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
}

int main(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	memory = aligned_alloc(4096, SIZE);
	CHECK(pd && memory);
	memset(memory, 0, SIZE);
	names_and_rates();
	files();
	forking();
	newer();
	newer_requests();
	free(memory);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	puts("every other call is all right");
	return 0;
}
