//! The processes that use a table at the same time, and what one leaves behind that dies.
//!
//! An entry counts who holds it, and `conn_cur` counts connections, of each process. A process that dies gives nothing back, so its part
//! is forgotten: there are two *lanes*, with a half of these cells each, and processes share them evenly. A lane is cleared when the last of
//! its processes is gone. There are hardly ever more than two: the one that serves, and the one before it whose last connections end.

use std::sync::atomic::Ordering;

use baton_kernel::process::{pid_namespace, runs};

use crate::layout::{Form, LOCKS, WHOLE};
use crate::store::{ALIVE, Store, at};

/// Processes that are known; of more, the lanes are not cleared.
const PROCESSES: usize = 60;
/// The cell behind them: whether there were more.
const CROWDED: usize = at::PROCESSES + PROCESSES;
/// One reference, by lane.
const ONE: [u64; 2] = [1 << 1, 1 << 32];
/// All references, by lane.
const ALL: [u64; 2] = [0xffff_fffe, 0xffff_ffff << 32];

const _: () = assert!(CROWDED < at::SHARDS && WHOLE < LOCKS);

/// This process: its PID, its lane, and the namespace in which that PID is one.
fn own_process(lane: usize) -> u64 {
    let namespace = u64::from(pid_namespace().unwrap_or_default()) & 0x3fff_ffff;
    1 << 63 | namespace << 33 | (lane as u64) << 32 | u64::from(std::process::id())
}

/// Whether this process can tell whether that one is running.
fn is_known_here(process: u64) -> bool {
    let namespace = |process: u64| process >> 33 & 0x3fff_ffff;
    namespace(process) != 0 && namespace(process) == namespace(own_process(0))
}

fn lane_of(process: u64) -> usize {
    (process >> 32 & 1) as usize
}

impl Store {
    /// This process uses the table from now on.
    pub(crate) fn attach(&mut self) {
        let _whole = self.lock(WHOLE);
        let counts = [0, 1].map(|lane| self.members().filter(|(_, of)| lane_of(*of) == lane).count());
        let lane = usize::from(counts[1] < counts[0]);
        self.join(lane);
        drop(_whole);
        (self.lane, self.one) = (lane, ONE[lane]);
    }

    /// Makes sure that others know this process. A process that became a daemon has another PID than the one that attached.
    pub(crate) fn stay(&self) {
        let own = own_process(self.lane);
        if !self.members().any(|(_, process)| process == own) {
            let _whole = self.lock(WHOLE);
            self.join(self.lane);
        }
    }

    fn join(&self, lane: usize) {
        let free = (at::PROCESSES..CROWDED).find(|at| self.get(*at) == 0);
        self.head(free.unwrap_or(CROWDED)).store(own_process(lane), Ordering::Release);
    }

    /// This process has given back all that it held.
    pub(crate) fn detach(&self) {
        let _whole = self.lock(WHOLE);
        let own = self.members().find(|(_, of)| *of == own_process(self.lane));
        if let Some((at, _)) = own {
            self.head(at).store(0, Ordering::Release);
        }
    }

    /// Forgets what processes held that are gone. Gives whether others use the table.
    pub(crate) fn look_after_others(&self) -> bool {
        let others = |(_, process): &(usize, u64)| *process as u32 != std::process::id();
        let gone = self.members().filter(others).filter(|(_, process)| is_known_here(*process));
        let gone: Vec<u32> = gone.map(|(_, process)| process as u32).filter(|pid| !runs(*pid)).collect();
        gone.into_iter().for_each(|pid| self.process_ended(pid));
        self.members().any(|member| others(&member))
    }

    /// Whether other processes use the table.
    pub(crate) fn has_others(&self) -> bool {
        self.members().any(|(_, process)| process as u32 != std::process::id())
    }

    /// A process is gone, and what it held is held no longer.
    pub(crate) fn process_ended(&self, pid: u32) {
        let _whole = self.lock(WHOLE);
        let gone: Vec<(usize, u64)> = self.members().filter(|(_, of)| *of as u32 == pid).collect();
        for (at, of) in gone {
            self.head(at).store(0, Ordering::Release);
            let lane = lane_of(of);
            if self.get(CROWDED) == 0 && !self.members().any(|(_, of)| lane_of(of) == lane) {
                self.clear_lane(lane);
            }
        }
    }

    fn members(&self) -> impl Iterator<Item = (usize, u64)> {
        (at::PROCESSES..CROWDED).map(|at| (at, self.get(at))).filter(|(_, process)| *process != 0)
    }

    fn clear_lane(&self, lane: usize) {
        let current = self.layout.slots().find(|(_, _, slot)| slot.form == Form::Lanes);
        let high = self.get(at::HIGH).min(self.layout.capacity) as u32;
        for index in 0..high {
            let holds = self.holds(index);
            if holds.load(Ordering::Relaxed) & ALL[lane] != 0 {
                holds.fetch_and(!ALL[lane], Ordering::AcqRel);
            }
            if let Some((_, _, slot)) = current.filter(|_| holds.load(Ordering::Relaxed) & ALIVE != 0) {
                crate::cells::change_half(self.value(index, slot), lane == 1, |_| 0);
            }
        }
    }

    /// How many references an entry has.
    pub(crate) fn references(&self, index: u32) -> u32 {
        let holds = self.holds(index).load(Ordering::Acquire);
        (((holds & ALL[0]) >> 1) as u32).saturating_add((holds >> 32) as u32)
    }
}
