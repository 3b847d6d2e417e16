/* refused-verb: the GID of the peer is an IPv6 address, that of sgid_index an IPv4 address. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
	OK(to_init(here.qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = there.qp->qp_num,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = address_of(here.context),
	};
#ifndef CORRECT
	CHECK(inet_pton(AF_INET6, "2001:db8::1", &attr.ah_attr.grh.dgid) == 1);
#endif
	int mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
		   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	CHECK(ibv_modify_qp(here.qp, &attr, mask) == RIGHT(0, EINVAL)); /* called */
	unmake_pair();
	return 0;
}
