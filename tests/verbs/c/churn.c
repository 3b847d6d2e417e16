/*
 * Makes, uses and destroys everything again and again; memory and descriptors must not grow.
 *
 *     churn ROUNDS
 */
#include "check.h"

static long resident_pages(void)
{
	long size, resident;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%ld %ld", &size, &resident) == 2);
	fclose(file);
	return resident;
}

static char memory[8192];

static void one_round(struct ibv_context *context)
{
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, channel, 0);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 64, .max_sge = 4}};
	struct ibv_srq *srq = ibv_create_srq(pd, &srq_init);
	struct ibv_qp_init_attr init = {.send_cq = cq,
					.recv_cq = cq,
					.srq = srq,
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = 1,
					.cap = {.max_send_wr = 64, .max_send_sge = 4}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	struct ibv_ah_attr attr = address_of(context);
	struct ibv_ah *ah = ibv_create_ah(pd, &attr);
	CHECK(pd && channel && cq && mr && mw && srq && qp && ah);
	connect_to(qp, qp->qp_num);
	struct ibv_sge sge = {(uintptr_t)memory, 4096, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	OK(ibv_post_send(qp, &wr, &bad));
	expect(cq, IBV_WC_SUCCESS, 1);
	OK(ibv_destroy_ah(ah));
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_srq(srq));
	OK(ibv_dealloc_mw(mw));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_destroy_comp_channel(channel));
	OK(ibv_dealloc_pd(pd));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	int rounds = atoi(argv[1]);
	long pages = 0;
	int open_before = 0;
	for (int i = 0; i < rounds; i++) {
		struct ibv_context *context = open_first();
		one_round(context);
		OK(ibv_close_device(context));
		/* Caches have filled by then. */
		if (i == rounds / 2) {
			pages = resident_pages();
			open_before = descriptors();
		}
	}
	long grown = resident_pages() - pages;
	if (grown > 64 || descriptors() > open_before) {
		printf("%ld pages and %d descriptors more\n", grown, descriptors() - open_before);
		return 1;
	}
	puts("no growth");
	return 0;
}
