/*
 * Two processes exchange messages over a reliable connection, and check each one.
 *
 *   pingpong                    a server, which prints the port that it listens on
 *   pingpong HOST PORT          its client
 */
#include <endian.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SIZE = 16384, ROUNDS = 500, PORT = 1, GID_INDEX = 0, FIRST_PSN = 0x1234 };

/* What an end tells the other one over TCP, in the order of the network. */
struct end {
	union ibv_gid gid;
	uint32_t qpn;
};

struct connection {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *sends, *receives;
};

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static struct ibv_mr *reg(struct ibv_pd *pd)
{
	void *memory = calloc(1, SIZE);
	struct ibv_mr *mr = memory ? ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE) : NULL;
	if (!mr)
		die("ibv_reg_mr");
	return mr;
}

static void init(struct connection *c)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	if (!devices || !devices[0]) {
		fprintf(stderr, "there is no RDMA device: softrnic run -- ./pingpong has one\n");
		exit(EXIT_FAILURE);
	}
	if (!(c->context = ibv_open_device(devices[0])))
		die("ibv_open_device");
	ibv_free_device_list(devices);
	if (!(c->pd = ibv_alloc_pd(c->context)))
		die("ibv_alloc_pd");
	c->sends = reg(c->pd);
	c->receives = reg(c->pd);
	if (!(c->cq = ibv_create_cq(c->context, 2, NULL, NULL, 0)))
		die("ibv_create_cq");

	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = c->cq,
		.recv_cq = c->cq,
		.cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1},
	};
	if (!(c->qp = ibv_create_qp(c->pd, &init)))
		die("ibv_create_qp");
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = PORT};
	if (ibv_modify_qp(c->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		die("to INIT");
}

static void connect_to(struct connection *c, struct end peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = be32toh(peer.qpn),
		.rq_psn = FIRST_PSN,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = peer.gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};
	if (ibv_modify_qp(c->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		die("to RTR");
	/* Each packet is tried eight times, 17 ms apart. */
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .sq_psn = FIRST_PSN, .timeout = 12, .retry_cnt = 7, .rnr_retry = 7};
	if (ibv_modify_qp(c->qp, &attr,
			  IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				  IBV_QP_MAX_QP_RD_ATOMIC))
		die("to RTS");
}

static void post_receive(struct connection *c)
{
	struct ibv_sge sge = {.addr = (uintptr_t)c->receives->addr, .length = SIZE, .lkey = c->receives->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	if (ibv_post_recv(c->qp, &wr, &bad))
		die("ibv_post_recv");
}

static void post_send(struct connection *c, int round)
{
	memset(c->sends->addr, round, SIZE);
	struct ibv_sge sge = {.addr = (uintptr_t)c->sends->addr, .length = SIZE, .lkey = c->sends->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad;
	if (ibv_post_send(c->qp, &wr, &bad))
		die("ibv_post_send");
}

/* Waits for a completion of that kind; one of the other kind that comes before is counted. */
static void wait_for(struct connection *c, enum ibv_wc_opcode opcode, int early[2])
{
	int *mine = &early[opcode == IBV_WC_RECV], *other = &early[opcode != IBV_WC_RECV];
	while (!*mine) {
		struct ibv_wc wc;
		int n = ibv_poll_cq(c->cq, 1, &wc);
		if (n < 0 || (n && wc.status != IBV_WC_SUCCESS)) {
			fprintf(stderr, "completion: %s\n",
				n < 0 ? "ibv_poll_cq failed" : ibv_wc_status_str(wc.status));
			exit(EXIT_FAILURE);
		}
		if (n)
			++*(wc.opcode == opcode ? mine : other);
	}
	--*mine;
}

static void check(const struct connection *c, int round)
{
	const unsigned char *got = c->receives->addr;
	for (int i = 0; i < SIZE; i++)
		if (got[i] != (unsigned char)round) {
			fprintf(stderr, "round %d: byte %d is %#x\n", round, i, got[i]);
			exit(EXIT_FAILURE);
		}
}

/* A TCP connection to tell the other end who we are. */
static int rendezvous(int argc, char **argv)
{
	if (argc == 3) {
		struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;
		int error = getaddrinfo(argv[1], argv[2], &hints, &found);
		if (error) {
			fprintf(stderr, "%s: %s\n", argv[1], gai_strerror(error));
			exit(EXIT_FAILURE);
		}
		int s = socket(AF_INET, SOCK_STREAM, 0);
		if (s < 0 || connect(s, found->ai_addr, found->ai_addrlen))
			die("connect");
		freeaddrinfo(found);
		return s;
	}
	struct sockaddr_in own = {.sin_family = AF_INET};
	socklen_t length = sizeof(own);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&own, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&own, &length))
		die("listen");
	printf("%d\n", ntohs(own.sin_port));
	fflush(stdout);
	int s = accept(listener, NULL, NULL);
	if (s < 0)
		die("accept");
	close(listener);
	return s;
}

int main(int argc, char **argv)
{
	if (argc != 1 && argc != 3) {
		fprintf(stderr, "usage: pingpong [HOST PORT]\n");
		return 2;
	}
	int is_client = argc == 3, s = rendezvous(argc, argv), early[2] = {0};
	struct connection c;
	struct end own, peer;

	init(&c);
	post_receive(&c);
	own.qpn = htobe32(c.qp->qp_num);
	if (ibv_query_gid(c.context, PORT, GID_INDEX, &own.gid))
		die("ibv_query_gid");
	if (write(s, &own, sizeof(own)) != sizeof(own) || recv(s, &peer, sizeof(peer), MSG_WAITALL) != sizeof(peer))
		die("the other end");
	connect_to(&c, peer);
	/* Nothing may come before the other end is connected as well. */
	if (write(s, "", 1) != 1 || recv(s, &(char){0}, 1, MSG_WAITALL) != 1)
		die("the other end");

	for (int round = 1; round <= ROUNDS; round++) {
		if (is_client)
			post_send(&c, round);
		wait_for(&c, IBV_WC_RECV, early);
		check(&c, round);
		if (round < ROUNDS)
			post_receive(&c);
		if (!is_client)
			post_send(&c, round);
		wait_for(&c, IBV_WC_SEND, early);
	}
	printf("%d rounds of %d bytes\n", ROUNDS, SIZE);

	/* The other end may still wait for our ACK, which its last send needs. */
	shutdown(s, SHUT_WR);
	if (recv(s, &(char){0}, 1, 0) != 0)
		die("the other end");
	ibv_destroy_qp(c.qp);
	ibv_destroy_cq(c.cq);
	struct ibv_mr *regions[] = {c.sends, c.receives};
	for (int i = 0; i < 2; i++) {
		void *memory = regions[i]->addr;
		ibv_dereg_mr(regions[i]);
		free(memory);
	}
	ibv_dealloc_pd(c.pd);
	return ibv_close_device(c.context) ? EXIT_FAILURE : EXIT_SUCCESS;
}
