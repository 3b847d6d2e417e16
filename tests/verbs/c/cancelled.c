/*
 * Threads that are cancelled in the middle of calls, with datagrams that really leave, to peers that are not there.
 *
 *     cancelled GID-INDEX NETWORK        such as: cancelled 1 10.77.0
 *
 * Each job runs with a cancellation pending all the time, which may act only where the job says so: a call that is
 * a cancellation point is found at once. Then each is cancelled at any moment, many times over.
 */
#include <pthread.h>
#include <stdbool.h>

#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *connected, *datagrams;
static struct ibv_ah *ahs[240];
static struct ibv_mr *mr;
static char memory[8192];
static int gid_index;
static const char *network;

static struct ibv_ah_attr host(int number)
{
	char text[32];
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64, .sgid_index = gid_index}};
	snprintf(text, sizeof text, "%s.%d", network, number);
	attr.grh.dgid.raw[10] = attr.grh.dgid.raw[11] = 0xff;
	CHECK(inet_pton(AF_INET, text, attr.grh.dgid.raw + 12) == 1);
	return attr;
}

static struct ibv_qp *create(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = type,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	return qp;
}

/* There is no timeout: without an acknowledgement it waits for ever. */
static void ready(struct ibv_qp *qp)
{
	OK(to_init(qp));
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = 5,
				   .rq_psn = 77,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 1,
				   .ah_attr = host(2)};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			IBV_QP_MIN_RNR_TIMER;
	OK(ibv_modify_qp(qp, &attr, mask));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS, .sq_psn = 77, .max_rd_atomic = 1};
	mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	OK(ibv_modify_qp(qp, &attr, mask));
}

static int post(struct ibv_qp *qp, struct ibv_ah *ah, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)memory, 512, mr->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = 5;
		wr.wr.ud.remote_qkey = QKEY;
	}
	return ibv_post_send(qp, &wr, &bad);
}

static void poll(int count)
{
	struct ibv_wc wc[16];
	for (int i = 0; i < count; i++)
		CHECK(ibv_poll_cq(cq, 16, wc) >= 0);
}

static void post_to_one_peer(void)
{
	int status = post(connected, NULL, IBV_WR_SEND);
	CHECK(status == 0 || status == ENOMEM);
}

/* The way to each of them is asked for, and their hardware addresses as well. */
static void post_to_many_peers(void)
{
	static int next;
	int status = post(datagrams, ahs[next++ % 240], IBV_WR_SEND);
	CHECK(status == 0 || status == ENOMEM);
	poll(1);
}

static void poll_often(void)
{
	poll(1000);
}

static void receive(void)
{
	struct ibv_sge sge = {(uintptr_t)memory, 512, mr->lkey};
	struct ibv_recv_wr wr = {.sg_list = &sge, .num_sge = 1}, *bad;
	int status = ibv_post_recv(datagrams, &wr, &bad);
	CHECK(status == 0 || status == ENOMEM);
}

static void arm(void)
{
	OK(ibv_req_notify_cq(cq, 0));
}

static void register_memory(void)
{
	struct ibv_mr *other = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	CHECK(other);
	OK(ibv_dereg_mr(other));
}

static void create_and_modify(void)
{
	struct ibv_qp *qp = create(IBV_QPT_RC);
	ready(qp);
	OK(post(qp, NULL, IBV_WR_SEND));
	OK(ibv_destroy_qp(qp));
}

static void join_a_group(void)
{
	union ibv_gid group = {.raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 239, 1, 2, 3}};
	struct ibv_qp *qp = create(IBV_QPT_UD);
	OK(to_init(qp));
	OK(ibv_attach_mcast(qp, &group, 0));
	OK(ibv_detach_mcast(qp, &group, 0));
	OK(ibv_destroy_qp(qp));
}

static const struct job {
	const char *name;
	void (*call)(void);
} jobs[] = {
	{"post_send", post_to_one_peer},
	{"post_send to many", post_to_many_peers},
	{"poll_cq", poll_often},
	{"post_recv", receive},
	{"req_notify_cq", arm},
	{"reg_mr", register_memory},
	{"create_qp and modify_qp", create_and_modify},
	{"attach_mcast", join_a_group},
};
#define JOBS (sizeof jobs / sizeof *jobs)

static const struct job *current;
static volatile bool done;

static void *with_one_pending(void *unused)
{
	(void)unused;
	CHECK(pthread_cancel(pthread_self()) == 0);
	for (int i = 0; i < 300; i++)
		current->call();
	done = true;
	pthread_testcancel();
	return NULL;
}

static void *for_ever(void *unused)
{
	(void)unused;
	for (;;) {
		current->call();
		pthread_testcancel();
	}
	return NULL;
}

static void *wait_for_event(void *unused)
{
	(void)unused;
	struct ibv_cq *which;
	void *cq_context;
	for (;;) {
		CHECK(ibv_get_cq_event(channel, &which, &cq_context) == 0);
		ibv_ack_cq_events(which, 1);
	}
	return NULL;
}

static void join(pthread_t thread)
{
	void *result;
	int status = pthread_join(thread, &result);
	if (status || result != PTHREAD_CANCELED) {
		fprintf(stderr, "%s: the thread was not cancelled: %s\n", current->name, strerror(status));
		exit(1);
	}
}

/* Everything that a lock never released would stop. */
static void still_works(void)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	OK(ibv_query_qp(connected, &attr, IBV_QP_STATE, &init));
	CHECK(attr.qp_state == IBV_QPS_RTS);
	create_and_modify();
	for (int i = 0; i < 50; i++)
		post_to_many_peers();
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	gid_index = atoi(argv[1]);
	network = argv[2];
	/* A lock that is held for ever ends the program. */
	alarm(240);
	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 4096, NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	CHECK(pd && channel && cq && mr);
	connected = create(IBV_QPT_RC);
	datagrams = create(IBV_QPT_UD);
	ready(connected);
	ready(datagrams);
	for (int i = 0; i < 240; i++) {
		struct ibv_ah_attr attr = host(10 + i);
		CHECK(ahs[i] = ibv_create_ah(pd, &attr));
	}
	for (current = jobs; current < jobs + JOBS; current++) {
		pthread_t thread;
		done = false;
		CHECK(pthread_create(&thread, NULL, with_one_pending, NULL) == 0);
		join(thread);
		if (!done) {
			fprintf(stderr, "%s is a cancellation point\n", current->name);
			return 1;
		}
		still_works();
		for (int round = 0; round < 20; round++) {
			CHECK(pthread_create(&thread, NULL, for_ever, NULL) == 0);
			usleep(500 + 170 * round);
			CHECK(pthread_cancel(thread) == 0);
			join(thread);
			still_works();
		}
	}
	current = &(struct job){"get_cq_event", NULL};
	for (int round = 0; round < 20; round++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, wait_for_event, NULL) == 0);
		usleep(500 + 170 * round);
		CHECK(pthread_cancel(thread) == 0);
		join(thread);
		still_works();
	}
	puts("all right");
	return 0;
}
