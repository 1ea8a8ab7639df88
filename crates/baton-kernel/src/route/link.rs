//! Interfaces.

use nix::errno::Errno;

use super::{Mac, Routing, half, is_refused, word};
use crate::KernelError;
use crate::netlink::{Attributes, Reply, Request};

/// Messages (`RTM_…LINK`).
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// Bytes of `struct ifinfomsg`.
const IFINFO: usize = 16;
/// Attributes (`IFLA_…`, `IFLA_XDP_…`, `IFLA_INFO_…`, `IFLA_VLAN_…`).
const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LOWER: u16 = 5;
const MASTER: u16 = 10;
const XDP: u16 = 43;
const XDP_ATTACHED: u16 = 2;
const INFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const VLAN_ID: u16 = 1;
const VLAN_PROTOCOL: u16 = 5;
/// The EtherType of IEEE 802.1Q.
const DOT1Q: [u8; 2] = [0x81, 0x00];
/// Where the list of interfaces is, for people.
const LIST: &str = "`ip link` lists the interfaces of this network namespace";

/// A network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number in its network namespace.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address; `None` where it is none of Ethernet's.
    pub mac: Option<Mac>,
    /// Bytes of the largest packet.
    pub mtu: u32,
    /// Whether an operator set it up (`IFF_UP`).
    pub is_up: bool,
    /// Whether it is up and has a carrier (`IFF_LOWER_UP`).
    pub has_carrier: bool,
    /// Whether it is the loopback.
    pub is_loopback: bool,
    /// Whether neighbours are asked for hardware addresses on it (no `IFF_NOARP`).
    pub has_neighbours: bool,
    /// What it is, where it is a device in software: `vlan`, `veth`, `bridge`, `bond`, `ipip` …
    pub kind: Option<String>,
    /// For a VLAN, its tag.
    pub vlan: Option<Vlan>,
    /// The interface it stands on: of a VLAN the one with the tags. Of a veth it is the peer's number, which may be one of
    /// another network namespace.
    pub lower: Option<u32>,
    /// The bridge or bond that it belongs to.
    pub master: Option<u32>,
    /// Whether an XDP program is on it.
    pub has_xdp: bool,
}

/// The tag of a VLAN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vlan {
    /// The VLAN's number.
    pub number: u16,
    /// The EtherType as it is in frames: of IEEE 802.1Q (`81 00`), or of 802.1ad (`88 a8`), a provider's tag.
    pub protocol: [u8; 2],
}

impl Routing {
    /// All interfaces, by number.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn links(&mut self) -> Result<Vec<Link>, KernelError> {
        let request = Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new());
        let replies = self.list("list of interfaces", &request)?;
        let mut links: Vec<Link> = replies.iter().filter_map(link).collect();
        links.sort_unstable_by_key(|link| link.index);
        Ok(links)
    }

    /// The interface with this name.
    ///
    /// # Errors
    /// When there is none, with a remedy.
    pub fn link(&mut self, name: &str) -> Result<Link, KernelError> {
        self.find_link(name)?
            .ok_or_else(|| KernelError::new(format!("interface {name}"), "there is no such interface", LIST))
    }

    /// The interface with this name, if there is one.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn find_link(&mut self, name: &str) -> Result<Option<Link>, KernelError> {
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Ok(None);
        }
        let request = Request::new(GET_LINK, 0, &[0; IFINFO], &Attributes::new().text(NAME, name));
        self.one_link(&format!("interface {name}"), &request)
    }

    /// The interface with this number, if there is one.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn link_by_index(&mut self, index: u32) -> Result<Option<Link>, KernelError> {
        let request = Request::new(GET_LINK, 0, &message(index, 0, 0), &Attributes::new());
        self.one_link(&format!("interface {index}"), &request)
    }

    fn one_link(&mut self, place: &str, request: &Request) -> Result<Option<Link>, KernelError> {
        let asked = self.0.ask(request);
        if is_refused(&asked, Errno::ENODEV) {
            return Ok(None);
        }
        let replies = asked.map_err(|fault| KernelError::netlink(place, &fault))?;
        Ok(replies.iter().find_map(link))
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when it is not there.
    pub fn set_up(&mut self, index: u32, up: bool) -> Result<(), KernelError> {
        let flags = if up { libc::IFF_UP as u32 } else { 0 };
        let request = Request::new(NEW_LINK, 0, &message(index, flags, libc::IFF_UP as u32), &Attributes::new());
        self.ask(&format!("interface {index}: set {}", if up { "up" } else { "down" }), &request).map(drop)
    }

    /// Makes an interface of a kind that needs no settings, such as `dummy`. Gives whether it was made: one with this name may
    /// have been there.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or in a kernel that has no such kind.
    pub fn add_link(&mut self, name: &str, kind: &str) -> Result<bool, KernelError> {
        let info = Attributes::new().text(INFO_KIND, kind);
        let attributes = Attributes::new().text(NAME, name).nest(INFO, &info);
        let flags = (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
        let done = self.0.ask(&Request::new(NEW_LINK, flags, &[0; IFINFO], &attributes));
        if is_refused(&done, Errno::EEXIST) {
            return Ok(false);
        }
        let place = format!("interface {name} of kind {kind}");
        match done {
            Err(fault) if fault.errno() == Some(Errno::EOPNOTSUPP) => Err(KernelError::new(
                place,
                format!("the kernel has no interfaces of kind {kind}"),
                format!("load the module (modprobe {kind}), or boot a kernel that has it"),
            )),
            done => done.map(|_| true).map_err(|fault| KernelError::netlink(place, &fault)),
        }
    }
}

/// `struct ifinfomsg`.
fn message(index: u32, flags: u32, change: u32) -> Vec<u8> {
    [0, index, flags, change].map(u32::to_ne_bytes).concat()
}

fn link(reply: &Reply) -> Option<Link> {
    let index = word(reply, 4)?;
    let flags = word(reply, 8)?;
    let has = |flag: libc::c_int| flags & flag as u32 != 0;
    let attributes = reply.attributes(IFINFO);
    let information = attributes.find(INFO).map(|found| found.nested());
    let kind = information.and_then(|all| all.find(INFO_KIND)?.text());
    let data = information.and_then(|all| Some(all.find(INFO_DATA)?.nested()));
    let vlan = data.filter(|_| kind == Some("vlan")).and_then(|data| {
        let number = data.find(VLAN_ID)?.u16()?;
        let protocol = data.find(VLAN_PROTOCOL).and_then(|found| found.value.first_chunk().copied());
        Some(Vlan { number, protocol: protocol.unwrap_or(DOT1Q) })
    });
    let number = |kind| attributes.find(kind).and_then(|found| found.u32()).filter(|number| *number != 0);
    let xdp = attributes.find(XDP).and_then(|all| all.nested().find(XDP_ATTACHED));
    let is_ethernet = matches!(half(reply, 2)?, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK);
    Some(Link {
        index,
        name: attributes.find(NAME)?.text()?.to_owned(),
        mac: attributes.find(ADDRESS).filter(|_| is_ethernet).and_then(|found| Mac::read(found.value)),
        mtu: number(MTU).unwrap_or_default(),
        is_up: has(libc::IFF_UP),
        has_carrier: has(libc::IFF_LOWER_UP),
        is_loopback: has(libc::IFF_LOOPBACK),
        has_neighbours: !has(libc::IFF_NOARP),
        kind: kind.map(str::to_owned),
        vlan,
        lower: number(LOWER).filter(|lower| *lower != index),
        master: number(MASTER),
        has_xdp: xdp.is_some_and(|attached| attached.value != [0]),
    })
}
