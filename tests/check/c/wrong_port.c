/* refused-verb: a port that the device does not have. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = RIGHT(1, 2)};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
	CHECK(ibv_modify_qp(here.qp, &attr, mask) == RIGHT(0, EINVAL)); /* called */
	unmake_pair();
	return 0;
}
