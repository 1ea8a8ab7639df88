//! Variables of the process, scope `proc` (configuration manual 7.3.2 `var`): one set for all cores, which outlives configurations.
//!
//! A value is read without a lock, and stays as it was read for the rest of an evaluation. Rules that name no such variable do not come here.
//! How many there are and how long each is has a bound, and `tune.vars.proc-max-size` bounds their sum.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use baton_model::VariableLimits;

use crate::sample::Sample;
use crate::variable::{VARIABLE_BYTES_MAX, VariableName};

/// The most variables of a process; setting one more does nothing.
pub const PROCESS_VARIABLES_MAX: usize = 4096;

/// What `tune.vars.*` count of a variable besides its text, as HAProxy 2.6 does.
pub(crate) const VARIABLE_BYTES: usize = 80;

/// A value while somebody looks at it.
pub(crate) type ReadValue = Guard<Option<Arc<Sample<'static>>>>;

type Slot = ArcSwapOption<Sample<'static>>;
type Slots = HashMap<Arc<str>, Arc<Slot>>;

/// The variables of the process.
#[derive(Debug, Default)]
pub struct ProcessVariables {
    /// By full name. Another one replaces it when a name is added.
    slots: ArcSwap<Slots>,
    written: Mutex<Written>,
    /// How often one was set or unset.
    edition: AtomicU64,
    /// `tune.vars.*`.
    limits: ArcSwap<VariableLimits>,
    /// Bytes of the variables of sessions, while a limit includes them.
    sessions: Arc<AtomicUsize>,
}

/// What belongs to whoever writes.
#[derive(Debug, Default)]
struct Written {
    /// Bytes of all of them, as the limits count.
    bytes: usize,
    /// By full name, the lines of the file that were applied last.
    lines: BTreeMap<Arc<str>, String>,
}

/// A variable as another process or the master keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeptProcessVariable {
    /// Its full name.
    pub name: Arc<str>,
    /// `None`: it is not set, but lines of the file have set it.
    pub value: Option<Arc<Sample<'static>>>,
    /// The lines of the file that were applied last; empty: none.
    pub lines: String,
}

impl ProcessVariables {
    /// The value of a variable now.
    pub fn value(&self, name: &str) -> Option<Arc<Sample<'static>>> {
        self.slots.load().get(name)?.load_full()
    }

    /// The value for an evaluation.
    pub(crate) fn read(&self, name: &str) -> ReadValue {
        match self.slots.load().get(name) {
            Some(slot) => slot.load(),
            None => Guard::from_inner(None),
        }
    }

    /// Sets a variable. What is too long, or too much, is not stored: the variable is then unset.
    pub fn set(&self, name: &VariableName, value: Sample<'static>) {
        let bytes = value.added_bytes();
        let mut written = self.written();
        let before = self.read(name.full()).as_ref().map_or(0, |value| counted(value));
        let limit = self.limits().within_process();
        let sum = written.bytes - before + VARIABLE_BYTES + bytes;
        if bytes > VARIABLE_BYTES_MAX || sum.saturating_add(self.sessions.load(Ordering::Relaxed)) > limit {
            return self.store(&mut written, name.full(), None);
        }
        self.store(&mut written, name.full(), Some(Arc::new(value)));
    }

    /// Forgets a variable.
    pub fn unset(&self, name: &VariableName) {
        self.store(&mut self.written(), name.full(), None);
    }

    /// How often one was set or unset: as long as it is the same, so are the variables.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Relaxed)
    }

    /// All of them, by name.
    pub fn list(&self) -> Vec<KeptProcessVariable> {
        let written = self.written();
        let mut all: BTreeMap<Arc<str>, KeptProcessVariable> = BTreeMap::new();
        let none = |name: &Arc<str>| KeptProcessVariable { name: name.clone(), value: None, lines: String::new() };
        for (name, slot) in self.slots.load().iter() {
            if let Some(value) = slot.load_full() {
                all.insert(name.clone(), KeptProcessVariable { value: Some(value), ..none(name) });
            }
        }
        for (name, lines) in &written.lines {
            all.entry(name.clone()).or_insert_with(|| none(name)).lines.clone_from(lines);
        }
        all.into_values().collect()
    }

    /// Goes on with those of another process.
    pub fn recall(&self, kept: impl IntoIterator<Item = KeptProcessVariable>) {
        let mut written = self.written();
        let mut slots = Slots::clone(&self.slots.load());
        for KeptProcessVariable { name, value, lines } in kept {
            if !lines.is_empty() && written.lines.len() < PROCESS_VARIABLES_MAX {
                written.lines.insert(name.clone(), lines);
            }
            let Some(value) = value.filter(|value| value.added_bytes() <= VARIABLE_BYTES_MAX) else { continue };
            if slots.len() < PROCESS_VARIABLES_MAX || slots.contains_key(&name) {
                let before = slots.entry(name).or_default().swap(Some(Arc::clone(&value)));
                written.bytes = written.bytes + counted(&value) - before.as_deref().map_or(0, counted);
            }
        }
        self.slots.store(Arc::new(slots));
        self.edition.fetch_add(1, Ordering::Relaxed);
    }

    /// The lines of a variable in the file are these now; gives whether they were others. `None`: there are none any more.
    pub(crate) fn change_lines(&self, name: &Arc<str>, lines: Option<String>) -> bool {
        let mut written = self.written();
        match lines {
            None => written.lines.remove(name).is_some(),
            Some(lines) if written.lines.get(name) == Some(&lines) => false,
            Some(lines) => {
                written.lines.insert(name.clone(), lines);
                true
            }
        }
    }

    /// The names of which the file had lines.
    pub(crate) fn names_of_lines(&self) -> Vec<Arc<str>> {
        self.written().lines.keys().cloned().collect()
    }

    /// From now on these limits hold for what is set.
    pub fn limit(&self, limits: &VariableLimits) {
        if **self.limits.load() != *limits {
            self.limits.store(Arc::new(*limits));
        }
    }

    /// The limits in force.
    pub(crate) fn limits(&self) -> VariableLimits {
        **self.limits.load()
    }

    /// Where variables of sessions are counted that a limit of the process includes.
    pub(crate) fn sessions(&self) -> &Arc<AtomicUsize> {
        &self.sessions
    }

    /// Bytes of all variables, those of sessions included as far as they are counted.
    pub(crate) fn bytes(&self) -> usize {
        self.written().bytes.saturating_add(self.sessions.load(Ordering::Relaxed))
    }

    fn store(&self, written: &mut Written, name: &Arc<str>, value: Option<Arc<Sample<'static>>>) {
        let added = value.as_deref().map_or(0, counted);
        let slots = self.slots.load();
        let before = match (slots.get(name), value) {
            (Some(slot), value) => slot.swap(value),
            (None, None) => return,
            (None, Some(value)) => {
                // Names that are not set any more make room.
                let used = |(_, slot): &(&Arc<str>, &Arc<Slot>)| slot.load().is_some();
                let mut next: Slots =
                    slots.iter().filter(used).map(|(name, slot)| (name.clone(), slot.clone())).collect();
                if next.len() >= PROCESS_VARIABLES_MAX {
                    return;
                }
                next.insert(name.clone(), Arc::new(Slot::from(Some(value))));
                self.slots.store(Arc::new(next));
                None
            }
        };
        written.bytes = written.bytes + added - before.as_deref().map_or(0, counted);
        self.edition.fetch_add(1, Ordering::Relaxed);
    }

    fn written(&self) -> MutexGuard<'_, Written> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the limits count of a value.
pub(crate) fn counted(value: &Sample<'_>) -> usize {
    VARIABLE_BYTES + value.added_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> VariableName {
        VariableName::parse(text).expect("a name")
    }

    fn text(length: usize) -> Sample<'static> {
        Sample::Str(vec![b'x'; length].into())
    }

    #[test]
    fn values_are_seen_by_all_and_counted_exactly() {
        let all = ProcessVariables::default();
        assert_eq!(all.value("proc.a"), None);
        all.set(&name("proc.a"), Sample::Int(1));
        all.set(&name("proc.b"), text(5));
        all.set(&name("proc.b"), text(7));
        assert_eq!((all.value("proc.b").as_deref(), all.bytes()), (Some(&text(7)), 2 * VARIABLE_BYTES + 7));
        let edition = all.edition();
        all.unset(&name("proc.b"));
        all.unset(&name("proc.c"));
        assert_eq!((all.value("proc.b"), all.bytes(), all.edition()), (None, VARIABLE_BYTES, edition + 1));
        all.set(&name("proc.a"), text(VARIABLE_BYTES_MAX + 1));
        assert_eq!((all.value("proc.a"), all.bytes()), (None, 0), "too long: unset");
    }

    #[test]
    fn a_limit_bounds_their_sum_and_their_number() {
        let all = ProcessVariables::default();
        all.limit(&VariableLimits { process: Some(200), ..VariableLimits::default() });
        all.set(&name("proc.a"), text(120));
        assert!(all.value("proc.a").is_some());
        all.set(&name("proc.b"), Sample::Int(1));
        assert_eq!(all.value("proc.b"), None, "no room");
        all.set(&name("proc.a"), text(121));
        assert_eq!(all.value("proc.a"), None);
        all.set(&name("proc.b"), Sample::Int(1));
        assert!(all.value("proc.b").is_some(), "there is room again");

        all.limit(&VariableLimits::default());
        let value = Arc::new(Sample::Int(0));
        let kept = |number| KeptProcessVariable {
            name: format!("proc.v{number}").into(),
            value: Some(value.clone()),
            lines: String::new(),
        };
        all.recall((0..PROCESS_VARIABLES_MAX + 3).map(kept));
        all.set(&name("proc.one_more"), Sample::Int(0));
        assert_eq!((all.list().len(), all.value("proc.one_more")), (PROCESS_VARIABLES_MAX, None));
        all.unset(&name("proc.b"));
        all.set(&name("proc.new"), Sample::Int(0));
        assert!(all.value("proc.new").is_some(), "an unset name makes room");
    }

    #[test]
    fn what_was_kept_is_there_again() {
        let (before, after) = (ProcessVariables::default(), ProcessVariables::default());
        before.set(&name("proc.a"), text(3));
        assert!(before.change_lines(name("proc.b").full(), Some("int(1)".into())));
        after.recall(before.list());
        assert_eq!(after.list(), before.list());
        assert!(!after.change_lines(name("proc.b").full(), Some("int(1)".into())), "the file has not changed");
        assert!(after.change_lines(name("proc.b").full(), None));
    }

    #[test]
    fn readers_and_writers_on_many_threads_agree() {
        let all = ProcessVariables::default();
        let names: Vec<VariableName> = (0..8).map(|number| name(&format!("proc.v{number}"))).collect();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (all, names) = (&all, &names);
                scope.spawn(move || {
                    for round in 0..2000 {
                        let name = &names[(round * 7 + thread) % names.len()];
                        match round % 5 {
                            0 => all.unset(name),
                            _ => all.set(name, text(round % 50)),
                        }
                        drop(all.value(name.full()));
                    }
                });
            }
        });
        let sum: usize = all.list().iter().filter_map(|one| one.value.as_deref()).map(counted).sum();
        assert_eq!(all.bytes(), sum);
    }
}
