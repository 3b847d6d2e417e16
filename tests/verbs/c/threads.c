/*
 * Eight threads that post and poll: on queue pairs and completion queues of their own, or all on the same ones.
 *
 *     threads separate|shared MESSAGES
 *
 * Every message carries its thread and number; every one must arrive once, and the data must be right.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

enum { THREADS = 8, DEPTH = 32, SIZE = 512 };

struct pair {
	struct ibv_qp *sender, *receiver;
	struct ibv_cq *send_cq, *recv_cq;
	struct ibv_mr *mr;
	/* DEPTH places to send from for each thread, and DEPTH * THREADS to receive into. */
	char *memory;
};

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct pair pairs[THREADS];
static int shared, messages;
static atomic_int received[THREADS], sent[THREADS], to_receive;
/* Which send places of which thread are free. */
static atomic_uint free_places[THREADS];

static char *place_to_send(struct pair *pair, int thread, int place)
{
	return pair->memory + (thread * DEPTH + place) * SIZE;
}

static char *place_to_receive(struct pair *pair, int place)
{
	return pair->memory + (THREADS * DEPTH + place) * SIZE;
}

static void post_receive(struct pair *pair, int place)
{
	struct ibv_sge sge = {(uintptr_t)place_to_receive(pair, place), SIZE, pair->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = place, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(pair->receiver, &wr, &bad));
}

static void make(struct pair *pair)
{
	pair->send_cq = ibv_create_cq(context, 2 * THREADS * DEPTH, NULL, NULL, 0);
	pair->recv_cq = ibv_create_cq(context, 2 * THREADS * DEPTH, NULL, NULL, 0);
	struct ibv_qp_init_attr init = {.send_cq = pair->send_cq,
					.recv_cq = pair->recv_cq,
					.qp_type = IBV_QPT_RC,
					.cap = {.max_send_wr = THREADS * DEPTH,
						.max_recv_wr = THREADS * DEPTH,
						.max_send_sge = 1,
						.max_recv_sge = 1}};
	pair->sender = ibv_create_qp(pd, &init);
	pair->receiver = ibv_create_qp(pd, &init);
	CHECK(pair->send_cq && pair->recv_cq && pair->sender && pair->receiver);
	connect_to(pair->sender, pair->receiver->qp_num);
	connect_to(pair->receiver, pair->sender->qp_num);
	size_t size = 2 * THREADS * DEPTH * SIZE;
	pair->memory = aligned_alloc(4096, size);
	pair->mr = ibv_reg_mr(pd, pair->memory, size, ALL_ACCESS);
	CHECK(pair->mr);
	for (int place = 0; place < THREADS * DEPTH; place++)
		post_receive(pair, place);
}

static void destroy(struct pair *pair)
{
	OK(ibv_destroy_qp(pair->sender));
	OK(ibv_destroy_qp(pair->receiver));
	OK(ibv_destroy_cq(pair->send_cq));
	OK(ibv_destroy_cq(pair->recv_cq));
	OK(ibv_dereg_mr(pair->mr));
	free(pair->memory);
}

static void check_message(struct pair *pair, const struct ibv_wc *wc)
{
	const char *message = place_to_receive(pair, wc->wr_id);
	uint32_t thread, number;
	memcpy(&thread, message, 4);
	memcpy(&number, message + 4, 4);
	CHECK(wc->byte_len == SIZE && thread < THREADS && number < (uint32_t)messages);
	for (int i = 8; i < SIZE; i++)
		CHECK((unsigned char)message[i] == (unsigned char)(thread + number + i));
	received[thread]++;
	to_receive--;
}

static void poll_both(struct pair *pair)
{
	struct ibv_wc wc[4];
	int found = ibv_poll_cq(pair->send_cq, 4, wc);
	CHECK(found >= 0);
	for (int i = 0; i < found; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS);
		int thread = wc[i].wr_id >> 32, place = (uint32_t)wc[i].wr_id;
		atomic_fetch_or(&free_places[thread], 1u << place);
	}
	found = ibv_poll_cq(pair->recv_cq, 4, wc);
	CHECK(found >= 0);
	for (int i = 0; i < found; i++) {
		CHECK(wc[i].status == IBV_WC_SUCCESS);
		check_message(pair, &wc[i]);
		post_receive(pair, wc[i].wr_id);
	}
}

static void *run(void *argument)
{
	int thread = (int)(intptr_t)argument;
	struct pair *pair = &pairs[shared ? 0 : thread];
	double limit = seconds() + 100;
	while (to_receive > 0 || sent[thread] < messages) {
		CHECK(seconds() < limit);
		unsigned places_now = atomic_load(&free_places[thread]);
		if (sent[thread] < messages && places_now) {
			int place = __builtin_ctz(places_now);
			atomic_fetch_and(&free_places[thread], ~(1u << place));
			char *message = place_to_send(pair, thread, place);
			uint32_t header[2] = {thread, sent[thread]++};
			memcpy(message, header, 8);
			for (int i = 8; i < SIZE; i++)
				message[i] = (char)(header[0] + header[1] + i);
			struct ibv_sge sge = {(uintptr_t)message, SIZE, pair->mr->lkey};
			struct ibv_send_wr wr = {.wr_id = (uint64_t)thread << 32 | place,
						 .sg_list = &sge,
						 .num_sge = 1,
						 .opcode = IBV_WR_SEND,
						 .send_flags = IBV_SEND_SIGNALED},
					   *bad;
			OK(ibv_post_send(pair->sender, &wr, &bad));
		}
		poll_both(pair);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	shared = !strcmp(argv[1], "shared");
	messages = atoi(argv[2]);
	to_receive = THREADS * messages;
	context = open_first();
	pd = ibv_alloc_pd(context);
	int count = shared ? 1 : THREADS;
	for (int i = 0; i < count; i++)
		make(&pairs[i]);
	pthread_t threads[THREADS];
	for (int i = 0; i < THREADS; i++) {
		free_places[i] = ~0u;
		CHECK(pthread_create(&threads[i], NULL, run, (void *)(intptr_t)i) == 0);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(received[i] == messages && sent[i] == messages);
	for (int i = 0; i < count; i++)
		destroy(&pairs[i]);
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
	printf("%d messages by %d threads, %s\n", THREADS * messages, THREADS, argv[1]);
	return 0;
}
