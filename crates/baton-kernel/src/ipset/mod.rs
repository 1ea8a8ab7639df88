//! Sets of ports (`ipset`), into which rules of iptables look; and the swap, by which two of them change places at one moment.
//!
//! The messages are those of the kernel's `include/uapi/linux/netfilter/ipset/ip_set.h`. Rules refer to a set, not to its name: after a
//! swap the rules that looked into the one look into the other's members, under the same name.

use std::fmt;

use crate::netlink::{Attributes, NO_RIGHT, NetlinkError, Protocol, Request, Socket, UNNAMED};

/// Bytes of a name at most (`IPSET_MAXNAMELEN`, less the zero at its end).
pub const NAME_MAX: usize = 31;

/// The version of the messages; kernels since 3.0 know it.
const VERSION: u8 = 6;
/// Sets of ports. Both words of the type and the oldest form of it.
const TYPE: &str = "bitmap:port";
const TYPE_REVISION: u8 = 0;
/// `IPSET_CMD_…`.
const CREATE: u16 = 2;
const DESTROY: u16 = 3;
const FLUSH: u16 = 4;
const SWAP: u16 = 6;
const LIST: u16 = 7;
const ADD: u16 = 9;
/// What is there already, or is not there, is an error.
const STRICT: i32 = libc::NLM_F_EXCL;
/// `IPSET_ATTR_…` of a command.
const ATTR_VERSION: u16 = 1;
const ATTR_NAME: u16 = 2;
const ATTR_TYPE: u16 = 3;
const ATTR_OTHER_NAME: u16 = 3;
const ATTR_REVISION: u16 = 4;
const ATTR_FAMILY: u16 = 5;
const ATTR_DATA: u16 = 7;
const ATTR_MEMBERS: u16 = 8;
/// Of a member, and of what a set may have. Numbers in the network's order bear a flag.
const ATTR_PORT: u16 = 4;
const ATTR_PORT_TO: u16 = 5;
const NETWORK_ORDER: u16 = 0x4000;
/// Bytes of `struct nfgenmsg`, before the attributes.
const FIXED: usize = 4;
/// Refusals of ipset's own (`enum ipset_errno`), and what they mean.
const REFUSALS: &[(i32, &str)] = &[
    (4098, "this kernel has no sets of ports (CONFIG_IP_SET_BITMAP_PORT, modprobe ip_set_bitmap_port)"),
    (4099, "the maximum number of sets is reached"),
    (4100, "a rule uses the set"),
    (4101, "the second set to swap with does not exist"),
    (4102, "the two sets are of different types"),
    (4103, "it is already in the set"),
    (4108, "a rule or another set refers to it"),
];

/// A set of ports, as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortSet {
    /// Its name.
    pub name: String,
    /// Its members.
    pub ports: Vec<u16>,
}

/// What was refused; nothing was done.
#[derive(Debug)]
pub struct IpsetError {
    /// What was tried, such as `swap of sets a and b`.
    pub what: String,
    /// How it was refused.
    pub fault: NetlinkError,
}

impl IpsetError {
    /// What it means, where ipset or we know more than the number.
    pub fn remedy(&self) -> Option<&'static str> {
        if self.fault.is_no_right() {
            return Some(NO_RIGHT);
        }
        if let NetlinkError::Refused { said: Some(said), .. } = &self.fault
            && let Some(number) = said.strip_prefix(UNNAMED)
            && let Some((_, meaning)) = REFUSALS.iter().find(|(known, _)| known.to_string() == number)
        {
            return Some(meaning);
        }
        match self.fault.errno().map(|errno| errno as i32) {
            Some(libc::EINVAL | libc::EOPNOTSUPP | libc::EPROTONOSUPPORT) => {
                Some("this kernel may have no ipset: it takes CONFIG_IP_SET (modprobe ip_set)")
            }
            _ => None,
        }
    }
}

impl fmt::Display for IpsetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ipset: {}: {}", self.what, self.fault)?;
        match self.remedy() {
            Some(remedy) => write!(f, "; {remedy}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for IpsetError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.fault)
    }
}

/// The sets of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ipsets(Socket);

impl Ipsets {
    /// # Errors
    /// A kernel without netfilter's netlink.
    pub fn open() -> Result<Self, IpsetError> {
        let refused = |error: std::io::Error| IpsetError { what: "netlink socket".into(), fault: error.into() };
        Socket::open(Protocol::Netfilter).map(Self).map_err(refused)
    }

    /// Makes a set that may have this one port, and is empty. One of the name that is there is an error, whatever is in it.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn create(&mut self, name: &str, port: u16) -> Result<(), IpsetError> {
        let range = number(number(Attributes::new(), ATTR_PORT, port), ATTR_PORT_TO, port);
        let body = command(name)
            .text(ATTR_TYPE, TYPE)
            .u8(ATTR_REVISION, TYPE_REVISION)
            .u8(ATTR_FAMILY, libc::NFPROTO_UNSPEC as u8)
            .nest(ATTR_DATA, &range);
        self.ask(CREATE, STRICT, &body, format!("new set {name}"))
    }

    /// Puts a port into a set.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn add(&mut self, name: &str, port: u16) -> Result<(), IpsetError> {
        let body = command(name).nest(ATTR_DATA, &number(Attributes::new(), ATTR_PORT, port));
        self.ask(ADD, 0, &body, format!("port {port} for set {name}"))
    }

    /// Empties a set.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn flush(&mut self, name: &str) -> Result<(), IpsetError> {
        self.ask(FLUSH, 0, &command(name), format!("flush of set {name}"))
    }

    /// Two sets change places: every packet sees them before or after.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn swap(&mut self, one: &str, other: &str) -> Result<(), IpsetError> {
        let body = command(one).text(ATTR_OTHER_NAME, other);
        self.ask(SWAP, 0, &body, format!("swap of sets {one} and {other}"))
    }

    /// Removes a set, which no rule may look into any more.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn destroy(&mut self, name: &str) -> Result<(), IpsetError> {
        self.ask(DESTROY, STRICT, &command(name), format!("removal of set {name}"))
    }

    /// The sets of ports whose names begin so, with their members. A kernel without ipset has none.
    ///
    /// # Errors
    /// [`IpsetError`] has the reason.
    pub fn list(&mut self, prefix: &str) -> Result<Vec<PortSet>, IpsetError> {
        let body = Attributes::new().u8(ATTR_VERSION, VERSION);
        let replies = match self.0.list(&request(LIST, 0, &body)) {
            Err(fault) if matches!(fault.errno().map(|errno| errno as i32), Some(libc::EINVAL | libc::EOPNOTSUPP)) => {
                return Ok(Vec::new());
            }
            other => other.map_err(|fault| IpsetError { what: "list of sets".into(), fault })?,
        };
        let mut sets: Vec<PortSet> = Vec::new();
        for reply in &replies {
            let attributes = reply.attributes(FIXED);
            let Some(name) = attributes.find(ATTR_NAME).and_then(|name| name.text()) else { continue };
            let is_other_type = attributes.find(ATTR_TYPE).is_some_and(|found| found.text() != Some(TYPE));
            if !name.starts_with(prefix) || is_other_type {
                continue;
            }
            // A set of many members comes in several messages.
            if sets.last().is_none_or(|last| last.name != name) {
                sets.push(PortSet { name: name.to_owned(), ports: Vec::new() });
            }
            let ports = attributes.find(ATTR_MEMBERS).into_iter().flat_map(|members| members.nested().iter());
            let ports = ports.filter_map(|member| {
                let port = member.nested().find(ATTR_PORT)?.value;
                Some(u16::from_be_bytes(*port.first_chunk()?))
            });
            if let Some(last) = sets.last_mut() {
                last.ports.extend(ports);
            }
        }
        Ok(sets)
    }

    fn ask(&mut self, kind: u16, flags: i32, body: &Attributes, what: String) -> Result<(), IpsetError> {
        match self.0.ask(&request(kind, flags, body)) {
            Ok(_) => Ok(()),
            Err(fault) => Err(IpsetError { what, fault }),
        }
    }
}

/// What every command about one set begins with.
fn command(name: &str) -> Attributes {
    Attributes::new().u8(ATTR_VERSION, VERSION).text(ATTR_NAME, name)
}

fn number(attributes: Attributes, kind: u16, port: u16) -> Attributes {
    attributes.u16_be(kind | NETWORK_ORDER, port)
}

fn request(kind: u16, flags: i32, body: &Attributes) -> Request {
    let kind = (libc::NFNL_SUBSYS_IPSET as u16) << 8 | kind;
    Request::new(kind, flags as u16, &[libc::NFPROTO_IPV4 as u8, 0, 0, 0], body)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::testing::in_network;

    fn set(name: &str, ports: &[u16]) -> PortSet {
        PortSet { name: name.into(), ports: ports.to_vec() }
    }

    #[test]
    fn sets_are_made_swapped_listed_and_destroyed() {
        in_network(|| {
            let mut sets = Ipsets::open().unwrap();
            assert_eq!(sets.list("baton").unwrap(), []);
            sets.create("baton-a", 80).unwrap();
            sets.create("baton-b", 80).unwrap();
            sets.create("other", 80).unwrap();
            sets.add("baton-a", 80).unwrap();
            sets.swap("baton-a", "baton-b").unwrap();
            assert_eq!(sets.list("baton").unwrap(), [set("baton-a", &[]), set("baton-b", &[80])]);
            let output =
                Command::new("ipset").args(["list", "baton-b"]).output().expect("the package ipset is installed");
            let shown = String::from_utf8(output.stdout).unwrap();
            assert!(shown.contains("bitmap:port") && shown.trim_end().ends_with("Members:\n80"), "{shown}");
            sets.flush("baton-b").unwrap();
            sets.destroy("baton-a").unwrap();
            assert_eq!(sets.list("baton").unwrap(), [set("baton-b", &[])]);
        });
    }

    #[test]
    fn refusals_are_said_in_words() {
        in_network(|| {
            let mut sets = Ipsets::open().unwrap();
            sets.create("baton-a", 80).unwrap();
            assert!(sets.create("baton-a", 80).is_err());
            assert!(sets.destroy("baton-none").unwrap_err().to_string().contains("removal of set baton-none"));
            let refused = sets.swap("baton-a", "baton-none").unwrap_err();
            assert!(refused.to_string().contains("the second set"), "{refused}");
            caps::clear(None, caps::CapSet::Effective).unwrap();
            let refused = sets.add("baton-a", 80).unwrap_err();
            assert!(refused.to_string().contains("CAP_NET_ADMIN"), "{refused}");
        });
    }
}
