//! The state file of a run: who holds what, since when, and how to undo it. While a run lives it has the lock of its file; a file
//! without a lock is what a killed run left.
//!
//! A run is two processes, and the lock is both's. When the one that was started is gone, its guardian lets go; one that
//! hangs is ended here, and what it did undone. A file that cannot be read is in nobody's way: it is told, and `release` removes it.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use baton_kernel::process::known::ProcessId;
use baton_kernel::state::{Lock, NamespaceId, State};
use serde::{Deserialize, Serialize};

use super::method::{self, HoldOrder, Journal, MethodName, UndoNotes};
use super::unknown;
use crate::KernelError;

/// Kind of the files.
const KIND: &str = "hold";
/// Kind and name of the lock that is had while files are looked through.
const GATE: (&str, &str) = ("gate", "hold");
/// How long that may take somebody else: what dead runs left is undone meanwhile.
const GATE_MAX: Duration = Duration::from_secs(15);

/// How long a guardian whose run was killed may take to let go, before it is ended; and how often it is looked at meanwhile.
const DYING_MAX: Duration = Duration::from_secs(2);
const DYING_PAUSE: Duration = Duration::from_millis(10);
/// How long a killed guardian may take to be gone.
const KILL_MAX: Duration = Duration::from_secs(2);
/// How often one looks that waits for others to end.
const WAIT_PAUSE: Duration = Duration::from_millis(20);
/// How much longer than its deadline a run may take, with its beginning and its end.
const OVERDUE: Duration = Duration::from_secs(20);

/// What the state file of a run says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRecord {
    /// What was asked for.
    pub order: HoldOrder,
    /// What the method wrote down to be undone.
    pub notes: UndoNotes,
    /// What it needs for itself, beside the targets.
    pub claims: Vec<String>,
    /// The command, for people.
    pub command: String,
    /// How long the hold goes on after the command has ended.
    pub linger: Duration,
    /// When it began, in seconds since 1970.
    pub since: u64,
    /// Where it was written.
    pub place: NamespaceId,
    /// The process that was started.
    pub runner: Option<ProcessId>,
    /// Its guardian, once there is one.
    pub guardian: Option<ProcessId>,
}

impl RunRecord {
    /// A record of this process that begins now.
    pub fn new(order: HoldOrder, claims: Vec<String>, command: String, linger: Duration) -> RunRecord {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let (notes, place, runner) = (UndoNotes::new(), NamespaceId::here(), ProcessId::own());
        RunRecord { order, notes, claims, command, linger, since, place, runner, guardian: None }
    }

    /// How long ago it began, by the wall clock.
    pub fn age(&self) -> Duration {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(self.since);
        // In seconds, as it was written.
        Duration::from_secs(SystemTime::now().duration_since(since).unwrap_or_default().as_secs())
    }

    /// Whether it was written in this boot and this network namespace. What another one had went with it.
    pub fn is_here(&self) -> bool {
        self.place == NamespaceId::here()
    }

    /// Whether the process that was started still runs.
    pub fn is_alive(&self) -> bool {
        self.runner.is_some_and(ProcessId::is_alive)
    }

    /// Whether its deadline has passed, whatever its command does.
    fn is_overdue(&self) -> bool {
        self.age() > self.order.max + OVERDUE
    }

    /// Whether both cannot run at the same time.
    fn excludes(&self, other: &RunRecord) -> bool {
        self.order.targets.overlaps(&other.order.targets)
            || self.claims.iter().any(|claim| other.claims.contains(claim))
    }

    fn name(&self) -> String {
        self.order.run.to_string()
    }

    /// Ends the guardian of a run whose process is gone: it did not let go in its time.
    fn end_guardian(&self, state: &State) -> Result<(), KernelError> {
        let place = format!("the guardian of run {}", self.order.run);
        let Some(guardian) = self.guardian else {
            let lock = state.folder().join(format!("{KIND}-{}.lock", self.order.run));
            let remedy = format!("`fuser -v {}` shows it: end it, then `baton hold release`", lock.display());
            return Err(KernelError::new(place, "hangs, and its PID is not recorded", remedy));
        };
        guardian.kill(KILL_MAX).map_err(|error| {
            let reason = format!("process {} hangs and could not be ended: {error}", guardian.pid);
            KernelError::new(place, reason, "end it, then `baton hold release`")
        })
    }
}

/// A run's place among others: from here on nobody else holds the same targets.
#[derive(Debug)]
pub struct Claimed {
    /// Where its file is.
    pub state: State,
    /// What the file says.
    pub record: RunRecord,
    /// Its life sign; processes that inherit the descriptor keep it too.
    pub lock: Lock,
    /// Files of others that could not be read, and so were not in the way.
    pub unreadable: Vec<UnreadableRecord>,
}

/// Why there is no place.
#[derive(Debug)]
pub enum Refused {
    /// Somebody holds the same.
    Busy(Box<RunRecord>),
    /// Something else.
    Fault(KernelError),
}

impl From<KernelError> for Refused {
    fn from(fault: KernelError) -> Refused {
        Refused::Fault(fault)
    }
}

impl Claimed {
    /// Takes the place of a run, after the leftovers of dead ones were undone. With `wait` it waits for those that hold the same;
    /// each of them holds no longer than its own deadline.
    ///
    /// # Errors
    /// When somebody else holds the same, or the files cannot be used.
    pub fn claim(record: RunRecord, wait: bool) -> Result<Claimed, Refused> {
        let state = State::open(crate::RUN)?;
        let mut dying: Option<(u32, Instant)> = None;
        let mut ended = None;
        loop {
            let gate = gate(&state)?;
            // What cannot be undone elsewhere is no reason not to hold here.
            let in_the_way = clean(&state)?.into_iter().filter(|leftover| leftover.record.excludes(&record));
            if let Some(fault) = in_the_way.filter_map(|leftover| leftover.outcome.err()).next() {
                return Err(fault.into());
            }
            let (others, unreadable) = files(&state)?;
            let Some(other) = others.into_iter().find(|other| other.excludes(&record)) else {
                let name = record.name();
                let lock = state.try_lock(KIND, &name)?.ok_or_else(|| {
                    KernelError::new(format!("run {name}"), "exists already", "see `baton hold status`")
                })?;
                state.write(KIND, &name, &record)?;
                return Ok(Claimed { state, record, lock, unreadable });
            };
            std::mem::drop(gate);
            let run = other.order.run;
            if other.is_alive() {
                if !wait || other.is_overdue() {
                    return Err(Refused::Busy(Box::new(other)));
                }
                thread::sleep(WAIT_PAUSE);
                continue;
            }
            // Its guardian is about to let go, or hangs.
            let until =
                dying.filter(|(of, _)| *of == run).map_or_else(|| Instant::now() + DYING_MAX, |(_, until)| until);
            dying = Some((run, until));
            if Instant::now() < until {
                thread::sleep(DYING_PAUSE);
            } else if ended.replace(run) == Some(run) {
                return Err(Refused::Busy(Box::new(other)));
            } else {
                other.end_guardian(&state)?;
                dying = None;
            }
        }
    }

    /// Writes down which process the guardian is, before it does anything.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn guarded_by(&mut self, pid: u32) -> Result<(), KernelError> {
        self.record.guardian = i32::try_from(pid).ok().and_then(ProcessId::of);
        self.state.write(KIND, &self.record.name(), &self.record)
    }

    /// Forgets the run; nothing of it is left in the kernel.
    ///
    /// # Errors
    /// When the file cannot be removed.
    pub fn forget(self) -> Result<(), KernelError> {
        self.state.remove(KIND, &self.record.name())?;
        self.lock.remove();
        Ok(())
    }

    /// The record as the file has it now: the guardian adds notes. Undoes what it says, and forgets it.
    ///
    /// # Errors
    /// What could not be undone. The file stays, for `baton hold release`.
    pub fn undo(self) -> Result<(), KernelError> {
        if let Some(record) = self.state.read::<RunRecord>(KIND, &self.record.name())? {
            method::undo(&record.order, &record.notes)?;
        }
        self.forget()
    }
}

/// Notes of a method, written into the state file of its run.
#[derive(Debug)]
pub struct File {
    state: State,
    record: RunRecord,
}

impl File {
    /// The file of this record.
    ///
    /// # Errors
    /// When the folder cannot be used.
    pub fn open(record: RunRecord) -> Result<File, KernelError> {
        Ok(File { state: State::open(crate::RUN)?, record })
    }

    /// What it says.
    pub fn record(&self) -> &RunRecord {
        &self.record
    }

    /// Removes it, and the lock's file: nothing of the run is left in the kernel.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn clear(&self) -> Result<(), KernelError> {
        self.state.clear(KIND, &self.record.order.run.to_string())
    }
}

impl Journal for File {
    fn note(&mut self, name: &str, word: &str) -> Result<(), KernelError> {
        self.record.notes.insert(name.to_owned(), word.to_owned());
        self.state.write(KIND, &self.record.order.run.to_string(), &self.record)
    }
}

/// What a killed run left, and what became of it.
#[derive(Debug)]
pub struct UndoneRun {
    /// Its record.
    pub record: RunRecord,
    /// Whether it is undone now.
    pub outcome: Result<(), KernelError>,
}

/// A file that nobody can read.
#[derive(Debug)]
pub struct UnreadableRecord {
    /// Which one, why, and what to do.
    pub fault: KernelError,
    /// The number of its run, if its name is one.
    pub run: Option<u32>,
    /// Whether a run lives that has it.
    pub is_living: bool,
    name: String,
}

/// Runs that live, and what dead ones left.
#[derive(Debug, Default)]
pub struct RecordedRuns {
    /// Those that hold.
    pub living: Vec<RunRecord>,
    /// Those that were killed and whose guardians are still there: letting go, or hanging.
    pub orphaned: Vec<RunRecord>,
    /// Those that were killed with their guardians; nothing was done about them.
    pub dead: Vec<RunRecord>,
    /// Files that nobody can read.
    pub unreadable: Vec<UnreadableRecord>,
}

impl RecordedRuns {
    /// Whether something of killed runs is left.
    pub fn is_left(&self) -> bool {
        !self.dead.is_empty() || !self.orphaned.is_empty() || !self.unreadable.is_empty()
    }
}

/// Looks, and changes nothing.
///
/// # Errors
/// When the folder cannot be read, or somebody else looks through it for too long.
pub fn look() -> Result<RecordedRuns, KernelError> {
    let state = State::open(crate::RUN)?;
    let _gate = gate(&state)?;
    let (records, unreadable) = files(&state)?;
    let mut found = RecordedRuns { unreadable, ..RecordedRuns::default() };
    for record in records {
        match (is_locked(&state, &record.name())?, record.is_alive()) {
            (false, _) => found.dead.push(record),
            (true, true) => found.living.push(record),
            (true, false) => found.orphaned.push(record),
        }
    }
    Ok(found)
}

/// What was done about what killed runs left.
#[derive(Debug)]
pub struct Released {
    /// Guardians that hung and were ended; or could not be.
    pub guardians: Vec<Result<ProcessId, KernelError>>,
    /// What was left.
    pub leftovers: Vec<UndoneRun>,
    /// Files that nobody could read, and whether they are gone now, with all that bears their number.
    pub unreadable: Vec<(UnreadableRecord, Result<(), KernelError>)>,
}

/// Undoes what dead runs left.
///
/// # Errors
/// When the folder cannot be read, or somebody else looks through it for too long.
pub fn release() -> Result<Released, KernelError> {
    let state = State::open(crate::RUN)?;
    let guardians = end_guardians(&state)?;
    let _gate = gate(&state)?;
    let leftovers = clean(&state)?;
    let (living, unreadable) = files(&state)?;
    let has_plug = living.iter().any(|record| record.order.method == MethodName::Plug);
    let mut gone = Vec::new();
    for file in unreadable {
        let Some(lock) = state.try_lock(KIND, &file.name)? else { continue };
        let undone = file.run.map_or(Ok(()), |run| unknown::undo(run, has_plug));
        let outcome = undone.and_then(|()| state.remove(KIND, &file.name));
        lock.remove();
        gone.push((file, outcome));
    }
    Ok(Released { guardians, leftovers, unreadable: gone })
}

/// Ends guardians that do not let go though their runs are gone.
fn end_guardians(state: &State) -> Result<Vec<Result<ProcessId, KernelError>>, KernelError> {
    let until = Instant::now() + DYING_MAX;
    let mut ended = Vec::new();
    for record in files(state)?.0.into_iter().filter(|record| !record.is_alive()) {
        let is_locked = || is_locked(state, &record.name());
        let mut hangs = is_locked()?;
        while hangs && Instant::now() < until {
            thread::sleep(DYING_PAUSE);
            hangs = is_locked()?;
        }
        if hangs {
            let done = record.end_guardian(state);
            ended.extend(done.map(|()| record.guardian).transpose());
        }
    }
    Ok(ended)
}

/// Whether somebody has the lock of a run. One that nobody has leaves no file.
fn is_locked(state: &State, name: &str) -> Result<bool, KernelError> {
    let lock = state.try_lock(KIND, name)?;
    Ok(lock.map(Lock::remove).is_none())
}

/// The lock that is had while files are looked through.
fn gate(state: &State) -> Result<Lock, KernelError> {
    state.lock_within(GATE.0, GATE.1, GATE_MAX)
}

/// Under the gate's lock.
fn clean(state: &State) -> Result<Vec<UndoneRun>, KernelError> {
    let mut leftovers = Vec::new();
    for record in files(state)?.0 {
        let name = record.name();
        let Some(lock) = state.try_lock(KIND, &name)? else { continue };
        // What it had in another place went with that; what has its names here is somebody else's.
        let undone = if record.is_here() { method::undo(&record.order, &record.notes) } else { Ok(()) };
        let outcome = undone.and_then(|()| state.remove(KIND, &name)).map(|()| lock.remove());
        leftovers.push(UndoneRun { record, outcome });
    }
    Ok(leftovers)
}

/// All files: what they say, and those that nobody can read.
fn files(state: &State) -> Result<(Vec<RunRecord>, Vec<UnreadableRecord>), KernelError> {
    let (mut records, mut unreadable) = (Vec::new(), Vec::new());
    for name in state.names(KIND)? {
        match state.read::<RunRecord>(KIND, &name) {
            // Gone meanwhile.
            Ok(None) => {}
            Ok(Some(record)) if record.name() == name => records.push(record),
            Ok(Some(record)) => {
                let path: PathBuf = state.folder().join(format!("{KIND}-{name}.json"));
                let reason = format!("its content is that of run {}", record.order.run);
                unreadable.push(self::unreadable(
                    state,
                    name,
                    KernelError::new(path.display().to_string(), reason, ""),
                )?);
            }
            Err(fault) => unreadable.push(self::unreadable(state, name, fault)?),
        }
    }
    Ok((records, unreadable))
}

fn unreadable(state: &State, name: String, fault: KernelError) -> Result<UnreadableRecord, KernelError> {
    let is_living = is_locked(state, &name)?;
    let remedy = match is_living {
        true => {
            "a running `baton hold` uses it, perhaps of another version: run `baton hold status` again when it has ended"
        }
        false => "`baton hold release` removes it, with leftovers of its run",
    };
    let fault = KernelError { remedy: remedy.to_owned(), ..fault };
    Ok(UnreadableRecord { fault, run: name.parse().ok(), is_living, name })
}

#[cfg(test)]
mod tests {
    use super::super::target::Targets;
    use super::*;

    fn record(run: u32) -> RunRecord {
        let targets = Targets::new(vec!["127.0.0.1:80".parse().unwrap()]).unwrap();
        let (method, max) = (MethodName::Drop, Duration::from_secs(1));
        let order = HoldOrder { run, method, targets, max, limit: 1, interfaces: Vec::new() };
        RunRecord::new(order, Vec::new(), "true".into(), Duration::ZERO)
    }

    #[test]
    fn a_record_knows_its_place_and_its_process() {
        let here = record(1);
        assert!(here.is_here() && here.is_alive() && !here.is_overdue());
        let long_ago = RunRecord { since: 0, ..here.clone() };
        assert!(long_ago.is_overdue());
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<RunRecord>(&text).unwrap(), here);
        let elsewhere = text.replace("\"netns\":", "\"netns\":1");
        assert!(!serde_json::from_str::<RunRecord>(&elsewhere).unwrap().is_here());
    }
}
