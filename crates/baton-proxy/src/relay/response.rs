//! One attempt: the request over an established server connection, its response to the client, and what becomes of both
//! connections.

use std::rc::Rc;
use std::time::Instant;

use baton_http::{Framing, Method, ResponseView, Version};
use baton_model::{ConnectionMode, Reuse};
use baton_rules::SettingValues;

use crate::balance::{Observed, Slot};
use crate::buffer::Buffer;
use crate::captures::Capture;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::flow::{Body, Flow};
use crate::http2_server::ServerStream;
use crate::messages::Messages;
use crate::patience::Patience;
use crate::record;
use crate::relay::transfer::{self, BodyEnd, Ends, NoResponse, Standing};
use crate::relay::{hold, is_long};
use crate::respond::Sent;
use crate::route::{self, ResponseProgress};
use crate::rules::{self, ContentResponse};
use crate::server_connection::ServerConnection;
use crate::server_exchange::{PrivateConnection, ServerExchange};
use crate::sink;
use crate::transport::Transport;
use crate::view::BackendView;
use crate::websocket;

/// A request, and the place at a server that it has for this attempt.
pub struct Passage<'a, 'e> {
    /// The core.
    pub core: &'a Rc<Core>,
    /// The exchange.
    pub exchange: &'a mut Exchange<'e>,
    /// Its backend.
    pub backend: &'a Rc<BackendView>,
    /// The place at the server.
    pub slot: &'a Slot,
}

/// What came of a response.
pub enum Passed {
    /// The client has it.
    Whole(Sent),
    /// The client has its head. What follows are bytes both ways, over this.
    Tunnel(ServerExchange),
    /// Nothing yet, or a part: the request is to leave for another process. It can go on all the same.
    Boundary(Box<Parked>),
}

/// A request that was sent on, between two of its bytes; those that were read and are not written are with its messages.
pub struct Parked {
    /// Its server.
    pub server: ServerExchange,
    /// When it was sent on.
    pub began: Instant,
    /// Where its directions stand.
    pub standing: Standing,
    /// What is passed on of the response; `None`: its head is waited for.
    pub download: Option<Download>,
}

/// The body of a response on its way to the client.
pub struct Download {
    /// What is left of it.
    pub flow: Flow,
    /// Its head says that there is none.
    pub is_empty: bool,
    /// The server's connection may be used again after it.
    pub server_reusable: bool,
    /// The client's connection stays for another request.
    pub keep: bool,
    /// The buffer that a larger one is in the place of.
    pub usual: Option<Buffer>,
}

/// What follows a response's head.
enum Headed {
    Tunnel(ServerExchange),
    Body(ServerExchange, Download),
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
    /// Sends the request to `server`, reads the response and passes it on.
    pub async fn run(mut self, mut server: ServerExchange) -> Result<Passed, Failure> {
        self.judge_unseen(&server).map_err(Failure::Ended)?;
        if let ServerExchange::Http2(stream) = &server
            && self.exchange.messages.request.websocket
        {
            let patience = self.patience();
            self.expect_websockets(stream, &patience).await?;
        }
        let began = self.core.now();
        let cases = self.backend.plan.proxy.http.server_cases.as_deref();
        if server.begin(&mut self.exchange.messages, cases).is_err() {
            return Err(Failure::NoResponse(NoResponse::Unprocessed));
        }
        self.backend.speaks_http2.set(server.is_stream());
        self.exchange.progress.begins_at(server.begun());
        self.respond(server, began, Standing::begin(began)).await
    }

    /// Goes on with a request that was sent on.
    pub async fn resume(self, parked: Parked) -> Result<Passed, Failure> {
        let Parked { server, began, standing, download } = parked;
        self.exchange.progress.begins_at(server.begun());
        match download {
            None => self.respond(server, began, standing).await,
            Some(download) => self.pass_body(server, download, began, standing).await.map_err(Failure::Ended),
        }
    }

    /// Reads the response and passes it on.
    async fn respond(
        mut self,
        server: ServerExchange,
        began: Instant,
        mut standing: Standing,
    ) -> Result<Passed, Failure> {
        let patience = self.patience();
        loop {
            let proxy = &self.backend.plan.proxy;
            let Exchange { client, orders, deadline, messages, .. } = &mut *self.exchange;
            let mut ends = Ends {
                abort_on_close: proxy.tcp.abort_on_close,
                relaxed: proxy.http.accept_invalid_response,
                ..Ends::new(self.core, (orders, deadline), *client, &server, &patience)
            };
            let head = transfer::response_head(&mut ends, messages, &mut standing).await;
            let Some(len) = head.map_err(|failure| self.no_response(failure, &server, began))? else {
                return Ok(Passed::Boundary(Box::new(Parked { server, began, standing, download: None })));
            };
            if self.exchange.messages.response.is_interim() {
                self.interim(len).await.map_err(Failure::Ended)?;
                standing = Standing::begin(self.core.now());
                continue;
            }
            self.exchange.facts.response_received(self.core.now().saturating_duration_since(began));
            let status = self.exchange.messages.response.status;
            if self.may_try_status_again(status) {
                let Exchange { messages, facts, .. } = &*self.exchange;
                let Messages { response, received, upload, .. } = &**messages;
                let complete = response.framing.is_empty() && received.len() == len;
                let is_kept = complete && facts.retries > 0 && upload.finished && response.server_reusable();
                if let ServerExchange::Http1(connection) = server
                    && is_kept
                {
                    self.exchange.session.keep_private(PrivateConnection::Http1(connection));
                }
                return Err(Failure::Status);
            }
            let observed = if observed_bad(status) { Observed::BadStatus } else { Observed::Answered };
            self.slot.server().report(observed);
            return match self.pass_head(server, len, &patience).await.map_err(Failure::Ended)? {
                Headed::Tunnel(server) => Ok(Passed::Tunnel(server)),
                Headed::Body(server, download) => {
                    let standing = Standing::begin(self.core.now());
                    self.pass_body(server, download, began, standing).await.map_err(Failure::Ended)
                }
            };
        }
    }

    /// Waits until a server has said that it takes WebSockets over HTTP/2 (RFC 8441 3).
    async fn expect_websockets(&mut self, stream: &ServerStream, patience: &Patience) -> Result<(), Failure> {
        let Exchange { orders, deadline, .. } = &mut *self.exchange;
        deadline.set(patience.server.map(|limit| self.core.now() + limit));
        match until(self.core, orders, deadline, |cx| stream.poll_takes_websockets(cx)).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(Failure::Ended(Ended::new(Cause::ServerAborted, Phase::Headers))),
            Err(Interrupt::Timeout) => Err(Failure::NoResponse(NoResponse::Late)),
            Err(Interrupt::Abort) => Err(Failure::Ended(Ended::aborted(Phase::Headers))),
        }
    }

    fn no_response(&mut self, failure: NoResponse, server: &ServerExchange, began: Instant) -> Failure {
        if let NoResponse::Malformed { at } = failure
            && !server.is_stream()
        {
            self.capture(at);
        }
        if matches!(failure, NoResponse::Malformed { .. } | NoResponse::Late | NoResponse::Ended(_)) {
            server.give_up();
        }
        match (server, &failure) {
            (ServerExchange::Http2(stream), NoResponse::Late) => stream.server().has_timed_out(began),
            // It has answered, in its way: that its connection was kept is no reason.
            (ServerExchange::Http2(_), NoResponse::Reset) => self.exchange.progress.go_over(false),
            _ => {}
        }
        let Exchange { messages, facts, .. } = &mut *self.exchange;
        if matches!(failure, NoResponse::Malformed { .. })
            && messages.response.status == 101
            && !messages.request.upgrade
        {
            // A 101 that nobody asked for is counted all the same.
            facts.sent_head(messages.response());
        }
        match failure {
            NoResponse::Ended(ended) => Failure::Ended(ended),
            other => Failure::NoResponse(other),
        }
    }

    /// Keeps a malformed response for `show errors`.
    #[cold]
    fn capture(&self, position: usize) {
        let (proxy, received) = (&self.exchange.progress.frontend.plan.proxy, &self.exchange.messages.received);
        self.backend.plan.figures.malformed.keep(Capture {
            number: self.core.registry.captures.next(),
            at: self.core.wall(),
            source: self.exchange.connection.source(),
            frontend: (proxy.name.clone(), proxy.id),
            server: Some(self.slot.server().name().clone()),
            bytes: Capture::kept(received),
            len: received.len(),
            position,
        });
    }

    fn may_try_status_again(&self, status: u16) -> bool {
        let proxy = &self.backend.plan.proxy;
        self.exchange.messages.upload.replayable
            && !self.exchange.no_retry
            && proxy.retry_on.statuses.contains(&status)
            && self.exchange.facts.retries < self.retries()
    }

    /// 1xx: passed on at once, to clients that know what it is.
    async fn interim(&mut self, len: usize) -> Result<(), Ended> {
        let exchange = &mut *self.exchange;
        exchange.facts.sent_head(exchange.messages.response());
        exchange.messages.down.clear();
        sink::interim(exchange);
        exchange.messages.received.consume(len);
        exchange.send(self.core).await
    }

    /// The response's head is there: rules, and the head to the client.
    async fn pass_head(
        &mut self,
        mut server: ServerExchange,
        len: usize,
        patience: &Patience,
    ) -> Result<Headed, Ended> {
        self.exchange.facts.sent_head(self.exchange.messages.response());
        self.exchange.facts.server_said(self.exchange.messages.response());
        let judged = self.judge(&server, len, patience).await;
        let Passage { core, exchange, .. } = self;
        let is_closed = match judged {
            Ok(is_closed) => is_closed,
            Err(ended) => {
                // A response that a rule holds back is counted, with what came of its body.
                exchange.facts.sent(exchange.messages.received.len().saturating_sub(len) as u64);
                exchange.facts.response_held_back();
                return Err(ended);
            }
        };
        let may_keep = sink::may_keep(core, exchange) || sink::may_authenticate(core, exchange);
        let server_reusable = !is_closed && exchange.messages.response.server_reusable();
        if server.is_stream() {
            frame_for_client(exchange, &server);
        }
        let framing = exchange.messages.response.framing;
        exchange.messages.down.clear();
        let keep = sink::head(exchange, None, may_keep);
        exchange.facts.responds(exchange.messages.response.status);
        if let ServerExchange::Http1(connection) = &mut server {
            connection.private |= is_private(exchange.messages.response());
        }
        exchange.messages.received.consume(len);
        if framing == Framing::Tunnel {
            exchange.send(core).await?;
            return Ok(Headed::Tunnel(server));
        }
        record::write_early(core, exchange, exchange.messages.received.len());
        let as_chunks = sink::writes_chunks(exchange, framing);
        let Messages { received, down, response_chunks, .. } = &mut *exchange.messages;
        let mut flow =
            Flow::start(body_of(&server, framing), as_chunks, received, response_chunks, down).map_err(|_| {
                exchange.facts.response_withdrawn();
                Ended::new(Cause::Proxy, Phase::Headers)
            })?;
        let long = is_long(core, if server.is_stream() { Body::of(framing) } else { flow.body });
        if long {
            flow.splicer = exchange.progress.frontend.splicers(&core.pipes, self.backend).1.map(Box::new);
        }
        let usual = (long && received.is_empty()).then(|| std::mem::replace(received, core.buffers.take_large()));
        Ok(Headed::Body(server, Download { flow, is_empty: framing.is_empty(), server_reusable, keep, usual }))
    }

    /// The response's body to the client, and what becomes of both connections.
    async fn pass_body(
        self,
        server: ServerExchange,
        mut download: Download,
        began: Instant,
        mut standing: Standing,
    ) -> Result<Passed, Ended> {
        // Rules may have changed it.
        let patience = &self.patience();
        let core = self.core;
        let Exchange { client, orders, deadline, messages, facts, .. } = &mut *self.exchange;
        let mut ends = Ends::new(core, (orders, deadline), *client, &server, patience);
        let mut outcome = transfer::response_body(&mut ends, messages, &mut download.flow, &mut standing).await;
        if outcome == Ok(BodyEnd::Boundary) {
            let download = Some(download);
            return Ok(Passed::Boundary(Box::new(Parked { server, began, standing, download })));
        }
        let Download { flow, is_empty, server_reusable, keep, usual } = download;
        if is_empty && outcome.is_err_and(|ended| ended.cause == Cause::ServerAborted) {
            // The client has all of it. How a stream without a body ended matters to nobody.
            outcome = Ok(BodyEnd::Whole);
        }
        let left_over = !messages.received.is_empty();
        if let Some(usual) = usual {
            core.buffers.give(std::mem::replace(&mut messages.received, usual));
        }
        let rest = match outcome {
            Ok(_) => {
                sink::end(ends.client, &messages.response_chunks);
                match messages.upload.finished || !keep {
                    true => Ok(messages.upload.finished),
                    false => match transfer::rest_of_request(&mut ends, messages, &mut standing).await {
                        Ok(Some(delivered)) => Ok(delivered),
                        Ok(None) => {
                            let server_reusable = server_reusable && !left_over;
                            let download = Some(Download { flow, is_empty, server_reusable, keep, usual: None });
                            return Ok(Passed::Boundary(Box::new(Parked { server, began, standing, download })));
                        }
                        Err(ended) => Err(ended),
                    },
                }
            }
            Err(_) => Ok(false),
        };
        facts.sent(flow.moved);
        facts.received(messages.upload.moved);
        if outcome.is_err_and(|ended| ended.cause != Cause::ServerAborted) {
            server.give_up();
        }
        outcome?;
        let delivered = matches!(rest, Ok(true));
        let sent = Sent {
            keep: keep && messages.upload.finished,
            unread: !messages.upload.finished,
            ..Sent::ended(rest.err())
        };
        let keeps_servers = self.exchange.progress.connection_mode() == ConnectionMode::KeepAlive;
        match server {
            ServerExchange::Http1(connection) if server_reusable && delivered && !left_over && keeps_servers => {
                self.put_by(connection);
            }
            ServerExchange::Http1(_) => {}
            ServerExchange::Http2(stream) => {
                let server = stream.server().clone();
                drop(stream);
                self.core.server_rests(&server, self.core.is_to_leave(self.exchange.orders));
            }
        }
        Ok(Passed::Whole(sent))
    }

    /// `tcp-response content` rules that do not wait for the response.
    fn judge_unseen(&mut self, server: &ServerExchange) -> Result<(), Ended> {
        let Passage { core, exchange, backend, .. } = self;
        match rules::content_response(core, exchange, backend, server.socket(), false)? {
            ContentResponse::Accepted => Ok(()),
            ContentResponse::Closed => Err(Ended::new(Cause::ServerAborted, Phase::Headers)),
        }
    }

    /// The rules about the response, which may wait. `Ok(true)`: its server's connection is to be closed.
    async fn judge(&mut self, server: &ServerExchange, len: usize, patience: &Patience) -> Result<bool, Ended> {
        let Passage { core, exchange, backend, slot } = self;
        let is_closed =
            rules::content_response(core, exchange, backend, server.socket(), true)? == ContentResponse::Closed;
        let mut progress = ResponseProgress::default();
        while let Some(wait) = route::response(core, exchange, backend, slot, Some(server.socket()), &mut progress)? {
            let Exchange { client, orders, deadline, messages, .. } = &mut **exchange;
            let mut ends = Ends::new(core, (orders, deadline), *client, server, patience);
            core.buffers.enlarge(&mut messages.received);
            // Apart, so that the memory of other responses has no room for it.
            Box::pin(hold::before_next_rule(&mut ends, messages, len, wait)).await?;
        }
        Ok(is_closed)
    }

    /// Keeps the server's connection for another request.
    fn put_by(&self, mut connection: Box<ServerConnection>) {
        connection.idle_since = self.core.now();
        if self.exchange.settings.values().is_some_and(SettingValues::is_about_server_socket) {
            return;
        }
        if connection.is_last {
            return;
        }
        if connection.config.max_reuse.is_some_and(|max| connection.requests > max) {
            return;
        }
        let own = self.backend.plan.proxy.http.reuse == Reuse::Never || connection.private;
        if own || !connection.is_shareable() {
            self.exchange.session.keep_private(PrivateConnection::Http1(connection));
        } else {
            self.core.keep_server(connection, self.core.is_to_leave(self.exchange.orders));
        }
    }

    /// How often a request may be sent again.
    fn retries(&self) -> u32 {
        let set = self.exchange.settings.values().and_then(|set| set.retries);
        set.unwrap_or(self.backend.plan.proxy.retries)
    }

    /// Inactivity limits while a message passes.
    fn patience(&self) -> Patience {
        let set = self.exchange.settings.values();
        Patience {
            client: self.exchange.client_timeout(),
            server: set.and_then(|set| set.server_timeout).or(self.backend.plan.proxy.timeouts.server),
            ..Patience::default()
        }
    }
}

/// The body as it is read: a stream has an end of its own, behind all bytes that were announced.
fn body_of(server: &ServerExchange, framing: Framing) -> Body {
    match server {
        ServerExchange::Http1(_) => Body::of(framing),
        ServerExchange::Http2(stream) if framing.is_empty() && stream.is_read() => Body::Done,
        ServerExchange::Http2(_) => Body::UntilClose,
    }
}

/// Says how the client is told the end of a body that came over a stream.
fn frame_for_client(exchange: &mut Exchange<'_>, server: &ServerExchange) {
    let Exchange { client, messages, .. } = exchange;
    let Messages { input, request, response, .. } = &mut **messages;
    let is_read = matches!(server, ServerExchange::Http2(stream) if stream.is_read());
    match (response.framing, client) {
        (Framing::Tunnel, _) if request.method != Method::Connect => {
            let key = request.headers.find(input.pinned(), b"sec-websocket-key");
            response.switch_to_websocket(websocket::accept(key.map_or(&[], |field| field.value)).as_bytes());
        }
        // Nothing follows: a client is told so with the head, as gRPC wants it.
        (Framing::UntilClose, Transport::Http2(_)) if is_read => response.framing = Framing::None,
        (Framing::UntilClose, Transport::Connection(_)) if request.version >= Version::Http11 => {
            response.framing = Framing::Chunked;
            response.headers.add(b"transfer-encoding", b"chunked");
        }
        _ => {}
    }
}

/// Statuses that `observe layer7` takes for a fault: 100-499, 501 and 505 are good (configuration manual, `observe`).
fn observed_bad(status: u16) -> bool {
    !matches!(status, 100..=499 | 501 | 505)
}

/// A response that authenticates the connection itself (NTLM, Negotiate) makes it the client's own.
fn is_private(response: ResponseView<'_>) -> bool {
    if !matches!(response.status(), 401 | 407) {
        return false;
    }
    let name: &[u8] = if response.status() == 401 { b"www-authenticate" } else { b"proxy-authenticate" };
    response.fields().lines(name).any(|value| {
        let scheme = value.split(|byte| *byte == b' ').next().unwrap_or_default();
        scheme.eq_ignore_ascii_case(b"ntlm") || scheme.eq_ignore_ascii_case(b"negotiate")
    })
}
