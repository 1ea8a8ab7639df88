//! The filter for ARP: a table of nftables, made anew as a whole whenever it changes.
//!
//! For each virtual address: questions for it are dropped as they come, answers and announcements with it as they go, and a
//! question that the machine asks under it is asked under the interface's own address, as arptables' `mangle` did.

use baton_kernel::KernelError;
use baton_kernel::nftables::{ArpOperation, Chain, Hook, Kind, Nftables, Rule, Table, Transaction, Verdict, priority};

use super::record::{QuietAddress, Rules};

/// The table's name.
const NAME: &str = "baton-real-server";
/// Its chains.
const IN: &str = "in";
const OUT: &str = "out";

pub(super) fn table() -> Table {
    Table::arp(NAME)
}

/// Whether the table is there, which the kernel does not tell without CAP_NET_ADMIN.
pub(super) fn is_there() -> Result<bool, KernelError> {
    let mut nftables = Nftables::open()?;
    Ok(nftables.has(&table())?)
}

/// Makes it, in the place of what it was.
pub(super) fn install(rules: &Rules) -> Result<(), KernelError> {
    let table = table();
    let chain = |name: &str, hook| Chain { name: name.into(), kind: Kind::Filter, hook, priority: priority::FILTER };
    let transaction = Transaction::new()
        .delete_table(&table)
        .new_table(&table)
        .chain(&table, &chain(IN, Hook::Input))
        .chain(&table, &chain(OUT, Hook::Output));
    let transaction = rules.0.iter().fold(transaction, |transaction, quiet| {
        let transaction =
            incoming(quiet).iter().fold(transaction, |transaction, rule| transaction.rule(&table, IN, rule));
        outgoing(quiet).iter().fold(transaction, |transaction, rule| transaction.rule(&table, OUT, rule))
    });
    Ok(transaction.commit()?)
}

/// Removes it.
pub(super) fn remove() -> Result<(), KernelError> {
    Ok(Transaction::new().delete_table(&table()).commit()?)
}

fn incoming(quiet: &QuietAddress) -> Vec<Rule> {
    let question = |rule: Rule| rule.arp(ArpOperation::Request).arp_target(quiet.vip).verdict(Verdict::Drop);
    each(&quiet.only, Rule::incoming, question)
}

fn outgoing(quiet: &QuietAddress) -> Vec<Rule> {
    let vip = quiet.vip;
    let answer = |rule: Rule| rule.arp(ArpOperation::Reply).arp_sender(vip).verdict(Verdict::Drop);
    let announcement = |rule: Rule| rule.arp_sender(vip).arp_target(vip).verdict(Verdict::Drop);
    // What goes by an interface without an address of its own cannot be asked for at all.
    let rest = |rule: Rule| rule.arp_sender(vip).verdict(Verdict::Drop);
    let mut rules = each(&quiet.only, Rule::outgoing, answer);
    rules.extend(each(&quiet.only, Rule::outgoing, announcement));
    for (interface, own) in &quiet.instead {
        rules.push(Rule::new().arp_sender(vip).outgoing(interface).set_arp_sender(*own).verdict(Verdict::Accept));
    }
    rules.extend(each(&quiet.only, Rule::outgoing, rest));
    rules
}

/// A rule for each interface, or one for all.
fn each(only: &[String], on: fn(Rule, &str) -> Rule, make: impl Fn(Rule) -> Rule) -> Vec<Rule> {
    match only {
        [] => vec![make(Rule::new())],
        some => some.iter().map(|interface| make(on(Rule::new(), interface))).collect(),
    }
}
