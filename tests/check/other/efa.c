/* Two queue pairs of SRD in one process, and the mistake that is named; "none" is the correct program. */
#include <infiniband/efadv.h>

#include "../c/pair.h"

static const char *mistake;

static int is(const char *name)
{
	return strcmp(mistake, name) == 0;
}

static void make_srd(struct end *end, struct ibv_context *context, struct ibv_pd *pd)
{
	end->context = context;
	end->pd = pd;
	end->cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(end->cq);
	struct ibv_qp_init_attr_ex init = {
		.send_cq = end->cq,
		.recv_cq = end->cq,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
		.qp_type = IBV_QPT_DRIVER,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.pd = pd,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_READ,
	};
	struct efadv_qp_init_attr efa = {.driver_qp_type = EFADV_QP_DRIVER_TYPE_SRD};
	end->qp = efadv_create_qp_ex(context, &init, &efa, sizeof efa);
	CHECK(end->qp);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = QKEY};
	OK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	attr.qp_state = IBV_QPS_RTR;
	OK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .rnr_retry = 3};
	OK(ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RNR_RETRY));
	end->memory = aligned_alloc(4096, SIZE);
	CHECK(end->memory);
	memset(end->memory, 0, SIZE);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	mistake = argv[1];
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context), *other = ibv_alloc_pd(context);
	CHECK(pd && other);
	make_srd(&here, context, pd);
	make_srd(&there, context, pd);
	enroll(&here, IBV_ACCESS_LOCAL_WRITE);
	enroll(&there, is("access") ? IBV_ACCESS_LOCAL_WRITE : IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ);
	struct ibv_ah_attr address = {.is_global = 1, .port_num = 1};
	CHECK(ibv_query_gid(context, 1, 0, &address.grh.dgid) == 0);
	struct ibv_ah *ah = ibv_create_ah(is("domain") ? other : pd, &address);
	CHECK(ah);
	struct ibv_sge room = {(uintptr_t)there.memory, is("short") ? 40 : 256, there.mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad;
	OK(ibv_post_recv(there.qp, &receive, &bad));
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(here.qp);
	ibv_wr_start(qp);
	qp->wr_id = 7;
	qp->wr_flags = IBV_SEND_SIGNALED;
	if (is("rkey") || is("access"))
		ibv_wr_rdma_read(qp, there.mr->rkey ^ (is("rkey") ? 0x5500 : 0), (uintptr_t)there.memory);
	else
		ibv_wr_send(qp);
	ibv_wr_set_ud_addr(qp, ah, there.qp->qp_num, is("qkey") ? QKEY + 1 : QKEY);
	ibv_wr_set_sge(qp, is("lkey") ? 0x77 : here.mr->lkey, (uintptr_t)here.memory, 64);
	int refused = ibv_wr_complete(qp); /* posted */
	if (!refused) {
		struct ibv_wc wc = completion_of(here.cq);
		CHECK(is("none") == (wc.status == IBV_WC_SUCCESS));
	}
	unmake(&here);
	unmake(&there);
	OK(ibv_destroy_ah(ah));
	OK(ibv_dealloc_pd(other));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	return 0;
}
