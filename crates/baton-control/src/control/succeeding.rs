//! The change path's side of a handover, as the old process and as the new one: events of conversations go to [`Succession`], and what
//! follows is done here.
//!
//! [`Succession`]: crate::handover::succession::Succession

use std::sync::Arc;
use std::time::Instant;

use baton_kernel::listen::SocketIdentity;
use baton_kernel::process::known::ProcessId;
use baton_model::Address;
use baton_tables::Table;
use tokio::sync::{mpsc, oneshot};

use super::Control;
use crate::drain::Drain;
use crate::handover::channel::ANSWER_WITHIN;
use crate::handover::giver::{Following, GiverEvent, Hearing, Heir, Offer};
use crate::handover::message::{Hello, Ready, Refused, RefusedKind, Released, Report, Socket};
use crate::handover::succession::{self, SuccessionEffect};
use crate::handover::taker::Taken;
use crate::handover::wire::WireVersion;
use crate::handover::{report, state};
use crate::listeners::Place;
use crate::overrides;
use crate::servant::duties::DutyEvent;

/// Where the running process stands.
pub(crate) type Succession = succession::Succession<Reporting, oneshot::Sender<Heir>>;
type Effect = SuccessionEffect<oneshot::Sender<Heir>>;

/// Where reports go.
#[derive(Debug)]
pub(crate) struct Reporting {
    reports: mpsc::UnboundedSender<Report>,
    /// Closed when all of them were sent.
    done: oneshot::Receiver<()>,
}

impl Control {
    /// Something happened in a conversation.
    pub(crate) async fn converse(&mut self, event: GiverEvent) {
        match event {
            GiverEvent::Asked { uid, hello, reply } => {
                let offer = self.offer(uid, &hello);
                let pid = hello.pid;
                if let Err(Ok(_)) = reply.send(offer) {
                    // The taker left in this moment.
                    let effects = self.succession.withdraw();
                    self.succeed(effects).await;
                } else if self.succession.is_giving() {
                    self.messages.notice(&format!("Process {pid} (version {}) takes over.", hello.program));
                }
            }
            GiverEvent::Ready { ready, version, skipped, reply, done } => {
                for (kind, frames) in skipped {
                    let text =
                        format!("Process {} sent the unknown message '{kind}' (frames: {frames}): ignored.", ready.pid);
                    self.messages.notice(&text);
                }
                self.hand_over(&ready, version, reply, done).await;
            }
            GiverEvent::Failed { reason } => {
                let effects = self.succession.failed(&reason);
                self.succeed(effects).await;
            }
            GiverEvent::Report { .. }
            | GiverEvent::Joined { .. }
            | GiverEvent::Offered { .. }
            | GiverEvent::Servers { .. }
            | GiverEvent::Left { .. } => {
                let effects = self.hear_predecessor(event);
                self.succeed(effects).await;
            }
        }
    }

    /// Does what follows from an event.
    async fn succeed(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Log(said) => self.messages.tell(vec![said]),
                Effect::TakeSocketsBack => self.line.take_sockets_back(),
                Effect::SoftStop => self.soft_stop(),
                Effect::ReadAgain => self.reload_again(),
                Effect::RestDirect => self.line.rest_direct(),
                Effect::HandOver(place) => self.line.handed_over(&place),
                Effect::KeepOffered => self.line.keep_offered(),
                Effect::Drain => {
                    let now = Instant::now();
                    // The service manager is not told: the service goes on, and the new process says who it is now.
                    self.stop_listening().await;
                    self.line.peers().end(false);
                    self.line.close_empty(now, &self.workers).await;
                    self.drain = Some((Drain::draining(&self.line.model().global, now), now));
                }
                // One that has ended reports nothing any more.
                Effect::Redirect(moved, to) => drop(moved.send(to)),
                Effect::TellMaster(pid) => self.serve_master(DutyEvent::Succeeded(pid)).await,
                Effect::RefuseWaiting(reason) => self.refuse_waiting(&reason),
                Effect::CountElsewhere { backend, server, open } => {
                    let backend = self.line.registry().backend_state(&backend);
                    if let Some(server) = backend.and_then(|backend| backend.server(&server)) {
                        server.set_elsewhere(open);
                    }
                }
            }
        }
    }

    /// A process before us reports, finds us or has ended.
    fn hear_predecessor(&mut self, event: GiverEvent) -> Vec<Effect> {
        match event {
            GiverEvent::Report { from, report } => {
                if let Some(generation) = self.line.generation() {
                    state::inherit(&report.counts, generation);
                }
                self.succession.still_serves(from, report.connections, report.staying);
                self.succession.reported(from, &report.counts)
            }
            GiverEvent::Joined { from, moved, uid, reply } => {
                let is_older = match (i32::try_from(from).ok().and_then(ProcessId::of), self.settings.known) {
                    (Some(found), Some(own)) => found.is_older_than(own),
                    // In a root directory without /proc it cannot be told.
                    (None, _) | (_, None) => true,
                };
                let effects = self.succession.joined(from, is_older, moved);
                // One that left does not want to know.
                let hearing = match self.settings.rights.is_starter(uid) {
                    true => Hearing::Connections,
                    false => Hearing::Reports,
                };
                let _ = reply.send(effects.as_ref().map(|_| hearing));
                effects.unwrap_or_default()
            }
            GiverEvent::Offered { connections, reply } => {
                // One that left keeps them.
                let _ = reply.send(self.judge_connections(connections));
                Vec::new()
            }
            GiverEvent::Servers { servers } => {
                self.adopt_servers(servers);
                Vec::new()
            }
            GiverEvent::Left { from } => self.succession.left(from),
            GiverEvent::Asked { .. } | GiverEvent::Ready { .. } | GiverEvent::Failed { .. } => Vec::new(),
        }
    }

    /// What there is to give.
    fn offer(&mut self, uid: u32, hello: &Hello) -> Result<Offer, Refused> {
        let may_take = self.settings.rights.may_take(uid, self.line.model());
        if !may_take {
            self.messages.warning(&format!("Process {} of user {uid} is not permitted to take over.", hello.pid));
        }
        let version = self.succession.judge(uid, may_take, hello, self.is_stopping())?;
        let busy = |reason: &str| Refused { kind: RefusedKind::Busy, reason: reason.into(), successor: None };
        if !self.give_up_reading(Instant::now(), true) {
            return Err(busy("it is reloading its configuration"));
        }
        let Some(generation) = self.line.generation().cloned() else { return Err(busy("it does not serve yet")) };
        let mut sockets = Vec::new();
        let mut places = Vec::new();
        for offer in self.line.listeners().offers() {
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
        for (place, shards) in self.line.offer_again() {
            let socket =
                Socket { address: place.address.to_string(), namespace: place.namespace.clone(), number: None };
            places.extend(shards.iter().map(|_| place.clone()));
            sockets.push((socket, shards));
        }
        let mut state = state::remember(&generation, self.line.checker(), Instant::now());
        state.tickets = self.line.tickets().remember();
        state.totals = self.line.totals();
        state.sockets = self.line.remember_sockets();
        state.overrides = overrides::records(&self.line.registry().overrides());
        state.overrides.extend(self.line.entry_records());
        state.variables = self.line.remember_variables();
        state.history = self.history.remember();
        state.overrides.extend(self.line.discovered_records());
        self.succession.offer(hello.pid, places, state.counts.clone());
        let (program, lineage) = (self.settings.version.clone(), self.succession.lineage().pids().to_vec());
        let tables = self.line.registry().tables.all();
        let file = |table: &Arc<Table>| table.file().try_clone_to_owned().ok();
        let tables = tables.iter().filter_map(|table| Some((table.name().to_string(), file(table)?))).collect();
        Ok(Offer { version, program, lineage, sockets, tables, state })
    }

    /// The taker serves: stop accepting, begin to end.
    async fn hand_over(
        &mut self,
        ready: &Ready,
        version: WireVersion,
        reply: oneshot::Sender<Following>,
        done: oneshot::Receiver<()>,
    ) {
        let (reports, follow) = mpsc::unbounded_channel();
        let effects = self.succession.ready(ready, version, Reporting { reports, done }, Instant::now());
        if effects.is_empty() {
            return;
        }
        let leaving = self.begin_leaving(ready, version).await;
        self.succeed(effects).await;
        let released = Released { connections: self.workers.open_connections() as u64 };
        // A taker that left serves nevertheless.
        let _ = reply.send(Following { released, reports: follow, leaving });
    }

    /// Reports what was counted since the last time, if it is time and there is something new.
    pub(crate) fn report(&mut self) {
        let now = Instant::now();
        if !self.succession.is_due(now) {
            return;
        }
        let Some(generation) = self.line.generation() else { return };
        let connections = self.workers.open_connections() as u64;
        let staying = self.line.registry().moves.staying().map(|(reason, count)| (reason.to_owned(), count)).collect();
        if let Some((to, report)) = self.succession.report(state::counts(generation), connections, staying, now) {
            // Nobody to tell is no reason to end otherwise.
            let _ = to.reports.send(report);
        }
    }

    /// The last report, after everything has ended.
    pub(crate) async fn report_last(&mut self, conversations: &mut mpsc::Receiver<GiverEvent>) {
        if self.succession.successor().is_none() {
            return;
        }
        let end = tokio::time::Instant::now() + ANSWER_WITHIN;
        while self.succession.has_predecessors() {
            match tokio::time::timeout_at(end, conversations.recv()).await {
                // Nobody can take over any more.
                Ok(Some(event)) => {
                    let effects = self.hear_predecessor(event);
                    self.succeed(effects).await;
                }
                Ok(None) | Err(_) => break,
            }
        }
        let Some(generation) = self.line.generation() else { return };
        if let Some((to, report)) = self.succession.report_last(&state::counts(generation)) {
            let _ = to.reports.send(report);
            drop(to.reports);
            let _ = tokio::time::timeout_at(end, to.done).await;
        }
    }

    /// Ends a handover as the new process: tells the old one, and listens to what it reports.
    ///
    /// # Errors
    /// A sentence: the old process serves on, and we must not. Its sockets are marked as not ours to silence.
    pub(crate) async fn conclude(&mut self, taken: Taken, events: &mpsc::Sender<GiverEvent>) -> Result<(), String> {
        let given = self.given_addresses(&taken);
        let outcome = self.tell_givers(taken, events).await;
        self.line.drop_left();
        if outcome.is_err() {
            for place in given {
                self.line.handed_over(&place);
            }
        }
        outcome
    }

    async fn tell_givers(&mut self, mut taken: Taken, events: &mpsc::Sender<GiverEvent>) -> Result<(), String> {
        let states = std::mem::take(&mut taken.states);
        self.succession.took_over(std::mem::take(&mut taken.lineage));
        let concluded = taken.ready(self.line.listeners().left(), self.takes_connections()).await?;
        concluded.notices.iter().for_each(|notice| self.messages.notice(notice));
        for (pid, channel, hearing) in concluded.reporting {
            let (moved, told) = oneshot::channel();
            tokio::spawn(report::listen(channel, pid, hearing, told, events.clone()));
            self.succession.expect_reports(pid, moved);
            if let Some((_, state)) = states.iter().find(|(from, _)| *from == pid) {
                let effects = self.succession.reported(pid, &state.counts);
                self.succeed(effects).await;
            }
        }
        Ok(())
    }

    /// Addresses in service whose sockets came from another process.
    fn given_addresses(&self, taken: &Taken) -> Vec<Place> {
        let cookie = |socket| SocketIdentity::of(socket).ok().flatten().map(|identity| identity.socket);
        let numbers = taken.socket_numbers();
        let offers = self.line.listeners().offers();
        let given = offers
            .iter()
            .filter(|offer| offer.sockets.first().and_then(cookie).is_some_and(|cookie| numbers.contains(&cookie)));
        given.map(|offer| offer.place.clone()).collect()
    }
}
