/* Two queue pairs of one process are connected, and a request goes wrong in the way that the argument names. Prints the
 * status and vendor_err of its completion. */
#include "check.h"

#define SIZE 4096

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cqs[2];
static struct ibv_qp *qps[2];
static struct ibv_mr *mrs[2];
static _Alignas(4096) char buffers[2][SIZE];
static const char *mistake;

static int is(const char *name)
{
	return !strcmp(mistake, name);
}

static struct ibv_qp *make_qp(struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

static void receive(struct ibv_mr *mr, uint32_t length, uint32_t lkey)
{
	struct ibv_sge sge = {(uintptr_t)mr->addr, length, lkey};
	struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(qps[1], &wr, &bad));
}

/* A window over bytes 64 to 127 of the second buffer, bound through the second QP. */
static uint32_t bound_window(int type)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);
	CHECK(mw);
	if (is("unbound"))
		return mw->rkey;
	struct ibv_send_wr wr = {.wr_id = 3, .opcode = IBV_WR_BIND_MW}, *bad;
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info =
		(struct ibv_mw_bind_info){mrs[1], (uintptr_t)buffers[1] + 64, 64, IBV_ACCESS_REMOTE_WRITE};
	/* A window of type 2 belongs to the QP that binds it. */
	OK(ibv_post_send(is("window_of_another_qp") ? qps[0] : qps[1], &wr, &bad));
	expect(is("window_of_another_qp") ? cqs[0] : cqs[1], IBV_WC_SUCCESS, 3);
	return wr.bind_mw.rkey;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	mistake = argv[1];
	context = open_first();
	pd = ibv_alloc_pd(context);
	CHECK(pd);
	int access = is("no_right") ? IBV_ACCESS_LOCAL_WRITE : ALL_ACCESS;
	for (int i = 0; i < 2; i++) {
		cqs[i] = ibv_create_cq(context, 16, NULL, NULL, 0);
		CHECK(cqs[i]);
		qps[i] = make_qp(cqs[i]);
		mrs[i] = ibv_reg_mr(pd, buffers[i], SIZE, i ? access : IBV_ACCESS_LOCAL_WRITE);
		CHECK(mrs[i]);
	}
	connect_to(qps[0], qps[1]->qp_num);
	connect_to(qps[1], qps[0]->qp_num);

	struct ibv_sge sge = {(uintptr_t)buffers[0], 64, mrs[0]->lkey};
	struct ibv_send_wr wr = {.wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)buffers[1];
	wr.wr.rdma.rkey = mrs[1]->rkey;
	if (is("unknown_rkey"))
		wr.wr.rdma.rkey ^= 0x100;
	else if (is("swapped_rkey"))
		wr.wr.rdma.rkey = __builtin_bswap32(wr.wr.rdma.rkey);
	else if (is("deregistered"))
		OK(ibv_dereg_mr(mrs[1]));
	else if (is("swapped_address"))
		wr.wr.rdma.remote_addr = __builtin_bswap64(wr.wr.rdma.remote_addr);
	else if (is("cut_address"))
		wr.wr.rdma.remote_addr = (uint32_t)wr.wr.rdma.remote_addr;
	else if (is("past_the_end"))
		wr.wr.rdma.remote_addr += SIZE - 40;
	else if (is("before_the_start"))
		wr.wr.rdma.remote_addr -= 16;
	else if (is("another_domain"))
		wr.wr.rdma.rkey = ibv_reg_mr(ibv_alloc_pd(context), buffers[1], SIZE, ALL_ACCESS)->rkey;
	else if (is("unbound") || is("window_of_another_qp"))
		wr.wr.rdma.rkey = bound_window(IBV_MW_TYPE_2);
	else if (is("past_the_window")) {
		wr.wr.rdma.rkey = bound_window(IBV_MW_TYPE_2);
		wr.wr.rdma.remote_addr += 64 + 1;
	} else if (is("unknown_lkey"))
		sge.lkey ^= 0x100;
	else if (is("local_past_the_end"))
		sge.addr += SIZE - 10;
	else if (is("lkey_of_another_domain"))
		sge.lkey = ibv_reg_mr(ibv_alloc_pd(context), buffers[0], SIZE, ALL_ACCESS)->lkey;
	else if (is("read_into_constant_memory")) {
		sge.lkey = ibv_reg_mr(pd, buffers[0], SIZE, 0)->lkey;
		wr.opcode = IBV_WR_RDMA_READ;
	} else if (is("short_receive")) {
		wr.opcode = IBV_WR_SEND;
		receive(mrs[1], 24, mrs[1]->lkey);
	} else if (is("receive_with_wrong_lkey")) {
		wr.opcode = IBV_WR_SEND;
		receive(mrs[1], 64, mrs[1]->lkey ^ 0x100);
	} else if (is("misaligned")) {
		sge.length = 8;
		wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
		wr.wr.atomic.remote_addr = (uintptr_t)buffers[1] + 4;
		wr.wr.atomic.rkey = mrs[1]->rkey;
	} else if (is("qp_without_right")) {
		struct ibv_qp_attr attr = {.qp_access_flags = IBV_ACCESS_REMOTE_READ};
		OK(ibv_modify_qp(qps[1], &attr, IBV_QP_ACCESS_FLAGS));
	} else if (is("no_receive"))
		wr.opcode = IBV_WR_SEND;
	else
		CHECK(is("no_right"));

	OK(ibv_post_send(qps[0], &wr, &bad));
	if (is("no_receive")) {
		double limit = seconds() + 2;
		struct ibv_wc none;
		while (seconds() < limit)
			CHECK(ibv_poll_cq(cqs[0], 1, &none) == 0);
		receive(mrs[1], 64, mrs[1]->lkey);
	}
	struct ibv_wc wc = completion_of(cqs[0]);
	printf("%d %#x\n", wc.status, wc.vendor_err);
	return 0;
}
