//! Which connections of a process before this one are taken, and where they go.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use baton_model::Mode;
use baton_proxy::moving::{MoveCount, MoveTerms, ServerArrival, StayReason, TunnelState};
use baton_proxy::{Command, Generation, ListenerPlan};
use baton_tls::rustls::pki_types::CertificateDer;

use super::Control;
use crate::handover::kinds::{MoveKind, Takes};
use crate::handover::message::{Ready, Stop};
use crate::handover::moving::{CONNECTIONS_PER_MESSAGE, Expected, Leaving, Verdicts};
use crate::handover::record::{self, ConnectionRecord, Described};
use crate::handover::server_record::ServerRecord;
use crate::handover::wire::WireVersion;
use crate::listeners::Place;

impl Control {
    /// What this process takes of connections that move.
    pub(crate) fn takes_connections(&self) -> Takes {
        if self.line.model().global.keeps_connections { Takes::NONE } else { record::taken() }
    }

    /// Connections that stay with this process, or with those before it, though another one took over; by reason.
    pub(crate) fn staying(&self) -> BTreeMap<String, u64> {
        let mut staying = self.succession.staying_elsewhere();
        for (reason, count) in self.line.registry().moves.staying() {
            *staying.entry(reason.into()).or_default() += count;
        }
        staying
    }

    /// Connections begin to leave for the process that is ready, if it takes any.
    pub(super) async fn begin_leaving(&self, ready: &Ready, version: WireVersion) -> Option<Leaving> {
        let takes = ready.takes().any() && version == WireVersion::Frames && ready.stop == Stop::Soft;
        if !takes || self.line.model().global.keeps_connections {
            return None;
        }
        let kinds = ready.takes().kinds;
        let global = &self.line.model().global;
        // Who is left at a hard stop is cut off.
        let until_hard = global.hard_stop_after.map_or(Duration::MAX, |after| after / 2);
        let patience = global.handover_patience.min(until_hard);
        let (mover, departures) = self.workers.departures(MoveTerms {
            patience: kinds.has(MoveKind::Requests).then_some(patience),
            with_servers: kinds.has(MoveKind::ServerPools),
            with_http2_servers: kinds.has(MoveKind::Http2Servers),
            with_tls: kinds.has(MoveKind::Tls),
            with_http2: kinds.has(MoveKind::Http2),
            with_held: kinds.has(MoveKind::HeldBytes),
            with_heads: kinds.has(MoveKind::RequestHeads),
        });
        self.workers.command(Command::Move(mover)).await;
        Some(Leaving::new(departures, self.line.registry().moves.clone(), ready.takes()))
    }

    /// Which of these connections are taken. None is decided on once another process serves: they are for that one.
    pub(super) fn judge_connections(&self, connections: Vec<ConnectionRecord>) -> Verdicts {
        if self.succession.successor().is_some() {
            return None;
        }
        let now = Instant::now();
        let mut room = self.room();
        let mut shown = Vec::new();
        let verdicts = connections.into_iter().enumerate().map(|(at, record)| {
            if at >= CONNECTIONS_PER_MESSAGE || !self.takes_connections().any() {
                return Err(StayReason::Unknown);
            }
            let expected = self.judge_connection(record, &mut shown, now)?;
            room -= 1;
            if room < 0 { Err(StayReason::Full) } else { Ok(expected) }
        });
        Some(verdicts.collect())
    }

    /// Idle connections to servers of a process before this one go to the cores in turn; what no server here would use is closed.
    pub(super) fn adopt_servers(&self, servers: Vec<(ServerRecord, OwnedFd)>) {
        let now = Instant::now();
        let Some(generation) = self.line.generation().filter(|_| self.takes_connections().any()) else { return };
        let figures = &self.line.registry().moves;
        let mut shown = Vec::new();
        let arrival = |(record, socket): (ServerRecord, OwnedFd)| {
            let idle = record.idle(socket, &mut shown, now)?;
            let backend = generation.backends.get(&idle.state.backend)?.clone();
            let server = backend.state.server(&idle.state.server)?;
            let config = server.config();
            // It may be that only its health checks are encrypted.
            let encryption = server.encryption().filter(|_| config.tls.is_some());
            let encryption = idle.state.terms.agreed(&config, encryption.as_ref(), idle.tls.is_some())?;
            let counters = backend.figures.server(server.name());
            Some(ServerArrival { idle, server, config, encryption, backend, counters })
        };
        for arrival in servers.into_iter().filter_map(arrival) {
            let turn = figures.count(MoveCount::ServersIn, 1);
            if let Some(door) = self.workers.door(turn as usize) {
                door.let_server_in(arrival);
            }
        }
    }

    /// `shown` are certificates of ours that others of the batch show, too.
    fn judge_connection(
        &self,
        mut record: ConnectionRecord,
        shown: &mut Vec<Arc<CertificateDer<'static>>>,
        now: Instant,
    ) -> Result<Expected, StayReason> {
        let generation = self.line.generation().filter(|_| !self.is_stopping()).ok_or(StayReason::NoListener)?;
        let listener = listener_of(generation, &record).ok_or(StayReason::NoListener)?;
        let tls = record.take_tls(shown)?;
        let Described { client, tunnel, left } = record.connection(now)?;
        let (plan, limits) = (&listener.frontend, &listener.bind.options);
        let most = plan.state.maxconn.or(plan.proxy.maxconn.unwrap_or(generation.maxconn));
        let is_full = plan.state.open.load(Ordering::Relaxed) >= i64::from(most)
            || limits.maxconn.is_some_and(|most| listener.state.open.load(Ordering::Relaxed) >= i64::from(most));
        if is_full {
            return Err(StayReason::Full);
        }
        let slot_of = |state: TunnelState| {
            let backend = generation.backends.get(&state.backend)?;
            Some((backend.state.resume(&state.server)?, state))
        };
        let tunnel = match tunnel {
            Some(state) => slot_of(state).map(|(slot, state)| Some((state, slot))).ok_or(StayReason::NoServer)?,
            None => None,
        };
        let registry = self.line.registry();
        let left = match left {
            Some(left) => Some(Box::new(left.state(registry, registry.timeline.at(now))?)),
            None => None,
        };
        let seat = self.workers.seat().ok_or(StayReason::Full)?;
        let figures = registry.moves.clone();
        Ok(Expected { client, listener: Arc::clone(listener), seat, tunnel, left, tls, figures })
    }

    /// How many connections more the process may have.
    fn room(&self) -> i64 {
        let registry = self.line.registry();
        let most = self.line.generation().map_or(0, |generation| registry.limits.connections.or(generation.maxconn));
        i64::from(most) - registry.open.load(Ordering::Relaxed)
    }
}

/// Where a connection belongs that another process accepted: to the same frontend at the same address, which speaks the same.
fn listener_of<'g>(generation: &'g Generation, record: &ConnectionRecord) -> Option<&'g Arc<ListenerPlan>> {
    let is_tcp = record.tunnel.as_ref().is_some_and(|tunnel| tunnel.facts.head.is_none());
    let is_its = |plan: &&Arc<ListenerPlan>| {
        *plan.frontend.proxy.name == *record.frontend
            && plan.frontend.proxy.mode == if is_tcp { Mode::Tcp } else { Mode::Http }
            && plan.tls.is_some() == record.tls.is_some()
            && record.is_of(&Place::of(&plan.bind))
    };
    generation.listeners.iter().find(is_its)
}
