/*
 * The guest's command server. It runs as process 1 of the guest, after init, with a process per
 * virtio-serial port /dev/vport0p1 .. N, so commands run side by side on several ports.
 *
 *   server serve ROOT PORTS          commands run with ROOT as their root directory
 *   server wait-carrier IF SECONDS   return when the interface has carrier
 *   server tsc                       on the host: print how many thousand times a second its time stamp counter ticks
 *
 * It starts programs, the agent of `softrnic drill` among them, and knows nothing of verbs: it is linked statically, as the
 * initramfs has no libraries, and runs any command, which the agent must not do for whoever reaches its port.
 */
#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <x86intrin.h>

void die(const char *what)
{
	fprintf(stderr, "rxe-peer: guest failed: %s: %s\n", what, strerror(errno));
	if (getpid() == 1)
		reboot(RB_POWER_OFF); /* instead of a panic's trace, which would bury the message */
	_exit(1);
}

static void wait_for_device(int number)
{
	char path[32], events[4096];
	snprintf(path, sizeof path, "/dev/vport0p%d", number);
	int watch = inotify_init1(IN_CLOEXEC);
	if (watch < 0 || inotify_add_watch(watch, "/dev", IN_CREATE | IN_MOVED_TO) < 0)
		die("inotify");
	while (access(path, F_OK) < 0) {
		struct pollfd p = {.fd = watch, .events = POLLIN};
		if (poll(&p, 1, 30000) == 0) {
			errno = ETIMEDOUT;
			die(path);
		}
		(void)!read(watch, events, sizeof events);
	}
	close(watch);
}

static int serve(const char *root, int ports)
{
	pid_t server[64] = {0};

	if (ports < 1 || ports > 63)
		return 2;
	for (int n = 1; n <= ports; n++)
		wait_for_device(n);
	for (;;) {
		for (int n = 1; n <= ports; n++) {
			if (server[n])
				continue;
			server[n] = fork();
			if (server[n] < 0)
				die("fork");
			if (server[n] == 0) {
				serve_port(root, n);
				_exit(1);
			}
		}
		pid_t gone = wait(NULL);
		for (int n = 1; n <= ports; n++)
			if (gone == server[n])
				server[n] = 0;
	}
}

/* What the driver says, and rxe goes by; the interface's flags follow up to a second later. */
static bool has_carrier(const char *interface)
{
	char path[64], value = '0';
	snprintf(path, sizeof path, "/sys/class/net/%s/carrier", interface);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return false;
	if (read(fd, &value, 1) != 1)
		value = '0';
	close(fd);
	return value == '1';
}

static int wait_carrier(const char *interface, int seconds)
{
	char message[8192];
	struct sockaddr_nl links = {.nl_family = AF_NETLINK, .nl_groups = RTMGRP_LINK};
	int events = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
	if (events < 0 || bind(events, (struct sockaddr *)&links, sizeof links) < 0)
		die("netlink");
	while (!has_carrier(interface)) {
		struct pollfd p = {.fd = events, .events = POLLIN};
		if (poll(&p, 1, seconds * 1000) == 0) {
			errno = ETIMEDOUT;
			die(interface);
		}
		(void)!recv(events, message, sizeof message, 0);
	}
	return 0;
}

struct moment {
	uint64_t ticks, ns;
};

/* Both clocks at once: the closest of a few readings, as anything may come between the two. */
static struct moment now(void)
{
	struct moment best = {0};
	uint64_t closest = UINT64_MAX;
	for (int i = 0; i < 50; i++) {
		struct timespec t;
		uint64_t before = __rdtsc();
		clock_gettime(CLOCK_MONOTONIC, &t);
		uint64_t between = __rdtsc() - before;
		if (between < closest) {
			closest = between;
			best.ticks = before + between / 2;
			best.ns = (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
		}
	}
	return best;
}

static int measure_tsc(void)
{
	struct moment from = now();
	struct timespec pause = {.tv_nsec = 50 * 1000 * 1000};
	nanosleep(&pause, NULL);
	struct moment to = now();
	printf("%.0f\n", (double)(to.ticks - from.ticks) * 1e6 / (double)(to.ns - from.ns));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4 && strcmp(argv[1], "serve") == 0)
		return serve(argv[2], atoi(argv[3]));
	if (argc == 4 && strcmp(argv[1], "wait-carrier") == 0)
		return wait_carrier(argv[2], atoi(argv[3]));
	if (argc == 2 && strcmp(argv[1], "tsc") == 0)
		return measure_tsc();
	fprintf(stderr, "usage: server serve ROOT PORTS | server wait-carrier INTERFACE SECONDS | server tsc\n");
	return 2;
}
