/*
 * Registered memory that goes away: unmapped, protected, or a file cut short. Whatever then reads or writes there ends
 * with the error that verbs have for it, and nothing else notices.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "check.h"

enum { PAGE = 4096, LENGTH = 64 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq;

/* Memory that has gone, and memory that stays. */
struct region {
	char *bytes;
	struct ibv_mr *mr;
	int fd;
};

static struct region region(void)
{
	struct region made = {.fd = memfd_create("lost", 0)};
	CHECK(made.fd >= 0 && ftruncate(made.fd, PAGE) == 0);
	made.bytes = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, made.fd, 0);
	CHECK(made.bytes != MAP_FAILED && (made.mr = ibv_reg_mr(pd, made.bytes, PAGE, ALL_ACCESS)));
	return made;
}

static void give_up(struct region *used)
{
	OK(ibv_dereg_mr(used->mr));
	munmap(used->bytes, PAGE);
	close(used->fd);
}

static void unmap(struct region *lost)
{
	OK(munmap(lost->bytes, PAGE));
}
static void protect(struct region *lost)
{
	OK(mprotect(lost->bytes, PAGE, PROT_NONE));
}
static void protect_writing(struct region *lost)
{
	OK(mprotect(lost->bytes, PAGE, PROT_READ));
}
static void cut_short(struct region *lost)
{
	OK(ftruncate(lost->fd, 0));
}

static struct ibv_qp *make_qp(void)
{
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {8, 8, 1, 1, 0}};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	CHECK(made);
	return made;
}

struct pair {
	struct ibv_qp *near, *far;
};

static struct pair make_pair(void)
{
	struct pair made = {make_qp(), make_qp()};
	connect_to(made.near, made.far->qp_num);
	connect_to(made.far, made.near->qp_num);
	return made;
}

static struct pair healthy;
static struct region near_memory, far_memory;

enum { REQUEST = 1, RECEIVE = 2 };

static void send_on(struct pair pair, enum ibv_wr_opcode opcode, struct region *local, struct region *remote)
{
	int atomic = opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
	struct ibv_sge sge = {(uintptr_t)local->bytes, atomic ? 8 : LENGTH, local->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = REQUEST,
				 .sg_list = &sge,
				 .num_sge = 1,
				 .opcode = opcode,
				 .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	if (atomic) {
		wr.wr.atomic.remote_addr = (uintptr_t)remote->bytes;
		wr.wr.atomic.rkey = remote->mr->rkey;
		wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)remote->bytes;
		wr.wr.rdma.rkey = remote->mr->rkey;
	}
	OK(ibv_post_send(pair.near, &wr, &bad));
}

static void receive_on(struct pair pair, struct region *into)
{
	struct ibv_sge sge = {(uintptr_t)into->bytes, LENGTH, into->mr->lkey};
	struct ibv_recv_wr wr = {.wr_id = RECEIVE, .sg_list = &sge, .num_sge = 1}, *bad;
	OK(ibv_post_recv(pair.far, &wr, &bad));
}

/* Both ends of a message, in whatever order. */
static void expect_both(enum ibv_wc_status request, enum ibv_wc_status receive)
{
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = completion_of(cq);
		enum ibv_wc_status wanted = wc.wr_id == REQUEST ? request : receive;
		if (wc.status != wanted) {
			fprintf(stderr, "%s: %s, not %s\n", wc.wr_id == REQUEST ? "request" : "receive",
				ibv_wc_status_str(wc.status), ibv_wc_status_str(wanted));
			exit(1);
		}
	}
}

static void others_go_on(void)
{
	strcpy(near_memory.bytes, "unharmed");
	memset(far_memory.bytes, 0, LENGTH);
	receive_on(healthy, &far_memory);
	send_on(healthy, IBV_WR_SEND, &near_memory, &far_memory);
	expect_both(IBV_WC_SUCCESS, IBV_WC_SUCCESS);
	CHECK(strcmp(far_memory.bytes, "unharmed") == 0);
	send_on(healthy, IBV_WR_RDMA_READ, &far_memory, &near_memory);
	expect(cq, IBV_WC_SUCCESS, REQUEST);
}

enum use { SENT_FROM, WRITTEN_FROM, READ_INTO, RECEIVED_INTO, WRITTEN_TO, READ_FROM, ADDED_TO, ADDED_INTO, USES };
static const char *const USE_NAMES[] = {"sent from",  "written from", "read into", "received into",
					"written to", "read from",    "added to",  "added into"};

static void lose(const char *how, void (*away)(struct region *), enum use use)
{
	struct pair pair = make_pair();
	struct region lost = region();
	enum ibv_wc_status status = IBV_WC_LOC_PROT_ERR;
	away(&lost);
	switch (use) {
	case SENT_FROM:
		receive_on(pair, &far_memory);
		send_on(pair, IBV_WR_SEND, &lost, &far_memory);
		break;
	case WRITTEN_FROM:
		send_on(pair, IBV_WR_RDMA_WRITE, &lost, &far_memory);
		break;
	case READ_INTO:
		send_on(pair, IBV_WR_RDMA_READ, &lost, &far_memory);
		break;
	case ADDED_INTO:
		send_on(pair, IBV_WR_ATOMIC_FETCH_AND_ADD, &lost, &far_memory);
		break;
	case RECEIVED_INTO:
		receive_on(pair, &lost);
		send_on(pair, IBV_WR_SEND, &near_memory, &far_memory);
		expect_both(IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
		break;
	case WRITTEN_TO:
	case READ_FROM:
	case ADDED_TO:
		status = IBV_WC_REM_ACCESS_ERR;
		send_on(pair,
			use == WRITTEN_TO  ? IBV_WR_RDMA_WRITE
			: use == READ_FROM ? IBV_WR_RDMA_READ
					   : IBV_WR_ATOMIC_FETCH_AND_ADD,
			&near_memory, &lost);
		break;
	default:
		break;
	}
	if (use != RECEIVED_INTO)
		expect(cq, status, REQUEST);
	others_go_on();
	OK(ibv_destroy_qp(pair.near));
	OK(ibv_destroy_qp(pair.far));
	/* The receive that nothing came for went with its QP, and may have been flushed before. */
	struct ibv_wc flushed;
	while (ibv_poll_cq(cq, 1, &flushed) > 0)
		CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
	give_up(&lost);
	printf("%s, %s: %s\n", how, USE_NAMES[use], ibv_wc_status_str(status));
}

int main(void)
{
	context = open_first();
	pd = ibv_alloc_pd(context);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	CHECK(pd && cq);
	near_memory = region();
	far_memory = region();
	healthy = make_pair();
	const struct {
		const char *name;
		void (*away)(struct region *);
	} ways[] = {{"unmapped", unmap}, {"protected", protect}, {"cut short", cut_short}};
	for (unsigned way = 0; way < sizeof ways / sizeof ways[0]; way++)
		for (enum use use = 0; use < USES; use++)
			lose(ways[way].name, ways[way].away, use);
	const enum use written[] = {READ_INTO, RECEIVED_INTO, WRITTEN_TO, ADDED_TO, ADDED_INTO};
	for (unsigned i = 0; i < sizeof written / sizeof written[0]; i++)
		lose("protected from writing", protect_writing, written[i]);
	puts("lost memory is an error");
	return 0;
}
