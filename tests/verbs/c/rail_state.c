/*
 * Reads a file when the port of a device changes.
 *
 *     rail_state DEVICE FILE
 */
#include "check.h"

static void tell(const char *what, const char *path)
{
	char text[64];
	FILE *stream = fopen(path, "r");

	CHECK(stream && fgets(text, sizeof text, stream));
	fclose(stream);
	printf("%s: %s", what, text);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	CHECK(argc == 3 && devices);
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), argv[1]))
			context = ibv_open_device(devices[i]);
	CHECK(context);
	tell("begins", argv[2]);
	for (;;) {
		struct ibv_async_event event;

		OK(ibv_get_async_event(context, &event));
		tell(ibv_event_type_str(event.event_type), argv[2]);
		ibv_ack_async_event(&event);
	}
}
