//! What is asked for and how servers are, as services for the kernel. Pure.
//!
//! A server that may not get anything new stays in the kernel with weight 0: its connections go on, and it comes back without
//! a trace. That is so for drain, for maintenance and for a server that is down, as in other modes, where sessions in flight end by
//! themselves too. A server that is down or in maintenance is *removed* where weight 0 would not keep clients away:
//!
//! - with persistence, where the kernel sends a client that is bound to a server there whatever its weight: the engine knows
//!   ([`Lowered::down`] says which servers);
//! - by `dh`, which finds a server by the destination alone and would refuse the client; so there a backup without its turn and a server
//!   of weight 0 are not there either. One that drains stays, for its connections, which the engine warns of;
//! - with `on-marked-down shutdown-sessions`, which asks for that.
//!
//! `source` always has the kernel's `sh-fallback`: HAProxy's `source` goes on to another server as well.
//!
//! Slow start scales all weights of a service, because there is nothing between 0 and 1, as long as one of its servers is in it.
//! Schedulers by hash, `fo` and `ovf` know no share, so their servers have their full weight at once, as `static-rr` does.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::SocketAddr;

use baton_direct::xdp::XdpHook;
use baton_direct::{
    Destination, DirectorSettings, Persistence, Protocol, Scheduler, Service, ServiceKey, SyncDaemon, Timeouts, Tunnel,
};
pub use baton_model::direct_pairs as pairs;
use baton_model::{
    Address, Direct, EffectiveServer, EngineChoice, Forwarding, MarkedDown, Model, Place, Proxy, Server, XdpWhere,
};

/// By how much weights are larger while a server starts slowly.
pub const SCALE: u32 = 16;

/// How a server is, as far as weights go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// It is neither down nor in maintenance.
    pub runs: bool,
    /// It may get something new: it runs, and is neither draining nor stopping.
    pub takes: bool,
    /// `weight`, as configured or set.
    pub weight: u32,
    /// The share of it that slow start leaves now, in percent; `None` is all.
    pub throttle: Option<u32>,
}

impl Standing {
    /// Of a server that nobody knows anything of yet.
    pub fn at_first(server: &Server, effective: EffectiveServer) -> Standing {
        let EffectiveServer { weight, admin } = effective;
        let runs = !admin.maintenance && !server.address.is_unresolved();
        Standing { runs, takes: runs && !admin.drain, weight, throttle: None }
    }
}

/// What a section asks for.
#[derive(Debug, Default)]
pub struct Lowered {
    /// A service for each of its places.
    pub services: Vec<Service>,
    /// With persistence, servers that are down or in maintenance: where weight 0 does not keep away clients that stick to them, these go.
    pub down: Vec<(ServiceKey, SocketAddr)>,
}

/// What a section with its backend asks for. `standing` says how a server is.
pub fn lower(front: &Proxy, back: &Proxy, standing: impl Fn(&Server) -> Standing) -> Lowered {
    let Some(direct) = &back.direct else { return Lowered::default() };
    let servers: Vec<(&Server, Standing)> = back.servers.iter().map(|server| (&**server, standing(server))).collect();
    let places = || front.places().iter().map(|bind| &bind.place);
    let gone = |(_, how): &&(&Server, Standing)| direct.persistence.is_some() && !how.runs;
    let down = |place: &'_ Place| -> Vec<(ServiceKey, SocketAddr)> {
        let gone = servers.iter().filter(gone);
        gone.filter_map(|(server, _)| Some((key(place), address(server, place)?))).collect()
    };
    Lowered {
        services: places().map(|place| service(place, direct, back, &servers)).collect(),
        down: places().flat_map(down).collect(),
    }
}

/// By what the kernel knows a place.
pub fn key(place: &Place) -> ServiceKey {
    match *place {
        Place::Tcp(address) => ServiceKey::Address { protocol: Protocol::Tcp, address },
        Place::Udp(address) => ServiceKey::Address { protocol: Protocol::Udp, address },
        Place::Mark { mark, ipv6 } => ServiceKey::Mark { mark, ipv6 },
    }
}

fn service(place: &Place, direct: &Direct, back: &Proxy, servers: &[(&Server, Standing)]) -> Service {
    let usable =
        |backup: bool| servers.iter().any(|(server, how)| server.backup == backup && how.takes && how.weight > 0);
    // Backups take over when nobody else is left: the first one, or all of them.
    let use_backups = !usable(false) && usable(true);
    let first_backup = servers.iter().position(|(server, how)| server.backup && how.takes && how.weight > 0);
    let ramps = knows_shares(direct);
    let starts = ramps && servers.iter().any(|(_, how)| how.takes && how.throttle.is_some());
    let scale = if starts { SCALE } else { 1 };
    let mut destinations: Vec<Destination> = Vec::with_capacity(servers.len());
    let mut addresses = HashSet::with_capacity(servers.len());
    for (at, (server, how)) in servers.iter().enumerate() {
        let Some(address) = address(server, place) else { continue };
        let has_turn = match server.backup {
            false => true,
            true => use_backups && (back.tcp.all_backups || first_backup == Some(at)),
        };
        if is_removed(direct, server, how, has_turn) {
            continue;
        }
        let weight = match how.takes && has_turn {
            false => 0,
            true => weight(how, ramps, scale),
        };
        if !addresses.insert(address) {
            continue;
        }
        let (upper, lower) = (server.maxconn, server.minconn);
        // Without `minconn`, or where both are the same, the kernel has a threshold of its own.
        let lower = if lower >= upper { 0 } else { lower };
        destinations.push(Destination { address, forwarding: forwarding(server.forwarding), weight, upper, lower });
    }
    Service {
        key: key(place),
        scheduler: scheduler(direct.scheduler),
        hash_port: direct.hash_port,
        fallback: direct.fallback || direct.scheduler == baton_model::Scheduler::Source,
        persistence: direct.persistence.map(|stick| Persistence {
            timeout: stick.expire,
            prefix: if place.is_ipv6() { stick.prefix6 } else { stick.prefix },
        }),
        one_packet: false,
        destinations,
    }
}

fn weight(how: &Standing, ramps: bool, scale: u32) -> u32 {
    let full = how.weight * scale;
    match how.throttle {
        Some(percent) if ramps && how.weight > 0 => (full * percent.min(100) / 100).max(1),
        Some(_) | None => full,
    }
}

/// Whether a server's weight is its share, so that less of it means fewer connections.
fn knows_shares(direct: &Direct) -> bool {
    use baton_model::Scheduler;
    match direct.scheduler {
        Scheduler::RoundRobin
        | Scheduler::LeastConn
        | Scheduler::ShortestDelay
        | Scheduler::NeverQueue
        | Scheduler::Locality
        | Scheduler::LocalityReplicated
        | Scheduler::Random => true,
        Scheduler::Source | Scheduler::Maglev | Scheduler::Destination | Scheduler::Failover | Scheduler::Overflow => {
            false
        }
    }
}

/// Whether the server is left out of the service; the head of this file has the table.
fn is_removed(direct: &Direct, server: &Server, how: &Standing, has_turn: bool) -> bool {
    let never_gets_any = !how.runs || !has_turn || server.weight == 0 && how.weight == 0;
    match direct.scheduler {
        baton_model::Scheduler::Destination => never_gets_any,
        _ => !how.runs && server.check.on_marked_down == MarkedDown::ShutdownSessions,
    }
}

/// Where packets of a place go for this server; `None` as long as nobody knows its address.
pub fn address(server: &Server, place: &Place) -> Option<SocketAddr> {
    let Some(Address::Inet(address)) = server.address.fixed() else { return None };
    let service = place.address().map_or(0, |address| address.port());
    let port = match server.forwarding {
        Forwarding::Masquerade if address.port() > 0 => address.port(),
        Forwarding::Masquerade | Forwarding::Direct | Forwarding::Tunnel(_) => service,
    };
    Some((address.ip(), port).into())
}

fn forwarding(forwarding: Forwarding) -> baton_direct::Forwarding {
    use baton_model::Tunnel as Asked;
    match forwarding {
        Forwarding::Direct => baton_direct::Forwarding::Direct,
        Forwarding::Masquerade => baton_direct::Forwarding::Masquerade,
        Forwarding::Tunnel(Asked::IpIp) => baton_direct::Forwarding::Tunnel(Tunnel::IpIp),
        Forwarding::Tunnel(Asked::Gue(port)) => baton_direct::Forwarding::Tunnel(Tunnel::Gue(port)),
        Forwarding::Tunnel(Asked::Gre) => baton_direct::Forwarding::Tunnel(Tunnel::Gre),
    }
}

fn scheduler(scheduler: baton_model::Scheduler) -> Scheduler {
    use baton_model::Scheduler as Asked;
    match scheduler {
        Asked::RoundRobin => Scheduler::RoundRobin,
        Asked::LeastConn => Scheduler::LeastConn,
        Asked::Source => Scheduler::Source,
        Asked::Maglev => Scheduler::Maglev,
        Asked::Destination => Scheduler::Destination,
        Asked::ShortestDelay => Scheduler::ShortestDelay,
        Asked::NeverQueue => Scheduler::NeverQueue,
        Asked::Locality => Scheduler::Locality,
        Asked::LocalityReplicated => Scheduler::LocalityReplicated,
        Asked::Failover => Scheduler::Failover,
        Asked::Overflow => Scheduler::Overflow,
        Asked::Random => Scheduler::TwoRandom,
    }
}

/// What is asked of the kernel besides services.
pub fn settings(model: &Model) -> DirectorSettings {
    let ipvs = &model.global.ipvs;
    let sync = |asked: &Option<baton_model::Sync>| {
        asked.as_ref().map(|sync| SyncDaemon { interface: sync.interface.clone(), id: sync.id })
    };
    let mut settings = DirectorSettings {
        timeouts: Timeouts { tcp: ipvs.timeout_tcp, tcp_fin: ipvs.timeout_tcpfin, udp: ipvs.timeout_udp },
        expire_nodest_conn: ipvs.expire_nodest_conn,
        sloppy_tcp: ipvs.sloppy_tcp,
        expire_quiescent_template: ipvs.expire_quiescent_template,
        is_persistent: pairs(model)
            .any(|(_, back)| back.direct.as_ref().is_some_and(|back| back.persistence.is_some())),
        sync_master: sync(&ipvs.sync_master),
        sync_backup: sync(&ipvs.sync_backup),
        ..DirectorSettings::default()
    };
    let named = pairs(model).flat_map(|(front, _)| front.places()).filter_map(|bind| bind.interface.clone());
    let mut interfaces: Vec<String> = named.collect();
    interfaces.sort();
    interfaces.dedup();
    settings.xdp.interfaces = interfaces;
    settings.xdp.connections = model.global.xdp_connections;
    settings.xdp.place = match engine_asked(model) {
        EngineChoice::Xdp(XdpWhere::Driver) => XdpHook::Driver,
        EngineChoice::Xdp(XdpWhere::Stack) => XdpHook::Stack,
        EngineChoice::Xdp(XdpWhere::Best) | EngineChoice::Ipvs | EngineChoice::Auto => XdpHook::Best,
    };
    settings
}

/// Which engine is asked for.
pub fn engine(model: &Model) -> baton_direct::EngineChoice {
    match engine_asked(model) {
        EngineChoice::Ipvs => baton_direct::EngineChoice::Ipvs,
        EngineChoice::Xdp(_) => baton_direct::EngineChoice::Xdp,
        EngineChoice::Auto => baton_direct::EngineChoice::Auto,
    }
}

/// All sections that name one name the same.
fn engine_asked(model: &Model) -> EngineChoice {
    let asked = pairs(model).filter_map(|(front, _)| front.direct.as_ref()).map(|direct| direct.engine);
    asked.filter(|engine| *engine != EngineChoice::Auto).last().unwrap_or_default()
}

/// A virtual address that is to be on an interface of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Managed {
    /// The address.
    pub address: std::net::IpAddr,
    /// The interface; `None` is the one towards this server.
    pub interface: Result<String, std::net::IpAddr>,
    /// Bits of its network.
    pub prefix: u8,
}

/// `manage-vip`: the addresses, each once.
pub fn managed(model: &Model) -> Vec<Managed> {
    let mut all = BTreeMap::new();
    for (front, back) in pairs(model) {
        let Some(asked) = front.direct.as_ref().and_then(|direct| direct.manage_vip.as_ref()) else { continue };
        for address in front.places().iter().filter_map(|bind| bind.place.address()).map(|address| address.ip()) {
            let towards = back.servers.iter().find_map(|server| match server.address.fixed() {
                Some(Address::Inet(server)) if server.is_ipv4() == address.is_ipv4() => Some(server.ip()),
                _ => None,
            });
            let interface = match (&asked.interface, towards) {
                (Some(name), _) => Ok(name.clone()),
                (None, Some(server)) => Err(server),
                // Nobody to ask the way to: the address of the service itself leads to its network.
                (None, None) => Err(address),
            };
            let prefix = asked.prefix.unwrap_or(if address.is_ipv4() { 32 } else { 128 });
            all.entry(address).or_insert(Managed { address, interface, prefix });
        }
    }
    all.into_values().collect()
}

/// Addresses that something listens on, in whichever mode: one that is here by `manage-vip` is not taken from under it.
pub fn listened(model: &Model) -> BTreeSet<std::net::IpAddr> {
    let on = model.proxies.iter().filter(|proxy| !proxy.disabled);
    on.flat_map(|proxy| {
        let binds = proxy.binds.iter().filter(|bind| bind.options.namespace.is_none());
        let binds = binds.filter_map(|bind| match &bind.address {
            Address::Inet(address) => Some(address.ip()),
            _ => None,
        });
        binds.chain(proxy.places().iter().filter_map(|bind| Some(bind.place.address()?.ip())))
    })
    .collect()
}

/// Sections whose services stay at the end; the others' go.
pub fn kept_at_exit(model: &Model) -> BTreeSet<ServiceKey> {
    let keeps = |front: &Proxy| front.direct.as_ref().is_some_and(|direct| direct.on_exit == baton_model::OnExit::Keep);
    let fronts = pairs(model).filter(|(front, _)| keeps(front));
    fronts.flat_map(|(front, _)| front.places()).map(|bind| key(&bind.place)).collect()
}

#[cfg(test)]
mod tests;
