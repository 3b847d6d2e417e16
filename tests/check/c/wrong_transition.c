/* refused-verb: a QP goes from RESET to RTR without INIT. */
#include "pair.h"

int main(void)
{
	make_both(IBV_QPT_RC);
#ifdef CORRECT
	OK(to_init(here.qp));
#endif
	int status = to_rtr(here.qp, there.qp->qp_num); /* called */
	CHECK(status == RIGHT(0, EINVAL));
	unmake_pair();
	return 0;
}
