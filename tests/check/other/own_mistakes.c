/*
 * Mistakes with memory that other tools find, beside a correct use of verbs: the NIC sends what the program has freed
 * (`freed`), the program reads what it has freed (`stale`) or what no message has written (`unwritten`), and two threads
 * change a number (`race`).
 */
#include <pthread.h>

#include "../c/pair.h"

enum { ROOM = 4096, SENT = 64 };

static int number;

static void *change(void *unused)
{
	(void)unused;
	number++;
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	const char *mistake = argv[1];
	make_both(IBV_QPT_RC);
	char *from = malloc(ROOM), *into = malloc(ROOM);
	memset(from, 1, ROOM);
	struct ibv_mr *source = ibv_reg_mr(here.pd, from, ROOM, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *target = ibv_reg_mr(there.pd, into, ROOM, IBV_ACCESS_LOCAL_WRITE);
	CHECK(source && target);
	connect_both();
	struct ibv_sge to = {(uintptr_t)into, ROOM, target->lkey}, of = {(uintptr_t)from, SENT, source->lkey};
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &to, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = request(IBV_WR_SEND, &of), *bad;
	OK(ibv_post_recv(there.qp, &receive, &bad_receive));
	if (strcmp(mistake, "freed") == 0)
		free(from); /* freed */
	OK(ibv_post_send(here.qp, &send, &bad));
	finish(here.cq, IBV_WC_SUCCESS);
	finish(there.cq, IBV_WC_SUCCESS);
	OK(ibv_dereg_mr(source));
	OK(ibv_dereg_mr(target));
	if (strcmp(mistake, "freed") != 0)
		free(from);
	if (strcmp(mistake, "stale") == 0)
		printf("%d\n", *(volatile char *)(from + 3));	      /* stale */
	if (strcmp(mistake, "unwritten") == 0 && into[ROOM / 2] == 3) /* unwritten */
		puts("three");
	if (strcmp(mistake, "race") == 0) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, change, NULL) == 0);
		number++; /* race */
		pthread_join(thread, NULL);
	}
	free(into);
	unmake_pair();
	puts("done");
	return 0;
}
