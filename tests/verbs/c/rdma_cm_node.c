/* /dev/infiniband/rdma_cm as a device: what it says of itself, what it answers to commands that are wrong, and what
 * becomes of it by dup2, close_range, fork, vfork, signals and cancellation. The commands are written by hand. */
#define _GNU_SOURCE
#include "check.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_user_cm.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NODE "/dev/infiniband/rdma_cm"
/* Newer than the headers of Debian 12. */
#define WRITE_CM_EVENT 24
#define USER_EVENT 18

static int node(int flags)
{
	int fd = open(NODE, O_RDWR | O_CLOEXEC | flags);
	CHECK(fd >= 0);
	return fd;
}

/* Writes a command; returns 0 or the error number. */
static int ask(int fd, uint32_t cmd, const void *body, uint16_t in, uint16_t out)
{
	char text[512];
	struct rdma_ucm_cmd_hdr header = {.cmd = cmd, .in = in, .out = out};
	memcpy(text, &header, sizeof header);
	memcpy(text + sizeof header, body, in);
	ssize_t written = write(fd, text, sizeof header + in);
	CHECK(written == -1 || written == (ssize_t)sizeof header + in);
	return written == -1 ? errno : 0;
}

static uint32_t create(int fd, uint64_t uid)
{
	struct rdma_ucm_create_id_resp resp = {.id = -1};
	struct rdma_ucm_create_id cmd = {.uid = uid, .response = (uintptr_t)&resp, .ps = RDMA_PS_TCP};
	OK(ask(fd, RDMA_USER_CM_CMD_CREATE_ID, &cmd, sizeof cmd, sizeof resp));
	CHECK((int32_t)resp.id >= 0);
	return resp.id;
}

static int destroy(int fd, uint32_t id, uint32_t *reported)
{
	struct rdma_ucm_destroy_id_resp resp = {.events_reported = -1};
	struct rdma_ucm_destroy_id cmd = {.id = id, .response = (uintptr_t)&resp};
	int status = ask(fd, RDMA_USER_CM_CMD_DESTROY_ID, &cmd, sizeof cmd, sizeof resp);
	*reported = resp.events_reported;
	return status;
}

static int get_event(int fd, struct rdma_ucm_event_resp *event)
{
	struct rdma_ucm_get_event cmd = {.response = (uintptr_t)event};
	return ask(fd, RDMA_USER_CM_CMD_GET_EVENT, &cmd, sizeof cmd, sizeof *event);
}

static void send_event(int fd, uint32_t id, uint64_t arg)
{
	struct {
		uint32_t id, reserved, event, status;
		uint64_t arg;
		char rest[296];
	} cmd = {.id = id, .event = USER_EVENT, .status = -5, .arg = arg};
	OK(ask(fd, WRITE_CM_EVENT, &cmd, 320, 0));
}

static int readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
	return poll(&poll_fd, 1, 0);
}

static void is_a_device(void)
{
	dev_t number = makedev(10, 58);
	FILE *known = fopen("/sys/class/misc/rdma_cm/dev", "r");
	unsigned major_number, minor_number;
	if (known && fscanf(known, "%u:%u", &major_number, &minor_number) == 2)
		number = makedev(major_number, minor_number);
	int fd = node(0);
	struct stat stat;
	struct statx statx_;
	OK(fstat(fd, &stat));
	CHECK(S_ISCHR(stat.st_mode) && stat.st_rdev == number);
	OK(fstatat(fd, "", &stat, AT_EMPTY_PATH));
	CHECK(S_ISCHR(stat.st_mode) && stat.st_rdev == number);
	OK(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &statx_));
	CHECK(S_ISCHR(statx_.stx_mode) && makedev(statx_.stx_rdev_major, statx_.stx_rdev_minor) == number);
	CHECK(fcntl(fd, F_GETFD) == FD_CLOEXEC && !(fcntl(fd, F_GETFL) & O_NONBLOCK));
	OK(access(NODE, R_OK | W_OK));
	OK(lstat(NODE, &stat));
	CHECK(S_ISCHR(stat.st_mode));
	OK(close(fd));
	CHECK(fstat(fd, &stat) == -1 && errno == EBADF);
	fd = open(NODE, O_RDWR | O_NONBLOCK);
	CHECK(fd >= 0 && fcntl(fd, F_GETFD) == 0 && fcntl(fd, F_GETFL) & O_NONBLOCK);
	struct rdma_ucm_event_resp event;
	FAILS(get_event(fd, &event), EAGAIN);
	OK(close(fd));
	fd = openat(AT_FDCWD, NODE, O_RDWR);
	CHECK(fd >= 0);
	destroy(fd, create(fd, 1), &(uint32_t){0});
	OK(close(fd));
}

static void refuses(void)
{
	int fd = node(0), other = node(0);
	uint32_t id = create(fd, 1), reported;
	char zeros[320] = {0};
	FAILS(ask(fd, 25, zeros, 16, 16), EINVAL);
	FAILS(ask(fd, RDMA_USER_CM_CMD_GET_OPTION, zeros, 16, 16), ENOSYS);
	FAILS(ask(fd, RDMA_USER_CM_CMD_CREATE_ID, zeros, 23, 4), EINVAL);
	FAILS(ask(fd, RDMA_USER_CM_CMD_CREATE_ID, zeros, 24, 3), ENOSPC);
	FAILS(ask(fd, RDMA_USER_CM_CMD_CREATE_ID, zeros, 24, 4), EINVAL);
	FAILS(destroy(fd, id + 1000, &reported), ENOENT);
	FAILS(destroy(fd, 0xFFFFFFFF, &reported), ENOENT);
	FAILS(destroy(other, id, &reported), EINVAL);
	struct rdma_ucm_listen listen = {.id = id + 1000};
	FAILS(ask(fd, RDMA_USER_CM_CMD_LISTEN, &listen, sizeof listen, 0), ENOENT);
	struct rdma_ucm_connect connect = {.id = id};
	FAILS(ask(fd, RDMA_USER_CM_CMD_CONNECT, &connect, sizeof connect, 0), EINVAL);
	connect.conn_param.valid = 1;
	FAILS(ask(fd, RDMA_USER_CM_CMD_CONNECT, &connect, sizeof connect, 0), EINVAL);
	struct rdma_ucm_resolve_route route = {.id = id, .timeout_ms = 100};
	FAILS(ask(fd, RDMA_USER_CM_CMD_RESOLVE_ROUTE, &route, sizeof route, 0), EINVAL);
	struct rdma_ucm_disconnect disconnect = {.id = id};
	FAILS(ask(fd, RDMA_USER_CM_CMD_DISCONNECT, &disconnect, sizeof disconnect, 0), EINVAL);
	struct rdma_ucm_query query = {.id = id, .option = 9, .response = (uintptr_t)zeros};
	FAILS(ask(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof query, 280), ENOSYS);
	query.id += 1000;
	FAILS(ask(fd, RDMA_USER_CM_CMD_QUERY, &query, sizeof query, 280), ENOENT);
	OK(destroy(fd, id, &reported));
	CHECK(reported == 0);
	FAILS(destroy(fd, id, &reported), ENOENT);
	OK(close(fd));
	OK(close(other));
}

static void counts_events(void)
{
	int fd = node(0), other = node(0);
	uint32_t id = create(fd, 0x1122334455667788), reported;
	struct rdma_ucm_event_resp event = {0};
	CHECK(!readable(fd));
	for (int i = 0; i < 3; i++)
		send_event(fd, id, 100 + i);
	CHECK(readable(fd));
	OK(get_event(fd, &event));
	CHECK(event.uid == 0x1122334455667788 && event.id == id && event.event == USER_EVENT);
	CHECK((int32_t)event.status == -5 && !memcmp(&event.param, (uint64_t[]){100}, 8));
	/* Two events move, and with them their counts. */
	struct rdma_ucm_migrate_resp migrated;
	struct rdma_ucm_migrate_id migrate = {.response = (uintptr_t)&migrated, .id = id, .fd = fd};
	OK(ask(other, RDMA_USER_CM_CMD_MIGRATE_ID, &migrate, sizeof migrate, sizeof migrated));
	CHECK(migrated.events_reported == 1 && !readable(fd) && readable(other));
	OK(get_event(other, &event));
	CHECK(!memcmp(&event.param, (uint64_t[]){101}, 8));
	OK(destroy(other, id, &reported));
	CHECK(reported == 2 && !readable(other));
	OK(close(fd));
	OK(close(other));
}

static void goes_by_other_ways_than_close(void)
{
	int pipes[2], fd = node(0);
	uint32_t id = create(fd, 1);
	CHECK(id < 1u << 31);
	OK(pipe(pipes));
	CHECK(dup2(pipes[1], fd) == fd);
	/* What looks like a command is data for the file that has the number now. */
	struct rdma_ucm_cmd_hdr data = {.cmd = 25, .in = 0, .out = 0};
	CHECK(write(fd, &data, sizeof data) == sizeof data);
	char back[64];
	CHECK(read(pipes[0], back, sizeof back) == sizeof data);
	OK(close(fd));
	int first = node(0), second = node(0);
	/* What is ours may be between the two. */
	OK(close_range(first, first, 0));
	OK(close_range(second, second, 0));
	CHECK(fcntl(first, F_GETFD) == -1 && fcntl(second, F_GETFD) == -1);
	/* Closed behind our back, and the number is another's. */
	fd = node(0);
	OK(syscall(SYS_close, fd));
	CHECK(dup(pipes[1]) == fd);
	CHECK(write(fd, "text", 4) == 4 && read(pipes[0], back, sizeof back) == 4);
	OK(close(fd));
	fd = node(0);
	destroy(fd, create(fd, 1), &(uint32_t){0});
	OK(close(fd));
	OK(close(pipes[0]));
	OK(close(pipes[1]));
}

static void in_child(int fd, uint32_t id)
{
	uint32_t reported;
	FAILS(destroy(fd, id, &reported), EIO);
	OK(close(fd));
	CHECK(fcntl(fd, F_GETFD) == -1);
	int own = node(0);
	OK(destroy(own, create(own, 1), &reported));
	OK(close(own));
	_exit(0);
}

static void survives_children(void)
{
	int fd = node(0), status;
	uint32_t id = create(fd, 1), reported;
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0)
		in_child(fd, id);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	child = vfork();
	if (child == 0) {
		close(fd);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	send_event(fd, id, 1);
	CHECK(readable(fd));
	struct rdma_ucm_event_resp event;
	OK(get_event(fd, &event));
	OK(destroy(fd, id, &reported));
	CHECK(reported == 1);
	OK(close(fd));
}

struct waiter {
	int fd, status;
	_Atomic pid_t thread;
	struct rdma_ucm_event_resp event;
};

static void *wait_for_event(void *arg)
{
	struct waiter *waiter = arg;
	waiter->thread = gettid();
	waiter->status = get_event(waiter->fd, &waiter->event);
	return NULL;
}

static void nothing(int signal)
{
	(void)signal;
}

/* Starts a thread, and returns when it sleeps in the kernel. */
static pthread_t start(struct waiter *waiter)
{
	char path[64], state = 0;
	pthread_t thread;
	waiter->thread = 0;
	OK(pthread_create(&thread, NULL, wait_for_event, waiter));
	while (!waiter->thread)
		;
	snprintf(path, sizeof path, "/proc/self/task/%d/stat", waiter->thread);
	while (state != 'S') {
		FILE *stat = fopen(path, "r");
		CHECK(stat && fscanf(stat, "%*d (%*[^)]) %c", &state) == 1);
		fclose(stat);
	}
	return thread;
}

static void waits(void)
{
	struct waiter waiter = {.fd = node(0)};
	uint32_t id = create(waiter.fd, 7), reported;
	pthread_t thread;
	void *result;
	/* An event wakes it. */
	thread = start(&waiter);
	send_event(waiter.fd, id, 3);
	OK(pthread_join(thread, NULL));
	CHECK(waiter.status == 0 && waiter.event.uid == 7);
	/* A signal without SA_RESTART interrupts it. */
	struct sigaction action = {.sa_handler = nothing};
	OK(sigaction(SIGUSR1, &action, NULL));
	thread = start(&waiter);
	OK(pthread_kill(thread, SIGUSR1));
	OK(pthread_join(thread, NULL));
	CHECK(waiter.status == EINTR);
	/* It can be cancelled, and no event is lost. */
	thread = start(&waiter);
	OK(pthread_cancel(thread));
	OK(pthread_join(thread, &result));
	CHECK(result == PTHREAD_CANCELED);
	send_event(waiter.fd, id, 4);
	OK(get_event(waiter.fd, &waiter.event));
	OK(destroy(waiter.fd, id, &reported));
	CHECK(reported == 2);
	OK(close(waiter.fd));
}

static void leaks_nothing(void)
{
	int first = dup(0), fd;
	close(first);
	for (int i = 0; i < 1000; i++) {
		fd = node(0);
		create(fd, i);
		OK(close(fd));
	}
	int last = dup(0);
	CHECK(last == first);
	close(last);
}

int main(void)
{
	/* The device is opened by the first id that needs it, and keeps its descriptors. */
	is_a_device();
	refuses();
	counts_events();
	goes_by_other_ways_than_close();
	survives_children();
	waits();
	leaks_nothing();
	puts("the node is all right");
	return 0;
}
