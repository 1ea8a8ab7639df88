//! The change line's side of a handover, as the old process and as the new one: what to give, letting go, going on as before,
//! and the figures that processes before us still report.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use baton_kernel::listen::Identity;
use baton_kernel::process::known::Known;
use baton_model::{Address, Level};
use tokio::sync::{mpsc, oneshot};

use super::channel::ANSWER_WITHIN;
use super::giver::{Event, Offer};
use super::message::{Counts, Hello, Ready, Refused, RefusedKind, Released, Report, Socket, Stop, VERSIONS};
use super::taker::{LINEAGE_MAX, Taken};
use super::{report, state};
use crate::control::Control;
use crate::drain::Drain;
use crate::listeners::Place;
use crate::{overrides, tickets};

/// Events of conversations that wait for the change line; further ones wait themselves.
pub const EVENTS_MAX: usize = 64;

/// Where the process stands between the one before it and the one after it.
#[derive(Debug, Default)]
pub struct Succession {
    stage: Stage,
    /// Whom we took over from.
    pub(crate) lineage: Lineage,
    /// Processes before us that still report.
    predecessors: HashMap<u32, Predecessor>,
}

/// PIDs of the processes from which this one took over, the oldest first. There are none until it has.
#[derive(Clone, Debug, Default)]
pub struct Lineage(Arc<OnceLock<Vec<u32>>>);

impl Lineage {
    fn pids(&self) -> &[u32] {
        self.0.get().map_or(&[], Vec::as_slice)
    }

    /// Whether it took over from that process, directly or through others.
    pub fn has(&self, pid: u32) -> bool {
        self.pids().contains(&pid)
    }
}

#[derive(Debug, Default)]
enum Stage {
    /// Nobody takes over.
    #[default]
    Serving,
    /// Somebody is taking over and does not serve yet.
    Giving(Giving),
    /// Somebody has.
    Given(Given),
}

#[derive(Debug)]
struct Giving {
    pid: u32,
    /// Where each socket that was sent listens.
    places: Vec<Place>,
    /// What was counted when the state was written down.
    counts: Counts,
    /// SIGUSR1 came meanwhile: what it asks for is done when it is clear who serves.
    is_stop_wanted: bool,
}

#[derive(Debug)]
struct Given {
    /// Who serves now.
    to: u32,
    reports: mpsc::UnboundedSender<Report>,
    done: oneshot::Receiver<()>,
    /// What was reported until now.
    reported: Counts,
    connections: u64,
    next: Instant,
    /// `-st`: not to wait for anybody.
    is_cut: bool,
}

#[derive(Debug)]
struct Predecessor {
    /// Sessions it holds, by backend and server.
    open: HashMap<(Arc<str>, Arc<str>), u32>,
    /// Tells it whom to report to instead.
    moved: Option<oneshot::Sender<u32>>,
}

impl Succession {
    /// Whether somebody is taking over at this moment: nothing may change until it is clear who serves.
    pub fn is_giving(&self) -> bool {
        matches!(self.stage, Stage::Giving(_))
    }

    /// Who has taken over.
    pub fn successor(&self) -> Option<u32> {
        match &self.stage {
            Stage::Given(given) => Some(given.to),
            Stage::Serving | Stage::Giving(_) => None,
        }
    }

    /// Whether processes before us have not ended yet.
    pub fn has_predecessors(&self) -> bool {
        !self.predecessors.is_empty()
    }

    /// Whether connections are not waited for.
    pub fn is_cut(&self) -> bool {
        matches!(&self.stage, Stage::Given(given) if given.is_cut)
    }

    /// A soft stop is asked for: true when it has to wait.
    pub fn defer_stop(&mut self) -> bool {
        match &mut self.stage {
            Stage::Giving(giving) => {
                giving.is_stop_wanted = true;
                true
            }
            Stage::Serving | Stage::Given(_) => false,
        }
    }
}

impl Control {
    /// Something happened in a conversation.
    pub(crate) async fn converse(&mut self, event: Event) {
        match event {
            Event::Asked { uid, hello, reply } => {
                let offer = self.offer(uid, &hello);
                let pid = hello.pid;
                if let Err(Ok(_)) = reply.send(offer) {
                    // The taker left in this moment.
                    self.succession.stage = Stage::Serving;
                    self.line.listeners.apply_again();
                } else if self.succession.is_giving() {
                    self.messages.notice(&format!("Process {pid} (version {}) takes over.", hello.program));
                }
            }
            Event::Ready { ready, reply, done } => self.hand_over(ready, reply, done).await,
            Event::Failed { reason } => self.keep_serving(&reason),
            Event::Report { from, report } => self.reported(from, &report),
            Event::Joined { from, moved, reply } => self.joined(from, moved, reply),
            Event::Left { from } => self.left(from),
        }
    }

    /// What there is to give.
    fn offer(&mut self, uid: u32, hello: &Hello) -> Result<Offer, Refused> {
        let refuse = |kind, reason: String| Err(Refused { kind, reason, successor: None });
        if !self.settings.rights.may_take(uid, &self.line.model) {
            let reason = format!(
                "user {uid} may not take its listening sockets: root may, who started it, and the `user` of a `stats socket` with \
                 `expose-fd listeners` in its configuration"
            );
            self.messages.warning(&format!("Process {} of user {uid} wanted to take over and may not.", hello.pid));
            return refuse(RefusedKind::Never, reason);
        }
        let Some(version) = VERSIONS.iter().find(|version| hello.versions.contains(version)) else {
            let reason = format!("it speaks versions {VERSIONS:?} of the handover, not {:?}", hello.versions);
            return refuse(RefusedKind::Never, reason);
        };
        if let Some(after) = hello.after.filter(|after| !self.succession.lineage.has(*after)) {
            return refuse(RefusedKind::Never, format!("it did not take over from process {after}"));
        }
        if let Some(successor) = self.succession.successor() {
            let reason = format!("process {successor} has taken over already");
            return Err(Refused { kind: RefusedKind::Stopping, reason, successor: Some(successor) });
        }
        if self.is_stopping() {
            return refuse(RefusedKind::Stopping, "it is stopping".into());
        }
        if let Stage::Giving(giving) = &self.succession.stage {
            return refuse(RefusedKind::Busy, format!("process {} is taking over from it", giving.pid));
        }
        if !self.give_up_reading(Instant::now(), true) {
            return refuse(RefusedKind::Busy, "it is reloading its configuration".into());
        }
        let Some(generation) = &self.line.generation else {
            return refuse(RefusedKind::Busy, "it does not serve yet".into());
        };
        let mut sockets = Vec::new();
        let mut places = Vec::new();
        for offer in self.line.listeners.offers() {
            let number = match &offer.place.address {
                Address::Fd(number) => Some(*number),
                Address::Inet(_) | Address::Unix(_) | Address::Abstract(_) => None,
            };
            places.extend(offer.shards.iter().map(|_| offer.place.clone()));
            let socket =
                Socket { address: offer.place.address.to_string(), namespace: offer.place.namespace.clone(), number };
            sockets.push((socket, offer.shards.clone()));
        }
        // What was removed a moment ago is bound still, and the next configuration may name it again.
        for (place, shards) in self.line.listeners.offer_again() {
            let socket =
                Socket { address: place.address.to_string(), namespace: place.namespace.clone(), number: None };
            places.extend(shards.iter().map(|_| place.clone()));
            sockets.push((socket, shards));
        }
        let mut state = state::remember(generation, &self.line.checker, Instant::now());
        state.tickets = tickets::remember(&self.line.tickets);
        state.overrides = overrides::records(&self.line.registry.overrides());
        let counts = state.counts.clone();
        self.succession.stage = Stage::Giving(Giving { pid: hello.pid, places, counts, is_stop_wanted: false });
        let (program, lineage) = (self.settings.version.clone(), self.succession.lineage.pids().to_vec());
        Ok(Offer { version: *version, program, lineage, sockets, state })
    }

    /// The taker failed: everything is as before, and what had to wait is done now.
    fn keep_serving(&mut self, reason: &str) {
        let Stage::Giving(giving) = std::mem::take(&mut self.succession.stage) else { return };
        let text = format!("Process {} did not take over: {reason}. Serving on.", giving.pid);
        self.messages.warning(&text);
        self.messages.log(Level(4), &text);
        self.line.listeners.apply_again();
        if giving.is_stop_wanted {
            self.soft_stop();
        }
        self.reload_again();
    }

    /// The taker serves: stop accepting, begin to end.
    async fn hand_over(
        &mut self,
        ready: Ready,
        reply: oneshot::Sender<(Released, mpsc::UnboundedReceiver<Report>)>,
        done: oneshot::Receiver<()>,
    ) {
        let Stage::Giving(giving) = std::mem::take(&mut self.succession.stage) else { return };
        let (reports, follow) = mpsc::unbounded_channel();
        self.line.direct.rest();
        self.succession.stage = Stage::Given(Given {
            to: ready.pid,
            reports,
            done,
            reported: giving.counts,
            connections: u64::MAX,
            next: Instant::now(),
            is_cut: ready.stop == Stop::Now,
        });
        let taken = |place: &Place| {
            let all = (0..).zip(&giving.places).filter(|(_, other)| *other == place);
            all.map(|(number, _)| number).all(|number: u32| ready.taken.contains(&number))
        };
        for place in giving.places.iter().filter(|place| taken(place)) {
            self.line.listeners.handed_over(place, true);
        }
        self.line.listeners.keep_offered();
        let now = Instant::now();
        // The service manager is not told: the service goes on, and the new process says who it is now.
        self.stop_listening().await;
        self.line.close_empty(now, &self.workers).await;
        self.drain = Some((Drain::draining(&self.line.model.global, now), now));
        for predecessor in self.succession.predecessors.values_mut() {
            if let Some(moved) = predecessor.moved.take() {
                let _ = moved.send(ready.pid);
            }
        }
        let text = format!("Process {} has taken over.", ready.pid);
        self.messages.notice(&text);
        self.messages.log(Level(5), &text);
        self.tell_master_of(ready.pid).await;
        let connections = self.workers.open_connections() as u64;
        // A taker that left serves nevertheless.
        let _ = reply.send((Released { connections }, follow));
        self.refuse_waiting(&format!("process {} has taken over", ready.pid));
    }

    /// Reports what was counted since the last time, if it is time and there is something new.
    pub(crate) fn report(&mut self, is_last: bool) {
        let Stage::Given(given) = &mut self.succession.stage else { return };
        let now = Instant::now();
        if !is_last && now < given.next {
            return;
        }
        given.next = now + report::EVERY;
        let Some(generation) = &self.line.generation else { return };
        let counts = state::counts(generation);
        let connections = if is_last { 0 } else { self.workers.open_connections() as u64 };
        if !is_last && counts == given.reported && connections == given.connections {
            return;
        }
        let report = Report { counts: state::since(&given.reported, &counts), connections, last: is_last };
        // Nobody to tell is no reason to end otherwise.
        let _ = given.reports.send(report);
        (given.reported, given.connections) = (counts, connections);
    }

    /// The last report, after everything has ended.
    pub(crate) async fn report_last(&mut self, conversations: &mut mpsc::Receiver<Event>) {
        if self.succession.successor().is_none() {
            return;
        }
        let end = tokio::time::Instant::now() + ANSWER_WITHIN;
        while !self.succession.predecessors.is_empty() {
            match tokio::time::timeout_at(end, conversations.recv()).await {
                Ok(Some(Event::Report { from, report })) => self.reported(from, &report),
                Ok(Some(Event::Left { from })) => self.left(from),
                Ok(Some(Event::Joined { from, moved, reply })) => self.joined(from, moved, reply),
                // Nobody can take over any more.
                Ok(Some(Event::Asked { .. } | Event::Ready { .. } | Event::Failed { .. })) => {}
                Ok(None) | Err(_) => break,
            }
        }
        self.report(true);
        if let Stage::Given(Given { reports, done, .. }) = std::mem::take(&mut self.succession.stage) {
            drop(reports);
            let _ = tokio::time::timeout_at(end, done).await;
        }
    }

    /// Ends a handover as the new process: tells the old one, and listens to what it reports.
    ///
    /// # Errors
    /// A sentence: the old process serves on, and we must not. Its sockets are marked as not ours to silence.
    pub(crate) async fn conclude(&mut self, taken: Taken, events: &mpsc::Sender<Event>) -> Result<(), String> {
        let given = self.given_addresses(&taken);
        let outcome = self.tell_givers(taken, events).await;
        self.line.listeners.drop_left();
        if outcome.is_err() {
            for place in given {
                self.line.listeners.handed_over(&place, true);
            }
        }
        outcome
    }

    async fn tell_givers(&mut self, mut taken: Taken, events: &mpsc::Sender<Event>) -> Result<(), String> {
        let states = std::mem::take(&mut taken.states);
        let older = taken.lineage.len().saturating_sub(LINEAGE_MAX);
        let _ = self.succession.lineage.0.set(taken.lineage.split_off(older));
        let concluded = taken.ready(self.line.listeners.left()).await?;
        concluded.notices.iter().for_each(|notice| self.messages.notice(notice));
        for (pid, channel) in concluded.reporting {
            let (moved, told) = oneshot::channel();
            tokio::spawn(report::listen(channel, pid, told, events.clone()));
            self.succession.predecessors.insert(pid, Predecessor { open: HashMap::new(), moved: Some(moved) });
            if let Some((_, state)) = states.iter().find(|(from, _)| *from == pid) {
                self.holds(pid, &state.counts);
            }
        }
        Ok(())
    }

    /// Addresses in service whose sockets came from another process.
    fn given_addresses(&self, taken: &Taken) -> Vec<Place> {
        let cookie = |socket| Identity::of(socket).ok().flatten().map(|identity| identity.socket);
        let offers = self.line.listeners.offers();
        let given = offers
            .iter()
            .filter(|offer| offer.sockets.first().and_then(cookie).is_some_and(|cookie| taken.has_socket(cookie)));
        given.map(|offer| offer.place.clone()).collect()
    }

    /// A process found us that says it is one before us. It is if we took over from its PID, and it was there before we were: a
    /// PID is given to another process some day.
    fn joined(&mut self, from: u32, moved: oneshot::Sender<u32>, reply: oneshot::Sender<bool>) {
        let is_older = || match (i32::try_from(from).ok().and_then(Known::of), self.settings.known) {
            (Some(found), Some(own)) => found.is_older_than(own),
            // In a root directory without /proc it cannot be told.
            (None, _) | (_, None) => true,
        };
        let is_one = self.succession.lineage.has(from) && is_older();
        let _ = reply.send(is_one);
        if !is_one {
            return;
        }
        let moved = match self.succession.successor() {
            // On to the next one.
            Some(to) => {
                let _ = moved.send(to);
                None
            }
            None => Some(moved),
        };
        self.succession.predecessors.insert(from, Predecessor { open: HashMap::new(), moved });
    }

    fn reported(&mut self, from: u32, report: &Report) {
        if let Some(generation) = &self.line.generation {
            state::inherit(&report.counts, generation);
        }
        self.holds(from, &report.counts);
    }

    fn left(&mut self, from: u32) {
        self.holds(from, &Counts::default());
        self.succession.predecessors.remove(&from);
    }

    /// Notes how many sessions a process before us holds on each server.
    fn holds(&mut self, from: u32, counts: &Counts) {
        let Some(predecessor) = self.succession.predecessors.get_mut(&from) else { return };
        let mut open = HashMap::new();
        for (backend, figures) in counts.backends.iter() {
            for (server, figures) in figures.servers.iter().filter(|(_, figures)| figures.open > 0) {
                open.insert((backend.clone(), server.clone()), figures.open);
            }
        }
        let before = std::mem::replace(&mut predecessor.open, open.clone());
        for (backend, server) in before.keys().chain(open.keys()) {
            let key = (backend.clone(), server.clone());
            let all = self.succession.predecessors.values().filter_map(|one| one.open.get(&key));
            let sum = all.fold(0_u32, |sum, open| sum.saturating_add(*open));
            let found = self.line.registry.backend_state(backend).and_then(|backend| backend.server(server));
            if let Some(server) = found {
                server.set_elsewhere(sum);
            }
        }
    }
}
