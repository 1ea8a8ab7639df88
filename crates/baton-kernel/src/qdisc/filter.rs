//! Filters: which packets go to which lane of a discipline.
//!
//! `u32` compares words of the packet, and nearly every kernel has it. It needs no marks: marks are one set of bits for all who
//! mark on a machine, and whoever writes them may undo what somebody else meant by them.

use std::fmt;
use std::net::IpAddr;

use super::{CREATE, Handle, KIND, OPTIONS, QdiscError, TCMSG, Traffic, index, number};
use crate::netlink::{Attributes, Reader, Reply, Request};

/// Messages (`RTM_…TFILTER`).
const NEW_FILTER: u16 = 44;
const GET_FILTER: u16 = 46;
/// Attributes of a `u32` filter (`TCA_U32_…`).
const CLASS: u16 = 1;
const SELECTOR: u16 = 5;
/// The first match decides (`TC_U32_TERMINAL`).
const TERMINAL: u8 = 1;
/// Bytes of `struct tc_u32_sel` and of each `struct tc_u32_key` after it.
const SELECTOR_BYTES: usize = 16;
const KEY_BYTES: usize = 16;
/// Filters of one protocol have one priority; two protocols never share one.
const PRIORITY_4: u16 = 1;
const PRIORITY_6: u16 = 2;
const ETHERTYPE_4: u16 = 0x0800;
const ETHERTYPE_6: u16 = 0x86dd;
/// TCP's number in an IP header, and where its destination port and flags are.
const TCP: u32 = 6;
/// Of the flags FIN, SYN, RST and ACK, the beginning of a connection has SYN alone (RFC 9293 3.5).
const FLAGS: u32 = 0x17;
const SYN: u32 = 0x02;

/// Beginnings of connections of TCP to a port, of one address or of all of one family. Packets with IPv4 options, with IPv6
/// extension headers, and later fragments are not recognized: they pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Match {
    /// The destination; unspecified (`0.0.0.0`, `::`) for all of its family.
    pub address: IpAddr,
    /// The destination's port.
    pub port: u16,
}

impl fmt::Display for Match {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::net::SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// A word of the packet: where it is, counted from the IP header, which bits count, and what they must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SelectorKey {
    at: i32,
    mask: u32,
    value: u32,
}

impl Match {
    fn keys(&self) -> Vec<SelectorKey> {
        let key = |at, mask, value| SelectorKey { at, mask, value };
        let (mut keys, tcp) = match self.address {
            // RFC 791 3.1: version and length of the header (5 words), place of the fragment, protocol.
            IpAddr::V4(address) => {
                let mut keys =
                    vec![key(0, 0xff00_0000, 0x4500_0000), key(4, 0x1fff, 0), key(8, 0x00ff_0000, TCP << 16)];
                if !address.is_unspecified() {
                    keys.push(key(16, u32::MAX, address.into()));
                }
                (keys, 20)
            }
            // RFC 8200 3: the next header.
            IpAddr::V6(address) => {
                let mut keys = vec![key(4, 0xff00, TCP << 8)];
                if !address.is_unspecified() {
                    let words = u128::from(address);
                    keys.extend((0..4).map(|word| key(24 + 4 * word, u32::MAX, (words >> (96 - 32 * word)) as u32)));
                }
                (keys, 40)
            }
        };
        // RFC 9293 3.1.
        keys.push(key(tcp, 0xffff, self.port.into()));
        keys.push(key(tcp + 12, FLAGS << 16, SYN << 16));
        keys
    }

    /// `struct tc_u32_sel`.
    fn selector(&self) -> Vec<u8> {
        let keys = self.keys();
        let mut bytes = vec![0; SELECTOR_BYTES];
        bytes[0] = TERMINAL;
        bytes[2] = keys.len() as u8;
        for key in keys {
            // Masks and values in the network's order; the last number is for headers of variable length.
            bytes.extend([key.mask.to_be_bytes(), key.value.to_be_bytes(), key.at.to_ne_bytes(), [0; 4]].concat());
        }
        bytes
    }

    /// What a selector means, if it is one of these.
    fn read(selector: &[u8]) -> Option<Match> {
        let keys = selector.get(SELECTOR_BYTES..)?.chunks_exact(KEY_BYTES);
        let words: Vec<SelectorKey> = keys
            .filter_map(|bytes| {
                let word = |at: usize| bytes[at..].first_chunk::<4>().copied();
                Some(SelectorKey {
                    at: i32::from_ne_bytes(word(8)?),
                    mask: u32::from_be_bytes(word(0)?),
                    value: u32::from_be_bytes(word(4)?),
                })
            })
            .collect();
        let at = |place| words.iter().find(|key| key.at == place).map(|key| key.value);
        let found = match at(0) {
            Some(_) => Match { address: IpAddr::V4(at(16).unwrap_or(0).into()), port: at(20)? as u16 },
            None => {
                let words = (0..4).map(|word| at(24 + 4 * word).unwrap_or(0));
                let address = words.fold(0_u128, |sum, word| sum << 32 | u128::from(word));
                Match { address: IpAddr::V6(address.into()), port: at(40)? as u16 }
            }
        };
        (found.keys() == words).then_some(found)
    }
}

/// A filter that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficFilter {
    /// `u32`, `fw` …
    pub kind: String,
    /// The lane.
    pub lane: Option<Handle>,
    /// What it matches, if it is one that [`Traffic::lead`] made.
    pub matches: Option<Match>,
}

impl Traffic {
    /// Leads the beginnings of these connections to a lane of the discipline that it is of.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn lead(&mut self, connections: Match, lane: Handle) -> Result<(), QdiscError> {
        let (priority, protocol) = match connections.address {
            IpAddr::V4(_) => (PRIORITY_4, ETHERTYPE_4),
            IpAddr::V6(_) => (PRIORITY_6, ETHERTYPE_6),
        };
        let information = u32::from(priority) << 16 | u32::from(protocol.to_be());
        let options = Attributes::new().u32(CLASS, lane.0).raw(SELECTOR, &connections.selector());
        let attributes = Attributes::new().text(KIND, "u32").nest(OPTIONS, &options);
        let of = Handle::qdisc(lane.major());
        let request = Request::new(NEW_FILTER, CREATE, &self.message(Handle(0), of, information), &attributes);
        let done = self.socket.ask(&request);
        self.judge(&format!("filter add parent {of} u32 for {connections}"), Some("cls_u32"), done).map(drop)
    }

    /// The filters of a discipline that lead somewhere.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn filters(&mut self, of: Handle) -> Result<Vec<TrafficFilter>, QdiscError> {
        let request = Request::new(GET_FILTER, 0, &self.message(Handle(0), of, 0), &Attributes::new());
        let listed = self.socket.list(&request);
        let replies = self.judge(&format!("filter show parent {of}"), None, listed)?;
        Ok(replies.iter().filter(|reply| index(reply) == Some(self.index)).filter_map(filter).collect())
    }
}

/// `None` for what is listed beside the filters themselves, such as their hash tables.
fn filter(reply: &Reply) -> Option<TrafficFilter> {
    // A handle, which a filter has and the head of its list has not.
    number(reply, 8).filter(|handle| *handle != 0)?;
    let attributes = reply.attributes(TCMSG);
    let kind = attributes.find(KIND)?.text()?.to_owned();
    let options: Option<Reader<'_>> = attributes.find(OPTIONS).map(|found| found.nested());
    let selector = options.and_then(|all| all.find(SELECTOR));
    if kind == "u32" && selector.is_none() {
        return None;
    }
    let lane = options.and_then(|all| all.find(CLASS)?.u32()).map(Handle);
    Some(TrafficFilter { kind, lane, matches: selector.and_then(|found| Match::read(found.value)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_means_what_it_was_made_of() {
        for (address, port) in
            [("127.0.0.1", 80), ("0.0.0.0", 65535), ("::", 1), ("2001:db8:1:2:3:4:5:6", 443), ("::1", 80)]
        {
            let connections = Match { address: address.parse().unwrap(), port };
            let selector = connections.selector();
            assert_eq!(Match::read(&selector), Some(connections));
            for length in 0..selector.len() {
                assert_ne!(Match::read(&selector[..length]), Some(connections), "{length} bytes");
            }
            let mut other = selector.clone();
            other[SELECTOR_BYTES] ^= 0x10;
            assert_eq!(Match::read(&other), None, "another mask is not ours");
        }
    }
}
