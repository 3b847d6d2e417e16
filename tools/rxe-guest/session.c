/*
 * Sessions on a virtio-serial port: a host that opens the port runs commands, one at a time.
 *
 * A frame is a type byte, a payload and a newline; inside a payload DLE and newline are escaped, so that
 * both sides find the next frame even when the other went away in the middle of one.
 *
 *   host to guest                               guest to host
 *   H nonce     begin; ends what ran before     H nonce     ready
 *   X fields    run: mode, TERM, cwd, argv      O data      standard output
 *   I data      standard input                  R data      standard error
 *   E           end of standard input           C count     so many bytes of input were taken
 *   S number    send a signal                   Q status    ended: "e" exit status or "s" signal
 *   W rows cols size of the terminal            Z           the server began anew
 *
 * The host keeps at most WINDOW bytes of input on their way, so the port is always read and a signal
 * never waits behind input that the command does not take.
 */
#define _GNU_SOURCE
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define DLE 0x10
#define CHUNK 16384
#define WINDOW 65536
#define MAX_ARGS 4096
#define MAX_FRAME (256 * 1024)
#define MAX_NONCE 64
#define GRACE_MS 1000

struct session {
	int port;
	pid_t child; /* 0: nothing runs */
	int pidfd;
	int in, out, err; /* our ends of the command's descriptors, -1 when closed */
	bool pty, in_ended, exited;
	size_t in_used;
	char in_buf[WINDOW];
	size_t tx_sent, tx_used; /* frames on their way to the host */
	char tx[6 * CHUNK];
	size_t rx_used; /* the frame being received, without its escapes */
	bool rx_escape, rx_overflow;
	char rx[MAX_FRAME];
};

static void set_nonblocking(int fd, bool on)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0 || fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) < 0)
		die("fcntl");
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

static void send_frame(struct session *s, char type, const char *data, size_t len)
{
	/* Output is sent only into an empty buffer, replies only while can_reply(): there is always room. */
	s->tx[s->tx_used++] = type;
	for (size_t i = 0; i < len; i++) {
		if (data[i] == DLE || data[i] == '\n') {
			s->tx[s->tx_used++] = DLE;
			s->tx[s->tx_used++] = data[i] == DLE ? '0' : 'n';
		} else {
			s->tx[s->tx_used++] = data[i];
		}
	}
	s->tx[s->tx_used++] = '\n';
}

static void send_text(struct session *s, char type, const char *text)
{
	send_frame(s, type, text, strlen(text));
}

static bool tx_idle(const struct session *s)
{
	return s->tx_used == 0;
}

/* The replies to one read of CHUNK bytes are at most twice as long. */
static bool can_reply(const struct session *s)
{
	return s->tx_used <= sizeof s->tx - 3 * CHUNK;
}

static void flush_some(struct session *s)
{
	ssize_t n = write(s->port, s->tx + s->tx_sent, s->tx_used - s->tx_sent);
	if (n < 0) {
		if (errno != EAGAIN && errno != EINTR)
			die("write to port");
		return;
	}
	s->tx_sent += n;
	if (s->tx_sent == s->tx_used)
		s->tx_sent = s->tx_used = 0;
}

static void run_child(char **field, int count, const int fds[3], bool pty)
{
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	signal(SIGPIPE, SIG_DFL);
	setsid();
	for (int i = 0; i < 3; i++)
		if (dup2(fds[i], i) < 0)
			_exit(127);
	if (pty)
		ioctl(0, TIOCSCTTY, 0);
	close_range(3, ~0U, 0);

	if (chdir(field[2]) < 0 && chdir("/tmp") < 0 && chdir("/") < 0)
		_exit(127);
	clearenv();
	setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
	setenv("HOME", "/tmp", 1);
	setenv("LANG", "C.UTF-8", 1);
	if (*field[1])
		setenv("TERM", field[1], 1);

	field[count] = NULL;
	execvp(field[3], field + 3);
	fprintf(stderr, "rxe-peer: %s: %s\n", field[3], strerror(errno));
	fflush(stderr);
	_exit(errno == ENOENT ? 127 : 126);
}

static int open_pty(int *master)
{
	char name[64];
	int unlock = 0, number;
	/* ptsname() would look for /dev/pts in a place of its own choosing; ask the kernel. */
	*master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (*master < 0 || ioctl(*master, TIOCSPTLCK, &unlock) < 0 || ioctl(*master, TIOCGPTN, &number) < 0)
		die("pty");
	snprintf(name, sizeof name, "/dev/pts/%d", number);
	int slave = open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (slave < 0)
		die(name);
	return slave;
}

static void start(struct session *s, size_t len)
{
	static char *field[MAX_ARGS + 1];
	int count = 0, theirs[3], pair[2];

	if (s->child || len == 0)
		return;
	s->rx[len] = '\0';
	for (char *p = s->rx + 1; p < s->rx + len && count < MAX_ARGS; p += strlen(p) + 1)
		field[count++] = p;
	if (count < 4) {
		send_text(s, 'Q', "e 127");
		return;
	}

	s->pty = strcmp(field[0], "tty") == 0;
	if (s->pty) {
		theirs[0] = theirs[1] = theirs[2] = open_pty(&s->out);
		s->in = fcntl(s->out, F_DUPFD_CLOEXEC, 0);
		s->err = -1;
	} else {
		int *ours[3] = {&s->in, &s->out, &s->err};
		for (int i = 0; i < 3; i++) {
			if (pipe2(pair, O_CLOEXEC) < 0)
				die("pipe");
			theirs[i] = pair[i == 0 ? 0 : 1];
			*ours[i] = pair[i == 0 ? 1 : 0];
			set_nonblocking(*ours[i], true);
		}
	}
	if (s->pty) {
		set_nonblocking(s->out, true);
		set_nonblocking(s->in, true);
	}

	s->child = fork();
	if (s->child < 0)
		die("fork");
	if (s->child == 0)
		run_child(field, count, theirs, s->pty);
	for (int i = 0; i < (s->pty ? 1 : 3); i++)
		close(theirs[i]);
	s->pidfd = syscall(SYS_pidfd_open, s->child, 0);
	if (s->pidfd < 0)
		die("pidfd_open");
	s->in_used = 0;
	s->in_ended = s->exited = false;
}

static void signal_command(const struct session *s, int number)
{
	/* Just after the fork the command may not lead a group of its own yet. */
	if (kill(-s->child, number) < 0)
		kill(s->child, number);
}

static int reap(struct session *s)
{
	int status = 0;
	while (waitpid(s->child, &status, 0) < 0 && errno == EINTR)
		;
	s->child = 0;
	close_fd(&s->pidfd);
	close_fd(&s->in);
	close_fd(&s->out);
	close_fd(&s->err);
	return status;
}

/* The host left or begins anew: what it ran goes with it. */
static void abandon(struct session *s)
{
	if (s->child) {
		struct pollfd p = {.fd = s->pidfd, .events = POLLIN};
		signal_command(s, SIGTERM);
		while (poll(&p, 1, GRACE_MS) < 0 && errno == EINTR)
			;
		/* Not reaped yet, so the group's number cannot be anybody else's. */
		signal_command(s, SIGKILL);
		reap(s);
	}
	s->tx_sent = s->tx_used = 0;
}

static void finish(struct session *s)
{
	char text[32];
	int status = reap(s);
	if (WIFSIGNALED(status))
		snprintf(text, sizeof text, "s %d", WTERMSIG(status));
	else
		snprintf(text, sizeof text, "e %d", WEXITSTATUS(status));
	send_text(s, 'Q', text);
}

static void end_input(struct session *s)
{
	if (s->pty && s->in >= 0) {
		char eot = 4;
		(void)!write(s->in, &eot, 1);
	}
	close_fd(&s->in);
}

static void take_input(struct session *s)
{
	char text[32];
	ssize_t n = write(s->in, s->in_buf, s->in_used);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0) { /* nobody reads it any more: swallow it, as a closed pipe would */
		n = s->in_used;
		close_fd(&s->in);
	}
	memmove(s->in_buf, s->in_buf + n, s->in_used - n);
	s->in_used -= n;
	snprintf(text, sizeof text, "%zd", n);
	send_text(s, 'C', text);
	if (s->in_ended && s->in_used == 0)
		end_input(s);
}

static void on_frame(struct session *s)
{
	size_t len = s->rx_used;
	const char *payload = s->rx + 1;
	int a, b;

	s->rx[len] = '\0';
	switch (s->rx[0]) {
	case 'H':
		abandon(s);
		send_text(s, '\n', ""); /* ends whatever was cut short before */
		send_frame(s, 'H', payload, len - 1 < MAX_NONCE ? len - 1 : MAX_NONCE);
		break;
	case 'X':
		start(s, len);
		break;
	case 'I':
		if (!s->child || s->in < 0) {
			char text[32];
			snprintf(text, sizeof text, "%zu", len - 1);
			send_text(s, 'C', text);
		} else if (len - 1 <= WINDOW - s->in_used) {
			memcpy(s->in_buf + s->in_used, payload, len - 1);
			s->in_used += len - 1;
		}
		break;
	case 'E':
		s->in_ended = true;
		if (s->child && s->in_used == 0)
			end_input(s);
		break;
	case 'S':
		if (s->child && sscanf(payload, "%d", &a) == 1)
			signal_command(s, a);
		break;
	case 'W':
		if (s->child && s->pty && sscanf(payload, "%d %d", &a, &b) == 2) {
			struct winsize size = {.ws_row = a, .ws_col = b};
			ioctl(s->out, TIOCSWINSZ, &size);
		}
		break;
	}
}

static void on_bytes(struct session *s, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		char c = data[i];
		if (c == '\n') {
			if (s->rx_used > 0 && !s->rx_overflow)
				on_frame(s);
			s->rx_used = 0;
			s->rx_escape = s->rx_overflow = false;
		} else if (c == DLE) {
			s->rx_escape = true;
		} else {
			if (s->rx_escape)
				c = c == 'n' ? '\n' : DLE;
			s->rx_escape = false;
			if (s->rx_used < MAX_FRAME - 1)
				s->rx[s->rx_used++] = c;
			else
				s->rx_overflow = true;
		}
	}
}

/* Pass on what the command printed. */
static void forward(struct session *s, int *fd, char type)
{
	static char data[CHUNK];
	ssize_t n = read(*fd, data, sizeof data);
	if (n > 0)
		send_frame(s, type, data, n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		close_fd(fd);
}

/* Serve until the host closes its end. */
static void serve_session(struct session *s)
{
	static char data[CHUNK];

	for (;;) {
		/* One frame of output at a time: a host that does not read stops the command, not the signals. */
		bool idle = tx_idle(s), runs = s->child != 0;
		struct pollfd p[5] = {
			{s->port, (can_reply(s) ? POLLIN : 0) | (idle ? 0 : POLLOUT), 0},
			{runs && !s->exited ? s->pidfd : -1, POLLIN, 0},
			{runs && idle && s->in_used ? s->in : -1, POLLOUT, 0},
			{runs && idle ? s->out : -1, POLLIN, 0},
			{runs && idle ? s->err : -1, POLLIN, 0},
		};
		if (poll(p, 5, runs && s->exited && idle ? 0 : -1) < 0) {
			if (errno == EINTR)
				continue;
			die("poll");
		}

		if (p[0].revents & (POLLIN | POLLHUP)) {
			ssize_t n = read(s->port, data, sizeof data);
			if (n == 0)
				return;
			if (n > 0) {
				on_bytes(s, data, n);
				continue;
			}
		}
		if (p[0].revents & POLLOUT)
			flush_some(s);
		if (!runs || !idle)
			continue;
		if (p[2].revents)
			take_input(s);
		else if (p[3].revents)
			forward(s, &s->out, 'O');
		else if (p[4].revents)
			forward(s, &s->err, 'R');
		else if (p[1].revents)
			s->exited = true;
		else if (s->exited)
			finish(s); /* it has ended, and all it had written has been read */
	}
}

void serve_port(const char *root, int number)
{
	static struct session s;
	char path[32];

	signal(SIGPIPE, SIG_IGN);
	snprintf(path, sizeof path, "/dev/vport0p%d", number);
	s.port = open(path, O_RDWR | O_CLOEXEC);
	s.pidfd = s.in = s.out = s.err = -1;
	if (s.port < 0)
		die(path);
	if (chroot(root) < 0 || chdir("/") < 0)
		die(root);
	for (;;) {
		/* A blocking write returns when the host has opened its end: no need to look again and again. */
		set_nonblocking(s.port, false);
		if (write(s.port, "\nZ\n", 3) < 0 && errno != EINTR)
			die("write to port");
		set_nonblocking(s.port, true);
		serve_session(&s);
		abandon(&s);
		s.rx_used = 0;
		s.rx_escape = s.rx_overflow = false;
	}
}
