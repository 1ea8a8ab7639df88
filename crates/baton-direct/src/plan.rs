//! Desired less observed: the steps that make the kernel what is asked for, and not one more.
//!
//! Pure: it asks nobody and changes nothing. What did not change has no step, so its connections and counters live on. Services
//! that are neither asked for nor recorded as ours have no step either.
//!
//! The order is what is safe at every moment between two steps: other settings of a service first, then what is added, what
//! gets more weight, what gets less, and what goes last; so a service that has somebody to send to keeps somebody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;

use crate::{Destination, Figures, Forwarding, KernelChange, Observed, Persistence, Service, ServiceKey, Tune, Tunnel};

/// What would be done. Printed, it is a line for each of its sentences, none when nothing is to be done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Settings of the whole network namespace.
    pub tunes: Vec<Tune>,
    /// Steps, in their order.
    pub steps: Vec<Planned>,
    /// Services that somebody else put there and that become ours.
    pub taken_over: Vec<ServiceKey>,
    /// What is left out, because it cannot be done.
    pub refused: Vec<Refused>,
    /// What else the operator should know, one sentence each.
    pub remarks: Vec<String>,
    /// What else disturbs connections, one sentence each.
    pub warnings: Vec<String>,
    /// What the record has, and neither the kernel nor anybody's wish.
    pub(crate) gone: BTreeSet<ServiceKey>,
    /// What is there now of services that are asked for.
    pub(crate) there: ExistingServices,
}

/// A step with its sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The step.
    pub step: KernelChange,
    /// What it does, and to what it was before.
    pub sentence: String,
}

/// Services that are in the kernel, with the addresses of their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ExistingServices(BTreeMap<ServiceKey, BTreeSet<SocketAddr>>);

impl ExistingServices {
    /// What a step that was taken makes of it.
    pub(crate) fn take(&mut self, step: &KernelChange) {
        match step {
            KernelChange::AddService(service) => drop(self.0.insert(service.key, BTreeSet::new())),
            KernelChange::AddDestination(key, server) => {
                self.0.entry(*key).or_default().insert(server.address);
            }
            KernelChange::RemoveDestination(key, address) => {
                self.0.entry(*key).or_default().remove(address);
            }
            KernelChange::RemoveService(key) => drop(self.0.remove(key)),
            KernelChange::EditService(_) | KernelChange::EditDestination(..) => {}
        }
    }

    /// Whether any of it is not among what was counted.
    pub(crate) fn lacks(&self, figures: &[Figures]) -> bool {
        self.0.iter().any(|(key, servers)| {
            figures.iter().find(|service| service.key == *key).is_none_or(|service| {
                let counted: BTreeSet<SocketAddr> = service.destinations.iter().map(|server| server.address).collect();
                !servers.is_subset(&counted)
            })
        })
    }
}

/// Something that cannot be done, and why. What was there of it stays as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Such as `service tcp 192.168.121.2:80`.
    pub what: String,
    /// A sentence.
    pub why: String,
}

/// What is known of whose services are whose.
#[derive(Clone, Debug, Default)]
pub struct Owners {
    /// Ours, by our record.
    pub ours: BTreeSet<ServiceKey>,
    /// Other records' services, with the names of their owners.
    pub others: BTreeMap<ServiceKey, String>,
}

impl Plan {
    /// Whether the kernel is as it is asked for.
    pub fn is_empty(&self) -> bool {
        self.tunes.is_empty() && self.steps.is_empty()
    }

    /// The steps that lead from `observed` to `desired`. `judge` says what the engine cannot do of a service, `removal` what happens
    /// to the connections of what goes.
    pub fn new(
        observed: &[Observed],
        desired: &[Service],
        owners: &Owners,
        judge: impl Fn(&Service) -> Vec<String>,
        removal: &str,
    ) -> Plan {
        let mut plan = Plan::default();
        let there: BTreeMap<ServiceKey, &Observed> = observed.iter().map(|found| (found.service.key, found)).collect();
        let mut wanted = BTreeSet::new();
        for service in desired {
            let what = || format!("service {}", service.key);
            let mut reasons: Vec<String> = Vec::new();
            if !wanted.insert(service.key) {
                reasons.push("it is configured twice".into());
            }
            if let Some(owner) = owners.others.get(&service.key) {
                reasons.push(format!("it belongs to `{owner}`, which has it in its record"));
            }
            reasons.extend(twice(&service.destinations));
            reasons.extend(judge(service));
            if !reasons.is_empty() {
                plan.refused.extend(reasons.into_iter().map(|why| Refused { what: what(), why }));
                continue;
            }
            match there.get(&service.key) {
                None => plan.add(service),
                Some(found) => {
                    let servers = found.service.destinations.iter().map(|server| server.address);
                    plan.there.0.insert(service.key, servers.collect());
                    if !owners.ours.contains(&service.key) {
                        plan.taken_over.push(service.key);
                    }
                    plan.change(found, service, removal);
                }
            }
        }
        for key in there.keys().filter(|key| owners.ours.contains(key) && !wanted.contains(key)) {
            plan.push(KernelChange::RemoveService(*key), format!("remove service {key}: {removal}"));
        }
        let is_gone = |key: &&ServiceKey| !there.contains_key(key) && !wanted.contains(key);
        plan.gone = owners.ours.iter().filter(is_gone).copied().collect();
        plan
    }

    fn push(&mut self, step: KernelChange, sentence: String) {
        self.steps.push(Planned { step, sentence });
    }

    fn add(&mut self, service: &Service) {
        let empty = Service { destinations: Vec::new(), ..service.clone() };
        self.push(KernelChange::AddService(empty), format!("add service {}: {}", service.key, settings(service)));
        for destination in &service.destinations {
            self.add_destination(service.key, destination);
        }
    }

    fn add_destination(&mut self, key: ServiceKey, destination: &Destination) {
        let sentence = format!("add server {} to {key}: {}", destination.address, share(destination));
        self.push(KernelChange::AddDestination(key, destination.clone()), sentence);
    }

    fn change(&mut self, found: &Observed, service: &Service, removal: &str) {
        let key = service.key;
        let (old, new) = (settings(&found.service), settings(service));
        let is_beyond = !found.beyond.is_empty();
        if is_beyond || !is_alike(&found.service, service) {
            let old = if is_beyond { found.beyond.join(", ") } else { old };
            let empty = Service { destinations: Vec::new(), ..service.clone() };
            self.push(KernelChange::EditService(empty), format!("change service {key}: {new}, until now {old}"));
        }
        let old: BTreeMap<SocketAddr, &Destination> =
            found.service.destinations.iter().map(|destination| (destination.address, destination)).collect();
        let mut less = Vec::new();
        let mut more = Vec::new();
        for destination in &service.destinations {
            match old.get(&destination.address) {
                None => self.add_destination(key, destination),
                Some(before) if *before == destination && !is_beyond => {}
                Some(before) if destination.weight < before.weight => less.push((*before, destination)),
                Some(before) => more.push((*before, destination)),
            }
        }
        for (before, destination) in more.into_iter().chain(less) {
            let (old, new) = (share(before), share(destination));
            let sentence = format!("change server {} of {key}: {new}, until now {old}", destination.address);
            self.push(KernelChange::EditDestination(key, destination.clone()), sentence);
        }
        let kept: BTreeSet<SocketAddr> = service.destinations.iter().map(|destination| destination.address).collect();
        for address in old.keys().filter(|address| !kept.contains(address)) {
            let sentence = format!("remove server {address} of {key}: {removal}");
            self.push(KernelChange::RemoveDestination(key, *address), sentence);
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for refused in &self.refused {
            writeln!(f, "skip {}: {}", refused.what, refused.why)?;
        }
        for key in &self.taken_over {
            writeln!(f, "take over service {key}, which exists in the kernel without a record")?;
        }
        for tune in &self.tunes {
            writeln!(f, "{tune}")?;
        }
        for planned in &self.steps {
            writeln!(f, "{}", planned.sentence)?;
        }
        self.warnings.iter().try_for_each(|warning| writeln!(f, "{warning}"))?;
        self.remarks.iter().try_for_each(|remark| writeln!(f, "{remark}"))
    }
}

/// Whether two services differ in nothing but their destinations.
fn is_alike(one: &Service, other: &Service) -> bool {
    let of = |service: &Service| {
        (service.scheduler, service.hash_port, service.fallback, service.persistence, service.one_packet)
    };
    of(one) == of(other)
}

fn twice(destinations: &[Destination]) -> Option<String> {
    let mut seen = BTreeSet::new();
    let again = destinations.iter().find(|destination| !seen.insert(destination.address))?;
    Some(format!("it has the server {} twice", again.address))
}

/// The settings of a service, without its destinations, in words.
fn settings(service: &Service) -> String {
    let mut words = service.scheduler.word().to_owned();
    for (is_set, word) in [
        (service.hash_port, " with hash-port"),
        (service.fallback, " with fallback"),
        (service.one_packet, ", one-packet scheduling"),
    ] {
        if is_set {
            words += word;
        }
    }
    if let Some(Persistence { timeout, prefix }) = service.persistence {
        words += &format!(", clients of a /{prefix} persistent for {}s", timeout.as_secs());
    }
    words
}

/// The settings of a destination in words.
fn share(destination: &Destination) -> String {
    let mut words = format!("{}, weight {}", destination.forwarding, destination.weight);
    if destination.upper > 0 {
        words += &format!(", at most {} connections", destination.upper);
    }
    if destination.lower > 0 {
        words += &format!(", again below {}", destination.lower);
    }
    words
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Forwarding::Direct => f.write_str("direct"),
            Forwarding::Tunnel(Tunnel::IpIp) => f.write_str("tunnel ipip"),
            Forwarding::Tunnel(Tunnel::Gue(port)) => write!(f, "tunnel gue:{port}"),
            Forwarding::Tunnel(Tunnel::Gre) => f.write_str("tunnel gre"),
            Forwarding::Masquerade => f.write_str("masquerade"),
        }
    }
}

#[cfg(test)]
mod tests;
