//! The engine `ipvs`: the kernel's IP Virtual Server, by its own netlink messages and not by `ipvsadm`.
//!
//! Connections are the kernel's: this holds none, and a program that ends, crashes or is replaced is not noticed. Changes of
//! weights, of settings and of other servers leave connections where they are. Of a server that is removed the kernel drops the
//! packets until the connections time out or the server is back; with `net.ipv4.vs.expire_nodest_conn` it forgets the connections, and
//! the director's own stack answers the clients with a reset ([`Engine::removal`]).
//!
//! What is not here: queues, retries, rewriting of what is carried. Persistence engines (`sip`) are left to others.

use std::time::Duration;

use baton_kernel::ipvs::{self, Daemon, Info, Role, Sysctls, flag};

use crate::{
    Counters, Destination, DestinationFigures, DirectorSettings, Engine, Figures, Forwarding, KernelChange,
    KernelError, Observed, Persistence, Protocol, Scheduler, Service, ServiceKey, SyncDaemon, SyncRole, Timeouts, Tune,
    Tuning, Tunnel,
};

/// The largest weight (ipvsadm(8), `--weight`).
pub const WEIGHT_MAX: u32 = 65_535;
/// The longest persistence: 31 days, the kernel's limit.
pub const PERSISTENCE_MAX: Duration = Duration::from_secs(31 * 86_400);

/// The sysctls that are set when asked for, in `net.ipv4.vs`.
const EXPIRE_NODEST: &str = "expire_nodest_conn";
const SLOPPY_TCP: &str = "sloppy_tcp";
const EXPIRE_QUIESCENT: &str = "expire_quiescent_template";
/// What becomes of connections without and with the first of them.
const DROPS: &str = "packets of its connections are dropped until it is back or they time out \
    (net.ipv4.vs.expire_nodest_conn = 0)";
const EXPIRES: &str = "its connections end (net.ipv4.vs.expire_nodest_conn = 1)";
/// Kinds of tunnels (`IP_VS_CONN_F_TUNNEL_TYPE_…`).
const IPIP: u8 = 0;
const GUE: u8 = 1;
const GRE: u8 = 2;

/// IPVS in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Ipvs {
    kernel: ipvs::Ipvs,
    info: Info,
    sysctls: Sysctls,
    /// Whether connections of a removed destination will end, when the settings asked for are in place.
    expires: bool,
}

impl Ipvs {
    /// Finds the kernel's IPVS; the kernel loads its module, where it is there. Nothing is changed.
    ///
    /// # Errors
    /// Without the module or without CAP_NET_ADMIN; it says which.
    pub fn open() -> Result<Ipvs, KernelError> {
        let (kernel, info) = ipvs::Ipvs::open()?;
        let sysctls = Sysctls::open();
        let expires = sysctls.is_on(EXPIRE_NODEST).unwrap_or(false);
        Ok(Ipvs { kernel, info, sysctls, expires })
    }
}

impl Engine for Ipvs {
    fn name(&self) -> &'static str {
        "ipvs"
    }

    fn observe(&mut self) -> Result<Vec<Observed>, KernelError> {
        let services = self.kernel.services()?;
        let mut observed = Vec::with_capacity(services.len());
        for (found, _) in services {
            // What is of another protocol can be nobody's wish.
            let Some(key) = read_key(&found.key) else { continue };
            let destinations = self.kernel.destinations(&found.key)?;
            observed.push(read(key, &found, destinations.into_iter().map(|(destination, ..)| destination)));
        }
        Ok(observed)
    }

    fn judge(&self, service: &Service) -> Vec<String> {
        judge(service)
    }

    fn take(&mut self, step: &KernelChange) -> Result<(), KernelError> {
        let key = key(&step.key());
        let kernel = &mut self.kernel;
        let done = match step {
            KernelChange::AddService(service) => kernel.add_service(&written(service)),
            KernelChange::EditService(service) => kernel.edit_service(&written(service)),
            KernelChange::RemoveService(_) => is_absent(kernel.remove_service(&key)),
            KernelChange::AddDestination(_, destination) => {
                kernel.add_destination(&key, &written_destination(destination))
            }
            KernelChange::EditDestination(_, destination) => {
                kernel.edit_destination(&key, &written_destination(destination))
            }
            KernelChange::RemoveDestination(_, address) => is_absent(kernel.remove_destination(&key, *address)),
        };
        Ok(done?)
    }

    fn removal(&self) -> &'static str {
        if self.expires { EXPIRES } else { DROPS }
    }

    fn figures(&mut self) -> Result<Vec<Figures>, KernelError> {
        let mut figures = Vec::new();
        for (service, counters) in self.kernel.services()? {
            let Some(key) = read_key(&service.key) else { continue };
            let destinations = self.kernel.destinations(&service.key)?.into_iter();
            let destinations = destinations.map(|(destination, connections, counters)| DestinationFigures {
                address: destination.address,
                counters: counted(counters),
                active: connections.active,
                inactive: connections.inactive,
                persistent: connections.persistent,
            });
            figures.push(Figures { key, counters: counted(counters), destinations: destinations.collect() });
        }
        Ok(figures)
    }

    fn tuning(&mut self, settings: &DirectorSettings, started: &[SyncRole]) -> Result<Tuning, KernelError> {
        let mut tuning = Tuning::default();
        let differing = differing(&settings.timeouts, self.kernel.timeouts()?);
        if !differing.is_empty() {
            tuning.tunes.push(Tune::Timeouts(differing));
        }
        for (name, asked) in [
            (EXPIRE_NODEST, settings.expire_nodest_conn),
            (SLOPPY_TCP, settings.sloppy_tcp),
            (EXPIRE_QUIESCENT, self.expire_quiescent(settings)),
        ] {
            let Some(asked) = asked else { continue };
            match self.sysctls.is_on(name) {
                Ok(now) if now == asked => {}
                Ok(_) => tuning.tunes.push(Tune::Sysctl(name, asked)),
                Err(fault) => tuning.refused.push(fault.to_string()),
            }
        }
        self.expires = self.sysctls.is_on(EXPIRE_NODEST).unwrap_or(false);
        self.expires = settings.expire_nodest_conn.unwrap_or(self.expires);
        let running = self.kernel.daemons()?;
        for role in SyncRole::ALL {
            let found = running.iter().find(|daemon| daemon.role == kernel_role(role));
            let is_ours = started.contains(&role);
            match (settings.sync(role), found) {
                (Some(asked), Some(found)) if *asked == read_daemon(found) => {}
                (Some(asked), Some(found)) if !is_ours => tuning.refused.push(format!(
                    "the connection sync daemon {role} on {} with id {}: another one runs on {} with id {}; stop it (ipvsadm \
                     --stop-daemon {role})",
                    asked.interface, asked.id, found.interface, found.id
                )),
                (Some(asked), Some(_)) => {
                    tuning.tunes.extend([Tune::StopSync(role), Tune::StartSync(role, asked.clone())]);
                }
                (Some(asked), None) => tuning.tunes.push(Tune::StartSync(role, asked.clone())),
                (None, _) if is_ours => tuning.tunes.push(Tune::StopSync(role)),
                (None, _) => {}
            }
        }
        Ok(tuning)
    }

    fn tune(&mut self, tune: &Tune) -> Result<(), KernelError> {
        match tune {
            Tune::Timeouts(timeouts) => {
                let seconds = |timeout: Option<Duration>| timeout.map_or(0, seconds);
                let [tcp, tcp_fin, udp] = [timeouts.tcp, timeouts.tcp_fin, timeouts.udp].map(seconds);
                Ok(self.kernel.set_timeouts(ipvs::Timeouts { tcp, tcp_fin, udp })?)
            }
            Tune::Sysctl(name, value) => self.sysctls.set(name, *value),
            Tune::StartSync(role, SyncDaemon { interface, id }) => {
                let (role, interface) = (kernel_role(*role), interface.clone());
                Ok(self.kernel.start_daemon(&Daemon { role, interface, id: u32::from(*id) })?)
            }
            Tune::StopSync(role) => Ok(is_absent(self.kernel.stop_daemon(kernel_role(*role)))?),
        }
    }

    fn keeps_away(&self, settings: &DirectorSettings) -> bool {
        let can_be = || self.sysctls.is_settable(EXPIRE_QUIESCENT).is_ok();
        match self.expire_quiescent(settings) {
            None => self.is_expiring(),
            Some(asked) => asked && (self.is_expiring() || can_be()),
        }
    }

    fn advise(&self, settings: &DirectorSettings, desired: &[Service]) -> Vec<String> {
        let mut advice = Vec::new();
        if settings.is_persistent
            && settings.expire_quiescent_template.is_none()
            && !self.is_expiring()
            && let Err(fault) = self.sysctls.is_settable(EXPIRE_QUIESCENT)
        {
            advice.push(format!(
                "with persistence, a server that is down is removed and loses the connections that are open, because a setting \
                 cannot be changed here: {fault}"
            ));
        }
        advice.extend(desired.iter().filter_map(refuses_clients));
        advice
    }

    fn manner(&self) -> String {
        let [_, major, minor, patch] = self.info.version.to_be_bytes();
        format!("IPVS {major}.{minor}.{patch} with {} buckets of connections", self.info.table)
    }
}

impl Ipvs {
    /// What the setting is to be: what is asked for; else, with persistence, on where that can be had.
    fn expire_quiescent(&self, settings: &DirectorSettings) -> Option<bool> {
        let implied = || settings.is_persistent && self.sysctls.is_settable(EXPIRE_QUIESCENT).is_ok();
        settings.expire_quiescent_template.or_else(|| implied().then_some(true))
    }

    fn is_expiring(&self) -> bool {
        self.sysctls.is_on(EXPIRE_QUIESCENT).unwrap_or(false)
    }
}

/// `dh` finds a server by the address asked for alone, and refuses the client where that one has weight 0.
pub(crate) fn refuses_clients(service: &Service) -> Option<String> {
    let quiet = service.destinations.iter().filter(|server| server.weight == 0);
    let quiet: Vec<String> = quiet.map(|server| server.address.to_string()).collect();
    let is_so = service.scheduler == Scheduler::Destination && !quiet.is_empty();
    is_so.then(|| {
        format!(
            "service {}: `balance dh` refuses the clients that it maps to {}, whose weight is 0; to move them to another server, put it into \
             maintenance",
            service.key,
            quiet.join(", ")
        )
    })
}

/// What the kernel would refuse, or do otherwise than it is asked for.
pub(crate) fn judge(service: &Service) -> Vec<String> {
    let mut reasons = Vec::new();
    let mut refuse = |is_wrong: bool, why: &str| {
        if is_wrong {
            reasons.push(why.to_owned());
        }
    };
    let hashes = matches!(service.scheduler, Scheduler::Source | Scheduler::Maglev);
    refuse(service.hash_port && !hashes, "only the schedulers sh and mh hash ports");
    refuse(service.fallback && !hashes, "only the schedulers sh and mh have a fallback");
    let is_tcp = matches!(service.key, ServiceKey::Address { protocol: Protocol::Tcp, .. });
    refuse(service.one_packet && is_tcp, "per-packet balancing is for UDP and marks only, not for TCP");
    let port = match service.key {
        ServiceKey::Address { address, .. } => address.port(),
        ServiceKey::Mark { mark, .. } => {
            refuse(mark == 0, "0 is not a valid mark");
            0
        }
    };
    let is_every_port = port == 0 && matches!(service.key, ServiceKey::Address { .. });
    refuse(is_every_port && service.persistence.is_none(), "a service for every port needs persistence");
    if let Some(Persistence { timeout, prefix }) = service.persistence {
        let bits = if service.key.is_ipv6() { 128 } else { 32 };
        refuse(!(1..=bits).contains(&prefix), "the prefix length is out of range for a client address");
        refuse(seconds(timeout) == 0, "persistence needs a timeout of at least one second");
        refuse(timeout > PERSISTENCE_MAX, "the maximum persistence timeout is 31 days");
    }
    for destination in &service.destinations {
        reasons.extend(judge_destination(service, destination, port));
    }
    reasons
}

fn judge_destination(service: &Service, destination: &Destination, port: u16) -> Vec<String> {
    let address = destination.address;
    let mut reasons = Vec::new();
    let mut refuse = |is_wrong: bool, why: &str| {
        if is_wrong {
            reasons.push(format!("server {address}: {why}"));
        }
    };
    let is_tunnel = matches!(destination.forwarding, Forwarding::Tunnel(_));
    let is_masquerade = destination.forwarding == Forwarding::Masquerade;
    let is_mixed = address.is_ipv6() != service.key.is_ipv6();
    refuse(is_mixed && !is_tunnel, "its address family differs from that of the service, which only a tunnel allows");
    refuse(address.ip().is_unspecified() || address.ip().is_multicast(), "it is not an address of a server");
    refuse(
        !is_masquerade && address.port() != port,
        "only masquerading changes the port: otherwise it is that of the service",
    );
    refuse(destination.forwarding == Forwarding::Tunnel(Tunnel::Gue(0)), "a GUE tunnel needs a port");
    refuse(destination.weight > WEIGHT_MAX, "the largest weight is 65535");
    refuse(
        destination.upper > 0 && destination.lower > destination.upper,
        "the lower threshold is above the upper one",
    );
    refuse(destination.upper == 0 && destination.lower > 0, "a lower threshold needs an upper one");
    reasons
}

fn key(key: &ServiceKey) -> ipvs::ServiceKey {
    match *key {
        ServiceKey::Address { protocol, address } => ipvs::ServiceKey::Address(number(protocol), address),
        ServiceKey::Mark { mark, ipv6 } => ipvs::ServiceKey::Mark(mark, ipv6),
    }
}

fn read_key(key: &ipvs::ServiceKey) -> Option<ServiceKey> {
    match *key {
        ipvs::ServiceKey::Mark(mark, ipv6) => Some(ServiceKey::Mark { mark, ipv6 }),
        ipvs::ServiceKey::Address(found, address) => {
            let protocol = [Protocol::Tcp, Protocol::Udp].into_iter().find(|protocol| number(*protocol) == found)?;
            Some(ServiceKey::Address { protocol, address })
        }
    }
}

/// As in a packet of IP.
fn number(protocol: Protocol) -> u16 {
    match protocol {
        Protocol::Tcp => 6,
        Protocol::Udp => 17,
    }
}

/// A service as the kernel takes it.
fn written(service: &Service) -> ipvs::Service {
    let flags = [
        (service.persistence.is_some(), flag::PERSISTENT),
        (service.one_packet, flag::ONE_PACKET),
        (service.fallback, flag::SCHEDULER_1),
        (service.hash_port, flag::SCHEDULER_2),
    ];
    let whole = if service.key.is_ipv6() { 128 } else { 32 };
    ipvs::Service {
        key: key(&service.key),
        scheduler: service.scheduler.word().to_owned(),
        flags: flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag),
        timeout: service.persistence.map_or(0, |persistence| seconds(persistence.timeout)),
        prefix: service.persistence.map_or(whole, |persistence| persistence.prefix),
        engine: None,
    }
}

fn written_destination(destination: &Destination) -> ipvs::Destination {
    let tunnel = |kind, port| ipvs::Forwarding::Tunnel(ipvs::Tunnel { kind, port, flags: 0 });
    ipvs::Destination {
        address: destination.address,
        forwarding: match destination.forwarding {
            Forwarding::Direct => ipvs::Forwarding::Direct,
            Forwarding::Masquerade => ipvs::Forwarding::Masquerade,
            Forwarding::Tunnel(Tunnel::IpIp) => tunnel(IPIP, 0),
            Forwarding::Tunnel(Tunnel::Gue(port)) => tunnel(GUE, port),
            Forwarding::Tunnel(Tunnel::Gre) => tunnel(GRE, 0),
        },
        weight: destination.weight,
        upper: destination.upper,
        lower: destination.lower,
    }
}

/// A service as the kernel has it; what has no words here is the nearest, and is named.
fn read(key: ServiceKey, found: &ipvs::Service, destinations: impl Iterator<Item = ipvs::Destination>) -> Observed {
    let mut beyond = Vec::new();
    let scheduler = Scheduler::ALL.into_iter().find(|scheduler| scheduler.word() == found.scheduler);
    let scheduler = scheduler.unwrap_or_else(|| {
        beyond.push(format!("scheduler {}", found.scheduler));
        if found.scheduler == "lc" { Scheduler::LeastConn } else { Scheduler::RoundRobin }
    });
    let is_set = |flag: u32| found.flags & flag != 0;
    let hashes = matches!(scheduler, Scheduler::Source | Scheduler::Maglev);
    let strange = is_set(flag::SCHEDULER_3) || !hashes && is_set(flag::SCHEDULER_1 | flag::SCHEDULER_2);
    if strange {
        beyond.push(format!("flags {:#x} of the scheduler", found.flags));
    }
    if let Some(engine) = &found.engine {
        beyond.push(format!("persistence engine {engine}"));
    }
    let persistence = is_set(flag::PERSISTENT)
        .then(|| Persistence { timeout: Duration::from_secs(u64::from(found.timeout)), prefix: found.prefix });
    let destinations = destinations.map(|destination| read_destination(destination, &mut beyond)).collect();
    let service = Service {
        key,
        scheduler,
        hash_port: hashes && is_set(flag::SCHEDULER_2),
        fallback: hashes && is_set(flag::SCHEDULER_1),
        persistence,
        one_packet: is_set(flag::ONE_PACKET),
        destinations,
    };
    Observed { service, beyond }
}

fn read_destination(found: ipvs::Destination, beyond: &mut Vec<String>) -> Destination {
    let mut nearest = |forwarding, what: &str| {
        beyond.push(format!("server {} {what}", found.address));
        forwarding
    };
    let forwarding = match found.forwarding {
        ipvs::Forwarding::Direct => Forwarding::Direct,
        ipvs::Forwarding::Masquerade => Forwarding::Masquerade,
        ipvs::Forwarding::Tunnel(ipvs::Tunnel { kind: IPIP, flags: 0, .. }) => Forwarding::Tunnel(Tunnel::IpIp),
        ipvs::Forwarding::Tunnel(ipvs::Tunnel { kind: GUE, port, flags: 0 }) => Forwarding::Tunnel(Tunnel::Gue(port)),
        ipvs::Forwarding::Tunnel(ipvs::Tunnel { kind: GRE, flags: 0, .. }) => Forwarding::Tunnel(Tunnel::Gre),
        ipvs::Forwarding::Tunnel(_) => nearest(Forwarding::Tunnel(Tunnel::IpIp), "with another tunnel"),
        ipvs::Forwarding::Local => nearest(Forwarding::Direct, "here"),
        ipvs::Forwarding::Other(_) => nearest(Forwarding::Direct, "with an unknown forwarding method"),
    };
    let ipvs::Destination { address, weight, upper, lower, .. } = found;
    Destination { address, forwarding, weight, upper, lower }
}

fn counted(counters: ipvs::Counters) -> Counters {
    Counters {
        connections: counters.connections,
        packets_in: counters.packets_in,
        packets_out: counters.packets_out,
        bytes_in: counters.bytes_in,
        bytes_out: counters.bytes_out,
    }
}

/// What is not there any more needs no removal.
fn is_absent(done: Result<(), ipvs::IpvsError>) -> Result<(), ipvs::IpvsError> {
    const ABSENT: [i32; 2] = [2, 3]; // ENOENT, ESRCH
    match done {
        Err(refusal) if refusal.errno().is_some_and(|errno| ABSENT.contains(&(errno as i32))) => Ok(()),
        done => done,
    }
}

/// Whole seconds, as many as a number of the kernel holds.
fn seconds(time: Duration) -> u32 {
    u32::try_from(time.as_secs()).unwrap_or(u32::MAX)
}

/// The timeouts asked for that are others now.
fn differing(asked: &Timeouts, now: ipvs::Timeouts) -> Timeouts {
    let differing = |asked: Option<Duration>, now| asked.filter(|asked| seconds(*asked) != now);
    Timeouts {
        tcp: differing(asked.tcp, now.tcp),
        tcp_fin: differing(asked.tcp_fin, now.tcp_fin),
        udp: differing(asked.udp, now.udp),
    }
}

fn kernel_role(role: SyncRole) -> Role {
    match role {
        SyncRole::Master => Role::Master,
        SyncRole::Backup => Role::Backup,
    }
}

fn read_daemon(daemon: &Daemon) -> SyncDaemon {
    SyncDaemon { interface: daemon.interface.clone(), id: daemon.id as u8 }
}

#[cfg(test)]
mod tests;
