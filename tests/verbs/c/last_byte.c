/* Polls the last byte of a WRITE and takes it for all of them, which nobody promises. With CORRECT it waits for immediate data. */
#include "check.h"

#define SIZE 16384
#define ROUNDS 40

static struct ibv_qp *new_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

int main(void)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *here_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	struct ibv_cq *there_cq = ibv_create_cq(context, 8, NULL, NULL, 0);
	CHECK(pd && here_cq && there_cq);
	struct ibv_qp *here = new_qp(pd, here_cq), *there = new_qp(pd, there_cq);
	char *source = aligned_alloc(4096, SIZE);
	volatile char *target = aligned_alloc(4096, SIZE);
	CHECK(source && target);
	memset((void *)target, 0, SIZE);
	struct ibv_mr *from = ibv_reg_mr(pd, source, SIZE, ALL_ACCESS);
	struct ibv_mr *to = ibv_reg_mr(pd, (void *)target, SIZE, ALL_ACCESS);
	CHECK(from && to);
	connect_to(here, there->qp_num);
	connect_to(there, here->qp_num);
	CHECK(ibv_query_qp_data_in_order(there, IBV_WR_RDMA_WRITE, 0) == 0);
	for (int round = 1; round <= ROUNDS; round++) {
		struct ibv_recv_wr receive = {.wr_id = 9}, *bad_receive;
		OK(ibv_post_recv(there, &receive, &bad_receive));
		memset(source, round, SIZE);
		struct ibv_sge sge = {(uintptr_t)source, SIZE, from->lkey};
		struct ibv_send_wr wr = {.wr_id = 7,
					 .sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
					 .send_flags = IBV_SEND_SIGNALED},
				   *bad;
		wr.wr.rdma.remote_addr = (uintptr_t)target;
		wr.wr.rdma.rkey = to->rkey;
		OK(ibv_post_send(here, &wr, &bad));
#ifdef CORRECT
		expect(there_cq, IBV_WC_SUCCESS, 9);
#else
		double limit = seconds() + 60;
		while (target[SIZE - 1] != round)
			CHECK(seconds() < limit);
#endif
		for (int at = 0; at < SIZE; at++) {
			if (target[at] != round) {
				printf("round %d: byte %d is not there, the last one is\n", round, at);
				return 3;
			}
		}
		expect(here_cq, IBV_WC_SUCCESS, 7);
#ifndef CORRECT
		expect(there_cq, IBV_WC_SUCCESS, 9);
#endif
	}
	puts("all bytes were there");
	return 0;
}
