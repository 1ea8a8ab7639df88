//! What is done to the server while the load runs: an event at every beat, in stretches, with quiet between them.

use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::sleep_until;

use super::processes::Processes;
use crate::Phase;
use crate::proof::Event;

/// How long it is quiet before each stretch of events, less in a short run: what the load looks like when nothing is done is part of every run,
/// and comes in turn with the events, so that a noisy machine disturbs both.
pub(crate) const QUIET: Duration = Duration::from_secs(1);
/// How long a stretch of events is.
pub(crate) const STRETCH: Duration = Duration::from_secs(4);
/// How long one event may take.
pub(crate) const EVENT_MAX: Duration = Duration::from_secs(60);
/// The most events that are kept; later ones are done and not kept.
const EVENTS_MAX: usize = 1_000_000;

/// What is done, and what became of it.
#[derive(Debug)]
pub(crate) struct Events {
    /// The command, but for its number.
    pub(crate) command: String,
    /// What it is, in a word or two.
    pub(crate) what: String,
    /// The time from one to the next.
    pub(crate) every: Duration,
    /// How long it is quiet before each stretch.
    pub(crate) quiet: Duration,
    /// When the load began.
    pub(crate) began: Instant,
    /// The flag that latencies are sorted by: on during a stretch, from its first event on.
    pub(crate) phase: Phase,
    /// Those that were done.
    pub(crate) done: Vec<Event>,
}

impl Events {
    /// Does events until it is over; one that takes longer than `every` delays the next, and none is made up for. One that has
    /// begun when it is over is done to its end: a reload that is broken off may have started a process that nobody knows.
    pub(crate) async fn go_on(
        &mut self,
        processes: &mut Processes,
        count: &watch::Sender<usize>,
        mut over: watch::Receiver<bool>,
    ) {
        let mut quiet_until = self.began + self.quiet;
        loop {
            if !goes_on_at(quiet_until, &mut over).await {
                return;
            }
            let change = self.phase.begin();
            let end = Instant::now() + STRETCH.max(self.every);
            let mut due = Instant::now();
            while due < end {
                if !goes_on_at(due, &mut over).await {
                    return;
                }
                self.one(processes).await;
                count.send_modify(|count| *count += 1);
                let late = due.elapsed().as_nanos() / self.every.as_nanos().max(1);
                due += self.every.saturating_mul(u32::try_from(late).unwrap_or(u32::MAX).saturating_add(1));
            }
            drop(change);
            quiet_until = Instant::now() + self.quiet;
        }
    }

    async fn one(&mut self, processes: &mut Processes) {
        let number = (self.done.len() + 1).to_string();
        let command = super::variables::fill(&self.command, &|name| (name == "n").then(|| number.clone()));
        let at = self.began.elapsed();
        let ran = processes.run(&command, EVENT_MAX).await;
        if self.done.len() < EVENTS_MAX {
            let what = self.what.clone();
            self.done.push(Event { at, took: ran.took, ok: ran.fault.is_none(), what, said: ran.fault });
        }
    }
}

/// Waits for a moment; `false`: it is over before it comes.
async fn goes_on_at(moment: Instant, over: &mut watch::Receiver<bool>) -> bool {
    tokio::select! {
        biased;
        _ = over.wait_for(|over| *over) => false,
        () = sleep_until(moment.into()) => true,
    }
}
