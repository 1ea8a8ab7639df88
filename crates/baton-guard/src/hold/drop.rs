//! SYNs are dropped by a table of our own; clients send them again, the first time after a second. For comparison, and where nothing
//! else is possible.
//!
//! The ports and addresses lie in sets whose elements end by themselves at the deadline: the kernel lets traffic flow even when
//! nobody of ours lives any more. Where the kernel has no nftables, iptables does it in a chain of our own, whose rules end by the
//! clock.

use std::net::IpAddr;
use std::time::Duration;

use baton_kernel::nftables::{
    Chain, DataType, Element, Family, Hook, Kind, Nftables, Rule, Set, Table, Transaction, Verdict, priority,
};
use nix::errno::Errno;

use super::method::{HoldCounts, HoldMethod, HoldOrder, Journal, UndoNotes};
use super::plan::Plan;
use super::queue::rules::sweep;
use crate::KernelError;
use crate::iptables::{self, Change, Iptables, JumpPosition};

/// Notes: the name of our table, and of our chain.
const NFTABLES: &str = "nftables";
const IPTABLES: &str = "iptables";
/// The chain of our table.
const CHAIN: &str = "syn";
/// Its sets.
const PORTS: &str = "ports";
const FOUR: &str = "addresses4";
const SIX: &str = "addresses6";
/// Where the host's chain leads to ours: before connections are tracked.
const IPTABLES_PLACE: (&str, &str) = ("raw", "PREROUTING");

/// Every kernel with netfilter can drop.
pub(super) fn usable(_order: &HoldOrder) -> Result<(), KernelError> {
    Nftables::open()
        .map(|_| ())
        .or_else(|_| Iptables::find(iptables::Family::Ipv4).map(|_| ()))
        .map_err(KernelError::from)
}

/// Prepares it.
pub(super) fn prepare(order: &HoldOrder) -> Result<Box<dyn HoldMethod>, KernelError> {
    Ok(Box::new(Drop { order: order.clone(), by: None }))
}

/// Removes table and chain.
pub(super) fn undo(order: &HoldOrder, notes: &UndoNotes) -> Result<(), KernelError> {
    // Rules go by iptables only where nftables has refused, and there is no table then.
    if notes.contains_key(IPTABLES) {
        remove_chain(order)
    } else if notes.contains_key(NFTABLES) {
        remove_table(order).map(|_| ())
    } else {
        Ok(())
    }
}

struct Drop {
    order: HoldOrder,
    /// What may be there.
    by: Option<DropMechanism>,
}

/// What drops the packets.
enum DropMechanism {
    Nftables,
    Iptables,
}

impl HoldMethod for Drop {
    fn plan(&self) -> Plan {
        let table = table(&self.order);
        let max = self.order.max;
        let at = |interface: &str| if interface.is_empty() { String::new() } else { format!("iifname {interface} ") };
        let rules = interfaces(&self.order).map(|interface| {
            format!("TCP SYNs {}to {} are counted and dropped, for at most {max:?}", at(interface), self.order.targets)
        });
        Plan {
            begin: std::iter::once(format!("{table}, with a chain at prerouting, before connections are tracked:"))
                .chain(rules)
                .chain(["(without nftables in the kernel: the same by iptables)".to_owned()])
                .collect(),
            end: vec![format!("{table} is deleted; clients retransmit their SYNs after 1 s, then 2 s, 4 s …")],
            safety: format!("the elements of its sets expire after {max:?}; the rest drops nothing"),
        }
    }

    fn begin(&mut self, journal: &mut dyn Journal) -> Result<(), KernelError> {
        journal.note(NFTABLES, &self.order.object_name())?;
        self.by = Some(DropMechanism::Nftables);
        let Err(refusal) = transaction(&self.order).commit() else { return Ok(()) };
        // Of what the kernel refuses, nothing is done. Without an answer nobody knows.
        self.by = self.by.take().filter(|_| refusal.errno().is_none());
        if refusal.fault.is_no_right() || refusal.errno() == Some(Errno::EEXIST) {
            return Err(refusal.into());
        }
        let _ = self.end();
        journal.note(IPTABLES, &self.order.object_name())?;
        // When the second family is refused, the first one is done already.
        self.by = Some(DropMechanism::Iptables);
        add_chain(&self.order).map_err(|fault| {
            let reason = format!("{}; and nftables: {refusal}", fault.reason);
            KernelError { reason, ..fault }
        })
    }

    fn end(&mut self) -> Result<HoldCounts, KernelError> {
        match self.by {
            None => Ok(HoldCounts::default()),
            Some(DropMechanism::Nftables) => {
                // The counters go with the table.
                let connections = Nftables::open().and_then(|mut nftables| nftables.packets(&table(&self.order)));
                let remarks = Vec::from_iter(remove_table(&self.order)?);
                self.by = None;
                Ok(HoldCounts { connections: connections.unwrap_or_default(), remarks, ..HoldCounts::default() })
            }
            Some(DropMechanism::Iptables) => {
                remove_chain(&self.order)?;
                self.by = None;
                let remark = "by iptables, without a count of the dropped SYNs".to_owned();
                Ok(HoldCounts { remarks: vec![remark], ..HoldCounts::default() })
            }
        }
    }
}

/// The interfaces that were named; one empty name for all of them.
fn interfaces(order: &HoldOrder) -> impl Iterator<Item = &str> {
    let all = order.interfaces.is_empty().then_some("");
    order.interfaces.iter().map(String::as_str).chain(all)
}

fn table(order: &HoldOrder) -> Table {
    Table::inet(order.object_name())
}

fn transaction(order: &HoldOrder) -> Transaction {
    let table = table(order);
    let lasting = |element: Element| element.lasting(order.max);
    let ports: Vec<Element> = order.targets.ports().map(Element::port).map(lasting).collect();
    let of = |is_four: bool| {
        let addresses = order.targets.addresses().filter(move |address| address.is_ipv4() == is_four);
        addresses.map(Element::socket_address).map(lasting).collect::<Vec<_>>()
    };
    let chain = Chain { name: CHAIN.into(), kind: Kind::Filter, hook: Hook::Prerouting, priority: priority::RAW };
    let mut transaction = Transaction::new().new_table(&table).chain(&table, &chain);
    let sets = [
        (PORTS, DataType::Port, ports, None),
        (FOUR, DataType::Ipv4Port, of(true), Some(Family::Ipv4)),
        (SIX, DataType::Ipv6Port, of(false), Some(Family::Ipv6)),
    ];
    for (name, key, elements, family) in sets {
        if elements.is_empty() {
            continue;
        }
        transaction = transaction.set(&table, &Set::new(name, key).with_timeouts()).elements(&table, name, &elements);
        for interface in interfaces(order) {
            let rule = if interface.is_empty() { Rule::new() } else { Rule::new().incoming(interface) };
            let rule = match family {
                None => rule.tcp().opens_connection().destination_port_in(name),
                Some(family) => rule.tcp().opens_connection().destination_and_port_in(family, name),
            };
            transaction = transaction.rule(&table, CHAIN, &rule.counted().verdict(Verdict::Drop));
        }
    }
    transaction
}

/// Nothing is dropped any more when this returns. A table that must stay for a while, because its removal would lose what waits in
/// a queue of somebody else, is empty.
fn remove_table(order: &HoldOrder) -> Result<Option<String>, KernelError> {
    let table = table(order);
    match Transaction::new().flush_chain(&table, CHAIN).commit() {
        Err(refusal) if refusal.errno() == Some(Errno::ENOENT) => {}
        done => done?,
    }
    sweep(&table)
}

/// The families that the targets need.
fn families(order: &HoldOrder) -> Vec<iptables::Family> {
    let is_any = order.targets.ports().next().is_some();
    let has = |is_four: bool| is_any || order.targets.addresses().any(|address| address.is_ipv4() == is_four);
    let families = [(iptables::Family::Ipv4, has(true)), (iptables::Family::Ipv6, has(false))];
    families.into_iter().filter(|(_, is_needed)| *is_needed).map(|(family, _)| family).collect()
}

fn chain(order: &HoldOrder) -> Result<iptables::Chain, iptables::Error> {
    iptables::Chain::new(&format!("HOLD-{}", order.run))
}

fn add_chain(order: &HoldOrder) -> Result<(), KernelError> {
    let (chain, (table, from)) = (chain(order)?, IPTABLES_PLACE);
    for family in families(order) {
        let mut changes = vec![Change::Empty(chain.clone())];
        for target in order.targets.iter() {
            let address = match target.address {
                None => String::new(),
                Some(IpAddr::V4(four)) if family == iptables::Family::Ipv4 => format!("-d {four} "),
                Some(IpAddr::V6(six)) if family == iptables::Family::Ipv6 => format!("-d {six} "),
                Some(_) => continue,
            };
            for interface in interfaces(order) {
                let at = if interface.is_empty() { String::new() } else { format!("-i {interface} ") };
                let words = format!("{at}{address}-p tcp --dport {} --syn{} -j DROP", target.port, until(order.max));
                changes.push(Change::Append(chain.clone(), words));
            }
        }
        let jump = Change::Hook { from, matching: "-p tcp".into(), to: chain.clone(), place: JumpPosition::First };
        changes.push(jump);
        Iptables::find(family)?.apply(table, &changes)?;
    }
    Ok(())
}

/// The end of a rule's time, by the kernel's clock, which has whole seconds here.
fn until(max: Duration) -> String {
    let end = jiff::Timestamp::now() + max + Duration::from_secs(1);
    format!(" -m time --datestop {}", end.strftime("%Y-%m-%dT%H:%M:%S"))
}

fn remove_chain(order: &HoldOrder) -> Result<(), KernelError> {
    let chain = chain(order)?;
    for family in families(order) {
        Iptables::find(family)?.remove(&chain)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener, TcpStream};
    use std::time::Instant;

    use baton_kernel::netns;

    use super::super::method::MethodName;
    use super::super::target::Targets;
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn order(targets: &[&str], max: Duration) -> HoldOrder {
        let targets = targets.iter().map(|target| target.parse().unwrap()).collect();
        let (run, method) = (std::process::id(), MethodName::Drop);
        HoldOrder { run, method, targets: Targets::new(targets).unwrap(), max, limit: 1, interfaces: Vec::new() }
    }

    fn is_open(at: SocketAddr) -> bool {
        TcpStream::connect_timeout(&at, Duration::from_millis(200)).is_ok()
    }

    #[test]
    fn without_nftables_iptables_drops_until_the_clock_says_so() {
        let inside = || {
            let listeners = ["127.0.0.1:80", "[::1]:80", "127.0.0.1:81"].map(|at| TcpListener::bind(at).unwrap());
            let [four, six, other] = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
            let forever = order(&[":80", "127.0.0.2:81"], Duration::from_secs(3600));
            add_chain(&forever).unwrap();
            assert!(!is_open(four) && !is_open(six) && is_open(other));
            remove_chain(&forever).unwrap();
            remove_chain(&forever).unwrap();
            assert!(is_open(four) && is_open(six));

            let short = order(&["127.0.0.1:80"], Duration::from_millis(100));
            add_chain(&short).unwrap();
            assert!(!is_open(four) && is_open(six));
            let end = Instant::now() + PATIENCE;
            while !is_open(four) {
                assert!(Instant::now() < end, "the rule does not end");
            }
            remove_chain(&short).unwrap();
        };
        if let Err(error) = netns::in_new(inside) {
            eprintln!("SKIPPED: no right to a network namespace ({error})");
        }
    }
}
