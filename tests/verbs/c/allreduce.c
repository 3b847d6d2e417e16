/*
 * A ring all-reduce among processes, with verbs found as NCCL's transport does: dlopen, and dlvsym with the version of
 * each symbol. Each process writes to the next over several queue pairs, the end of each write with immediate data.
 *
 *     allreduce RANKS QPS-PER-PEER
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "check.h"

#undef ibv_query_port
#undef ibv_reg_mr

enum { MOST_RANKS = 8, MOST_QPS = 16, PER_CHUNK = 24 * 1024, GID_INDEX = 1, PSN = 77 };

/* What the processes tell each other, in memory that they share. */
static struct {
	union ibv_gid gid[MOST_RANKS];
	uint32_t to_next[MOST_RANKS][MOST_QPS], from_previous[MOST_RANKS][MOST_QPS];
	uint64_t address[MOST_RANKS];
	uint32_t rkey[MOST_RANKS];
	_Atomic int arrived;
} *shared;

static struct {
	struct ibv_device **(*get_device_list)(int *);
	void (*free_device_list)(struct ibv_device **);
	struct ibv_context *(*open_device)(struct ibv_device *);
	int (*query_port)(struct ibv_context *, uint8_t, struct ibv_port_attr *);
	int (*query_gid)(struct ibv_context *, uint8_t, int, union ibv_gid *);
	struct ibv_pd *(*alloc_pd)(struct ibv_context *);
	struct ibv_mr *(*reg_mr)(struct ibv_pd *, void *, size_t, uint64_t, unsigned);
	struct ibv_cq *(*create_cq)(struct ibv_context *, int, void *, struct ibv_comp_channel *, int);
	struct ibv_qp *(*create_qp)(struct ibv_pd *, struct ibv_qp_init_attr *);
	int (*modify_qp)(struct ibv_qp *, struct ibv_qp_attr *, int);
	int (*destroy_qp)(struct ibv_qp *);
	int (*destroy_cq)(struct ibv_cq *);
	int (*dereg_mr)(struct ibv_mr *);
	int (*dealloc_pd)(struct ibv_pd *);
	int (*close_device)(struct ibv_context *);
} verbs;

static int rank, ranks, qps, rounds;

static void find(void *library, const char *name, const char *version, void *function)
{
	*(void **)function = dlvsym(library, name, version);
	if (!*(void **)function) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
}

static void load(void)
{
	void *library = dlopen("libibverbs.so", RTLD_NOW);
	if (!library)
		library = dlopen("libibverbs.so.1", RTLD_NOW);
	CHECK(library);
#define FIND(name) find(library, "ibv_" #name, "IBVERBS_1.1", &verbs.name)
	FIND(get_device_list);
	FIND(free_device_list);
	FIND(open_device);
	FIND(query_port);
	FIND(query_gid);
	FIND(alloc_pd);
	FIND(create_cq);
	FIND(create_qp);
	FIND(modify_qp);
	FIND(destroy_qp);
	FIND(destroy_cq);
	FIND(dereg_mr);
	FIND(dealloc_pd);
	FIND(close_device);
	find(library, "ibv_reg_mr_iova2", "IBVERBS_1.8", &verbs.reg_mr);
}

/* Waits until every process has come here. */
static void meet(void)
{
	int round = ++rounds;
	atomic_fetch_add(&shared->arrived, 1);
	while (atomic_load(&shared->arrived) < round * ranks)
		usleep(200);
}

static void connect_with(struct ibv_qp *qp, int peer, uint32_t number)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	OK(verbs.modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_4096,
		.dest_qp_num = number,
		.rq_psn = PSN,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1,
			    .port_num = 1,
			    .grh = {.dgid = shared->gid[peer], .sgid_index = GID_INDEX, .hop_limit = 255}},
	};
	OK(verbs.modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				   IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS,
		.timeout = 18,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.sq_psn = PSN,
		.max_rd_atomic = 1,
	};
	OK(verbs.modify_qp(qp, &attr,
			   IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				   IBV_QP_MAX_QP_RD_ATOMIC));
}

static uint32_t input(int of, size_t at)
{
	return (uint32_t)(at * 2654435761u) ^ (uint32_t)(of * 40503 + 17);
}

/* Waits for completions of both kinds: the writes of a step, and the ends of those of the previous process. */
static void complete(struct ibv_cq *cq, int sends, int *received, int step)
{
	while (sends || received[step] < qps) {
		struct ibv_wc wc;
		int polled = ibv_poll_cq(cq, 1, &wc);
		CHECK(polled >= 0);
		if (!polled)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			received[ntohl(wc.imm_data)]++;
		else
			sends--;
	}
}

static void all_reduce(void)
{
	int steps = 2 * (ranks - 1), next = (rank + 1) % ranks, previous = (rank + ranks - 1) % ranks;
	size_t total = (size_t)ranks * PER_CHUNK, chunk_bytes = PER_CHUNK * sizeof(uint32_t);
	size_t part = chunk_bytes / qps;
	/* The data, and behind it a place for what each step brings. */
	uint32_t *data = mmap(NULL, (total + (size_t)steps * PER_CHUNK) * sizeof *data, PROT_READ | PROT_WRITE,
			      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(data != MAP_FAILED);
	uint32_t *brought = data + total;
	for (size_t i = 0; i < total; i++)
		data[i] = input(rank, i);

	struct ibv_device **list = verbs.get_device_list(NULL);
	CHECK(list && list[0]);
	struct ibv_context *context = verbs.open_device(list[0]);
	CHECK(context);
	verbs.free_device_list(list);
	struct ibv_port_attr port;
	OK(verbs.query_port(context, 1, &port));
	CHECK(port.state == IBV_PORT_ACTIVE && port.link_layer == IBV_LINK_LAYER_ETHERNET);
	OK(verbs.query_gid(context, 1, GID_INDEX, &shared->gid[rank]));
	struct ibv_pd *pd = verbs.alloc_pd(context);
	struct ibv_cq *cq = verbs.create_cq(context, 2 * MOST_QPS * (steps + 1), NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_mr *mr =
		verbs.reg_mr(pd, data, (total + (size_t)steps * PER_CHUNK) * sizeof *data, (uintptr_t)data,
			     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_RELAXED_ORDERING);
	CHECK(mr);
	struct ibv_qp *to_next[MOST_QPS], *from_previous[MOST_QPS];
	for (int i = 0; i < qps; i++) {
		struct ibv_qp_init_attr attr = {
			.send_cq = cq,
			.recv_cq = cq,
			.qp_type = IBV_QPT_RC,
			.cap = {.max_send_wr = 64, .max_recv_wr = 64, .max_send_sge = 1, .max_recv_sge = 1},
		};
		CHECK((to_next[i] = verbs.create_qp(pd, &attr)) && (from_previous[i] = verbs.create_qp(pd, &attr)));
		shared->to_next[rank][i] = to_next[i]->qp_num;
		shared->from_previous[rank][i] = from_previous[i]->qp_num;
	}
	shared->address[rank] = (uintptr_t)brought;
	shared->rkey[rank] = mr->rkey;
	meet();
	for (int i = 0; i < qps; i++) {
		connect_with(to_next[i], next, shared->from_previous[next][i]);
		connect_with(from_previous[i], previous, shared->to_next[previous][i]);
		for (int step = 0; step < steps; step++) {
			struct ibv_recv_wr receive = {.wr_id = step}, *bad;
			OK(ibv_post_recv(from_previous[i], &receive, &bad));
		}
	}
	meet();

	int received[2 * MOST_RANKS] = {0};
	for (int step = 0; step < steps; step++) {
		/* First sums go round, then what has been summed. */
		int leaving = (rank - step + 2 * ranks) % ranks, coming = (leaving + ranks - 1) % ranks;
		for (int i = 0; i < qps; i++) {
			struct ibv_sge piece = {
				.addr = (uintptr_t)(data + (size_t)leaving * PER_CHUNK) + i * part,
				.length = part,
				.lkey = mr->lkey,
			};
			struct ibv_send_wr end =
						   {
							   .opcode = IBV_WR_RDMA_WRITE_WITH_IMM,
							   .imm_data = htonl(step),
							   .send_flags = IBV_SEND_SIGNALED,
						   },
					   *bad;
			end.wr.rdma.rkey = shared->rkey[next];
			struct ibv_send_wr write = {
				.next = &end,
				.sg_list = &piece,
				.num_sge = 1,
				.opcode = IBV_WR_RDMA_WRITE,
			};
			write.wr.rdma.rkey = shared->rkey[next];
			write.wr.rdma.remote_addr = shared->address[next] + step * chunk_bytes + i * part;
			end.wr.rdma.remote_addr = write.wr.rdma.remote_addr;
			OK(ibv_post_send(to_next[i], &write, &bad));
		}
		complete(cq, qps, received, step);
		uint32_t *into = data + (size_t)coming * PER_CHUNK, *from = brought + (size_t)step * PER_CHUNK;
		for (size_t i = 0; i < PER_CHUNK; i++)
			into[i] = step < ranks - 1 ? into[i] + from[i] : from[i];
	}
	for (size_t i = 0; i < total; i++) {
		uint32_t sum = 0;
		for (int of = 0; of < ranks; of++)
			sum += input(of, i);
		CHECK(data[i] == sum);
	}
	meet();
	for (int i = 0; i < qps; i++) {
		OK(verbs.destroy_qp(to_next[i]));
		OK(verbs.destroy_qp(from_previous[i]));
	}
	OK(verbs.destroy_cq(cq));
	OK(verbs.dereg_mr(mr));
	OK(verbs.dealloc_pd(pd));
	OK(verbs.close_device(context));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	ranks = atoi(argv[1]);
	qps = atoi(argv[2]);
	CHECK(ranks >= 2 && ranks <= MOST_RANKS && qps >= 1 && qps <= MOST_QPS && PER_CHUNK % qps == 0);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	for (rank = 0; rank < ranks; rank++) {
		pid_t child = fork();
		CHECK(child >= 0);
		if (child == 0) {
			load();
			all_reduce();
			return 0;
		}
	}
	for (int ended = 0; ended < ranks; ended++) {
		int status;
		CHECK(wait(&status) > 0);
		CHECK(status == 0);
	}
	printf("all right with %d ranks\n", ranks);
	return 0;
}
