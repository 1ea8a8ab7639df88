//! The rules that send packets to the queue, by the way that this kernel offers.
//!
//! They stand behind a usual firewall (priority 0 of nftables; the table `mangle` of iptables at its end, before it), so that none of
//! its rules is passed over: what is accepted from a queue goes on behind the chain that sent it there.

use std::net::IpAddr;
use std::time::Duration;

use baton_kernel::nfqueue;
use baton_kernel::nftables::{self, Chain, Hook, Kind, Nftables, Rule, Table, Transaction};
use nix::errno::Errno;

use crate::KernelError;
use crate::hold::method::HoldOrder;
use crate::hold::target::Target;
use crate::iptables::{self, Change, Iptables, JumpPosition};

/// Behind `filter` and `security`, before source addresses are translated.
const PRIORITY: i32 = 60;
/// The table of iptables, which every host that lives with iptables has.
const MANGLE: &str = "mangle";
/// The word for the last way.
const IPTABLES: &str = "iptables";
/// Names of tables of all runs begin so.
const PREFIX: &str = "baton-hold-";
/// How long a moment is waited for in which no packet waits in a queue.
const QUIET_MAX: Duration = Duration::from_millis(100);
/// Bytes of an interface's name at most (`IFNAMSIZ` less its end).
const INTERFACE_MAX: usize = 15;
/// The interface of connections of a machine with itself.
const LOOPBACK: &str = "lo";

/// How rules get into the kernel, the best way first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RulesBackend {
    /// A table of our own in nftables, with its `queue` statement.
    Statement,
    /// A table of our own in nftables, with the target `NFQUEUE` of iptables.
    Target,
    /// The programs `iptables` and `ip6tables`, those of them that targets need.
    Iptables(Vec<Iptables>),
}

impl RulesBackend {
    const NFTABLES: [RulesBackend; 2] = [RulesBackend::Statement, RulesBackend::Target];

    /// The first one that this kernel takes.
    ///
    /// # Errors
    /// Without the right, and when there is none.
    pub fn find(order: &HoldOrder) -> Result<RulesBackend, KernelError> {
        let mut refusal = None;
        for way in Self::NFTABLES {
            match trial(order, &way).commit() {
                Ok(()) => return Ok(way),
                Err(fault) if fault.fault.is_no_right() => return Err(refused_by_kernel(&fault)),
                Err(fault) => refusal = Some(fault),
            }
        }
        RulesBackend::iptables(order).map_err(|mut fault| {
            if let Some(refusal) = refusal {
                fault.reason = format!("{refusal}; {}", fault.reason);
            }
            fault
        })
    }

    /// The last one, whatever the kernel takes.
    pub fn iptables(order: &HoldOrder) -> Result<RulesBackend, KernelError> {
        let programs = families(order).into_iter().map(Iptables::find).collect::<Result<_, _>>();
        programs.map(RulesBackend::Iptables).map_err(|error| refused(&error))
    }

    /// The word for it, in notes too.
    pub fn word(&self) -> &'static str {
        match self {
            RulesBackend::Statement => "nftables",
            RulesBackend::Target => "nftables with the target NFQUEUE",
            RulesBackend::Iptables(_) => IPTABLES,
        }
    }

    /// The one of this word.
    pub fn named(word: &str, order: &HoldOrder) -> Result<Option<RulesBackend>, KernelError> {
        match word {
            IPTABLES => RulesBackend::iptables(order).map(Some),
            word => Ok(Self::NFTABLES.into_iter().find(|way| way.word() == word)),
        }
    }

    /// Makes the rules, all or none. Whether some may be there, also after a failure, is told by `is_there`.
    pub fn make(&self, order: &HoldOrder, number: u16, is_there: &mut bool) -> Result<(), KernelError> {
        *is_there = true;
        let RulesBackend::Iptables(programs) = self else {
            let made = tables(order, self, number).commit();
            // Of what the kernel refuses, nothing is done. Without an answer nobody knows.
            *is_there = made.as_ref().err().is_none_or(|refusal| refusal.errno().is_none());
            return made.map_err(|fault| refused_by_kernel(&fault));
        };
        for iptables in programs {
            if let Err(error) = iptables.apply(MANGLE, &changes(order, iptables.family(), number)?) {
                *is_there = unmake_chains(order, programs).is_err();
                return Err(refused(&error));
            }
        }
        Ok(())
    }

    /// A rule of nftables that ends in the queue.
    fn queue(&self, rule: Rule, number: u16) -> Rule {
        match self {
            RulesBackend::Target => rule.xtables_queue_or_bypass(number),
            RulesBackend::Statement | RulesBackend::Iptables(_) => rule.queue_or_bypass(number),
        }
    }

    /// The rules as text.
    pub fn describe(&self, order: &HoldOrder) -> Vec<String> {
        match self {
            RulesBackend::Statement | RulesBackend::Target => {
                let chains = hooks(order).into_iter().map(|(name, ..)| name).collect::<Vec<_>>().join(", ");
                let head =
                    format!("{}: first packets of connections to {} wait in an NFQUEUE", table(order), order.targets);
                vec![format!("{head}, from chains at {chains} ({})", self.word())]
            }
            RulesBackend::Iptables(programs) => {
                let mut lines = Vec::new();
                for iptables in programs {
                    let changes = changes(order, iptables.family(), 0).unwrap_or_default();
                    let shown = |change| iptables.command(MANGLE, change).replace("--queue-num 0", "--queue-num N");
                    lines.extend(changes.iter().map(shown));
                }
                lines
            }
        }
    }
}

/// Sends no packet to the queue any more. What waits in it stays there.
pub(super) fn silence(order: &HoldOrder, way: &RulesBackend) -> Result<(), KernelError> {
    if let RulesBackend::Iptables(programs) = way {
        return unmake_chains(order, programs);
    }
    let table = table(order);
    let flush = hooks(order).iter().fold(Transaction::new(), |flush, (name, ..)| flush.flush_chain(&table, name));
    match flush.commit() {
        // There is none.
        Err(fault) if fault.errno() == Some(Errno::ENOENT) => Ok(()),
        done => done.map_err(|fault| refused_by_kernel(&fault)),
    }
}

/// Removes what is left of a run that was silenced, and empty tables of others. What is not there is what is wanted. Says what an operator
/// should know.
///
/// Removing a table drops what waits in every queue of the network namespace. So while something waits in another one, an empty
/// table stays, which no packet feels; the next run removes it.
pub(super) fn unmake(order: &HoldOrder, way: &RulesBackend) -> Result<Option<String>, KernelError> {
    match way {
        RulesBackend::Statement | RulesBackend::Target => sweep(&table(order)),
        // The host's own chains stay, and ours went with the rules.
        RulesBackend::Iptables(_) => Ok(None),
    }
}

/// Removes tables of holds that have no rules any more, in a moment in which no packet waits in a queue. When there is none, says
/// which one stays.
pub(in crate::hold) fn sweep(table: &Table) -> Result<Option<String>, KernelError> {
    if let Some(busy) = nfqueue::quiet(QUIET_MAX).first() {
        return Ok(Some(format!(
            "an empty {table} is left for the next run to remove, so that queue {} loses nothing",
            busy.number
        )));
    }
    let mut nftables = Nftables::open().map_err(|fault| refused_by_kernel(&fault))?;
    let mut gone = Transaction::new();
    for table in nftables.tables(PREFIX).map_err(|fault| refused_by_kernel(&fault))? {
        // A table is made with its rules: one without has ended.
        if nftables.rules(&table).map_err(|fault| refused_by_kernel(&fault))?.is_empty() {
            gone = gone.delete_table(&table);
        }
    }
    gone.commit().map_err(|fault| refused_by_kernel(&fault))?;
    Ok(None)
}

fn refused_by_kernel(refusal: &nftables::NftablesError) -> KernelError {
    let remedy = refusal.remedy().unwrap_or_default();
    KernelError::new(format!("nftables: {}", refusal.what), refusal.fault.to_string(), remedy)
}

/// Removes the table of a run of which only the number is known, with all that is in it.
pub(in crate::hold) fn wipe(run: u32) -> Result<(), KernelError> {
    match Transaction::new().delete_table(&Table::inet(format!("{PREFIX}{run}"))).commit() {
        // There is none, or no nftables.
        Err(fault) if matches!(fault.errno(), Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EAFNOSUPPORT)) => Ok(()),
        done => done.map_err(|fault| refused_by_kernel(&fault)),
    }
}

fn unmake_chains(order: &HoldOrder, programs: &[Iptables]) -> Result<(), KernelError> {
    let chains = chains(order.run)?;
    for (iptables, chain) in programs.iter().flat_map(|iptables| chains.iter().map(move |chain| (iptables, chain))) {
        iptables.remove(chain).map_err(|error| refused(&error))?;
    }
    Ok(())
}

fn refused(error: &iptables::Error) -> KernelError {
    KernelError::new("rules of iptables", error.to_string(), "")
}

fn table(order: &HoldOrder) -> Table {
    Table::inet(order.object_name())
}

/// The chains of a run: for what is for this machine, and for what may be on its way to another one.
pub(in crate::hold) fn chains(run: u32) -> Result<[iptables::Chain; 2], KernelError> {
    let chain = |end: &str| iptables::Chain::new(&format!("HOLD-{run}{end}")).map_err(|error| refused(&error));
    Ok([chain("")?, chain("-FAR")?])
}

/// Where packets pass that are meant: what is for this machine at the end of its way in; and what is for the address of another one
/// on its way through and, made here, out. To all addresses of a port means those of this machine.
fn hooks(order: &HoldOrder) -> Vec<(&'static str, Hook, Vec<Target>)> {
    let all: Vec<Target> = order.targets.iter().copied().collect();
    let elsewhere: Vec<Target> =
        all.iter().copied().filter(|target| target.address.is_some_and(may_be_elsewhere)).collect();
    let mut hooks = vec![("input", Hook::Input, all)];
    if !elsewhere.is_empty() {
        hooks.push(("forward", Hook::Forward, elsewhere.clone()));
    }
    // What is made here comes in nowhere.
    if !elsewhere.is_empty() && order.interfaces.is_empty() {
        hooks.push(("output", Hook::Output, elsewhere));
    }
    hooks
}

/// The interfaces that packets have to come in by; `None` for any.
fn incoming(order: &HoldOrder) -> Vec<Option<&str>> {
    match &order.interfaces[..] {
        [] => vec![None],
        some => some.iter().map(|name| Some(name.as_str())).collect(),
    }
}

/// Names of interfaces go into words that iptables reads.
pub(super) fn judge_interfaces(order: &HoldOrder) -> Result<(), KernelError> {
    let is_name = |name: &String| {
        (1..=INTERFACE_MAX).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"'\\/!+".contains(&byte))
    };
    match order.interfaces.iter().find(|name| !is_name(name)) {
        None => Ok(()),
        Some(name) => {
            Err(KernelError::new(format!("interface {name:?}"), "no interface can have this name", "see `ip link`"))
        }
    }
}

fn may_be_elsewhere(address: IpAddr) -> bool {
    !address.is_loopback()
}

/// A rule of this way in a chain that no packet enters, all gone when it is done: a chain at a hook, removed again, would drop what
/// waits in other queues.
fn trial(order: &HoldOrder, way: &RulesBackend) -> Transaction {
    let table = Table::inet(format!("{}-trial", order.object_name()));
    let rule = way.queue(Rule::new().tcp(), 0);
    Transaction::new().new_table(&table).plain_chain(&table, "trial").rule(&table, "trial", &rule).delete_table(&table)
}

fn tables(order: &HoldOrder, way: &RulesBackend, number: u16) -> Transaction {
    let table = table(order);
    let mut transaction = Transaction::new().new_table(&table);
    for (name, hook, targets) in hooks(order) {
        let chain = Chain { name: name.to_owned(), kind: Kind::Filter, hook, priority: PRIORITY };
        transaction = transaction.chain(&table, &chain);
        let targets = targets.iter().flat_map(|target| incoming(order).into_iter().map(move |by| (target, by)));
        for (target, by) in targets {
            let rule = match by {
                Some(interface) => Rule::new().incoming(interface),
                None => Rule::new(),
            };
            // What goes out by it comes in by it, and waits there.
            let rule = if hook == Hook::Output { rule.not_outgoing(LOOPBACK) } else { rule };
            let rule = match target.address {
                Some(address) => rule.destination(address),
                None => rule,
            };
            let rule = rule.tcp().destination_port(target.port).opens_connection();
            transaction = transaction.rule(&table, name, &way.queue(rule, number));
        }
    }
    transaction
}

/// The families that targets are of.
fn families(order: &HoldOrder) -> Vec<iptables::Family> {
    let has = |is: fn(&IpAddr) -> bool| order.targets.iter().any(|target| target.address.as_ref().is_none_or(is));
    let mut families = Vec::new();
    families.extend(has(IpAddr::is_ipv4).then_some(iptables::Family::Ipv4));
    families.extend(has(IpAddr::is_ipv6).then_some(iptables::Family::Ipv6));
    families
}

fn changes(order: &HoldOrder, family: iptables::Family, number: u16) -> Result<Vec<Change>, KernelError> {
    let [near, far] = chains(order.run)?;
    let is_of = |target: &&Target| match (family, target.address) {
        (_, None) => true,
        (iptables::Family::Ipv4, Some(address)) => address.is_ipv4(),
        (iptables::Family::Ipv6, Some(address)) => address.is_ipv6(),
    };
    let targets: Vec<&Target> = order.targets.iter().filter(is_of).collect();
    let is_far = |target: &&Target| target.address.is_some_and(may_be_elsewhere);
    let elsewhere: Vec<&Target> = targets.iter().copied().filter(is_far).collect();
    let rules = |chain: &iptables::Chain, targets: &[&Target]| {
        let each = targets.iter().flat_map(|target| incoming(order).into_iter().map(move |by| (*target, by)));
        let rules = each.map(|(target, by)| Change::Append(chain.clone(), rule(order, target, by, number)));
        std::iter::once(Change::Empty(chain.clone())).chain(rules).collect::<Vec<_>>()
    };
    let hook = |from, matching: &str, to: &iptables::Chain| Change::Hook {
        from,
        matching: matching.to_owned(),
        to: to.clone(),
        place: JumpPosition::Last,
    };
    let mut changes = rules(&near, &targets);
    if !elsewhere.is_empty() {
        // A target of all addresses would be caught on its way to another machine, too: those have a chain of their own.
        changes.extend(rules(&far, &elsewhere));
    }
    changes.push(hook("INPUT", "-p tcp", &near));
    if !elsewhere.is_empty() {
        changes.push(hook("FORWARD", "-p tcp", &far));
    }
    // What is made here comes in nowhere.
    if !elsewhere.is_empty() && order.interfaces.is_empty() {
        changes.push(hook("OUTPUT", "! -o lo -p tcp", &far));
    }
    Ok(changes)
}

/// Sends first packets to a target into the queue, in the words of iptables.
fn rule(order: &HoldOrder, target: &Target, by: Option<&str>, number: u16) -> String {
    let by = by.map(|interface| format!("-i {interface} ")).unwrap_or_default();
    let to = target.address.map(|address| format!("-d {address} ")).unwrap_or_default();
    format!(
        "{by}{to}-p tcp -m tcp --dport {} --syn -m comment --comment \"{}\" -j NFQUEUE --queue-num {number} --queue-bypass",
        target.port,
        order.object_name()
    )
}
