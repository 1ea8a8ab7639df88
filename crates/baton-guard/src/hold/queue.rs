//! SYNs wait in an NFQUEUE, and are released in their order.
//!
//! A rule sends the first packet of each connection to a target to a queue that a thread of this process owns ([`keeper`]). They wait in
//! the kernel; the thread knows their numbers, who sent them and since when ([`room`]). At the end it lets them go, those first who
//! came first, some at a time, so that the queue of the listening socket is not overrun; who comes meanwhile is let go behind
//! them. A packet that its client repeats while the first one waits is dropped.
//!
//! It fails open: above the limit packets pass, and when the process is gone, so do all that come after (the rule's `bypass`). Those
//! that waited are dropped by the kernel then, and their clients send them again after a second.

mod keeper;
mod room;
pub(super) mod rules;

use std::time::Instant;

use baton_kernel::nfqueue::PacketQueue;

use super::method::{HoldCounts, HoldMethod, HoldOrder, Journal, UndoNotes};
use super::plan::Plan;
use crate::KernelError;
use keeper::QueueThread;
use room::Tally;
use rules::RulesBackend;

/// Room in the kernel's queue above the limit, for packets that are about to be told that they may pass.
const SLACK: u32 = 256;
/// The note of how the rules were made.
const WAY: &str = "rules";

/// Whether this machine allows it: the right, a queue, and a way to make rules.
pub(super) fn usable(order: &HoldOrder) -> Result<(), KernelError> {
    rules::judge_interfaces(order)?;
    drop(open(order)?);
    RulesBackend::find(order).map(|_| ())
}

/// Prepares it.
pub(super) fn prepare(order: &HoldOrder) -> Result<Box<dyn HoldMethod>, KernelError> {
    rules::judge_interfaces(order)?;
    let way = RulesBackend::find(order)?;
    Ok(Box::new(QueueMethod { order: order.clone(), way, keeper: None, may_have_rules: false }))
}

/// Undoes what a dead process left: rules, which let everything pass since.
pub(super) fn undo(order: &HoldOrder, notes: &UndoNotes) -> Result<(), KernelError> {
    // Without the note nothing was made.
    let way = notes.get(WAY).map(|word| RulesBackend::named(word, order)).transpose()?.flatten();
    let Some(way) = way else { return Ok(()) };
    rules::silence(order, &way)?;
    rules::unmake(order, &way).map(|_| ())
}

#[derive(Debug)]
struct QueueMethod {
    order: HoldOrder,
    way: RulesBackend,
    keeper: Option<QueueThread>,
    may_have_rules: bool,
}

impl HoldMethod for QueueMethod {
    fn plan(&self) -> Plan {
        let mut begin = vec![format!("NFQUEUE with a free number, fail-open, at most {} packets", self.order.limit)];
        begin.extend(self.way.describe(&self.order));
        Plan {
            begin,
            end: vec!["release the waiting SYNs in order, remove the rules, close the queue".to_owned()],
            safety: "new connections pass (bypass); the waiting SYNs are lost, and clients retransmit them after 1 s"
                .to_owned(),
        }
    }

    fn begin(&mut self, journal: &mut dyn Journal) -> Result<(), KernelError> {
        journal.note(WAY, self.way.word())?;
        let queue = open(&self.order)?;
        let number = queue.number();
        let deadline = Instant::now() + self.order.max;
        let keeper = QueueThread::start(queue, self.order.limit as usize, deadline);
        // Without rules nothing has come, so that one that is dropped here loses nothing.
        let keeper = keeper.map_err(|error| KernelError::io("thread of the queue", &error))?;
        self.keeper = Some(keeper);
        self.way.make(&self.order, number, &mut self.may_have_rules)
    }

    fn end(&mut self) -> Result<HoldCounts, KernelError> {
        if !self.may_have_rules {
            self.keeper.take().map(QueueThread::finish);
            return Ok(HoldCounts::default());
        }
        if let Some(keeper) = &mut self.keeper {
            // First, because nobody has to wait for what comes next.
            keeper.release();
        }
        rules::silence(&self.order, &self.way)?;
        // The queue is empty when this has ended.
        let mut tally = self.keeper.take().map_or_else(|| Ok(Tally::default()), QueueThread::finish)?;
        let mut remarks = Vec::from_iter(rules::unmake(&self.order, &self.way)?);
        self.may_have_rules = false;
        if tally.repeated > 0 {
            remarks.push(format!("{} SYNs were retransmitted while the first one waited", tally.repeated));
        }
        Ok(HoldCounts { connections: tally.released, over_limit: tally.over_limit, delay: tally.delay(), remarks })
    }
}

fn open(order: &HoldOrder) -> Result<PacketQueue, KernelError> {
    PacketQueue::open(order.limit.saturating_add(SLACK)).map_err(|fault| {
        let mut fault = KernelError::netlink("NFQUEUE", &fault);
        if fault.remedy.is_empty() {
            fault.remedy = "the kernel needs CONFIG_NETFILTER_NETLINK_QUEUE (modprobe nfnetlink_queue); or choose another method by --method".to_owned();
        }
        fault
    })
}

#[cfg(test)]
mod tests;
