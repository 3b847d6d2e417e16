/* no-receive: a shared receive queue has fewer receives than messages come. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(there.qp));
	struct ibv_srq_init_attr size = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(there.pd, &size); /* created */
	CHECK(srq);
	struct ibv_qp_init_attr init = attributes_of(there.cq, IBV_QPT_RC);
	init.srq = srq;
	there.qp = ibv_create_qp(there.pd, &init);
	CHECK(there.qp);
	connect_briefly(77, 1);
	for (int i = 0; i < RIGHT(2, 1); i++) {
		struct ibv_sge sge = {(uintptr_t)there.memory + 64 * i, 64, there.mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1}, *bad;
		OK(ibv_post_srq_recv(srq, &wr, &bad));
	}
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_RNR_RETRY_EXC_ERR);
	OK(ibv_destroy_qp(there.qp));
	OK(ibv_destroy_srq(srq));
	OK(ibv_destroy_qp(here.qp));
	for (int i = 0; i < 2; i++) {
		struct end *end = i ? &here : &there;
		OK(ibv_destroy_cq(end->cq));
		OK(ibv_dereg_mr(end->mr));
		free(end->memory);
	}
	OK(ibv_dealloc_pd(here.pd));
	OK(ibv_close_device(here.context));
	return 0;
}
