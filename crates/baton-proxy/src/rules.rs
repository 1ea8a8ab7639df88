//! Running compiled rules: what their verdicts mean here. What they may look at: `evaluate.rs`.

mod errors;
mod evaluate;
mod wait;

use std::rc::Rc;
use std::sync::Arc;

use baton_http::RequestMut;
use baton_model::{Proxy, Ruleset, Service};
use baton_rules::{
    Body, Context, ERRORS, ProxyRules, Redirect, Reply, Request, ResponseSource, RuleCursor, RuleResponse, RuleWait,
    Verdict,
};

use crate::body::Arrived;
use crate::client::Input;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::messages::Messages;
use crate::parse;
use crate::stream::Stream;
use crate::view::{BackendView, FrontendView};

pub use errors::{error_page, is_silent};
pub use evaluate::{
    EvaluationContext, at_end, at_error, make_unique_id, with_connection, with_request, with_response, with_stream,
    with_stream_response,
};
use evaluate::{request_with, response_with, run, scene};

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
