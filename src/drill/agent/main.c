
/* ---- clients ---- */

/* For tests of what a peer sees of a process that is gone. Not for everybody who reaches a port. */
static void die(void)
{
	if (!reached)
		kill(getpid(), SIGKILL);
	failed("die", EPERM);
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{"ping", ping},		{"open", open_device},	 {"cq", make_cq},	  {"uncq", destroy_cq},
	{"srq", make_srq},	{"limit", limit_srq},	 {"unsrq", destroy_srq},  {"qp", make_qp},
	{"modify", modify_qp},	{"state", query_qp},	 {"destroy", destroy_qp}, {"mr", make_mr},
	{"dereg", deregister},	{"unmap", unmap},	 {"mw", make_mw},	  {"unmw", destroy_mw},
	{"read", read_memory},	{"write", write_memory}, {"fill", fill},	  {"frame", frame},
	{"check", check},	{"prefix", prefix},	 {"which", which},	  {"word", word},
	{"recv", post_receive}, {"post", post_send},	 {"complete", complete},  {"event", event},
	{"die", die},
};

static void obey(void)
{
	split();
	for (size_t i = 0; word_count && i < sizeof commands / sizeof *commands; i++)
		if (strcmp(words[0], commands[i].name) == 0) {
			commands[i].run();
			return;
		}
	failed("no such command", ENOSYS);
}

static void obey_all(FILE *in)
{
	while (fgets(line, LINE, in)) {
		obey();
		if (fflush(answer))
			break;
	}
}

static void serve(int fd, struct address *address)
{
	int on = 1;
	FILE *in = fdopen(fd, "r");

	answer = fdopen(dup(fd), "w");
	if (!in || !answer)
		exit(1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
	reached = address;
	obey_all(in);
	clear();
	fclose(answer);
	fclose(in);
}

static void serve_everybody(void)
{
	struct pollfd waiting[ADDRESSES];

	for (int i = 0; i < address_count; i++)
		waiting[i] = (struct pollfd){.fd = addresses[i].listener, .events = POLLIN};
	for (;;) {
		if (poll(waiting, address_count, -1) < 0)
			continue;
		for (int i = 0; i < address_count; i++) {
			int fd = waiting[i].revents ? accept(waiting[i].fd, NULL, NULL) : -1;

			if (fd >= 0)
				serve(fd, &addresses[i]);
		}
	}
}

int main(int argc, char **argv)
{
	int port = argc > 1 ? atoi(argv[1]) : 18791;

	signal(SIGPIPE, SIG_IGN);
	if (!(line = malloc(LINE)))
		return 1;
	if (argc > 1 && strcmp(argv[1], "-") == 0) {
		answer = stdout;
		obey_all(stdin);
		return 0;
	}
	listen_for_devices(port);
	if (address_count > 0)
		serve_everybody();
	fprintf(stderr, "agent: there is no RDMA device with an address where TCP port %d is free\n", port);
	return 1;
}
