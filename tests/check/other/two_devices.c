/* A completion queue of the second device overruns. The first device has one that its NIC calls the same. */
#include "../c/pair.h"

int main(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 2);
	struct ibv_context *other = ibv_open_device(list[0]), *context = ibv_open_device(list[1]);
	CHECK(other && context);
	ibv_free_device_list(list);
	struct ibv_pd *pd = ibv_alloc_pd(context);
	CHECK(pd);
	make(&there, context, pd, IBV_QPT_RC);
	make(&here, context, pd, IBV_QPT_RC);
	OK(ibv_destroy_qp(here.qp));
	OK(ibv_destroy_cq(here.cq));
	here.cq = ibv_create_cq(context, 4, NULL, NULL, 0); /* created */
	CHECK(here.cq);
	struct ibv_qp_init_attr init = attributes_of(here.cq, IBV_QPT_RC);
	here.qp = ibv_create_qp(pd, &init);
	CHECK(here.qp);
	/* As many as were made on the other device, and so under the same names. */
	struct ibv_cq *others[3];
	for (int i = 0; i < 3; i++) {
		others[i] = ibv_create_cq(other, 1000, NULL, NULL, 0);
		CHECK(others[i]);
		if (i == 1) {
			OK(ibv_destroy_cq(others[i]));
			others[i] = ibv_create_cq(other, 1000, NULL, NULL, 0);
			CHECK(others[i]);
		}
	}
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	connect_both();
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	for (int i = 0; i < 16; i++)
		OK(ibv_post_send(here.qp, &wr, &bad));
	struct ibv_wc wc;
	double limit = seconds() + 0.5;
	while (seconds() < limit)
		ibv_poll_cq(there.cq, 1, &wc);
	for (int i = 0; i < 3; i++)
		OK(ibv_destroy_cq(others[i]));
	OK(ibv_close_device(other));
	unmake_pair();
	return 0;
}
