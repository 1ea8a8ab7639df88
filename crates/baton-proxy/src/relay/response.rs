//! One attempt: the request over an established server connection, its response to the client, and what becomes of both
//! connections.

use std::rc::Rc;

use baton_http::{ForClient, Framing, Version};
use baton_model::{ConnectionMode, Reuse};

use crate::balance::{Observed, Slot};
use crate::buffer::Buffer;
use crate::connection::Connection;
use crate::core::Core;
use crate::deadline::Deadline;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::flow::{Body, Flow};
use crate::patience::Patience;
use crate::pool::ServerConnection;
use crate::record;
use crate::relay::is_long;
use crate::relay::transfer::{self, Ends, NoResponse};
use crate::relay::tunnel::{self, Pump};
use crate::respond::{self, Sent};
use crate::route;
use crate::stream::Stream;
use crate::view::BackendView;
use crate::work::Work;

/// A request, and the place at a server that it has for this attempt.
pub struct Passage<'a, 'e> {
    /// The core.
    pub core: &'a Rc<Core>,
    /// The exchange.
    pub exchange: &'a mut Exchange<'e>,
    /// The request's memory.
    pub work: &'a mut Work,
    /// Its backend.
    pub backend: &'a Rc<BackendView>,
    /// The place at the server.
    pub slot: &'a Slot,
}

/// Why an attempt gave no response to pass on.
pub enum Failure {
    /// There was none.
    NoResponse(NoResponse),
    /// `retry-on` wants this status tried again.
    Status,
    /// Something that another attempt does not mend.
    Ended(Ended),
}

impl Passage<'_, '_> {
    /// Sends the request over `connection`, reads the response and passes it on.
    pub async fn run(mut self, mut connection: ServerConnection) -> Result<Sent, Failure> {
        connection.requests = connection.requests.saturating_add(1);
        let patience = self.patience();
        let began = self.core.now();
        loop {
            let proxy = &self.backend.plan.proxy;
            let mut ends = Ends {
                abort_on_close: proxy.tcp.abort_on_close,
                relaxed: proxy.http.accept_invalid_response,
                ..ends(self.core, self.exchange.connection, self.exchange.deadline, &connection.stream, &patience)
            };
            let head = transfer::response_head(&mut ends, self.work).await;
            let len = head.map_err(|failure| self.no_response(failure, &connection))?;
            if self.work.response.is_interim() {
                self.interim(len).await.map_err(Failure::Ended)?;
                continue;
            }
            self.exchange.facts.response_received(self.core.now().saturating_duration_since(began));
            let status = self.work.response.status;
            if self.may_try_status_again(status) {
                let Passage { exchange, work, .. } = self;
                let complete = work.response.framing.is_empty() && work.received.len() == len;
                if complete && exchange.facts.retries > 0 && work.upload.finished && work.response.server_reusable() {
                    exchange.session.keep_private(connection);
                }
                return Err(Failure::Status);
            }
            let observed = if observed_bad(status) { Observed::BadStatus } else { Observed::Answered };
            self.slot.server().report(observed);
            return self.pass_on(connection, len, &patience).await.map_err(Failure::Ended);
        }
    }

    fn no_response(&mut self, failure: NoResponse, connection: &ServerConnection) -> Failure {
        if matches!(failure, NoResponse::Malformed | NoResponse::Late | NoResponse::Ended(_)) {
            // Given up by us: a server that has a part of the request is not to take it for the whole.
            connection.stream.reset_on_close();
        }
        let Work { request, response, received, .. } = &*self.work;
        if matches!(failure, NoResponse::Malformed) && response.status == 101 && !request.upgrade {
            // A 101 that nobody asked for is counted all the same.
            self.exchange.facts.sent_head(response, received);
        }
        match failure {
            NoResponse::Ended(ended) => Failure::Ended(ended),
            other => Failure::NoResponse(other),
        }
    }

    fn may_try_status_again(&self, status: u16) -> bool {
        let proxy = &self.backend.plan.proxy;
        self.work.upload.replayable
            && !self.exchange.no_retry
            && proxy.retry_on.statuses.contains(&status)
            && self.exchange.facts.retries < proxy.retries
    }

    /// 1xx: passed on at once, to clients that know what it is.
    async fn interim(&mut self, len: usize) -> Result<(), Ended> {
        let Work { request, response, received, down, .. } = &mut *self.work;
        self.exchange.facts.sent_head(response, received);
        response.for_client(received, ForClient { keep_alive: true, version: request.version });
        down.clear();
        if request.version == Version::Http11 {
            response.write(received, down);
        }
        received.consume(len);
        self.exchange.send(self.core, self.work).await
    }

    /// The response's head is there: rules, head to the client, body, and what becomes of both connections.
    async fn pass_on(
        &mut self,
        mut connection: ServerConnection,
        len: usize,
        patience: &Patience,
    ) -> Result<Sent, Ended> {
        let Passage { core, exchange, work, backend, slot } = self;
        exchange.facts.sent_head(&work.response, &work.received);
        exchange.facts.server_said(work.response.status);
        if let Err(ended) = route::response(core, exchange, work, backend, slot, connection.stream.facts()) {
            // A response that a rule holds back is counted, with what came of its body.
            exchange.facts.sent(work.received.len().saturating_sub(len) as u64);
            exchange.facts.response_held_back();
            return Err(ended);
        }
        let keep_alive = respond::may_keep(core, exchange, work) || respond::may_authenticate(core, exchange, work);
        let server_reusable = work.response.server_reusable();
        let framing = work.response.framing;
        let Work { response, received, down, request, response_chunks, line, .. } = &mut **work;
        let keep = response.for_client(received, ForClient { keep_alive, version: request.version });
        down.clear();
        response.write(received, down);
        exchange.facts.responds(response.status);
        connection.private |= is_private(response, received);
        received.consume(len);
        if framing == Framing::Tunnel {
            return self.tunnel(connection).await;
        }
        record::write_early(core, exchange, line, received.len());
        let mut download = Flow::start(Body::of(framing), received, response_chunks, down).map_err(|_| {
            exchange.facts.response_withdrawn();
            Ended::new(Cause::Proxy, Phase::Headers)
        })?;
        let long = is_long(core, download.body);
        if long {
            download.splicer = exchange.progress.frontend.splicers(&core.pipes, backend).1.map(Box::new);
        }
        let usual = (long && received.is_empty()).then(|| std::mem::replace(received, core.buffers.take_large()));
        let mut ends = ends(core, exchange.connection, exchange.deadline, &connection.stream, patience);
        let outcome = transfer::response_body(&mut ends, work, &mut download).await;
        let left_over = !work.received.is_empty();
        if let Some(usual) = usual {
            core.buffers.give(std::mem::replace(&mut work.received, usual));
        }
        exchange.facts.sent(download.moved);
        exchange.facts.received(work.upload.moved);
        if outcome.is_err_and(|ended| ended.cause != Cause::ServerAborted) {
            connection.stream.reset_on_close();
        }
        outcome?;
        let rest = if work.upload.finished || !keep {
            Ok(work.upload.finished)
        } else {
            let moved = work.upload.moved;
            let rest = transfer::rest_of_request(&mut ends, work).await;
            exchange.facts.received(work.upload.moved - moved);
            rest
        };
        let delivered = matches!(rest, Ok(true));
        let sent = Sent { keep: keep && work.upload.finished, unread: !work.upload.finished, ended: rest.err() };
        let keeps_servers = exchange.progress.connection_mode() == ConnectionMode::KeepAlive;
        if server_reusable && delivered && !left_over && keeps_servers {
            self.put_by(connection);
        }
        Ok(sent)
    }

    /// Keeps the server's connection for another request.
    fn put_by(&mut self, mut connection: ServerConnection) {
        connection.idle_since = self.core.now();
        if connection.config.max_reuse.is_some_and(|max| connection.requests > max) {
            return;
        }
        let own = self.backend.plan.proxy.http.reuse == Reuse::Never || connection.private;
        if own || !connection.is_shareable() {
            self.exchange.session.keep_private(connection);
        } else {
            self.core.upstreams.give(connection);
        }
    }

    /// An upgraded connection, or CONNECT: bytes both ways. A server may answer before it has taken the whole request: what
    /// is left of it goes first.
    async fn tunnel(&mut self, connection: ServerConnection) -> Result<Sent, Ended> {
        let Passage { core, exchange, work, backend, .. } = self;
        let patience = Patience { ends_with_server: true, ..exchange.progress.frontend.patience(backend) };
        exchange.send(core, work).await?;
        // The tunnel may last for days: only bytes that wait keep a buffer.
        work.input.unpin();
        let unsent = work.up.get(work.upload.sent..).unwrap_or_default();
        let (splice_up, splice_down) = exchange.progress.frontend.splicers(&core.pipes, backend);
        let mut up = Pump::new(Buffer::of(&[unsent, &work.input])).splicing(splice_up);
        up.moved -= unsent.len() as u64;
        let mut down = Pump::new(Buffer::of(&[&work.received])).splicing(splice_down);
        work.lend(&core.buffers);
        let Exchange { connection: client, deadline, .. } = &mut **exchange;
        let ends = ((&client.stream, &mut up), (&connection.stream, &mut down));
        let outcome = tunnel::run(core, client.orders(), deadline, ends.0, ends.1, &patience).await;
        exchange.facts.received(up.moved);
        exchange.facts.sent(down.moved);
        Ok(Sent { keep: false, unread: false, ended: outcome.err() })
    }

    /// Inactivity limits while a message passes.
    fn patience(&self) -> Patience {
        Patience {
            client: self.exchange.progress.frontend.plan.proxy.timeouts.client,
            server: self.backend.plan.proxy.timeouts.server,
            ..Patience::default()
        }
    }
}

/// The two ends of an exchange.
fn ends<'a>(
    core: &'a Core,
    client: &'a Connection,
    deadline: &'a mut Deadline,
    server: &'a Stream,
    patience: &'a Patience,
) -> Ends<'a> {
    Ends {
        core,
        orders: client.orders(),
        deadline,
        client: &client.stream,
        server,
        patience,
        abort_on_close: false,
        relaxed: false,
    }
}

/// Statuses that `observe layer7` takes for a fault: 100-499, 501 and 505 are good (configuration manual, `observe`).
fn observed_bad(status: u16) -> bool {
    !matches!(status, 100..=499 | 501 | 505)
}

/// A response that authenticates the connection itself (NTLM, Negotiate) makes it the client's own.
fn is_private(response: &baton_http::ResponseHead, buf: &[u8]) -> bool {
    if !matches!(response.status, 401 | 407) {
        return false;
    }
    let name: &[u8] = if response.status == 401 { b"www-authenticate" } else { b"proxy-authenticate" };
    response.headers.lines(buf, name).any(|value| {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}
