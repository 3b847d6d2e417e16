
/* ---- memory ---- */

static uint8_t *bytes_of(uint64_t length)
{
	struct region *region = the_region();
	uint64_t offset = number("off", 0);

	return region && offset <= region->size && length <= region->size - offset ? region->base + offset : NULL;
}

static void read_memory(void)
{
	uint64_t length = number("len", 0);
	const uint8_t *from = bytes_of(length);

	if (!from) {
		failed("no such memory", EFAULT);
		return;
	}
	fprintf(answer, "ok data=");
	for (uint64_t i = 0; i < length; i++)
		fprintf(answer, "%02x", from[i]);
	fprintf(answer, "\n");
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static size_t unhex(uint8_t *to, const char *from, size_t room)
{
	size_t n = 0;

	for (; n < room && hex(from[2 * n]) >= 0 && hex(from[2 * n + 1]) >= 0; n++)
		to[n] = hex(from[2 * n]) << 4 | hex(from[2 * n + 1]);
	return n;
}

static void write_memory(void)
{
	const char *data = text("data");
	size_t length = data ? strlen(data) / 2 : 0;
	uint8_t *to = bytes_of(length);

	result("no such memory", to && unhex(to, data ? data : "", length) == length ? 0 : EFAULT);
}

/* ---- patterns: data that need not be sent to be checked ---- */

#define MARGIN 64 /* bytes on either side of a buffer that must not change */

/* Eight bytes of the pattern with this seed; different for every place and every seed. */
static uint64_t pattern(uint64_t seed, uint64_t place)
{
	uint64_t z = seed * UINT64_C(0x9e3779b97f4a7c15) + place * UINT64_C(0xbf58476d1ce4e5b9);

	z = (z ^ (z >> 30)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* The part of those eight bytes that begins at byte `first` of the pattern: where it is, and how long. */
static size_t part(uint64_t *value, uint64_t seed, uint64_t first, size_t length)
{
	size_t rest = 8 - first % 8;

	*value = pattern(seed, first / 8) >> (8 * (first % 8));
	return rest < length ? rest : length;
}

static void write_pattern(uint8_t *bytes, uint64_t first, size_t length, uint64_t seed)
{
	uint64_t value;

	for (size_t n, i = 0; i < length; i += n) {
		n = part(&value, seed, first + i, length - i);
		memcpy(bytes + i, &value, n);
	}
}

/* The first byte that differs, or `length`. */
static size_t same(const uint8_t *bytes, uint64_t first, size_t length, uint64_t seed)
{
	uint64_t value;

	for (size_t n, i = 0; i < length; i += n) {
		n = part(&value, seed, first + i, length - i);
		if (memcmp(bytes + i, &value, n) == 0)
			continue;
		while (bytes[i] == (uint8_t)value) {
			value >>= 8;
			i++;
		}
		return i;
	}
	return length;
}

/* The buffer of a command: bytes with margins around them that are the region's, too. */
struct buffer {
	uint8_t *bytes;
	size_t length;
	uint64_t at;		  /* in the region */
	uint64_t pattern, around; /* seeds */
};

static bool find_buffer(struct buffer *buffer)
{
	uint64_t length = number("len", 0);
	const struct region *region = the_region();

	buffer->bytes = bytes_of(length);
	buffer->length = length;
	buffer->at = number("off", 0);
	buffer->around = number("back", 0);
	buffer->pattern = number("seed", buffer->around);
	if (buffer->bytes && buffer->at >= MARGIN && region->size - buffer->at - length >= MARGIN)
		return true;
	failed("no such buffer", EINVAL);
	return false;
}

/* Where in its pattern the buffer begins. What is to look like the background goes on with it. */
static uint64_t beginning(const struct buffer *buffer)
{
	return buffer->pattern == buffer->around ? buffer->at : 0;
}

static void write_margins(const struct buffer *buffer)
{
	write_pattern(buffer->bytes - MARGIN, buffer->at - MARGIN, MARGIN, buffer->around);
	write_pattern(buffer->bytes + buffer->length, buffer->at + buffer->length, MARGIN, buffer->around);
}

/* What was written around the buffer, where nothing may be; NULL if nothing was. A header may come before it. */
static const char *damage(const struct buffer *buffer)
{
	uint64_t head = number("head", 0);
	const uint8_t *end = buffer->bytes + buffer->length;

	if (head > buffer->at - MARGIN ||
	    same(buffer->bytes - head - MARGIN, buffer->at - head - MARGIN, MARGIN, buffer->around) != MARGIN)
		return "bytes before the buffer were written";
	if (same(end, buffer->at + buffer->length, MARGIN, buffer->around) != MARGIN)
		return "bytes after the buffer were written";
	return NULL;
}

static void fill(void)
{
	struct buffer buffer;

	if (!find_buffer(&buffer))
		return;
	write_margins(&buffer);
	write_pattern(buffer.bytes, beginning(&buffer), buffer.length, buffer.pattern);
	fprintf(answer, "ok\n");
}

static void frame(void)
{
	struct buffer buffer;

	if (!find_buffer(&buffer))
		return;
	write_margins(&buffer);
	fprintf(answer, "ok\n");
}

static void check(void)
{
	struct buffer buffer;
	const char *wrong;
	size_t good;

	if (!find_buffer(&buffer))
		return;
	good = same(buffer.bytes, beginning(&buffer), buffer.length, buffer.pattern);
	if (good != buffer.length)
		fprintf(answer, "error 0 byte %zu of %zu is wrong: %02x\n", good, buffer.length, buffer.bytes[good]);
	else if ((wrong = damage(&buffer)))
		fprintf(answer, "error 0 %s\n", wrong);
	else
		fprintf(answer, "ok\n");
}

static void prefix(void)
{
	struct buffer buffer;
	const char *wrong;
	size_t there, rest, mtu = number("mtu", 1024);

	if (!find_buffer(&buffer))
		return;
	there = same(buffer.bytes, 0, buffer.length, buffer.pattern);
	if (there != buffer.length && mtu)
		there -= there % mtu; /* a byte of the background may look like the pattern */
	rest = buffer.length - there;
	if (same(buffer.bytes + there, buffer.at + there, rest, buffer.around) != rest)
		fprintf(answer, "error 0 after %zu of %zu bytes comes something else\n", there, buffer.length);
	else if ((wrong = damage(&buffer)))
		fprintf(answer, "error 0 %s\n", wrong);
	else
		fprintf(answer, "ok bytes=%zu\n", there);
}

static void which(void)
{
	struct buffer buffer;
	uint64_t count = number("count", 1);

	if (!find_buffer(&buffer))
		return;
	for (uint64_t i = 0; i < count; i++)
		if (same(buffer.bytes, 0, buffer.length, buffer.pattern + i) == buffer.length) {
			fprintf(answer, "ok index=%" PRIu64 "\n", i);
			return;
		}
	fprintf(answer, "error 0 the bytes are from none of them\n");
}

static void word(void)
{
	uint64_t value = number("set", 0);
	uint8_t *bytes = bytes_of(sizeof value);

	if (!bytes) {
		failed("no such memory", EFAULT);
		return;
	}
	if (text("set"))
		memcpy(bytes, &value, sizeof value);
	memcpy(&value, bytes, sizeof value);
	fprintf(answer, "ok value=%" PRIu64 "\n", value);
}
