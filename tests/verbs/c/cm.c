/* Connections as scripts of events, each told on a line: "EVENT STATUS", and "data LENGTH" where there is some.
 *
 * cm listen PORT accept|reject|hold|once|end [BACKLOG]   accept: disconnects when its peer does. once: ends then.
 *                                                    end: disconnects when it is established, and ends then.
 *                                                    reject: with 148 bytes. hold: never answers.
 * cm bind PORT [ADDRESS]                             as `listen`, and ends.
 * cm connect ADDRESS PORT [COUNT]                    ends with the status of what was not ESTABLISHED; else waits for
 *                                                    DISCONNECTED.
 * cm leave ADDRESS PORT                              connects and disconnects.
 * cm answer PORT                                     answers SIDR requests, until the first datagram
 * cm ask ADDRESS PORT                                asks, and sends a datagram to the answering side
 *
 * With CM_STAYS in the environment those that end well say "done" and stay until they are killed.
 */
#include "check.h"

#include <poll.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>

static struct rdma_event_channel *channel;
static double began;
static int established, disconnected;

static double now(void)
{
	struct timespec time;
	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static struct rdma_cm_event *next(void)
{
	struct rdma_cm_event *event;
	OK(rdma_get_cm_event(channel, &event));
	printf("%s %d after %.3f s\n", rdma_event_str(event->event), event->status, now() - began);
	if (event->event == RDMA_CM_EVENT_REJECTED || event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
		const unsigned char *data = event->param.conn.private_data;
		unsigned length = event->param.conn.private_data_len, used = length;
		while (used && !data[used - 1])
			used--;
		printf("data %u of %u\n", used, length);
	}
	fflush(stdout);
	return event;
}

static struct sockaddr_in to(const char *address, const char *port)
{
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	CHECK(inet_pton(AF_INET, address, &in.sin_addr) == 1);
	return in;
}

static void make_qp(struct rdma_cm_id *id)
{
	struct ibv_qp_init_attr init = {.qp_type = id->qp_type, .cap = {1, 1, 1, 1, 0}};
	OK(rdma_create_qp(id, NULL, &init));
}

static int done(void)
{
	puts("done");
	fflush(stdout);
	while (getenv("CM_STAYS"))
		pause();
	return 0;
}

static struct rdma_cm_id *bound(enum rdma_port_space space, const char *address, const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in in = to(address, port);
	OK(rdma_create_id(channel, &id, NULL, space));
	if (rdma_bind_addr(id, (struct sockaddr *)&in)) {
		printf("bind: %s\n", strerror(errno));
		exit(2);
	}
	return id;
}

static int serve(const char *port, const char *how, int backlog)
{
	OK(rdma_listen(bound(RDMA_PS_TCP, "0.0.0.0", port), backlog));
	puts("listening");
	fflush(stdout);
	if (!strcmp(how, "hold"))
		for (;;)
			pause();
	for (;;) {
		struct rdma_cm_event *event = next();
		struct rdma_cm_id *id = event->id;
		int kind = event->event;
		if (kind == RDMA_CM_EVENT_CONNECT_REQUEST && !strcmp(how, "reject")) {
			char data[148];
			memset(data, 'x', sizeof data);
			OK(rdma_reject(id, data, sizeof data));
		} else if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(id);
			OK(rdma_accept(id, NULL));
		} else if (kind == RDMA_CM_EVENT_DISCONNECTED ||
			   (kind == RDMA_CM_EVENT_ESTABLISHED && !strcmp(how, "end"))) {
			OK(rdma_disconnect(id));
		}
		OK(rdma_ack_cm_event(event));
		if (kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_UNREACHABLE) {
			rdma_destroy_qp(id);
			OK(rdma_destroy_id(id));
			if (!strcmp(how, "once") || !strcmp(how, "end"))
				return done();
		}
	}
}

/* The datagrams of a process that asks or answers. */
static char message[40 + 8];

static void receive(struct rdma_cm_id *id)
{
	struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof message);
	CHECK(mr);
	OK(rdma_post_recv(id, NULL, message, sizeof message, mr));
}

static int answer(const char *port)
{
	OK(rdma_listen(bound(RDMA_PS_UDP, "0.0.0.0", port), 0));
	/* A client that did not receive the answer asks again, as a new one. */
	struct rdma_cm_id *first = NULL;
	for (;;) {
		struct ibv_wc wc;
		if (first && ibv_poll_cq(first->recv_cq, 1, &wc)) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			return done();
		}
		struct pollfd readable = {.fd = channel->fd, .events = POLLIN};
		if (poll(&readable, 1, 10) < 1)
			continue;
		struct rdma_cm_event *event = next();
		CHECK(event->event == RDMA_CM_EVENT_CONNECT_REQUEST);
		struct rdma_cm_id *id = event->id;
		if (!first) {
			make_qp(first = id);
			receive(id);
		}
		struct rdma_conn_param param = {.qp_num = first->qp->qp_num};
		OK(rdma_accept(id, &param));
		OK(rdma_ack_cm_event(event));
	}
}

/* Counts what happens to the connections. Returns the event's kind. */
static int step(void)
{
	struct rdma_cm_event *event = next();
	int kind = event->event;
	established += kind == RDMA_CM_EVENT_ESTABLISHED;
	disconnected += kind == RDMA_CM_EVENT_DISCONNECTED;
	OK(rdma_ack_cm_event(event));
	if (kind == RDMA_CM_EVENT_REJECTED || kind == RDMA_CM_EVENT_UNREACHABLE || kind == RDMA_CM_EVENT_CONNECT_ERROR)
		exit(3);
	return kind;
}

static void until(int kind)
{
	while (step() != kind)
		;
}

static struct rdma_cm_id *start(enum rdma_port_space space, const char *address, const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in in = to(address, port);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	OK(rdma_create_id(channel, &id, NULL, space));
	OK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&in, 2000));
	until(RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	until(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	began = now();
	OK(rdma_connect(id, &param));
	return id;
}

static int ask(const char *address, const char *port)
{
	struct rdma_cm_id *id = start(RDMA_PS_UDP, address, port);
	struct rdma_cm_event *event = next();
	if (event->event != RDMA_CM_EVENT_ESTABLISHED)
		exit(3);
	struct rdma_ud_param *to = &event->param.ud;
	struct ibv_ah *ah = ibv_create_ah(id->pd, &to->ah_attr);
	struct ibv_mr *mr = rdma_reg_msgs(id, message, sizeof message);
	struct ibv_wc wc;
	CHECK(ah && mr);
	OK(rdma_post_ud_send(id, NULL, message, 8, mr, IBV_SEND_SIGNALED, ah, to->qp_num));
	while (!ibv_poll_cq(id->send_cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS);
	OK(rdma_ack_cm_event(event));
	return done();
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	OK(rdma_destroy_id(id));
}

int main(int argc, char **argv)
{
	CHECK(argc >= 3);
	began = now();
	channel = rdma_create_event_channel();
	CHECK(channel);
	if (!strcmp(argv[1], "listen"))
		return serve(argv[2], argv[3], argc > 4 ? atoi(argv[4]) : 0);
	if (!strcmp(argv[1], "bind")) {
		OK(rdma_listen(bound(RDMA_PS_TCP, argc > 3 ? argv[3] : "0.0.0.0", argv[2]), 0));
		puts("bound");
		return done();
	}
	if (!strcmp(argv[1], "answer"))
		return answer(argv[2]);
	if (!strcmp(argv[1], "ask"))
		return ask(argv[2], argv[3]);
	int count = argc > 4 ? atoi(argv[4]) : 1;
	struct rdma_cm_id *ids[count];
	for (int i = 0; i < count; i++)
		ids[i] = start(RDMA_PS_TCP, argv[2], argv[3]);
	while (established < count)
		step();
	if (!strcmp(argv[1], "leave"))
		for (int i = 0; i < count; i++)
			OK(rdma_disconnect(ids[i]));
	while (disconnected < count)
		step();
	for (int i = 0; i < count; i++) {
		OK(rdma_disconnect(ids[i]));
		end(ids[i]);
	}
	rdma_destroy_event_channel(channel);
	return done();
}
