/*
 * Memory runs out. `refused allocator` lets each verb that makes something fail at its first allocation, then at its
 * second, and so on until it needs no more. `refused limit` makes objects under RLIMIT_AS until there is no room for
 * another. A verb that gets no memory says ENOMEM, nothing that was there before is harmed, and traffic goes on.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "check.h"

/* The allocator of the whole process. While `refusing`, it gives `left` more allocations and then none. */
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t),
	*__libc_memalign(size_t, size_t);

static atomic_bool refusing;
static atomic_long left;
static atomic_bool refused;

static bool gives(void)
{
	if (!atomic_load(&refusing) || atomic_fetch_sub(&left, 1) > 0)
		return true;
	atomic_store(&refused, true);
	errno = ENOMEM;
	return false;
}

void *malloc(size_t size)
{
	return gives() ? __libc_malloc(size) : NULL;
}
void *calloc(size_t count, size_t size)
{
	return gives() ? __libc_calloc(count, size) : NULL;
}
void *realloc(void *old, size_t size)
{
	return gives() ? __libc_realloc(old, size) : NULL;
}
void *aligned_alloc(size_t align, size_t size)
{
	return gives() ? __libc_memalign(align, size) : NULL;
}
int posix_memalign(void **result, size_t align, size_t size)
{
	return gives() && (*result = __libc_memalign(align, size)) ? 0 : ENOMEM;
}

static void refuse_after(long count)
{
	atomic_store(&refused, false);
	atomic_store(&left, count);
	atomic_store(&refusing, true);
}

static void give_again(void)
{
	atomic_store(&refusing, false);
}

enum { DEPTH = 4096, ELEMENTS = 8, PIECE = 16 };

static struct ibv_context *context;
static struct ibv_pd *pd;
static struct ibv_cq *cq, *deep_cq;
static struct ibv_comp_channel *channel;
static struct ibv_srq *srq;
static struct ibv_xrcd *xrcd;
static struct ibv_dm *dm;
static struct ibv_mr *mr;
static struct ibv_qp *qp, *datagram_qp;
static char memory[1 << 16];

static struct ibv_qp_init_attr attributes(enum ibv_qp_type type, struct ibv_cq *reports)
{
	return (struct ibv_qp_init_attr){
		.send_cq = reports,
		.recv_cq = reports,
		.qp_type = type,
		.cap = {DEPTH, DEPTH, ELEMENTS, ELEMENTS, 256},
	};
}

static void *make_pd(void)
{
	return ibv_alloc_pd(context);
}
static void *make_channel(void)
{
	return ibv_create_comp_channel(context);
}
static void *make_cq(void)
{
	return ibv_create_cq(context, DEPTH, NULL, NULL, 0);
}
static void *make_reporting_cq(void)
{
	return ibv_create_cq(context, DEPTH, NULL, channel, 0);
}
static void *make_extended_cq(void)
{
	struct ibv_cq_init_attr_ex init = {.cqe = DEPTH, .wc_flags = IBV_WC_STANDARD_FLAGS};
	struct ibv_cq_ex *made = ibv_create_cq_ex(context, &init);
	return made ? ibv_cq_ex_to_cq(made) : NULL;
}
static void *make_qp_of(enum ibv_qp_type type)
{
	struct ibv_qp_init_attr init = attributes(type, cq);
	return ibv_create_qp(pd, &init);
}
static void *make_rc(void)
{
	return make_qp_of(IBV_QPT_RC);
}
static void *make_uc(void)
{
	return make_qp_of(IBV_QPT_UC);
}
static void *make_ud(void)
{
	return make_qp_of(IBV_QPT_UD);
}
static void *make_extended_qp(void)
{
	struct ibv_qp_init_attr_ex init = {
		.send_cq = cq,
		.recv_cq = cq,
		.qp_type = IBV_QPT_RC,
		.pd = pd,
		.cap = {DEPTH, DEPTH, ELEMENTS, ELEMENTS, 256},
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE,
	};
	return ibv_create_qp_ex(context, &init);
}
static void *make_xrc_target(void)
{
	struct ibv_qp_init_attr_ex init = {
		.qp_type = IBV_QPT_XRC_RECV, .xrcd = xrcd, .comp_mask = IBV_QP_INIT_ATTR_XRCD};
	return ibv_create_qp_ex(context, &init);
}
static void *make_srq(void)
{
	struct ibv_srq_init_attr init = {.attr = {.max_wr = DEPTH, .max_sge = ELEMENTS}};
	return ibv_create_srq(pd, &init);
}
static void *make_xrc_srq(void)
{
	struct ibv_srq_init_attr_ex init = {
		.attr = {.max_wr = DEPTH, .max_sge = 1},
		.srq_type = IBV_SRQT_XRC,
		.pd = pd,
		.xrcd = xrcd,
		.cq = cq,
		.comp_mask =
			IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
	};
	return ibv_create_srq_ex(context, &init);
}
static void *make_mr(void)
{
	return ibv_reg_mr(pd, memory, sizeof memory, ALL_ACCESS);
}
static void *make_null_mr(void)
{
	return ibv_alloc_null_mr(pd);
}
static void *make_dm(void)
{
	struct ibv_alloc_dm_attr attr = {.length = 4096};
	return ibv_alloc_dm(context, &attr);
}
static void *make_dm_mr(void)
{
	return ibv_reg_dm_mr(pd, dm, 0, 4096, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_LOCAL_WRITE);
}
static void *make_mw(void)
{
	return ibv_alloc_mw(pd, IBV_MW_TYPE_1);
}
static void *make_ah(void)
{
	struct ibv_ah_attr attr = address_of(context);
	return ibv_create_ah(pd, &attr);
}
static void *make_xrcd(void)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT};
	return ibv_open_xrcd(context, &attr);
}
static void *make_td(void)
{
	struct ibv_td_init_attr attr = {0};
	return ibv_alloc_td(context, &attr);
}
static void *make_parent_domain(void)
{
	struct ibv_parent_domain_init_attr attr = {.pd = pd};
	return ibv_alloc_parent_domain(context, &attr);
}

static int unmake_pd(void *object)
{
	return ibv_dealloc_pd(object);
}
static int unmake_channel(void *object)
{
	return ibv_destroy_comp_channel(object);
}
static int unmake_cq(void *object)
{
	return ibv_destroy_cq(object);
}
static int unmake_qp(void *object)
{
	return ibv_destroy_qp(object);
}
static int unmake_srq(void *object)
{
	return ibv_destroy_srq(object);
}
static int unmake_mr(void *object)
{
	return ibv_dereg_mr(object);
}
static int unmake_dm(void *object)
{
	return ibv_free_dm(object);
}
static int unmake_mw(void *object)
{
	return ibv_dealloc_mw(object);
}
static int unmake_ah(void *object)
{
	return ibv_destroy_ah(object);
}
static int unmake_xrcd(void *object)
{
	return ibv_close_xrcd(object);
}
static int unmake_td(void *object)
{
	return ibv_dealloc_td(object);
}

static const struct kind {
	const char *name;
	void *(*make)(void);
	int (*unmake)(void *);
} KINDS[] = {
	{"PD", make_pd, unmake_pd},
	{"channel", make_channel, unmake_channel},
	{"CQ", make_cq, unmake_cq},
	{"CQ with a channel", make_reporting_cq, unmake_cq},
	{"extended CQ", make_extended_cq, unmake_cq},
	{"RC QP", make_rc, unmake_qp},
	{"UC QP", make_uc, unmake_qp},
	{"UD QP", make_ud, unmake_qp},
	{"extended QP", make_extended_qp, unmake_qp},
	{"XRC target", make_xrc_target, unmake_qp},
	{"SRQ", make_srq, unmake_srq},
	{"XRC SRQ", make_xrc_srq, unmake_srq},
	{"MR", make_mr, unmake_mr},
	{"null MR", make_null_mr, unmake_mr},
	{"device memory", make_dm, unmake_dm},
	{"device memory MR", make_dm_mr, unmake_mr},
	{"MW", make_mw, unmake_mw},
	{"AH", make_ah, unmake_ah},
	{"XRC domain", make_xrcd, unmake_xrcd},
	{"thread domain", make_td, unmake_td},
	{"parent domain", make_parent_domain, unmake_pd},
};
enum { KIND_COUNT = sizeof KINDS / sizeof KINDS[0] };

static void make_world(void)
{
	context = open_first();
	CHECK((pd = make_pd()) && (channel = make_channel()) && (cq = make_cq()) && (srq = make_srq()));
	CHECK((xrcd = make_xrcd()) && (dm = make_dm()) && (mr = make_mr()));
	CHECK((deep_cq = ibv_create_cq(context, 2 * DEPTH, NULL, NULL, 0)));
	struct ibv_qp_init_attr init = attributes(IBV_QPT_RC, deep_cq);
	CHECK((qp = ibv_create_qp(pd, &init)) && (datagram_qp = make_ud()));
	connect_to(qp, qp->qp_num);
	connect_to(datagram_qp, 0);
}

/* WRITEs to ourselves, `count` at most, each of `elements` pieces; returns how many were taken. */
static int post_with(unsigned flags, int count, int elements)
{
	struct ibv_sge sges[ELEMENTS];
	for (int i = 0; i < elements; i++)
		sges[i] = (struct ibv_sge){(uintptr_t)memory + i * PIECE, PIECE, mr->lkey};
	struct ibv_send_wr wr =
				   {
					   .sg_list = sges,
					   .num_sge = elements,
					   .opcode = IBV_WR_RDMA_WRITE,
					   .send_flags = flags,
					   .wr.rdma = {(uintptr_t)memory + sizeof memory / 2, mr->rkey},
				   },
			   *bad;
	for (int i = 0; i < count; i++) {
		wr.wr_id = i;
		int status = ibv_post_send(qp, &wr, &bad);
		if (status) {
			CHECK(status == ENOMEM);
			return i;
		}
	}
	return count;
}

static int post(int count, int elements)
{
	return post_with(IBV_SEND_SIGNALED, count, elements);
}

static void complete(int count)
{
	for (int i = 0; i < count; i++)
		expect(deep_cq, IBV_WC_SUCCESS, i);
}

static void traffic_goes_on(void)
{
	int taken = post(DEPTH, 1);
	CHECK(taken == DEPTH);
	complete(taken);
}

static long each_allocation(const struct kind *kind)
{
	for (long count = 0;; count++) {
		refuse_after(count);
		errno = 0;
		void *made = kind->make();
		int status = errno;
		bool without = atomic_load(&refused);
		give_again();
		if (made) {
			OK(kind->unmake(made));
			if (!without)
				return count;
		} else if (status != ENOMEM) {
			fprintf(stderr, "%s, allocation %ld: errno %d\n", kind->name, count, status);
			exit(1);
		}
	}
}

/* The same for what changes an object. */
static long each_allocation_of(const char *name, int (*change)(void), void (*undo)(void))
{
	for (long count = 0;; count++) {
		refuse_after(count);
		int status = change();
		bool without = atomic_load(&refused);
		give_again();
		if (status == 0) {
			undo();
			if (!without)
				return count;
		} else if (status != ENOMEM) {
			fprintf(stderr, "%s, allocation %ld: %d\n", name, count, status);
			exit(1);
		}
	}
}

static struct ibv_qp *fresh;
static void nothing(void)
{
}
static void reset(void)
{
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_RESET};
	OK(ibv_modify_qp(fresh, &attr, IBV_QP_STATE));
	OK(to_init(fresh));
}
static int connect_fresh(void)
{
	/* A peer that no QP has talked to. */
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = 5,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = address_of(context),
	};
	attr.ah_attr.grh.dgid.raw[15] ^= 1;
	return ibv_modify_qp(fresh, &attr,
			     IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}
static const union ibv_gid GROUP = {.raw = {[10] = 0xff, 0xff, 239, 1, 2, 3}};
static int attach(void)
{
	return ibv_attach_mcast(datagram_qp, &GROUP, 0);
}
static void detach(void)
{
	OK(ibv_detach_mcast(datagram_qp, &GROUP, 0));
}
static int resize_cq(void)
{
	return ibv_resize_cq(cq, 2 * DEPTH);
}
static void shrink_cq(void)
{
	OK(ibv_resize_cq(cq, DEPTH));
}
static int resize_srq(void)
{
	struct ibv_srq_attr attr = {.max_wr = 2 * DEPTH};
	return ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR);
}
static void shrink_srq(void)
{
	struct ibv_srq_attr attr = {.max_wr = DEPTH};
	OK(ibv_modify_srq(srq, &attr, IBV_SRQ_MAX_WR));
}
static int send_pieces(void)
{
	int taken = post(1, ELEMENTS);
	complete(taken);
	return taken == 1 ? 0 : ENOMEM;
}
static int receive_pieces(void)
{
	struct ibv_sge sges[ELEMENTS] = {{(uintptr_t)memory, PIECE, mr->lkey}};
	struct ibv_recv_wr wr = {.sg_list = sges, .num_sge = ELEMENTS}, *bad;
	return ibv_post_srq_recv(srq, &wr, &bad);
}
static int advise(void)
{
	struct ibv_sge sges[DEPTH / 2];
	for (int i = 0; i < DEPTH / 2; i++)
		sges[i] = (struct ibv_sge){(uintptr_t)memory, PIECE, mr->lkey};
	return ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, IBV_ADVISE_MR_FLAG_FLUSH, sges, DEPTH / 2);
}
static struct ibv_qp_ex *building;
static int build(void)
{
	ibv_wr_start(building);
	for (int i = 0; i < 100; i++) {
		building->wr_id = i;
		ibv_wr_rdma_write(building, mr->rkey, (uintptr_t)memory);
		struct ibv_sge sges[ELEMENTS] = {{(uintptr_t)memory, PIECE, mr->lkey}};
		ibv_wr_set_sge_list(building, ELEMENTS, sges);
	}
	/* It is in RESET: with memory, that is the only thing wrong. */
	int status = ibv_wr_complete(building);
	return status == EINVAL ? 0 : status;
}

/* Room for many requests, and for one completion at a time: what is complete is shown although there is none for more. */
static void completions_without_memory(void)
{
	for (int i = 0; i < 8; i++) {
		CHECK(post_with(0, DEPTH / 16, 1) == DEPTH / 16);
		CHECK(post(1, 1) == 1);
		complete(1);
	}
	refuse_after(0);
	traffic_goes_on();
	give_again();
}

static void with_an_allocator(void)
{
	completions_without_memory();
	for (int i = 0; i < KIND_COUNT; i++)
		printf("%s: refused at each of %ld allocations\n", KINDS[i].name, each_allocation(&KINDS[i]));
	CHECK((fresh = make_rc()) && (building = make_extended_qp()));
	OK(to_init(fresh));
	const struct {
		const char *name;
		int (*change)(void);
		void (*undo)(void);
	} changes[] = {
		{"connect", connect_fresh, reset},
		{"attach", attach, detach},
		{"resize CQ", resize_cq, shrink_cq},
		{"resize SRQ", resize_srq, shrink_srq},
		{"send of many pieces", send_pieces, nothing},
		{"receive of many pieces", receive_pieces, nothing},
		{"advise", advise, nothing},
		{"batch", build, nothing},
	};
	for (unsigned i = 0; i < sizeof changes / sizeof changes[0]; i++)
		printf("%s: refused at each of %ld allocations\n", changes[i].name,
		       each_allocation_of(changes[i].name, changes[i].change, changes[i].undo));
	/* What is posted waits until there is room for it. */
	refuse_after(0);
	traffic_goes_on();
	int taken = post(DEPTH, ELEMENTS);
	give_again();
	complete(taken);
	traffic_goes_on();
}

/* Objects of one kind until there is no memory for another, `most` at most. */
static void until_refused(const struct kind *kind, rlim_t room, int most, void **made)
{
	struct rlimit before, narrow;
	OK(getrlimit(RLIMIT_AS, &before));
	long pages;
	FILE *file = fopen("/proc/self/statm", "r");
	CHECK(file && fscanf(file, "%ld", &pages) == 1);
	fclose(file);
	narrow = before;
	narrow.rlim_cur = pages * sysconf(_SC_PAGESIZE) + room;
	OK(setrlimit(RLIMIT_AS, &narrow));
	int count = 0;
	errno = 0;
	while (count < most && (made[count] = kind->make()))
		count++;
	int status = errno;
	/* With nothing left at all. */
	traffic_goes_on();
	OK(setrlimit(RLIMIT_AS, &before));
	printf("%s: %d, then errno %d\n", kind->name, count, count < most ? status : 0);
	CHECK(count == most || status == ENOMEM || status == EMFILE);
	for (int i = 0; i < count; i++)
		OK(kind->unmake(made[i]));
	void *again = kind->make();
	CHECK(again);
	OK(kind->unmake(again));
}

static void with_a_limit(void)
{
	enum { MOST = 400000 };
	void **made = mmap(NULL, MOST * sizeof *made, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(made != MAP_FAILED);
	for (int i = 0; i < KIND_COUNT; i++)
		until_refused(&KINDS[i], 6 << 20, MOST, made);
}

int main(int count, char **words)
{
	CHECK(count == 2);
	make_world();
	if (strcmp(words[1], "allocator") == 0)
		with_an_allocator();
	else
		with_a_limit();
	traffic_goes_on();
	puts("memory was refused, and nothing else");
	return 0;
}
