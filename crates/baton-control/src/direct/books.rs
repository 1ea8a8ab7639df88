//! What the kernel counted, in the figures of frontends, backends and servers.
//!
//! The kernel's counters only grow as long as a service or a server is in it, and outlive us. What they grew by is added to the
//! figures, which go over to another process by name. The first look of a process adds only what the figures do not have yet: after a
//! crash everything, after a handover what was counted in between.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use baton_direct::{Counters, Figures, ServiceKey};
use baton_model::Model;
use baton_proxy::{Counter, CounterBlock, Generation};

use super::lower::{address, key, pairs};

/// What was seen last.
#[derive(Debug, Default)]
pub struct Books {
    seen: HashMap<(ServiceKey, Option<SocketAddr>), Counters>,
    has_begun: bool,
}

/// What one object has to its account in one look.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    /// In the kernel's counters.
    total: Counters,
    /// What they grew by.
    grown: Counters,
    /// Connections that are open.
    active: u32,
}

impl Sum {
    fn add(&mut self, total: &Counters, grown: &Counters, active: u32) {
        for (sum, more) in [(&mut self.total, total), (&mut self.grown, grown)] {
            sum.connections += more.connections;
            sum.bytes_in += more.bytes_in;
            sum.bytes_out += more.bytes_out;
        }
        self.active += active;
    }

    /// What is to be added to figures that have `already`.
    fn news(&self, is_first: bool, already: &CounterBlock, sessions: Counter) -> Counters {
        if !is_first {
            return self.grown;
        }
        let missing = |total: u64, counter| total.saturating_sub(already.total(counter));
        Counters {
            connections: missing(self.total.connections, sessions),
            bytes_in: missing(self.total.bytes_in, Counter::BytesIn),
            bytes_out: missing(self.total.bytes_out, Counter::BytesOut),
            ..Counters::default()
        }
    }
}

impl Books {
    /// Enters what the kernel counted.
    pub fn enter(&mut self, figures: &[Figures], model: &Model, generation: &Generation) {
        let is_first = !std::mem::replace(&mut self.has_begun, true);
        let by_key: HashMap<ServiceKey, &Figures> = figures.iter().map(|found| (found.key, found)).collect();
        let mut fronts: HashMap<&str, Sum> = HashMap::new();
        let mut backs: HashMap<&str, Sum> = HashMap::new();
        let mut servers: HashMap<(&str, &str), Sum> = HashMap::new();
        for (front, back) in pairs(model) {
            // A place is zero for who has it, also as long as the kernel does not.
            let (front_sum, back_sum) = (fronts.entry(&front.name).or_default(), backs.entry(&back.name).or_default());
            for bind in front.places() {
                let Some(found) = by_key.get(&key(&bind.place)) else { continue };
                let grown = self.grown(found.key, None, &found.counters);
                let active = found.destinations.iter().map(|one| one.active).sum();
                front_sum.add(&found.counters, &grown, active);
                back_sum.add(&found.counters, &grown, active);
                let by_address: HashMap<SocketAddr, _> =
                    found.destinations.iter().map(|one| (one.address, one)).collect();
                for server in &back.servers {
                    let sum = servers.entry((&back.name, &server.name)).or_default();
                    let Some(one) = address(server, &bind.place).and_then(|place| by_address.get(&place)) else {
                        continue;
                    };
                    let grown = self.grown(found.key, Some(one.address), &one.counters);
                    sum.add(&one.counters, &grown, one.active);
                }
            }
        }
        self.forget(figures);
        for plan in &generation.frontends {
            let Some(sum) = fronts.get(&*plan.proxy.name) else { continue };
            let news = sum.news(is_first, &plan.state.counters, Counter::Connections);
            add(&plan.state.counters, &[Counter::Connections, Counter::Sessions], &news);
            plan.state.open.store(sum.active.into(), Ordering::Relaxed);
            plan.state.open_max.fetch_max(sum.active.into(), Ordering::Relaxed);
        }
        for plan in generation.backends.values() {
            let Some(sum) = backs.get(&*plan.proxy.name) else { continue };
            let news = sum.news(is_first, &plan.figures.counters, Counter::Sessions);
            add(&plan.figures.counters, &[Counter::Sessions, Counter::Chosen], &news);
            plan.figures.open.store(sum.active.into(), Ordering::Relaxed);
            plan.figures.open_max.fetch_max(sum.active.into(), Ordering::Relaxed);
            for state in plan.state.servers() {
                let (Some(sum), Some(server)) =
                    (servers.get(&(&*plan.proxy.name, &**state.name())), plan.servers.get(state.name()))
                else {
                    continue;
                };
                let news = sum.news(is_first, &server.counters, Counter::Sessions);
                add(&server.counters, &[Counter::Sessions, Counter::Chosen], &news);
                state.set_served_by_kernel(sum.active);
            }
        }
    }

    /// What a counter grew by since the last look; all of it, where it began anew.
    fn grown(&mut self, key: ServiceKey, address: Option<SocketAddr>, now: &Counters) -> Counters {
        let before = self.seen.insert((key, address), *now).unwrap_or_default();
        let since = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Counters {
            connections: since(now.connections, before.connections),
            packets_in: since(now.packets_in, before.packets_in),
            packets_out: since(now.packets_out, before.packets_out),
            bytes_in: since(now.bytes_in, before.bytes_in),
            bytes_out: since(now.bytes_out, before.bytes_out),
        }
    }

    /// What is not in the kernel any more begins anew when it comes back.
    fn forget(&mut self, figures: &[Figures]) {
        let mut there = BTreeSet::new();
        for found in figures {
            there.insert((found.key, None));
            there.extend(found.destinations.iter().map(|one| (found.key, Some(one.address))));
        }
        self.seen.retain(|known, _| there.contains(known));
    }
}

fn add(block: &CounterBlock, sessions: &[Counter], news: &Counters) {
    for counter in sessions {
        block.inherit(*counter, news.connections);
    }
    block.inherit(Counter::BytesIn, news.bytes_in);
    block.inherit(Counter::BytesOut, news.bytes_out);
}

#[cfg(test)]
mod tests;
