//! The state file of a run: who holds what, since when, and how to undo it. While a run lives it has the lock of its file; a file
//! without a lock is what a killed run left.

use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use serde::{Deserialize, Serialize};

use super::method::{self, Journal, Notes, Order};
use crate::Fault;
use baton_kernel::state::{Lock, State};

/// Kind of the files.
const KIND: &str = "hold";
/// Kind and name of the lock that is had while files are looked through.
const GATE: (&str, &str) = ("gate", "hold");

/// How long a run is waited for whose process was killed, and how often it is looked at meanwhile.
const DYING_MAX: Duration = Duration::from_secs(2);
const DYING_PAUSE: Duration = Duration::from_millis(10);

/// What the state file of a run says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// What was asked for.
    pub order: Order,
    /// What the method wrote down to be undone.
    pub notes: Notes,
    /// What it needs for itself, beside the targets.
    pub claims: Vec<String>,
    /// The command, for people.
    pub command: String,
    /// How long the hold goes on after the command has ended.
    pub linger: Duration,
    /// When it began, in seconds since 1970.
    pub since: u64,
}

impl Record {
    /// A record that begins now.
    pub fn new(order: Order, claims: Vec<String>, command: String, linger: Duration) -> Record {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        Record { order, notes: Notes::new(), claims, command, linger, since }
    }

    /// How long ago it began, by the wall clock.
    pub fn age(&self) -> Duration {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(self.since);
        SystemTime::now().duration_since(since).unwrap_or_default()
    }

    /// Whether the process that was started still runs.
    fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.order.run)).unwrap_or_default();
        // Until somebody has waited for it, one that has ended is a zombie.
        stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
    }

    /// Whether both cannot run at the same time.
    fn excludes(&self, other: &Record) -> bool {
        self.order.targets.overlaps(&other.order.targets)
            || self.claims.iter().any(|claim| other.claims.contains(claim))
    }
}

/// A run's place among others: from here on nobody else holds the same targets.
#[derive(Debug)]
pub struct Claimed {
    /// Where its file is.
    pub state: State,
    /// What the file says.
    pub record: Record,
    /// Its life sign; processes that inherit the descriptor keep it too.
    pub lock: Lock,
}

/// Why there is no place.
#[derive(Debug)]
pub enum Refused {
    /// Somebody holds the same.
    Busy(Box<Record>),
    /// Something else.
    Fault(Fault),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

impl Claimed {
    /// Takes the place of a run, after the leftovers of dead ones were undone. With `wait` it waits for those that hold the same;
    /// each of them holds no longer than its own deadline.
    ///
    /// # Errors
    /// When somebody else holds the same, or the files cannot be used.
    pub fn claim(record: Record, wait: bool) -> Result<Claimed, Refused> {
        let state = State::open(crate::RUN)?;
        let patience = Instant::now() + DYING_MAX;
        loop {
            let gate = state.lock(GATE.0, GATE.1)?;
            // What cannot be undone elsewhere is no reason not to hold here.
            let in_the_way = clean(&state)?.into_iter().filter(|leftover| leftover.record.excludes(&record));
            if let Some(fault) = in_the_way.filter_map(|leftover| leftover.outcome.err()).next() {
                return Err(fault.into());
            }
            let Some(other) = records(&state)?.into_iter().find(|other| other.excludes(&record)) else {
                let name = record.order.run.to_string();
                let lock = state
                    .try_lock(KIND, &name)?
                    .ok_or_else(|| Fault::new(format!("run {name}"), "is there already", "see `baton hold status`"))?;
                state.write(KIND, &name, &record)?;
                return Ok(Claimed { state, record, lock });
            };
            std::mem::drop(gate);
            if wait {
                state.lock(KIND, &other.order.run.to_string())?.remove();
            } else if other.is_alive() || Instant::now() >= patience {
                return Err(Refused::Busy(Box::new(other)));
            } else {
                // Its guardian is about to let go, or to be gone itself.
                thread::sleep(DYING_PAUSE);
            }
        }
    }

    /// Forgets the run; nothing of it is left in the kernel.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(self) -> Result<(), Fault> {
        self.state.remove(KIND, &self.record.order.run.to_string())?;
        self.lock.remove();
        Ok(())
    }

    /// The record as the file has it now: the guardian adds notes. Undoes what it says, and forgets it.
    ///
    /// # Errors
    /// What could not be undone. The file stays, for `baton hold release`.
    pub fn undo(self) -> Result<(), Fault> {
        if let Some(record) = self.state.read::<Record>(KIND, &self.record.order.run.to_string())? {
            method::undo(&record.order, &record.notes)?;
        }
        self.forget()
    }
}

/// Notes of a method, written into the state file of its run.
#[derive(Debug)]
pub struct File {
    state: State,
    record: Record,
}

impl File {
    /// The file of this record.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(record: Record) -> Result<File, Fault> {
        Ok(File { state: State::open(crate::RUN)?, record })
    }

    /// What it says.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Removes it, and the lock's file: nothing of the run is left in the kernel.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn clear(&self) -> Result<(), Fault> {
        self.state.clear(KIND, &self.record.order.run.to_string())
    }
}

impl Journal for File {
    fn note(&mut self, name: &str, word: &str) -> Result<(), Fault> {
        self.record.notes.insert(name.to_owned(), word.to_owned());
        self.state.write(KIND, &self.record.order.run.to_string(), &self.record)
    }
}

/// What a killed run left, and what became of it.
#[derive(Debug)]
pub struct Leftover {
    /// Its record.
    pub record: Record,
    /// Whether it is undone now.
    pub outcome: Result<(), Fault>,
}

/// Runs that live, and what dead ones left.
#[derive(Debug)]
pub struct Found {
    /// Those that hold.
    pub living: Vec<Record>,
    /// Those that were killed with their guardians; nothing was done about them.
    pub dead: Vec<Record>,
}

/// Looks, and changes nothing.
///
/// # Errors
/// When the files cannot be read.
pub fn look() -> Result<Found, Fault> {
    let state = State::open(crate::RUN)?;
    let _gate = state.lock(GATE.0, GATE.1)?;
    let mut found = Found { living: Vec::new(), dead: Vec::new() };
    for record in records(&state)? {
        match state.try_lock(KIND, &record.order.run.to_string())? {
            Some(_) => found.dead.push(record),
            None => found.living.push(record),
        }
    }
    Ok(found)
}

/// Undoes what dead runs left.
///
/// # Errors
/// When the files cannot be read.
pub fn release() -> Result<Vec<Leftover>, Fault> {
    let state = State::open(crate::RUN)?;
    let _gate = state.lock(GATE.0, GATE.1)?;
    clean(&state)
}

/// Under the gate's lock.
fn clean(state: &State) -> Result<Vec<Leftover>, Fault> {
    let mut leftovers = Vec::new();
    for record in records(state)? {
        let name = record.order.run.to_string();
        let Some(lock) = state.try_lock(KIND, &name)? else { continue };
        let undone = method::undo(&record.order, &record.notes);
        let outcome = undone.and_then(|()| state.remove(KIND, &name)).map(|()| lock.remove());
        leftovers.push(Leftover { record, outcome });
    }
    Ok(leftovers)
}

fn records(state: &State) -> Result<Vec<Record>, Fault> {
    let read = |name: String| state.read(KIND, &name).transpose();
    state.names(KIND)?.into_iter().filter_map(read).collect()
}
