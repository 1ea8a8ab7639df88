//! Keeps clients' packets from the director's own stack while the program is on no interface.
//!
//! The stack would refuse connections that it does not know, and with them those that the servers have. What is dropped here is sent
//! again by the client a moment later.

use std::collections::BTreeSet;
use std::net::IpAddr;

use baton_kernel::netlink::{Protocol, Socket};
use baton_kernel::nftables::{Chain, Hook, Kind, Rule, Table, Transaction, Verdict, priority};

use crate::KernelError;

/// Of the table that is there meanwhile.
const NAME: &str = "baton-xdp-moves";

/// Packets for some addresses are dropped as long as it is there. It opens with the end of the process too.
#[derive(Debug)]
pub(super) struct Gate {
    /// The kernel removes the table when this is closed.
    _socket: Socket,
}

impl Gate {
    /// Shuts it, in the network namespace of this thread.
    pub(super) fn shut(addresses: &BTreeSet<IpAddr>) -> Result<Gate, KernelError> {
        let mut socket = Socket::open(Protocol::Netfilter).map_err(|error| KernelError::io("nftables", &error))?;
        let table = Table::inet(NAME);
        let chain = Chain { name: "in".into(), kind: Kind::Filter, hook: Hook::Prerouting, priority: priority::RAW };
        let shut = Transaction::new().passing_table(&table).chain(&table, &chain);
        let drop = |shut: Transaction, address: &IpAddr| {
            shut.rule(&table, &chain.name, &Rule::new().destination(*address).verdict(Verdict::Drop))
        };
        addresses.iter().fold(shut, drop).commit_by(&mut socket)?;
        Ok(Gate { _socket: socket })
    }
}
