/* Writes every block of a disk through libiscsi, logs in anew, and reads them back. `iscsi_data INITIATOR URL`. */
#include "iscsi.h"

#define BLOCKS 2048
#define AT_ONCE 128

static int connected(const char *initiator, const char *text)
{
	struct iscsi_url *url = prepare(initiator, text);
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
