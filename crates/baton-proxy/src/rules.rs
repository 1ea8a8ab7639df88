//! Running compiled rules: what they may look at, and what their verdicts mean here.

use std::cell::Cell;
use std::rc::Rc;
use std::task::Poll;

use baton_http::{ChunkDecoder, Parsed, RequestHead};
use baton_model::{Proxy, Ruleset};
use baton_rules::{
    Body, Content, Context, Denial, Listener, ProxyName, ProxyRules, Reply, Request, Response, VariableScopes,
    Variables, Verdict,
};
use baton_tls::Facts;

use crate::body::Arrived;
use crate::client::{Client, Input};
use crate::connection::Connection;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::{Exchange, Said};
use crate::parse;
use crate::progress::Progress;
use crate::session::Session;
use crate::state::Counter;
use crate::view::{BackendView, FrontendView};
use crate::work::Work;

/// An answer of our own.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Head and body, as a server would send them.
    pub page: Vec<u8>,
    /// How the log says it ended.
    pub ended: Option<Ended>,
}

/// What an evaluation looks at, besides the client, the frontend and the messages.
#[derive(Clone, Copy, Default)]
pub struct About<'a> {
    /// The backend, once chosen.
    pub backend: Option<&'a BackendView>,
    /// The server of the exchange is seen too: its response is there.
    pub sees_server: bool,
    /// What was agreed on with it.
    pub server_tls: Option<&'a Facts>,
    /// What the client sent, in `mode tcp`.
    pub content: Option<Content<'a>>,
    /// No more data is waited for.
    pub last_chance: bool,
}

/// Evaluates with nothing but the connection, before there is a request.
pub fn with_connection<T>(
    core: &Core,
    client: &Client,
    view: &FrontendView,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let Client { connection, session, .. } = client;
    let is_first = session.requests() == 0;
    let scene = Scene { connection, session, frontend: view, server: None, is_first, variables: None };
    run(core, scene, About::default(), None, None, evaluate).0
}

/// Evaluates with the request.
pub fn with_request<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    backend: Option<&BackendView>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let request = request_of(work);
    with(core, exchange, About { backend, ..About::default() }, Some(request), None, evaluate)
}

/// The request before it is passed on, with as much of its body as is there.
fn request_of(work: &mut Work) -> Request<'_> {
    // More bytes would change nothing about a malformed one: relaying it finds the error.
    let complete = work.body.arrived() != Arrived::Partly;
    let body = Body::of(work.request.framing, &work.input, &work.request_chunks);
    Request { head: &mut work.request, buf: work.input.pinned(), body, complete }
}

/// Evaluates for an exchange, which heeds what was said about it.
fn with<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    about: About<'_>,
    request: Option<Request<'_>>,
    response: Option<Response<'_>>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let Exchange { connection, session, is_first, progress, variables, .. } = exchange;
    let progress = &*progress;
    let (frontend, server) = (&progress.frontend, about.sees_server.then_some(progress));
    let scene = Scene { connection, session, frontend, server, is_first: *is_first, variables: Some(variables) };
    let (value, said) = run(core, scene, about, request, response, evaluate);
    exchange.heed(said);
    value
}

/// In whose name an evaluation is.
struct Scene<'a> {
    connection: &'a Connection,
    session: &'a Session,
    frontend: &'a FrontendView,
    /// Says which server it is, where that is seen.
    server: Option<&'a Progress>,
    is_first: bool,
    /// The exchange's variables; `None` before there is one.
    variables: Option<&'a mut Variables>,
}

fn run<T>(
    core: &Core,
    scene: Scene<'_>,
    about: About<'_>,
    request: Option<Request<'_>>,
    response: Option<Response<'_>>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, Said) {
    fn name(proxy: &baton_model::Proxy) -> ProxyName<'_> {
        ProxyName { name: &proxy.name, id: proxy.id }
    }
    let Scene { connection, session, frontend, server, is_first, variables } = scene;
    let random = || core.random() as u32;
    let usable_servers = |name: &str| frontend.backends.get(name).map(|backend| backend.usable_servers());
    let (mut scratch, mut of_session) = (core.scratch.take(), session.variables.take());
    let listener = connection.listener();
    let mut cx = Context {
        now: core.wall(),
        client: connection.addresses.source,
        destination: connection.addresses.destination,
        client_tls: connection.tls(),
        server_tls: about.server_tls,
        frontend: name(&frontend.plan.proxy),
        backend: about.backend.map(|backend| name(&backend.plan.proxy)),
        server: server.and_then(Progress::server).map(|server| &**server.name()),
        listener: Listener { name: listener.bind.name.as_deref(), id: listener.number },
        usable_servers: &usable_servers,
        content: about.content,
        last_chance: about.last_chance,
        undecided: Cell::new(false),
        no_retry: false,
        failed_rewrites: 0,
        first_request: is_first,
        request,
        response,
        log_level: None,
        variables: VariableScopes { session: &mut of_session, exchange: variables },
        random: &random,
        scratch: &mut scratch,
    };
    let value = evaluate(&mut cx);
    let (log_level, no_retry, failed) = (cx.log_level, cx.no_retry, cx.failed_rewrites);
    *core.scratch.borrow_mut() = scratch;
    session.variables.set(of_session);
    if failed > 0 {
        let backend = about.backend.map(|backend| &backend.plan.figures.counters);
        let server = server.and_then(Progress::server_counters).map(|counters| &**counters);
        let all = [Some(&frontend.plan.state.counters), backend, server];
        all.into_iter()
            .flatten()
            .for_each(|counters| counters.add(core.number, Counter::FailedRewrites, failed.into()));
    }
    (value, Said { log_level, no_retry })
}

/// `tcp-request content` rules of one proxy in `mode http`, where the request's head is there: they may wait for its body.
pub async fn content(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(());
    }
    let view = exchange.progress.frontend.clone();
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    loop {
        let request = request_of(work);
        let about = About { backend, last_chance, ..About::default() };
        let verdict = with(core, exchange, about, Some(request), None, |cx| rules.tcp_content(cx));
        match verdict {
            Verdict::Reject => {
                note_rejection(exchange, &view, backend);
                return Err(Ended::refused(Cause::Proxy, Phase::Request, 0));
            }
            Verdict::Wait if !last_chance => {}
            _ => return Ok(()),
        }
        exchange.deadline.set(due);
        last_chance = match parse::read_body(core, exchange, work).await {
            Ok(Ok(count)) => count == 0,
            Ok(Err(_)) | Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Request)),
        };
        if work.body.arrived() == Arrived::Malformed {
            exchange.facts.forget_request_time();
            return Err(Ended::new(Cause::Proxy, Phase::Request));
        }
        exchange.facts.request_received(core.now());
    }
}

/// What HAProxy logs of a request that ends in content rules: in a frontend nothing was read of it yet, in a backend its time
/// is known once its body was waited for.
fn note_rejection(exchange: &mut Exchange<'_>, frontend: &FrontendView, backend: Option<&BackendView>) {
    let buffered = |proxy: &Proxy| proxy.http.buffer_request;
    exchange.facts.rejected_as_content(backend.is_some());
    if !backend.is_some_and(|backend| buffered(&backend.plan.proxy) || buffered(&frontend.plan.proxy)) {
        exchange.facts.forget_request_time();
    }
}

/// `tcp-request content` rules of one proxy in `mode tcp`: waits for bytes until they decide, at most `inspect-delay`.
pub async fn stream_content(
    core: &Core,
    exchange: &mut Exchange<'_>,
    input: &mut Input,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(());
    }
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    loop {
        match with_stream(core, exchange, input, backend, last_chance, |cx| rules.tcp_content(cx)) {
            Verdict::Reject => return Err(Ended::refused(Cause::Proxy, Phase::Request, 0)),
            Verdict::Wait if !last_chance => {}
            _ => return Ok(()),
        }
        exchange.deadline.set(due);
        let buffer = input.get_or_insert_with(|| Box::new(core.buffers.take()));
        let Exchange { connection, deadline, .. } = &mut *exchange;
        let stream = &connection.stream;
        let read = until(core, connection.orders(), deadline, |cx| stream.poll_read(cx, buffer.room())).await;
        last_chance = match read {
            Ok(Ok(count)) => {
                buffer.filled(count);
                count == 0
            }
            Ok(Err(_)) | Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Request)),
        };
    }
}

/// Evaluates with what a client in `mode tcp` sent so far, and with the request if that is one.
pub fn with_stream<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    input: &Input,
    backend: Option<&BackendView>,
    last_chance: bool,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let bytes: &[u8] = input.as_deref().map(|buffer| &**buffer).unwrap_or_default();
    let (mut head, decoder) = (RequestHead::new(), ChunkDecoder::default());
    let parsed =
        if bytes.is_empty() { Ok(Parsed::Partial) } else { head.parse(bytes, &exchange.progress.frontend.limits) };
    let may_become_http = matches!(parsed, Ok(Parsed::Partial)) && !head.is_hopeless(bytes);
    let request = match parsed {
        Ok(Parsed::Complete(len)) => {
            let body = Body::of(head.framing, &bytes[len..], &decoder);
            Some(Request { head: &mut head, buf: &bytes[..len], body, complete: last_chance })
        }
        Ok(Parsed::Partial) | Err(_) => None,
    };
    let content = Some(Content { bytes, may_become_http });
    let about = About { backend, content, last_chance, ..About::default() };
    with(core, exchange, about, request, None, evaluate)
}

/// `http-request` and `redirect` rules of one proxy. `Some` is the answer they give.
pub async fn request(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<Option<Answer>, Ended> {
    let (has_rules, has_redirects) = (rules.has(Ruleset::HttpRequest), rules.has(Ruleset::Redirect));
    if !has_rules && !has_redirects {
        return Ok(None);
    }
    let view = exchange.progress.frontend.clone();
    let verdict = with_request(core, exchange, work, backend, |cx| {
        let verdict = if has_rules { rules.http_request(cx) } else { Verdict::Continue };
        match verdict {
            Verdict::Continue | Verdict::Allow if has_redirects => {
                rules.redirect(cx).map_or(Verdict::Continue, Verdict::Redirect)
            }
            verdict => verdict,
        }
    });
    match verdict {
        // Only content rules wait.
        Verdict::Continue | Verdict::Allow | Verdict::Wait => Ok(None),
        Verdict::Deny(denial) => {
            exchange.facts.denied();
            deny(denial, Phase::Request).map(Some)
        }
        Verdict::Tarpit(denial) => {
            exchange.facts.denied();
            let began = core.now();
            let held = tarpit(core, exchange, &view).await;
            exchange.facts.held(core.now().saturating_duration_since(began));
            held?;
            deny(denial, Phase::Tarpit).map(Some)
        }
        Verdict::Redirect(redirect) => {
            let mut page = Vec::new();
            redirect.write_head(!work.request.framing.is_empty(), &mut page);
            Ok(Some(Answer { page, ended: Some(Ended::refused(Cause::Local, Phase::Request, 0)) }))
        }
        Verdict::Return(reply) => {
            Ok(Some(Answer { page: page(&reply), ended: Some(Ended::refused(Cause::Local, Phase::Request, 0)) }))
        }
        Verdict::Reject => {
            exchange.facts.denied();
            exchange.facts.forget_request_time();
            Err(Ended::refused(Cause::Proxy, Phase::Request, 0))
        }
        Verdict::Failed => {
            exchange.facts.forget_request_time();
            Err(Ended::refused(Cause::Proxy, Phase::Request, 500))
        }
    }
}

fn deny(denial: Denial, phase: Phase) -> Result<Answer, Ended> {
    let ended = Ended::refused(Cause::Proxy, phase, denial.status);
    match denial.reply {
        Some(reply) => Ok(Answer { page: page(&reply), ended: Some(ended) }),
        None => Err(ended),
    }
}

fn page(reply: &Reply) -> Vec<u8> {
    let mut page = Vec::new();
    reply.write_head(false, &mut page);
    page.extend_from_slice(&reply.body);
    page
}

/// `http-response` rules of one proxy, on the response in `work`.
pub fn response(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    rules: &ProxyRules,
    backend: &Rc<BackendView>,
    server_tls: Option<&Facts>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::HttpResponse) {
        return Ok(());
    }
    let Work { request, response, input, received, .. } = work;
    let request = Request { head: request, buf: input.pinned(), body: Body::NONE, complete: true };
    let response = Response { head: response, buf: received };
    let about = About { backend: Some(backend), sees_server: true, server_tls, ..About::default() };
    let verdict = with(core, exchange, about, Some(request), Some(response), |cx| rules.http_response(cx));
    match verdict {
        Verdict::Continue | Verdict::Allow | Verdict::Wait => Ok(()),
        Verdict::Deny(denial) | Verdict::Tarpit(denial) => {
            exchange.facts.denied();
            exchange.progress.replace_response(denial.reply.as_ref().map(page));
            Err(Ended::refused(Cause::Proxy, Phase::Headers, denial.status))
        }
        Verdict::Redirect(redirect) => {
            let mut page = Vec::new();
            redirect.write_head(false, &mut page);
            exchange.progress.replace_response(Some(page));
            Err(Ended::refused(Cause::Local, Phase::Headers, redirect.status))
        }
        Verdict::Return(reply) => {
            exchange.progress.replace_response(Some(page(&reply)));
            Err(Ended::refused(Cause::Local, Phase::Headers, reply.status))
        }
        Verdict::Reject => {
            exchange.facts.denied();
            Err(Ended::refused(Cause::Proxy, Phase::Headers, 502))
        }
        Verdict::Failed => Err(Ended::refused(Cause::Proxy, Phase::Headers, 500)),
    }
}

/// `http-after-response` rules of backend and frontend, on the response in `work`: the server's, or our own that was read
/// from `page`. False: a rewrite failed.
#[must_use]
pub fn after(
    core: &Core,
    exchange: &mut Exchange<'_>,
    work: &mut Work,
    page: Option<&[u8]>,
    server_tls: Option<&Facts>,
) -> bool {
    let frontend = exchange.progress.frontend.clone();
    let backend = exchange.progress.backend().cloned();
    let own = &frontend.plan.rules;
    let other = backend.as_ref().filter(|backend| backend.plan.proxy.name != frontend.plan.proxy.name);
    let lists = [other.map(|backend| &backend.plan.rules), Some(own)];
    for rules in lists.into_iter().flatten().filter(|rules| rules.has(Ruleset::HttpAfterResponse)) {
        let Work { request, response, input, received, .. } = &mut *work;
        let request = Request { head: request, buf: input.pinned(), body: Body::NONE, complete: true };
        let response = Response { head: response, buf: page.unwrap_or(received) };
        let backend = backend.as_deref();
        let about = About { backend, sees_server: true, server_tls, ..About::default() };
        let verdict = with(core, exchange, about, Some(request), Some(response), |cx| rules.http_after_response(cx));
        if verdict == Verdict::Failed {
            return false;
        }
    }
    true
}

/// Holds the client for `timeout tarpit`.
async fn tarpit(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView) -> Result<(), Ended> {
    let timeouts = &view.plan.proxy.timeouts;
    exchange.deadline.set(timeouts.tarpit.or(timeouts.connect).map(|limit| core.now() + limit));
    if exchange.deadline.due().is_none() {
        return Ok(());
    }
    let Exchange { connection, deadline, .. } = exchange;
    // A client that only ends its direction gets its answer all the same.
    let broken = until(core, connection.orders(), deadline, |cx| match connection.stream.poll_closed(cx) {
        Poll::Ready(Err(_)) => Poll::Ready(()),
        Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
    });
    match broken.await {
        Ok(()) => Err(Ended::new(Cause::ClientAborted, Phase::Tarpit)),
        Err(Interrupt::Timeout) => Ok(()),
        Err(Interrupt::Abort) => Err(Ended::aborted(Phase::Tarpit)),
    }
}
