/* Copies a file to a disk behind libiscsi, or as much of the disk back to a file of that size.
   `iscsi_copy INITIATOR to|from URL FILE` says "logged in", and begins when it is sent a line. */
#include <poll.h>
#include <sys/stat.h>

#include "../verbs/c/iscsi.h"

#define AT_ONCE 512

struct answer {
	int came, status;
};

static void take_answer(struct iscsi_context *context, int status, void *data, void *answer)
{
	(void)context, (void)data;
	*(struct answer *)answer = (struct answer){1, status};
}

/* Waits as long as it takes. libiscsi 1.19's own loop takes a second without news for a failure. */
static int await(struct answer *answer, const char *what)
{
	while (!answer->came) {
		struct pollfd news = {.fd = iscsi_get_fd(iscsi), .events = iscsi_which_events(iscsi)};
		if (poll(&news, 1, -1) == 1)
			check(!iscsi_service(iscsi, news.revents), what);
	}
	return answer->status;
}

static int log_in(const char *initiator, const char *text)
{
	struct iscsi_url *url = prepare(initiator, text);
	struct answer connected = {0}, logged_in = {0};
	check(!iscsi_connect_async(iscsi, url->portal, take_answer, &connected), "connect");
	check(await(&connected, "connect") == SCSI_STATUS_GOOD, "connect");
	check(!iscsi_login_async(iscsi, take_answer, &logged_in), "log in");
	check(await(&logged_in, "log in") == SCSI_STATUS_GOOD, "log in");
	int lun = url->lun;
	iscsi_destroy_url(url);
	return lun;
}

static void to_disk(int lun, FILE *file, int first, size_t size)
{
	static unsigned char data[AT_ONCE * BLOCK];
	check(fread(data, 1, size, file) == size, "read of the file");
	struct answer written = {0};
	struct scsi_task *task =
		iscsi_write10_task(iscsi, lun, first, data, size, BLOCK, 0, 0, 0, 0, 0, take_answer, &written);
	check(task != NULL, "write");
	check(await(&written, "write") == SCSI_STATUS_GOOD, "write");
	scsi_free_scsi_task(task);
}

static void from_disk(int lun, FILE *file, int first, size_t size)
{
	struct answer read = {0};
	struct scsi_task *task = iscsi_read10_task(iscsi, lun, first, size, BLOCK, 0, 0, 0, 0, 0, take_answer, &read);
	check(task != NULL, "read");
	check(await(&read, "read") == SCSI_STATUS_GOOD, "read");
	check((size_t)task->datain.size == size, "read");
	check(fwrite(task->datain.data, 1, size, file) == size, "write of the file");
	scsi_free_scsi_task(task);
}

int main(int argc, char **argv)
{
	check(argc == 5, "arguments");
	int writes = !strcmp(argv[2], "to");
	FILE *file = fopen(argv[4], writes ? "rb" : "rb+");
	struct stat about;
	check(file && !fstat(fileno(file), &about) && about.st_size % BLOCK == 0, "file");
	int lun = log_in(argv[1], argv[3]);
	puts("logged in");
	fflush(stdout);
	check(getchar() == '\n', "the word to begin");

	/* The first command after a log-in is answered with what happened before it. */
	struct answer ready = {0}, logged_out = {0};
	struct scsi_task *task = iscsi_testunitready_task(iscsi, lun, take_answer, &ready);
	check(task != NULL, "test unit ready");
	await(&ready, "test unit ready");
	scsi_free_scsi_task(task);
	int blocks = about.st_size / BLOCK;
	for (int first = 0; first < blocks; first += AT_ONCE) {
		size_t size = (blocks - first < AT_ONCE ? blocks - first : AT_ONCE) * BLOCK;
		(writes ? to_disk : from_disk)(lun, file, first, size);
	}
	check(!fclose(file), "file");
	/* Not destroyed: libiscsi's thread for events would go on with what is freed. */
	check(!iscsi_logout_async(iscsi, take_answer, &logged_out), "log out");
	check(await(&logged_out, "log out") == SCSI_STATUS_GOOD, "log out");
	printf("%d blocks copied\n", blocks);
	return 0;
}
