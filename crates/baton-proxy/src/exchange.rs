//! The third of the three lives on the request line: one request and its response, or all bytes of a connection in `mode tcp`. It
//! ends with its log line.
//!
//! Its messages, head and body of either direction, are beside it in [`Work`](crate::work::Work): `mode tcp` has none.

use std::task::Context;

use baton_rules::{LogLevel, Variables};

use crate::connection::Connection;
use crate::core::{Core, until};
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase, Side};
use crate::facts::LogFacts;
use crate::progress::Progress;
use crate::session::Session;
use crate::work::Work;

/// One request in work.
#[derive(Debug)]
pub struct Exchange<'a> {
    /// The connection that it came by.
    pub connection: &'a Connection,
    /// The session that it belongs to.
    pub session: &'a Session,
    /// When its current wait ends.
    pub deadline: &'a mut Deadline,
    /// Whether it is the session's first.
    pub is_first: bool,
    /// What the log line prints.
    pub facts: LogFacts,
    /// How far it has come: frontend, backend, server, and the place there.
    pub progress: Progress,
    /// Variables of the scopes `txn`, `req` and `res`.
    pub variables: Variables,
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// `disable-l7-retry` applied.
    pub no_retry: bool,
}

impl<'a> Exchange<'a> {
    /// Begins the session's next exchange. The first one begins with the connection.
    pub fn begin(
        core: &Core,
        connection: &'a Connection,
        session: &'a Session,
        deadline: &'a mut Deadline,
    ) -> Exchange<'a> {
        let is_first = session.count_request();
        let began = if is_first { connection.accepted } else { core.now() };
        Exchange {
            connection,
            session,
            deadline,
            is_first,
            facts: LogFacts::new(began),
            progress: Progress::new(session.view()),
            variables: Variables::default(),
            log_level: None,
            no_retry: false,
        }
    }

    /// Sends what is composed for the client in `work.down`.
    pub async fn send(&mut self, core: &Core, work: &mut Work) -> Result<(), Ended> {
        let limit = self.progress.frontend.plan.proxy.timeouts.client;
        let Exchange { connection, deadline, .. } = self;
        let mut sent = 0;
        while sent < work.down.len() {
            deadline.set(limit.map(|limit| core.now() + limit));
            let write = |cx: &mut Context<'_>| connection.stream.poll_write(cx, &work.down[sent..]);
            match until(core, connection.orders(), deadline, write).await {
                Ok(Ok(count)) => sent += count,
                Ok(Err(_)) => return Err(Ended::aborted_by(Side::Client, Phase::Last)),
                Err(_) => return Err(Ended::new(Cause::ClientTimeout, Phase::Last)),
            }
        }
        work.down.clear();
        Ok(())
    }

    /// Heeds what rules said about this exchange. Once it is not to be logged, no later level takes that back.
    pub fn heed(&mut self, said: Said) {
        if said.log_level.is_some() {
            self.log_level = said.log_level;
        }
        self.no_retry |= said.no_retry;
        if self.log_level == Some(LogLevel::Silent) && self.facts.has_request {
            self.facts.silence();
        }
    }
}

/// What rules said about the exchange that they looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Said {
    /// What `set-log-level` asked for.
    pub log_level: Option<LogLevel>,
    /// `disable-l7-retry` applied.
    pub no_retry: bool,
}
