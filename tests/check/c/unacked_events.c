/* unacked-events: a completion queue is destroyed with an event that was not acknowledged. */
#include <pthread.h>

#include "pair.h"

/* Ends the wait of ibv_destroy_cq(), which would be for ever. */
static void *acknowledge(void *cq)
{
	usleep(200000);
	ibv_ack_cq_events(cq, 1);
	return NULL;
}

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(here.qp));
	OK(ibv_destroy_cq(here.cq));
	struct ibv_comp_channel *channel = ibv_create_comp_channel(here.context);
	CHECK(channel);
	here.cq = ibv_create_cq(here.context, 16, NULL, channel, 0); /* created */
	CHECK(here.cq);
	struct ibv_qp_init_attr init = attributes_of(here.cq, IBV_QPT_RC);
	here.qp = ibv_create_qp(here.pd, &init);
	CHECK(here.qp);
	connect_both();
	OK(ibv_req_notify_cq(here.cq, 0));
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(channel, &cq, &context));
	expect(here.cq, IBV_WC_SUCCESS, 7);
	OK(ibv_destroy_qp(here.qp));
#ifdef CORRECT
	ibv_ack_cq_events(cq, 1);
#else
	pthread_t thread;
	OK(pthread_create(&thread, NULL, acknowledge, cq));
#endif
	OK(ibv_destroy_cq(here.cq)); /* called */
	OK(ibv_destroy_comp_channel(channel));
	OK(ibv_dereg_mr(here.mr));
	free(here.memory);
	unmake(&there);
	OK(ibv_dealloc_pd(here.pd));
	OK(ibv_close_device(here.context));
	return 0;
}
