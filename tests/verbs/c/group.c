/*
 * One of several processes, of which some have joined a multicast group.
 *
 *     group GROUP listen|send|ignore
 *
 * Each has two UD QPs, which "ignore" does not attach to the group. Who sends waits until a message has come back to both
 * of its own QPs before it sends the next one. Each QP that is attached must get each message once, in order; then nothing
 * more comes. Says "ready" when it is attached. Waits are for events; SIGTERM ends that of "ignore".
 */
#include <poll.h>
#include <signal.h>

#include "check.h"

enum { MESSAGES = 50, SIZE = 1000, GRH = 40, QPS = 2, SLOTS = MESSAGES + 4 };

static struct ibv_context *context;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qps[QPS];
static unsigned char receives[QPS][SLOTS][GRH + SIZE], sends[SIZE];
static int got[QPS];

static unsigned char byte_of(int number, int at)
{
	return number * 7 + at + (at >> 8);
}

static void take(struct ibv_wc *wc)
{
	int qp = wc->wr_id / SLOTS, slot = wc->wr_id % SLOTS;
	CHECK(wc->status == IBV_WC_SUCCESS);
	if (wc->opcode == IBV_WC_SEND)
		return;
	CHECK(wc->byte_len == GRH + SIZE && got[qp] < MESSAGES);
	for (int at = 0; at < SIZE; at++)
		CHECK(receives[qp][slot][GRH + at] == byte_of(got[qp], at));
	got[qp]++;
}

/* Takes what comes until each QP has so many messages; returns whether they have come in time. */
static int wait_for(int messages, int milliseconds)
{
	double limit = seconds() + milliseconds / 1e3;
	for (;;) {
		struct ibv_wc wc;
		struct ibv_cq *which;
		void *unused;
		OK(ibv_req_notify_cq(cq, 0));
		while (ibv_poll_cq(cq, 1, &wc) > 0)
			take(&wc);
		if (got[0] >= messages && got[1] >= messages)
			return 1;
		int left = (limit - seconds()) * 1e3;
		struct pollfd fd = {.fd = channel->fd, .events = POLLIN};
		if (left <= 0 || poll(&fd, 1, left) <= 0)
			return 0;
		OK(ibv_get_cq_event(channel, &which, &unused));
		ibv_ack_cq_events(which, 1);
	}
}

static void on_term(int number)
{
	(void)number;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	signal(SIGTERM, on_term);
	int sender = strcmp(argv[2], "send") == 0, member = strcmp(argv[2], "ignore") != 0;
	struct ibv_ah_attr to = {.is_global = 1, .port_num = 1, .dlid = 0xC000, .grh = {.hop_limit = 1}};
	CHECK(inet_pton(AF_INET6, argv[1], &to.grh.dgid) == 1);
	context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 4 * SLOTS, NULL, channel, 0);
	CHECK(pd && channel && cq);
	struct ibv_mr *mr = ibv_reg_mr(pd, receives, sizeof receives, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_mr *send_mr = ibv_reg_mr(pd, sends, sizeof sends, 0);
	CHECK(mr && send_mr);
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_UD,
			.cap = {.max_send_wr = SLOTS, .max_recv_wr = SLOTS, .max_send_sge = 1, .max_recv_sge = 1}};
		qps[i] = ibv_create_qp(pd, &init);
		CHECK(qps[i]);
		connect_to(qps[i], 0);
		for (int slot = 0; slot < SLOTS; slot++) {
			struct ibv_sge sge = {(uintptr_t)receives[i][slot], GRH + SIZE, mr->lkey};
			struct ibv_recv_wr wr = {.wr_id = i * SLOTS + slot, .sg_list = &sge, .num_sge = 1}, *bad;
			OK(ibv_post_recv(qps[i], &wr, &bad));
		}
		if (member)
			OK(ibv_attach_mcast(qps[i], &to.grh.dgid, 0xC000));
	}
	puts("ready");
	fflush(stdout);
	struct ibv_ah *ah = sender ? ibv_create_ah(pd, &to) : NULL;
	for (int number = 0; sender && number < MESSAGES; number++) {
		CHECK(ah);
		for (int at = 0; at < SIZE; at++)
			sends[at] = byte_of(number, at);
		struct ibv_sge sge = {(uintptr_t)sends, SIZE, send_mr->lkey};
		struct ibv_send_wr wr = {.sg_list = &sge,
					 .num_sge = 1,
					 .opcode = IBV_WR_SEND,
					 .send_flags = IBV_SEND_SIGNALED,
					 .wr.ud = {.ah = ah, .remote_qpn = 0xFFFFFF, .remote_qkey = QKEY}},
				   *bad;
		OK(ibv_post_send(qps[0], &wr, &bad));
		CHECK(wait_for(number + 1, 10000));
	}
	CHECK(wait_for(MESSAGES, 60000) == member);
	CHECK(!member || !wait_for(MESSAGES + 1, 200));
	CHECK(member || (got[0] == 0 && got[1] == 0));
	for (int i = 0; i < QPS; i++) {
		if (member)
			OK(ibv_detach_mcast(qps[i], &to.grh.dgid, 0xC000));
		OK(ibv_destroy_qp(qps[i]));
	}
	printf("%d and %d messages\n", got[0], got[1]);
	return 0;
}
