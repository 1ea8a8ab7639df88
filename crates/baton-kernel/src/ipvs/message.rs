//! What the messages of IPVS have in them, both ways.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::{
    Connections, Counters, Daemon, Destination, Forwarding, Info, Role, Service, ServiceKey, Timeouts, Tunnel, flag,
};
use crate::netlink::{Attribute, Attributes, Reader, Reply, generic_attributes};

/// `IPVS_CMD_…`.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(super) enum Command {
    NewService = 1,
    SetService = 2,
    DelService = 3,
    GetService = 4,
    NewDestination = 5,
    SetDestination = 6,
    DelDestination = 7,
    GetDestination = 8,
    NewDaemon = 9,
    DelDaemon = 10,
    GetDaemon = 11,
    SetConfig = 12,
    GetConfig = 13,
    GetInfo = 15,
}

/// `IPVS_CMD_ATTR_…`.
pub(super) mod attr {
    pub(crate) const SERVICE: u16 = 1;
    pub(crate) const DESTINATION: u16 = 2;
    pub(crate) const DAEMON: u16 = 3;
    pub(crate) const TIMEOUT_TCP: u16 = 4;
    pub(crate) const TIMEOUT_TCP_FIN: u16 = 5;
    pub(crate) const TIMEOUT_UDP: u16 = 6;
}

/// `IPVS_SVC_ATTR_…`.
mod svc {
    pub(super) const FAMILY: u16 = 1;
    pub(super) const PROTOCOL: u16 = 2;
    pub(super) const ADDRESS: u16 = 3;
    pub(super) const PORT: u16 = 4;
    pub(super) const MARK: u16 = 5;
    pub(super) const SCHEDULER: u16 = 6;
    pub(super) const FLAGS: u16 = 7;
    pub(super) const TIMEOUT: u16 = 8;
    pub(super) const NETMASK: u16 = 9;
    pub(super) const STATS: u16 = 10;
    pub(super) const ENGINE: u16 = 11;
    pub(super) const STATS64: u16 = 12;
}

/// `IPVS_DEST_ATTR_…`.
mod dest {
    pub(super) const ADDRESS: u16 = 1;
    pub(super) const PORT: u16 = 2;
    pub(super) const FORWARDING: u16 = 3;
    pub(super) const WEIGHT: u16 = 4;
    pub(super) const UPPER: u16 = 5;
    pub(super) const LOWER: u16 = 6;
    pub(super) const ACTIVE: u16 = 7;
    pub(super) const INACTIVE: u16 = 8;
    pub(super) const PERSISTENT: u16 = 9;
    pub(super) const STATS: u16 = 10;
    pub(super) const FAMILY: u16 = 11;
    pub(super) const STATS64: u16 = 12;
    pub(super) const TUNNEL_KIND: u16 = 13;
    pub(super) const TUNNEL_PORT: u16 = 14;
    pub(super) const TUNNEL_FLAGS: u16 = 15;
}

/// `IPVS_DAEMON_ATTR_…`.
mod daemons {
    pub(super) const ROLE: u16 = 1;
    pub(super) const INTERFACE: u16 = 2;
    pub(super) const ID: u16 = 3;
}

/// `IPVS_INFO_ATTR_…`.
const INFO_VERSION: u16 = 1;
const INFO_TABLE: u16 = 2;
/// `IP_VS_CONN_F_…`: the methods of forwarding.
const METHOD: u32 = 7;
const MASQUERADE: u32 = 0;
const LOCAL: u32 = 1;
const TUNNEL: u32 = 2;
const DIRECT: u32 = 3;
/// Bytes of an address (`union nf_inet_addr`), whatever its family.
const ADDRESS_BYTES: usize = 16;

/// By what the kernel finds a service.
pub(super) fn key(key: &ServiceKey) -> Attributes {
    let attributes = Attributes::new().u16(svc::FAMILY, family(key.is_ipv6()));
    match key {
        ServiceKey::Mark(mark, _) => attributes.u32(svc::MARK, *mark),
        ServiceKey::Address(protocol, to) => {
            attributes.u16(svc::PROTOCOL, *protocol).raw(svc::ADDRESS, &padded(to.ip())).u16_be(svc::PORT, to.port())
        }
    }
}

/// A service with its settings.
pub(super) fn settings(service: &Service) -> Attributes {
    let mut flags = [0; 8];
    flags[..4].copy_from_slice(&service.flags.to_ne_bytes());
    flags[4..].copy_from_slice(&u32::MAX.to_ne_bytes()); // which of them are meant: all
    let attributes = key(&service.key)
        .text(svc::SCHEDULER, &service.scheduler)
        .raw(svc::FLAGS, &flags)
        .u32(svc::TIMEOUT, service.timeout);
    let attributes = match (service.key.is_ipv6(), service.prefix) {
        (true, prefix) => attributes.u32(svc::NETMASK, u32::from(prefix)),
        (false, prefix) => attributes.u32_be(svc::NETMASK, mask(prefix)),
    };
    match &service.engine {
        Some(engine) => attributes.text(svc::ENGINE, engine),
        None => attributes,
    }
}

pub(super) fn service(reply: &Reply) -> Option<(Service, Counters)> {
    let found = generic_attributes(reply).find(attr::SERVICE)?.nested();
    let is_ipv6 = is_ipv6(found.find(svc::FAMILY)?)?;
    let key = match found.find(svc::MARK) {
        Some(mark) => ServiceKey::Mark(mark.u32()?, is_ipv6),
        None => {
            let ip = address(found.find(svc::ADDRESS)?, is_ipv6)?;
            let port = found.find(svc::PORT)?.u16_be()?;
            ServiceKey::Address(found.find(svc::PROTOCOL)?.u16()?, SocketAddr::new(ip, port))
        }
    };
    let netmask = found.find(svc::NETMASK)?;
    let prefix = if is_ipv6 { u8::try_from(netmask.u32()?).ok()? } else { netmask.u32_be()?.leading_ones() as u8 };
    let service = Service {
        key,
        scheduler: found.find(svc::SCHEDULER)?.text()?.to_owned(),
        flags: found.find(svc::FLAGS)?.u32()?,
        timeout: found.find(svc::TIMEOUT)?.u32()?,
        prefix,
        engine: found.find(svc::ENGINE).and_then(|engine| engine.text()).map(str::to_owned),
    };
    // A timeout that nothing uses is left over from when clients were persistent.
    let is_persistent = service.flags & flag::PERSISTENT != 0;
    let timeout = if is_persistent { service.timeout } else { 0 };
    Some((Service { timeout, ..service }, counters(found, svc::STATS64, svc::STATS)?))
}

/// By what the kernel finds a destination in a service.
pub(super) fn destination_key(to: SocketAddr) -> Attributes {
    Attributes::new()
        .raw(dest::ADDRESS, &padded(to.ip()))
        .u16_be(dest::PORT, to.port())
        .u16(dest::FAMILY, family(to.is_ipv6()))
}

/// A destination with its settings.
pub(super) fn destination_settings(to: &Destination) -> Attributes {
    let (method, tunnel) = match to.forwarding {
        Forwarding::Masquerade => (MASQUERADE, None),
        Forwarding::Local => (LOCAL, None),
        Forwarding::Tunnel(tunnel) => (TUNNEL, Some(tunnel)),
        Forwarding::Direct => (DIRECT, None),
        Forwarding::Other(method) => (method, None),
    };
    let tunnel = tunnel.unwrap_or_default();
    destination_key(to.address)
        .u32(dest::FORWARDING, method)
        .u32(dest::WEIGHT, to.weight)
        .u32(dest::UPPER, to.upper)
        .u32(dest::LOWER, to.lower)
        .u8(dest::TUNNEL_KIND, tunnel.kind)
        .u16_be(dest::TUNNEL_PORT, tunnel.port)
        .u16(dest::TUNNEL_FLAGS, tunnel.flags)
}

pub(super) fn destination(reply: &Reply, is_service_ipv6: bool) -> Option<(Destination, Connections, Counters)> {
    let found = generic_attributes(reply).find(attr::DESTINATION)?.nested();
    let number = |kind| found.find(kind)?.u32();
    // Kernels before 3.18 have no family of a destination: it is its service's.
    let is_ipv6 = found.find(dest::FAMILY).map_or(Some(is_service_ipv6), is_ipv6)?;
    let ip = address(found.find(dest::ADDRESS)?, is_ipv6)?;
    let tunnel = Tunnel {
        kind: found.find(dest::TUNNEL_KIND).map_or(Some(0), Attribute::u8)?,
        port: found.find(dest::TUNNEL_PORT).map_or(Some(0), Attribute::u16_be)?,
        flags: found.find(dest::TUNNEL_FLAGS).map_or(Some(0), Attribute::u16)?,
    };
    let forwarding = match number(dest::FORWARDING)? & METHOD {
        MASQUERADE => Forwarding::Masquerade,
        LOCAL => Forwarding::Local,
        TUNNEL => Forwarding::Tunnel(tunnel),
        DIRECT => Forwarding::Direct,
        other => Forwarding::Other(other),
    };
    let destination = Destination {
        address: SocketAddr::new(ip, found.find(dest::PORT)?.u16_be()?),
        forwarding,
        weight: number(dest::WEIGHT)?,
        upper: number(dest::UPPER)?,
        lower: number(dest::LOWER)?,
    };
    let connections = Connections {
        active: number(dest::ACTIVE)?,
        inactive: number(dest::INACTIVE)?,
        persistent: number(dest::PERSISTENT)?,
    };
    Some((destination, connections, counters(found, dest::STATS64, dest::STATS)?))
}

/// Counters of 64 bits, or before Linux 4.1 of 32 bits, with bytes in 64.
fn counters(found: Reader<'_>, wide: u16, narrow: u16) -> Option<Counters> {
    let number = |found: Attribute<'_>| found.u64().or_else(|| found.u32().map(u64::from));
    let stats = found.find(wide).or_else(|| found.find(narrow))?.nested();
    let number = |kind| stats.find(kind).and_then(number);
    Some(Counters {
        connections: number(1)?,
        packets_in: number(2)?,
        packets_out: number(3)?,
        bytes_in: number(4)?,
        bytes_out: number(5)?,
    })
}

pub(super) fn info(reply: &Reply) -> Option<Info> {
    let found = generic_attributes(reply);
    Some(Info { version: found.find(INFO_VERSION)?.u32()?, table: found.find(INFO_TABLE)?.u32()? })
}

pub(super) fn timeouts(reply: &Reply) -> Option<Timeouts> {
    let number = |kind| generic_attributes(reply).find(kind)?.u32();
    // A kernel that was built without a protocol has no timeout of it.
    Some(Timeouts {
        tcp: number(attr::TIMEOUT_TCP).unwrap_or(0),
        tcp_fin: number(attr::TIMEOUT_TCP_FIN).unwrap_or(0),
        udp: number(attr::TIMEOUT_UDP).unwrap_or(0),
    })
}

pub(super) fn config(timeouts: Timeouts) -> Attributes {
    Attributes::new()
        .u32(attr::TIMEOUT_TCP, timeouts.tcp)
        .u32(attr::TIMEOUT_TCP_FIN, timeouts.tcp_fin)
        .u32(attr::TIMEOUT_UDP, timeouts.udp)
}

pub(super) fn daemon(reply: &Reply) -> Option<Daemon> {
    let found = generic_attributes(reply).find(attr::DAEMON)?.nested();
    let role = match found.find(daemons::ROLE)?.u32()? {
        1 => Role::Master,
        2 => Role::Backup,
        _ => return None,
    };
    let interface = found.find(daemons::INTERFACE)?.text()?.to_owned();
    Some(Daemon { role, interface, id: found.find(daemons::ID)?.u32()? })
}

pub(super) fn daemon_role(role: Role) -> Attributes {
    Attributes::new().u32(daemons::ROLE, if role == Role::Master { 1 } else { 2 })
}

pub(super) fn daemon_settings(daemon: &Daemon) -> Attributes {
    daemon_role(daemon.role).text(daemons::INTERFACE, &daemon.interface).u32(daemons::ID, daemon.id)
}

fn family(is_ipv6: bool) -> u16 {
    (if is_ipv6 { libc::AF_INET6 } else { libc::AF_INET }) as u16
}

fn is_ipv6(found: Attribute<'_>) -> Option<bool> {
    match i32::from(found.u16()?) {
        libc::AF_INET => Some(false),
        libc::AF_INET6 => Some(true),
        _ => None,
    }
}

fn padded(ip: IpAddr) -> [u8; ADDRESS_BYTES] {
    match ip {
        IpAddr::V6(ip) => ip.octets(),
        IpAddr::V4(ip) => {
            let mut bytes = [0; ADDRESS_BYTES];
            bytes[..4].copy_from_slice(&ip.octets());
            bytes
        }
    }
}

fn address(found: Attribute<'_>, is_ipv6: bool) -> Option<IpAddr> {
    if is_ipv6 {
        found.value.first_chunk::<ADDRESS_BYTES>().map(|bytes| Ipv6Addr::from(*bytes).into())
    } else {
        found.value.first_chunk::<4>().map(|bytes| Ipv4Addr::from(*bytes).into())
    }
}

/// The netmask of a prefix of IPv4.
fn mask(prefix: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0)
}
