/*
 * Memory that is unmapped while it is registered leaves a hole, into which the kernel may map anything. Nothing of the
 * NIC's comes there: whatever a device makes afterwards (rings, threads, large queues), a WRITE to the hole is refused.
 */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "check.h"

enum { HOLE = 64 << 20, DEPTH = 8192 };

static char *hole;

static struct ibv_context *open_device(int index)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > index);
	struct ibv_context *context = ibv_open_device(list[index]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

/* What is mapped in the hole. */
static int filled(void)
{
	int count = 0;
	char line[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	CHECK(maps);
	while (fgets(line, sizeof line, maps)) {
		unsigned long from, to;
		CHECK(sscanf(line, "%lx-%lx", &from, &to) == 2);
		if (from < (uintptr_t)hole + HOLE && to > (uintptr_t)hole) {
			fprintf(stderr, "in the hole: %s", line);
			count++;
		}
	}
	fclose(maps);
	return count;
}

static struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *cq)
{
	struct ibv_qp_init_attr init = {
		.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = {DEPTH, DEPTH, 4, 4, 0}};
	struct ibv_qp *made = ibv_create_qp(pd, &init);
	CHECK(made);
	return made;
}

static void connect_across(struct ibv_qp *qp, struct ibv_qp *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp_num,
		.rq_psn = 77,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = address_of(peer->context),
	};
	OK(to_init(qp));
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	OK(to_rts(qp));
}

static void write_to(struct ibv_qp *qp, struct ibv_mr *from, struct ibv_mr *to, uintptr_t at)
{
	struct ibv_sge sge = {(uintptr_t)from->addr, 64, from->lkey};
	struct ibv_send_wr wr = {.sg_list = &sge,
				 .num_sge = 1,
				 .opcode = IBV_WR_RDMA_WRITE,
				 .send_flags = IBV_SEND_SIGNALED,
				 .wr.rdma = {at, to->rkey}},
			   *bad;
	OK(ibv_post_send(qp, &wr, &bad));
}

int main(void)
{
	static char bytes[4096];
	struct ibv_context *first = open_device(0);
	struct ibv_pd *near = ibv_alloc_pd(first), *far;
	CHECK(near);
	hole = mmap(NULL, HOLE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(hole != MAP_FAILED);
	struct ibv_mr *lost = ibv_reg_mr(near, hole, HOLE, ALL_ACCESS);
	CHECK(lost);
	OK(munmap(hole, HOLE));

	struct ibv_context *second = open_device(1);
	CHECK(far = ibv_alloc_pd(second));
	struct ibv_mr *local = ibv_reg_mr(far, bytes, sizeof bytes, ALL_ACCESS);
	struct ibv_cq *near_cq = ibv_create_cq(first, DEPTH, NULL, NULL, 0);
	struct ibv_cq *far_cq = ibv_create_cq(second, DEPTH, NULL, NULL, 0);
	CHECK(local && near_cq && far_cq);
	struct ibv_qp *target = make_qp(near, near_cq), *healthy = make_qp(near, near_cq);
	struct ibv_qp *writer = make_qp(far, far_cq), *other = make_qp(far, far_cq);
	connect_across(target, writer);
	connect_across(writer, target);
	connect_across(healthy, other);
	connect_across(other, healthy);

	/* The devices find each other, and are connected. */
	static char data[4096];
	struct ibv_mr *sound = ibv_reg_mr(near, data, sizeof data, ALL_ACCESS);
	CHECK(sound);
	memset(bytes, 0x5a, sizeof bytes);
	for (int i = 0; i < 200; i++) {
		write_to(other, local, sound, (uintptr_t)data);
		expect(far_cq, IBV_WC_SUCCESS, 0);
	}
	CHECK(filled() == 0);
	write_to(writer, local, lost, (uintptr_t)hole + HOLE - 4096);
	expect(far_cq, IBV_WC_REM_ACCESS_ERR, 0);
	write_to(other, local, sound, (uintptr_t)data);
	expect(far_cq, IBV_WC_SUCCESS, 0);
	puts("nothing came into the hole");
	return 0;
}
