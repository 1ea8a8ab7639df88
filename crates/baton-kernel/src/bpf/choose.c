// Which of two instances a new connection goes to: a program of type BPF_PROG_TYPE_SK_LOOKUP.
//
// The kernel asks it when a SYN has come for which it is to find a listening socket (linux, Documentation/bpf/prog_sk_lookup.rst).
// Connections that are there, half open ones included, are found before and never get here. Where this program has nothing to
// say, the kernel looks as ever.
//
// Written for this program alone. It calls no helper that is reserved to programs under the GPL.

#include <linux/bpf.h>

#define SECTION(name) __attribute__((section(name), used))
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, value) typeof(value) *name

#define IPV4 2  // AF_INET
#define IPV6 10 // AF_INET6
#define TCP 6   // IPPROTO_TCP

// The most addresses under one name; `PLACES_MAX` in mod.rs.
#define PLACES_MAX 64
// Two colours, a socket for IPv4 and one for IPv6 each; `Slot` in mod.rs.
#define SLOTS 4

// An address and a port that connections come for. All zeroes in the address: any.
struct place {
	__u32 family;
	__u32 port;       // in the machine's byte order
	__u32 address[4]; // in the network's; the first word for IPv4
};

// The addresses that are ours.
struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, PLACES_MAX);
	TYPE(key, struct place);
	TYPE(value, __u32);
} places SECTION(".maps");

// The one value that a flip changes: 0 or 1.
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, __u32);
} active SECTION(".maps");

// The listening sockets. The kernel removes one that is closed.
struct {
	NUMBER(type, BPF_MAP_TYPE_SOCKMAP);
	NUMBER(max_entries, SLOTS);
	TYPE(key, __u32);
	TYPE(value, __u32);
} sockets SECTION(".maps");

// Which sockets were put into `sockets`, by their cookies: for those who want to know whether they are there still. The program
// does not look.
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} cookies SECTION(".maps");

// How many new connections each place has got since all this was made: for those who want to know. A SYN that comes again counts
// again.
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, SLOTS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} counts SECTION(".maps");

static void *(*const look_up)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const assign)(struct bpf_sk_lookup *about, void *socket, __u64 flags) = (void *)BPF_FUNC_sk_assign;
static long (*const release)(void *socket) = (void *)BPF_FUNC_sk_release;

SECTION("sk_lookup")
int choose(struct bpf_sk_lookup *about)
{
	struct place place = { .family = about->family, .port = about->local_port };
	__u32 first = 0, slot = 0, *colour;
	void *socket;
	__u64 *count;

	if (about->protocol != TCP)
		return SK_PASS;
	if (place.family == IPV4) {
		place.address[0] = about->local_ip4;
	} else if (place.family == IPV6) {
		place.address[0] = about->local_ip6[0];
		place.address[1] = about->local_ip6[1];
		place.address[2] = about->local_ip6[2];
		place.address[3] = about->local_ip6[3];
		slot = 1;
	} else {
		return SK_PASS;
	}
	if (!look_up(&places, &place)) {
		place.address[0] = place.address[1] = place.address[2] = place.address[3] = 0;
		if (!look_up(&places, &place))
			return SK_PASS;
	}
	colour = look_up(&active, &first);
	if (!colour)
		return SK_PASS;
	slot += (*colour & 1) * 2;
	socket = look_up(&sockets, &slot);
	if (!socket)
		return SK_PASS;
	// Refused when it does not listen any more: then the kernel looks as ever.
	if (assign(about, socket, 0) == 0) {
		count = look_up(&counts, &slot);
		if (count)
			__sync_fetch_and_add(count, 1);
	}
	release(socket);
	return SK_PASS;
}

char licence[] SECTION("license") = "MIT OR Apache-2.0";
