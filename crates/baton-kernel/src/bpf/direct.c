// Direct routing: a program of type BPF_PROG_TYPE_XDP that gives clients' packets to real servers by their MAC addresses.
//
// What comes for a virtual address and port of ours leaves with another MAC address and is otherwise untouched: the real server has the
// virtual address too, and answers the client by itself. Whatever is in doubt goes to the kernel's network stack as if this
// program were not there, and the reason is counted; nothing that was started to be changed goes there.
//
// A connection is remembered with its server, so that it stays there whatever happens to the others. A packet of an unknown one goes where
// the service's table says (maglev.rs), by a hash without a secret or a seed: another director with the same table
// chooses the same server, and this one does after its memory was full.
//
// Written for this program alone. It calls no helper that is reserved to programs under the GPL. Structures and numbers are
// those of `direct/mod.rs`.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#define SECTION(name) __attribute__((section(name), used))
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, value) typeof(value) *name
#define INLINE static __attribute__((always_inline)) inline

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define net16(value) __builtin_bswap16(value)
#else
#define net16(value) (value)
#endif

#define IPV4 2  // AF_INET
#define IPV6 10 // AF_INET6
#define ICMP 1  // IPPROTO_ICMP
#define ICMP6 58

// Numbers of `direct/mod.rs`.
#define SERVICES_MAX 256
#define SERVERS_MAX 4096
#define PLACES_MAX 512
#define MACS_MAX 256
#define TABLE 16381
#define TAGS_MAX 2
#define NOBODY 0xffff

// Seconds after which a SYN, or anything of UDP, begins a connection of its own though one with these ports is remembered.
// A SYN that is sent again comes earlier.
#define SYN_AGAIN 120
#define UDP_IDLE 300

// `service.flags`.
#define HASH_PORT 1  // the client's port decides too
#define STICK 2      // a client's later connections go where its first one went
#define ONE_PACKET 4 // nothing is remembered

// `flow.state`: the client has sent FIN or RST.
#define CLOSED 1

// Why a packet was not just forwarded; `Reason` in direct/mod.rs.
enum reason {
	NO_SERVICE,  // to a virtual address, but to no port of a service: passed
	FRAGMENT,    // passed
	OPTIONS,     // IPv4 options or IPv6 extension headers: passed
	PROTOCOL,    // neither TCP nor UDP, and no ICMP error of a connection: passed
	MALFORMED,   // headers cut short or contradictory: passed
	TAGS,        // more VLAN tags than this program reads: passed
	NOT_OURS,    // to a MAC address that is not of this interface: passed
	NO_SERVER,   // nobody takes new connections: passed
	NO_MAC,      // the connection's server has no MAC address: dropped
	TOO_BIG,     // for the interface of the server: dropped
	NO_ROOM,     // before the packet, for another VLAN tag: dropped
	GONE,        // the connection's server was removed, and another one was chosen: forwarded
	UNREMEMBERED,// the connection could not be remembered: forwarded
	ERRORS,      // an ICMP error about a connection: forwarded
	REASONS,
};

// What packets come for. `family` 0 does not occur. Protocol and port 0: the address, for whatever it is used. Port 0: any.
struct place {
	__u8 family;
	__u8 protocol;
	__u16 port;       // in the network's byte order
	__u32 address[4]; // the same; the first word for IPv4
};

// A virtual service. What the program does not read is there for the agent to find again.
struct service {
	__u32 is_used;
	__u32 table;   // an index into `tables`
	__u32 flags;
	__u32 timeout; // of a client's stickiness, in seconds
	__u32 mask[4]; // the bits of a client's address that count
	struct place place;
	__u32 settings;
};

// A real server of a service.
struct server {
	__u32 generation; // of this slot's use; 0: free
	__u32 service;
	__u32 interface;  // 0: it has no MAC address yet
	__u32 weight;
	__u32 mtu;        // of the interface; 0: does not matter
	__u8 to[ETH_ALEN];
	__u8 from[ETH_ALEN];
	__u32 tags;               // how many
	__u16 protocols[TAGS_MAX]; // 802.1Q or 802.1ad, outer one first, in the network's byte order
	__u16 numbers[TAGS_MAX];   // the VLANs' numbers, in the machine's
	__u32 port;
	__u32 family;
	__u32 address[4];
};

// Entries of a service's hash table.
struct table {
	__u16 server[TABLE];
};

// A connection. Both ports 0: all of a client's, in a service that sticks.
struct flow_key {
	__u32 client[4];
	__u32 service;
	__u16 from;
	__u16 to;
};

struct flow {
	__u32 server;
	__u32 generation; // of the server's slot
	__u32 seen;       // seconds of the machine's uptime
	__u32 state;
};

// A MAC address that an interface takes packets for.
struct mac {
	__u32 interface;
	__u8 address[ETH_ALEN];
	__u16 zero;
};

// The version of all these structures, for an agent of another version, and the cookie of the network namespace.
struct layout {
	__u32 version;
	__u32 zero;
	__u64 namespace;
};

struct counters {
	__u64 connections;
	__u64 packets;
	__u64 bytes;
};

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, PLACES_MAX);
	TYPE(key, struct place);
	TYPE(value, __u32);
} places SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_HASH);
	NUMBER(max_entries, MACS_MAX);
	TYPE(key, struct mac);
	TYPE(value, __u32);
} macs SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, SERVICES_MAX);
	TYPE(key, __u32);
	TYPE(value, struct service);
} services SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, SERVERS_MAX);
	TYPE(key, __u32);
	TYPE(value, struct server);
} servers SECTION(".maps");

// Two for each service: while one is in use, the other one is written.
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 2 * SERVICES_MAX);
	TYPE(key, __u32);
	TYPE(value, struct table);
} tables SECTION(".maps");

// Every processor has its own list of what was used last, and gives up its own oldest entries; all of them find all entries, because a
// connection may move from one processor to another.
struct {
	NUMBER(type, BPF_MAP_TYPE_LRU_HASH);
	NUMBER(max_entries, 524288);
	NUMBER(map_flags, BPF_F_NO_COMMON_LRU);
	TYPE(key, struct flow_key);
	TYPE(value, struct flow);
} flows SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, SERVICES_MAX);
	TYPE(key, __u32);
	TYPE(value, struct counters);
} of_services SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, SERVERS_MAX);
	TYPE(key, __u32);
	TYPE(value, struct counters);
} of_servers SECTION(".maps");

struct {
	NUMBER(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	NUMBER(max_entries, REASONS);
	TYPE(key, __u32);
	TYPE(value, __u64);
} reasons SECTION(".maps");

// For agents; the program does not look.
struct {
	NUMBER(type, BPF_MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	TYPE(key, __u32);
	TYPE(value, struct layout);
} layout SECTION(".maps");

static void *(*const look_up)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const update)(void *map, const void *key, const void *value, __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static __u64 (*const uptime_ns)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;
static long (*const adjust_head)(struct xdp_md *context, int delta) = (void *)BPF_FUNC_xdp_adjust_head;
static __u64 (*const whole_length)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;

// A header in the packet, if all of it is there.
#define AT(type, place) ({ type *found_ = (type *)(place); (void *)(found_ + 1) > end ? 0 : found_; })

struct tag {
	__be16 number; // with priority and drop eligibility in the upper four bits
	__be16 protocol;
};

struct ports {
	__be16 from;
	__be16 to;
	__u32 more;
};

struct icmp {
	__u8 type;
	__u8 code;
	__u16 checksum;
	__u32 more;
};

// What was read of a packet.
struct packet {
	struct place place;
	__u32 client[4];
	__be16 client_port;
	__u16 priority;   // upper four bits of the outer tag
	__u32 tags;
	__u32 length;     // from the IP header on
	__u32 begins : 1; // SYN alone
	__u32 ends : 1;   // FIN or RST
	__u32 is_reset : 1;
	__u32 is_error : 1; // ICMP about a packet of the connection
};

INLINE void count(__u32 reason)
{
	__u64 *counter = look_up(&reasons, &reason);

	if (counter)
		*counter += 1;
}

INLINE int pass(__u32 reason)
{
	count(reason);
	return XDP_PASS;
}

INLINE int drop(__u32 reason)
{
	count(reason);
	return XDP_DROP;
}

// For what is in doubt: it matters only when it is for an address of ours.
INLINE int pass_ours(const struct place *of, __u32 reason)
{
	struct place place = *of;

	place.protocol = 0;
	place.port = 0;
	if (look_up(&places, &place))
		count(reason);
	return XDP_PASS;
}

INLINE void copy_six(__u32 *to, const struct in6_addr *from)
{
	to[0] = from->s6_addr32[0];
	to[1] = from->s6_addr32[1];
	to[2] = from->s6_addr32[2];
	to[3] = from->s6_addr32[3];
}

INLINE int is_same(const __u32 *one, const __u32 *other)
{
	return one[0] == other[0] && one[1] == other[1] && one[2] == other[2] && one[3] == other[3];
}

// Readers say 0 when `packet` is one for a service to look up, else what becomes of it, plus one.
#define VERDICT(what) ((what) + 1)

INLINE int read_tcp(struct packet *packet, void *at, void *end, __u32 rest)
{
	struct tcphdr *tcp = AT(struct tcphdr, at);

	if (!tcp || rest < sizeof(*tcp) || tcp->doff < 5 || tcp->doff * 4u > rest || (tcp->syn && (tcp->fin || tcp->rst)))
		return VERDICT(pass_ours(&packet->place, MALFORMED));
	packet->client_port = tcp->source;
	packet->place.port = tcp->dest;
	packet->begins = tcp->syn && !tcp->ack;
	packet->ends = tcp->fin || tcp->rst;
	packet->is_reset = tcp->rst;
	return 0;
}

INLINE int read_udp(struct packet *packet, void *at, void *end, __u32 rest)
{
	struct udphdr *udp = AT(struct udphdr, at);

	if (!udp || rest < sizeof(*udp) || net16(udp->len) < sizeof(*udp) || net16(udp->len) > rest)
		return VERDICT(pass_ours(&packet->place, MALFORMED));
	packet->client_port = udp->source;
	packet->place.port = udp->dest;
	return 0;
}

// An error about a packet that a server sent from the virtual address: that packet is quoted.
INLINE int read_icmp4(struct packet *packet, void *at, void *end)
{
	struct icmp *icmp = AT(struct icmp, at);
	struct iphdr *quoted = AT(struct iphdr, at + sizeof(*icmp));
	struct ports *ports = AT(struct ports, at + sizeof(*icmp) + sizeof(*quoted));

	// Unreachable (and fragmentation needed), time exceeded, parameter problem (RFC 792).
	if (!icmp || (icmp->type != 3 && icmp->type != 11 && icmp->type != 12))
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	if (!quoted || !ports || quoted->version != 4 || quoted->ihl != 5 || (quoted->frag_off & net16(0x1fff)) ||
	    (quoted->protocol != IPPROTO_TCP && quoted->protocol != IPPROTO_UDP) || quoted->saddr != packet->place.address[0])
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	packet->place.protocol = quoted->protocol;
	packet->place.port = ports->from;
	packet->client[0] = quoted->daddr;
	packet->client_port = ports->to;
	packet->is_error = 1;
	return 0;
}

INLINE int read_icmp6(struct packet *packet, void *at, void *end)
{
	struct icmp *icmp = AT(struct icmp, at);
	struct ipv6hdr *quoted = AT(struct ipv6hdr, at + sizeof(*icmp));
	struct ports *ports = AT(struct ports, at + sizeof(*icmp) + sizeof(*quoted));
	__u32 from[4];

	// Unreachable, packet too big, time exceeded, parameter problem (RFC 4443).
	if (!icmp || icmp->type < 1 || icmp->type > 4)
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	if (!quoted || !ports || quoted->version != 6 || (quoted->nexthdr != IPPROTO_TCP && quoted->nexthdr != IPPROTO_UDP))
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	copy_six(from, &quoted->saddr);
	if (!is_same(from, packet->place.address))
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	packet->place.protocol = quoted->nexthdr;
	packet->place.port = ports->from;
	copy_six(packet->client, &quoted->daddr);
	packet->client_port = ports->to;
	packet->is_error = 1;
	return 0;
}

INLINE int read_four(struct packet *packet, void *at, void *end, __u32 there)
{
	struct iphdr *ip = AT(struct iphdr, at);
	__u32 rest;

	if (!ip)
		return VERDICT(pass(MALFORMED));
	packet->place.family = IPV4;
	packet->place.address[0] = ip->daddr;
	packet->client[0] = ip->saddr;
	packet->length = net16(ip->tot_len);
	if (ip->version != 4 || ip->ihl < 5 || packet->length < ip->ihl * 4u || packet->length > there || ip->saddr == ip->daddr)
		return VERDICT(pass_ours(&packet->place, MALFORMED));
	if (ip->frag_off & net16(0x3fff))
		return VERDICT(pass_ours(&packet->place, FRAGMENT));
	if (ip->ihl != 5)
		return VERDICT(pass_ours(&packet->place, OPTIONS));
	packet->place.protocol = ip->protocol;
	rest = packet->length - sizeof(*ip);
	at += sizeof(*ip);
	if (ip->protocol == IPPROTO_TCP)
		return read_tcp(packet, at, end, rest);
	if (ip->protocol == IPPROTO_UDP)
		return read_udp(packet, at, end, rest);
	if (ip->protocol == ICMP)
		return read_icmp4(packet, at, end);
	return VERDICT(pass_ours(&packet->place, PROTOCOL));
}

INLINE int read_six(struct packet *packet, void *at, void *end, __u32 there)
{
	struct ipv6hdr *ip = AT(struct ipv6hdr, at);
	__u32 rest;

	if (!ip)
		return VERDICT(pass(MALFORMED));
	packet->place.family = IPV6;
	copy_six(packet->place.address, &ip->daddr);
	copy_six(packet->client, &ip->saddr);
	rest = net16(ip->payload_len);
	packet->length = rest + sizeof(*ip);
	if (ip->version != 6 || packet->length > there || is_same(packet->client, packet->place.address))
		return VERDICT(pass_ours(&packet->place, MALFORMED));
	packet->place.protocol = ip->nexthdr;
	at += sizeof(*ip);
	switch (ip->nexthdr) {
	case IPPROTO_TCP:
		return read_tcp(packet, at, end, rest);
	case IPPROTO_UDP:
		return read_udp(packet, at, end, rest);
	case ICMP6:
		return read_icmp6(packet, at, end);
	case IPPROTO_FRAGMENT:
		return VERDICT(pass_ours(&packet->place, FRAGMENT));
	case IPPROTO_HOPOPTS:
	case IPPROTO_ROUTING:
	case IPPROTO_DSTOPTS:
	case IPPROTO_AH:
		return VERDICT(pass_ours(&packet->place, OPTIONS));
	default:
		return VERDICT(pass_ours(&packet->place, PROTOCOL));
	}
}

INLINE int is_tag(__be16 protocol)
{
	return protocol == net16(ETH_P_8021Q) || protocol == net16(ETH_P_8021AD);
}

INLINE int read(struct packet *packet, struct xdp_md *context)
{
	void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
	struct ethhdr *ethernet = AT(struct ethhdr, data);
	void *at = data + sizeof(*ethernet);
	__be16 protocol;
	struct tag *tag;
	__u32 there;

	if (!ethernet)
		return VERDICT(XDP_PASS);
	protocol = ethernet->h_proto;
	if (is_tag(protocol)) {
		tag = AT(struct tag, at);
		if (!tag)
			return VERDICT(pass(MALFORMED));
		packet->priority = net16(tag->number) & 0xf000;
		protocol = tag->protocol;
		packet->tags = 1;
		at += sizeof(*tag);
		if (is_tag(protocol)) {
			tag = AT(struct tag, at);
			if (!tag)
				return VERDICT(pass(MALFORMED));
			protocol = tag->protocol;
			packet->tags = 2;
			at += sizeof(*tag);
			if (is_tag(protocol))
				return VERDICT(pass(TAGS));
		}
	}
	there = whole_length(context) - sizeof(*ethernet) - packet->tags * sizeof(*tag);
	if (protocol == net16(ETH_P_IP))
		return read_four(packet, at, end, there);
	if (protocol == net16(ETH_P_IPV6))
		return read_six(packet, at, end, there);
	return VERDICT(XDP_PASS);
}

// Of what the service is asked to look at. The constants are those of the finalizer of MurmurHash3, which is in the public
// domain.
INLINE __u32 hash(const __u32 *client, __be16 port)
{
	__u64 value = 0;

#pragma unroll
	for (int i = 0; i < 4; i++) {
		value = (value ^ client[i]) * 0xff51afd7ed558ccdULL;
		value ^= value >> 33;
	}
	value = (value ^ port) * 0xc4ceb9fe1a85ec53ULL;
	value ^= value >> 33;
	return value;
}

// The server of an entry, unless its slot has another one by now.
INLINE struct server *server_of(const struct flow *flow)
{
	struct server *server = look_up(&servers, &flow->server);

	return server && server->generation == flow->generation ? server : 0;
}

// By the table. The slot's number goes into `number`.
INLINE struct server *by_table(const struct service *service, __u32 own, const __u32 *client, __be16 port, __u32 *number)
{
	__u32 at = hash(client, service->flags & HASH_PORT ? port : 0) % TABLE;
	struct table *table = look_up(&tables, &service->table);
	struct server *server;

	if (!table)
		return 0;
	// The compiler knows that it is less, the verifier does not.
	asm volatile("" : "+r"(at));
	if (at >= TABLE)
		return 0;
	*number = table->server[at];
	if (*number == NOBODY)
		return 0;
	server = look_up(&servers, number);
	return server && server->generation && server->service == own ? server : 0;
}

// For a connection that is not remembered.
INLINE struct server *choose(const struct service *service, __u32 own, const struct packet *packet, __u32 now, __u32 *number)
{
	struct flow_key all = { .service = own };
	struct server *server;
	struct flow *stuck, fresh = {};

#pragma unroll
	for (int i = 0; i < 4; i++)
		all.client[i] = packet->client[i] & service->mask[i];
	if (!(service->flags & STICK))
		return by_table(service, own, all.client, packet->client_port, number);
	stuck = look_up(&flows, &all);
	if (stuck && now - stuck->seen <= service->timeout) {
		server = server_of(stuck);
		if (server && server->weight && server->interface) {
			*number = stuck->server;
			if (!packet->is_error)
				stuck->seen = now;
			return server;
		}
	}
	server = by_table(service, own, all.client, packet->client_port, number);
	if (server && !packet->is_error && !packet->is_reset) {
		fresh.server = *number;
		fresh.generation = server->generation;
		fresh.seen = now;
		update(&flows, &all, &fresh, BPF_ANY);
	}
	return server;
}

// Whether a packet begins a connection of its own.
INLINE int is_over(const struct flow *flow, const struct packet *packet, __u32 now)
{
	if (packet->is_error)
		return 0;
	if (packet->place.protocol == IPPROTO_UDP)
		return now - flow->seen > UDP_IDLE;
	return packet->begins && ((flow->state & CLOSED) || now - flow->seen > SYN_AGAIN);
}

// Gives it to the server: new MAC addresses, and the VLAN tags of the server's interface instead of those it came with.
INLINE int forward(struct xdp_md *context, const struct server *server, const struct packet *packet)
{
	int shorter = ((int)packet->tags - (int)(server->tags & 3)) * (int)sizeof(struct tag);
	struct ethhdr *ethernet;
	__be16 protocol = packet->place.family == IPV4 ? net16(ETH_P_IP) : net16(ETH_P_IPV6);
	struct tag *outer, *inner;
	void *end;

	if (shorter && adjust_head(context, shorter))
		return drop(NO_ROOM);
	end = (void *)(long)context->data_end;
	ethernet = AT(struct ethhdr, (void *)(long)context->data);
	if (!ethernet)
		return drop(NO_ROOM);
	__builtin_memcpy(ethernet->h_dest, server->to, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, server->from, ETH_ALEN);
	if (server->tags == 0) {
		ethernet->h_proto = protocol;
	} else {
		outer = AT(struct tag, ethernet + 1);
		if (!outer)
			return drop(NO_ROOM);
		ethernet->h_proto = server->protocols[0];
		outer->number = net16((server->numbers[0] & 0xfff) | packet->priority);
		outer->protocol = protocol;
		if (server->tags > 1) {
			inner = AT(struct tag, outer + 1);
			if (!inner)
				return drop(NO_ROOM);
			outer->protocol = server->protocols[1];
			inner->number = net16(server->numbers[1] & 0xfff);
			inner->protocol = protocol;
		}
	}
	if (server->interface == context->ingress_ifindex)
		return XDP_TX;
	return redirect(server->interface, 0);
}

INLINE void add(void *map, const __u32 *number, __u32 connections, __u32 length)
{
	struct counters *counters = look_up(map, number);

	if (counters) {
		counters->connections += connections;
		counters->packets += 1;
		counters->bytes += length;
	}
}

SECTION("xdp.frags")
int direct(struct xdp_md *context)
{
	struct packet packet = {};
	struct flow_key key = {};
	struct mac mac = {};
	struct flow *flow, fresh = {};
	struct server *server = 0;
	struct service *service;
	struct ethhdr *ethernet;
	__u32 *own, number = 0, now, is_new = 0;
	void *end;
	int verdict = read(&packet, context);

	if (verdict)
		return verdict - 1;
	own = look_up(&places, &packet.place);
	if (!own) {
		struct place any = packet.place;

		any.port = 0;
		own = look_up(&places, &any);
		if (!own)
			return pass_ours(&packet.place, NO_SERVICE);
	}
	if (!packet.place.port || !packet.client_port)
		return pass(MALFORMED);
	service = look_up(&services, own);
	if (!service || !service->is_used)
		return pass(NO_SERVICE);

	// What is for somebody else comes by here where an interface listens to everything.
	end = (void *)(long)context->data_end;
	ethernet = AT(struct ethhdr, (void *)(long)context->data);
	if (!ethernet)
		return XDP_PASS;
	mac.interface = context->ingress_ifindex;
	__builtin_memcpy(mac.address, ethernet->h_dest, ETH_ALEN);
	if (!look_up(&macs, &mac))
		return pass(NOT_OURS);

	now = uptime_ns() / 1000000000;
	__builtin_memcpy(key.client, packet.client, sizeof(key.client));
	key.service = *own;
	key.from = packet.client_port;
	key.to = packet.place.port;
	flow = look_up(&flows, &key);
	if (flow && !is_over(flow, &packet, now)) {
		server = server_of(flow);
		if (server) {
			number = flow->server;
			if (!packet.is_error) {
				if (flow->seen != now)
					flow->seen = now;
				if (packet.ends)
					flow->state |= CLOSED;
			}
		} else {
			count(GONE);
		}
	}
	if (!server) {
		server = choose(service, *own, &packet, now, &number);
		if (!server)
			return pass(NO_SERVER);
		is_new = !packet.is_error && !packet.is_reset;
		if (is_new && !(service->flags & ONE_PACKET)) {
			fresh.server = number;
			fresh.generation = server->generation;
			fresh.seen = now;
			fresh.state = packet.ends ? CLOSED : 0;
			if (update(&flows, &key, &fresh, BPF_ANY))
				count(UNREMEMBERED);
		}
	}
	if (!server->interface)
		return drop(NO_MAC);
	if (server->mtu && packet.length > server->mtu)
		return drop(TOO_BIG);
	if (packet.is_error)
		count(ERRORS);
	add(&of_services, own, is_new, packet.length);
	add(&of_servers, &number, is_new, packet.length);
	return forward(context, server, &packet);
}

char licence[] SECTION("license") = "MIT OR Apache-2.0";
