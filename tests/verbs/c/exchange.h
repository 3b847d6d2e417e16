/* Two processes that find each other over TCP and connect a queue pair. */
#ifndef EXCHANGE_H
#define EXCHANGE_H

#include <netinet/in.h>
#include <sys/socket.h>

#include "check.h"

/* What each side tells the other. */
struct endpoint {
	union ibv_gid gid;
	uint32_t qpn;
	uint32_t rkey;
	uint64_t address;
};

/* A connected socket: listens if `server`. */
static inline int meet(int server, int port)
{
	struct sockaddr_in address = {
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	CHECK(fd >= 0);
	if (server) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		CHECK(bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 1) == 0);
		int connection = accept(fd, NULL, NULL);
		CHECK(connection >= 0);
		close(fd);
		return connection;
	}
	double limit = seconds() + 30;
	while (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
		CHECK(errno == ECONNREFUSED && seconds() < limit);
		close(fd);
		usleep(5000);
		fd = socket(AF_INET, SOCK_STREAM, 0);
	}
	return fd;
}

static inline void swap(int fd, const struct endpoint *mine, struct endpoint *theirs)
{
	CHECK(write(fd, mine, sizeof *mine) == sizeof *mine);
	CHECK(recv(fd, theirs, sizeof *theirs, MSG_WAITALL) == sizeof *theirs);
}

/* Connects an RC QP with a peer's. */
static inline void connect_rc(struct ibv_qp *qp, const struct endpoint *peer, int timeout, int retries)
{
	OK(to_init(qp));
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qpn,
		.rq_psn = 77,
		.max_dest_rd_atomic = 16,
		.min_rnr_timer = 12,
		.ah_attr = {.is_global = 1, .port_num = 1, .grh = {.dgid = peer->gid, .hop_limit = 64}},
	};
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	attr = (struct ibv_qp_attr){.qp_state = IBV_QPS_RTS,
				    .sq_psn = 77,
				    .timeout = timeout,
				    .retry_cnt = retries,
				    .rnr_retry = 7,
				    .max_rd_atomic = 16};
	OK(ibv_modify_qp(qp, &attr,
			 IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
				 IBV_QP_MAX_QP_RD_ATOMIC));
}

#endif
