/*
 * Reaches a device's files in sysfs in the ways that programs have.
 *
 *     sysfs DEVICE
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

static int found;

static int visit(const char *path, const struct stat *status, int kind, struct FTW *where)
{
	(void)status;
	(void)kind;
	(void)where;
	found |= strstr(path, "/link_layer") != NULL;
	return 0;
}

static void read_state(int file)
{
	char text[64] = "";
	CHECK(file >= 0);
	CHECK(read(file, text, sizeof text - 1) > 0);
	CHECK(strcmp(text, "4: ACTIVE\n") == 0);
	close(file);
}

static const char *device;

static int is_device(const struct dirent *entry)
{
	return strcmp(entry->d_name, device) == 0;
}

int main(int argc, char **argv)
{
	char path[256];
	struct dirent **names;
	struct stat status;

	CHECK(argc == 2);
	device = argv[1];

	int class = open("/sys/class", O_RDONLY | O_DIRECTORY);
	snprintf(path, sizeof path, "infiniband/%s/ports/1/state", device);
	read_state(openat(class, path, O_RDONLY));
	CHECK(fstatat(class, path, &status, 0) == 0);
	CHECK(faccessat(class, path, R_OK, 0) == 0);
	CHECK(scandirat(class, "infiniband", &names, is_device, alphasort) == 1);

	int ours = openat(class, "infiniband", O_RDONLY | O_DIRECTORY);
	snprintf(path, sizeof path, "%s/ports/1/state", device);
	read_state(openat(ours, path, O_RDONLY));
	CHECK(fchdir(class) == 0);
	snprintf(path, sizeof path, "infiniband/%s/ports/1/state", device);
	read_state(open(path, O_RDONLY));
	CHECK(scandir("./infiniband", &names, is_device, alphasort) == 1);
	CHECK(chdir("infiniband") == 0);
	read_state(open(path + strlen("infiniband/"), O_RDONLY));

	glob_t matches;
	CHECK(glob("/sys/class/infiniband/*/ports/1/state", 0, NULL, &matches) == 0);
	CHECK(matches.gl_pathc == 1);
	read_state(open(matches.gl_pathv[0], O_RDONLY));
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports", device);
	CHECK(nftw(path, visit, 8, FTW_PHYS) == 0);
	CHECK(found);
	puts("all right");
	return 0;
}
