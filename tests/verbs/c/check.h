/* What the C tests share: saying what went wrong, and a device with a connected pair of queue pairs. */
#ifndef CHECK_H
#define CHECK_H

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(good)                                                                                                    \
	do {                                                                                                           \
		if (!(good)) {                                                                                         \
			fprintf(stderr, "%s:%d: %s (errno %d, %s)\n", __FILE__, __LINE__, #good, errno,                \
				strerror(errno));                                                                      \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* For verbs that return an error number. */
#define OK(call)                                                                                                       \
	do {                                                                                                           \
		int status_ = (call);                                                                                  \
		if (status_) {                                                                                         \
			fprintf(stderr, "%s:%d: %s: %d, %s\n", __FILE__, __LINE__, #call, status_, strerror(status_)); \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* For verbs that must return a certain error number. */
#define FAILS(call, expected)                                                                                          \
	do {                                                                                                           \
		int status_ = (call);                                                                                  \
		if (status_ != (expected)) {                                                                           \
			fprintf(stderr, "%s:%d: %s: %d, not %d\n", __FILE__, __LINE__, #call, status_, expected);      \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

/* For verbs that must return null with a certain errno. */
#define NULL_WITH(call, expected)                                                                                      \
	do {                                                                                                           \
		errno = 0;                                                                                             \
		if ((call) != NULL || errno != (expected)) {                                                           \
			fprintf(stderr, "%s:%d: %s: errno %d, not %d\n", __FILE__, __LINE__, #call, errno, expected);  \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define ALL_ACCESS                                                                                                     \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |        \
	 IBV_ACCESS_MW_BIND)

#define QKEY 0x11111111

/* Open ones of this process, and one more. */
static inline int descriptors(void)
{
	int count = 0;
	DIR *dir = opendir("/proc/self/fd");
	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static inline double seconds(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec * 1e-9;
}

static inline struct ibv_context *open_first(void)
{
	int count;
	struct ibv_device **list = ibv_get_device_list(&count);
	CHECK(list && count > 0);
	struct ibv_context *context = ibv_open_device(list[0]);
	CHECK(context);
	ibv_free_device_list(list);
	return context;
}

/* Polls until a completion is there, and gives up after a while. */
static inline struct ibv_wc completion_of(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	double limit = seconds() + 60;
	for (;;) {
		int found = ibv_poll_cq(cq, 1, &wc);
		CHECK(found >= 0);
		if (found)
			return wc;
		CHECK(seconds() < limit);
	}
}

static inline struct ibv_wc expect(struct ibv_cq *cq, enum ibv_wc_status status, uint64_t wr_id)
{
	struct ibv_wc wc = completion_of(cq);
	if (wc.status != status || wc.wr_id != wr_id) {
		fprintf(stderr, "completion of %llu: %s; expected %llu: %s\n", (unsigned long long)wc.wr_id,
			ibv_wc_status_str(wc.status), (unsigned long long)wr_id, ibv_wc_status_str(status));
		exit(1);
	}
	return wc;
}

static inline struct ibv_ah_attr address_of(struct ibv_context *context)
{
	struct ibv_ah_attr attr = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 64}};
	CHECK(ibv_query_gid(context, 1, 0, &attr.grh.dgid) == 0);
	return attr;
}

static inline int to_init(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qkey = QKEY,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
	mask |= qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_rtr(struct ibv_qp *qp, uint32_t peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer,
		.rq_psn = 77,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = address_of(qp->context),
	};
	int mask = IBV_QP_STATE;
	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	return ibv_modify_qp(qp, &attr, mask);
}

static inline int to_rts(struct ibv_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = 77,
		.timeout = 14,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.max_rd_atomic = 16,
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
	if (qp->qp_type == IBV_QPT_RC || qp->qp_type == IBV_QPT_XRC_SEND)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	else if (qp->qp_type == IBV_QPT_XRC_RECV)
		mask |= IBV_QP_TIMEOUT;
	return ibv_modify_qp(qp, &attr, mask);
}

/* Connects a QP with another of this process, or with itself. */
static inline void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	OK(to_init(qp));
	OK(to_rtr(qp, peer));
	OK(to_rts(qp));
	CHECK(qp->state == IBV_QPS_RTS);
}

#endif
