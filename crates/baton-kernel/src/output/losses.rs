//! What is counted of log lines and messages that were lost, for each target by its name. Under a master it is counted in memory
//! that the master keeps ([`count_in`]), for whoever comes after a crash.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tokio::sync::Notify;

use crate::cells::{CellMemory, Cells};

/// Targets that are remembered although no configuration names them any more, because lines to them were lost.
const UNUSED_MAX: usize = 64;
/// The beginning of the name of a target's record in the memory that a master keeps; the target's name follows.
const RECORD: &str = "lost_lines ";

/// Lines to one target that were lost.
#[derive(Debug)]
pub struct Losses {
    name: String,
    /// Those that were counted before there was a memory to count in.
    early: AtomicU64,
    /// The others.
    lost: OnceLock<Cells>,
    /// How many of them a process before this one had lost.
    inherited: AtomicU64,
    /// `errno` of the last loss.
    error: AtomicI32,
    /// `errno` of a failure to reach the target that was not reported yet; 0 without one.
    missing: AtomicI32,
    /// Whether the reader of [`reports`](crate::output::losses::reported) knows that there is something to read.
    is_told: AtomicBool,
}

/// Of all targets of this process.
static ALL: Mutex<Vec<Arc<Losses>>> = Mutex::new(Vec::new());
static TOTAL: AtomicU64 = AtomicU64::new(0);
static MEMORY: OnceLock<Arc<CellMemory>> = OnceLock::new();
static NEWS: Notify = Notify::const_new();

/// The losses of the target of this name.
pub fn of(name: &str) -> Arc<Losses> {
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = all.iter().find(|losses| losses.name == name) {
        return known.clone();
    }
    let mut unused = 0;
    all.retain(|losses| {
        let is_used = Arc::strong_count(losses) > 1;
        unused += usize::from(!is_used && losses.lost() > 0);
        is_used || losses.lost() > 0 && unused <= UNUSED_MAX
    });
    let new = Arc::new(Losses {
        name: name.to_owned(),
        early: AtomicU64::new(0),
        lost: OnceLock::new(),
        inherited: AtomicU64::new(0),
        error: AtomicI32::new(0),
        missing: AtomicI32::new(0),
        is_told: AtomicBool::new(false),
    });
    if let Some(memory) = MEMORY.get() {
        new.count_in(memory);
    }
    all.push(new.clone());
    new
}

/// Counts in this memory from now on, whatever the target. Only the first memory is used.
pub fn count_in(memory: &Arc<CellMemory>) {
    let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    if MEMORY.set(Arc::clone(memory)).is_ok() {
        all.iter().for_each(|losses| losses.count_in(memory));
    }
}

/// Lines that a process lost whose memory this was ([`cells::read`](crate::cells::read)), by target.
pub fn read(records: &[(String, Vec<u64>)]) -> impl Iterator<Item = (&str, u64)> {
    records
        .iter()
        .filter_map(|(name, cells)| Some((name.strip_prefix(RECORD)?, *cells.first()?)))
        .filter(|(_, lost)| *lost > 0)
}

/// The losses of every target, in the order in which the targets were first named.
pub fn all() -> Vec<Arc<Losses>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Lines lost by this process, whatever the target.
pub fn total() -> u64 {
    TOTAL.load(Ordering::Relaxed)
}

/// Ready when a line was lost at a target whose next loss [wakes](Losses::wake_by_next). For one reader.
pub async fn happened() {
    NEWS.notified().await;
}

/// Wakes whoever waits for [`happened`].
pub(crate) fn tell() {
    NEWS.notify_one();
}

fn number_of(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(nix::libc::EIO)
}

/// An error as [`Losses::reason`] has it.
pub fn describe(error: &io::Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), |number| nix::errno::Errno::from_raw(number).desc().into())
}

impl Losses {
    /// The target's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Lines lost so far, with those of processes before this one.
    pub fn lost(&self) -> u64 {
        let early = self.early.load(Ordering::Relaxed);
        self.lost.get().map_or(0, |cells| cells[0].load(Ordering::Relaxed)).saturating_add(early)
    }

    /// How many of them a process before this one had lost.
    pub fn inherited(&self) -> u64 {
        self.inherited.load(Ordering::Relaxed)
    }

    /// Counts lines that a process before this one had lost, and reported.
    pub fn inherit(&self, lines: u64) {
        TOTAL.fetch_add(lines, Ordering::Relaxed);
        self.inherited.fetch_add(lines, Ordering::Relaxed);
        self.counter().fetch_add(lines, Ordering::Relaxed);
    }

    /// Why the last one was lost.
    pub fn reason(&self) -> String {
        match self.error.load(Ordering::Relaxed) {
            0 => "the reader is too slow".into(),
            number => nix::errno::Errno::from_raw(number).desc().into(),
        }
    }

    /// Counts lines that were lost by this error; `None`: by a queue that was full.
    pub fn add(&self, lines: u64, error: Option<&io::Error>) {
        self.error.store(error.map_or(0, number_of), Ordering::Relaxed);
        TOTAL.fetch_add(lines, Ordering::Relaxed);
        self.counter().fetch_add(lines, Ordering::Relaxed);
        self.wake();
    }

    /// The target cannot be reached, by this error; no line was lost yet.
    pub fn is_missing(&self, error: &io::Error) {
        self.missing.store(number_of(error), Ordering::Relaxed);
        self.wake();
    }

    /// Why it could not be reached, if that was not asked for before.
    pub fn take_missing(&self) -> Option<String> {
        match self.missing.swap(0, Ordering::Relaxed) {
            0 => None,
            number => Some(nix::errno::Errno::from_raw(number).desc().into()),
        }
    }

    /// Where lines are counted now.
    fn counter(&self) -> &AtomicU64 {
        self.lost.get().map_or(&self.early, |cells| &cells[0])
    }

    fn count_in(&self, memory: &Arc<CellMemory>) {
        let cells = memory.take(&format!("{RECORD}{}", self.name), 1);
        if self.lost.set(cells).is_ok() {
            let early = self.early.swap(0, Ordering::Relaxed);
            self.counter().fetch_add(early, Ordering::Relaxed);
        }
    }

    fn wake(&self) {
        // Looked at before it is changed: nothing is written to shared memory while the report is due anyway.
        if !self.is_told.load(Ordering::SeqCst) && !self.is_told.swap(true, Ordering::SeqCst) {
            tell();
        }
    }

    /// Whether the next loss wakes whoever waits for [`happened`].
    pub fn wake_by_next(&self, wakes: bool) {
        self.is_told.store(!wakes, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells;

    #[test]
    fn whoever_comes_after_a_crash_finds_what_was_lost() {
        let memory = Arc::new(CellMemory::shared().unwrap());
        let before = of("a target from before there was a memory");
        before.add(3, None);
        count_in(&memory);
        count_in(&Arc::new(CellMemory::private()));
        let (after, unharmed) = (of("a target since then"), of("a target that lost nothing"));
        before.add(1, None);
        after.inherit(40);
        after.add(2, None);
        assert_eq!((before.lost(), after.lost(), after.inherited(), unharmed.lost()), (4, 42, 40, 0));
        let records = cells::read(memory.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        let mut lost: Vec<_> = read(&records).filter(|(name, _)| name.starts_with("a target")).collect();
        lost.sort_unstable();
        assert_eq!(lost, [("a target from before there was a memory", 4), ("a target since then", 42)]);
    }
}
