//! The kernel's IP Virtual Server: services, their destinations, timeouts and connection sync daemons.
//!
//! The messages are those of `include/uapi/linux/ip_vs.h`, by generic netlink. Everything here takes CAP_NET_ADMIN, looking too. This is the
//! kernel's view as it is; what is wanted, and what is whose, others know.

mod message;
mod sysctl;

use std::fmt;
use std::net::SocketAddr;

use nix::errno::Errno;

use crate::KernelError;
use crate::netlink::{self, Attributes, Generic, Reply};

use message::{Command, attr};
pub use sysctl::Sysctls;

/// The family and its version.
const FAMILY: (&str, u8) = ("IPVS", 1);
/// What to do about a kernel without it.
const NO_MODULE: &str = "load the module (modprobe ip_vs, in Debian's kernel packages), or use a kernel with CONFIG_IP_VS; in a container, load it on the host";

/// What identifies a service's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKey {
    /// By protocol (`IPPROTO_…`), virtual address and port.
    Address(u16, SocketAddr),
    /// By the mark of a firewall, and whether they are IPv6.
    Mark(u32, bool),
}

/// A service as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// What belongs to it.
    pub key: ServiceKey,
    /// The scheduler's name.
    pub scheduler: String,
    /// [`flag`]s.
    pub flags: u32,
    /// How long a client is persistent, seconds; 0 without.
    pub timeout: u32,
    /// How many leading bits of a client's address count for persistence.
    pub prefix: u8,
    /// The persistence engine's name, such as `sip`.
    pub engine: Option<String>,
}

/// Flags of a service (`IP_VS_SVC_F_…`).
pub mod flag {
    /// Clients are persistent.
    pub const PERSISTENT: u32 = 1;
    /// Set by the kernel on every service.
    pub const HASHED: u32 = 2;
    /// Each UDP packet is balanced alone (one-packet scheduling).
    pub const ONE_PACKET: u32 = 4;
    /// The first flag of a scheduler: fallback, of `sh` and `mh`.
    pub const SCHEDULER_1: u32 = 8;
    /// The second: the port too, of `sh` and `mh`.
    pub const SCHEDULER_2: u32 = 16;
    /// The third, which no scheduler uses.
    pub const SCHEDULER_3: u32 = 32;
}

/// How packets get to a destination (`IP_VS_CONN_F_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// With another destination address.
    Masquerade,
    /// Not at all: it is here.
    Local,
    /// In a tunnel.
    Tunnel(Tunnel),
    /// By the MAC address.
    Direct,
    /// Another one, by its number.
    Other(u32),
}

/// A tunnel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tunnel {
    /// 0 is IP in IP, 1 GUE, 2 GRE.
    pub kind: u8,
    /// GUE's port.
    pub port: u16,
    /// Whether and how it has checksums.
    pub flags: u16,
}

/// A destination as the kernel has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Its address and port.
    pub address: SocketAddr,
    /// How packets get there.
    pub forwarding: Forwarding,
    /// Its weight.
    pub weight: u32,
    /// From so many connections on it gets no new ones; 0 is no limit.
    pub upper: u32,
    /// Below so many it gets new ones again.
    pub lower: u32,
}

/// What a service or a destination counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Connections.
    pub connections: u64,
    /// Packets from clients.
    pub packets_in: u64,
    /// Packets to clients that came this way.
    pub packets_out: u64,
    /// Bytes from clients.
    pub bytes_in: u64,
    /// Bytes to clients that came this way.
    pub bytes_out: u64,
}

/// Connections of a destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Connections {
    /// Established ones.
    pub active: u32,
    /// Others.
    pub inactive: u32,
    /// Clients that are bound to it.
    pub persistent: u32,
}

/// Which version of IPVS this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// `0xMMmmpp`.
    pub version: u32,
    /// Buckets of the connection table.
    pub table: u32,
}

/// Timeouts in seconds, of TCP, of TCP after a FIN, and of UDP. To set one to 0 leaves it as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timeouts {
    /// Of TCP.
    pub tcp: u32,
    /// Of TCP after a FIN.
    pub tcp_fin: u32,
    /// Of UDP.
    pub udp: u32,
}

/// Which connection sync daemon (`IP_VS_STATE_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The one that tells of connections.
    Master,
    /// The one that hears of them.
    Backup,
}

/// A connection sync daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Daemon {
    /// Which one.
    pub role: Role,
    /// Its interface.
    pub interface: String,
    /// The number that daemons of a group share; 0 to 255.
    pub id: u32,
}

/// What the kernel refused, or a reply that is invalid.
#[derive(Debug)]
pub struct IpvsError {
    /// What was tried, such as `server 10.0.0.1:80 of tcp 10.0.0.9:80`.
    pub what: String,
    /// How it was refused.
    pub fault: netlink::NetlinkError,
    /// What helps, where that is known.
    pub remedy: Option<String>,
}

impl IpvsError {
    /// The number of the refusal.
    pub fn errno(&self) -> Option<Errno> {
        self.fault.errno()
    }
}

impl fmt::Display for IpvsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.fault)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for IpvsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.fault)
    }
}

impl From<IpvsError> for KernelError {
    fn from(refusal: IpvsError) -> KernelError {
        KernelError::new(
            format!("IPVS: {}", refusal.what),
            refusal.fault.to_string(),
            refusal.remedy.unwrap_or_default(),
        )
    }
}

/// The IP Virtual Server of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ipvs(Generic);

impl Ipvs {
    /// Finds it; the kernel loads its module, where it is there.
    ///
    /// # Errors
    /// Without the module; with the module, without the right.
    pub fn open() -> Result<(Ipvs, Info), IpvsError> {
        let (name, version) = FAMILY;
        let generic = Generic::open(name, version).map_err(|fault| {
            let is_missing = fault.errno() == Some(Errno::ENOENT);
            let what = if is_missing { "the kernel has no IPVS" } else { "looking for IPVS" };
            IpvsError { what: what.into(), remedy: is_missing.then(|| NO_MODULE.to_owned()), fault }
        })?;
        let mut ipvs = Ipvs(generic);
        let info = ipvs.info()?;
        Ok((ipvs, info))
    }

    /// Its version and the size of its table.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn info(&mut self) -> Result<Info, IpvsError> {
        let replies = self.ask(Command::GetInfo, &Attributes::new(), || "version".into())?;
        one(&replies, "version", message::info)
    }

    /// All services with their counters.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn services(&mut self) -> Result<Vec<(Service, Counters)>, IpvsError> {
        let replies = self.list(Command::GetService, &Attributes::new(), || "list of services".into())?;
        all(&replies, "list of services", message::service)
    }

    /// The destinations of a service, none when it is not there.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn destinations(&mut self, key: &ServiceKey) -> Result<Vec<(Destination, Connections, Counters)>, IpvsError> {
        let body = Attributes::new().nest(attr::SERVICE, &message::key(key));
        let what = || format!("list of servers of {key}");
        let replies = self.list(Command::GetDestination, &body, what)?;
        all(&replies, "list of servers", |reply| message::destination(reply, key.is_ipv6()))
    }

    /// Adds a service.
    ///
    /// # Errors
    /// `EEXIST` when there is one with the key.
    pub fn add_service(&mut self, service: &Service) -> Result<(), IpvsError> {
        self.set_service(Command::NewService, service)
    }

    /// Changes a service; its destinations and connections stay.
    ///
    /// # Errors
    /// `ESRCH` when it is not there.
    pub fn edit_service(&mut self, service: &Service) -> Result<(), IpvsError> {
        self.set_service(Command::SetService, service)
    }

    fn set_service(&mut self, command: Command, service: &Service) -> Result<(), IpvsError> {
        let body = Attributes::new().nest(attr::SERVICE, &message::settings(service));
        let done = self.ask(command, &body, || format!("service {}", service.key));
        done.map(drop).map_err(|mut refusal| {
            if refusal.errno() == Some(Errno::ENOENT) {
                let scheduler = &service.scheduler;
                refusal.remedy = Some(format!("the kernel has no scheduler {scheduler}: modprobe ip_vs_{scheduler}"));
            }
            refusal
        })
    }

    /// Removes a service with its destinations.
    ///
    /// # Errors
    /// `ESRCH` when it is not there.
    pub fn remove_service(&mut self, key: &ServiceKey) -> Result<(), IpvsError> {
        let body = Attributes::new().nest(attr::SERVICE, &message::key(key));
        self.ask(Command::DelService, &body, || format!("removal of service {key}")).map(drop)
    }

    /// Adds a destination.
    ///
    /// # Errors
    /// `EEXIST` when it is there, `ESRCH` without its service.
    pub fn add_destination(&mut self, key: &ServiceKey, destination: &Destination) -> Result<(), IpvsError> {
        self.set_destination(Command::NewDestination, key, destination)
    }

    /// Changes a destination; its connections stay.
    ///
    /// # Errors
    /// `ENOENT` when it is not there, `ESRCH` without its service.
    pub fn edit_destination(&mut self, key: &ServiceKey, destination: &Destination) -> Result<(), IpvsError> {
        self.set_destination(Command::SetDestination, key, destination)
    }

    fn set_destination(&mut self, command: Command, key: &ServiceKey, to: &Destination) -> Result<(), IpvsError> {
        let body = Attributes::new()
            .nest(attr::SERVICE, &message::key(key))
            .nest(attr::DESTINATION, &message::destination_settings(to));
        self.ask(command, &body, || format!("server {} of {key}", to.address)).map(drop)
    }

    /// Removes a destination.
    ///
    /// # Errors
    /// `ENOENT` when it is not there, `ESRCH` without its service.
    pub fn remove_destination(&mut self, key: &ServiceKey, address: SocketAddr) -> Result<(), IpvsError> {
        let body = Attributes::new()
            .nest(attr::SERVICE, &message::key(key))
            .nest(attr::DESTINATION, &message::destination_key(address));
        self.ask(Command::DelDestination, &body, || format!("removal of server {address} of {key}")).map(drop)
    }

    /// The timeouts of connections.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn timeouts(&mut self) -> Result<Timeouts, IpvsError> {
        let replies = self.ask(Command::GetConfig, &Attributes::new(), || "timeouts".into())?;
        one(&replies, "timeouts", message::timeouts)
    }

    /// Sets the timeouts that are not 0.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), IpvsError> {
        self.ask(Command::SetConfig, &message::config(timeouts), || "timeouts".into()).map(drop)
    }

    /// The connection sync daemons that run.
    ///
    /// # Errors
    /// [`IpvsError`] has the reason.
    pub fn daemons(&mut self) -> Result<Vec<Daemon>, IpvsError> {
        let what = "list of connection sync daemons";
        let replies = self.list(Command::GetDaemon, &Attributes::new(), || what.into())?;
        all(&replies, what, message::daemon)
    }

    /// Starts a connection sync daemon.
    ///
    /// # Errors
    /// `EEXIST` when one of this role runs, `ENODEV` without its interface.
    pub fn start_daemon(&mut self, daemon: &Daemon) -> Result<(), IpvsError> {
        let body = Attributes::new().nest(attr::DAEMON, &message::daemon_settings(daemon));
        let done = self.ask(Command::NewDaemon, &body, || format!("connection sync daemon on {}", daemon.interface));
        done.map(drop).map_err(|mut refusal| {
            if refusal.errno() == Some(Errno::ENODEV) {
                refusal.remedy = Some(format!("there must be an interface {}, and it must be up", daemon.interface));
            }
            refusal
        })
    }

    /// Ends a connection sync daemon.
    ///
    /// # Errors
    /// `ESRCH` when none of this role runs.
    pub fn stop_daemon(&mut self, role: Role) -> Result<(), IpvsError> {
        let body = Attributes::new().nest(attr::DAEMON, &message::daemon_role(role));
        self.ask(Command::DelDaemon, &body, || "end of a connection sync daemon".into()).map(drop)
    }

    fn ask(
        &mut self,
        command: Command,
        body: &Attributes,
        what: impl FnOnce() -> String,
    ) -> Result<Vec<Reply>, IpvsError> {
        self.0.ask(command as u8, body).map_err(|fault| refusal(what(), fault))
    }

    fn list(
        &mut self,
        command: Command,
        body: &Attributes,
        what: impl FnOnce() -> String,
    ) -> Result<Vec<Reply>, IpvsError> {
        self.0.list(command as u8, body).map_err(|fault| refusal(what(), fault))
    }
}

impl ServiceKey {
    /// Whether its packets are IPv6.
    pub fn is_ipv6(&self) -> bool {
        match self {
            ServiceKey::Address(_, address) => address.is_ipv6(),
            ServiceKey::Mark(_, is_ipv6) => *is_ipv6,
        }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServiceKey::Address(protocol, address) => match i32::from(*protocol) {
                libc::IPPROTO_TCP => write!(f, "tcp {address}"),
                libc::IPPROTO_UDP => write!(f, "udp {address}"),
                other => write!(f, "protocol {other} {address}"),
            },
            ServiceKey::Mark(mark, false) => write!(f, "mark {mark}"),
            ServiceKey::Mark(mark, true) => write!(f, "mark {mark} (IPv6)"),
        }
    }
}

fn refusal(what: String, fault: netlink::NetlinkError) -> IpvsError {
    let remedy = fault.is_no_right().then_some("it needs CAP_NET_ADMIN: run as root, or grant the capability");
    IpvsError { what, fault, remedy: remedy.map(str::to_owned) }
}

/// Every answer of a list; one that makes no sense is an error, for half a list would be taken for the whole.
fn all<T>(replies: &[Reply], what: &str, read: impl Fn(&Reply) -> Option<T>) -> Result<Vec<T>, IpvsError> {
    replies.iter().map(|reply| read(reply).ok_or_else(|| senseless(what))).collect()
}

fn one<T>(replies: &[Reply], what: &str, read: impl Fn(&Reply) -> Option<T>) -> Result<T, IpvsError> {
    replies.first().and_then(read).ok_or_else(|| senseless(what))
}

fn senseless(what: &str) -> IpvsError {
    let error = std::io::Error::new(std::io::ErrorKind::InvalidData, "invalid reply of the kernel");
    IpvsError { what: what.to_owned(), fault: error.into(), remedy: None }
}

#[cfg(test)]
mod tests;
