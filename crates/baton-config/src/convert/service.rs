//! Virtual services as both sources have them, before it is decided how they are written.

use std::net::IpAddr;

use super::{ConvertNote, MAX_CONVERT_ENTRIES};

/// Everything that was read.
#[derive(Debug, Default)]
pub(super) struct Table {
    /// Words of `global`, each with what it came from.
    pub global: Vec<String>,
    /// In the order of the input.
    pub services: Vec<VirtualService>,
    /// What belongs to no service.
    pub remarks: Vec<ConvertNote>,
    /// Counted against [`MAX_CONVERT_ENTRIES`].
    entries: usize,
}

impl Table {
    /// Counts addresses and servers; whether there is room for so many more.
    pub fn has_room_for(&mut self, count: usize) -> bool {
        self.entries = self.entries.saturating_add(count);
        self.entries <= MAX_CONVERT_ENTRIES
    }

    /// All remarks so far.
    pub fn all_remarks(&self) -> impl Iterator<Item = &ConvertNote> {
        self.remarks.iter().chain(self.services.iter().flat_map(|service| &service.remarks))
    }

    /// A remark that belongs to no service.
    pub fn remark(&mut self, line: u32, what: &str, why: impl Into<String>) {
        self.remarks.push(ConvertNote::new(line, what, why));
    }
}

/// TCP or UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
}

/// What belongs to a service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// Port 0 is every port.
    Address { protocol: Protocol, address: IpAddr, port: u16 },
    /// A firewall's mark. `None`: the family is that of the real servers.
    Mark { mark: u32, ipv6: Option<bool> },
}

impl Key {
    /// The virtual address; a mark has none.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Key::Address { address, .. } => Some(*address),
            Key::Mark { .. } => None,
        }
    }
}

/// A service: one section.
#[derive(Debug)]
pub(super) struct VirtualService {
    /// Where it stands.
    pub line: u32,
    /// Its first line, for the comment above the section.
    pub title: String,
    /// What the section shall be called, if it has a name; made unique later.
    pub name: Option<String>,
    pub keys: Vec<Key>,
    pub scheduler: Scheduler,
    pub hash_port: bool,
    pub fallback: bool,
    /// The line by which each datagram is balanced alone.
    pub one_packet: Option<u32>,
    pub persistence: Option<Persistence>,
    pub servers: Vec<RealServer>,
    pub remarks: Vec<ConvertNote>,
}

impl VirtualService {
    pub fn new(line: u32, title: &str, scheduler: Scheduler) -> VirtualService {
        VirtualService {
            line,
            title: super::shown(title),
            name: None,
            keys: Vec::new(),
            scheduler,
            hash_port: false,
            fallback: false,
            one_packet: None,
            persistence: None,
            servers: Vec::new(),
            remarks: Vec::new(),
        }
    }

    pub fn remark(&mut self, line: u32, what: &str, why: impl Into<String>) {
        self.remarks.push(ConvertNote::new(line, what, why));
    }
}

/// A scheduler, as the kernel calls it and as `balance` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduler {
    /// `wrr`.
    pub kernel: &'static str,
    /// `roundrobin`.
    pub balance: &'static str,
}

impl Scheduler {
    /// The kernel's default (ipvsadm(8)).
    pub const DEFAULT: &'static str = "wlc";

    const ALL: [Scheduler; 14] = {
        const fn of(kernel: &'static str, balance: &'static str) -> Scheduler {
            Scheduler { kernel, balance }
        }
        [
            of("rr", "roundrobin"),
            of("wrr", "roundrobin"),
            of("lc", "leastconn"),
            of("wlc", "leastconn"),
            of("sh", "source"),
            of("mh", "mh"),
            of("dh", "dh"),
            of("sed", "sed"),
            of("nq", "nq"),
            of("lblc", "lblc"),
            of("lblcr", "lblcr"),
            of("fo", "fo"),
            of("ovf", "ovf"),
            of("twos", "random"),
        ]
    };

    pub fn of(kernel: &str) -> Option<Scheduler> {
        Scheduler::ALL.into_iter().find(|scheduler| scheduler.kernel == kernel)
    }

    /// Whether it gives every server the same, whatever its weight.
    pub fn ignores_weights(self) -> bool {
        matches!(self.kernel, "rr" | "lc")
    }
}

/// That a client stays with a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Persistence {
    pub seconds: u32,
    /// How much of a client's address counts; `None` is all of it.
    pub prefix: Option<u8>,
}

/// How packets get to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Forwarding {
    Direct,
    IpIp,
    Gue(u16),
    Gre,
    Masquerade,
}

/// A real server.
#[derive(Clone, Debug)]
pub(super) struct RealServer {
    pub line: u32,
    /// As the source has it.
    pub title: String,
    pub name: Option<String>,
    pub address: IpAddr,
    /// 0 is the service's.
    pub port: u16,
    pub forwarding: Forwarding,
    pub weight: u32,
    pub upper: u32,
    pub lower: u32,
    /// It gets traffic when no other server is left.
    pub is_backup: bool,
    pub check: Option<Check>,
}

/// How a server is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Check {
    pub line: u32,
    /// As the source calls it.
    pub title: &'static str,
    /// The lines of the section; servers that are checked otherwise cannot be in it.
    pub lines: Vec<String>,
    /// Words of the server's line: times and limits.
    pub times: String,
    /// Further words of the server's line.
    pub words: String,
    /// The port, if it is another one than the server's.
    pub port: Option<u16>,
    /// How long an answer may take.
    pub timeout: String,
}

/// A word of the input for a line of the output, so that it is read as it was. `None` where no quotes help: control characters.
pub(super) fn quoted(word: &str) -> Option<String> {
    if word.chars().any(char::is_control) {
        return None;
    }
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_.,:/?=&%+~@*".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Some(word.to_owned());
    }
    if !word.contains('\'') {
        return Some(format!("'{word}'"));
    }
    let escaped: String =
        word.chars().flat_map(|char| ("\"\\$".contains(char)).then_some('\\').into_iter().chain([char])).collect();
    Some(format!("\"{escaped}\""))
}

/// A time for a line of the output.
pub(super) fn time(millis: u64) -> String {
    match millis % 1000 {
        0 => format!("{}s", millis / 1000),
        _ => format!("{millis}ms"),
    }
}

/// An address as lines of the output have it: of IPv6 in brackets, since a port might follow.
pub(super) fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}
