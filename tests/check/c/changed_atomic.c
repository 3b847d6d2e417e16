/* changed-atomic: the owner of a counter adds to it with the processor while its peer does so with atomics. */
#include <pthread.h>

#include "pair.h"

static volatile int is_done;

static volatile uint64_t *counter(void)
{
	return (volatile uint64_t *)there.memory;
}

static void add_by_atomics(void)
{
	struct ibv_sge sge = all_of(&here, 8);
	struct ibv_send_wr chain[16], *bad;
	for (int i = 0; i < 16; i++) {
		chain[i] = request(IBV_WR_ATOMIC_FETCH_AND_ADD, &sge);
		chain[i].wr.atomic.remote_addr = (uintptr_t)there.memory;
		chain[i].wr.atomic.rkey = there.mr->rkey;
		chain[i].wr.atomic.compare_add = 1;
		chain[i].send_flags = i == 15 ? IBV_SEND_SIGNALED : 0;
		chain[i].next = i == 15 ? NULL : &chain[i + 1];
	}
	OK(ibv_post_send(here.qp, chain, &bad));
	expect(here.cq, IBV_WC_SUCCESS, 7);
}

#ifndef CORRECT
static void *add_by_processor(void *none)
{
	while (!is_done)
		(*counter())++;
	return none;
}
#endif

int main(void)
{
	make_both(IBV_QPT_RC);
	enroll(&here, ALL_ACCESS);
	there.mr = ibv_reg_mr(there.pd, there.memory, SIZE, ALL_ACCESS); /* registered */
	CHECK(there.mr);
	connect_both();
#ifdef CORRECT
	/* In turns. */
	for (int i = 0; i < 200; i++) {
		add_by_atomics();
		(*counter())++;
	}
	CHECK(*counter() == 200 * 17);
#else
	pthread_t thread;
	OK(pthread_create(&thread, NULL, add_by_processor, NULL));
	double limit = seconds() + 2;
	while (seconds() < limit)
		add_by_atomics();
	is_done = 1;
	OK(pthread_join(thread, NULL));
#endif
	unmake_pair();
	return 0;
}
