/*
 * Finds the place of a device as programs do, and says what each of them would find.
 *
 *     places DEVICE BUS-ID
 */
#include <libgen.h>
#include <limits.h>

#include "check.h"

static char text[8][256];

/* A line of a file. */
static const char *line(int which, const char *directory, const char *file)
{
	char path[PATH_MAX + 32];
	FILE *stream;

	snprintf(path, sizeof path, "%s/%s", directory, file);
	stream = fopen(path, "r");
	CHECK(stream && fgets(text[which], sizeof text[which], stream));
	fclose(stream);
	text[which][strcspn(text[which], "\n")] = 0;
	return text[which];
}

/* net_ib.cc has the path of the device, xml.cc looks for it by its bus and reads that of the bridge above it. */
static void as_nccl(const char *device, const char *bus_id)
{
	char path[PATH_MAX + 32], found[PATH_MAX], by_bus[PATH_MAX], above[PATH_MAX], subsystem[PATH_MAX];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/device", device);
	CHECK(realpath(path, found));
	snprintf(path, sizeof path, "/sys/class/pci_bus/%.7s/../../%s", bus_id, bus_id);
	CHECK(realpath(path, by_bus));
	snprintf(path, sizeof path, "%s/..", by_bus);
	CHECK(realpath(path, above));
	printf("NCCL %s %s %s\n", found, by_bus, above);
	snprintf(path, sizeof path, "%s/subsystem", found);
	CHECK(realpath(path, subsystem));
	printf("  %s %s %s %s %s\n", basename(subsystem), line(0, found, "class"), line(1, found, "max_link_speed"),
	       line(2, found, "max_link_width"), line(3, found, "../max_link_speed"));
}

static void as_ucx(const char *device, const char *bus_id)
{
	char path[PATH_MAX + 32], found[PATH_MAX], by_bus[PATH_MAX];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s", device);
	CHECK(realpath(path, found));
	snprintf(path, sizeof path, "/sys/bus/pci/devices/%s", bus_id);
	CHECK(realpath(path, by_bus));
	printf("UCX %s %s %s\n", found, by_bus, line(0, by_bus, "numa_node"));
}

static void as_mooncake(const char *device)
{
	char path[PATH_MAX + 32], found[PATH_MAX];

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/../..", device);
	CHECK(realpath(path, found));
	printf("Mooncake %s %s\n", found, line(0, found, "numa_node"));
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	as_nccl(argv[1], argv[2]);
	as_ucx(argv[1], argv[2]);
	as_mooncake(argv[1]);
	return 0;
}
