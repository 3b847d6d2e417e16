/*
 * Many queue pairs in one process, all in use at once.
 *
 *     many QPS
 */
#include "check.h"

enum { SIZE = 2048 };

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	int count = atoi(argv[1]);
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 2 * count, NULL, NULL, 0);
	char *memory = aligned_alloc(4096, (size_t)count * SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, (size_t)count * SIZE, ALL_ACCESS);
	struct ibv_qp **qps = calloc(count, sizeof *qps);
	CHECK(pd && cq && mr && qps);
	for (int i = 0; i < count; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = 1,
			.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
		qps[i] = ibv_create_qp(pd, &init);
		CHECK(qps[i]);
	}
	/* Each is connected with the one across. */
	for (int i = 0; i < count; i++)
		connect_to(qps[i], qps[i ^ 1]->qp_num);
	for (int i = 0; i < count; i++) {
		memset(memory + (size_t)i * SIZE, i, SIZE / 2);
		struct ibv_sge sge = {(uintptr_t)memory + (size_t)i * SIZE + SIZE / 2, SIZE / 2, mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
		OK(ibv_post_recv(qps[i], &wr, &bad));
	}
	for (int i = 0; i < count; i++) {
		struct ibv_sge sge = {(uintptr_t)memory + (size_t)i * SIZE, SIZE / 2, mr->lkey};
		struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
		OK(ibv_post_send(qps[i], &wr, &bad));
	}
	int sent = 0, received = 0;
	while (sent + received < 2 * count) {
		struct ibv_wc wc = completion_of(cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_SEND) {
			sent++;
			continue;
		}
		received++;
		CHECK(wc.qp_num == qps[wc.wr_id]->qp_num);
		char *arrived = memory + wc.wr_id * SIZE + SIZE / 2;
		for (int i = 0; i < SIZE / 2; i++)
			CHECK(arrived[i] == (char)(wc.wr_id ^ 1));
	}
	for (int i = 0; i < count; i++)
		OK(ibv_destroy_qp(qps[i]));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	free(memory);
	free(qps);
	printf("%d queue pairs\n", count);
	return 0;
}
