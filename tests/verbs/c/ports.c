/* Watches the port of a device from two contexts, and says of each event what the verbs and sysfs show by then. After an
 * event of the first context, another device of the process sends to this one: what comes of that is said as well. Each
 * line of output is whole.
 *
 *   ports WATCHED [OTHER] */
#include "check.h"

#include <poll.h>

#define CONTEXTS 2

/* Exported for other parts of rdma-core: no header has it. */
int ibv_read_sysfs_file(const char *dir, const char *file, char *buf, size_t size);

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	struct ibv_qp *qp;
	char memory[64];
};

static struct ibv_device *named(const char *name)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int i = 0; list && list[i]; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			return list[i];
	fprintf(stderr, "no device %s\n", name);
	exit(1);
}

static void open_end(struct end *end, const char *name)
{
	end->context = ibv_open_device(named(name));
	CHECK(end->context);
	end->pd = ibv_alloc_pd(end->context);
	end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	CHECK(end->pd && end->cq);
	end->mr = ibv_reg_mr(end->pd, end->memory, sizeof(end->memory), IBV_ACCESS_LOCAL_WRITE);
	CHECK(end->mr);
}

static void make_qp(struct end *end)
{
	struct ibv_qp_init_attr init = {
		.send_cq = end->cq, .recv_cq = end->cq, .cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};

	end->qp = ibv_create_qp(end->pd, &init);
	CHECK(end->qp);
	OK(to_init(end->qp));
}

/* A send fails within 170 ms: five timeouts of 34 ms. */
static void connect_impatiently(struct end *end, struct end *peer)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RTR,
				   .path_mtu = IBV_MTU_1024,
				   .dest_qp_num = peer->qp->qp_num,
				   .max_dest_rd_atomic = 1,
				   .min_rnr_timer = 12,
				   .ah_attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}}};

	OK(ibv_query_gid(peer->context, 1, 0, &attr.ah_attr.grh.dgid));
	OK(ibv_modify_qp(end->qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr.qp_state = IBV_QPS_RTS;
	attr.timeout = 13;
	attr.retry_cnt = 4;
	attr.rnr_retry = 7;
	attr.max_rd_atomic = 1;
	OK(ibv_modify_qp(end->qp, &attr,
			 IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				 IBV_QP_MAX_QP_RD_ATOMIC));
}

static int send_once(struct end *from, struct end *to)
{
	struct ibv_sge sge = {(uintptr_t)from->memory, sizeof(from->memory), from->mr->lkey};
	struct ibv_sge room = {(uintptr_t)to->memory, sizeof(to->memory), to->mr->lkey};
	struct ibv_recv_wr receive = {.sg_list = &room, .num_sge = 1}, *bad_receive;
	struct ibv_send_wr send = {
		.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED};
	struct ibv_send_wr *bad_send;
	struct ibv_wc wc;
	int status;

	make_qp(from);
	make_qp(to);
	connect_impatiently(from, to);
	connect_impatiently(to, from);
	OK(ibv_post_recv(to->qp, &receive, &bad_receive));
	OK(ibv_post_send(from->qp, &send, &bad_send));
	status = completion_of(from->cq).status;
	OK(ibv_destroy_qp(from->qp));
	OK(ibv_destroy_qp(to->qp));
	/* What was received, if anything was. */
	while (ibv_poll_cq(to->cq, 1, &wc) > 0)
		;
	return status;
}

/* What the files of a port say, by the path in /sys and by that of the device, which are the same. */
static const char *shown(struct ibv_context *context, const char *file)
{
	static char text[3][256];
	static int next;
	char by_device[256], path[256], at_device[320];
	char *into = text[next++ % 3];
	FILE *stream;

	snprintf(path, sizeof(path), "/sys/class/infiniband/%s/ports/1/%s", ibv_get_device_name(context->device), file);
	stream = fopen(path, "r");
	CHECK(stream && fgets(into, 256, stream));
	fclose(stream);
	into[strcspn(into, "\n")] = 0;
	snprintf(at_device, sizeof(at_device), "ports/1/%s", file);
	CHECK(ibv_read_sysfs_file(context->device->ibdev_path, at_device, by_device, sizeof(by_device)) > 0);
	if (strcmp(into, by_device))
		printf("%s is %s and %s\n", file, into, by_device);
	return into;
}

static void tell(int number, struct ibv_context *context, struct ibv_async_event *event)
{
	struct ibv_port_attr port;
	int failed = ibv_query_port(context, 1, &port);
	char verbs[64];

	snprintf(verbs, sizeof(verbs), "%d %d width %d speed %d", port.state, port.phys_state, port.active_width,
		 port.active_speed);
	printf("context %d: %s, port %d: verbs %s, sysfs %s, %s, %s\n", number,
	       event ? ibv_event_type_str(event->event_type) : "begin", event ? event->element.port_num : 1,
	       failed ? strerror(failed) : verbs, shown(context, "state"), shown(context, "phys_state"),
	       shown(context, "rate"));
}

/* Gives a queue pair a receive that stays. */
static void wait_for_nothing(struct end *end)
{
	struct ibv_sge room = {(uintptr_t)end->memory, sizeof(end->memory), end->mr->lkey};
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = &room, .num_sge = 1}, *bad;

	make_qp(end);
	OK(ibv_post_recv(end->qp, &receive, &bad));
}

int main(int argc, char **argv)
{
	struct end watched = {0}, idle = {0}, other = {0};
	struct ibv_context *contexts[CONTEXTS];
	struct pollfd fds[CONTEXTS];

	CHECK(argc == 2 || argc == 3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	open_end(&watched, argv[1]);
	if (argc == 3)
		open_end(&other, argv[2]);
	open_end(&idle, argv[1]);
	wait_for_nothing(&idle);
	contexts[0] = watched.context;
	for (int i = 1; i < CONTEXTS; i++)
		CHECK((contexts[i] = ibv_open_device(watched.context->device)));
	tell(0, contexts[0], NULL);
	if (argc == 3)
		printf("send: %d\n", send_once(&other, &watched));
	for (;;) {
		for (int i = 0; i < CONTEXTS; i++)
			fds[i] = (struct pollfd){contexts[i]->async_fd, POLLIN, 0};
		CHECK(poll(fds, CONTEXTS, -1) > 0);
		/* The first context comes last, so that a line about the send ends what is said of a change. */
		for (int i = CONTEXTS - 1; i >= 0; i--) {
			struct ibv_async_event event;

			if (!fds[i].revents)
				continue;
			OK(ibv_get_async_event(contexts[i], &event));
			tell(i, contexts[i], &event);
			ibv_ack_async_event(&event);
			if (i == 0 && event.event_type == IBV_EVENT_DEVICE_FATAL)
				printf("flushed: %d\n", completion_of(idle.cq).status);
			else if (i == 0 && argc == 3)
				printf("send: %d\n", send_once(&other, &watched));
		}
	}
}
