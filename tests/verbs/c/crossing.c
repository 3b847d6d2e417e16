/*
 * Every device of the process sends to every one, itself included: a WRITE, a READ and SENDs, with the data compared.
 *
 *     crossing DEVICES
 */
#include "exchange.h"

enum { SIZE = 100000, SENDS = 40 };

struct side {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	char *memory;
	struct ibv_mr *mr;
};

static struct side open_side(struct ibv_device *device)
{
	struct side side = {.context = ibv_open_device(device), .memory = malloc(SIZE)};
	CHECK(side.context && side.memory);
	side.pd = ibv_alloc_pd(side.context);
	side.cq = ibv_create_cq(side.context, 128, NULL, NULL, 0);
	side.mr = ibv_reg_mr(side.pd, side.memory, SIZE, ALL_ACCESS);
	CHECK(side.pd && side.cq && side.mr);
	return side;
}

static struct ibv_qp *make(struct side *side)
{
	struct ibv_qp_init_attr init = {
		.send_cq = side->cq,
		.recv_cq = side->cq,
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
		.cap = {.max_send_wr = SENDS, .max_recv_wr = SENDS, .max_send_sge = 1, .max_recv_sge = 1}};
	struct ibv_qp *qp = ibv_create_qp(side->pd, &init);
	CHECK(qp);
	return qp;
}

static struct endpoint end_of(struct side *side, struct ibv_qp *qp)
{
	return (struct endpoint){.gid = address_of(side->context).grh.dgid, .qpn = qp->qp_num};
}

static void post(struct ibv_qp *qp, struct side *from, struct side *to, enum ibv_wr_opcode opcode)
{
	struct ibv_sge sge = {(uintptr_t)from->memory, SIZE / 2, from->mr->lkey};
	struct ibv_send_wr wr = {.wr_id = 1, .sg_list = &sge, .num_sge = 1, .opcode = opcode}, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)to->memory + SIZE / 2;
	wr.wr.rdma.rkey = to->mr->rkey;
	OK(ibv_post_send(qp, &wr, &bad));
}

static void fill(char *memory, int seed)
{
	for (int i = 0; i < SIZE / 2; i++)
		memory[i] = seed * 37 + i + (i >> 8);
}

static void cross(struct side *from, struct side *to, int seed)
{
	struct ibv_qp *near = make(from), *far = make(to);
	struct endpoint near_end = end_of(from, near), far_end = end_of(to, far);
	connect_rc(near, &far_end, 14, 7);
	connect_rc(far, &near_end, 14, 7);

	fill(from->memory, seed);
	memset(to->memory + SIZE / 2, 0, SIZE / 2);
	post(near, from, to, IBV_WR_RDMA_WRITE);
	expect(from->cq, IBV_WC_SUCCESS, 1);
	CHECK(!memcmp(from->memory, to->memory + SIZE / 2, SIZE / 2));
	memset(from->memory, 0, SIZE / 2);
	post(near, from, to, IBV_WR_RDMA_READ);
	expect(from->cq, IBV_WC_SUCCESS, 1);
	CHECK(!memcmp(from->memory, to->memory + SIZE / 2, SIZE / 2));

	fill(from->memory, seed + 1);
	for (int i = 0; i < SENDS; i++) {
		struct ibv_sge sge = {(uintptr_t)to->memory + SIZE / 2, SIZE / 2, to->mr->lkey};
		struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1}, *bad;
		OK(ibv_post_recv(far, &wr, &bad));
		post(near, from, to, IBV_WR_SEND);
	}
	for (int ends = 0; ends < 2 * SENDS; ends++) {
		struct ibv_wc wc = completion_of(from->cq == to->cq || ends < SENDS ? from->cq : to->cq);
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	CHECK(!memcmp(from->memory, to->memory + SIZE / 2, SIZE / 2));
	OK(ibv_destroy_qp(near));
	OK(ibv_destroy_qp(far));
}

int main(int argc, char **argv)
{
	int count, crossed = 0;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(argc == 2 && list && count == atoi(argv[1]));
	struct side *sides = calloc(count, sizeof *sides);
	for (int i = 0; i < count; i++)
		sides[i] = open_side(list[i]);
	for (int from = 0; from < count; from++)
		for (int to = 0; to < count; to++)
			cross(&sides[from], &sides[to], ++crossed);
	printf("%d crossings are right\n", crossed);
	return 0;
}
