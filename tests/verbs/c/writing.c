/*
 * Two processes that write pages into each other's memory, one after the other, until SIGTERM; then each compares what it has
 * with what the other wrote last. If a WRITE fails, says how: "transport retry counter exceeded".
 *
 *     writing server|client PORT
 */
#include <signal.h>

#include "exchange.h"

enum { WORDS = 512 };

static uint64_t from[WORDS], into[WORDS];
static volatile sig_atomic_t stops;

static void on_term(int number)
{
	(void)number;
	stops = 1;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	signal(SIGTERM, on_term);
	int fd = meet(strcmp(argv[1], "server") == 0, atoi(argv[2]));
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_mr *source = ibv_reg_mr(pd, from, sizeof from, 0);
	struct ibv_mr *target = ibv_reg_mr(pd, into, sizeof into, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(source && target && qp);
	struct endpoint mine = {address_of(context).grh.dgid, qp->qp_num, target->rkey, (uintptr_t)into}, peer;
	swap(fd, &mine, &peer);
	/* A second. */
	connect_rc(qp, &peer, 15, 7);
	swap(fd, &mine, &peer);
	struct ibv_wc wc;
	for (uint64_t number = 1; !stops; number++) {
		for (int i = 0; i < WORDS; i++)
			from[i] = number + i;
		struct ibv_sge sge = {(uintptr_t)from, sizeof from, source->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.rdma = {peer.address, peer.rkey}},
				   *bad;
		OK(ibv_post_send(qp, &wr, &bad));
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			usleep(1000);
		if (wc.status != IBV_WC_SUCCESS) {
			puts(ibv_wc_status_str(wc.status));
			return 1;
		}
	}
	mine.address = from[0];
	swap(fd, &mine, &peer);
	for (int i = 0; i < WORDS; i++)
		CHECK(into[i] == peer.address + i);
	printf("%lu pages written\n", (unsigned long)from[0]);
	return 0;
}
