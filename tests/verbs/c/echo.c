/* An echo server and its client, as programs of TCP are written. `echo once|fork|client PORT ADDRESS`. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(good)                                                                                                    \
	do {                                                                                                           \
		if (!(good)) {                                                                                         \
			fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                                \
			perror(#good);                                                                                 \
			exit(1);                                                                                       \
		}                                                                                                      \
	} while (0)

#define TOTAL (1 << 20)

static void echo(int fd)
{
	char buffer[8192];
	ssize_t got;
	while ((got = recv(fd, buffer, sizeof buffer, 0)) > 0)
		for (ssize_t sent = 0, now; sent < got; sent += now) {
			now = send(fd, buffer + sent, got - sent, 0);
			CHECK(now > 0);
		}
	CHECK(got == 0);
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

static void serve(int listener, int forks)
{
	int fd = accept(listener, NULL, NULL);
	CHECK(fd >= 0);
	if (!forks) {
		echo(fd);
		return;
	}
	pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		echo(fd);
		_exit(0);
	}
	int status;
	close(fd);
	CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void ask(int fd)
{
	char buffer[4096], back[sizeof buffer];
	int total = 0;
	while (total < TOTAL) {
		for (size_t i = 0; i < sizeof buffer; i++)
			buffer[i] = (char)(total / sizeof buffer + i);
		CHECK(send(fd, buffer, sizeof buffer, 0) == sizeof buffer);
		for (size_t got = 0; got < sizeof back;) {
			ssize_t now = recv(fd, back + got, sizeof back - got, 0);
			CHECK(now > 0);
			got += now;
		}
		CHECK(!memcmp(buffer, back, sizeof back));
		total += sizeof back;
	}
	printf("%d bytes came back\n", total);
	shutdown(fd, SHUT_RDWR);
	close(fd);
}

int main(int argc, char **argv)
{
	CHECK(argc == 4);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(argv[2]))};
	CHECK(inet_pton(AF_INET, argv[3], &address.sin_addr) == 1);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0);
	if (!strcmp(argv[1], "client")) {
		CHECK(!connect(fd, (struct sockaddr *)&address, sizeof address));
		ask(fd);
		return 0;
	}
	CHECK(!bind(fd, (struct sockaddr *)&address, sizeof address) && !listen(fd, 5));
	serve(fd, !strcmp(argv[1], "fork"));
	return 0;
}
