/* A pair whose `here` has a completion queue that reports to a channel. */
#include <pthread.h>

#include "pair.h"

static struct ibv_comp_channel *channel;

static inline void make_reporting_pair(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	enroll(&there, ALL_ACCESS);
	OK(ibv_destroy_qp(here.qp));
	OK(ibv_destroy_cq(here.cq));
	channel = ibv_create_comp_channel(here.context);
	CHECK(channel);
	here.cq = ibv_create_cq(here.context, 16, NULL, channel, 0);
	CHECK(here.cq);
	struct ibv_qp_init_attr init = attributes_of(here.cq, IBV_QPT_RC);
	here.qp = ibv_create_qp(here.pd, &init);
	CHECK(here.qp);
	connect_both();
}

static inline void unmake_reporting_pair(void)
{
	unmake(&here);
	OK(ibv_destroy_comp_channel(channel));
	unmake(&there);
	OK(ibv_dealloc_pd(here.pd));
	OK(ibv_close_device(here.context));
}

static inline void write_once(void)
{
	struct ibv_sge sge = all_of(&here, 64);
	struct ibv_send_wr wr = request(IBV_WR_RDMA_WRITE, &sge), *bad;
	OK(ibv_post_send(here.qp, &wr, &bad));
}

static inline void take_event(void)
{
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(channel, &cq, &context));
	ibv_ack_cq_events(cq, 1);
}
