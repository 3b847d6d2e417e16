/*
 * The agent: a verbs program that does what it is told. It makes queue pairs and memory, posts requests, and says what
 * came of them. `softrnic drill` plays scripts on it, and the tests against other RDMA stacks run it at both ends.
 *
 *   cc -O2 -o agent agent.c -libverbs
 *   ./agent [PORT]
 *   ./agent -
 *
 * It listens on TCP port 18791 (or PORT) of the addresses that the RDMA devices have when it starts, and serves one client
 * at a time. When the client goes, all that it made is destroyed. Who can reach the port can have this machine send RDMA
 * traffic: let only a lab reach it. With `-`, the client is whoever writes to its standard input.
 *
 * A command is a line, and so is its answer: `ok …`, or `error ERRNO …`, with the number 0 where no call failed. Objects
 * have the numbers that the client gives them. Numbers that `verbs.h` has a name for are those of `verbs.h`.
 *
 *   ping
 *   open      dev [gid]           the device that the client connected to; on standard input, the one with this GID
 *   cq        cq dev depth
 *   uncq      cq
 *   srq       srq dev places [xrc cq elsewhere]
 *   limit     srq limit
 *   unsrq     srq
 *   qp        qp dev cq type(rc|uc|ud|xrc_ini|xrc_tgt) depth receives [srq]
 *   modify    qp state [begin notify gid dest mtu qkey access rq_psn sq_psn rd dest_rd rnr_timer timeout retry rnr_retry tos]
 *   state     qp
 *   destroy   qp
 *   mr        mr dev size access [elsewhere]                again after `dereg`: the memory is the same
 *   dereg     mr
 *   unmap     mr page                                       and the pages behind that
 *   mw        mw dev type(1|2)
 *   unmw      mw
 *   read      mr off len
 *   write     mr off data
 *   fill      mr off len seed back                          a pattern, and a background around it
 *   frame     mr off len back                               the background alone
 *   check     mr off len seed back [head]                   the pattern, and the background before `head` and behind it
 *   prefix    mr off len seed back mtu                      how many bytes of the pattern, in whole packets, come before
 *                                                           the background
 *   which     mr off len seed count                         which of `count` consecutive seeds the bytes are from
 *   word      mr off [set]                                  eight bytes as a number
 *   recv      qp|srq wr sges=ADDR:LENGTH:LKEY,…
 *   post      qp op wr sges [inline va rkey imm srqn dest qkey compare swap add length whole mw mr tag access zero]
 *                           [signaled fence solicited builder]
 *   complete  cq [n ms busy]                                at most `n` completions, each within `ms`
 *   event     dev [ms]
 *   die                                                     by SIGKILL, with everything open; on standard input
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LINE (1 << 20)
#define WORDS 64

static char *line, *words[WORDS];
static int word_count;
static FILE *answer;

/* ---- a command, and its answer ---- */

static void split(void)
{
	char *rest = line;

	word_count = 0;
	while (word_count < WORDS && (words[word_count] = strtok_r(rest, " \r\n", &rest)))
		word_count++;
}

static const char *text(const char *name)
{
	size_t length = strlen(name);

	for (int i = 1; i < word_count; i++)
		if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	return NULL;
}

static uint64_t number(const char *name, uint64_t otherwise)
{
	const char *value = text(name);

	return value ? strtoull(value, NULL, 0) : otherwise;
}

static bool flag(const char *name)
{
	return number(name, 0) != 0;
}

static void failed(const char *what, int error)
{
	fprintf(answer, "error %d %s: %s\n", error, what, strerror(error));
}

static void result(const char *what, int error)
{
	if (error)
		failed(what, error);
	else
		fprintf(answer, "ok\n");
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * UINT64_C(1000) + t.tv_nsec / 1000000;
}

static void ping(void)
{
	fprintf(answer, "ok\n");
}
