/* refused-verb: the QP of a listener is destroyed, which has none. */
#include "pair.h"

int main(void)
{
	make_pair();
#ifndef CORRECT
	FAILS(ibv_destroy_qp(NULL), EINVAL); /* called */
#endif
	unmake_pair();
	return 0;
}
