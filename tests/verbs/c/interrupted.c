/*
 * What can come in between: cancelled threads, signals, forks, and an end with everything alive.
 *
 *     interrupted cancel|pending|signals|fork|inherit|exit
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "check.h"

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cq;
static struct ibv_qp *qp;
static struct ibv_mr *mr;
static char memory[8192];

static void make(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	channel = ibv_create_comp_channel(context);
	cq = ibv_create_cq(context, 64, NULL, channel, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	struct ibv_qp_init_attr init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1}};
	qp = ibv_create_qp(pd, &init);
	CHECK(pd && channel && cq && mr && qp);
	connect_to(qp, qp->qp_num);
}

static void destroy(void)
{
	OK(ibv_destroy_qp(qp));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_destroy_comp_channel(channel));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_close_device(context));
}

static void post_write(uint64_t id)
{
	struct ibv_sge sge = {(uintptr_t)memory, 4096, mr->lkey};
	struct ibv_send_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)memory + 4096;
	wr.wr.rdma.rkey = mr->rkey;
	OK(ibv_post_send(qp, &wr, &bad));
}

static void still_works(void)
{
	for (int i = 0; i < 50; i++) {
		post_write(i);
		expect(cq, IBV_WC_SUCCESS, i);
	}
}

static void *wait_for_completion(void *unused)
{
	(void)unused;
	struct ibv_cq *which;
	void *cq_context;
	ibv_get_cq_event(channel, &which, &cq_context);
	return NULL;
}

static void *wait_for_event(void *unused)
{
	(void)unused;
	struct ibv_async_event event;
	ibv_get_async_event(context, &event);
	return NULL;
}

/* Works until it is cancelled, at whichever of its cancellation points. */
static void *work(void *unused)
{
	(void)unused;
	for (;;) {
		struct ibv_wc wc;
		ibv_poll_cq(cq, 1, &wc);
		struct ibv_port_attr attr;
		ibv_query_port(context, 1, &attr);
		struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
		if (other)
			ibv_dereg_mr(other);
		pthread_testcancel();
	}
	return NULL;
}

static void cancel(void)
{
	void *(*jobs[])(void *) = {wait_for_completion, wait_for_event, work};
	for (int round = 0; round < 30; round++) {
		pthread_t thread;
		CHECK(pthread_create(&thread, NULL, jobs[round % 3], NULL) == 0);
		usleep(2000 + 300 * round);
		CHECK(pthread_cancel(thread) == 0);
		void *result;
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		still_works();
	}
	/* Nobody has taken the event that was waited for in vain. */
	OK(ibv_req_notify_cq(cq, 0));
	post_write(1);
	struct ibv_cq *which;
	void *cq_context;
	OK(ibv_get_cq_event(channel, &which, &cq_context));
	CHECK(which == cq);
	ibv_ack_cq_events(cq, 1);
	expect(cq, IBV_WC_SUCCESS, 1);
	destroy();
}

/* Calls everything with a cancellation pending: only waiting for events may act on it. */
static void *call_everything(void *done)
{
	CHECK(pthread_cancel(pthread_self()) == 0);
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 1);
	struct ibv_context *own = ibv_open_device(list[0]);
	CHECK(own);
	ibv_free_device_list(list);
	struct ibv_context *same = ibv_import_device(own->cmd_fd);
	CHECK(same);
	OK(ibv_close_device(same));
	struct ibv_device_attr_ex attr;
	OK(ibv_query_device_ex(own, NULL, &attr));
	struct ibv_port_attr port;
	OK(ibv_query_port(own, 1, &port));
	struct ibv_gid_entry entry, table[4];
	OK(ibv_query_gid_ex(own, 1, 0, &entry, 0));
	CHECK(ibv_query_gid_table(own, table, 4, 0) >= 1);
	struct ibv_ah_attr address = address_of(own);
	extern int ibv_resolve_eth_l2_from_gid(struct ibv_context *, struct ibv_ah_attr *, uint8_t[6], uint16_t *);
	uint8_t mac[6];
	OK(ibv_resolve_eth_l2_from_gid(own, &address, mac, NULL));
	extern int ibv_read_sysfs_file(const char *, const char *, char *, size_t);
	char text[8];
	ibv_read_sysfs_file("/proc/sys/kernel", "ostype", text, sizeof text);

	struct ibv_pd *own_pd = ibv_alloc_pd(own);
	struct ibv_comp_channel *own_channel = ibv_create_comp_channel(own);
	struct ibv_cq *own_cq = ibv_create_cq(own, 16, NULL, own_channel, 0);
	struct ibv_mr *own_mr = ibv_reg_mr(own_pd, memory, sizeof memory, ALL_ACCESS);
	struct ibv_ah *ah = ibv_create_ah(own_pd, &address);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = 1}};
	struct ibv_srq *srq = ibv_create_srq(own_pd, &srq_init);
	struct ibv_qp_init_attr init = {.send_cq = own_cq,
					.recv_cq = own_cq,
					.qp_type = IBV_QPT_RC,
					.sq_sig_all = 1,
					.srq = srq,
					.cap = {.max_send_wr = 16, .max_send_sge = 1}};
	struct ibv_qp *own_qp = ibv_create_qp(own_pd, &init);
	CHECK(own_pd && own_channel && own_cq && own_mr && ah && srq && own_qp);
	connect_to(own_qp, own_qp->qp_num);
	OK(ibv_resize_cq(own_cq, 40));
	OK(ibv_req_notify_cq(own_cq, 0));
	for (int i = 0; i < 200; i++) {
		struct ibv_sge sge = {(uintptr_t)memory, 2048, own_mr->lkey};
		struct ibv_recv_wr receive = {.wr_id = i, .sg_list = &sge, .num_sge = 1}, *bad_receive;
		OK(ibv_post_srq_recv(srq, &receive, &bad_receive));
		struct ibv_send_wr send = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
		OK(ibv_post_send(own_qp, &send, &bad));
		expect(own_cq, IBV_WC_SUCCESS, i);
		expect(own_cq, IBV_WC_SUCCESS, i);
	}
	struct ibv_qp_init_attr queried;
	struct ibv_qp_attr qp_attr;
	OK(ibv_query_qp(own_qp, &qp_attr, IBV_QP_STATE, &queried));
	OK(ibv_destroy_qp(own_qp));
	OK(ibv_destroy_srq(srq));
	OK(ibv_destroy_ah(ah));
	OK(ibv_dereg_mr(own_mr));
	OK(ibv_destroy_cq(own_cq));
	OK(ibv_destroy_comp_channel(own_channel));
	OK(ibv_dealloc_pd(own_pd));
	OK(ibv_close_device(own));
	*(int *)done = 1;
	struct ibv_cq *which;
	void *cq_context;
	ibv_get_cq_event(channel, &which, &cq_context);
	return NULL;
}

static void pending(void)
{
	for (int round = 0; round < 5; round++) {
		int done = 0;
		pthread_t thread;
		void *result;
		CHECK(pthread_create(&thread, NULL, call_everything, &done) == 0);
		CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
		CHECK(done);
		still_works();
	}
	destroy();
}

static volatile sig_atomic_t signals;

static void on_signal(int number)
{
	(void)number;
	signals++;
}

static void with_signals(void)
{
	struct sigaction action = {.sa_handler = on_signal};
	sigaction(SIGALRM, &action, NULL);
	struct itimerval often = {{0, 500}, {0, 500}};
	setitimer(ITIMER_REAL, &often, NULL);
	int interrupted = 0;
	for (int i = 0; signals < 500; i++) {
		OK(ibv_req_notify_cq(cq, 0));
		post_write(i);
		struct ibv_cq *which;
		void *cq_context;
		while (ibv_get_cq_event(channel, &which, &cq_context) != 0) {
			CHECK(errno == EINTR);
			interrupted++;
		}
		ibv_ack_cq_events(cq, 1);
		expect(cq, IBV_WC_SUCCESS, i);
		struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
		CHECK(other);
		OK(ibv_dereg_mr(other));
	}
	struct itimerval never = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &never, NULL);
	destroy();
	printf("%d signals, %d calls interrupted\n", (int)signals, interrupted);
}

static void *transfer_all_the_time(void *stop)
{
	while (!*(volatile int *)stop) {
		post_write(7);
		struct ibv_wc wc;
		while (ibv_poll_cq(cq, 1, &wc) == 0)
			;
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	return NULL;
}

static _Noreturn void child_of_fork(union ibv_gid parents)
{
	/* The inherited context has become one of a device of our own. */
	union ibv_gid own;
	CHECK(ibv_query_gid(context, 1, 0, &own) == 0 && memcmp(&own, &parents, 16));
	struct ibv_alloc_dm_attr dm_attr = {.length = 4096};
	struct ibv_dm *dm = ibv_alloc_dm(context, &dm_attr);
	CHECK(dm);
	OK(ibv_free_dm(dm));
	make();
	still_works();
	destroy();
	_exit(0);
}

static void forks(void)
{
	union ibv_gid gid;
	CHECK(ibv_query_gid(context, 1, 0, &gid) == 0);
	int stop = 0;
	pthread_t thread;
	CHECK(pthread_create(&thread, NULL, transfer_all_the_time, &stop) == 0);
	for (int i = 0; i < 10; i++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0)
			child_of_fork(gid);
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	stop = 1;
	CHECK(pthread_join(thread, NULL) == 0);
	union ibv_gid after;
	CHECK(ibv_query_gid(context, 1, 0, &after) == 0 && !memcmp(&after, &gid, 16));
	still_works();
	/* And a child that does nothing but leave, by way of exit. */
	pid_t child = fork();
	if (child == 0)
		exit(0);
	int status;
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
	still_works();
	destroy();
}

/* What threads of the parent may be doing, with whatever locks, when it forks. */
static int stop;
static struct ibv_srq *srq;
static struct ibv_ah *ah;
static struct ibv_mw *mw;
static struct ibv_qp_ex *extended;
static struct ibv_cq_ex *polled;

static void *post_all_the_time(void *unused)
{
	struct ibv_recv_wr receive = {.num_sge = 0}, *bad_receive;
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		ibv_post_send(qp, &wr, &bad);
		ibv_post_srq_recv(srq, &receive, &bad_receive);
		ibv_wr_start(extended);
		ibv_wr_rdma_write(extended, 0, 0);
		ibv_wr_abort(extended);
	}
	return unused;
}

static void *poll_all_the_time(void *unused)
{
	struct ibv_wc wc[8];
	struct ibv_poll_cq_attr attr = {0};
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		CHECK(ibv_poll_cq(cq, 8, wc) >= 0);
		if (!ibv_start_poll(polled, &attr))
			ibv_end_poll(polled);
		ibv_req_notify_cq(cq, 0);
	}
	return unused;
}

static void *create_all_the_time(void *unused)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
		struct ibv_mr *other = ibv_reg_mr(pd, memory, 4096, IBV_ACCESS_LOCAL_WRITE);
		struct ibv_cq *other_cq = ibv_create_cq(context, 4, NULL, NULL, 0);
		struct ibv_pd *other_pd = ibv_alloc_pd(context);
		CHECK(other && other_cq && other_pd);
		OK(ibv_dereg_mr(other));
		OK(ibv_destroy_cq(other_cq));
		OK(ibv_dealloc_pd(other_pd));
	}
	return unused;
}

#define NULL_EIO(call) NULL_WITH(call, EIO)

static _Noreturn void child_that_inherits(void)
{
	alarm(20);
	struct ibv_send_wr wr = {.opcode = IBV_WR_RDMA_WRITE}, *bad;
	struct ibv_recv_wr receive = {.num_sge = 0}, *bad_receive;
	struct ibv_wc wc;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC};
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 1}};
	struct ibv_srq_attr srq_attr;
	struct ibv_ah_attr ah_attr = {.is_global = 1, .port_num = 1};
	struct ibv_poll_cq_attr poll = {0};
	struct ibv_mw_bind bind = {0};
	struct ibv_cq *which;
	void *cq_context;
	FAILS(ibv_post_send(qp, &wr, &bad), EIO);
	FAILS(ibv_post_recv(qp, &receive, &bad_receive), EIO);
	FAILS(ibv_post_srq_recv(srq, &receive, &bad_receive), EIO);
	FAILS(ibv_poll_cq(cq, 1, &wc), -EIO);
	FAILS(ibv_req_notify_cq(cq, 0), EIO);
	FAILS(ibv_start_poll(polled, &poll), EIO);
	ibv_wr_start(extended);
	ibv_wr_rdma_write(extended, 0, 0);
	FAILS(ibv_wr_complete(extended), EIO);
	FAILS(ibv_bind_mw(qp, mw, &bind), EIO);
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EIO);
	FAILS(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), EIO);
	FAILS(ibv_query_srq(srq, &srq_attr), EIO);
	FAILS(ibv_resize_cq(cq, 10), EIO);
	FAILS(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, 0), IBV_REREG_MR_ERR_CMD);
	FAILS(ibv_get_cq_event(channel, &which, &cq_context), -1);
	CHECK(errno == EIO);
	NULL_EIO(ibv_reg_mr(pd, memory, 4096, 0));
	NULL_EIO(ibv_create_qp(pd, &init));
	NULL_EIO(ibv_create_srq(pd, &srq_init));
	NULL_EIO(ibv_create_ah(pd, &ah_attr));
	NULL_EIO(ibv_alloc_mw(pd, IBV_MW_TYPE_1));
	NULL_EIO(ibv_qp_to_qp_ex(qp));
	ibv_ack_cq_events(cq, 1);
	FAILS(ibv_destroy_qp(qp), EIO);
	FAILS(ibv_destroy_srq(srq), EIO);
	FAILS(ibv_destroy_ah(ah), EIO);
	FAILS(ibv_dealloc_mw(mw), EIO);
	FAILS(ibv_dereg_mr(mr), EIO);
	FAILS(ibv_destroy_cq(cq), EIO);
	FAILS(ibv_destroy_comp_channel(channel), EIO);
	FAILS(ibv_dealloc_pd(pd), EIO);
	_exit(0);
}

static void inherits(void)
{
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 64, .max_sge = 1}};
	struct ibv_ah_attr ah_attr = address_of(context);
	struct ibv_cq_init_attr_ex cq_init = {.cqe = 16, .wc_flags = IBV_WC_STANDARD_FLAGS};
	srq = ibv_create_srq(pd, &srq_init);
	ah = ibv_create_ah(pd, &ah_attr);
	mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
	polled = ibv_create_cq_ex(context, &cq_init);
	struct ibv_qp_init_attr_ex init = {.send_cq = cq,
					   .recv_cq = cq,
					   .qp_type = IBV_QPT_RC,
					   .pd = pd,
					   .cap = {.max_send_wr = 1, .max_send_sge = 1},
					   .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
					   .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE};
	struct ibv_qp *own = ibv_create_qp_ex(context, &init);
	CHECK(srq && ah && mw && polled && own);
	extended = ibv_qp_to_qp_ex(own);
	void *(*jobs[])(void *) = {post_all_the_time, post_all_the_time, poll_all_the_time, create_all_the_time};
	pthread_t threads[4];
	for (int i = 0; i < 4; i++)
		CHECK(pthread_create(&threads[i], NULL, jobs[i], NULL) == 0);
	for (int i = 0; i < 60; i++) {
		/* Every third child is made behind the back of the C library, whose handlers do not run. */
		pid_t child = i % 3 == 2 ? (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : fork();
		CHECK(child >= 0);
		if (child == 0)
			child_that_inherits();
		int status;
		CHECK(waitpid(child, &status, 0) == child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
			fprintf(stderr, "child %d: status %#x\n", i, status);
			exit(1);
		}
	}
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(threads[i], NULL) == 0);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	make();
	still_works();
	if (!strcmp(argv[1], "cancel"))
		cancel();
	else if (!strcmp(argv[1], "pending"))
		pending();
	else if (!strcmp(argv[1], "signals"))
		with_signals();
	else if (!strcmp(argv[1], "fork"))
		forks();
	else if (!strcmp(argv[1], "inherit"))
		inherits();
	else
		post_write(1);
	puts("all right");
	return 0;
}
