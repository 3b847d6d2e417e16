/* missed-event: a completion comes between the last poll and arming, and its event is waited for. */
#include "events.h"

/* Ends the wait, which would be for ever. */
static void *write_again(void *unused)
{
	sleep(4);
	write_once();
	return unused;
}

static int finished;

static void drain(void)
{
	struct ibv_wc wc;
	while (ibv_poll_cq(here.cq, 1, &wc) == 1) {
		CHECK(wc.status == IBV_WC_SUCCESS);
		finished++;
	}
}

int main(void)
{
	make_reporting_pair();
	drain();
	write_once();
	/* Somebody else polls meanwhile, so that the completion is there. */
	for (int i = 0; i < 200; i++) {
		struct ibv_wc wc;
		CHECK(ibv_poll_cq(there.cq, 1, &wc) == 0);
		usleep(1000);
	}
	OK(ibv_req_notify_cq(here.cq, 0)); /* armed */
#ifdef CORRECT
	drain();
#else
	pthread_t thread;
	OK(pthread_create(&thread, NULL, write_again, NULL));
	struct ibv_cq *cq;
	void *context;
	OK(ibv_get_cq_event(channel, &cq, &context)); /* called */
	ibv_ack_cq_events(cq, 1);
	OK(pthread_join(thread, NULL));
#endif
	while (finished < RIGHT(1, 2))
		drain();
	unmake_reporting_pair();
	return 0;
}
