//! The steps of a rule. A step loads something of the packet into a register, changes it there, compares it (a rule whose comparison
//! fails ends, and the next rule is tried), looks it up, or decides.
//!
//! [`Rule`](super::Rule) puts them together for what is usual.

use super::{Family, numbers};
use crate::netlink::Attributes;

/// The register that every step here works with unless it says otherwise. It holds 16 bytes.
const REGISTER: u32 = libc::NFT_REG_1 as u32;
/// What follows four bytes in [`REGISTER`], and what follows sixteen.
const AFTER_FOUR: u32 = libc::NFT_REG32_01 as u32;
const AFTER_SIXTEEN: u32 = libc::NFT_REG_2 as u32;
/// `NF_NAT_RANGE_PROTO_SPECIFIED`: a port is given.
const PORT_GIVEN: u32 = 2;
/// `NFT_FIB_RESULT_ADDRTYPE` and `NFTA_FIB_F_DADDR`.
const FIB_ADDRESS_TYPE: u32 = 3;
const FIB_DESTINATION: u32 = 2;

/// One step of a rule, ready to be sent.
#[derive(Clone, Debug)]
pub struct Expression {
    pub(super) name: &'static str,
    data: Attributes,
}

impl Expression {
    fn new(name: &'static str, data: Attributes) -> Self {
        Self { name, data }
    }

    /// As an element of a rule's list (`NFTA_EXPR_NAME`, `NFTA_EXPR_DATA`).
    pub(super) fn attributes(&self) -> Attributes {
        const NAME: u16 = 1;
        const DATA: u16 = 2;
        Attributes::new().text(NAME, self.name).nest(DATA, &self.data)
    }
}

/// What is known of a packet besides its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meta {
    /// The mark, four bytes in the machine's order.
    Mark,
    /// The name of the interface it came in by, 16 bytes.
    IncomingName,
    /// The name of the interface it will leave by, 16 bytes.
    OutgoingName,
    /// [`Family`] as one byte: which of the two a table for both sees.
    Family,
    /// The protocol above IP, one byte.
    Protocol,
}

impl Meta {
    fn number(self) -> u32 {
        let number = match self {
            Self::Mark => libc::NFT_META_MARK,
            Self::IncomingName => libc::NFT_META_IIFNAME,
            Self::OutgoingName => libc::NFT_META_OIFNAME,
            Self::Family => libc::NFT_META_NFPROTO,
            Self::Protocol => libc::NFT_META_L4PROTO,
        };
        number as u32
    }
}

/// Which header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Of IPv4 or IPv6.
    Network,
    /// Of TCP or UDP.
    Transport,
}

/// How to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    /// Equal.
    Equal,
    /// Not equal.
    NotEqual,
}

/// What a rule does with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on, past the other rules of this chain.
    Accept,
    /// It is gone, silently.
    Drop,
    /// It leaves this chain, as if no rule had matched.
    Return,
}

/// Loads what is known of the packet.
pub fn meta(key: Meta) -> Expression {
    const REGISTER_TO: u16 = 1;
    const KEY: u16 = 2;
    Expression::new("meta", Attributes::new().u32_be(KEY, key.number()).u32_be(REGISTER_TO, REGISTER))
}

/// Sets the packet's mark to what was loaded.
pub fn set_mark() -> Expression {
    const KEY: u16 = 2;
    const REGISTER_FROM: u16 = 3;
    Expression::new("meta", Attributes::new().u32_be(KEY, Meta::Mark.number()).u32_be(REGISTER_FROM, REGISTER))
}

/// Loads bytes of a header: so many, from this one on.
pub fn payload(header: Header, offset: u32, length: u32) -> Expression {
    payload_to(REGISTER, header, offset, length)
}

/// As [`payload`], beside an address of this family that was loaded before: both together are then what is looked up.
///
/// # Panics
/// For [`Family::Inet`]: addresses are of one family.
pub fn payload_beside(family: Family, header: Header, offset: u32, length: u32) -> Expression {
    payload_to(beside(family), header, offset, length)
}

/// The register with what follows an address of this family in [`REGISTER`].
fn beside(family: Family) -> u32 {
    match family {
        Family::Ipv4 => AFTER_FOUR,
        Family::Ipv6 => AFTER_SIXTEEN,
        Family::Inet | Family::Arp => panic!("an address is of one family"),
    }
}

fn payload_to(register: u32, header: Header, offset: u32, length: u32) -> Expression {
    const REGISTER_TO: u16 = 1;
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LENGTH: u16 = 4;
    let base = match header {
        Header::Network => libc::NFT_PAYLOAD_NETWORK_HEADER,
        Header::Transport => libc::NFT_PAYLOAD_TRANSPORT_HEADER,
    };
    let data = Attributes::new().u32_be(REGISTER_TO, register).u32_be(BASE, base as u32);
    Expression::new("payload", data.u32_be(OFFSET, offset).u32_be(LENGTH, length))
}

/// Writes what was loaded over bytes of the network header: so many, from this one on. No checksum is made right: ARP has none.
pub(super) fn write_payload(offset: u32, length: u32) -> Expression {
    const BASE: u16 = 2;
    const OFFSET: u16 = 3;
    const LENGTH: u16 = 4;
    const REGISTER_FROM: u16 = 5;
    const CHECKSUM: u16 = 6;
    const NO_CHECKSUM: u32 = 0;
    let base = libc::NFT_PAYLOAD_NETWORK_HEADER as u32;
    let data = Attributes::new().u32_be(REGISTER_FROM, REGISTER).u32_be(BASE, base);
    Expression::new("payload", data.u32_be(OFFSET, offset).u32_be(LENGTH, length).u32_be(CHECKSUM, NO_CHECKSUM))
}

/// Loads the kind of the packet's destination: [`LOCAL_ADDRESS`] and others (`RTN_…`).
pub fn destination_type() -> Expression {
    const REGISTER_TO: u16 = 1;
    const RESULT: u16 = 2;
    const FLAGS: u16 = 3;
    let data = Attributes::new().u32_be(REGISTER_TO, REGISTER);
    Expression::new("fib", data.u32_be(RESULT, FIB_ADDRESS_TYPE).u32_be(FLAGS, FIB_DESTINATION))
}

/// An address of this machine, as [`destination_type`] loads it.
pub const LOCAL_ADDRESS: u32 = libc::RTN_LOCAL as u32;

/// Loads a value.
pub fn immediate(value: &[u8]) -> Expression {
    Expression::new("immediate", immediate_to(REGISTER, &Attributes::new().raw(numbers::data::VALUE, value)))
}

/// Decides.
pub fn verdict(verdict: Verdict) -> Expression {
    let code = match verdict {
        Verdict::Accept => libc::NF_ACCEPT,
        Verdict::Drop => libc::NF_DROP,
        Verdict::Return => libc::NFT_RETURN,
    };
    let code = Attributes::new().u32_be(numbers::data::VERDICT_CODE, code as u32);
    let data = Attributes::new().nest(numbers::data::VERDICT, &code);
    Expression::new("immediate", immediate_to(libc::NFT_REG_VERDICT as u32, &data))
}

fn immediate_to(register: u32, data: &Attributes) -> Attributes {
    const REGISTER_TO: u16 = 1;
    const DATA: u16 = 2;
    Attributes::new().u32_be(REGISTER_TO, register).nest(DATA, data)
}

/// Keeps those bits of what was loaded that are in the mask.
pub fn bitwise_and(mask: &[u8]) -> Expression {
    const REGISTER_FROM: u16 = 1;
    const REGISTER_TO: u16 = 2;
    const LENGTH: u16 = 3;
    const MASK: u16 = 4;
    const XOR: u16 = 5;
    let value = |bytes: &[u8]| Attributes::new().raw(numbers::data::VALUE, bytes);
    let data = Attributes::new().u32_be(REGISTER_FROM, REGISTER).u32_be(REGISTER_TO, REGISTER);
    let data = data.u32_be(LENGTH, mask.len() as u32).nest(MASK, &value(mask));
    Expression::new("bitwise", data.nest(XOR, &value(&vec![0; mask.len()])))
}

/// Ends the rule unless what was loaded compares so with a value of the same length.
pub fn compare(how: Comparison, value: &[u8]) -> Expression {
    const REGISTER_FROM: u16 = 1;
    const HOW: u16 = 2;
    const DATA: u16 = 3;
    let how = match how {
        Comparison::Equal => libc::NFT_CMP_EQ,
        Comparison::NotEqual => libc::NFT_CMP_NEQ,
    };
    let data = Attributes::new().u32_be(REGISTER_FROM, REGISTER).u32_be(HOW, how as u32);
    Expression::new("cmp", data.nest(DATA, &Attributes::new().raw(numbers::data::VALUE, value)))
}

const LOOKUP_SET: u16 = 1;
const LOOKUP_FROM: u16 = 2;
const LOOKUP_TO: u16 = 3;

/// Ends the rule unless what was loaded is in the set of this name.
pub fn lookup(set: &str) -> Expression {
    Expression::new("lookup", Attributes::new().text(LOOKUP_SET, set).u32_be(LOOKUP_FROM, REGISTER))
}

/// Replaces what was loaded by what the map of this name has for it; ends the rule where the map has nothing.
pub fn map(map: &str) -> Expression {
    let data = Attributes::new().text(LOOKUP_SET, map).u32_be(LOOKUP_FROM, REGISTER);
    Expression::new("lookup", data.u32_be(LOOKUP_TO, REGISTER))
}

/// Counts packets and bytes.
pub fn counter() -> Expression {
    Expression::new("counter", Attributes::new())
}

/// Hands the packet to the program that serves this queue. With `bypass`, it goes on when no program does.
pub fn queue(number: u16, bypass: bool) -> Expression {
    const NUMBER: u16 = 1;
    const TOTAL: u16 = 2;
    const FLAGS: u16 = 3;
    let flags = if bypass { libc::NFT_QUEUE_FLAG_BYPASS as u16 } else { 0 };
    Expression::new("queue", Attributes::new().u16_be(NUMBER, number).u16_be(TOTAL, 1).u16_be(FLAGS, flags))
}

/// As [`queue`], always with `bypass`, by the target `NFQUEUE` of iptables: for kernels that have it and no `queue` statement.
/// The program `nft` shows it as that statement, or as `xt target "NFQUEUE"`.
pub fn xtables_queue(number: u16) -> Expression {
    const NAME: u16 = 1;
    const REVISION: u16 = 2;
    const INFO: u16 = 3;
    // struct xt_NFQ_info_v3: the first queue, how many, flags (`NFQ_FLAG_BYPASS`), filled up to eight bytes.
    let mut info = [0; 8];
    info[..2].copy_from_slice(&number.to_ne_bytes());
    info[2..4].copy_from_slice(&1u16.to_ne_bytes());
    info[4..6].copy_from_slice(&1u16.to_ne_bytes());
    Expression::new("target", Attributes::new().text(NAME, "NFQUEUE").u32_be(REVISION, 3).raw(INFO, &info))
}

/// Sends the connection to the address and port that were loaded (by a [`map`], as [`DataType::Ipv4Port`](super::DataType::Ipv4Port) or
/// [`DataType::Ipv6Port`](super::DataType::Ipv6Port)). Ends nothing: what comes after it is not reached.
///
/// # Panics
/// For [`Family::Inet`]: addresses are of one family.
pub fn dnat(family: Family) -> Expression {
    const TYPE: u16 = 1;
    const FAMILY: u16 = 2;
    const ADDRESS_FROM: u16 = 3;
    const PORT_FROM: u16 = 5;
    let data = Attributes::new().u32_be(TYPE, libc::NFT_NAT_DNAT as u32).u32_be(FAMILY, family.number().into());
    Expression::new("nat", data.u32_be(ADDRESS_FROM, REGISTER).u32_be(PORT_FROM, beside(family)))
}

/// Sends the connection to the port that was loaded, on this machine.
pub fn redirect() -> Expression {
    const PORT_FROM: u16 = 1;
    const FLAGS: u16 = 3;
    Expression::new("redir", Attributes::new().u32_be(PORT_FROM, REGISTER).u32_be(FLAGS, PORT_GIVEN))
}
