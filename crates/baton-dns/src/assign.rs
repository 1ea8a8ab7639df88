//! Which server of a backend gets which address. A server keeps what it has as long as DNS has it, so that a name whose addresses come in another
//! order, or that has one more or one less, moves no other server.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;

use baton_model::{DiscoveredService, Resolution};

use crate::lookup::{Failure, View};

/// What a server has by DNS, or had at the start.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Known {
    /// Its address.
    pub address: Option<IpAddr>,
    /// Host and port by an SRV record.
    pub service: Option<DiscoveredService>,
    /// The weight of the last SRV record that was for it.
    pub weight: Option<u32>,
}

/// A server that has something else than before.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ServerChange {
    /// The backend.
    pub backend: Arc<str>,
    /// The server.
    pub server: Arc<str>,
    /// The section that was asked.
    pub resolvers: Arc<str>,
    /// The name that was asked for.
    pub name: Arc<str>,
    /// As it was.
    pub before: Known,
    /// As it is.
    pub after: Known,
    /// Why.
    pub cause: Cause,
}

/// What changed a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The response of this name server.
    Response(Arc<str>),
    /// What was known already: another server has what the response said first.
    Cache,
    /// An additional record of the SRV response.
    Additional,
    /// Nothing is left for it.
    Lost(LossReason),
}

/// Why nothing is left for a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LossReason {
    /// The look-up failed.
    Failed(Failure),
    /// Other servers have all addresses of the name.
    NoAddress,
    /// The SRV record is gone.
    NoService,
}

impl LossReason {
    /// HAProxy's words.
    pub fn text(self) -> &'static str {
        match self {
            LossReason::Failed(Failure::Nx) => "DNS NX status",
            LossReason::Failed(Failure::Refused) => "DNS refused status",
            LossReason::Failed(Failure::Timeout) => "DNS timeout status",
            LossReason::Failed(Failure::Other) => "unspecified DNS error",
            LossReason::NoAddress => "No IP for server ",
            LossReason::NoService => "entry removed from SRV record",
        }
    }
}

/// A server, of those that one name is looked up for.
pub(crate) struct Seat<'s> {
    pub resolution: &'s Resolution,
    pub prefers_v6: bool,
    pub known: Known,
}

/// What a seat has from now on; `None`: what it has.
pub(crate) type Seated = Option<(Known, Why)>;

/// Where that is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    Looked,
    Additional,
    Lost(LossReason),
}

/// Gives addresses of a name to the servers that have it, which share a port.
pub(crate) fn addresses(seats: &[Seat<'_>], view: &View<'_>) -> Vec<Seated> {
    let found = match view {
        View::Unknown | View::Services(_) => return seats.iter().map(|_| None).collect(),
        View::Failed(failure) => {
            let lose = |seat: &Seat<'_>| {
                let lost = Known { address: None, ..seat.known.clone() };
                seat.known.address.is_some().then_some((lost, Why::Lost(LossReason::Failed(*failure))))
            };
            return seats.iter().map(lose).collect();
        }
        View::Addresses(found) => found,
    };
    let is_found: HashSet<IpAddr> = found.iter().copied().collect();
    let mut used: HashSet<IpAddr> = HashSet::new();
    let mut order = Order::default();
    let mut keeps = Vec::with_capacity(seats.len());
    for seat in seats {
        let own = seat.known.address.filter(|own| is_found.contains(own));
        let is_best =
            own.is_some_and(|own| order.of(seat, found).first().is_some_and(|best| ranks_same(seat, *best, own)));
        // Two that were resolved at the start may have begun with the same one.
        keeps.push(is_best && own.is_some_and(|own| used.insert(own) || seat.resolution.may_share));
    }
    let mut seated = Vec::with_capacity(seats.len());
    for (seat, keeps) in seats.iter().zip(keeps) {
        if keeps {
            seated.push(None);
            continue;
        }
        let own = seat.known.address.filter(|own| is_found.contains(own));
        let free = order.next_free(seat, found, &used);
        let free =
            free.map(|free| own.filter(|own| !used.contains(own) && ranks_same(seat, *own, free)).unwrap_or(free));
        let address = match free {
            None if seat.resolution.may_share => own.or_else(|| order.of(seat, found).first().copied()),
            free => free,
        };
        used.extend(address);
        seated.push(match address {
            address if address == seat.known.address => None,
            Some(_) => Some((Known { address, ..seat.known.clone() }, Why::Looked)),
            None => Some((Known { address, ..seat.known.clone() }, Why::Lost(LossReason::NoAddress))),
        });
    }
    seated
}

/// Addresses in the order in which a server wants them: mostly the same one for all servers of a name.
#[derive(Default)]
struct Order {
    sorted: Vec<IpAddr>,
    of: Option<(bool, Vec<(IpAddr, u8)>)>,
    /// Those before it are in use.
    next: usize,
}

impl Order {
    fn of(&mut self, seat: &Seat<'_>, found: &[IpAddr]) -> &[IpAddr] {
        let is_same = self.of.as_ref().is_some_and(|(prefers_v6, networks)| {
            *prefers_v6 == seat.prefers_v6 && *networks == seat.resolution.networks
        });
        if !is_same {
            self.of = Some((seat.prefers_v6, seat.resolution.networks.clone()));
            self.next = 0;
            self.sorted = found.to_vec();
            self.sorted.sort_by_key(|address| std::cmp::Reverse(rank(seat, *address)));
        }
        &self.sorted
    }

    fn next_free(&mut self, seat: &Seat<'_>, found: &[IpAddr], used: &HashSet<IpAddr>) -> Option<IpAddr> {
        self.of(seat, found);
        while self.sorted.get(self.next).is_some_and(|address| used.contains(address)) {
            self.next += 1;
        }
        self.sorted.get(self.next).copied()
    }
}

/// The address of a host for a server that has this one.
fn preferred(seat: &Seat<'_>, found: &[IpAddr], own: Option<IpAddr>) -> Option<IpAddr> {
    let best =
        found.iter().copied().reduce(|best, other| if rank(seat, other) > rank(seat, best) { other } else { best })?;
    Some(own.filter(|own| found.contains(own) && ranks_same(seat, *own, best)).unwrap_or(best))
}

fn ranks_same(seat: &Seat<'_>, one: IpAddr, other: IpAddr) -> bool {
    rank(seat, one) == rank(seat, other)
}

/// How much better an address is than another one.
fn rank(seat: &Seat<'_>, address: IpAddr) -> (bool, bool) {
    (address.is_ipv6() == seat.prefers_v6, seat.resolution.is_near(address))
}

/// Gives services to the servers of one SRV name; `host` is what is known of a host without additional records.
pub(crate) fn services<'v>(
    seats: &[Seat<'_>],
    view: &View<'_>,
    host: impl Fn(&str, &Seat<'_>) -> View<'v>,
) -> Vec<Seated> {
    let none = Vec::new();
    let found = match view {
        View::Unknown | View::Addresses(_) => return seats.iter().map(|_| None).collect(),
        View::Failed(_) => &none,
        View::Services(found) => found,
    };
    let at: HashMap<&DiscoveredService, usize> = found.iter().enumerate().map(|(at, one)| (one.0, at)).collect();
    let mut given: Vec<Option<usize>> = Vec::with_capacity(seats.len());
    let mut taken = vec![false; found.len()];
    for seat in seats {
        let own = seat.known.service.as_ref().and_then(|service| at.get(service)).copied();
        let own = own.filter(|at| !std::mem::replace(&mut taken[*at], true));
        given.push(own);
    }
    let mut left = (0..found.len()).filter(|at| !taken[*at]).collect::<Vec<_>>().into_iter();
    let mut seated = Vec::with_capacity(seats.len());
    for (seat, own) in seats.iter().zip(given) {
        let Some(at) = own.or_else(|| left.next()) else {
            let is_empty = seat.known.service.is_none() && seat.known.address.is_none();
            let gone = Known { address: None, service: None, weight: seat.known.weight };
            seated.push((!is_empty).then_some((gone, Why::Lost(LossReason::NoService))));
            continue;
        };
        let (service, weight, additional) = &found[at];
        let before = seat.known.address.filter(|_| own.is_some());
        let (address, why) = match additional {
            [_, ..] => (preferred(seat, additional, before), Why::Additional),
            [] => match host(&service.host, seat) {
                View::Addresses(found) => (preferred(seat, &found, before), Why::Looked),
                View::Failed(failure) => (None, Why::Lost(LossReason::Failed(failure))),
                View::Unknown | View::Services(_) => (before, Why::Looked),
            },
        };
        let next = Known { address, service: Some((*service).clone()), weight: Some(*weight) };
        seated.push((next != seat.known).then_some((next, why)));
    }
    seated
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn known(text: &str) -> Known {
        Known { address: (text != "-").then(|| ip(text)), ..Known::default() }
    }

    /// What servers have after a response, of what they have; `change` is made to what their lines say.
    fn check_with(change: impl Fn(&mut Resolution), before: &str, found: &str, expect: &str) {
        let mut resolution = Resolution::new("r");
        change(&mut resolution);
        let seat = |text: &str| Seat { resolution: &resolution, prefers_v6: false, known: known(text) };
        let seats: Vec<_> = before.split(' ').map(seat).collect();
        let found = found.split_ascii_whitespace().map(ip).collect();
        let seated = addresses(&seats, &View::Addresses(found));
        let after = seated.iter().zip(&seats).map(|(seated, seat)| {
            let known = seated.as_ref().map_or(&seat.known, |(known, _)| known);
            known.address.map_or("-".to_owned(), |address| address.to_string())
        });
        assert_eq!(after.collect::<Vec<_>>().join(" "), expect, "{before}");
    }

    fn check(before: &str, found: &str, expect: &str) {
        check_with(|_| {}, before, found, expect);
    }

    #[test]
    fn who_has_an_address_keeps_it_and_others_get_what_is_free() {
        check("- - -", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2 -");
        check("10.0.0.1 10.0.0.2 -", "10.0.0.2 10.0.0.1", "10.0.0.1 10.0.0.2 -");
        check("10.0.0.1 10.0.0.2 -", "10.0.0.3 10.0.0.2", "10.0.0.3 10.0.0.2 -");
        check("- 10.0.0.2 10.0.0.1", "10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.3 10.0.0.2 10.0.0.1");
        check("10.0.0.1 10.0.0.2 10.0.0.3", "10.0.0.2", "- 10.0.0.2 -");
        // Names that were resolved at the start have the same address.
        check("10.0.0.1 10.0.0.1", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2");
        check("10.0.0.1 10.0.0.1", "10.0.0.1", "10.0.0.1 -");
        check("-", "10.0.0.1 ::1", "10.0.0.1");
        check("::1", "10.0.0.1 ::1", "10.0.0.1");
        check("- -", "10.0.0.1 ::1", "10.0.0.1 ::1");
    }

    #[test]
    fn servers_may_share_an_address_when_there_is_no_other() {
        let shared = |resolution: &mut Resolution| resolution.may_share = true;
        check_with(shared, "- -", "10.0.0.1", "10.0.0.1 10.0.0.1");
        check_with(shared, "- -", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.2");
        check_with(shared, "10.0.0.1 10.0.0.1", "10.0.0.1 10.0.0.2", "10.0.0.1 10.0.0.1");
    }

    #[test]
    fn near_networks_come_first() {
        let near = |resolution: &mut Resolution| resolution.networks = vec![(ip("10.1.0.0"), 16)];
        check_with(near, "-", "10.0.0.1 10.1.0.1", "10.1.0.1");
        check_with(near, "10.0.0.1", "10.0.0.1 10.1.0.1", "10.1.0.1");
        check_with(near, "10.0.0.1", "10.0.0.1 10.2.0.1", "10.0.0.1");
        check_with(near, "- -", "10.0.0.1 10.1.0.1", "10.1.0.1 10.0.0.1");
        check_with(near, "10.1.0.2", "10.1.0.1 10.1.0.2", "10.1.0.2");
    }

    /// Services as `host:port/weight=address`, servers as `host:port=address`.
    fn check_services(before: &str, found: &str, expect: &str) {
        let resolution = Resolution::new("r");
        let service = |text: &str| {
            let (host, port) = text.split_once(':').expect("a port");
            DiscoveredService { host: host.into(), port: port.parse().expect("a port") }
        };
        let seats: Vec<Seat<'_>> = before
            .split(' ')
            .map(|text| {
                let known = match text.split_once('=') {
                    None => Known::default(),
                    Some((place, address)) => {
                        Known { service: Some(service(place)), weight: Some(1), ..known(address) }
                    }
                };
                Seat { resolution: &resolution, prefers_v6: false, known }
            })
            .collect();
        let all: Vec<(DiscoveredService, u32, Vec<IpAddr>)> = found
            .split_ascii_whitespace()
            .map(|text| {
                let (place, address) = text.split_once('=').expect("an address");
                let (place, weight) = place.split_once('/').expect("a weight");
                let addresses = if address == "-" { Vec::new() } else { vec![ip(address)] };
                (service(place), weight.parse().expect("a weight"), addresses)
            })
            .collect();
        let view = View::Services(all.iter().map(|(service, weight, all)| (service, *weight, &all[..])).collect());
        let seated = services(&seats, &view, |host, _| match host {
            "late" => View::Unknown,
            "gone" => View::Failed(Failure::Nx),
            _ => View::Addresses(vec![ip("10.9.9.9")]),
        });
        let shown = seated.iter().zip(&seats).map(|(seated, seat)| {
            let known = seated.as_ref().map_or(&seat.known, |(known, _)| known);
            let address = known.address.map_or("-".to_owned(), |address| address.to_string());
            match &known.service {
                None => format!("-={address}"),
                Some(service) => {
                    format!("{}:{}/{}={address}", service.host, service.port, known.weight.unwrap_or_default())
                }
            }
        });
        assert_eq!(shown.collect::<Vec<_>>().join(" "), expect, "{before}");
    }

    #[test]
    fn services_fill_and_empty_servers() {
        check_services("- - -", "a:1/1=10.0.0.1 b:2/3=10.0.0.2", "a:1/1=10.0.0.1 b:2/3=10.0.0.2 -=-");
        // A server whose record is gone is free at once for another one.
        check_services("a:1=10.0.0.1 b:2=10.0.0.2", "c:3/1=10.0.0.3 b:2/1=10.0.0.2", "c:3/1=10.0.0.3 b:2/1=10.0.0.2");
        check_services("a:1=10.0.0.1 b:2=10.0.0.2", "b:2/7=10.0.0.2", "-=- b:2/7=10.0.0.2");
        check_services("a:1=10.0.0.1", "a:1/1=-", "a:1/1=10.9.9.9");
        check_services("late:1=10.0.0.1 -", "late:1/1=- late:2/1=-", "late:1/1=10.0.0.1 late:2/1=-");
        check_services("gone:1=10.0.0.1", "gone:1/1=-", "gone:1/1=-");
        check_services("a:1=10.0.0.1", "a:2/1=10.0.0.1", "a:2/1=10.0.0.1");
    }

    #[test]
    fn a_failed_look_up_takes_addresses_away() {
        let resolution = Resolution::new("r");
        let seats = [Seat { resolution: &resolution, prefers_v6: false, known: known("10.0.0.1") }];
        let seated = addresses(&seats, &View::Failed(Failure::Nx));
        assert_eq!(seated, [Some((Known::default(), Why::Lost(LossReason::Failed(Failure::Nx))))]);
        assert_eq!(addresses(&seats, &View::Unknown), [None]);
        let gone = services(&seats, &View::Failed(Failure::Timeout), |_, _| View::Unknown);
        assert_eq!(gone, [Some((Known::default(), Why::Lost(LossReason::NoService)))]);
    }
}
