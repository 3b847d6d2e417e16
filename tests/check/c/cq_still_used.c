/* still-used: a completion queue is destroyed before its QP. */
#include "pair.h"

int main(void)
{
	make_pair();
	struct ibv_cq *cq = ibv_create_cq(here.context, 4, NULL, NULL, 0); /* created */
	CHECK(cq);
	struct ibv_qp_init_attr init = attributes_of(cq, IBV_QPT_RC);
	struct ibv_qp *qp = ibv_create_qp(here.pd, &init); /* created */
	CHECK(qp);
#ifndef CORRECT
	FAILS(ibv_destroy_cq(cq), EBUSY); /* called */
#endif
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_cq(cq));
	unmake_pair();
	return 0;
}
