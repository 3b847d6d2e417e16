/* Connections by the hundred.
 *
 * connections serve PORT                  takes every connection, and ends it when its client does
 * connections make ADDRESS PORT STEP…     makes and ends COUNT connections, one after the other (COUNT) or all at once
 *                                         (+COUNT), or makes them and keeps them (=COUNT), or ends those that were kept
 *                                         when the server has (-COUNT). Says so after each step, and waits for SIGUSR1.
 *
 * All QPs of a process share a protection domain and a completion queue.
 */
#include "check.h"

#include <ctype.h>
#include <rdma/rdma_cma.h>
#include <signal.h>

static struct rdma_event_channel *channel;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

static void make_qp(struct rdma_cm_id *id)
{
	if (!pd) {
		CHECK((pd = ibv_alloc_pd(id->verbs)));
		CHECK((cq = ibv_create_cq(id->verbs, 16, NULL, NULL, 0)));
	}
	struct ibv_qp_init_attr init = {.qp_type = IBV_QPT_RC, .send_cq = cq, .recv_cq = cq, .cap = {1, 1, 1, 1, 0}};
	OK(rdma_create_qp(id, pd, &init));
}

static void end(struct rdma_cm_id *id)
{
	rdma_destroy_qp(id);
	OK(rdma_destroy_id(id));
}

static int serve(const char *port)
{
	struct rdma_cm_id *listener;
	struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(atoi(port))};
	OK(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP));
	OK(rdma_bind_addr(listener, (struct sockaddr *)&in));
	OK(rdma_listen(listener, 1024));
	for (;;) {
		struct rdma_cm_event *event;
		OK(rdma_get_cm_event(channel, &event));
		struct rdma_cm_id *id = event->id;
		int kind = event->event;
		OK(rdma_ack_cm_event(event));
		if (kind == RDMA_CM_EVENT_CONNECT_REQUEST) {
			make_qp(id);
			/* Its client may have been killed. */
			if (rdma_accept(id, NULL))
				end(id);
		} else if (kind == RDMA_CM_EVENT_DISCONNECTED) {
			OK(rdma_disconnect(id));
			end(id);
		} else if (kind != RDMA_CM_EVENT_ESTABLISHED && kind != RDMA_CM_EVENT_TIMEWAIT_EXIT) {
			end(id);
		}
	}
}

/* Makes connections; returns when the server has answered for all. */
static void make(struct rdma_cm_id **ids, int count, struct sockaddr_in *to)
{
	struct rdma_conn_param param = {.retry_count = 7, .rnr_retry_count = 7};
	for (int i = 0; i < count; i++) {
		OK(rdma_create_id(channel, &ids[i], NULL, RDMA_PS_TCP));
		OK(rdma_resolve_addr(ids[i], NULL, (struct sockaddr *)to, 2000));
	}
	for (int done = 0; done < count;) {
		struct rdma_cm_event *event;
		OK(rdma_get_cm_event(channel, &event));
		struct rdma_cm_id *id = event->id;
		int kind = event->event, status = event->status;
		OK(rdma_ack_cm_event(event));
		switch (kind) {
		case RDMA_CM_EVENT_ADDR_RESOLVED:
			OK(rdma_resolve_route(id, 2000));
			break;
		case RDMA_CM_EVENT_ROUTE_RESOLVED:
			make_qp(id);
			OK(rdma_connect(id, &param));
			break;
		case RDMA_CM_EVENT_ESTABLISHED:
			done++;
			break;
		default:
			printf("%s %d\n", rdma_event_str(kind), status);
			exit(3);
		}
	}
}

static void disconnect(struct rdma_cm_id **ids, int count)
{
	for (int i = 0; i < count; i++)
		OK(rdma_disconnect(ids[i]));
}

static void end_when_disconnected(struct rdma_cm_id **ids, int count)
{
	for (int done = 0; done < count;) {
		struct rdma_cm_event *event;
		OK(rdma_get_cm_event(channel, &event));
		done += event->event == RDMA_CM_EVENT_DISCONNECTED;
		OK(rdma_ack_cm_event(event));
	}
	for (int i = 0; i < count; i++)
		end(ids[i]);
}

static void step(const char *what, struct sockaddr_in *to)
{
	static struct rdma_cm_id *ids[1024];
	char kind = isdigit(*what) ? '1' : *what++;
	int count = atoi(what);
	CHECK(count <= 1024);
	double began = seconds();
	switch (kind) {
	case '1':
		for (int i = 0; i < count; i++) {
			make(ids, 1, to);
			disconnect(ids, 1);
			end_when_disconnected(ids, 1);
		}
		break;
	case '=':
		make(ids, count, to);
		break;
	case '-':
		end_when_disconnected(ids, count);
		break;
	case '+':
		make(ids, count, to);
		disconnect(ids, count);
		end_when_disconnected(ids, count);
	}
	printf("done in %.3f s\n", seconds() - began);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	CHECK(argc >= 3);
	sigset_t signals;
	sigemptyset(&signals);
	sigaddset(&signals, SIGUSR1);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	CHECK((channel = rdma_create_event_channel()));
	if (!strcmp(argv[1], "serve"))
		return serve(argv[2]);
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[3]))};
	CHECK(inet_pton(AF_INET, argv[2], &to.sin_addr) == 1);
	for (int i = 4; i < argc; i++) {
		int signal;
		step(argv[i], &to);
		sigwait(&signals, &signal);
	}
	ibv_destroy_cq(cq);
	ibv_dealloc_pd(pd);
	rdma_destroy_event_channel(channel);
	return 0;
}
