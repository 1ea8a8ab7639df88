//! nftables: tables of our own, with chains, rules, sets and maps, changed in transactions that are applied whole or not at all.
//!
//! [`Transaction`] collects what is to be done, [`Transaction::commit`] does it. [`Rule`] says a rule in words; [`expression`] has the
//! steps a rule is made of, each one a function. [`Nftables`] asks what is there.
//!
//! Only what a caller names is changed; a caller names tables of its own. The messages are those of the kernel's
//! `include/uapi/linux/netfilter/nf_tables.h`; rules, types of sets and their names are shown by `nft list ruleset` as if that program
//! had made them.

mod arp;
pub mod expression;
mod list;
mod numbers;
mod refusal;
mod rule;
mod set;
mod transaction;

pub use arp::ArpOperation;
pub use expression::{Comparison, Expression, Verdict};
pub use list::Nftables;
pub use refusal::NftablesError;
pub use rule::Rule;
pub use set::{DataType, Element, Set};
pub use transaction::Transaction;

use std::fmt;

/// Which packets a table sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4 and IPv6 in one table. Network address translation in it needs Linux 5.2.
    Inet,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// ARP: chains of [`Kind::Filter`] at [`Hook::Input`] and [`Hook::Output`]. See [`Rule::arp`].
    Arp,
}

impl Family {
    /// Its number (`NFPROTO_…`).
    pub(crate) fn number(self) -> u8 {
        let number = match self {
            Self::Inet => libc::NFPROTO_INET,
            Self::Ipv4 => libc::NFPROTO_IPV4,
            Self::Ipv6 => libc::NFPROTO_IPV6,
            Self::Arp => libc::NFPROTO_ARP,
        };
        number as u8
    }
}

impl fmt::Display for Family {
    /// As `nft` calls it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inet => "inet",
            Self::Ipv4 => "ip",
            Self::Ipv6 => "ip6",
            Self::Arp => "arp",
        })
    }
}

/// A table: the name under which everything else is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Table {
    /// Which packets it sees.
    pub family: Family,
    /// Its name.
    pub name: String,
}

impl Table {
    /// A table for IPv4 and IPv6.
    pub fn inet(name: impl Into<String>) -> Self {
        Self { family: Family::Inet, name: name.into() }
    }

    /// A table for ARP.
    pub fn arp(name: impl Into<String>) -> Self {
        Self { family: Family::Arp, name: name.into() }
    }
}

impl fmt::Display for Table {
    /// As in `nft list table inet NAME`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} {}", self.family, self.name)
    }
}

/// A chain that packets enter at a hook. What none of its rules decides goes on: its policy is always `accept`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Its name in its table.
    pub name: String,
    /// What it may do.
    pub kind: Kind,
    /// Where packets enter it.
    pub hook: Hook,
    /// Its place among the chains of this hook: lower ones come first. See [`priority`].
    pub priority: i32,
}

/// What a chain may do with packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Accept, drop, mark, queue.
    Filter,
    /// As [`Kind::Filter`], at [`Hook::Output`] alone; a packet whose mark it changes is routed again.
    Route,
    /// Translate addresses: it sees the first packet of each connection, and what it decides holds for all others.
    Nat,
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Route => "route",
            Self::Nat => "nat",
        }
    }
}

/// Where a packet is on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// Came in, before its route is looked up.
    Prerouting,
    /// For this machine.
    Input,
    /// For another machine.
    Forward,
    /// Made on this machine.
    Output,
    /// About to leave.
    Postrouting,
}

impl Hook {
    fn number(self, family: Family) -> u32 {
        // `NF_ARP_IN` and `NF_ARP_OUT`; ARP has no other way.
        const ARP_IN: libc::c_int = 0;
        const ARP_OUT: libc::c_int = 1;
        let number = match self {
            Self::Input if family == Family::Arp => ARP_IN,
            Self::Output if family == Family::Arp => ARP_OUT,
            Self::Prerouting => libc::NF_INET_PRE_ROUTING,
            Self::Input => libc::NF_INET_LOCAL_IN,
            Self::Forward => libc::NF_INET_FORWARD,
            Self::Output => libc::NF_INET_LOCAL_OUT,
            Self::Postrouting => libc::NF_INET_POST_ROUTING,
        };
        number as u32
    }
}

/// Places of chains among those of a hook, as `nft` names them.
pub mod priority {
    /// `raw`: before connections are tracked.
    pub const RAW: i32 = -300;
    /// `mangle`: before addresses are translated.
    pub const MANGLE: i32 = -150;
    /// `dstnat`: where destinations are translated.
    pub const DSTNAT: i32 = -100;
    /// `filter`: where a firewall usually is.
    pub const FILTER: i32 = 0;
}

#[cfg(test)]
mod tests;
