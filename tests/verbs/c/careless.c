/*
 * What a careless program passes: numbers of elements that are too large, with nothing behind the elements that there
 * are; and objects that were never made, are of another kind, of another context, gone, or carry another's handle.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/mman.h>

#include "check.h"

enum { ELEMENTS = 4, PAGE = 4096 };

static struct ibv_context *context, *foreign;
static struct ibv_pd *pd, *foreign_pd;
static struct ibv_cq *cq, *foreign_cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static struct ibv_qp *qp;
static char memory[PAGE];

/* Room for `size` bytes at the end of a page, behind which is nothing. */
static void *at_the_edge(size_t size)
{
	char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && munmap(pages + PAGE, PAGE) == 0);
	return pages + PAGE - size;
}

static struct ibv_qp_init_attr_ex init_attr(void)
{
	return (struct ibv_qp_init_attr_ex){
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.cap = {.max_send_wr = 8,
			.max_recv_wr = 8,
			.max_send_sge = ELEMENTS,
			.max_recv_sge = ELEMENTS,
			.max_inline_data = 64},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND,
	};
}

static void make(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count == 2);
	context = ibv_open_device(list[0]);
	foreign = ibv_open_device(list[1]);
	CHECK(context && foreign);
	ibv_free_device_list(list);
	pd = ibv_alloc_pd(context);
	foreign_pd = ibv_alloc_pd(foreign);
	cq = ibv_create_cq(context, 64, NULL, NULL, 0);
	foreign_cq = ibv_create_cq(foreign, 64, NULL, NULL, 0);
	mr = ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
	struct ibv_srq_init_attr srq_init = {.attr = {.max_wr = 8, .max_sge = ELEMENTS}};
	srq = ibv_create_srq(pd, &srq_init);
	CHECK(pd && foreign_pd && cq && foreign_cq && mr && srq);
	struct ibv_qp_init_attr_ex init = init_attr();
	qp = ibv_create_qp_ex(context, &init);
	CHECK(qp);
	connect_to(qp, qp->qp_num);
}

static void counts(void)
{
	struct ibv_sge *sges = at_the_edge(ELEMENTS * sizeof *sges);
	for (int i = 0; i < ELEMENTS; i++)
		sges[i] = (struct ibv_sge){(uintptr_t)memory, 8, mr->lkey};
	int numbers[] = {ELEMENTS + 1, 1 << 20, INT_MAX, -1, INT_MIN};
	for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
		struct ibv_send_wr send = {.sg_list = sges, .num_sge = numbers[i], .opcode = IBV_WR_SEND}, *bad = NULL;
		FAILS(ibv_post_send(qp, &send, &bad), EINVAL);
		CHECK(bad == &send);
		send.send_flags = IBV_SEND_INLINE;
		FAILS(ibv_post_send(qp, &send, &bad), EINVAL);
		struct ibv_recv_wr receive = {.sg_list = sges, .num_sge = numbers[i]}, *bad_receive = NULL;
		FAILS(ibv_post_recv(qp, &receive, &bad_receive), EINVAL);
		CHECK(bad_receive == &receive);
		FAILS(ibv_post_srq_recv(srq, &receive, &bad_receive), EINVAL);
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		ibv_wr_start(ex);
		ibv_wr_send(ex);
		ibv_wr_set_sge_list(ex, (size_t)numbers[i], sges);
		FAILS(ibv_wr_complete(ex), EINVAL);
	}
	struct ibv_data_buf *buffers = at_the_edge(sizeof *buffers);
	*buffers = (struct ibv_data_buf){memory, 65};
	for (size_t count = 1; count; count <<= 9) {
		struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
		ibv_wr_start(ex);
		ibv_wr_send(ex);
		ibv_wr_set_inline_data_list(ex, count, buffers);
		FAILS(ibv_wr_complete(ex), EINVAL);
	}
	struct ibv_wc wc;
	FAILS(ibv_poll_cq(cq, -1, &wc), -EINVAL);
	FAILS(ibv_poll_cq(cq, 1, NULL), -EINVAL);
	FAILS(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, UINT_MAX), EINVAL);
	/* What is as it should be goes. */
	struct ibv_recv_wr receive = {.wr_id = 1, .sg_list = sges, .num_sge = ELEMENTS}, *bad_receive;
	struct ibv_send_wr send = {.wr_id = 2,
				   .sg_list = sges,
				   .num_sge = ELEMENTS,
				   .opcode = IBV_WR_SEND,
				   .send_flags = IBV_SEND_SIGNALED},
			   *bad;
	OK(ibv_post_recv(qp, &receive, &bad_receive));
	OK(ibv_post_send(qp, &send, &bad));
	completion_of(cq);
	completion_of(cq);
}

static void objects(void)
{
	/* Another kind, and never made. */
	struct ibv_qp_init_attr init = {.send_cq = cq, .recv_cq = (void *)pd, .qp_type = IBV_QPT_RC};
	NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
	struct ibv_pd copy = *pd;
	NULL_WITH(ibv_reg_mr(&copy, memory, PAGE, 0), EINVAL);
	NULL_WITH(ibv_reg_mr((void *)cq, memory, PAGE, 0), EINVAL);
	NULL_WITH(ibv_alloc_pd((void *)memory), EINVAL);
	FAILS(ibv_destroy_cq((void *)pd), ENOENT);
	FAILS(ibv_dereg_mr((void *)memory), ENOENT);
	FAILS(ibv_close_device((void *)memory), EINVAL);

	/* Another context's. */
	init.recv_cq = foreign_cq;
	NULL_WITH(ibv_create_qp(pd, &init), EINVAL);
	init.recv_cq = cq;
	NULL_WITH(ibv_create_qp(foreign_pd, &init), EINVAL);
	struct ibv_comp_channel *channel = ibv_create_comp_channel(foreign);
	CHECK(channel);
	NULL_WITH(ibv_create_cq(context, 4, NULL, channel, 0), EINVAL);
	OK(ibv_destroy_comp_channel(channel));
	CHECK(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_PD, foreign_pd, NULL, 0, 0) != 0);

	/* Another's handle. */
	pd->handle += 1000;
	NULL_WITH(ibv_reg_mr(pd, memory, PAGE, 0), EINVAL);
	FAILS(ibv_dealloc_pd(pd), ENOENT);
	pd->handle -= 1000;
	struct ibv_context *own = qp->context;
	qp->context = foreign;
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	qp->context = own;
	CHECK(qp->state == IBV_QPS_RTS);

	/* Gone. */
	struct ibv_cq *gone = ibv_create_cq(context, 4, NULL, NULL, 0);
	CHECK(gone);
	OK(ibv_destroy_cq(gone));
	FAILS(ibv_destroy_cq(gone), ENOENT);
	FAILS(ibv_resize_cq(gone, 8), EINVAL);

	/* In use. */
	FAILS(ibv_destroy_cq(cq), EBUSY);
	FAILS(ibv_dealloc_pd(pd), EBUSY);
}

/* What programs see beside the answers. */
static void seen(void)
{
	/* Only failures set errno. */
	struct ibv_wc wc;
	struct ibv_port_attr port;
	errno = 77;
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0 && errno == 77);
	OK(ibv_query_port(context, 1, &port));
	CHECK(errno == 77);
	struct ibv_qp_attr attr = {.qp_state = 99}, found;
	struct ibv_qp_init_attr init;
	FAILS(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
	CHECK(errno == EINVAL);
	errno = 0;
	FAILS(ibv_poll_cq(cq, 1, NULL), -EINVAL);
	CHECK(errno == EINVAL);

	/* The QP shows the state that was asked for, and flags come back as they were set. */
	OK(ibv_query_qp(qp, &found, 0, &init));
	CHECK(found.qp_access_flags == (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC));
	attr.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
	attr.min_rnr_timer = 32 + 12;
	OK(ibv_modify_qp(qp, &attr, IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER));
	qp->state = IBV_QPS_SQD;
	OK(ibv_query_qp(qp, &found, IBV_QP_AV, &init));
	CHECK(found.qp_access_flags == attr.qp_access_flags && found.min_rnr_timer == 12);
	CHECK(found.qp_state == IBV_QPS_RTS && qp->state == IBV_QPS_SQD);
	OK(ibv_query_qp(qp, &found, IBV_QP_STATE, &init));
	CHECK(qp->state == IBV_QPS_RTS);

	/* Channels are readable when they have events, and never writable; what is acknowledged is counted. */
	struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
	struct ibv_cq *own = ibv_create_cq(context, 8, NULL, channel, 0), *which;
	CHECK(channel && own);
	struct ibv_qp_init_attr_ex ex = init_attr();
	ex.send_cq = ex.recv_cq = own;
	struct ibv_qp *other = ibv_create_qp_ex(context, &ex);
	CHECK(other);
	connect_to(other, other->qp_num);
	struct pollfd polled[2] = {{.fd = channel->fd, .events = POLLIN | POLLOUT},
				   {.fd = context->async_fd, .events = POLLIN | POLLOUT}};
	CHECK(poll(polled, 2, 0) == 0);
	OK(ibv_req_notify_cq(own, 0));
	struct ibv_send_wr send = {.opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED}, *bad;
	OK(ibv_post_send(other, &send, &bad));
	CHECK(poll(polled, 1, 10000) == 1 && polled[0].revents == POLLIN);
	void *cq_context;
	OK(ibv_get_cq_event(channel, &which, &cq_context));
	CHECK(which == own && poll(polled, 1, 0) == 0);
	CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0);
	errno = 0;
	FAILS(ibv_get_cq_event(channel, &which, &cq_context), -1);
	CHECK(errno == EAGAIN);
	ibv_ack_cq_events(own, 1);
	CHECK(own->comp_events_completed == 1);
	OK(ibv_destroy_qp(other));
	OK(ibv_destroy_cq(own));
	OK(ibv_destroy_comp_channel(channel));
}

int main(void)
{
	make();
	counts();
	seen();
	objects();
	OK(ibv_destroy_qp(qp));
	OK(ibv_destroy_srq(srq));
	OK(ibv_dereg_mr(mr));
	OK(ibv_destroy_cq(cq));
	OK(ibv_destroy_cq(foreign_cq));
	OK(ibv_dealloc_pd(pd));
	OK(ibv_dealloc_pd(foreign_pd));
	OK(ibv_close_device(context));
	OK(ibv_close_device(foreign));
	puts("all refused");
	return 0;
}
