//! What rules may look at: an evaluation with all that is there of a connection, a request, a response or a stream.

use std::cell::{Cell, RefCell};

use baton_http::{ChunkDecoder, Parsed, RequestHead, RequestMut};
use baton_rules::{
    Body, Captures, Context, Listener, ProxyName, Request, Response, RuleLine, RuleSettings, TcpContent,
    TrackedCounters, TrackedScopes, UniqueId, VariableScopes, Variables,
};

use crate::body::Arrived;
use crate::client::{Client, Input};
use crate::connection::Connection;
use crate::core::Core;
use crate::ended::Ended;
use crate::exchange::{Exchange, RuleEffects};
use crate::facts::LogFacts;
use crate::live::Live;
use crate::logged::{Logged, LoggedExchange};
use crate::messages::Messages;
use crate::passwords;
use crate::progress::Progress;
use crate::proxy_protocol::Addresses;
use crate::session::{Session, SessionMemory};
use crate::state::Counter;
use crate::stream::Stream;
use crate::transport::Transport;
use crate::view::{BackendView, FrontendView};

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
pub(super) fn request_with<T>(
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
pub(super) fn response_with<T>(
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

/// Makes the exchange's unique ID unless it was made: of its connection alone, where it is asked for without a request.
pub fn make_unique_id<M>(core: &Core, exchange: &mut Exchange<'_, M>, backend: &BackendView) {
    if exchange.unique_id.made().is_some() {
        return;
    }
    let about = EvaluationContext { backend: Some(backend), ..EvaluationContext::default() };
    let (scene, _) = scene(exchange, about);
    let (_, said) = run(core, scene, about, None, None, |cx| _ = cx.unique_id());
    exchange.heed(said);
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

/// The scene of an exchange, which is to heed what is said in it, and what goes through it.
pub(super) fn scene<'s, M>(
    exchange: &'s mut Exchange<'_, M>,
    about: EvaluationContext<'_>,
) -> (EvaluationScope<'s>, &'s mut M) {
    let Exchange {
        client,
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
    let exchange = ExchangeScope { client: *client, facts, progress, captures, unique_id, number: *number };
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
pub(super) struct EvaluationScope<'a> {
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
pub(super) struct ExchangeScope<'a> {
    client: Transport<'a>,
    facts: &'a LogFacts,
    progress: &'a Progress,
    captures: &'a RefCell<Captures>,
    unique_id: &'a UniqueId,
    number: u64,
}

pub(super) fn run<T>(
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
    let speaks_http2 = exchange.and_then(|exchange| exchange.progress.speaks_http2());
    let comes_to_backend = exchange.is_some_and(|exchange| exchange.progress.backend().is_none());
    let live = Live {
        core,
        connection,
        frontend,
        backend: about.backend,
        comes_to_backend,
        chosen,
        server: about.server,
        speaks_http2,
        client: exchange.map(|exchange| exchange.client),
        requests: session.requests(),
        begun: exchange.and_then(|exchange| exchange.progress.begun()),
        ended: end.or_else(|| exchange.and_then(|exchange| exchange.progress.early_end())),
    };
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
