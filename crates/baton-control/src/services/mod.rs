//! Requests that Baton answers itself: the statistics page (`stats …`), and what `http-request use-service` names.
//!
//! Cores leave them at the desk of the registry ([`baton_proxy::desk`]); they are answered here, on the thread of the change path, between
//! two events, a piece at a time. A service reads live state; what it alters, it alters by the command that an operator would give.

mod admin;
mod events;
mod overview;
mod statistics;

use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

use baton_model::Service;
use baton_proxy::desk::{Cursor, Piece, ServiceCall, ServiceKind, ServiceRequest, ServiceResponse};
use tokio::sync::{mpsc, oneshot};

use self::events::{Events, Progress};
use crate::control::Control;
use crate::metrics;
use crate::runtime::stat::StatTable;

/// Pages that are live at once; a further one has to wait.
const LIVE_MAX: usize = 32;
/// Requests that wait until it is clear which process serves; a further one is refused.
const POSTPONED_MAX: usize = 64;

/// The calls of cores, and those that wait.
pub(crate) struct Services {
    calls: Option<mpsc::Receiver<ServiceCall>>,
    /// Streams of events that wait for their next turn, at most as many as there are live pages.
    waiting: Vec<(Box<Events>, oneshot::Sender<Piece>)>,
    /// Requests to alter something, while another process may take over.
    postponed: Vec<(Box<ServiceRequest>, oneshot::Sender<ServiceResponse>)>,
    /// Every live page holds one more.
    live: Arc<()>,
}

impl Services {
    /// Waits for the calls that cores leave from now on.
    pub(crate) fn new(control: &Control) -> Services {
        let calls = control.line.registry().desk.take_calls();
        Services { calls, waiting: Vec::new(), postponed: Vec::new(), live: Arc::default() }
    }

    /// The next call.
    pub(crate) async fn next(&mut self) -> Option<ServiceCall> {
        self.calls.as_mut()?.recv().await
    }

    /// When something that waits has its turn.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.waiting.iter().map(|(events, _)| events.due()).min()
    }

    /// Answers a call, between two events of the process. Who left does not want the answer any more.
    pub(crate) async fn answer(&mut self, control: &mut Control, call: ServiceCall) {
        match call {
            ServiceCall::Begin(request, reply) => self.begin(control, request, reply).await,
            ServiceCall::Go(Cursor(cursor), reply) => self.go_on(control, cursor, reply),
        }
    }

    async fn begin(
        &mut self,
        control: &mut Control,
        request: Box<ServiceRequest>,
        reply: oneshot::Sender<ServiceResponse>,
    ) {
        let response = match &request.service {
            ServiceKind::Named(Service::PrometheusExporter) => return metrics::respond(control, &request, reply),
            ServiceKind::Statistics { page, .. } if request.is_post() => {
                let page = page.clone();
                if control.succession.is_giving() && self.postponed.len() < POSTPONED_MAX {
                    // What there is to know has gone to the other process already.
                    return self.postponed.push((request, reply));
                }
                admin::respond(control, &page, &request).await
            }
            ServiceKind::Statistics { page, is_admin, .. } => {
                let viewer = statistics::Viewer { page, is_admin: *is_admin };
                statistics::respond(control, &self.live, &viewer, &request)
            }
        };
        let _ = reply.send(response);
    }

    /// The next piece of the response that this cursor belongs to.
    fn go_on(&mut self, control: &Control, cursor: Box<dyn Any + Send>, reply: oneshot::Sender<Piece>) {
        let cursor = match cursor.downcast::<Events>() {
            Ok(events) => return self.go_on_live(control, events, reply),
            Err(cursor) => cursor,
        };
        let cursor = match cursor.downcast::<StatTable>() {
            Ok(table) => return drop(reply.send(statistics::go_on(control, table))),
            Err(cursor) => cursor,
        };
        let piece = match cursor.downcast::<metrics::MetricsCursor>() {
            Ok(cursor) => cursor.go_on(control, Instant::now()),
            // Only services make cursors.
            Err(_) => Piece::default(),
        };
        let _ = reply.send(piece);
    }

    fn go_on_live(&mut self, control: &Control, mut events: Box<Events>, reply: oneshot::Sender<Piece>) {
        if reply.is_closed() {
            return;
        }
        match events.step(control, Instant::now()) {
            Progress::Waits => self.waiting.push((events, reply)),
            Progress::Text(text) => {
                let piece = Piece { bytes: text.into_bytes(), next: Some(Cursor(events)) };
                let _ = reply.send(piece);
            }
            Progress::Over(text) => drop(reply.send(Piece { bytes: text.into_bytes(), next: None })),
        }
    }

    /// Answers what had to wait, as far as its turn has come.
    pub(crate) async fn step(&mut self, control: &mut Control) {
        if !control.succession.is_giving() {
            for (request, reply) in std::mem::take(&mut self.postponed) {
                self.begin(control, request, reply).await;
            }
        }
        let now = Instant::now();
        if self.waiting.iter().any(|(events, reply)| events.due() <= now || reply.is_closed() || events.ends(control)) {
            for (events, reply) in std::mem::take(&mut self.waiting) {
                self.go_on_live(control, events, reply);
            }
        }
    }
}
