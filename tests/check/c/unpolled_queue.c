/* unpolled-queue: the event of a completion is taken for the completion. */
#include "events.h"

int main(void)
{
	make_reporting_pair();
	OK(ibv_req_notify_cq(here.cq, 0)); /* armed */
	write_once();
	take_event();
#ifdef CORRECT
	expect(here.cq, IBV_WC_SUCCESS, 7);
#endif
	unmake_reporting_pair();
	return 0;
}
