/*
 * A server that opens a device, forks for each client, and has the child serve it with a device of its own on the same
 * address. The clients are children as well.
 *
 *     forking CLIENTS
 */
#include <sys/wait.h>

#include "exchange.h"

enum { SIZE = 100000 };

/* One WRITE in each direction, compared with what the other side has said that it writes. */
static void talk(int fd, int number)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_cq *cq = ibv_create_cq(context, 16, NULL, NULL, 0);
	unsigned char *memory = calloc(2, SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, 2 * SIZE, ALL_ACCESS);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(pd && cq && mr && qp);
	struct endpoint mine = {.gid = address_of(context).grh.dgid,
				.qpn = qp->qp_num,
				.rkey = mr->rkey,
				.address = (uintptr_t)memory},
			peer;
	swap(fd, &mine, &peer);
	CHECK(!memcmp(&mine.gid, &peer.gid, sizeof mine.gid) && mine.qpn != peer.qpn);
	connect_rc(qp, &peer, 14, 7);
	swap(fd, &mine, &peer);
	for (int i = 0; i < SIZE; i++)
		memory[i] = (unsigned char)(i * 7 + number);
	struct ibv_sge sge = {.addr = (uintptr_t)memory, .length = SIZE, .lkey = mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .wr.rdma = {.remote_addr = peer.address + SIZE, .rkey = peer.rkey}},
			   *bad;
	OK(ibv_post_send(qp, &wr, &bad));
	struct ibv_wc wc = {0};
	while (ibv_poll_cq(cq, 1, &wc) == 0)
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	swap(fd, &mine, &peer);
	for (int i = 0; i < SIZE; i++)
		CHECK(memory[SIZE + i] == (unsigned char)(i * 7 + number));
	OK(ibv_destroy_qp(qp));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	free(memory);
}

static pid_t begin(int fd, int other, int number)
{
	pid_t child = fork();
	CHECK(child >= 0);
	if (child)
		return child;
	close(other);
	talk(fd, number);
	exit(0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	int count = atoi(argv[1]);
	struct ibv_context *context = open_first();
	pid_t children[2 * count];
	for (int i = 0; i < count; i++) {
		int ends[2];
		CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
		children[2 * i] = begin(ends[0], ends[1], i);
		children[2 * i + 1] = begin(ends[1], ends[0], i);
		close(ends[0]);
		close(ends[1]);
	}
	for (int i = 0; i < 2 * count; i++) {
		int status;
		CHECK(waitpid(children[i], &status, 0) == children[i] && status == 0);
	}
	OK(ibv_close_device(context));
	printf("%d children have served as many\n", count);
	return 0;
}
