//! The steps of a change that takes several: each is done, undone and printed by the same words, so that a plan is what is done
//! and a refused change leaves what was there.

use std::fmt;

use baton_kernel::ipset::Ipsets;

use crate::KernelError;
use crate::iptables::Iptables;

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum KernelChange {
    /// One `iptables-restore --noflush` of one table, which the kernel takes whole or not at all.
    Rules {
        /// By which program.
        iptables: Iptables,
        /// Which table.
        table: String,
        /// What it reads.
        script: String,
        /// What it reads to have the table as it was.
        undo: String,
    },
    /// A new set of ports, of this one.
    Create { set: String, port: u16 },
    /// Its port into a set that was made by the same change.
    Add { set: String, port: u16 },
    /// Two sets change places.
    Swap { one: String, other: String },
    /// A set that no rule looks into is gone. This is not undone: such steps are the last ones.
    Destroy { set: String },
}

impl KernelChange {
    pub fn run(&self) -> Result<(), KernelError> {
        match self {
            KernelChange::Rules { iptables, table, script, .. } => Ok(iptables.restore(table, script)?),
            KernelChange::Create { set, port } => Ok(Ipsets::open()?.create(set, *port)?),
            KernelChange::Add { set, port } => Ok(Ipsets::open()?.add(set, *port)?),
            KernelChange::Swap { one, other } => Ok(Ipsets::open()?.swap(one, other)?),
            KernelChange::Destroy { set } => Ok(Ipsets::open()?.destroy(set)?),
        }
    }

    fn undo(&self) -> Result<(), KernelError> {
        match self {
            KernelChange::Rules { iptables, table, undo, .. } => Ok(iptables.restore(table, undo)?),
            KernelChange::Create { set, .. } => Ok(Ipsets::open()?.destroy(set)?),
            KernelChange::Swap { .. } => self.run(),
            // It goes with its set.
            KernelChange::Add { .. } | KernelChange::Destroy { .. } => Ok(()),
        }
    }
}

/// Does all of them in their order. When one is refused, those before it are undone, the last one first.
pub(super) fn all(acts: &[KernelChange]) -> Result<(), KernelError> {
    for (at, act) in acts.iter().enumerate() {
        if let Err(mut fault) = act.run() {
            for done in acts[..at].iter().rev() {
                if let Err(second) = done.undo() {
                    fault.reason.push_str(&format!("; and the previous steps could not be undone: {second}"));
                }
            }
            return Err(fault);
        }
    }
    Ok(())
}

/// Does each of them, also when another one is refused; gives the first refusal.
pub(super) fn each(acts: &[KernelChange]) -> Result<(), KernelError> {
    acts.iter().map(KernelChange::run).fold(Ok(()), Result::and)
}

impl fmt::Display for KernelChange {
    /// As somebody would type it in a shell.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KernelChange::Rules { iptables, script, .. } => f.write_str(&iptables.typed(script)),
            KernelChange::Create { set, port } => write!(f, "ipset create {set} bitmap:port range {port}-{port}"),
            KernelChange::Add { set, port } => write!(f, "ipset add {set} {port}"),
            KernelChange::Swap { one, other } => write!(f, "ipset swap {one} {other}"),
            KernelChange::Destroy { set } => write!(f, "ipset destroy {set}"),
        }
    }
}

/// A line for each.
pub(super) fn typed(acts: &[KernelChange]) -> Vec<String> {
    acts.iter().map(KernelChange::to_string).collect()
}
