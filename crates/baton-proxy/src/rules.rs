//! Running compiled rules: what they may look at, and what their verdicts mean here.

mod errors;
mod wait;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use baton_http::{ChunkDecoder, Parsed, RequestHead, RequestMut};
use baton_model::{Proxy, Ruleset, Service};
use baton_rules::{
    Body, Captures, Context, ERRORS, Listener, ProxyName, ProxyRules, Redirect, Reply, Request, Response,
    ResponseSource, RuleCursor, RuleLine, RuleResponse, RuleSettings, RuleWait, TcpContent, TrackedCounters,
    TrackedScopes, UniqueId, VariableScopes, Variables, Verdict,
};

use crate::body::Arrived;
use crate::client::{Client, Input};
use crate::connection::Connection;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::{Exchange, RuleEffects};
use crate::facts::LogFacts;
use crate::live::Live;
use crate::logged::{Logged, LoggedExchange};
use crate::messages::Messages;
use crate::parse;
use crate::passwords;
use crate::progress::Progress;
use crate::proxy_protocol::Addresses;
use crate::session::{Session, SessionMemory};
use crate::state::Counter;
use crate::stream::Stream;
use crate::view::{BackendView, FrontendView};

pub use errors::{error_page, is_silent};

/// An answer of our own.
#[derive(Clone, Debug)]
pub struct OwnResponse {
    /// Head and body, as a server would send them. Empty: the connection is closed without a response.
    pub page: Vec<u8>,
    /// The status in the log when the page, which is a file, may have another one.
    pub logged: Option<u16>,
    /// How the log says it ended.
    pub ended: Option<Ended>,
}

/// What `http-request` and `redirect` rules decide.
#[derive(Clone, Debug)]
pub enum Decision {
    /// This response.
    Answer(OwnResponse),
    /// The question for a user and a password, of this realm or the proxy's name.
    Auth(Option<Arc<str>>),
    /// The response of a service.
    Service(Service),
}

/// What an evaluation looks at, besides the client, the frontend and the messages.
#[derive(Clone, Copy, Default)]
pub struct EvaluationContext<'a> {
    /// The backend, once chosen.
    pub backend: Option<&'a BackendView>,
    /// The server of the exchange is seen too: its response is there.
    pub sees_server: bool,
    /// The connection to it.
    pub server: Option<&'a Stream>,
    /// What the client sent, in `mode tcp`.
    pub content: Option<TcpContent<'a>>,
    /// What its server sent, in `mode tcp`.
    pub answer: Option<&'a [u8]>,
    /// No more data is waited for.
    pub last_chance: bool,
}

/// Evaluates with nothing but the connection, before there is a request. What rules set about its addresses holds for all its requests.
pub fn with_connection<T>(
    core: &Core,
    client: &mut Client,
    view: &FrontendView,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, RuleSettings) {
    let Client { connection, session, .. } = client;
    let is_first = session.requests() == 0;
    let mut settings = RuleSettings::default();
    let scene = EvaluationScope {
        connection,
        session,
        frontend: view,
        server: None,
        is_first,
        tracked: None,
        variables: None,
        last_rule: None,
        settings: &mut settings,
        exchange: None,
        end: None,
    };
    let (value, _) = run(core, scene, EvaluationContext::default(), None, None, evaluate);
    if let Some(set) = settings.values() {
        let Addresses { source, destination } = connection.addresses();
        connection.speak_for(Addresses { source: set.source.or(source), destination: set.destination.or(destination) });
    }
    (value, settings)
}

/// Evaluates with the request.
pub fn with_request<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: Option<&BackendView>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    request_with(core, exchange, EvaluationContext { backend, ..EvaluationContext::default() }, evaluate)
}

/// Evaluates with the request before it is passed on, and as much of its body as is there.
fn request_with<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    about: EvaluationContext<'_>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let (scene, messages) = scene(exchange, about);
    // More bytes would change nothing about a malformed one: relaying it finds the error.
    let complete = messages.body.arrived() != Arrived::Partly;
    let Messages { request, input, request_chunks, .. } = &mut **messages;
    let body = Body::of(request.framing, input, request_chunks);
    let request = Request { head: RequestMut::new(request, input.pinned()), body, complete };
    let (value, said) = run(core, scene, about, Some(request), None, evaluate);
    exchange.heed(said);
    value
}

/// Evaluates with the request as its server sees it, and the response: the server's, or our own that was read from `page`.
fn response_with<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    about: EvaluationContext<'_>,
    page: Option<&[u8]>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let (scene, messages) = scene(exchange, about);
    let (request, head, body) = messages.both_mut(page);
    let request = Request { head: request, body: Body::NONE, complete: true };
    let (value, said) = run(core, scene, about, Some(request), Some(Response { head, body }), evaluate);
    exchange.heed(said);
    value
}

/// The scene of an exchange, which is to heed what is said in it, and what goes through it.
fn scene<'s, M>(exchange: &'s mut Exchange<'_, M>, about: EvaluationContext<'_>) -> (EvaluationScope<'s>, &'s mut M) {
    let Exchange {
        connection,
        session,
        is_first,
        progress,
        tracked,
        variables,
        messages,
        facts,
        captures,
        unique_id,
        number,
        last_rule,
        settings,
        ..
    } = exchange;
    let progress = &*progress;
    let exchange = ExchangeScope { facts, progress, captures, unique_id, number: *number };
    let scene = EvaluationScope {
        connection,
        session,
        frontend: &progress.frontend,
        server: about.sees_server.then_some(progress),
        is_first: *is_first,
        tracked: Some(tracked),
        variables: Some(variables),
        last_rule: *last_rule,
        settings,
        exchange: Some(exchange),
        end: None,
    };
    (scene, messages)
}

/// In whose name an evaluation is.
struct EvaluationScope<'a> {
    connection: &'a Connection,
    session: &'a Session,
    frontend: &'a FrontendView,
    /// Says which server it is, where that is seen.
    server: Option<&'a Progress>,
    is_first: bool,
    /// The entries that the exchange tracks; `None` before there is one.
    tracked: Option<&'a mut TrackedCounters>,
    /// The exchange's variables; `None` before there is one.
    variables: Option<&'a mut Variables>,
    /// The last rule that ended a rule set of the exchange.
    last_rule: Option<RuleLine>,
    /// What else rules have set.
    settings: &'a mut RuleSettings,
    /// What else rules and the log know of the exchange; `None` before there is one.
    exchange: Option<ExchangeScope<'a>>,
    /// How it ended, where the evaluation is for its log line.
    end: Option<Ended>,
}

/// What rules and the log know of an exchange.
#[derive(Clone, Copy)]
struct ExchangeScope<'a> {
    facts: &'a LogFacts,
    progress: &'a Progress,
    captures: &'a RefCell<Captures>,
    unique_id: &'a UniqueId,
    number: u64,
}

/// Evaluates with what is left of an exchange when it is over, for its log line.
pub fn at_end<M, T>(
    core: &Core,
    exchange: &mut Exchange<'_, M>,
    ended: Ended,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let about = EvaluationContext { sees_server: true, ..EvaluationContext::default() };
    let (mut scene, _) = scene(exchange, about);
    scene.end = Some(ended);
    let backend = scene.exchange.and_then(|exchange| exchange.progress.backend()).cloned();
    let about = EvaluationContext { backend: backend.as_deref(), ..about };
    run(core, scene, about, None, None, evaluate).0
}

/// Evaluates with a connection that ended before its first exchange, for the line of its error.
pub fn at_error<T>(
    core: &Core,
    client: &Client,
    view: &FrontendView,
    ended: Ended,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let Client { connection, session, .. } = client;
    let mut settings = RuleSettings::default();
    let scene = EvaluationScope {
        connection,
        session,
        frontend: view,
        server: None,
        is_first: true,
        tracked: None,
        variables: None,
        last_rule: None,
        settings: &mut settings,
        exchange: None,
        end: Some(ended),
    };
    run(core, scene, EvaluationContext::default(), None, None, evaluate).0
}

fn run<T>(
    core: &Core,
    scene: EvaluationScope<'_>,
    about: EvaluationContext<'_>,
    request: Option<Request<'_>>,
    response: Option<Response<'_>>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> (T, RuleEffects) {
    fn name(proxy: &baton_model::Proxy) -> ProxyName<'_> {
        ProxyName { name: &proxy.name, id: proxy.id }
    }
    let EvaluationScope {
        connection,
        session,
        frontend,
        server,
        is_first,
        tracked,
        variables,
        last_rule,
        settings,
        exchange,
        end,
    } = scene;
    let logged = |ExchangeScope { facts, progress, number, .. }| LoggedExchange { facts, progress, number };
    let logged = Logged {
        core,
        connection,
        frontend,
        exchange: exchange.map(logged),
        ended: end.unwrap_or_default(),
        is_over: end.is_some(),
    };
    let over = exchange.map(|exchange| exchange.facts).filter(|_| end.is_some());
    // What HAProxy's log names in the place of a backend that there is none of.
    let missing = over.and_then(|facts| facts.missing.as_deref()).map(|name| ProxyName { name, id: 0 });
    let set = settings.values();
    let source = set.and_then(|set| set.source);
    let changed_destination = Cell::new(set.and_then(|set| set.destination));
    let random = || core.random() as u32;
    let mut scratch = core.scratch.take();
    // Before there is an exchange, what is tracked is the session's.
    let mut memory = session.take_memory();
    let (mut variables_begun, mut tracking_begun) = (Variables::default(), TrackedCounters::default());
    let (of_session, by_session) = match &mut memory {
        Some(memory) => (&mut memory.variables, &mut memory.tracked),
        None => (&mut variables_begun, &mut tracking_begun),
    };
    let listener = connection.listener();
    let chosen = server.and_then(Progress::server);
    let comes_to_backend = exchange.is_some_and(|exchange| exchange.progress.backend().is_none());
    let live =
        Live { core, connection, frontend, backend: about.backend, comes_to_backend, chosen, server: about.server };
    let mut cx = Context {
        now: core.wall(),
        client: source.or_else(|| connection.source()),
        destination: &|| changed_destination.get().or_else(|| connection.destination()),
        changed_destination: &changed_destination,
        client_tls: connection.tls(),
        server_tls: about.server.and_then(Stream::facts),
        frontend: name(&frontend.plan.proxy),
        backend: about.backend.map(|backend| name(&backend.plan.proxy)).or(missing),
        server: chosen.map(|server| &**server.name()).or_else(|| over.and_then(LogFacts::named_server)),
        listener: Listener { name: listener.bind.name.as_deref(), id: listener.number },
        live: &live,
        content: about.content,
        answer: about.answer,
        last_chance: about.last_chance,
        undecided: Cell::new(false),
        no_retry: false,
        failed_rewrites: 0,
        first_request: is_first,
        request,
        response,
        own_status: None,
        line: over.filter(|facts| facts.has_request).map(|facts| &*facts.line),
        response_version: exchange.and_then(|exchange| exchange.facts.response_version),
        captures: exchange.map(|exchange| exchange.captures),
        unique_id: exchange.map(|exchange| (exchange.unique_id, frontend.plan.rules.unique_id_format())),
        log: &logged,
        log_level: None,
        last_rule,
        tracked: TrackedScopes::new(by_session, tracked),
        variables: VariableScopes::new(&core.registry.variables, of_session, variables),
        settings,
        matches_hash: &passwords::matches,
        random: &random,
        scratch: &mut scratch,
    };
    let value = evaluate(&mut cx);
    let (log_level, no_retry, last_rule, failed) = (cx.log_level, cx.no_retry, cx.last_rule, cx.failed_rewrites);
    if let Some(changes) = cx.settings.take_socket() {
        connection.stream.change_socket(changes);
    }
    // Now what converters set is stored.
    drop(cx);
    *core.scratch.borrow_mut() = scratch;
    if !(variables_begun.is_empty() && tracking_begun.is_empty()) {
        memory = Some(Box::new(SessionMemory::new(core, variables_begun, tracking_begun)));
    }
    session.put_memory(memory);
    if failed > 0 {
        let backend = about.backend.map(|backend| &backend.plan.figures.counters);
        let server = server.and_then(Progress::server_counters).map(|counters| &**counters);
        let all = [Some(&frontend.plan.state.counters), backend, server];
        all.into_iter()
            .flatten()
            .for_each(|counters| counters.add(core.number, Counter::FailedRewrites, failed.into()));
    }
    (value, RuleEffects { log_level, no_retry, last_rule })
}

/// `tcp-request content` rules of one proxy in `mode http`, where the request's head is there: they may wait for its body.
pub async fn content(
    core: &Core,
    exchange: &mut Exchange<'_>,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(());
    }
    let view = exchange.progress.frontend.clone();
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    let mut at = RuleCursor::default();
    loop {
        let about = EvaluationContext { backend, last_chance, ..EvaluationContext::default() };
        let verdict = request_with(core, exchange, about, |cx| rules.tcp_content(cx, &mut at));
        match verdict {
            Verdict::Wait(RuleWait::Address(wait)) => {
                if let Some(address) = Box::pin(wait::address(core, exchange, &wait, due)).await? {
                    request_with(core, exchange, about, |cx| wait.found(address, cx));
                }
                continue;
            }
            Verdict::Reject => {
                note_rejection(exchange, &view, backend);
                return Err(Ended::refused(Cause::Proxy, Phase::Request, 0));
            }
            Verdict::SilentDrop(ttl) => {
                note_rejection(exchange, &view, backend);
                return Err(forget(exchange, ttl));
            }
            Verdict::Wait(_) if !last_chance => {}
            _ => return Ok(()),
        }
        exchange.deadline.set(due);
        last_chance = match parse::read_body(core, exchange).await {
            Ok(Ok(count)) => count == 0,
            Ok(Err(_)) | Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Request)),
        };
        if exchange.messages.body.arrived() == Arrived::Malformed {
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

/// What content rules say about a connection in `mode tcp`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StreamContent {
    /// It goes on.
    Accepted,
    /// It goes on in `mode http`.
    IsHttp,
}

/// `tcp-request content` rules of one proxy in `mode tcp`: waits for bytes until they decide, at most `inspect-delay`.
pub async fn stream_content(
    core: &Core,
    exchange: &mut Exchange<'_, Input>,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<StreamContent, Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(StreamContent::Accepted);
    }
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    let mut at = RuleCursor::default();
    loop {
        match with_stream(core, exchange, backend, last_chance, |cx| rules.tcp_content(cx, &mut at)) {
            Verdict::Wait(RuleWait::Address(wait)) => {
                if let Some(address) = Box::pin(wait::address(core, exchange, &wait, due)).await? {
                    with_stream(core, exchange, backend, last_chance, |cx| wait.found(address, cx));
                }
                continue;
            }
            Verdict::Reject => return Err(Ended::refused(Cause::Proxy, Phase::Request, 0)),
            Verdict::SilentDrop(ttl) => return Err(forget(exchange, ttl)),
            Verdict::SwitchMode => return Ok(StreamContent::IsHttp),
            Verdict::Wait(_) if !last_chance => {}
            _ => return Ok(StreamContent::Accepted),
        }
        exchange.deadline.set(due);
        let Exchange { client, orders, deadline, messages: input, .. } = &mut *exchange;
        let buffer = input.get_or_insert_with(|| Box::new(core.buffers.take()));
        let read = until(core, orders, deadline, |cx| client.poll_read(cx, buffer.room())).await;
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
    exchange: &mut Exchange<'_, Input>,
    backend: Option<&BackendView>,
    last_chance: bool,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let view = exchange.progress.frontend.clone();
    let about = EvaluationContext { backend, last_chance, ..EvaluationContext::default() };
    let (scene, input) = scene(exchange, about);
    let bytes: &[u8] = input.as_deref().map(|buffer| &**buffer).unwrap_or_default();
    let (mut head, decoder) = (RequestHead::new(), ChunkDecoder::default());
    let parsed = if bytes.is_empty() { Ok(Parsed::Partial) } else { head.parse(bytes, &view.limits) };
    let may_become_http = matches!(parsed, Ok(Parsed::Partial)) && !head.is_hopeless(bytes);
    let request = match parsed {
        Ok(Parsed::Complete(len)) => {
            let body = Body::of(head.framing, &bytes[len..], &decoder);
            Some(Request { head: RequestMut::new(&mut head, &bytes[..len]), body, complete: last_chance })
        }
        Ok(Parsed::Partial) | Err(_) => None,
    };
    let about = EvaluationContext { content: Some(TcpContent { bytes, may_become_http }), ..about };
    let (value, said) = run(core, scene, about, request, None, evaluate);
    exchange.heed(said);
    value
}

/// Evaluates with the response of a server, and the request as that saw it.
pub fn with_response<T>(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    server: Option<&Stream>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let about = EvaluationContext { backend: Some(backend), sees_server: true, server, ..EvaluationContext::default() };
    response_with(core, exchange, about, None, evaluate)
}

/// `tcp-response content` rules of a backend in `mode tcp`, with what its server sent so far.
pub fn stream_response(
    core: &Core,
    exchange: &mut Exchange<'_, Input>,
    backend: &BackendView,
    answered: (&Stream, &[u8]),
    last_chance: bool,
) -> Verdict {
    with_stream_response(core, exchange, backend, answered, last_chance, |cx| backend.plan.rules.tcp_response(cx))
}

/// Evaluates with what the server of a client in `mode tcp` sent so far.
pub fn with_stream_response<T>(
    core: &Core,
    exchange: &mut Exchange<'_, Input>,
    backend: &BackendView,
    (server, answer): (&Stream, &[u8]),
    last_chance: bool,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let about = EvaluationContext {
        backend: Some(backend),
        sees_server: true,
        server: Some(server),
        answer: Some(answer),
        last_chance,
        ..EvaluationContext::default()
    };
    let (scene, _) = scene(exchange, about);
    let (value, said) = run(core, scene, about, None, None, evaluate);
    exchange.heed(said);
    value
}

/// What is to become of a response after `tcp-response content` rules.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum ContentResponse {
    /// It goes on.
    Accepted,
    /// Its server is not heard any more.
    Closed,
}

/// `tcp-response content` rules of a backend in `mode http`. As in HAProxy, they see the response's head only if there is an inspection
/// delay, and then are evaluated when it `is_there`; else when there is a server.
pub fn content_response(
    core: &Core,
    exchange: &mut Exchange<'_>,
    backend: &BackendView,
    server: &Stream,
    is_there: bool,
) -> Result<ContentResponse, Ended> {
    let rules = &backend.plan.rules;
    if !rules.has(Ruleset::TcpResponse) || rules.response_inspect_delay.is_some() != is_there {
        return Ok(ContentResponse::Accepted);
    }
    let about = EvaluationContext {
        backend: Some(backend),
        sees_server: true,
        server: Some(server),
        last_chance: true,
        ..EvaluationContext::default()
    };
    let verdict = match is_there {
        true => response_with(core, exchange, about, None, |cx| rules.tcp_response(cx)),
        false => {
            let (scene, messages) = scene(exchange, about);
            let Messages { request, input, .. } = &mut **messages;
            let head = RequestMut::new(request, input.pinned());
            let request = Request { head, body: Body::NONE, complete: true };
            let (verdict, said) = run(core, scene, about, Some(request), None, |cx| rules.tcp_response(cx));
            exchange.heed(said);
            verdict
        }
    };
    let logged = if is_there { exchange.messages.response.status } else { 0 };
    match verdict {
        Verdict::Close => Ok(ContentResponse::Closed),
        Verdict::Reject => {
            exchange.facts.denied();
            Err(Ended { logged, ..Ended::refused(Cause::Proxy, Phase::Data, 0) })
        }
        Verdict::SilentDrop(ttl) => Err(Ended { logged, ..forget(exchange, ttl) }),
        _ => Ok(ContentResponse::Accepted),
    }
}

/// `http-request` rules of one proxy, and its `redirect` rules if they come `with_redirects`. `Some` is what they decide.
pub async fn request(
    core: &Core,
    exchange: &mut Exchange<'_>,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
    with_redirects: bool,
) -> Result<Option<Decision>, Ended> {
    let (has_rules, has_redirects) = (rules.has(Ruleset::HttpRequest), with_redirects && rules.has(Ruleset::Redirect));
    if !has_rules && !has_redirects {
        return Ok(None);
    }
    let view = exchange.progress.frontend.clone();
    let mut at = RuleCursor::default();
    let mut evaluate = |cx: &mut Context<'_>| {
        let verdict = if has_rules { rules.http_request(cx, &mut at) } else { Verdict::Continue };
        match verdict {
            Verdict::Continue | Verdict::Allow if has_redirects => {
                rules.redirect(cx).map_or(Verdict::Continue, Verdict::Redirect)
            }
            verdict => verdict,
        }
    };
    let mut verdict = with_request(core, exchange, backend, &mut evaluate);
    while let Verdict::Wait(wait) = verdict {
        // Apart, so that the memory of requests that do not wait has no room for it.
        Box::pin(wait::in_request(core, exchange, backend, wait)).await?;
        verdict = with_request(core, exchange, backend, &mut evaluate);
    }
    match verdict {
        Verdict::Continue | Verdict::Allow | Verdict::Wait(_) | Verdict::Close | Verdict::SwitchMode => Ok(None),
        Verdict::SilentDrop(ttl) => {
            exchange.facts.forget_request_time();
            Err(forget(exchange, ttl))
        }
        Verdict::Deny(denial) => {
            exchange.facts.denied();
            exchange.count(core, ERRORS, 1);
            deny(denial, Phase::Request).map(answer)
        }
        Verdict::Tarpit(denial) => {
            exchange.facts.denied();
            exchange.count(core, ERRORS, 1);
            let began = core.now();
            let held = tarpit(core, exchange, &view).await;
            exchange.facts.held(core.now().saturating_duration_since(began));
            held?;
            deny(denial, Phase::Tarpit).map(answer)
        }
        Verdict::Redirect(redirect) => Ok(answer(redirected(exchange, &redirect))),
        Verdict::Return(response) => {
            let ended = Some(Ended::refused(Cause::Local, Phase::Request, 0));
            let RuleResponse { status, source } = response;
            let page = match own_content(source) {
                Some(page) => page,
                None => error_page(core, exchange, backend, status),
            };
            Ok(answer(OwnResponse { page, logged: Some(status), ended }))
        }
        Verdict::Auth(realm) => Ok(Some(Decision::Auth(realm))),
        Verdict::UseService(service) => Ok(Some(Decision::Service(service))),
        Verdict::Reject => {
            exchange.facts.denied();
            exchange.facts.forget_request_time();
            Err(Ended::refused(Cause::Proxy, Phase::Request, 0))
        }
        Verdict::Invalid => {
            exchange.count(core, ERRORS, 1);
            exchange.facts.forget_request_time();
            Err(Ended::new(Cause::Proxy, Phase::Request))
        }
        Verdict::Failed => {
            exchange.facts.forget_request_time();
            Err(Ended::refused(Cause::Proxy, Phase::Request, 500))
        }
    }
}

/// `redirect` rules of one proxy, where they are evaluated alone.
pub fn redirect(
    core: &Core,
    exchange: &mut Exchange<'_>,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Option<OwnResponse> {
    if !rules.has(Ruleset::Redirect) {
        return None;
    }
    let redirect = with_request(core, exchange, backend, |cx| rules.redirect(cx))?;
    Some(redirected(exchange, &redirect))
}

fn redirected(exchange: &Exchange<'_>, redirect: &Redirect) -> OwnResponse {
    let mut page = Vec::new();
    redirect.write_head(!exchange.messages.request.framing.is_empty(), &mut page);
    OwnResponse { page, logged: None, ended: Some(Ended::refused(Cause::Local, Phase::Request, 0)) }
}

fn answer(answer: OwnResponse) -> Option<Decision> {
    Some(Decision::Answer(answer))
}

/// The response of a `deny` rule. `Err`: it is the proxy's page of the status.
pub fn deny(response: RuleResponse, phase: Phase) -> Result<OwnResponse, Ended> {
    let RuleResponse { status, source } = response;
    let ended = Ended::refused(Cause::Proxy, phase, status);
    match own_content(source) {
        Some(page) => Ok(OwnResponse { page, logged: Some(status), ended: Some(ended) }),
        None => Err(ended),
    }
}

/// The response that a rule has of its own; `None`: the proxy's page.
fn own_content(source: ResponseSource) -> Option<Vec<u8>> {
    match source {
        ResponseSource::ErrorPage => None,
        ResponseSource::File(content) => Some(content.to_vec()),
        ResponseSource::Composed(reply) => Some(composed(&reply)),
    }
}

fn composed(reply: &Reply) -> Vec<u8> {
    let mut page = Vec::new();
    reply.write_head(false, &mut page);
    page.extend_from_slice(&reply.body);
    page
}

/// `http-response` rules of one proxy, on the server's response. `Some`: what to wait for before they go on from `at`.
pub fn response(
    core: &Core,
    exchange: &mut Exchange<'_>,
    rules: &ProxyRules,
    backend: &Rc<BackendView>,
    server: Option<&Stream>,
    at: &mut RuleCursor,
) -> Result<Option<RuleWait>, Ended> {
    if !rules.has(Ruleset::HttpResponse) {
        return Ok(None);
    }
    let about = EvaluationContext { backend: Some(backend), sees_server: true, server, ..EvaluationContext::default() };
    let verdict = response_with(core, exchange, about, None, |cx| rules.http_response(cx, at));
    match verdict {
        Verdict::Wait(wait) => Ok(Some(wait)),
        // Services and the question for a password answer requests, of which this is the response.
        Verdict::Continue
        | Verdict::Allow
        | Verdict::Auth(_)
        | Verdict::UseService(_)
        | Verdict::Close
        | Verdict::SwitchMode
        | Verdict::Invalid => Ok(None),
        Verdict::SilentDrop(ttl) => {
            let logged = exchange.messages.response.status;
            Err(Ended { logged, ..forget(exchange, ttl) })
        }
        Verdict::Deny(denial) | Verdict::Tarpit(denial) => {
            exchange.facts.denied();
            exchange.progress.replace_response(own_content(denial.source));
            Err(Ended::refused(Cause::Proxy, Phase::Headers, denial.status))
        }
        Verdict::Redirect(redirect) => {
            let mut page = Vec::new();
            redirect.write_head(false, &mut page);
            exchange.progress.replace_response(Some(page));
            Err(Ended::refused(Cause::Local, Phase::Headers, redirect.status))
        }
        Verdict::Return(response) => {
            exchange.progress.replace_response(own_content(response.source));
            Err(Ended::refused(Cause::Local, Phase::Headers, response.status))
        }
        Verdict::Reject => {
            exchange.facts.denied();
            Err(Ended::refused(Cause::Proxy, Phase::Headers, 502))
        }
        Verdict::Failed => Err(Ended::refused(Cause::Proxy, Phase::Headers, 500)),
    }
}

/// `http-after-response` rules of backend and frontend, on the response: the server's, or our own that was read
/// from `page`. False: a rewrite failed.
#[must_use]
pub fn after(core: &Core, exchange: &mut Exchange<'_>, page: Option<&[u8]>, server: Option<&Stream>) -> bool {
    let frontend = exchange.progress.frontend.clone();
    let backend = exchange.progress.backend().cloned();
    let own = &frontend.plan.rules;
    let other = backend.as_ref().filter(|backend| !frontend.is_listen_of(backend));
    let lists = [other.map(|backend| &backend.plan.rules), Some(own)];
    for rules in lists.into_iter().flatten().filter(|rules| rules.has(Ruleset::HttpAfterResponse)) {
        let backend = backend.as_deref();
        let about = EvaluationContext { backend, sees_server: true, server, ..EvaluationContext::default() };
        let verdict = response_with(core, exchange, about, page, |cx| rules.http_after_response(cx));
        if verdict == Verdict::Failed {
            return false;
        }
    }
    true
}

/// `silent-drop`: forgets the client's connection. How the exchange ends by that.
pub fn forget<M>(exchange: &mut Exchange<'_, M>, ttl: Option<u8>) -> Ended {
    exchange.facts.denied();
    exchange.connection.stream.forget(ttl);
    Ended::refused(Cause::Proxy, Phase::Request, 0)
}

/// Holds the client for `timeout tarpit`.
async fn tarpit(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView) -> Result<(), Ended> {
    let timeouts = &view.plan.proxy.timeouts;
    match timeouts.tarpit.or(timeouts.connect) {
        Some(time) => wait::hold(core, exchange, time, Phase::Tarpit).await,
        None => Ok(()),
    }
}
