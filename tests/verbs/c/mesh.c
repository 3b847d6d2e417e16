/*
 * One of several processes that all talk to each other, and go on when some of them are killed and started anew.
 *
 *     mesh NAME RANK COUNT [burst]
 *
 * Each pair has an RC connection, on which both sides send numbered messages of random length; the receiver compares
 * every byte and echoes the number. A connection may fail only because its peer has died, which the Unix socket that it
 * was made by tells. With "burst" it sends a few messages to each twice a second, and not all the time. Says twice a second how many of its messages each rank has echoed, in all lives of that rank. SIGTERM
 * stops the sending; what is under way is waited for, and then it says "drained". The next one ends it.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/un.h>

#include "exchange.h"

enum { MOST = 64, WINDOW = 4, RECEIVES = 2 * WINDOW, SIZE = 3000, SLOTS = RECEIVES + 2 * WINDOW };

struct message {
	uint32_t is_echo, sequence, length;
	unsigned char data[SIZE];
};

struct peer {
	int fd;
	struct ibv_qp *qp;
	struct message *slots; /* those to receive into, then those to send from */
	struct ibv_mr *mr;
	uint32_t free; /* slots to send from */
	uint32_t sent, echoed, expected, answered;
	unsigned long total;
	int ready;
	double failed;
};

static struct peer peers[MOST];
static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static const char *name;
static int rank, count, bursts, events, listener;
static volatile sig_atomic_t stops;

static void on_term(int number)
{
	(void)number;
	stops++;
}

static socklen_t address_for(int of, struct sockaddr_un *address)
{
	memset(address, 0, sizeof *address);
	address->sun_family = AF_UNIX;
	int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "%s/%d", name, of);
	return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

static void watch(int fd, int tag)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = tag};
	CHECK(epoll_ctl(events, EPOLL_CTL_ADD, fd, &event) == 0);
}

static unsigned char byte_of(int from, uint32_t sequence, uint32_t at)
{
	return from * 31 + sequence * 7 + at + (at >> 8);
}

static void post_receive(struct peer *peer, int slot)
{
	struct ibv_sge sge = {(uintptr_t)&peer->slots[slot], sizeof(struct message), peer->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = (peer - peers) << 8 | slot, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(peer->qp, &wr, &bad));
}

/* Sends a message or an echo; there is a slot for each that can be under way. */
static void post(struct peer *peer, uint32_t is_echo, uint32_t sequence, uint32_t length)
{
	CHECK(peer->free);
	int slot = __builtin_ctz(peer->free);
	peer->free &= ~(1u << slot);
	slot += RECEIVES;
	struct message *message = &peer->slots[slot];
	*message = (struct message){.is_echo = is_echo, .sequence = sequence, .length = length};
	for (uint32_t i = 0; i < length; i++)
		message->data[i] = byte_of(rank, sequence, i);
	struct ibv_sge sge = {(uintptr_t)message, offsetof(struct message, data) + length, peer->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = (peer - peers) << 8 | slot,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_SEND,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	OK(ibv_post_send(peer->qp, &wr, &bad));
}

/* Echoes find a slot in the end, since the peer awaits only so many. */
static void answer(struct peer *peer)
{
	while (peer->ready && peer->answered != peer->expected && peer->free)
		post(peer, 1, peer->answered++, 0);
}

static void fill(struct peer *peer)
{
	while (!stops && peer->ready && peer->sent - peer->echoed < WINDOW && __builtin_popcount(peer->free) > WINDOW)
		post(peer, 0, peer->sent++, random() % SIZE);
}

static void disconnect(struct peer *peer)
{
	if (peer->qp)
		OK(ibv_destroy_qp(peer->qp));
	if (peer->fd > 0)
		close(peer->fd);
	peer->qp = NULL;
	peer->fd = peer->ready = 0;
	peer->failed = 0;
}

static int read_all(int fd, void *to, size_t length)
{
	return recv(fd, to, length, MSG_WAITALL) == (ssize_t)length;
}

static int send_all(int fd, const void *from, size_t length)
{
	return send(fd, from, length, MSG_NOSIGNAL) == (ssize_t)length;
}

/* Makes the QP, and exchanges what the sides must know; false if the peer died meanwhile. */
static int join(struct peer *peer, int fd, int asks)
{
	disconnect(peer);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = 2 * WINDOW, .max_recv_wr = RECEIVES, .max_send_sge = 1, .max_recv_sge = 1}};
	peer->fd = fd;
	peer->qp = ibv_create_qp(pd, &init);
	CHECK(peer->qp);
	struct endpoint mine = {.gid = address_of(context).grh.dgid, .qpn = peer->qp->qp_num}, other;
	peer->free = (1u << 2 * WINDOW) - 1;
	peer->sent = peer->echoed = peer->expected = peer->answered = 0;
	int32_t me = rank;
	char go = 0;
	if (asks && (!send_all(fd, &me, sizeof me) || !send_all(fd, &mine, sizeof mine)))
		return 0;
	if (!read_all(fd, &other, sizeof other))
		return 0;
	connect_rc(peer->qp, &other, 18, 7);
	for (int slot = 0; slot < RECEIVES; slot++)
		post_receive(peer, slot);
	/* Who was asked may send when the other has its QP. */
	if (asks ? !send_all(fd, &go, 1) : !send_all(fd, &mine, sizeof mine))
		return 0;
	peer->ready = asks;
	watch(fd, peer - peers);
	return 1;
}

/* Asks all those of lower rank that are missing, and are there. */
static void ask(void)
{
	for (int other = 0; other < rank; other++) {
		struct sockaddr_un address;
		if (peers[other].fd || stops)
			continue;
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		CHECK(fd > 0);
		if (connect(fd, (struct sockaddr *)&address, address_for(other, &address)) != 0) {
			close(fd);
			continue;
		}
		if (!join(&peers[other], fd, 1))
			disconnect(&peers[other]);
		else
			fill(&peers[other]);
	}
}

static void let_in(void)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	int32_t who;
	if (fd < 0)
		return;
	if (!read_all(fd, &who, sizeof who)) {
		close(fd);
		return;
	}
	CHECK(who > rank && who < count);
	if (!join(&peers[who], fd, 0))
		disconnect(&peers[who]);
}

static void hear(struct peer *peer)
{
	char go;
	if (!peer->fd)
		return;
	ssize_t got = recv(peer->fd, &go, 1, MSG_DONTWAIT);
	if (got == 1)
		peer->ready = 1;
	else if (got == 0 || errno != EAGAIN)
		disconnect(peer);
	answer(peer);
	fill(peer);
}

static void on_message(struct peer *peer, struct ibv_wc *wc, int slot)
{
	struct message *message = &peer->slots[slot];
	CHECK(wc->byte_len == offsetof(struct message, data) + message->length);
	uint32_t sequence = message->sequence;
	if (message->is_echo) {
		CHECK(sequence == peer->echoed && peer->echoed != peer->sent);
		peer->echoed++;
		peer->total++;
	} else {
		CHECK(sequence == peer->expected);
		peer->expected++;
		for (uint32_t i = 0; i < message->length; i++)
			CHECK(message->data[i] == byte_of(peer - peers, sequence, i));
	}
	post_receive(peer, slot);
}

static void complete(struct ibv_wc *wc)
{
	struct peer *peer = &peers[wc->wr_id >> 8];
	int slot = wc->wr_id & 0xFF;
	if (!peer->qp || peer->qp->qp_num != wc->qp_num)
		return;
	if (wc->status != IBV_WC_SUCCESS) {
		if (!peer->failed)
			peer->failed = seconds();
		return;
	}
	if (slot >= RECEIVES)
		peer->free |= 1u << (slot - RECEIVES);
	else if (!peer->failed)
		on_message(peer, wc, slot);
	if (peer->failed)
		return;
	answer(peer);
	if (!bursts)
		fill(peer);
}

static void poll_all(void)
{
	struct ibv_cq *which;
	void *unused;
	while (ibv_get_cq_event(channel, &which, &unused) == 0)
		ibv_ack_cq_events(which, 1);
	OK(ibv_req_notify_cq(cq, 0));
	struct ibv_wc wc[16];
	int found;
	while ((found = ibv_poll_cq(cq, 16, wc)) != 0) {
		CHECK(found > 0);
		for (int i = 0; i < found; i++)
			complete(&wc[i]);
	}
}

static int under_way(void)
{
	int sum = 0;
	for (int other = 0; other < count; other++)
		if (peers[other].ready)
			sum += peers[other].sent - peers[other].echoed;
	return sum;
}

static void tell(void)
{
	printf("echoed:");
	for (int other = 0; other < count; other++)
		printf(" %lu", peers[other].total);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4 || argc == 5);
	/* A test that is killed can tell us nothing, and SIGTERM alone does not end us. */
	OK(prctl(PR_SET_PDEATHSIG, SIGKILL));
	bursts = argc == 5;
	name = argv[1];
	rank = atoi(argv[2]);
	count = atoi(argv[3]);
	CHECK(count <= MOST && rank < count);
	srandom(rank + 1);
	signal(SIGTERM, on_term);
	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 2 * MOST * SLOTS, NULL, channel, 0);
	CHECK(pd && channel && cq && fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	for (int other = 0; other < count; other++) {
		struct peer *peer = &peers[other];
		peer->slots = calloc(SLOTS, sizeof *peer->slots);
		peer->mr = ibv_reg_mr(pd, peer->slots, SLOTS * sizeof *peer->slots, IBV_ACCESS_LOCAL_WRITE);
		CHECK(peer->mr);
	}
	events = epoll_create1(EPOLL_CLOEXEC);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un address;
	CHECK(bind(listener, (struct sockaddr *)&address, address_for(rank, &address)) == 0);
	CHECK(listen(listener, MOST) == 0);
	watch(listener, MOST);
	watch(channel->fd, MOST + 1);
	poll_all();
	double next = 0, drained = 0;
	while (stops < 2) {
		struct epoll_event event[MOST];
		int found = epoll_wait(events, event, MOST, 50);
		CHECK(found >= 0 || errno == EINTR);
		for (int i = 0; i < found; i++) {
			if (event[i].data.u32 < MOST)
				hear(&peers[event[i].data.u32]);
			else if (event[i].data.u32 == MOST)
				let_in();
		}
		poll_all();
		double now = seconds();
		for (int other = 0; other < count; other++)
			if (peers[other].failed && now - peers[other].failed > 10) {
				fprintf(stderr, "the connection to rank %d has failed, and it lives\n", other);
				return 1;
			}
		if (now >= next) {
			next = now + 0.5;
			ask();
			for (int other = 0; other < count; other++)
				fill(&peers[other]);
			tell();
		}
		if (stops && !drained && !under_way()) {
			drained = now;
			tell();
			puts("drained");
			fflush(stdout);
		}
	}
	return 0;
}
