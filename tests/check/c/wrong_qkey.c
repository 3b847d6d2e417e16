/* wrong-qkey: a datagram with another Q_Key than that of the QP that it is for. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_UD);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_to(here.qp, 0);
	struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = RIGHT(QKEY, 0x222)};
	OK(ibv_modify_qp(there.qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY)); /* set */
	OK(to_rtr(there.qp, 0));
	struct ibv_sge room = all_of(&there, 512);
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad_receive;
	OK(ibv_post_recv(there.qp, &receive, &bad_receive));
	struct ibv_ah_attr address = address_of(here.context);
	struct ibv_ah *ah = ibv_create_ah(here.pd, &address);
	CHECK(ah);
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_SEND, &sge), *bad;
	wr.wr.ud.ah = ah;
	wr.wr.ud.remote_qpn = there.qp->qp_num;
	wr.wr.ud.remote_qkey = QKEY;
	/* Datagrams may be lost. */
	for (int i = 0; i < 100; i++) {
		struct ibv_wc wc;
		OK(ibv_post_send(here.qp, &wr, &bad));
		expect(here.cq, IBV_WC_SUCCESS, 7);
		usleep(1000);
		if (ibv_poll_cq(there.cq, 1, &wc) == 1)
			break;
	}
	OK(ibv_destroy_ah(ah));
	unmake_pair();
	return 0;
}
