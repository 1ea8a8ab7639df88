//! Conditions on ARP and what is done to it, in tables of [`Family::Arp`](super::Family::Arp).
//!
//! They are for IPv4 on Ethernet (RFC 826): there the sender's address is at byte 14 of a message, and the target's at byte 24.

use std::net::Ipv4Addr;

use super::Rule;
use super::expression::{self, Header};

/// Where things are in a message.
const OPERATION: u32 = 6;
const SENDER: u32 = 14;
const TARGET: u32 = 24;
/// Bytes of an address.
const ADDRESS: u32 = 4;

/// What a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArpOperation {
    /// A question, or an announcement.
    Request,
    /// An answer.
    Reply,
}

impl Rule {
    /// Messages of this kind.
    #[must_use]
    pub fn arp(self, operation: ArpOperation) -> Self {
        let number: u16 = match operation {
            ArpOperation::Request => 1,
            ArpOperation::Reply => 2,
        };
        self.equal(expression::payload(Header::Network, OPERATION, 2), &number.to_be_bytes())
    }

    /// Messages of whom says to have this address.
    #[must_use]
    pub fn arp_sender(self, address: Ipv4Addr) -> Self {
        self.equal(expression::payload(Header::Network, SENDER, ADDRESS), &address.octets())
    }

    /// Messages that ask for this address, or answer to it.
    #[must_use]
    pub fn arp_target(self, address: Ipv4Addr) -> Self {
        self.equal(expression::payload(Header::Network, TARGET, ADDRESS), &address.octets())
    }

    /// Makes this the address of the sender.
    #[must_use]
    pub fn set_arp_sender(self, address: Ipv4Addr) -> Self {
        self.with(expression::immediate(&address.octets())).with(expression::write_payload(SENDER, ADDRESS))
    }
}
