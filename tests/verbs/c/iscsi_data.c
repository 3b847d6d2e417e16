/* Writes every block of a disk through libiscsi, logs in anew, and reads them back. `iscsi_data INITIATOR URL`. */
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK 512
#define BLOCKS 2048
#define AT_ONCE 128

static struct iscsi_context *iscsi;

/* libiscsi 1.19 reads a list that it has not set (iser_conn->tx_desc), and is lucky where new memory is zero. */
void *malloc(size_t size)
{
	return calloc(1, size);
}

static void check(int good, const char *what)
{
	if (!good) {
		fprintf(stderr, "%s: %s\n", what, iscsi ? iscsi_get_error(iscsi) : "");
		exit(1);
	}
}

static int connected(const char *initiator, const char *text)
{
	iscsi = iscsi_create_context(initiator);
	check(iscsi != NULL, "context");
	struct iscsi_url *url = iscsi_parse_full_url(iscsi, text);
	check(url != NULL, "address");
	iscsi_set_targetname(iscsi, url->target);
	iscsi_set_session_type(iscsi, ISCSI_SESSION_NORMAL);
	iscsi_set_header_digest(iscsi, ISCSI_HEADER_DIGEST_NONE);
	check(!iscsi_init_transport(iscsi, url->transport), "transport");
	check(!iscsi_full_connect_sync(iscsi, url->portal, url->lun), "connect");
	int lun = url->lun;
	iscsi_destroy_url(url);
	return lun;
}

static void fill(unsigned char *data, int first)
{
	for (int i = 0; i < AT_ONCE; i++)
		memset(data + i * BLOCK, (first + i) * 7 % 251, BLOCK);
}

int main(int argc, char **argv)
{
	static unsigned char data[AT_ONCE * BLOCK];
	check(argc == 3, "arguments");
	int lun = connected(argv[1], argv[2]);
	for (int first = 0; first < BLOCKS; first += AT_ONCE) {
		fill(data, first);
		struct scsi_task *task = iscsi_write10_sync(iscsi, lun, first, data, sizeof data, BLOCK, 0, 0, 0, 0, 0);
		check(task && task->status == SCSI_STATUS_GOOD, "write");
		scsi_free_scsi_task(task);
	}
	/* Not destroyed: libiscsi's thread for events would go on with what is freed. */
	iscsi_logout_sync(iscsi);
	lun = connected(argv[1], argv[2]);
	for (int first = 0; first < BLOCKS; first += AT_ONCE) {
		fill(data, first);
		struct scsi_task *task = iscsi_read10_sync(iscsi, lun, first, sizeof data, BLOCK, 0, 0, 0, 0, 0);
		check(task && task->status == SCSI_STATUS_GOOD, "read");
		check(task->datain.size == sizeof data && !memcmp(task->datain.data, data, sizeof data), "the data");
		scsi_free_scsi_task(task);
	}
	iscsi_logout_sync(iscsi);
	printf("%d blocks are as they were written\n", BLOCKS);
	return 0;
}
