//! What is wrong with a real server, seen from itself or from outside, and what helps.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use baton_kernel::route::{Address, Link, Mac, RouteKind, Routing};
use baton_kernel::state::State;
use baton_kernel::{KernelError, listeners};

use super::plan::TUNNEL;
use super::record::{ArpSuppression, RealServerRecord, Tunnels};
use super::{LOOPBACK, RUN, arp_announce, arp_ignore, filter, is_asked, is_ignoring, is_not_announcing};
use crate::probe::{self, MissingVip, ProbeMethod, ProbeResult};
use crate::station::Station;
use crate::sysctl::Sysctl;
use crate::vip::PROTOCOL;
use crate::who_has::{self, known_as, who_has};

/// How grave a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grade {
    /// As it shall be.
    Right,
    /// Worth knowing.
    Note,
    /// Clients would notice.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How grave it is.
    pub grade: Grade,
    /// What was found.
    pub what: String,
    /// A command or a sentence that helps; empty where nothing has to.
    pub remedy: String,
}

impl Finding {
    fn right(what: impl Into<String>) -> Finding {
        Finding { grade: Grade::Right, what: what.into(), remedy: String::new() }
    }

    fn note(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { grade: Grade::Note, what: what.into(), remedy: remedy.into() }
    }

    fn wrong(what: impl Into<String>, remedy: impl Into<String>) -> Finding {
        Finding { grade: Grade::Wrong, what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grade = match self.grade {
            Grade::Right => "ok",
            Grade::Note => "note",
            Grade::Wrong => "WRONG",
        };
        write!(f, "{grade}: {}", self.what)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "\n    {}", self.remedy) }
    }
}

/// Looks at this machine as a real server of these addresses. `interfaces`: those by which clients come; none is all. `ports`: on which
/// somebody shall listen (TCP). Takes no right but to read nftables, where the filter is used (CAP_NET_ADMIN).
///
/// # Errors
/// When the machine cannot be asked.
pub fn here(vips: &[IpAddr], interfaces: &[String], ports: &[u16]) -> Result<Vec<Finding>, KernelError> {
    let mut routing = Routing::open()?;
    for interface in interfaces {
        routing.link(interface)?;
    }
    let links = routing.links()?;
    let addresses = routing.addresses()?;
    let concerned = links.iter().filter(|link| is_asked(link) && link.is_up);
    let concerned: Vec<&Link> =
        concerned.filter(|link| interfaces.is_empty() || interfaces.contains(&link.name)).collect();
    let record = State::open(RUN).and_then(|state| RealServerRecord::read(&state));
    let record = record.unwrap_or_default();
    let mut findings = Vec::new();
    for vip in vips {
        let is_there = placed(*vip, &links, &addresses, &mut findings);
        match vip {
            IpAddr::V4(_) => quiet(*vip, &concerned, &record, &mut findings),
            IpAddr::V6(_) if is_there => {
                findings.push(Finding::right(format!("{vip} is IPv6: the address on {LOOPBACK} is not announced")))
            }
            IpAddr::V6(_) => {}
        }
        for port in ports {
            listens(*vip, *port, &mut findings)?;
        }
    }
    if record.up.iter().any(|up| vips.contains(&up.vip) && up.tunnel == Some(Tunnels::Ipip)) {
        tunnel(&links, &mut findings);
    }
    if vips.iter().any(IpAddr::is_ipv4) {
        reverse_path(&mut routing, &concerned, &mut findings)?;
    }
    Ok(findings)
}

/// Whether the address is on `lo`, alone, and nowhere else. Gives whether it is on `lo` or where nobody asks for it either.
fn placed(vip: IpAddr, links: &[Link], addresses: &[Address], findings: &mut Vec<Finding>) -> bool {
    let bits = if vip.is_ipv4() { 32 } else { 128 };
    let up = format!("baton real-server up --vip {vip}");
    let mut is_there = false;
    for address in addresses.iter().filter(|address| address.address == vip) {
        let Some(link) = links.iter().find(|link| link.index == address.interface) else { continue };
        let (name, prefix) = (&link.name, address.prefix);
        let remove = format!("ip address del {vip}/{prefix} dev {name}");
        if is_asked(link) {
            // Where a director runs, taking the address away would take the service away.
            let (who, remedy) = if address.protocol == PROTOCOL {
                (" and was put there by `manage-vip`", format!("correct on a director; there, run check --from {name}"))
            } else {
                ("", format!("{remove} && {up}    # on a director, where this is correct: check --from {name}"))
            };
            let what = format!("{vip} is on {name}{who}, and this machine responds to ARP for it");
            findings.push(Finding::wrong(what, remedy));
            continue;
        }
        is_there = true;
        if link.is_loopback && prefix != bits {
            let what = format!(
                "{vip} is on {name} with /{prefix}: the whole network counts as local, and responses to its clients never \
                 leave this machine"
            );
            findings.push(Finding::wrong(what, format!("{remove} && {up}")));
        } else if address.is_duplicate || address.is_tentative {
            let what =
                format!("{vip} is on {name} and not usable: duplicate address detection runs or has found a duplicate");
            findings.push(Finding::wrong(what, format!("{remove} && {up}")));
        } else if !link.is_up {
            findings
                .push(Finding::wrong(format!("{name}, which has {vip}, is down"), format!("ip link set {name} up")));
        } else {
            findings.push(Finding::right(format!("{vip}/{prefix} is on {name}")));
        }
    }
    if !is_there {
        let what = format!("{vip} is not on {LOOPBACK}: packets for it are dropped here");
        findings.push(Finding::wrong(what, up));
    }
    is_there
}

/// Whether the machine keeps quiet about it (IPv4).
fn quiet(vip: IpAddr, links: &[&Link], record: &RealServerRecord, findings: &mut Vec<Finding>) {
    let up = record.up.iter().find(|up| up.vip == vip);
    if let Some(ArpSuppression::Filter(only)) = up.map(|up| &up.quiet) {
        let table = filter::table();
        findings.push(match filter::is_there() {
            Ok(true) => Finding::right(format!("{table} of nftables suppresses ARP for {vip}")),
            Ok(false) => {
                let what = format!("{table} of nftables is missing: ARP requests for {vip} are answered");
                Finding::wrong(what, format!("baton real-server up --vip {vip} --method filter"))
            }
            Err(fault) => {
                let what =
                    format!("cannot check whether {table} of nftables suppresses ARP for {vip}: {}", fault.reason);
                Finding::note(what, "run check as root, or with CAP_NET_ADMIN")
            }
        });
        let others = links.iter().filter(|link| !only.is_empty() && !only.contains(&link.name));
        findings.extend(others.map(|link| Finding::note(format!("the filter does not cover {}", link.name), "")));
        return;
    }
    let effective = |setting: fn(&str) -> Sysctl, name: &str| {
        let value = |scope| setting(scope).number().unwrap_or_default();
        value("all").max(value(name))
    };
    for link in links {
        let name = link.name.as_str();
        let up = format!("baton real-server up --vip {vip}");
        let (ignore, announce) = (effective(arp_ignore, name), effective(arp_announce, name));
        if !is_ignoring(ignore) {
            let what = format!(
                "arp_ignore is {ignore} on {name}: ARP requests for {vip} are answered, and clients bypass the director"
            );
            let remedy = if ignore > 2 { format!("{up} --method filter") } else { up.clone() };
            findings.push(Finding::wrong(what, format!("{remedy}    # or: sysctl -w {}=1", arp_ignore(name))));
        }
        if !is_not_announcing(announce) {
            let what = format!(
                "arp_announce is {announce} on {name}: ARP requests are sent with {vip} as source, and neighbours learn it"
            );
            findings.push(Finding::wrong(what, format!("{up}    # or: sysctl -w {}=2", arp_announce(name))));
        }
        if is_ignoring(ignore) && is_not_announcing(announce) {
            findings
                .push(Finding::right(format!("{name} suppresses ARP for {vip} (arp_ignore {ignore}, arp_announce 2)")));
        }
    }
}

/// Whether packets come out of the tunnel.
fn tunnel(links: &[Link], findings: &mut Vec<Finding>) {
    let up = "baton real-server up --tunnel ipip, with the addresses";
    let strict = |scope: &str| Sysctl::ipv4(scope, "rp_filter").number().unwrap_or_default();
    match links.iter().find(|link| link.name == TUNNEL) {
        None => findings.push(Finding::wrong(format!("there is no interface {TUNNEL}"), up)),
        Some(link) if !link.is_up => findings.push(Finding::wrong(format!("interface {TUNNEL} is down"), up)),
        Some(_) if strict("all").max(strict(TUNNEL)) == 1 => {
            let what = format!("rp_filter is 1 on {TUNNEL}: decapsulated packets are dropped");
            findings.push(Finding::wrong(what, format!("sysctl -w {}=2", Sysctl::ipv4(TUNNEL, "rp_filter"))));
        }
        Some(_) => findings.push(Finding::right(format!("{TUNNEL} decapsulates packets"))),
    }
}

/// Whether somebody listens.
fn listens(vip: IpAddr, port: u16, findings: &mut Vec<Finding>) -> Result<(), KernelError> {
    let all = listeners::listening(port)
        .map_err(|fault| KernelError::netlink(format!("listeners of port {port}"), &fault))?;
    let is_for = |local: IpAddr| local == vip || local.is_unspecified() && (local.is_ipv6() || vip.is_ipv4());
    if all.iter().any(|listener| is_for(listener.local.ip())) {
        findings.push(Finding::right(format!("port {port} of {vip} has a listener")));
    } else if let Some(other) = all.first() {
        let what = format!("nothing listens on {vip} port {port}, only on {}", other.local);
        findings.push(Finding::wrong(what, format!("have the program listen on {vip} too, or on all addresses")));
    } else {
        let what = format!("nothing listens on port {port}");
        findings.push(Finding::wrong(what, format!("start the program that serves {vip}")));
    }
    Ok(())
}

/// Whether requests that come in by one interface are dropped because answers leave by another.
fn reverse_path(routing: &mut Routing, links: &[&Link], findings: &mut Vec<Finding>) -> Result<(), KernelError> {
    // Any address that is nobody's here shows the way of most answers.
    const SOMEWHERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(203, 0, 113, 1));
    let Some(way) = routing.route_to(SOMEWHERE)?.filter(|way| way.kind == RouteKind::Unicast) else { return Ok(()) };
    for link in links.iter().filter(|link| link.index != way.interface) {
        let value = |scope: &str| Sysctl::ipv4(scope, "rp_filter").number().unwrap_or_default();
        if value("all").max(value(&link.name)) == 1 {
            let other = routing.link_by_index(way.interface)?.map(|link| link.name).unwrap_or_default();
            let what = format!(
                "rp_filter is 1 on {}, and responses leave by {other}: requests that arrive on {} are dropped unless their \
                 clients are in its network",
                link.name, link.name
            );
            let remedy = format!("sysctl -w {}=2", Sysctl::ipv4(&link.name, "rp_filter"));
            findings.push(Finding::note(what, remedy));
        }
    }
    Ok(())
}

/// What to ask from outside.
#[derive(Clone, Debug)]
pub struct Outside {
    /// The virtual addresses.
    pub vips: Vec<IpAddr>,
    /// The interface to ask on.
    pub interface: String,
    /// Who may answer, such as the director: its address or hardware address. Without one, a single answer is only told.
    pub director: Option<Answerer>,
    /// Real servers whose address shall be set up.
    pub servers: Vec<IpAddr>,
    /// The service's TCP ports, for the servers; without one they are asked by an echo.
    pub ports: Vec<u16>,
    /// For how long answers are waited for, for each question.
    pub within: Duration,
}

/// A machine, by what one knows of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answerer {
    /// Its address.
    Address(IpAddr),
    /// Its hardware address.
    Mac(Mac),
}

impl std::str::FromStr for Answerer {
    type Err = String;

    fn from_str(text: &str) -> Result<Answerer, String> {
        let address = text.parse().map(Answerer::Address);
        address
            .or_else(|_| text.parse().map(Answerer::Mac))
            .map_err(|_| format!("'{text}' is neither an IP nor a MAC address"))
    }
}

/// Asks from another machine of the link: who answers for the addresses, and whether they are set up on the real servers. Takes CAP_NET_RAW.
///
/// # Errors
/// When nothing can be asked.
pub fn outside(asked: &Outside) -> Result<Vec<Finding>, KernelError> {
    let mut routing = Routing::open()?;
    let own: Vec<Address> = routing.addresses()?;
    let index = routing.link(&asked.interface)?.index;
    let mut findings = Vec::new();
    let director = match asked.director {
        Some(Answerer::Mac(mac)) => Some(mac),
        Some(Answerer::Address(address)) => {
            let found = who_has(&asked.interface, address, asked.within)?.first().copied();
            if found.is_none() {
                findings.push(Finding::wrong(
                    format!("nothing responds for {address}, the director"),
                    "check the director",
                ));
            }
            found
        }
        None => None,
    };
    // Those whose hardware address nobody has asked for lately are known to us alone.
    let station = Station::of(&mut routing, &asked.interface)?;
    let mut names = Vec::new();
    for server in &asked.servers {
        names.extend(who_has::first(&station, *server, asked.within)?.map(|mac| (mac, *server)));
    }
    for vip in &asked.vips {
        let answers = who_has(&asked.interface, *vip, asked.within)?;
        let is_ours = own.iter().any(|address| address.address == *vip && address.interface == index);
        answered(*vip, asked, &answers, director, is_ours, &names, &mut findings)?;
        for server in asked.servers.iter().filter(|server| server.is_ipv4() == vip.is_ipv4()) {
            let questions: Vec<ProbeMethod> = match &asked.ports[..] {
                [] => vec![ProbeMethod::Echo],
                some => some.iter().map(|port| ProbeMethod::Tcp(*port)).collect(),
            };
            for with in questions {
                let found = probe::probe(&probe::ProbeTarget { vip: *vip, server: *server, with }, asked.within)?;
                findings.push(on_server(*vip, *server, &asked.interface, with, found));
            }
        }
    }
    Ok(findings)
}

/// Judges what a real server answered.
fn on_server(vip: IpAddr, server: IpAddr, interface: &str, with: ProbeMethod, found: ProbeResult) -> Finding {
    let what = match with {
        ProbeMethod::Tcp(port) => format!("{vip} port {port} on {server}: {found}"),
        ProbeMethod::Echo => format!("{vip} on {server}: {found}"),
    };
    match found {
        ProbeResult::SetUp { listens: Some(false) } => {
            Finding::wrong(what, format!("on {server}: start the program that serves {vip}"))
        }
        ProbeResult::SetUp { .. } => Finding::right(what),
        ProbeResult::Missing(MissingVip::NoWay | MissingVip::Behind(_)) => {
            Finding::wrong(what, format!("it must be on a network of {interface}"))
        }
        ProbeResult::Missing(MissingVip::NotHere) => Finding::wrong(what, format!("baton real-server up --vip {vip}")),
        ProbeResult::Missing(MissingVip::NoNeighbour) => {
            Finding::wrong(what, format!("check that {server} runs and is on the network of {interface}"))
        }
        ProbeResult::Missing(MissingVip::Silent | MissingVip::Forwards) => {
            Finding::wrong(what, format!("on {server}: baton real-server up --vip {vip}"))
        }
    }
}

/// Judges who answers. `is_ours`: this machine has the address on that interface, so that nobody else may answer. `names`: real servers
/// that were asked about, none of which may.
fn answered(
    vip: IpAddr,
    asked: &Outside,
    answers: &[Mac],
    director: Option<Mac>,
    is_ours: bool,
    names: &[(Mac, IpAddr)],
    findings: &mut Vec<Finding>,
) -> Result<(), KernelError> {
    let known = known_as(&asked.interface, answers)?;
    let name = |mac: &Mac| {
        let asked = names.iter().filter(|(known, _)| known == mac).map(|(_, address)| address);
        let mut others: Vec<&IpAddr> =
            known.get(mac).into_iter().flatten().chain(asked).filter(|known| **known != vip).collect();
        others.sort_unstable();
        others.dedup();
        let others: Vec<String> = others.iter().map(ToString::to_string).collect();
        if others.is_empty() { mac.to_string() } else { format!("{mac} ({})", others.join(", ")) }
    };
    let quiet = format!("there: baton real-server up --vip {vip}");
    let is_server = |mac: &Mac| names.iter().any(|(known, _)| known == mac);
    let (right, wrong): (Vec<&Mac>, Vec<&Mac>) = answers.iter().partition(|mac| director == Some(**mac) && !is_ours);
    match (&wrong[..], &right[..]) {
        ([], []) if is_ours || director.is_none() => {
            findings.push(Finding::right(format!("no other machine responds for {vip}")))
        }
        ([], []) => {
            findings.push(Finding::wrong(format!("no machine responds for {vip}"), "the director should: check it"))
        }
        ([], _) => findings.push(Finding::right(format!("only the director responds for {vip}"))),
        ([one], []) if !is_ours && director.is_none() && !is_server(one) => findings.push(Finding::note(
            format!("only {} responds for {vip}", name(one)),
            format!("this should be the director; verify it with --director. If it is a real server, {quiet}"),
        )),
        (some, _) => findings.extend(some.iter().map(|mac| {
            Finding::wrong(format!("{} responds for {vip}, and clients bypass the director", name(mac)), quiet.clone())
        })),
    }
    Ok(())
}
