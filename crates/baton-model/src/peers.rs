//! `peers` sections: other processes with which stick tables are shared (configuration manual, 3.5 "Peers").

use std::sync::Arc;

use crate::{Proxy, Server, Source, StickTable};

/// A section.
#[derive(Clone, Debug, PartialEq)]
pub struct PeersSection {
    /// Its name.
    pub name: Arc<str>,
    /// `disabled`: nothing is shared.
    pub disabled: bool,
    /// This process's name in it: `localpeer`, `-L`, or the name of the host. There is a peer of this name.
    pub local: Arc<str>,
    /// All peers, the local one too, in the order of their lines.
    pub peers: Vec<Peer>,
    /// `shards`: over how many shards entries are spread; 0: they are not.
    pub shards: u32,
    /// Where it listens, how other peers are reached (a server for each), and where connections are logged.
    pub proxy: Arc<Proxy>,
    /// `table` lines. Tables of proxies name the section.
    pub tables: Vec<Arc<StickTable>>,
    /// The section's line.
    pub source: Source,
}

/// A peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Peer {
    /// Its name, by which both sides know it.
    pub name: Arc<str>,
    /// `shard`: it gets the entries of this one only; 0: all.
    pub shard: u32,
}

impl PeersSection {
    /// How a peer is reached; `None` for the local one.
    pub fn server(&self, name: &str) -> Option<&Arc<Server>> {
        self.proxy.servers.iter().find(|server| *server.name == *name)
    }

    /// Whether another one says the same, wherever it stands.
    pub fn is_same(&self, other: &PeersSection) -> bool {
        let PeersSection { name, disabled, local, peers, shards, proxy, tables, source: _ } = self;
        (name, disabled, local, peers, shards)
            == (&other.name, &other.disabled, &other.local, &other.peers, &other.shards)
            && (proxy == &other.proxy && tables == &other.tables)
    }
}
