//! By nftables: one table, `baton-flip-NAME`, in which a map says where the port that clients dial leads to. A switch replaces
//! what is in the map, in one transaction: every connection sees the one or the other.
//!
//! Only the first packet of a connection is looked at, and then only one that opens it; all others follow the kernel's record of
//! the connection. So whoever is connected stays, also those who were before the table was made.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use baton_kernel::nfqueue;
use baton_kernel::nftables::{
    Chain, Element, Family, Hook, Kind as ChainKind, Nftables, Refusal, Rule, Set, Table, Transaction, Type, Verdict,
    priority,
};

use super::method::{Kind, Method, Observed, Step};
use super::{Colour, Name, Setting};
use crate::Fault;
use crate::hold::target::Target;

/// What the names of our tables begin with.
const PREFIX: &str = "baton-flip-";
/// How long to wait for others' queues to be empty: as long as `baton hold` holds, unless it is told otherwise.
const QUIET: Duration = Duration::from_secs(5);
/// The table in which it is tried whether this kernel can do what we need.
const TRIAL: &str = "baton-trial";
/// Our chains: for connections from elsewhere, and from this machine.
const CHAINS: [(&str, Hook); 2] = [("incoming", Hook::Prerouting), ("local", Hook::Output)];
/// The chain that keeps packets of other machines away from loopback addresses, as long as the kernel does not.
const GUARD: &str = "guard";
/// Before others that translate at the same place.
const BEFORE_OTHERS: i32 = priority::DSTNAT - 1;

/// See the head of this module.
#[derive(Clone, Copy, Debug)]
pub struct Nft;

/// A map, and the instances' addresses that go into it.
struct Map {
    name: &'static str,
    /// `None`: it gives a port alone, of this machine.
    family: Option<Family>,
}

const MAPS: [Map; 3] = [
    Map { name: "active4", family: Some(Family::Ipv4) },
    Map { name: "active6", family: Some(Family::Ipv6) },
    Map { name: "active", family: None },
];

impl Map {
    fn holds(&self, place: &Target) -> bool {
        match self.family {
            None => place.address.is_none(),
            Some(family) => place.address.is_some_and(|address| address.is_ipv4() == (family == Family::Ipv4)),
        }
    }

    /// Whether one of the two instances has such an address.
    fn is_used(&self, setting: &Setting) -> bool {
        setting.blue.iter().chain(&setting.green).any(|place| self.holds(place))
    }

    fn set(&self) -> Set {
        let gives = match self.family {
            Some(Family::Ipv4) => Type::Ipv4Port,
            Some(_) => Type::Ipv6Port,
            None => Type::Port,
        };
        Set::map(self.name, Type::Port, gives)
    }

    /// What is in it while this instance is active.
    fn element(&self, setting: &Setting, colour: Colour) -> Option<Element> {
        let place = setting.instance(colour).iter().find(|place| self.holds(place))?;
        let element = Element::port(setting.listen.port);
        Some(match place.address {
            Some(address) => element.to(SocketAddr::new(address, place.port)),
            None => element.to_port(place.port),
        })
    }

    /// The rule that looks into it, or one for each family.
    fn rules(&self, setting: &Setting) -> Vec<Rule> {
        let families = setting.served().into_iter().map(|v4| if v4 { Family::Ipv4 } else { Family::Ipv6 });
        let families = families.filter(|family| self.family.is_none_or(|own| own == *family));
        let rule = |family| {
            let rule = match setting.listen.address {
                Some(address) => Rule::new().destination(address),
                None => Rule::new().family(family).destination_is_local(),
            };
            let rule = rule.tcp().opens_connection();
            match self.family {
                Some(family) => rule.dnat_by_port(family, self.name),
                None => rule.redirect_by_port(self.name),
            }
        };
        families.map(rule).collect()
    }
}

fn table(name: &Name) -> Table {
    Table::inet(format!("{PREFIX}{name}"))
}

fn fault(refusal: Refusal) -> Fault {
    let remedy = refusal.remedy().unwrap_or_default();
    Fault::new(refusal.what, refusal.fault.to_string(), remedy)
}

fn guard(transaction: Transaction, table: &Table) -> Transaction {
    let chain = Chain { name: GUARD.into(), kind: ChainKind::Filter, hook: Hook::Prerouting, priority: priority::RAW };
    let loopback = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    let rules = [Rule::new().destination_net(loopback, 8), Rule::new().source_net(loopback, 8)]
        .map(|rule| rule.not_incoming("lo").verdict(Verdict::Drop));
    rules.iter().fold(transaction.chain(table, &chain), |transaction, rule| transaction.rule(table, GUARD, rule))
}

fn install(setting: &Setting, active: Colour) -> Transaction {
    let table = table(&setting.name);
    let mut transaction = Transaction::new().delete_table(&table).table(&table);
    for (name, hook) in CHAINS {
        let chain = Chain { name: name.into(), kind: ChainKind::Nat, hook, priority: BEFORE_OTHERS };
        transaction = transaction.chain(&table, &chain);
    }
    for map in MAPS.iter().filter(|map| map.is_used(setting)) {
        transaction = transaction.set(&table, &map.set());
        if let Some(element) = map.element(setting, active) {
            transaction = transaction.elements(&table, map.name, &[element]);
        }
        for (chain, _) in CHAINS {
            for rule in map.rules(setting) {
                let rule = rule.comment(&format!("blue {} green {}", places(&setting.blue), places(&setting.green)));
                transaction = transaction.rule(&table, chain, &rule);
            }
        }
    }
    if setting.needs_localnet() { guard(transaction, &table) } else { transaction }
}

fn switch(setting: &Setting, to: Colour) -> Transaction {
    let table = table(&setting.name);
    MAPS.iter().filter(|map| map.is_used(setting)).fold(Transaction::new(), |transaction, map| {
        let transaction = transaction.flush_set(&table, map.name);
        match map.element(setting, to) {
            Some(element) => transaction.elements(&table, map.name, &[element]),
            None => transaction,
        }
    })
}

/// How many rules each chain has, when all is as it was made.
fn rules(setting: &Setting) -> Vec<(String, usize)> {
    let count = MAPS.iter().filter(|map| map.is_used(setting)).map(|map| map.rules(setting).len()).sum();
    let mut chains: Vec<(String, usize)> = CHAINS.iter().map(|(name, _)| ((*name).to_owned(), count)).collect();
    if setting.needs_localnet() {
        chains.push((GUARD.to_owned(), 2));
    }
    chains
}

pub(super) fn places(places: &[Target]) -> String {
    places.iter().map(Target::to_string).collect::<Vec<_>>().join(" ")
}

impl Method for Nft {
    fn kind(&self) -> Kind {
        Kind::Nft
    }

    fn check(&self, setting: &Setting) -> Result<(), Fault> {
        // A transaction that ends in a deletion. It has no chain: the removal of one that packets enter would drop what waits in
        // queues of others.
        let trial = Table::inet(TRIAL);
        let maps = MAPS.iter().filter(|map| map.is_used(setting));
        let made = maps.fold(Transaction::new().table(&trial), |made, map| made.set(&trial, &map.set()));
        made.delete_table(&trial).commit().map_err(fault)
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, Fault> {
        let table = table(&setting.name);
        let mut nftables = Nftables::open().map_err(fault)?;
        if !nftables.has(&table).map_err(fault)? {
            return Ok(Observed::Absent);
        }
        let mut found = Vec::new();
        for map in MAPS.iter().filter(|map| map.is_used(setting)) {
            match nftables.elements(&table, map.name).map_err(fault)? {
                Some(elements) => found.push((map, elements)),
                None => return Ok(Observed::Broken(format!("{table} has no map `{}`", map.name))),
            }
        }
        if nftables.rules(&table).map_err(fault)? != rules(setting) {
            return Ok(Observed::Broken(format!("{table} has other rules than were made")));
        }
        let is_active =
            |colour| found.iter().all(|(map, elements)| elements.iter().eq(map.element(setting, colour).as_ref()));
        Ok(match Colour::BOTH.into_iter().find(|colour| is_active(*colour)) {
            Some(colour) => Observed::Active(colour),
            None => Observed::Broken(format!("{table} leads to neither of the two")),
        })
    }

    fn install(&self, setting: &Setting, active: Colour) -> Result<(), Fault> {
        // One that is there is replaced.
        nfqueue::quiet(QUIET);
        install(setting, active).commit().map_err(fault)
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), Fault> {
        switch(setting, to).commit().map_err(fault)
    }

    fn remove(&self, name: &Name) -> Result<(), Fault> {
        let table = table(name);
        let is_there = Nftables::open().and_then(|mut nftables| nftables.has(&table)).map_err(fault)?;
        // What waits in queues of others is dropped by the kernel when a chain goes that packets enter.
        nfqueue::quiet(QUIET);
        // A kernel without nftables has nothing of it, and would refuse.
        if is_there { Transaction::new().delete_table(&table).commit().map_err(fault) } else { Ok(()) }
    }

    fn names(&self) -> Result<Vec<Name>, Fault> {
        let tables = Nftables::open().and_then(|mut nftables| nftables.tables(PREFIX)).map_err(fault)?;
        Ok(tables.iter().filter_map(|table| table.name.strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    fn plan(&self, setting: &Setting, step: Step) -> Vec<String> {
        let table = table(&setting.name);
        let elements = |colour| {
            let used = MAPS.iter().filter(|map| map.is_used(setting));
            used.filter_map(|map| {
                let place = setting.instance(colour).iter().find(|place| map.holds(place))?;
                let to = match place.address {
                    Some(address) => format!("{address} . {}", place.port),
                    None => place.port.to_string(),
                };
                Some(format!(
                    "nft add element {} {} {} {{ {} : {to} }}",
                    table.family, table.name, map.name, setting.listen.port
                ))
            })
            .collect::<Vec<_>>()
        };
        match step {
            Step::Install(active) => {
                let mut lines = vec![format!("nft add table {} {}", table.family, table.name)];
                for (chain, hook) in CHAINS {
                    let hook = if hook == Hook::Output { "output" } else { "prerouting" };
                    lines.push(format!(
                        "nft add chain {} {} {chain} {{ type nat hook {hook} priority dstnat - 1; }}, with a rule for each map: \
                         the first packet of a connection to {} goes where the map says",
                        table.family, table.name, setting.listen
                    ));
                }
                if setting.needs_localnet() {
                    lines.push(format!(
                        "nft add chain {} {} {GUARD} {{ type filter hook prerouting priority raw; }}, with rules that drop what other \
                         machines send to or from 127.0.0.0/8",
                        table.family, table.name
                    ));
                }
                lines.extend(elements(active));
                lines.push("all of this in one transaction".into());
                lines
            }
            Step::Switch(to) => {
                let used = MAPS.iter().filter(|map| map.is_used(setting));
                let mut lines: Vec<String> =
                    used.map(|map| format!("nft flush map {} {} {}", table.family, table.name, map.name)).collect();
                lines.extend(elements(to));
                lines.push("all of this in one transaction".into());
                lines
            }
            Step::Remove => vec![format!("nft delete table {} {}", table.family, table.name)],
        }
    }
}
