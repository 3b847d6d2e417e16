/* What the planted programs share: two connected queue pairs of one process, `here` and `there`. A line with a comment like
 * "posted" is one that the report must name, under that word. With CORRECT the program has no mistake. */
#ifndef PAIR_H
#define PAIR_H

#include "../../verbs/c/check.h"

#define SIZE 4096

#ifdef CORRECT
#define RIGHT(right, wrong) (right)
#else
#define RIGHT(right, wrong) (wrong)
#endif

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	char *memory;
};

static struct end here, there;

static inline struct ibv_qp_init_attr attributes_of(struct ibv_cq *cq, enum ibv_qp_type type)
{
	return (struct ibv_qp_init_attr){
		.send_cq = cq,
		.recv_cq = cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = type,
	};
}

static inline void make(struct end *end, struct ibv_context *context, struct ibv_pd *pd, enum ibv_qp_type type)
{
	end->context = context;
	end->pd = pd;
	end->cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(end->cq);
	struct ibv_qp_init_attr init = attributes_of(end->cq, type);
	end->qp = ibv_create_qp(pd, &init);
	CHECK(end->qp);
	end->memory = aligned_alloc(4096, SIZE);
	CHECK(end->memory);
	memset(end->memory, 0, SIZE);
}

static inline void enroll(struct end *end, int access)
{
	end->mr = ibv_reg_mr(end->pd, end->memory, SIZE, access);
	CHECK(end->mr);
}

/* Two ends, without regions. */
static inline void make_both(enum ibv_qp_type type)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	make(&here, context, pd, type);
	make(&there, context, pd, type);
}

static inline void connect_both(void)
{
	connect_to(here.qp, there.qp->qp_num);
	connect_to(there.qp, here.qp->qp_num);
}

/* All of it, with regions that allow everything. */
static inline void make_pair(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_both();
}

static inline struct ibv_sge all_of(struct end *end, uint32_t length)
{
	return (struct ibv_sge){(uintptr_t)end->memory, length, end->mr->lkey};
}

/* A signaled request of `here` that names the memory of `there`. */
static inline struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge)
{
	struct ibv_send_wr wr = {
		.wr_id = 7, .sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED};
	wr.wr.rdma.remote_addr = (uintptr_t)there.memory;
	wr.wr.rdma.rkey = there.mr ? there.mr->rkey : 0;
	return wr;
}

/* The completion of that, which must be the one that hardware gives. */
static inline void finish(struct ibv_cq *cq, enum ibv_wc_status wrong)
{
	struct ibv_wc wc = completion_of(cq);
#ifdef CORRECT
	wrong = IBV_WC_SUCCESS;
#endif
	if (wc.status != wrong) {
		fprintf(stderr, "%s instead of %s\n", ibv_wc_status_str(wc.status), ibv_wc_status_str(wrong));
		exit(1);
	}
}

static inline void unmake(struct end *end)
{
	OK(ibv_destroy_qp(end->qp));
	OK(ibv_destroy_cq(end->cq));
	if (end->mr)
		OK(ibv_dereg_mr(end->mr));
	free(end->memory);
}

static inline void unmake_pair(void)
{
	unmake(&here);
	unmake(&there);
	OK(ibv_dealloc_pd(here.pd));
	OK(ibv_close_device(here.context));
}

/* Like connect_both(), with few and short retries of `here`. */
static inline void connect_briefly(uint32_t psn, uint8_t reads)
{
	connect_to(there.qp, here.qp->qp_num);
	OK(to_init(here.qp));
	OK(to_rtr(here.qp, there.qp->qp_num));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTS,
				   .sq_psn = psn,
				   .timeout = 8,
				   .retry_cnt = 1,
				   .rnr_retry = 1,
				   .max_rd_atomic = reads};
	OK(ibv_modify_qp(here.qp, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC));
}

#endif
