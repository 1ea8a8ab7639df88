//! Addresses of one network on an interface.
//!
//! Of several IPv4 addresses of the same network the kernel calls the first one primary and all others secondary. When the primary one is
//! removed, the others go with it, whoever put them there, unless the interface, or all of them, has `promote_secondaries`
//! (`net.ipv4.conf` of sysctl(8)): then the next one becomes primary, and none is gone for a moment.
//!
//! The setting of an interface is read and set by netlink here, which takes no `/proc/sys`.

use super::{Routing, word};
use crate::KernelError;
use crate::netlink::{Attributes, Reply, Request};

/// Messages (`RTM_…LINK`).
const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
/// Bytes of `struct ifinfomsg`.
const IFINFO: usize = 16;
/// Attributes (`IFLA_AF_SPEC`, in it the number of a family, in that `IFLA_INET_CONF`).
const FAMILIES: u16 = 26;
const IPV4: u16 = libc::AF_INET as u16;
const SETTINGS: u16 = 1;
/// The setting (`IPV4_DEVCONF_PROMOTE_SECONDARIES`). They are told as an array, of which this is the 20th number.
const PROMOTE: u16 = 20;

impl Routing {
    /// Whether this interface has `promote_secondaries`, without regard to that of all interfaces.
    ///
    /// # Errors
    /// When it is not there, or has no IPv4.
    pub fn promotes_secondaries(&mut self, interface: u32) -> Result<bool, KernelError> {
        let place = place(interface);
        let request = Request::new(GET_LINK, 0, &message(interface), &Attributes::new());
        let found = self.ask(&place, &request)?.iter().find_map(promotes);
        found.ok_or_else(|| {
            KernelError::new(place, "the kernel does not report it", "see whether the interface has IPv4")
        })
    }

    /// Sets it.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or when the interface is not there.
    pub fn promote_secondaries(&mut self, interface: u32, is_on: bool) -> Result<(), KernelError> {
        let setting = Attributes::new().u32(PROMOTE, u32::from(is_on));
        let families = Attributes::new().nest(IPV4, &Attributes::new().nest(SETTINGS, &setting));
        let attributes = Attributes::new().nest(FAMILIES, &families);
        self.ask(&place(interface), &Request::new(NEW_LINK, 0, &message(interface), &attributes)).map(drop)
    }
}

fn place(interface: u32) -> String {
    format!("promote_secondaries of interface {interface}")
}

/// `struct ifinfomsg` that changes no flag.
fn message(interface: u32) -> Vec<u8> {
    [0, interface, 0, 0].map(u32::to_ne_bytes).concat()
}

fn promotes(reply: &Reply) -> Option<bool> {
    word(reply, 4)?;
    let families = reply.attributes(IFINFO).find(FAMILIES)?.nested();
    let settings = families.find(IPV4)?.nested().find(SETTINGS)?.value;
    let at = usize::from(PROMOTE - 1) * size_of::<u32>();
    settings.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes) != 0)
}
