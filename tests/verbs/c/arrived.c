/*
 * A message whose sender has its completion is in the receiver's CQ (IBTA 9.7.5.1: an ACK means that the request was
 * executed).
 *
 *     arrived MESSAGES SIZE
 *
 * The sender tells the receiver by a socket that it has its completion. Only then the receiver looks, beside the thread of
 * the NIC. Says how many were not there yet.
 */
#include <sys/wait.h>

#include "exchange.h"

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	int messages = atoi(argv[1]), size = atoi(argv[2]), ends[2];
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t child = fork();
	CHECK(child >= 0);
	int sends = child != 0, fd = ends[sends];
	close(ends[!sends]);
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	char *memory = calloc(1, size);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, size, ALL_ACCESS);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(pd && cq && mr && qp);
	struct endpoint mine = {address_of(context).grh.dgid, qp->qp_num, mr->rkey, (uintptr_t)memory}, peer;
	swap(fd, &mine, &peer);
	connect_rc(qp, &peer, 14, 7);
	struct ibv_sge sge = {(uintptr_t)memory, size, mr->lkey};
	int late = 0;
	for (int i = 0; i < messages; i++) {
		char go;
		if (sends) {
			CHECK(read(fd, &go, 1) == 1);
			memory[size - 1] = i;
			struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad;
			wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
			wr.wr.rdma.remote_addr = peer.address;
			wr.wr.rdma.rkey = peer.rkey;
			OK(ibv_post_send(qp, &wr, &bad));
			expect(cq, IBV_WC_SUCCESS, i);
			CHECK(write(fd, &go, 1) == 1);
			continue;
		}
		struct ibv_recv_wr wr = {.wr_id = i}, *bad;
		OK(ibv_post_recv(qp, &wr, &bad));
		CHECK(write(fd, "", 1) == 1 && read(fd, &go, 1) == 1);
		struct ibv_wc wc;
		int found = ibv_poll_cq(cq, 1, &wc);
		CHECK(found >= 0);
		late += !found;
		if (!found)
			wc = completion_of(cq);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i && memory[size - 1] == (char)i);
	}
	if (!sends) {
		printf("%d of %d came after their sender's completion\n", late, messages);
		return 0;
	}
	int status;
	CHECK(waitpid(child, &status, 0) == child);
	return !WIFEXITED(status) || WEXITSTATUS(status);
}
