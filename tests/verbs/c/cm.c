/* Connections as scripts of events, each told on a line: "EVENT STATUS", and "data LENGTH" where there is some.
 *
 * cm listen PORT accept|reject|hold|once [BACKLOG]   accept: disconnects when its peer does. once: ends then.
 *                                                    reject: with 148 bytes. hold: answers nobody.
 * cm bind PORT                                       as `listen`, and ends.
 * cm connect ADDRESS PORT [COUNT]                    ends with the status of what was not ESTABLISHED; else waits for
 *                                                    DISCONNECTED.
 * cm leave ADDRESS PORT                              connects and disconnects.
 */
#include "check.h"

#include <rdma/rdma_cma.h>

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
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .cap = {1, 1, 1, 1, 0}};
	OK(rdma_create_qp(id, NULL, &init));
}

static struct rdma_cm_id *bound(const char *address, const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in in = to(address, port);
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	if (rdma_bind_addr(id, (struct sockaddr *)&in)) {
		printf("bind: %s\n", strerror(errno));
		exit(2);
	}
	return id;
}

static int serve(const char *port, const char *how, int backlog)
{
	OK(rdma_listen(bound("0.0.0.0", port), backlog));
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
		} else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
			OK(rdma_disconnect(id));
		}
		OK(rdma_ack_cm_event(event));
		if (kind == RDMA_CM_EVENT_DISCONNECTED || kind == RDMA_CM_EVENT_UNREACHABLE) {
			rdma_destroy_qp(id);
			OK(rdma_destroy_id(id));
			if (!strcmp(how, "once"))
				return 0;
		}
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

static struct rdma_cm_id *start(const char *address, const char *port)
{
	struct rdma_cm_id *id;
	struct sockaddr_in in = to(address, port);
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	OK(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP));
	OK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&in, 2000));
	until(RDMA_CM_EVENT_ADDR_RESOLVED);
	OK(rdma_resolve_route(id, 2000));
	until(RDMA_CM_EVENT_ROUTE_RESOLVED);
	make_qp(id);
	began = now();
	OK(rdma_connect(id, &param));
	return id;
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
		OK(rdma_listen(bound("0.0.0.0", argv[2]), 0));
		puts("bound");
		return 0;
	}
	int count = argc > 4 ? atoi(argv[4]) : 1;
	struct rdma_cm_id *ids[count];
	for (int i = 0; i < count; i++)
		ids[i] = start(argv[2], argv[3]);
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
	puts("done");
	return 0;
}
