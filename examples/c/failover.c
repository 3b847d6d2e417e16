/*
 * Moves data over two rails, and loses nothing and repeats nothing when either of them fails.
 *
 *   failover                        a receiver, which prints the port that it listens on
 *   failover HOST PORT SECONDS      its sender
 *
 * Each rail is a device of both ends, with a queue pair. A round fills the receiver's memory with messages, which are RDMA
 * WRITEs with immediate data, some on each rail. If a request fails, its rail has failed, and nobody knows whether its
 * messages arrived: an ACK may have been lost. So
 *
 *   1. the receiver fences the rail: it takes its queue pair to the error state, so that nothing can arrive late;
 *   2. the sender reads by RDMA, over a rail that works, what the receiver has got;
 *   3. it sends the rest again over that rail.
 *
 * Meanwhile it connects new queue pairs on the rail that has failed, and uses it again once an RDMA READ comes back. The
 * receiver checks every byte of a round, and that it got each message once.
 */
#include <endian.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RAILS = 2, MESSAGES = 256, SIZE = 4096, DEPTH = 16, PORT = 1, GID_INDEX = 0, AGAIN_MS = 20 };

enum command { CONNECT, FENCE, CHECK, END };

/* What the ends tell each other over TCP. Two processors of different order would have to swap the numbers. */
struct words {
	uint32_t command, rail;
	union ibv_gid gid;
	uint32_t qpn, psn, data_key, arrived_key;
	uint64_t data, arrived;
};

/* How the sender finds a rail: it fails, is fenced, is connected again, and works once a probe has come back. */
enum state { WORKS, FAILED, FENCED, PROBED, GONE };

struct rail {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *data, *arrived;
	uint32_t psn, copy[MESSAGES];
	/* Of the sender. */
	enum state state;
	struct words peer;
	int posted, probes;
	long again_at, failures, carried;
};

static struct rail rails[RAILS];
static unsigned char data[MESSAGES * SIZE];
/* The round in which the receiver got each message last. */
static uint32_t arrived[MESSAGES];
static uint32_t round_ = 1;
static int control, is_sender;
static long repeated;

static void die(const char *what)
{
	perror(what);
	exit(EXIT_FAILURE);
}

static void insist(int holds, const char *what)
{
	if (!holds) {
		fprintf(stderr, "round %u: %s\n", round_, what);
		exit(EXIT_FAILURE);
	}
}

static long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static unsigned char byte_of(uint32_t round, int message, int at)
{
	return round * 31 + message * 7 + at;
}

static void tell(const struct words *words)
{
	if (send(control, words, sizeof(*words), MSG_NOSIGNAL) != sizeof(*words))
		die("send");
}

static int hear(struct words *words)
{
	ssize_t n = recv(control, words, sizeof(*words), MSG_WAITALL);
	if (n < 0)
		die("recv");
	return n == sizeof(*words);
}

static void ask(struct words *words)
{
	tell(words);
	if (!hear(words)) {
		fprintf(stderr, "the other end is gone\n");
		exit(EXIT_FAILURE);
	}
}

static void open_rails(void)
{
	int count;
	struct ibv_device **devices = ibv_get_device_list(&count);

	if (!devices || count < RAILS) {
		fprintf(stderr, "there are no two devices: softrnic run --device 'rail[0-1]=udp' -- ./failover has\n");
		exit(EXIT_FAILURE);
	}
	for (int i = 0; i < RAILS; i++) {
		struct rail *rail = &rails[i];
		int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

		rail->state = FENCED;
		if (!(rail->context = ibv_open_device(devices[i])))
			die("ibv_open_device");
		if (!(rail->pd = ibv_alloc_pd(rail->context)))
			die("ibv_alloc_pd");
		if (!(rail->cq = ibv_create_cq(rail->context, 2 * DEPTH, NULL, NULL, 0)))
			die("ibv_create_cq");
		rail->data = ibv_reg_mr(rail->pd, data, sizeof(data), access);
		rail->arrived = ibv_reg_mr(rail->pd, is_sender ? rail->copy : arrived, sizeof(arrived), access);
		if (!rail->data || !rail->arrived)
			die("ibv_reg_mr");
	}
	ibv_free_device_list(devices);
}

static int post_receive(struct rail *rail)
{
	struct ibv_recv_wr wr = {0}, *bad;
	return ibv_post_recv(rail->qp, &wr, &bad);
}

/* A new queue pair in place of the old one, and what the other end must know of it. */
static int make_qp(struct rail *rail, struct words *own)
{
	struct ibv_qp_init_attr init = {
		.qp_type = IBV_QPT_RC,
		.send_cq = rail->cq,
		.recv_cq = rail->cq,
		.cap = {.max_send_wr = DEPTH, .max_recv_wr = DEPTH, .max_send_sge = 1, .max_recv_sge = 1},
	};
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT,
				   .port_num = PORT,
				   .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ};

	if (rail->qp && ibv_destroy_qp(rail->qp))
		return -1;
	if (!(rail->qp = ibv_create_qp(rail->pd, &init)))
		return -1;
	if (ibv_modify_qp(rail->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS))
		return -1;
	for (int i = 0; i < DEPTH && !is_sender; i++)
		if (post_receive(rail))
			return -1;
	rail->psn = rand() & 0xffffff;
	if (ibv_query_gid(rail->context, PORT, GID_INDEX, &own->gid))
		return -1;
	own->qpn = rail->qp->qp_num;
	own->psn = rail->psn;
	own->data_key = rail->data->rkey;
	own->arrived_key = rail->arrived->rkey;
	own->data = (uintptr_t)data;
	own->arrived = (uintptr_t)arrived;
	return 0;
}

static int connect_qp(struct rail *rail, const struct words *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 1,
		.ah_attr = {.is_global = 1,
			    .port_num = PORT,
			    .grh = {.dgid = peer->gid, .sgid_index = GID_INDEX, .hop_limit = 64}},
	};

	if (ibv_modify_qp(rail->qp, &attr,
			  IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				  IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER))
		return -1;
	/* A request fails after eight timeouts of 8 ms. */
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = rail->psn,
				    .timeout = 11,
				    .retry_cnt = 7,
				    .rnr_retry = 7,
				    .max_rd_atomic = 1};
	return ibv_modify_qp(rail->qp, &attr,
			     IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC);
}

/* The receiver. */

static void count_arrivals(struct rail *rail)
{
	struct ibv_wc wc;

	while (ibv_poll_cq(rail->cq, 1, &wc) > 0) {
		/* What is flushed has no other meaning here. */
		if (wc.status != IBV_WC_SUCCESS || wc.opcode != IBV_WC_RECV_RDMA_WITH_IMM)
			continue;
		uint32_t message = be32toh(wc.imm_data);
		insist(message < MESSAGES && be32toh(arrived[message]) != round_, "a message came twice");
		arrived[message] = htobe32(round_);
		/* A rail that has failed since needs none. */
		post_receive(rail);
	}
}

static void check_round(void)
{
	for (int message = 0; message < MESSAGES; message++) {
		insist(be32toh(arrived[message]) == round_, "a message is missing");
		for (int at = 0; at < SIZE; at++)
			insist(data[message * SIZE + at] == byte_of(round_, message, at), "a byte is wrong");
	}
	round_++;
}

static void obey(struct words *words)
{
	struct rail *rail = &rails[words->rail % RAILS];
	struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
	struct words peer = *words;

	switch (words->command) {
	case CONNECT:
		/* If the device is gone, the sender will find that nothing answers. */
		if (make_qp(rail, words) == 0)
			connect_qp(rail, &peer);
		break;
	case FENCE:
		/* What has arrived by then is there to be counted. */
		if (rail->qp)
			ibv_modify_qp(rail->qp, &error, IBV_QP_STATE);
		count_arrivals(rail);
		break;
	case CHECK:
		for (int i = 0; i < RAILS; i++)
			count_arrivals(&rails[i]);
		check_round();
		break;
	}
	tell(words);
}

static void receive(void)
{
	struct words words = {0};

	words.command = CONNECT;
	while (words.command != END) {
		struct pollfd pollfd = {control, POLLIN, 0};

		for (int i = 0; i < RAILS; i++)
			count_arrivals(&rails[i]);
		/* The NIC needs no help to receive; both ends may share a processor. */
		if (poll(&pollfd, 1, 1) <= 0)
			continue;
		if (!hear(&words))
			break;
		obey(&words);
	}
	insist(words.command == END, "the sender did not say that it was done");
	printf("%u rounds of %d messages are exact\n", round_ - 1, MESSAGES);
}

/* The sender. */

enum { PROBE = MESSAGES };

/* What is sent on a rail that fails may have arrived; a probe over a rail that works will tell. */
enum progress { UNSENT, SENT, UNCERTAIN, ASKED, DONE };

static struct message {
	enum progress state;
	int rail;
} messages[MESSAGES];

/* Puts the messages of a rail that are in one state into another. */
static void move(int number, enum progress from, enum progress to)
{
	for (int i = 0; i < MESSAGES; i++)
		if (messages[i].state == from && messages[i].rail == number)
			messages[i].state = to;
}

static int post(struct rail *rail, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	wr->num_sge = 1;
	wr->send_flags = IBV_SEND_SIGNALED;
	rail->posted++;
	return ibv_post_send(rail->qp, wr, &bad);
}

static int post_message(struct rail *rail, int message)
{
	struct ibv_sge sge = {(uintptr_t)data + message * SIZE, SIZE, rail->data->lkey};
	struct ibv_send_wr wr = {
		.wr_id = message,
		.sg_list = &sge,
		.opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
		.imm_data = htobe32(message),
		.wr.rdma = {rail->peer.data + message * SIZE, rail->peer.data_key},
	};

	return post(rail, &wr);
}

/* Reads what the receiver has got, which includes all that it got of rails that are fenced by now. */
static int post_probe(int number)
{
	struct rail *rail = &rails[number];
	struct ibv_sge sge = {(uintptr_t)rail->copy, sizeof(rail->copy), rail->arrived->lkey};
	struct ibv_send_wr wr = {
		.wr_id = PROBE,
		.sg_list = &sge,
		.opcode = IBV_WR_RDMA_READ,
		.wr.rdma = {rail->peer.arrived, rail->peer.arrived_key},
	};

	for (int i = 0; i < MESSAGES; i++)
		if (messages[i].state == UNCERTAIN)
			messages[i] = (struct message){ASKED, number};
	rail->probes++;
	return post(rail, &wr);
}

static void settle(int number)
{
	for (int i = 0; i < MESSAGES; i++) {
		if (messages[i].state != ASKED || messages[i].rail != number)
			continue;
		messages[i].state = be32toh(rails[number].copy[i]) == round_ ? DONE : UNSENT;
		repeated += messages[i].state == UNSENT;
	}
}

static void fail(int number)
{
	struct rail *rail = &rails[number];

	if (rail->state == WORKS || rail->state == PROBED) {
		rail->state = FAILED;
		rail->failures++;
	}
}

/* After this, nothing of a rail arrives any more. */
static void fence(int number)
{
	struct words words = {.command = FENCE, .rail = number};

	ask(&words);
	rails[number].state = FENCED;
	rails[number].again_at = now_ms() + AGAIN_MS;
	move(number, SENT, UNCERTAIN);
	move(number, ASKED, UNCERTAIN);
}

/* The device itself has failed: none of its verbs works any more. */
static void lose(int number)
{
	fence(number);
	rails[number].state = GONE;
	fprintf(stderr, "rail %d is gone\n", number);
	for (int i = 0; i < RAILS; i++)
		if (rails[i].state != GONE)
			return;
	insist(0, "no rail is left");
}

static void connect_again(int number)
{
	struct rail *rail = &rails[number];
	struct words words = {.command = CONNECT, .rail = number};

	if (make_qp(rail, &words)) {
		lose(number);
		return;
	}
	ask(&words);
	rail->peer = words;
	rail->posted = rail->probes = 0;
	rail->state = PROBED;
	if (connect_qp(rail, &words) || post_probe(number))
		fail(number);
}

static void poll_rail(int number)
{
	struct rail *rail = &rails[number];
	struct ibv_wc wc;
	int n;

	while ((n = ibv_poll_cq(rail->cq, 1, &wc)) > 0) {
		rail->posted--;
		if (wc.status != IBV_WC_SUCCESS) {
			fail(number);
		} else if (wc.wr_id == PROBE) {
			rail->probes--;
			if (rail->state == PROBED)
				rail->state = WORKS;
			settle(number);
		} else {
			messages[wc.wr_id].state = DONE;
			rail->carried++;
		}
	}
	if (n < 0)
		lose(number);
}

static void use(int number)
{
	struct rail *rail = &rails[number];

	for (int i = 0; i < MESSAGES && rail->posted < DEPTH; i++) {
		if (messages[i].state == UNCERTAIN && !rail->probes && post_probe(number)) {
			fail(number);
			return;
		}
		if (messages[i].state != UNSENT)
			continue;
		messages[i] = (struct message){SENT, number};
		if (post_message(rail, i)) {
			fail(number);
			return;
		}
	}
}

static int is_left(void)
{
	for (int i = 0; i < MESSAGES; i++)
		if (messages[i].state != DONE)
			return 1;
	return 0;
}

static void send_round(void)
{
	for (int i = 0; i < MESSAGES * SIZE; i++)
		data[i] = byte_of(round_, i / SIZE, i % SIZE);
	memset(messages, 0, sizeof(messages));
	while (is_left()) {
		for (int i = 0; i < RAILS; i++) {
			if (rails[i].state != GONE)
				poll_rail(i);
			if (rails[i].state == FAILED)
				fence(i);
			if (rails[i].state == FENCED && now_ms() >= rails[i].again_at)
				connect_again(i);
			if (rails[i].state == WORKS)
				use(i);
		}
		usleep(20);
	}
}

static void send_for(double seconds)
{
	struct words words;
	long end = now_ms() + seconds * 1000;

	do {
		send_round();
		words = (struct words){.command = CHECK};
		ask(&words);
		round_++;
	} while (now_ms() < end);
	words.command = END;
	ask(&words);
	for (int i = 0; i < RAILS; i++)
		printf("rail %d carried %ld messages, and failed %ld times\n", i, rails[i].carried, rails[i].failures);
	printf("%ld were sent again\n", repeated);
}

/* A TCP connection to tell the other end things. */
static int rendezvous(int argc, char **argv)
{
	if (argc == 1) {
		struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		socklen_t size = sizeof(any);
		int listener = socket(AF_INET, SOCK_STREAM, 0);

		if (bind(listener, (struct sockaddr *)&any, sizeof(any)) || listen(listener, 1) ||
		    getsockname(listener, (struct sockaddr *)&any, &size))
			die("listen");
		printf("%d\n", ntohs(any.sin_port));
		fflush(stdout);
		return accept(listener, NULL, NULL);
	}
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *found;

	if (getaddrinfo(argv[1], argv[2], &hints, &found)) {
		fprintf(stderr, "%s is not a host with that port\n", argv[1]);
		exit(EXIT_FAILURE);
	}
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	if (connect(fd, found->ai_addr, found->ai_addrlen))
		die("connect");
	freeaddrinfo(found);
	return fd;
}

int main(int argc, char **argv)
{
	if (argc != 1 && argc != 4) {
		fprintf(stderr, "usage: failover, or failover HOST PORT SECONDS\n");
		return 2;
	}
	is_sender = argc == 4;
	srand(getpid());
	control = rendezvous(argc, argv);
	if (control < 0)
		die("rendezvous");
	open_rails();
	if (is_sender)
		send_for(atof(argv[3]));
	else
		receive();
	return 0;
}
