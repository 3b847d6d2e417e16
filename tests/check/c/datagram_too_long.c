/* datagram-too-long: a datagram of twice the MTU. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_UD);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_both();
	struct ibv_ah_attr address = address_of(here.context);
	struct ibv_ah *ah = ibv_create_ah(here.pd, &address);
	CHECK(ah);
	struct ibv_port_attr port;
	OK(ibv_query_port(here.context, 1, &port));
	uint32_t mtu = 128u << port.active_mtu, length = RIGHT(mtu, 2 * mtu);
	char *memory = calloc(1, length);
	struct ibv_mr *mr = ibv_reg_mr(here.pd, memory, length, 0);
	CHECK(mr);
	struct ibv_sge sge = {(uintptr_t)memory, length, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 7,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = there.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	finish(here.cq, IBV_WC_LOC_LEN_ERR);
	OK(ibv_dereg_mr(mr));
	free(memory);
	OK(ibv_destroy_ah(ah));
	unmake_pair();
	return 0;
}
