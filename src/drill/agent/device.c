
/* ---- devices ---- */

#define DEVICES 8
#define ADDRESSES 64
#define DEVICE_FLUSH_GLOBAL (UINT64_C(1) << 38) /* newer than the headers that some distributions have */
#define DEVICE_ATOMIC_WRITE (UINT64_C(1) << 40)

/* A device with one of its addresses. */
struct device {
	struct ibv_context *context;
	int gid_index;
	uint64_t more_caps;
	struct ibv_pd *pd, *other_pd;
	struct ibv_xrcd *xrcd;
};

/* An address of a device, and who connects there. */
struct address {
	struct device device;
	int listener;
};

static struct address addresses[ADDRESSES];
static int address_count;
/* Where the client connected to; NULL for one on standard input. */
static struct address *reached;
static struct device *devices[DEVICES];

static struct device *the_device(void)
{
	uint64_t i = number("dev", 0);

	return i < DEVICES ? devices[i] : NULL;
}

/* A socket that listens at a GID that is an IP address, if this machine has it. */
static int listen_at(const union ibv_gid *gid, int port)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
	int on = 1, off = 0, listener = socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK, 0);

	/* An IPv4 address is one of IPv6 here, as in the GID. */
	memcpy(&address.sin6_addr, gid, sizeof *gid);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 1) == 0)
		return listener;
	if (listener >= 0)
		close(listener);
	return -1;
}

/* Listens at the addresses of a device; returns how many those are. */
static int listen_for(struct ibv_context *context, int port)
{
	static const union ibv_gid none;
	struct ibv_port_attr attributes;
	int before = address_count;
	union ibv_gid gid;

	if (ibv_query_port(context, 1, &attributes))
		return 0;
	for (int i = 0; i < attributes.gid_tbl_len && address_count < ADDRESSES; i++) {
		struct address *address = &addresses[address_count];

		if (ibv_query_gid(context, 1, i, &gid) || memcmp(&gid, &none, sizeof gid) == 0)
			continue;
		/* The same address may be there for several versions of RoCE: then it is taken. */
		*address = (struct address){{.context = context, .gid_index = i}, listen_at(&gid, port)};
		if (address->listener >= 0)
			address_count++;
	}
	return address_count - before;
}

static void listen_for_devices(int port)
{
	struct ibv_device **list = ibv_get_device_list(NULL);

	for (int d = 0; list && list[d]; d++) {
		struct ibv_context *context = ibv_open_device(list[d]);

		if (context && listen_for(context, port) == 0)
			ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
}

/* The index of a GID of a device; -1 if it is none. */
static int find_gid(struct ibv_context *context, const union ibv_gid *wanted)
{
	struct ibv_port_attr attributes;
	union ibv_gid gid;

	if (ibv_query_port(context, 1, &attributes))
		return -1;
	for (int i = 0; i < attributes.gid_tbl_len; i++)
		if (ibv_query_gid(context, 1, i, &gid) == 0 && memcmp(&gid, wanted, sizeof gid) == 0)
			return i;
	return -1;
}

/* Opens the device that has a GID; NULL, and errno, if there is none. */
static struct device *device_with(const union ibv_gid *gid)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct device *device = calloc(1, sizeof *device);
	int error = ENODEV;

	for (int d = 0; device && list && list[d] && !device->context; d++) {
		struct ibv_context *context = ibv_open_device(list[d]);

		if (!context) {
			error = errno;
			continue;
		}
		device->gid_index = find_gid(context, gid);
		if (device->gid_index >= 0)
			device->context = context;
		else
			ibv_close_device(context);
	}
	if (list)
		ibv_free_device_list(list);
	if (device && device->context)
		return device;
	free(device);
	errno = error;
	return NULL;
}

/* The device that the client asks for. One who connected to an address has no other. */
static struct device *wanted_device(void)
{
	const char *name = text("gid");
	union ibv_gid gid;

	if (reached && !name)
		return &reached->device;
	errno = reached ? EPERM : EINVAL;
	return !reached && name && inet_pton(AF_INET6, name, &gid) == 1 ? device_with(&gid) : NULL;
}

static int prepare(struct device *device)
{
	struct ibv_device_attr_ex attributes;
	int fd = device->context->async_fd;

	memset(&attributes, 0, sizeof attributes);
	if (ibv_query_device_ex(device->context, NULL, &attributes) == 0)
		device->more_caps = attributes.device_cap_flags_ex;
	if (!device->pd && !(device->pd = ibv_alloc_pd(device->context)))
		return errno;
	if (!device->other_pd && !(device->other_pd = ibv_alloc_pd(device->context)))
		return errno;
	return fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) ? errno : 0;
}

static void open_device(void)
{
	uint64_t i = number("dev", 0);
	struct device *device = NULL;
	int error = i < DEVICES && !devices[i] ? 0 : EINVAL;

	if (!error && !(device = wanted_device()))
		error = errno;
	if (!error)
		error = prepare(device);
	if (error) {
		failed("cannot use the device with this address", error);
		return;
	}
	devices[i] = device;
	fprintf(answer, "ok device=%s atomic_write=%d flush=%d\n", ibv_get_device_name(device->context->device),
		!!(device->more_caps & DEVICE_ATOMIC_WRITE), !!(device->more_caps & DEVICE_FLUSH_GLOBAL));
}

static int open_xrcd(struct device *device)
{
	struct ibv_xrcd_init_attr attr = {
		.comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
		.fd = -1,
		.oflags = O_CREAT,
	};

	if (!device->xrcd)
		device->xrcd = ibv_open_xrcd(device->context, &attr);
	return device->xrcd ? 0 : errno;
}
