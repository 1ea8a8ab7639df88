//! The second of the three lives on the request path: a client's session, which is what its requests have in common. It is shared
//! by the exchanges that are in work, and holds nothing of any one of them.

use std::cell::Cell;
use std::fmt;
use std::mem;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_rules::{Counted, TrackedCounters, Variables};
use baton_tables::Timeline;

use crate::balance::ServerState;
use crate::clock::Clock;
use crate::core::Core;
use crate::moving::{RequestState, SessionState};
use crate::server_exchange::PrivateConnection;
use crate::state::StayReason;
use crate::view::{FrontendSlot, FrontendView};

/// What the requests of one client have in common.
pub struct Session {
    /// The frontend it came in by.
    pub slot: Rc<FrontendSlot>,
    /// What rules have left in it; `None`: nothing.
    memory: Cell<Option<Box<SessionMemory>>>,
    /// Requests that were begun.
    requests: Cell<u32>,
    /// What rules of a connection that began in `mode tcp` have set, for its first request.
    handed_on: Cell<Option<Box<RequestState>>>,
    /// When the last request ended, in milliseconds after the accept.
    rested_ms: Cell<u32>,
    /// A server connection that only this client may use: one that carried its previous request.
    private: Cell<Option<Box<PrivateConnection>>>,
}

impl Session {
    /// A session of this frontend, without a request.
    pub fn new(slot: Rc<FrontendSlot>) -> Session {
        Session {
            slot,
            memory: Cell::default(),
            requests: Cell::new(0),
            rested_ms: Cell::new(0),
            handed_on: Cell::default(),
            private: Cell::default(),
        }
    }

    /// One that has had so many requests in another process.
    pub fn resumed(slot: Rc<FrontendSlot>, requests: u32, rested_ms: u32) -> Session {
        Session { requests: Cell::new(requests), rested_ms: Cell::new(rested_ms), ..Session::new(slot) }
    }

    /// Why it cannot go on in another process; `None`: it can. No request is in work.
    pub fn reason_to_stay(&self) -> Option<StayReason> {
        let private = self.private.take();
        // One that is only not shared is opened anew by whoever needs one.
        let is_bound = private.as_ref().is_some_and(|private| private.is_bound());
        self.private.set(private);
        is_bound.then_some(StayReason::OwnServer)
    }

    /// Takes out all that rules have left in it, for another process; `None`: nothing.
    pub fn take_state(&self) -> Option<Box<SessionState>> {
        let (memory, request) = (self.memory.take(), self.handed_on.take());
        if memory.is_none() && request.is_none() {
            return None;
        }
        let mut state = Box::new(SessionState { request, ..SessionState::default() });
        if let Some(mut memory) = memory {
            state.variables = mem::take(&mut memory.variables);
            state.tracked = mem::take(&mut memory.tracked);
        }
        Some(state)
    }

    /// Goes on with what rules have left in it, in another process or here.
    pub fn put_state(&self, core: &Core, state: Option<Box<SessionState>>) {
        let Some(state) = state else { return };
        let SessionState { variables, tracked, request } = *state;
        if !variables.is_empty() || !tracked.is_empty() {
            self.memory.set(Some(Box::new(SessionMemory::new(core, variables, tracked))));
        }
        self.handed_on.set(request);
    }

    /// When the last request ended, in milliseconds after the accept.
    pub fn rested_ms(&self) -> u32 {
        self.rested_ms.get()
    }

    /// Takes out what rules have left in it, for rules to look at.
    #[inline]
    pub fn take_memory(&self) -> Option<Box<SessionMemory>> {
        self.memory.take()
    }

    /// Puts back what was taken out, with what rules have left since.
    #[inline]
    pub fn put_memory(&self, memory: Option<Box<SessionMemory>>) {
        self.memory.set(memory);
    }

    /// Counts in the entries of stick tables that it tracks.
    #[inline]
    pub fn count(&self, core: &Core, what: Counted, amount: u64) {
        if let Some(memory) = self.memory.take() {
            if !memory.tracked.is_empty() {
                memory.tracked.count(what, amount, core.table_now());
            }
            self.memory.set(Some(memory));
        }
    }

    /// Ends its tracking: the client is done with it.
    pub fn untrack(&self) {
        if let Some(mut memory) = self.memory.take() {
            memory.untrack();
            self.memory.set(Some(memory));
        }
    }

    /// The configuration to go by now.
    pub fn view(&self) -> Rc<FrontendView> {
        self.slot.view()
    }

    /// Requests that were begun so far.
    pub fn requests(&self) -> u32 {
        self.requests.get()
    }

    /// Counts one more request. Whether it is the first.
    pub fn count_request(&self) -> bool {
        let before = self.requests.get();
        self.requests.set(before.saturating_add(1));
        before == 0
    }

    /// What was begun was no request.
    pub fn uncount_request(&self) {
        self.requests.set(self.requests.get().saturating_sub(1));
    }

    /// A connection that began in `mode tcp` goes on in `mode http`: its first request is to come.
    pub fn hand_on(&self, set: RequestState) {
        self.requests.set(self.requests.get().saturating_sub(1));
        self.handed_on.set(Some(Box::new(set)));
    }

    /// What was set for its first request.
    pub fn take_handed_on(&self) -> Option<Box<RequestState>> {
        self.handed_on.take()
    }

    /// A request has ended at `now`.
    pub fn rests(&self, accepted: Instant, now: Instant) {
        let since = now.saturating_duration_since(accepted).as_millis();
        self.rested_ms.set(u32::try_from(since).unwrap_or(u32::MAX));
    }

    /// When the last request ended.
    pub fn rested(&self, accepted: Instant) -> Instant {
        accepted + Duration::from_millis(self.rested_ms.get().into())
    }

    /// When the client, which has no request in work, must have begun one.
    pub fn request_due(&self, accepted: Instant, now: Instant) -> Option<Instant> {
        let view = self.view();
        let timeouts = &view.plan.proxy.timeouts;
        let (limit, since) = match self.requests() {
            0 => (timeouts.http_request.or(timeouts.client), accepted),
            _ => (timeouts.http_keep_alive.or(timeouts.http_request).or(timeouts.client), now),
        };
        limit.map(|limit| since + limit)
    }

    /// What tells it from other sessions of this core, as long as it lasts.
    pub fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// The server connection that only this client may use, for a request that takes it.
    pub fn take_private(&self) -> Option<Box<PrivateConnection>> {
        self.private.take()
    }

    /// Keeps a server connection that only this client may use.
    pub fn keep_private(&self, connection: PrivateConnection) {
        self.private.set(Some(Box::new(connection)));
    }

    /// The server of the previous request, if a connection to it is kept for this client alone.
    pub fn preferred_server(&self) -> Option<Arc<ServerState>> {
        let private = self.private.take()?;
        let server = private.server().clone();
        self.private.set(Some(private));
        Some(server)
    }
}

/// What rules have left in a session.
#[derive(Debug)]
pub struct SessionMemory {
    /// Variables of scope `sess`.
    pub variables: Variables,
    /// Entries of stick tables that it tracks until it ends.
    pub tracked: TrackedCounters,
    clock: Rc<Clock>,
    timeline: Timeline,
}

impl SessionMemory {
    /// Of a session in which rules left something for the first time.
    pub fn new(core: &Core, variables: Variables, tracked: TrackedCounters) -> SessionMemory {
        SessionMemory { variables, tracked, clock: core.clock.clone(), timeline: core.registry.timeline }
    }

    fn untrack(&mut self) {
        if !self.tracked.is_empty() {
            self.tracked.release(self.timeline.at(self.clock.now()));
        }
    }
}

impl Drop for SessionMemory {
    fn drop(&mut self) {
        self.untrack();
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Session").field("slot", &self.slot).field("requests", &self.requests).finish_non_exhaustive()
    }
}
