// Direct routing: a program of type BPF_PROG_TYPE_XDP that gives clients' packets to real servers by their MAC addresses.
//
// What comes for a virtual address and port of ours leaves with another MAC address and is otherwise untouched: the real server has the
// virtual address too, and responds to the client directly. Whatever is in doubt goes to the kernel's network stack as if this
// program were not there, and the reason is counted; nothing that was started to be changed goes there.
//
// A connection is remembered with its server, so that it stays there whatever happens to the others. A packet of an unknown one goes where
// the service's table says (maglev.rs), by a hash without a secret or a seed: another director with the same table
// chooses the same server, and this one does after its memory was full.
//
// Written for this program alone. It calls no helper that is reserved to programs under the GPL. Structures and numbers are
// those of `direct/slots.rs`.

// Compiled once more by `stack.c`, with IN_STACK, it sees packets in the network stack instead.

#include "direct/maps.h"
#include "direct/read.h"

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

// Seconds since an entry was used. Another processor may have used it after this one read the clock, which is no age.
INLINE __u32 age(const struct flow *flow, __u32 now)
{
	__s32 age = now - flow->seen;

	return age > 0 ? age : 0;
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
	if (stuck && age(stuck, now) <= service->timeout) {
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
		return age(flow, now) > UDP_IDLE;
	return packet->begins && ((flow->state & CLOSED) || age(flow, now) > SYN_AGAIN);
}

#ifdef IN_STACK

// Gives it to the server: new MAC addresses, and no VLAN tags. The interface that it leaves by sees to its own.
INLINE int forward(CONTEXT *context, const struct server *server, const struct packet *packet)
{
	__u32 tags = packet->tags + (context->vlan_present ? 1 : 0);
	struct ethhdr *ethernet;
	void *end;

	// The outer one is beside the frame, and when it is off, the next one is.
#pragma unroll
	for (__u32 i = 0; i <= TAGS_MAX; i++) {
		if (i < tags && vlan_pop(context))
			return drop(NO_ROOM);
	}
	end = (void *)(long)context->data_end;
	ethernet = AT(struct ethhdr, (void *)(long)context->data);
	if (!ethernet)
		return drop(NO_ROOM);
	__builtin_memcpy(ethernet->h_dest, server->to, ETH_ALEN);
	__builtin_memcpy(ethernet->h_source, server->from, ETH_ALEN);
	return redirect(server->interface, 0) == TC_ACT_REDIRECT ? XDP_REDIRECT : XDP_DROP;
}

#else

// Gives it to the server: new MAC addresses, and the VLAN tags of the server's interface instead of those it came with.
INLINE int forward(CONTEXT *context, const struct server *server, const struct packet *packet)
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
	if (server->interface == context->ingress_ifindex && !(server->leaves & REDIRECTED))
		return XDP_TX;
	return redirect(server->interface, 0);
}

#endif

INLINE void add(void *map, const __u32 *number, __u32 connections, __u32 length)
{
	struct counters *counters = look_up(map, number);

	if (counters) {
		counters->connections += connections;
		counters->packets += 1;
		counters->bytes += length;
	}
}

// What becomes of a packet: `XDP_PASS`, `XDP_DROP`, or it is sent.
INLINE int decide(CONTEXT *context)
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
	mac.interface = CAME_BY(context);
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
	if (server->mtu && packet.length > server->mtu &&
	    (!(server->leaves & FITTING) || server->interface != CAME_BY(context)))
		return drop(TOO_BIG);
	if (packet.is_error)
		count(ERRORS);
	add(&of_services, own, is_new, packet.length);
	add(&of_servers, &number, is_new, packet.length);
	return forward(context, server, &packet);
}

#ifdef IN_STACK

// All that is read of a packet: Ethernet, two tags, IPv6, an ICMP error, and the headers that it quotes.
#define HEADERS (14 + 8 + 40 + 8 + 40 + 8)

SECTION("classifier")
int stack(CONTEXT *context)
{
	__u32 there = context->len < HEADERS ? context->len : HEADERS;

	// What follows the first bytes may be elsewhere.
	if ((void *)(long)context->data + there > (void *)(long)context->data_end && pull_data(context, there))
		return TCX_NEXT;
	switch (decide(context)) {
	case XDP_PASS:
		return TCX_NEXT;
	case XDP_REDIRECT:
		return TC_ACT_REDIRECT;
	default:
		return TC_ACT_SHOT;
	}
}

#else

SECTION("xdp.frags")
int direct(CONTEXT *context)
{
	return decide(context);
}

#endif

char licence[] SECTION("license") = "MIT OR Apache-2.0";
