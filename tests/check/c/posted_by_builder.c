/* unknown-key: a request that was built with ibv_wr_start() and its like. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(here.qp));
	struct ibv_qp_init_attr_ex init = {
		.send_cq = here.cq,
		.recv_cq = here.cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2},
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = here.pd,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	here.qp = ibv_create_qp_ex(here.context, &init);
	CHECK(here.qp);
	connect_both();

	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(here.qp);
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(qp, there.mr->rkey ^ RIGHT(0, 0x100), (uintptr_t)there.memory);
	ibv_wr_set_sge(qp, here.mr->lkey, (uintptr_t)here.memory, 64);
	OK(ibv_wr_complete(qp)); /* posted */
	finish(here.cq, IBV_WC_REM_ACCESS_ERR);
	unmake_pair();
	return 0;
}
