/* A READ of 64 bytes from a peer with the IPv4 address argv[1], which is no SoftRNIC, with a retry_cnt of argv[2]. The number of the
 * QP goes to standard output, and so does how the READ ended. */
#include "../c/pair.h"

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	make(&here, context, pd, IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	OK(to_init(here.qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 0x42,
		.rq_psn = 77,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = address_of(context),
	};
	CHECK(inet_pton(AF_INET, argv[1], &attr.ah_attr.grh.dgid.raw[12]) == 1);
	OK(ibv_modify_qp(here.qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 77,
		.timeout = 17,
		.retry_cnt = atoi(argv[2]),
		.rnr_retry = 1,
		.max_rd_atomic = 1,
	};
	OK(ibv_modify_qp(here.qp, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC));
	printf("QP %u\n", here.qp->qp_num);
	fflush(stdout);

	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_READ, &sge), *bad;
	wr.wr.rdma.remote_addr = 0x1000;
	wr.wr.rdma.rkey = 0x43;
	OK(ibv_post_send(here.qp, &wr, &bad)); /* posted */
	printf("%s\n", ibv_wc_status_str(completion_of(here.cq).status));
	unmake(&here);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	return 0;
}
