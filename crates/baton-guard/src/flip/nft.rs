//! By nftables: one table, `baton-flip-NAME`, in which a map says where the port that clients dial leads to. A switch replaces
//! what is in the map, in one transaction: every connection sees the one or the other.
//!
//! A table with other addresses takes the place of the one before behind a third one, which leads where the new one will: a packet that is
//! on its way through the chains while they are exchanged would find neither the old ones nor the new ones.
//!
//! Only the first packet of a connection is looked at, and then only one that opens it; all others follow the kernel's record of
//! the connection. So whoever is connected stays, also those who were before the table was made.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use baton_kernel::nfqueue;
use baton_kernel::nftables::{
    Chain, DataType, Element, Family, Hook, Kind as ChainKind, Nftables, Rule, Set, Table, Transaction, Verdict,
    priority,
};

use super::method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
use super::{Colour, Name, Setting};
use crate::KernelError;
use crate::hold::target::Target;

/// What the names of our tables begin with.
const PREFIX: &str = "baton-flip-";
/// What the names of tables begin with that lead connections while one is replaced.
const BRIDGE: &str = "baton-bridge-";
/// How long to wait for others' queues to be empty: as long as `baton hold` holds, unless it is told otherwise.
const QUIET: Duration = Duration::from_secs(5);
/// The table in which it is tried whether this kernel can do what we need.
const TRIAL: &str = "baton-trial";
/// Our chains: for connections from elsewhere, and from this machine.
const CHAINS: [(&str, Hook); 2] = [("incoming", Hook::Prerouting), ("local", Hook::Output)];
/// The chain that keeps packets of other machines away from loopback addresses, as long as the kernel does not.
const GUARD: &str = "guard";
/// How many rules it has.
const GUARD_RULES: usize = 2;
/// Before others that translate at the same place.
const BEFORE_OTHERS: i32 = priority::DSTNAT - 1;

/// Before those.
const BEFORE_OURS: i32 = BEFORE_OTHERS - 1;

/// The method `nft`.
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
            Some(Family::Ipv4) => DataType::Ipv4Port,
            Some(_) => DataType::Ipv6Port,
            None => DataType::Port,
        };
        Set::map(self.name, DataType::Port, gives)
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
        self.families(setting).into_iter().map(rule).collect()
    }

    /// Of which its rules are.
    fn families(&self, setting: &Setting) -> Vec<Family> {
        let families = setting.served().into_iter().map(|v4| if v4 { Family::Ipv4 } else { Family::Ipv6 });
        families.filter(|family| self.family.is_none_or(|own| own == *family)).collect()
    }
}

fn table(name: &Name) -> Table {
    Table::inet(format!("{PREFIX}{name}"))
}

fn bridge(name: &Name) -> Table {
    Table::inet(format!("{BRIDGE}{name}"))
}

fn guard(transaction: Transaction, table: &Table) -> Transaction {
    let chain = Chain { name: GUARD.into(), kind: ChainKind::Filter, hook: Hook::Prerouting, priority: priority::RAW };
    let loopback = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0));
    let rules = [Rule::new().destination_net(loopback, 8), Rule::new().source_net(loopback, 8)]
        .map(|rule| rule.not_incoming("lo").verdict(Verdict::Drop));
    // One that is there may have other rules.
    let made = transaction.chain(table, &chain).flush_chain(table, GUARD);
    rules.iter().fold(made, |transaction, rule| transaction.rule(table, GUARD, rule))
}

fn install(table: &Table, priority: i32, setting: &Setting, active: Colour, is_guarded: bool) -> Transaction {
    let mut transaction = Transaction::new().delete_table(table).table(table);
    for (name, hook) in CHAINS {
        let chain = Chain { name: name.into(), kind: ChainKind::Nat, hook, priority };
        transaction = transaction.chain(table, &chain);
    }
    for map in MAPS.iter().filter(|map| map.is_used(setting)) {
        transaction = transaction.set(table, &map.set());
        if let Some(element) = map.element(setting, active) {
            transaction = transaction.elements(table, map.name, &[element]);
        }
        for (chain, _) in CHAINS {
            for rule in map.rules(setting) {
                transaction = transaction.rule(table, chain, &rule.comment(&comment(setting)));
            }
        }
    }
    if is_guarded { guard(transaction, table) } else { transaction }
}

/// How many rules the guard has that is there.
fn guards(table: &Table) -> Result<usize, KernelError> {
    let chains = Nftables::open()?.rules(table)?;
    Ok(chains.into_iter().find(|(chain, _)| chain == GUARD).map_or(0, |(_, count)| count))
}

fn comment(setting: &Setting) -> String {
    format!("blue {} green {}", places(&setting.blue), places(&setting.green))
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
        chains.push((GUARD.to_owned(), GUARD_RULES));
    }
    chains
}

pub(super) fn places(places: &[Target]) -> String {
    places.iter().map(Target::to_string).collect::<Vec<_>>().join(" ")
}

impl FlipMethod for Nft {
    fn kind(&self) -> FlipMethodKind {
        FlipMethodKind::Nft
    }

    fn check(&self, setting: &Setting) -> Result<(), KernelError> {
        // A transaction that ends in a deletion. It has no chain: the removal of one that packets enter would drop what waits in
        // queues of others.
        let trial = Table::inet(TRIAL);
        let maps = MAPS.iter().filter(|map| map.is_used(setting));
        let made = maps.fold(Transaction::new().table(&trial), |made, map| made.set(&trial, &map.set()));
        Ok(made.delete_table(&trial).commit()?)
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, KernelError> {
        let table = table(&setting.name);
        let mut nftables = Nftables::open()?;
        if !nftables.has(&table)? {
            return Ok(Observed::Absent);
        }
        let mut found = Vec::new();
        for map in MAPS.iter().filter(|map| map.is_used(setting)) {
            match nftables.elements(&table, map.name)? {
                Some(elements) => found.push((map, elements)),
                None => return Ok(Observed::Broken(format!("{table} has no map `{}`", map.name))),
            }
        }
        if nftables.rules(&table)? != rules(setting) {
            return Ok(Observed::Broken(format!("the rules of {table} were changed")));
        }
        let is_active =
            |colour| found.iter().all(|(map, elements)| elements.iter().eq(map.element(setting, colour).as_ref()));
        let is_halfway = nftables.has(&bridge(&setting.name))?;
        Ok(match Colour::BOTH.into_iter().find(|colour| is_active(*colour)) {
            Some(_) if is_halfway => {
                Observed::Broken("a change was interrupted: connections may go to either instance".into())
            }
            Some(colour) => Observed::Active(colour),
            None => Observed::Broken(format!("{table} leads to neither instance")),
        })
    }

    fn install(&self, setting: &Setting, active: Colour, is_guarded: bool) -> Result<(), KernelError> {
        let (table, bridge) = (table(&setting.name), bridge(&setting.name));
        let made = |table, priority| install(table, priority, setting, active, is_guarded);
        if !Nftables::open()?.has(&table)? {
            return Ok(made(&table, BEFORE_OTHERS).commit()?);
        }
        nfqueue::quiet(QUIET);
        made(&bridge, BEFORE_OURS).commit()?;
        nfqueue::quiet(QUIET);
        let replaced = made(&table, BEFORE_OTHERS).commit();
        nfqueue::quiet(QUIET);
        let ended = Transaction::new().delete_table(&bridge).commit();
        replaced?;
        Ok(ended?)
    }

    fn guard(&self, setting: &Setting) -> Result<(), KernelError> {
        let table = table(&setting.name);
        match guards(&table)? {
            GUARD_RULES => Ok(()),
            _ => Ok(guard(Transaction::new().table(&table), &table).commit()?),
        }
    }

    fn has_guard(&self, name: &Name) -> Result<bool, KernelError> {
        let table = table(name);
        // A kernel without nftables has nothing of it.
        let is_there = Nftables::open().and_then(|mut nftables| nftables.has(&table)).unwrap_or(false);
        Ok(is_there && guards(&table)? > 0)
    }

    fn unguard(&self, setting: &Setting) -> Result<(), KernelError> {
        let table = table(&setting.name);
        // A chain that is not there cannot be deleted.
        if guards(&table)? == 0 {
            return Ok(());
        }
        nfqueue::quiet(QUIET);
        Ok(Transaction::new().delete_chain(&table, GUARD).commit()?)
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), KernelError> {
        Ok(switch(setting, to).commit()?)
    }

    fn remove(&self, name: &Name) -> Result<(), KernelError> {
        for table in [table(name), bridge(name)] {
            let is_there = Nftables::open().and_then(|mut nftables| nftables.has(&table))?;
            // A kernel without nftables has nothing of it, and would refuse.
            if is_there {
                // What waits in queues of others is dropped by the kernel when a chain goes that packets enter.
                nfqueue::quiet(QUIET);
                Transaction::new().delete_table(&table).commit()?;
            }
        }
        Ok(())
    }

    fn names(&self) -> Result<Vec<Name>, KernelError> {
        let tables = match Nftables::open().and_then(|mut nftables| nftables.tables(PREFIX)) {
            Err(refusal) if refusal.fault.is_no_right() => return Err(refusal.into()),
            other => other.unwrap_or_default(),
        };
        Ok(tables.iter().filter_map(|table| table.name.strip_prefix(PREFIX)?.parse().ok()).collect())
    }

    fn plan(&self, setting: &Setting, step: PlanStep) -> Result<Vec<String>, KernelError> {
        let table = table(&setting.name);
        // One file is one transaction.
        let file = |lines: Vec<String>| format!("nft -f - <<'END'\n{}\nEND", lines.join("\n"));
        let lines = match step {
            PlanStep::Install { active, is_guarded } => {
                let made = |table, priority| file(typed::install(table, priority, setting, active, is_guarded));
                let (whole, bridge) = (made(&table, BEFORE_OTHERS), bridge(&setting.name));
                if !Nftables::open()?.has(&table)? {
                    return Ok(vec![whole]);
                }
                let end = format!("nft delete table {} {}", bridge.family, bridge.name);
                return Ok(vec![made(&bridge, BEFORE_OURS), whole, end]);
            }
            PlanStep::Switch(to) => typed::switch(setting, to),
            PlanStep::Guard | PlanStep::Unguard => typed::guard(&table, step == PlanStep::Guard)?,
        };
        Ok(if lines.is_empty() { lines } else { vec![file(lines)] })
    }

    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, KernelError> {
        let table = table(name);
        Ok(vec![format!("nft delete table {} {}", table.family, table.name)])
    }
}

/// The transactions, in the words of nft(8).
mod typed {
    use super::*;

    pub(super) fn install(
        table: &Table,
        priority: i32,
        setting: &Setting,
        active: Colour,
        is_guarded: bool,
    ) -> Vec<String> {
        let whole = format!("{} {}", table.family, table.name);
        let mut lines = vec![format!("table {whole}"), format!("delete table {whole}"), format!("table {whole} {{")];
        let used: Vec<&Map> = MAPS.iter().filter(|map| map.is_used(setting)).collect();
        for map in &used {
            let to = match map.family {
                Some(Family::Ipv4) => "ipv4_addr . inet_service",
                Some(_) => "ipv6_addr . inet_service",
                None => "inet_service",
            };
            lines.push(format!(" map {} {{", map.name));
            lines.push(format!("  type inet_service : {to}"));
            lines.extend(element(map, setting, active).map(|element| format!("  elements = {{ {element} }}")));
            lines.push(" }".into());
        }
        for (name, hook) in CHAINS {
            let hook = if hook == Hook::Output { "output" } else { "prerouting" };
            lines.push(format!(" chain {name} {{"));
            lines.push(format!("  type nat hook {hook} priority {priority};"));
            lines.extend(used.iter().flat_map(|map| rules(map, setting)));
            lines.push(" }".into());
        }
        lines.push("}".into());
        if is_guarded {
            lines.extend(guard_chain(&whole));
        }
        lines
    }

    fn guard_chain(whole: &str) -> Vec<String> {
        let head = format!("add chain {whole} {GUARD} {{ type filter hook prerouting priority {}; }}", priority::RAW);
        let mut lines = vec![head, format!("flush chain {whole} {GUARD}")];
        let rule = |side| format!("add rule {whole} {GUARD} ip {side} 127.0.0.0/8 iifname != \"lo\" drop");
        lines.extend(["daddr", "saddr"].map(rule));
        lines
    }

    /// What makes the guard be there, or not.
    pub(super) fn guard(table: &Table, is_wanted: bool) -> Result<Vec<String>, KernelError> {
        let whole = format!("{} {}", table.family, table.name);
        Ok(match (guards(table)?, is_wanted) {
            (GUARD_RULES, true) | (0, false) => Vec::new(),
            (_, true) => {
                let mut lines = vec![format!("add table {whole}")];
                lines.extend(guard_chain(&whole));
                lines
            }
            (_, false) => vec![format!("delete chain {whole} {GUARD}")],
        })
    }

    pub(super) fn switch(setting: &Setting, to: Colour) -> Vec<String> {
        let table = table(&setting.name);
        let mut lines = Vec::new();
        for map in MAPS.iter().filter(|map| map.is_used(setting)) {
            let whole = format!("{} {} {}", table.family, table.name, map.name);
            lines.push(format!("flush map {whole}"));
            lines.extend(element(map, setting, to).map(|element| format!("add element {whole} {{ {element} }}")));
        }
        lines
    }

    fn element(map: &Map, setting: &Setting, colour: Colour) -> Option<String> {
        let place = setting.instance(colour).iter().find(|place| map.holds(place))?;
        let to = match place.address {
            Some(address) => format!("{address} . {}", place.port),
            None => place.port.to_string(),
        };
        Some(format!("{} : {to}", setting.listen.port))
    }

    fn rules(map: &Map, setting: &Setting) -> Vec<String> {
        let families = map.families(setting).into_iter();
        let rule = |family: Family| {
            let dialled = match setting.listen.address {
                Some(address) => format!("{family} daddr {address}"),
                None => format!("meta nfproto {} fib daddr type local", protocol(family)),
            };
            let sent = match map.family {
                Some(family) => format!("dnat {family} to tcp dport map @{}", map.name),
                None => format!("redirect to :tcp dport map @{}", map.name),
            };
            let comment = comment(setting);
            format!("  {dialled} tcp flags & (fin | syn | rst | ack) == syn {sent} comment \"{comment}\"")
        };
        families.map(rule).collect()
    }

    fn protocol(family: Family) -> &'static str {
        if family == Family::Ipv4 { "ipv4" } else { "ipv6" }
    }
}
