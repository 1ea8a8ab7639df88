//! ARP for IPv4 on Ethernet (RFC 826), and announcements (RFC 5227).

use std::net::Ipv4Addr;

use baton_kernel::packet::{EtherType, FrameFilter};
use baton_kernel::route::Mac;

use super::{ETHERNET, ethernet};

/// Operations.
const REQUEST: u16 = 1;
const REPLY: u16 = 2;
/// Hardware and protocol: Ethernet, IPv4, with the lengths of their addresses.
const KINDS: [u8; 6] = [0, 1, 8, 0, 6, 4];
/// Where the sender's address is in a frame.
const SENDER_AT: u32 = ETHERNET as u32 + 14;

/// Who says something of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arp {
    /// Whether it is an answer.
    pub is_reply: bool,
    /// The sender's hardware address, as the message has it.
    pub mac: Mac,
    /// The sender's address.
    pub sender: Ipv4Addr,
    /// Whose hardware address is asked for, or who asked.
    pub target: Ipv4Addr,
}

/// "Who has `target`? Tell `sender`." A sender of 0.0.0.0 asks without teaching anybody anything (RFC 5227 2.1.1).
pub fn request(own: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    message(REQUEST, Mac::BROADCAST, own, sender, Mac::default(), target)
}

/// "I have `address`", which everybody who knew another hardware address for it takes over: an ARP announcement (RFC 5227 2.3 and 3).
pub fn announcement(own: Mac, address: Ipv4Addr) -> Vec<u8> {
    message(REQUEST, Mac::BROADCAST, own, address, Mac::default(), address)
}

/// An announcement as an unsolicited ARP reply: some switches and routers accept this form alone.
pub fn unasked_reply(own: Mac, address: Ipv4Addr) -> Vec<u8> {
    message(REPLY, Mac::BROADCAST, own, address, Mac::BROADCAST, address)
}

/// Frames in which somebody says to have this address.
pub fn claims(address: Ipv4Addr) -> FrameFilter {
    FrameFilter::new().bytes(SENDER_AT, &address.octets())
}

fn message(operation: u16, to: Mac, own: Mac, sender: Ipv4Addr, target_mac: Mac, target: Ipv4Addr) -> Vec<u8> {
    let mut frame = ethernet(to, own, EtherType::Arp);
    frame.extend(KINDS);
    frame.extend(operation.to_be_bytes());
    frame.extend(own.0);
    frame.extend(sender.octets());
    frame.extend(target_mac.0);
    frame.extend(target.octets());
    frame
}

/// What a frame says; `None` when it is not ARP for IPv4 on Ethernet, or not whole.
pub fn read(frame: &[u8]) -> Option<Arp> {
    let kind = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    let bytes = frame.get(ETHERNET..)?;
    if kind != EtherType::Arp.number() || *bytes.first_chunk::<6>()? != KINDS {
        return None;
    }
    let is_reply = match u16::from_be_bytes(*bytes.get(6..)?.first_chunk()?) {
        REQUEST => false,
        REPLY => true,
        _ => return None,
    };
    let mac = Mac(*bytes.get(8..)?.first_chunk()?);
    if mac.is_group() || mac.is_zero() {
        return None;
    }
    let sender = Ipv4Addr::from(*bytes.get(14..)?.first_chunk::<4>()?);
    let target = Ipv4Addr::from(*bytes.get(24..)?.first_chunk::<4>()?);
    Some(Arp { is_reply, mac, sender, target })
}
