//! Rules in words. Each method adds the steps for one condition or one action, in the order in which they are called.

use std::net::IpAddr;

use super::expression::{self, Comparison, Expression, Header, LOCAL_ADDRESS, Meta, Verdict};
use super::{Family, numbers};
use crate::netlink::Attributes;

/// The protocol number of TCP, one byte of a packet.
const TCP: [u8; 1] = [libc::IPPROTO_TCP as u8];
/// Where ports and flags are in a TCP header (RFC 9293, 3.1).
const SOURCE_PORT: u32 = 0;
const DESTINATION_PORT: u32 = 2;
const TCP_FLAGS: u32 = 13;
/// Bits of the flags.
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Bytes of an interface's name (`IFNAMSIZ`).
const INTERFACE_NAME: usize = libc::IFNAMSIZ;
/// The longest comment, without the zero at its end.
const COMMENT_MAX: usize = 128;

/// A rule: conditions and actions, one after the other. The first condition that does not hold ends it.
#[derive(Clone, Debug, Default)]
pub struct Rule {
    expressions: Vec<Expression>,
    comment: Option<String>,
}

impl Rule {
    /// A rule that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One step more.
    #[must_use]
    pub fn with(mut self, expression: Expression) -> Self {
        self.expressions.push(expression);
        self
    }

    /// What `nft list ruleset` shows beside it. Longer ones than 128 bytes are cut.
    #[must_use]
    pub fn comment(mut self, text: &str) -> Self {
        let mut end = text.len().min(COMMENT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.comment = Some(text[..end].to_owned());
        self
    }

    pub(super) fn equal(self, loaded: Expression, value: &[u8]) -> Self {
        self.with(loaded).with(expression::compare(Comparison::Equal, value))
    }

    /// Packets of this family, in a table for both.
    #[must_use]
    pub fn family(self, family: Family) -> Self {
        self.equal(expression::meta(Meta::Family), &[family.number()])
    }

    /// TCP.
    #[must_use]
    pub fn tcp(self) -> Self {
        self.equal(expression::meta(Meta::Protocol), &TCP)
    }

    /// Packets that came in by this interface.
    #[must_use]
    pub fn incoming(self, interface: &str) -> Self {
        self.equal(expression::meta(Meta::IncomingName), &interface_name(interface))
    }

    /// Packets that came in by any interface but this.
    #[must_use]
    pub fn not_incoming(self, interface: &str) -> Self {
        let name = interface_name(interface);
        self.with(expression::meta(Meta::IncomingName)).with(expression::compare(Comparison::NotEqual, &name))
    }

    /// Packets that will leave by this interface.
    #[must_use]
    pub fn outgoing(self, interface: &str) -> Self {
        self.equal(expression::meta(Meta::OutgoingName), &interface_name(interface))
    }

    /// Packets that will leave by any interface but this.
    #[must_use]
    pub fn not_outgoing(self, interface: &str) -> Self {
        let name = interface_name(interface);
        self.with(expression::meta(Meta::OutgoingName)).with(expression::compare(Comparison::NotEqual, &name))
    }

    /// Packets with this mark.
    #[must_use]
    pub fn marked(self, mark: u32) -> Self {
        self.equal(expression::meta(Meta::Mark), &mark.to_ne_bytes())
    }

    /// Packets to this address. Its family is a condition too.
    #[must_use]
    pub fn destination(self, address: IpAddr) -> Self {
        self.destination_net(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Packets to the addresses that begin with so many bits of this one.
    #[must_use]
    pub fn destination_net(self, address: IpAddr, bits: u8) -> Self {
        self.address_in(destination_address, address, bits)
    }

    /// Packets from this address. Its family is a condition too.
    #[must_use]
    pub fn source(self, address: IpAddr) -> Self {
        self.source_net(address, if address.is_ipv4() { 32 } else { 128 })
    }

    /// Packets from the addresses that begin with so many bits of this one.
    #[must_use]
    pub fn source_net(self, address: IpAddr, bits: u8) -> Self {
        self.address_in(source_address, address, bits)
    }

    fn address_in(self, load: fn(Family) -> Expression, address: IpAddr, bits: u8) -> Self {
        let (family, bytes) = match address {
            IpAddr::V4(address) => (Family::Ipv4, address.octets().to_vec()),
            IpAddr::V6(address) => (Family::Ipv6, address.octets().to_vec()),
        };
        let mask = mask(bits, bytes.len());
        let rule = self.family(family).with(load(family));
        let rule = if mask.iter().all(|byte| *byte == 0xff) { rule } else { rule.with(expression::bitwise_and(&mask)) };
        let masked: Vec<u8> = bytes.iter().zip(&mask).map(|(byte, mask)| byte & mask).collect();
        rule.with(expression::compare(Comparison::Equal, &masked))
    }

    /// Packets to an address of this machine, whichever.
    #[must_use]
    pub fn destination_is_local(self) -> Self {
        self.equal(expression::destination_type(), &LOCAL_ADDRESS.to_ne_bytes())
    }

    /// TCP packets to this port. (That it is TCP is another condition: [`tcp`](Self::tcp).)
    #[must_use]
    pub fn destination_port(self, port: u16) -> Self {
        self.equal(expression::payload(Header::Transport, DESTINATION_PORT, 2), &port.to_be_bytes())
    }

    /// TCP packets from this port.
    #[must_use]
    pub fn source_port(self, port: u16) -> Self {
        self.equal(expression::payload(Header::Transport, SOURCE_PORT, 2), &port.to_be_bytes())
    }

    /// The first packet of a TCP connection: SYN, and none of ACK, RST and FIN.
    #[must_use]
    pub fn opens_connection(self) -> Self {
        self.with(expression::payload(Header::Transport, TCP_FLAGS, 1))
            .with(expression::bitwise_and(&[FIN | SYN | RST | ACK]))
            .with(expression::compare(Comparison::Equal, &[SYN]))
    }

    /// Packets to a port that is in this set of [`DataType::Port`](super::DataType::Port).
    #[must_use]
    pub fn destination_port_in(self, set: &str) -> Self {
        self.with(expression::payload(Header::Transport, DESTINATION_PORT, 2)).with(expression::lookup(set))
    }

    /// TCP packets to an address and a port that are together in this set of [`DataType::Ipv4Port`](super::DataType::Ipv4Port) or
    /// [`DataType::Ipv6Port`](super::DataType::Ipv6Port).
    ///
    /// # Panics
    /// For [`Family::Inet`]: a set has addresses of one family.
    #[must_use]
    pub fn destination_and_port_in(self, family: Family, set: &str) -> Self {
        self.family(family)
            .with(destination_address(family))
            .with(expression::payload_beside(family, Header::Transport, DESTINATION_PORT, 2))
            .with(expression::lookup(set))
    }

    /// Counts.
    #[must_use]
    pub fn counted(self) -> Self {
        self.with(expression::counter())
    }

    /// Sets the mark.
    #[must_use]
    pub fn mark(self, mark: u32) -> Self {
        self.with(expression::immediate(&mark.to_ne_bytes())).with(expression::set_mark())
    }

    /// Hands it to the program that serves this queue; it goes on when no program does.
    #[must_use]
    pub fn queue_or_bypass(self, number: u16) -> Self {
        self.with(expression::queue(number, true))
    }

    /// Hands it to the program that serves this queue, by the target of iptables ([`expression::xtables_queue`]).
    #[must_use]
    pub fn xtables_queue_or_bypass(self, number: u16) -> Self {
        self.with(expression::xtables_queue(number))
    }

    /// Sends the connection to what the map has for its port: an address and a port, of this family.
    ///
    /// # Panics
    /// As [`expression::dnat`].
    #[must_use]
    pub fn dnat_by_port(self, family: Family, map: &str) -> Self {
        self.with(expression::payload(Header::Transport, DESTINATION_PORT, 2))
            .with(expression::map(map))
            .with(expression::dnat(family))
    }

    /// Sends the connection to the port that the map has for its port, on this machine.
    #[must_use]
    pub fn redirect_by_port(self, map: &str) -> Self {
        self.with(expression::payload(Header::Transport, DESTINATION_PORT, 2))
            .with(expression::map(map))
            .with(expression::redirect())
    }

    /// Decides.
    #[must_use]
    pub fn verdict(self, verdict: Verdict) -> Self {
        self.with(expression::verdict(verdict))
    }

    /// The names of its steps, for messages.
    pub(super) fn steps(&self) -> String {
        self.expressions.iter().map(|expression| expression.name).collect::<Vec<_>>().join(", ")
    }

    /// Whether one of its steps is of this name.
    pub(super) fn has_step(&self, name: &str) -> bool {
        self.expressions.iter().any(|expression| expression.name == name)
    }

    /// What a message about this rule carries, besides where it belongs.
    pub(super) fn attributes(&self, attributes: Attributes) -> Attributes {
        let steps = self.expressions.iter().fold(Attributes::new(), |list, expression| {
            list.nest(numbers::rule::LIST_ELEMENT, &expression.attributes())
        });
        let attributes = attributes.nest(numbers::rule::EXPRESSIONS, &steps);
        match &self.comment {
            Some(text) => attributes.raw(numbers::rule::USER_DATA, &comment(text)),
            None => attributes,
        }
    }
}

/// Loads the destination.
fn destination_address(family: Family) -> Expression {
    match family {
        Family::Ipv4 => expression::payload(Header::Network, 16, 4),
        Family::Ipv6 => expression::payload(Header::Network, 24, 16),
        Family::Inet | Family::Arp => panic!("an address is of one family"),
    }
}

/// Loads the source.
fn source_address(family: Family) -> Expression {
    match family {
        Family::Ipv4 => expression::payload(Header::Network, 12, 4),
        Family::Ipv6 => expression::payload(Header::Network, 8, 16),
        Family::Inet | Family::Arp => panic!("an address is of one family"),
    }
}

/// A comment in the form in which `nft` keeps it: kind 0, its length, and a text that ends with a zero.
fn comment(text: &str) -> Vec<u8> {
    let mut bytes = vec![0, text.len() as u8 + 1];
    bytes.extend_from_slice(text.as_bytes());
    bytes.push(0);
    bytes
}

/// The name as the kernel compares it: filled up with zeros.
fn interface_name(name: &str) -> [u8; INTERFACE_NAME] {
    let mut bytes = [0; INTERFACE_NAME];
    let length = name.len().min(INTERFACE_NAME - 1);
    bytes[..length].copy_from_slice(&name.as_bytes()[..length]);
    bytes
}

/// So many bits, then zeros.
fn mask(bits: u8, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|byte| !(0xff_u16 >> usize::from(bits).saturating_sub(byte * 8).min(8)) as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::mask;

    #[test]
    fn a_mask_has_so_many_bits() {
        assert_eq!(mask(8, 4), [255, 0, 0, 0]);
        assert_eq!(mask(12, 4), [255, 0xf0, 0, 0]);
        assert_eq!(mask(32, 4), [255; 4]);
        assert_eq!(mask(0, 4), [0; 4]);
        assert_eq!(mask(128, 16), [255; 16]);
        assert_eq!(mask(127, 16)[15], 0xfe);
    }
}
