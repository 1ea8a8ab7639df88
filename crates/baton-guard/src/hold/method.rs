//! What every method of holding is, and where they are found by name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::plan::Plan;
use super::target::Targets;
use super::{drop, migrate, plug, queue};
use crate::KernelError;

/// How new connections are kept from harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MethodName {
    /// The kernel moves what waits in a closing socket to another one of the address (`net.ipv4.tcp_migrate_req`).
    Migrate,
    /// SYNs wait in an NFQUEUE.
    Queue,
    /// SYNs wait in a `plug` queueing discipline.
    Plug,
    /// SYNs are dropped, and clients send them again.
    Drop,
}

impl MethodName {
    /// All, the best one first.
    pub const ALL: [MethodName; 4] = [Self::Migrate, Self::Queue, Self::Plug, Self::Drop];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Migrate => "migrate",
            Self::Queue => "queue",
            Self::Plug => "plug",
            Self::Drop => "drop",
        }
    }

    /// Whether this machine and these targets allow it, as far as can be told without changing anything.
    ///
    /// # Errors
    /// Why not.
    pub fn usable(self, order: &HoldOrder) -> Result<(), KernelError> {
        match self {
            Self::Migrate => migrate::usable(order),
            Self::Queue => queue::usable(order),
            Self::Plug => plug::usable(order),
            Self::Drop => drop::usable(order),
        }
    }
}

impl fmt::Display for MethodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for MethodName {
    type Err = String;

    fn from_str(text: &str) -> Result<MethodName, String> {
        let found = MethodName::ALL.into_iter().find(|name| name.word() == text);
        found.ok_or_else(|| {
            format!("unknown method '{text}'; expected auto, {}", MethodName::ALL.map(MethodName::word).join(", "))
        })
    }
}

/// Everything that a method needs to know. It travels to the guardian and lies in the state file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldOrder {
    /// The number of this run, of which no other living one is: the process id of `baton hold`.
    pub run: u32,
    /// How.
    pub method: MethodName,
    /// Whose new connections.
    pub targets: Targets,
    /// After so long traffic flows, whatever else happens.
    pub max: Duration,
    /// SYNs held at the same time at most; what comes above is let through.
    pub limit: u32,
    /// Network interfaces, where the method wants to know them; empty for the method's own choice.
    pub interfaces: Vec<String>,
}

impl HoldOrder {
    /// The name of kernel objects of this run, such as tables and chains: `baton-hold-` and its number.
    pub fn object_name(&self) -> String {
        format!("baton-hold-{}", self.run)
    }
}

/// What a method wrote down to undo itself later, perhaps by another process: words by name.
pub type UndoNotes = BTreeMap<String, String>;

/// Where notes go: into the state file, before the kernel is changed.
pub trait Journal {
    /// Keeps a note; it is on disk when this returns.
    ///
    /// # Errors
    /// When it cannot be written. Then nothing may be changed that needs it to be undone.
    fn note(&mut self, name: &str, word: &str) -> Result<(), KernelError>;
}

/// One way to hold new connections, prepared for an [`HoldOrder`]. It lives in the guardian process.
///
/// `end` undoes everything that a `begin` did or may have done, also one that failed; it may be called again, and is never called
/// before `begin`. When the process is killed between them, `undo` of the method's module does it from order and notes, in another process. A method that has
/// work to do meanwhile starts a thread.
pub trait HoldMethod {
    /// What it will do. Changes nothing.
    fn plan(&self) -> Plan;

    /// Names of things of the machine that it needs for itself, beside the targets, such as `qdisc lo`: two runs that name the
    /// same one exclude each other.
    fn claims(&self) -> Vec<String> {
        Vec::new()
    }

    /// From here on new connections are held.
    ///
    /// # Errors
    /// When they cannot be; then `end` is called.
    fn begin(&mut self, journal: &mut dyn Journal) -> Result<(), KernelError>;

    /// Lets them go, in their order, and undoes everything.
    ///
    /// # Errors
    /// When something is left; the caller tries again by `undo`.
    fn end(&mut self) -> Result<HoldCounts, KernelError>;
}

/// Prepares the method of an order. Changes nothing.
///
/// # Errors
/// When it cannot work here.
pub fn prepare(order: &HoldOrder) -> Result<Box<dyn HoldMethod>, KernelError> {
    match order.method {
        MethodName::Migrate => migrate::prepare(order),
        MethodName::Queue => queue::prepare(order),
        MethodName::Plug => plug::prepare(order),
        MethodName::Drop => drop::prepare(order),
    }
}

/// Undoes what is left of a run whose process is gone. What is not there is what is wanted.
///
/// # Errors
/// What could not be undone, and why.
pub fn undo(order: &HoldOrder, notes: &UndoNotes) -> Result<(), KernelError> {
    match order.method {
        MethodName::Migrate => migrate::undo(order, notes),
        MethodName::Queue => queue::undo(order, notes),
        MethodName::Plug => plug::undo(order, notes),
        MethodName::Drop => drop::undo(order, notes),
    }
}

/// What was done to new connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HoldCounts {
    /// How many; for `drop` dropped SYNs, for `migrate` connections that were moved, to whatever address: the kernel counts them for
    /// the whole network namespace.
    pub connections: u64,
    /// How many came above the limit and were let through.
    pub over_limit: u64,
    /// What waiting added; `None` when nobody waited, or nobody can know.
    pub delay: Option<Delay>,
    /// Sentences worth telling.
    pub remarks: Vec<String>,
}

/// Times that connections waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Half of them waited at most so long; `None` when only the longest time is known.
    pub median: Option<Duration>,
    /// None waited longer.
    pub longest: Duration,
}
