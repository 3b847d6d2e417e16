/*
 * A receiver that leaves as soon as it has seen all of its messages has acknowledged them: the sender gets all of its
 * completions.
 *
 *     leaving RUNS WAY [events]
 *
 * Each run has two processes and four QPs. Each message but the last is answered. WAY is how the receiver leaves: destroy
 * (its QPs), return, _exit, exec, or signal (SIGTERM). With "events" it sleeps until completions come. Says how many
 * senders failed, and with what.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "exchange.h"

enum { QPS = 4, SIZE = 16384, MESSAGES = 2, RECEIVE = 1000 };

static struct ibv_qp *qps[QPS];
static struct ibv_sge sge;

static void post(int i)
{
	struct ibv_send_wr wr = {.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
	OK(ibv_post_send(qps[i], &wr, &bad));
}

/* Exchanges all messages. Returns the status of the first that failed. */
static enum ibv_wc_status transfer(struct ibv_cq *cq, struct ibv_comp_channel *channel, int sends)
{
	int answers[QPS], left = QPS * (2 * MESSAGES - 1);
	for (int i = 0; i < QPS; i++) {
		answers[i] = MESSAGES - 1;
		if (sends)
			post(i);
	}
	double limit = seconds() + 60;
	while (left > 0) {
		struct ibv_wc wc[8];
		int found = ibv_poll_cq(cq, 8, wc);
		CHECK(found >= 0 && seconds() < limit);
		if (!found && channel) {
			struct ibv_cq *which;
			void *unused;
			OK(ibv_req_notify_cq(cq, 0));
			found = ibv_poll_cq(cq, 8, wc);
			if (!found) {
				OK(ibv_get_cq_event(channel, &which, &unused));
				ibv_ack_cq_events(which, 1);
			}
		}
		left -= found;
		for (int k = 0; k < found; k++) {
			if (wc[k].status)
				return wc[k].status;
			int i = wc[k].wr_id - RECEIVE;
			if (i >= 0 && answers[i] > 0) {
				answers[i]--;
				post(i);
			}
		}
	}
	return IBV_WC_SUCCESS;
}

static void leave(const char *way, int fd)
{
	if (!strcmp(way, "_exit"))
		_exit(0);
	if (!strcmp(way, "exec")) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	if (!strcmp(way, "signal"))
		raise(SIGTERM);
	if (!strcmp(way, "destroy")) {
		for (int i = 0; i < QPS; i++)
			OK(ibv_destroy_qp(qps[i]));
		/* The peer has to do with what was sent until now. */
		char end;
		CHECK(read(fd, &end, 1) == 0);
	}
	exit(0);
}

static void run(int fd, int sends, const char *way, int events)
{
	struct ibv_context *context = open_first();
	struct ibv_pd *pd = ibv_alloc_pd(context);
	struct ibv_comp_channel *channel = events && !sends ? ibv_create_comp_channel(context) : NULL;
	struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, channel, 0);
	char *memory = aligned_alloc(4096, SIZE);
	struct ibv_mr *mr = ibv_reg_mr(pd, memory, SIZE, ALL_ACCESS);
	CHECK(pd && cq && mr);
	sge = (struct ibv_sge){(uintptr_t)memory, SIZE, mr->lkey};
	for (int i = 0; i < QPS; i++) {
		struct ibv_qp_init_attr init = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.sq_sig_all = 1,
			.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1}};
		CHECK((qps[i] = ibv_create_qp(pd, &init)));
		struct endpoint mine = {.gid = address_of(context).grh.dgid, .qpn = qps[i]->qp_num}, peer;
		swap(fd, &mine, &peer);
		connect_rc(qps[i], &peer, 14, 7);
		for (int k = 0; k < MESSAGES; k++) {
			struct ibv_recv_wr wr = {.wr_id = RECEIVE + i, .sg_list = &sge, .num_sge = 1}, *bad;
			OK(ibv_post_recv(qps[i], &wr, &bad));
		}
	}
	struct endpoint none = {0}, peer;
	swap(fd, &none, &peer);
	int status = transfer(cq, channel, sends);
	if (!sends && !status)
		leave(way, fd);
	_exit(status);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3 || argc == 4);
	int runs = atoi(argv[1]), failed = 0;
	for (int run_number = 0; run_number < runs; run_number++) {
		int ends[2], status;
		CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
		pid_t children[2];
		for (int sends = 0; sends < 2; sends++) {
			children[sends] = fork();
			CHECK(children[sends] >= 0);
			if (!children[sends]) {
				close(ends[!sends]);
				run(ends[sends], sends, argv[2], argc == 4);
			}
		}
		close(ends[0]);
		close(ends[1]);
		CHECK(waitpid(children[1], &status, 0) == children[1]);
		CHECK(WIFEXITED(status));
		if (WEXITSTATUS(status)) {
			failed++;
			printf("run %d: %s\n", run_number, ibv_wc_status_str(WEXITSTATUS(status)));
		}
		CHECK(waitpid(children[0], &status, 0) == children[0]);
		CHECK(strcmp(argv[2], "signal") ? WIFEXITED(status) && !WEXITSTATUS(status)
						: WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	}
	printf("%d of %d senders failed\n", failed, runs);
	return 0;
}
