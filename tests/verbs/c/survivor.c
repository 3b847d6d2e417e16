/*
 * Transfers without end, until the peer is gone; then says how it learned of it, and cleans up.
 *
 *     survivor server|client PORT TIMEOUT RETRIES [fork|clone]
 *
 * Says "transferring" once data flow. The test kills one side and reads what the other says. With "fork" a child of that
 * side lives on, with "clone" one that was made behind the C library's back.
 */
#include <signal.h>
#include <sys/syscall.h>

#include "exchange.h"

enum { SIZE = 65536, DEPTH = 16 };

int main(int argc, char **argv)
{
	CHECK(argc == 5 || argc == 6);
	int server = !strcmp(argv[1], "server");
	int fd = meet(server, atoi(argv[2]));
	struct ibv_context *context = open_first();
	int before = descriptors();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 4 * DEPTH, NULL, NULL, 0);
	char *memory = aligned_alloc(4096, SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, ALL_ACCESS);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(pd && cq && mr && qp);
	struct endpoint mine = {.gid = address_of(context).grh.dgid,
				.qpn = qp->qp_num,
				.rkey = mr->rkey,
				.address = (uintptr_t)memory},
			peer;
	swap(fd, &mine, &peer);
	connect_rc(qp, &peer, atoi(argv[3]), atoi(argv[4]));
	swap(fd, &mine, &peer);

	struct ibv_sge sge = {(uintptr_t)memory, SIZE, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	wr.wr.rdma.remote_addr = peer.address;
	wr.wr.rdma.rkey = peer.rkey;
	int outstanding = 0, done = 0, failed = 0, flushed = 0;
	double last = seconds();
	while (!failed || outstanding) {
		while (!failed && outstanding < DEPTH) {
			wr.opcode = done % 3 ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
			OK(ibv_post_send(qp, &wr, &bad));
			outstanding++;
		}
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);
		CHECK(found >= 0 && seconds() - last < 60);
		if (!found)
			continue;
		outstanding--;
		if (wc.status == IBV_WC_SUCCESS) {
			CHECK(!failed);
			last = seconds();
			if (++done == 100) {
				if (argc == 6 &&
				    !(strcmp(argv[5], "fork") ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork()))
					for (;;)
						pause();
				puts("transferring");
				fflush(stdout);
			}
		} else if (!failed) {
			failed = 1;
			printf("first: %s after %.3f s\n", ibv_wc_status_str(wc.status), seconds() - last);
		} else {
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR);
			flushed++;
		}
	}
	CHECK(flushed == DEPTH - 1 && qp->state != IBV_QPS_RESET);
	OK(ibv_destroy_qp(qp));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_dealloc_pd(pd));
	printf("descriptors: %d\n", descriptors() - before);
	OK(ibv_close_device(context));
	puts("clean");
	return 0;
}
