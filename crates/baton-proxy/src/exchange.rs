//! The third of the three lives on the request path: one request and its response, or all bytes of a connection in `mode tcp`. It
//! ends with its log line.
//!
//! Who makes an exchange is the only difference between protocols: [`http1`](crate::http1) makes one after the other of a
//! connection, [`http2`](crate::http2) several at a time. What the stages of the line, rules and the log know of either is in here.

use std::cell::RefCell;
use std::mem;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::Context;
use std::time::{Duration, Instant};

use baton_rules::{Captures, Counted, LogLevel, RuleLine, RuleSettings, TrackedCounters, UniqueId, Variables};

use crate::balance::Slot;
use crate::connection::Connection;
use crate::core::{Core, Orders, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase, Side};
use crate::facts::{KeptFacts, LogFacts};
use crate::messages::Messages;
use crate::moving::RequestState;
use crate::patience::Patience;
use crate::progress::Progress;
use crate::session::Session;
use crate::transport::Transport;
use crate::view::BackendView;

/// One request in work. `M` is what goes through it: the two messages of HTTP, or the first bytes of a connection in `mode tcp`.
#[derive(Debug)]
pub struct Exchange<'a, M = Box<Messages>> {
    /// The connection that it came by.
    pub connection: &'a Connection,
    /// The session that it belongs to.
    pub session: &'a Session,
    /// What carries its request from the client and its response there.
    pub client: Transport<'a>,
    /// What it is told.
    pub orders: &'a Orders,
    /// When its current wait ends.
    pub deadline: &'a mut Deadline,
    /// What goes through it.
    pub messages: M,
    /// Whether it is the session's first.
    pub is_first: bool,
    /// What the log line prints.
    pub facts: LogFacts,
    /// How far it has come: frontend, backend, server, and the place there.
    pub progress: Progress,
    /// Variables of the scopes `txn`, `req` and `res`.
    pub variables: Variables,
    /// Entries of stick tables that it tracks.
    pub tracked: TrackedCounters,
    /// What is captured of its messages.
    pub captures: RefCell<Captures>,
    /// Its unique ID.
    pub unique_id: UniqueId,
    /// Its number among those of the process.
    pub number: u64,
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// `disable-l7-retry` applied.
    pub no_retry: bool,
    /// The last rule that ended a rule set.
    pub last_rule: Option<RuleLine>,
    /// What else rules have set.
    pub settings: RuleSettings,
}

/// Memory of an exchange that is used again.
#[derive(Debug, Default)]
struct ExchangeRoom {
    tracked: TrackedCounters,
    variables: Variables,
    captures: Captures,
    /// For the request line.
    line: Vec<u8>,
}

/// Where an exchange comes from: what its maker lends it.
#[derive(Debug)]
pub struct Origin<'a> {
    /// The connection.
    pub connection: &'a Connection,
    /// The session.
    pub session: &'a Session,
    /// What carries its messages.
    pub client: Transport<'a>,
    /// What it is told.
    pub orders: &'a Orders,
    /// Its timer.
    pub deadline: &'a mut Deadline,
}

impl<'a, M> Exchange<'a, M> {
    /// Begins the session's next exchange. The first one begins with the connection.
    #[inline(always)]
    pub fn begin(core: &Core, origin: Origin<'a>, messages: M) -> Exchange<'a, M> {
        let room = ExchangeRoom::default();
        // All bytes of the connection are of this one: it begins with the connection.
        let began = if origin.session.requests() == 0 { origin.connection.accepted } else { core.now() };
        Exchange::with_room(core, origin, began, messages, room)
    }

    /// Made in its place: with what it is lent, it is not moved once more.
    #[inline(always)]
    fn with_room(
        core: &Core,
        origin: Origin<'a>,
        began: Instant,
        messages: M,
        ExchangeRoom { tracked, variables, captures, line }: ExchangeRoom,
    ) -> Exchange<'a, M> {
        let Origin { connection, session, client, orders, deadline } = origin;
        let is_first = session.count_request();
        let started = if is_first { connection.accepted } else { session.rested(connection.accepted) };
        orders.notes.begins(session.requests(), core.moment(began));
        Exchange {
            connection,
            session,
            client,
            orders,
            deadline,
            messages,
            is_first,
            facts: LogFacts::new((started, began), is_first, line),
            progress: Progress::new(session.view()),
            tracked,
            variables,
            captures: RefCell::new(captures),
            unique_id: UniqueId::default(),
            number: core.next_number(),
            log_level: None,
            no_retry: false,
            last_rule: None,
            settings: RuleSettings::default(),
        }
    }

    /// Counts in the entries of stick tables that it or its session tracks.
    #[inline]
    pub fn count(&self, core: &Core, what: Counted, amount: u64) {
        if !self.tracked.is_empty() {
            self.tracked.count(what, amount, core.table_now());
        }
        self.session.count(core, what, amount);
    }

    /// Ends its tracking of entries of stick tables.
    #[inline]
    pub fn untrack(&mut self, core: &Core) {
        if !self.tracked.is_empty() {
            self.tracked.release(core.table_now());
        }
    }

    /// What rules have set before holds for it: before the connection was served as HTTP, or in another process.
    #[cold]
    pub fn take_over(&mut self, set: RequestState) {
        let RequestState { tracked, variables, captures, unique_id, log_level, last_rule, settings, began } = set;
        self.tracked = tracked;
        self.variables = variables;
        self.captures = RefCell::new(captures);
        self.unique_id = unique_id;
        self.log_level = log_level;
        self.last_rule = last_rule;
        self.settings = settings;
        if let Some(began) = began {
            self.facts.has_begun(began);
        }
    }

    /// Takes out what rules have left in it, for another process; `None`: nothing.
    #[cold]
    pub fn take_state(&mut self) -> Option<Box<RequestState>> {
        let state = RequestState {
            tracked: mem::take(&mut self.tracked),
            variables: mem::take(&mut self.variables),
            captures: self.captures.take(),
            unique_id: mem::take(&mut self.unique_id),
            log_level: self.log_level.take(),
            last_rule: self.last_rule.take(),
            settings: mem::take(&mut self.settings),
            began: None,
        };
        (!state.is_empty()).then(|| Box::new(state))
    }

    /// Goes on in this place of this backend, where it was in another process, with what is known of it. `None`: there is no such backend any
    /// more, as the configuration has changed since it was asked.
    pub fn resume_at(
        &mut self,
        core: &Core,
        (backend, slot): (&str, &Slot),
        known: KeptFacts,
    ) -> Option<Rc<BackendView>> {
        let backend = self.progress.frontend.backends.get(backend)?;
        self.facts = LogFacts::resumed(known);
        self.progress.enter(&backend);
        if self.facts.has_request {
            self.progress.note_counted_request();
        }
        self.orders.notes.goes_to(&backend);
        let server = slot.server();
        let figures = || backend.plan.figures.server(server.name());
        self.progress.choose(server, || core.upstreams.counters(server, core.now(), figures));
        self.orders.notes.is_at(server);
        Some(backend)
    }

    /// The client's address, or what rules made of it; `None` on unix sockets.
    pub fn source(&self) -> Option<SocketAddr> {
        let changed = self.settings.values().and_then(|settings| settings.source);
        changed.or_else(|| self.connection.source())
    }

    /// The address that the client connected to, or what rules made of it; `None` on unix sockets.
    pub fn destination(&self) -> Option<SocketAddr> {
        let changed = self.settings.values().and_then(|settings| settings.destination);
        changed.or_else(|| self.connection.destination())
    }

    /// How long both sides of a tunnel to this backend may be silent.
    pub fn patience(&self, backend: &BackendView) -> Patience {
        self.progress.frontend.patience(backend, self.settings.values())
    }

    /// How long a client may be silent.
    pub fn client_timeout(&self) -> Option<Duration> {
        let changed = self.settings.values().and_then(|settings| settings.client_timeout);
        changed.or(self.progress.frontend.plan.proxy.timeouts.client)
    }

    /// Heeds what rules said about this exchange. Once it is not to be logged, no later level takes that back.
    pub fn heed(&mut self, said: RuleEffects) {
        if said.log_level.is_some() && self.log_level != Some(LogLevel::Silent) {
            self.log_level = said.log_level;
        }
        self.no_retry |= said.no_retry;
        self.last_rule = said.last_rule;
        if self.log_level == Some(LogLevel::Silent) && self.facts.has_request {
            self.facts.silence();
        }
    }
}

impl<'a> Exchange<'a> {
    /// Begins the session's next exchange in `mode http`, with memory that the core lends.
    #[inline(always)]
    pub fn of_http(core: &Core, origin: Origin<'a>, mut messages: Box<Messages>) -> Exchange<'a> {
        let Messages { tracked, variables, captures, line, .. } = &mut *messages;
        let room = ExchangeRoom {
            tracked: mem::take(tracked),
            variables: mem::take(variables),
            captures: mem::take(captures),
            line: mem::take(line),
        };
        Exchange::with_room(core, origin, core.now(), messages, room)
    }

    /// Takes what was set for the first request of its session. Apart from its beginning, because what is changed as soon as it is made has to be
    /// moved to its place.
    #[inline]
    pub fn take_handed_on(&mut self) {
        if let Some(set) = self.session.take_handed_on() {
            self.take_over(*set);
        }
    }

    /// Its end: it tracks nothing any more, and what it was lent goes back to its messages.
    pub fn end(&mut self, core: &Core) {
        self.untrack(core);
        self.messages.tracked = mem::take(&mut self.tracked);
        self.messages.variables = mem::take(&mut self.variables);
        self.messages.captures = self.captures.take();
        self.messages.line = self.facts.take_line();
    }

    /// Sends what is composed for the client, of a response that goes on.
    pub async fn send(&mut self, core: &Core) -> Result<(), Ended> {
        self.send_part(core, false).await
    }

    /// Sends what is composed for the client, of a response that is whole by that.
    pub async fn send_last(&mut self, core: &Core) -> Result<(), Ended> {
        self.send_part(core, true).await
    }

    async fn send_part(&mut self, core: &Core, is_last: bool) -> Result<(), Ended> {
        let limit = self.client_timeout();
        let Exchange { client, orders, deadline, messages, .. } = self;
        let mut sent = 0;
        while sent < messages.down.len() {
            deadline.set(limit.map(|limit| core.now() + limit));
            let write = |cx: &mut Context<'_>| client.poll_write(cx, &messages.down[sent..], is_last);
            match until(core, orders, deadline, write).await {
                Ok(Ok(count)) => sent += count,
                Ok(Err(_)) => return Err(Ended::aborted_by(Side::Client, Phase::Last)),
                Err(_) => return Err(Ended::new(Cause::ClientTimeout, Phase::Last)),
            }
        }
        messages.down.clear();
        Ok(())
    }
}

/// What rules said about the exchange that they looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct RuleEffects {
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// `disable-l7-retry` applied.
    pub no_retry: bool,
    /// The last rule that ended a rule set, in this evaluation or an earlier one.
    pub last_rule: Option<RuleLine>,
}
