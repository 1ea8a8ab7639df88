// What is in the maps of `direct.c`, and the kernel's functions that it calls. `slots.rs` has the same structures.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/pkt_cls.h>
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

// What the kernel says of a packet.
#ifdef IN_STACK
#define CONTEXT struct __sk_buff
#define CAME_BY(context) ((context)->ifindex)
#define WHOLE_LENGTH(context) ((context)->len)
#else
#define CONTEXT struct xdp_md
#define CAME_BY(context) ((context)->ingress_ifindex)
#define WHOLE_LENGTH(context) whole_length(context)
#endif

#define TCX_NEXT (-1) // to the next program, and then to the network stack (enum tcx_action_base)

#define IPV4 2  // AF_INET
#define IPV6 10 // AF_INET6
#define ICMP 1  // IPPROTO_ICMP
#define ICMP6 58

// Numbers of `mod.rs` and `slots.rs`.
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

// `server.leaves`: by a redirection also where they came in. The driver of a veth needs it: what it is told to send back waits for ever
// if the other end has GRO and no program.
#define REDIRECTED 1
// `server.mtu` holds for packets that leave by another interface than they came in by. The kernel drops larger ones.
#define FITTING 2

// `flow.state`: the client has sent FIN or RST.
#define CLOSED 1

// Why a packet was not just forwarded; `Reason` in slots.rs.
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
	__u16 tags;               // how many
	__u16 leaves;             // how its packets do
	__u16 protocols[TAGS_MAX]; // 802.1Q or 802.1ad, outer one first, in the network's byte order
	__u16 numbers[TAGS_MAX];   // the VLANs' numbers, in the machine's
	__u32 port;
	__u32 family;
	__u32 address[4];
	__u32 last; // of a free slot: the generation of its last use
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
#ifdef IN_STACK
static long (*const vlan_pop)(struct __sk_buff *context) = (void *)BPF_FUNC_skb_vlan_pop;
static long (*const pull_data)(struct __sk_buff *context, __u32 length) = (void *)BPF_FUNC_skb_pull_data;
#else
static long (*const adjust_head)(struct xdp_md *context, int delta) = (void *)BPF_FUNC_xdp_adjust_head;
static __u64 (*const whole_length)(struct xdp_md *context) = (void *)BPF_FUNC_xdp_get_buff_len;
#endif
static long (*const redirect)(__u32 interface, __u64 flags) = (void *)BPF_FUNC_redirect;
