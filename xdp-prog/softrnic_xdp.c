// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Steers RoCEv2 datagrams for the device's own addresses into AF_XDP sockets, one per receive
// queue, and passes every other frame to the kernel, so that the host keeps its network.
//
// Only the headers are looked at, and they must be in the linear part of the frame; whatever
// cannot be judged there (fragments, IPv6 extension headers, a third VLAN tag) is the kernel's.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_QINQ 0x88a8

#define IPPROTO_UDP 17
#define IPV4_MORE_FRAGMENTS_OR_OFFSET 0x3fff

#define MAX_VLAN_TAGS 2
#define MAX_QUEUES 256
#define MAX_ADDRESSES 4096

// What became of a frame; `Verdict` in lib.rs has the same order.
enum verdict {
	REDIRECTED,
	PASSED_NO_SOCKET,
	PASSED_NOT_IP,
	PASSED_NOT_UDP,
	PASSED_FRAGMENT,
	PASSED_OTHER_PORT,
	PASSED_OTHER_ADDRESS,
	PASSED_TRUNCATED,
	VERDICTS,
};

// An IPv6 address or an IPv4-mapped one, as in a GID.
struct address {
	__u32 word[4];
};

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
} __attribute__((packed));

struct vlan {
	__be16 tci;
	__be16 type;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__be32 source;
	__be32 destination;
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	__u32 source[4];
	__u32 destination[4];
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

// The device's addresses and the multicast groups it has joined.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_ADDRESSES);
	__type(key, struct address);
	__type(value, __u8);
} addresses SEC(".maps");

// The socket of each receive queue.
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, MAX_QUEUES);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

// How many frames had each verdict. Processes can only read it, so any of them may have it.
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(map_flags, BPF_F_RDONLY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} verdicts SEC(".maps");

static __always_inline int count(enum verdict verdict, int action)
{
	__u32 key = verdict;
	__u64 *counter = bpf_map_lookup_elem(&verdicts, &key);

	if (counter)
		*counter += 1;
	return action;
}

static __always_inline int pass(enum verdict verdict)
{
	return count(verdict, XDP_PASS);
}

static __always_inline int steer(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct address address = {};
	struct ethernet *ethernet = data;
	struct udp *udp;
	void *next = ethernet + 1;
	__be16 type;

	if (next > end)
		return pass(PASSED_TRUNCATED);
	type = ethernet->type;

#pragma unroll
	for (int tag = 0; tag < MAX_VLAN_TAGS; tag++) {
		struct vlan *vlan = next;

		if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_QINQ))
			break;
		next = vlan + 1;
		if (next > end)
			return pass(PASSED_TRUNCATED);
		type = vlan->type;
	}

	if (type == bpf_htons(ETHERTYPE_IPV4)) {
		struct ipv4 *ip = next;
		__u32 header;

		if ((void *)(ip + 1) > end)
			return pass(PASSED_TRUNCATED);
		if (ip->protocol != IPPROTO_UDP)
			return pass(PASSED_NOT_UDP);
		if (ip->fragment & bpf_htons(IPV4_MORE_FRAGMENTS_OR_OFFSET))
			return pass(PASSED_FRAGMENT);
		header = (ip->version_ihl & 0x0f) * 4;
		if ((ip->version_ihl >> 4) != 4 || header < sizeof(*ip))
			return pass(PASSED_TRUNCATED);
		next += header;
		address.word[2] = bpf_htonl(0xffff);
		address.word[3] = ip->destination;
	} else if (type == bpf_htons(ETHERTYPE_IPV6)) {
		struct ipv6 *ip = next;

		if ((void *)(ip + 1) > end)
			return pass(PASSED_TRUNCATED);
		// A fragment header is a next header other than UDP, too.
		if (ip->next_header != IPPROTO_UDP)
			return pass(PASSED_NOT_UDP);
		next = ip + 1;
		address.word[0] = ip->destination[0];
		address.word[1] = ip->destination[1];
		address.word[2] = ip->destination[2];
		address.word[3] = ip->destination[3];
	} else {
		return pass(PASSED_NOT_IP);
	}

	udp = next;
	if ((void *)(udp + 1) > end)
		return pass(PASSED_TRUNCATED);
	if (udp->destination != bpf_htons(ROCE_PORT))
		return pass(PASSED_OTHER_PORT);
	if (!bpf_map_lookup_elem(&addresses, &address))
		return pass(PASSED_OTHER_ADDRESS);

	// A queue without a socket leaves its frames to the kernel.
	if (bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return pass(PASSED_NO_SOCKET);
	return count(REDIRECTED, XDP_REDIRECT);
}

// For kernels that know frames of several buffers (5.18 and later).
SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	return steer(ctx);
}

// For kernels and drivers that do not.
SEC("xdp")
int steer_linear(struct xdp_md *ctx)
{
	return steer(ctx);
}

char _license[] SEC("license") = "MIT OR Apache-2.0";
