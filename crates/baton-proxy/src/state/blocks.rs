//! What objects count: a block of counters for each, in memory that a master keeps for whoever comes after a crash.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use baton_http2::Counts;
use baton_kernel::cells::{CellMemory, Cells, LINE_CELLS};

use super::{COUNTERS, Counter, MeasuredRates};
use crate::sums::{self, ProcessSum};
use crate::times::{CoreTimes, TIMES, Times};

/// Cells of one core: counters, sums of times, longest times, idle connections; whole cache lines.
const PART: usize = (COUNTERS + 2 * TIMES + 1).next_multiple_of(LINE_CELLS);
const SUMS: usize = COUNTERS;
const LONGEST: usize = SUMS + TIMES;
const IDLE: usize = LONGEST + TIMES;

/// What is counted for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Counted {
    /// A frontend, by its name.
    Frontend(Arc<str>),
    /// A backend, by its name.
    Backend(Arc<str>),
    /// A server, by the names of its backend and itself.
    Server(Arc<str>, Arc<str>),
    /// An address of a frontend, by its number there.
    Socket(Arc<str>, u64),
}

impl fmt::Display for Counted {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Counted::Frontend(name) => write!(out, "frontend {name}"),
            Counted::Backend(name) => write!(out, "backend {name}"),
            Counted::Server(backend, name) => write!(out, "server {backend} {name}"),
            Counted::Socket(frontend, number) => write!(out, "socket {frontend} {number}"),
        }
    }
}

impl Counted {
    /// Of its text; `None` for another one.
    fn parse(text: &str) -> Option<Counted> {
        let (kind, name) = text.split_once(' ')?;
        match (kind, name.rsplit_once(' ')) {
            ("frontend", None) => Some(Counted::Frontend(name.into())),
            ("backend", None) => Some(Counted::Backend(name.into())),
            ("server", Some((backend, name))) => Some(Counted::Server(backend.into(), name.into())),
            ("socket", Some((frontend, number))) => Some(Counted::Socket(frontend.into(), number.parse().ok()?)),
            _ => None,
        }
    }
}

/// One object's counters, a part for each core, so that counting is a plain addition without contention.
#[derive(Debug)]
pub struct CounterBlock {
    /// Taken by whoever counts first: of thousands of servers many never do, and memory costs a start more than anything else. The part
    /// behind those of the cores is what processes before this one counted, see [`CounterBlock::inherit`].
    cells: OnceLock<Cells>,
    memory: Arc<CellMemory>,
    of: Counted,
    cores: usize,
    /// For rules that ask for a rate.
    pub rates: MeasuredRates,
}

/// One core's part of a [`CounterBlock`].
#[derive(Clone, Copy, Debug)]
pub struct CoreCounters<'a>(&'a [AtomicU64; PART]);

impl<'a> CoreCounters<'a> {
    /// Adds to a counter. Only for the thread whose core it is: a load and a store, without a locked instruction.
    #[inline]
    pub fn add(self, counter: Counter, amount: u64) {
        let cell = &self.0[counter as usize];
        cell.store(cell.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds what happened on connections that speak HTTP/2. Only for the thread whose core it is.
    pub fn add_http2(self, counts: Counts) {
        let add = |counter, count: u32| {
            if count > 0 {
                self.add(counter, count.into());
            }
        };
        let Counts {
            headers,
            data,
            settings,
            resets,
            go_aways,
            stream_errors,
            connection_errors,
            resets_sent,
            go_aways_sent,
        } = counts;
        add(Counter::Http2Headers, headers);
        add(Counter::Http2Data, data);
        add(Counter::Http2Settings, settings);
        add(Counter::Http2Resets, resets);
        add(Counter::Http2GoAways, go_aways);
        add(Counter::Http2StreamErrors, stream_errors);
        add(Counter::Http2ConnectionErrors, connection_errors);
        add(Counter::Http2ResetsSent, resets_sent);
        add(Counter::Http2GoAwaysSent, go_aways_sent);
    }

    /// How many idle connections this core has with the server. Only for the thread whose core it is.
    #[inline]
    pub fn set_idle(self, connections: u64) {
        self.0[IDLE].store(connections, Ordering::Relaxed);
    }

    /// How long requests took.
    #[inline]
    pub fn times(self) -> CoreTimes<'a> {
        CoreTimes { sums: &self.0[SUMS..LONGEST], longest: &self.0[LONGEST..IDLE] }
    }

    fn get(self, counter: Counter) -> u64 {
        self.0[counter as usize].load(Ordering::Relaxed)
    }
}

impl CounterBlock {
    /// Zero for each of `cores` cores.
    pub fn new(memory: &Arc<CellMemory>, of: Counted, cores: usize) -> CounterBlock {
        let (memory, rates) = (Arc::clone(memory), MeasuredRates::default());
        CounterBlock { cells: OnceLock::new(), memory, of, cores: cores.max(1), rates }
    }

    /// Whether nothing was counted ever, nor inherited.
    pub fn is_untouched(&self) -> bool {
        self.cells.get().is_none()
    }

    /// All parts: of each core, and what was inherited.
    #[inline]
    fn taken(&self) -> &[[AtomicU64; PART]] {
        self.cells.get_or_init(|| self.memory.take(&self.of.to_string(), (self.cores + 1) * PART)).as_chunks().0
    }

    /// The parts that count, and what was inherited; nothing where nobody counts.
    fn parts(&self) -> impl Iterator<Item = CoreCounters<'_>> {
        let parts = self.cells.get().map_or(&[][..], |cells| cells.as_chunks().0);
        parts.iter().map(CoreCounters)
    }

    /// Adds what another process counted, of which this one goes on with the work. From any thread.
    pub fn inherit(&self, counter: Counter, amount: u64) {
        if amount > 0 {
            self.taken()[self.cores][counter as usize].fetch_add(amount, Ordering::Relaxed);
        }
    }

    /// A core's part. A number beyond the block (a reload does not change the number of cores) gives the last one.
    #[inline]
    pub fn of(&self, core: usize) -> CoreCounters<'_> {
        CoreCounters(&self.taken()[core.min(self.cores - 1)])
    }

    /// Adds on behalf of one core: see [`CoreCounters::add`].
    #[inline]
    pub fn add(&self, core: usize, counter: Counter, amount: u64) {
        self.of(core).add(counter, amount);
    }

    /// Idle connections with the server on each core, of those that have used it.
    pub fn idle(&self) -> impl Iterator<Item = u64> {
        self.parts().take(self.cores).map(|part| part.0[IDLE].load(Ordering::Relaxed))
    }

    /// What one core counted.
    pub fn of_core(&self, core: usize, counter: Counter) -> u64 {
        self.parts().take(self.cores).nth(core).map_or(0, |part| part.get(counter))
    }

    /// The sum over all cores, and over the processes before this one.
    pub fn total(&self, counter: Counter) -> u64 {
        self.parts().map(|part| part.get(counter)).fold(0, u64::wrapping_add)
    }

    /// The sum over all cores of this process, whatever processes before it counted and operators cleared: it only grows.
    pub fn grown(&self, counter: Counter) -> u64 {
        self.parts().take(self.cores).map(|part| part.get(counter)).fold(0, u64::wrapping_add)
    }

    /// How long requests took, over all cores.
    pub fn times(&self) -> Times {
        let mut times = Times::default();
        self.parts().for_each(|part| part.times().add_to(&mut times));
        times
    }

    /// All counters begin anew (`clear counters all`). Only a reader's view of them: cores go on counting undisturbed. From
    /// one thread at a time.
    pub fn clear(&self) {
        for (counter, _) in Counter::NAMED {
            let total = self.total(counter);
            self.inherit(counter, total.wrapping_neg());
        }
        self.clear_longest();
    }

    /// Forgets the longest times (`clear counters`).
    pub fn clear_longest(&self) {
        self.parts().for_each(|part| part.times().clear_longest());
    }
}

/// The name of the record that says how the others are to be read: another version of the program has another one.
pub(super) fn layout() -> String {
    let counters = Counter::NAMED.iter().map(|(_, name)| *name);
    let sums = ProcessSum::NAMED.iter().map(|(_, name)| *name);
    counters.chain(["/"]).chain(sums).fold(format!("layout {PART}"), |text, name| text + " " + name)
}

/// What a process has counted: counters of objects that are not zero, and sums of the process.
#[derive(Debug, Default, PartialEq)]
pub struct CountedMemory {
    /// Counters, by object.
    pub objects: Vec<(Counted, Vec<(Counter, u64)>)>,
    /// Sums.
    pub sums: Vec<(ProcessSum, u64)>,
}

/// What a process counted whose memory this was ([`baton_kernel::cells::read`]). Nothing, if another version of the program has counted.
pub fn read_counted(records: &[(String, Vec<u64>)]) -> CountedMemory {
    if !records.iter().any(|(name, _)| *name == layout()) {
        return CountedMemory::default();
    }
    let total = |cells: &[u64], at: usize| cells.chunks_exact(PART).map(|part| part[at]).fold(0, u64::wrapping_add);
    let objects = records.iter().filter_map(|(name, cells)| {
        let counted = Counted::parse(name)?;
        let totals = Counter::NAMED.iter().map(|(counter, _)| (*counter, total(cells, *counter as usize)));
        Some((counted, totals.filter(|(_, total)| *total > 0).collect()))
    });
    let of_process = records.iter().find(|(name, _)| name == sums::RECORD).map_or(&[][..], |(_, cells)| cells);
    let sums = ProcessSum::NAMED.iter().zip(of_process).map(|((sum, _), total)| (*sum, *total));
    CountedMemory { objects: objects.collect(), sums: sums.collect() }
}

#[cfg(test)]
mod tests {
    use baton_kernel::cells::read;

    use super::*;
    use crate::sums::ProcessSums;

    #[test]
    fn every_counter_has_a_name_of_its_own_and_what_was_inherited_counts() {
        let block = CounterBlock::new(&Arc::new(CellMemory::private()), Counted::Frontend("web".into()), 2);
        assert!(block.is_untouched() && block.total(Counter::Requests) == 0);
        for (place, (counter, name)) in Counter::NAMED.iter().enumerate() {
            assert_eq!((*counter as usize, counter.name()), (place, *name));
            assert_eq!(Counter::NAMED.iter().filter(|(_, other)| other == name).count(), 1, "{name}");
        }
        assert_eq!(Counter::NAMED.len(), COUNTERS);
        block.add(1, Counter::Requests, 2);
        block.inherit(Counter::Requests, 40);
        assert_eq!((block.total(Counter::Requests), block.total(Counter::Sessions)), (42, 0));
        assert_eq!((block.of_core(1, Counter::Requests), block.of_core(2, Counter::Requests)), (2, 0));
        block.clear();
        assert_eq!((block.total(Counter::Requests), block.of_core(1, Counter::Requests)), (0, 2));
    }

    #[test]
    fn whoever_comes_after_a_crash_finds_what_was_counted() {
        let memory = Arc::new(CellMemory::shared().unwrap());
        let records = || read(memory.file().unwrap().try_clone_to_owned().unwrap()).unwrap();
        assert_eq!(read_counted(&records()), CountedMemory::default());
        let sums = ProcessSums::new(&memory, &layout());
        sums.add(ProcessSum::TlsHandshakes, 3);
        let all = [
            Counted::Frontend("web".into()),
            Counted::Backend("app".into()),
            Counted::Server("app".into(), "s1".into()),
            Counted::Socket("web".into(), 2),
        ];
        let blocks: Vec<_> = all.iter().map(|of| CounterBlock::new(&memory, of.clone(), 2)).collect();
        for (number, block) in blocks.iter().enumerate() {
            block.add(number % 2, Counter::Requests, 1);
            block.add(0, Counter::BytesIn, 10);
            block.inherit(Counter::BytesIn, 5);
            block.of(1).set_idle(7);
            block.of(1).times().add([std::time::Duration::from_secs(1); TIMES]);
        }
        let CountedMemory { objects, sums: totals } = read_counted(&records());
        let counted = vec![(Counter::BytesIn, 15), (Counter::Requests, 1)];
        assert_eq!(objects, all.map(|of| (of, counted.clone())));
        assert!(totals.contains(&(ProcessSum::TlsHandshakes, 3)) && totals.len() == ProcessSum::NAMED.len());
        // What is not used any more is not found.
        drop(blocks);
        assert_eq!(read_counted(&records()).objects, []);
    }
}
