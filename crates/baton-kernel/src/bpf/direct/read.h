// What a packet is: Ethernet, up to two VLAN tags, IPv4 or IPv6, and TCP, UDP or an ICMP error about either.

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

INLINE int read(struct packet *packet, CONTEXT *context)
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
	there = WHOLE_LENGTH(context) - sizeof(*ethernet) - packet->tags * sizeof(*tag);
	if (protocol == net16(ETH_P_IP))
		return read_four(packet, at, end, there);
	if (protocol == net16(ETH_P_IPV6))
		return read_six(packet, at, end, there);
	return VERDICT(XDP_PASS);
}
