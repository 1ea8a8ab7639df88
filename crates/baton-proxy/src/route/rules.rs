//! Running compiled rules: what they may look at, and what their verdicts mean here.

use std::cell::Cell;
use std::rc::Rc;

use baton_http::{ChunkDecoder, Parsed, RequestHead};
use baton_model::{Proxy, Ruleset};
use baton_rules::{
    Body, Content, Context, Denial, Listener, LogLevel, ProxyName, ProxyRules, Reply, Request, Response, Verdict,
};
use baton_tls::Facts;

use crate::accept::Client;
use crate::balance::Slot;
use crate::core::{Core, Interrupt, until};
use crate::ended::{Cause, Ended, Phase};
use crate::record::Entry;
use crate::route::{Answer, tarpit};
use crate::state::{Counter, CounterBlock};
use crate::view::{BackendView, FrontendView};
use crate::work::Work;

/// Whom an evaluation is about, besides the client.
#[derive(Clone, Copy)]
pub struct About<'a> {
    /// The frontend.
    pub frontend: &'a FrontendView,
    /// The backend, once chosen.
    pub backend: Option<&'a BackendView>,
    /// The server, once chosen.
    pub server: Option<&'a str>,
    /// What was agreed on with it.
    pub server_tls: Option<&'a Facts>,
    /// What is counted of it.
    pub server_counters: Option<&'a CounterBlock>,
    /// What the client sent, in `mode tcp`.
    pub content: Option<Content<'a>>,
    /// No more data is waited for.
    pub last_chance: bool,
}

impl<'a> About<'a> {
    fn new(frontend: &'a FrontendView, backend: Option<&'a BackendView>) -> About<'a> {
        About {
            frontend,
            backend,
            server: None,
            server_tls: None,
            server_counters: None,
            content: None,
            last_chance: false,
        }
    }
}

/// Evaluates with nothing but the connection.
pub fn with_connection<T>(
    core: &Core,
    client: &mut Client,
    view: &FrontendView,
    backend: Option<&BackendView>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    with(core, client, About::new(view, backend), None, None, evaluate)
}

/// Evaluates with the request.
pub fn with_request<T>(
    core: &Core,
    client: &mut Client,
    work: &mut Work,
    view: &FrontendView,
    backend: Option<&BackendView>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let request = request_of(work);
    with(core, client, About::new(view, backend), Some(request), None, evaluate)
}

/// The request before it is passed on, with as much of its body as is there.
fn request_of(work: &mut Work) -> Request<'_> {
    let complete = crate::parse::body_settled(work);
    let body = Body::of(work.request.framing, &work.input, &work.request_chunks);
    Request { head: &mut work.request, buf: work.input.pinned(), body, complete }
}

fn with<T>(
    core: &Core,
    client: &mut Client,
    about: About<'_>,
    request: Option<Request<'_>>,
    response: Option<Response<'_>>,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    fn name(proxy: &baton_model::Proxy) -> ProxyName<'_> {
        ProxyName { name: &proxy.name, id: proxy.id }
    }
    let random = || core.random() as u32;
    let usable_servers = |name: &str| about.frontend.backends.get(name).map(|backend| backend.usable_servers());
    let mut scratch = core.scratch.take();
    let mut cx = Context {
        now: core.wall(),
        client: client.addresses.source,
        destination: client.addresses.destination,
        client_tls: client.stream.facts(),
        server_tls: about.server_tls,
        frontend: name(&about.frontend.plan.proxy),
        backend: about.backend.map(|backend| name(&backend.plan.proxy)),
        server: about.server,
        listener: Listener { name: client.listener.bind.name.as_deref(), id: client.listener.number },
        usable_servers: &usable_servers,
        content: about.content,
        last_chance: about.last_chance,
        undecided: Cell::new(false),
        no_retry: false,
        failed_rewrites: 0,
        first_request: client.requests == 0,
        request,
        response,
        log_level: None,
        variables: &mut client.variables,
        random: &random,
        scratch: &mut scratch,
    };
    let value = evaluate(&mut cx);
    let (level, no_retry, failed) = (cx.log_level, cx.no_retry, cx.failed_rewrites);
    *core.scratch.borrow_mut() = scratch;
    if level.is_some() {
        client.transaction.log_level = level;
    }
    client.transaction.no_retry |= no_retry;
    if failed > 0 {
        let backend = about.backend.map(|backend| &backend.plan.figures.counters);
        let all = [Some(&about.frontend.plan.state.counters), backend, about.server_counters];
        all.into_iter()
            .flatten()
            .for_each(|counters| counters.add(core.number, Counter::FailedRewrites, failed.into()));
    }
    value
}

/// `tcp-request content` rules of one proxy in `mode http`, where the request's head is there: they may wait for its body.
pub async fn content(
    core: &Core,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(());
    }
    let view = entry.progress.frontend.clone();
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    loop {
        let request = request_of(work);
        let about = About { last_chance, ..About::new(&view, backend) };
        let verdict = with(core, client, about, Some(request), None, |cx| rules.tcp_content(cx));
        note_silence(client, entry);
        match verdict {
            Verdict::Reject => {
                note_rejection(entry, &view, backend);
                return Err(Ended::refused(Cause::Proxy, Phase::Request, 0));
            }
            Verdict::Wait if !last_chance => {}
            _ => return Ok(()),
        }
        client.deadline.set(due);
        last_chance = match crate::parse::read(core, client, work).await {
            Ok(Ok(count)) => count == 0,
            Ok(Err(_)) | Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Request)),
        };
        if crate::parse::is_malformed(work) {
            entry.facts.forget_request_time();
            return Err(Ended::new(Cause::Proxy, Phase::Request));
        }
        entry.facts.request_received(core.now());
    }
}

/// `set-log-level silent`: no later level takes it back.
fn note_silence(client: &Client, entry: &mut Entry) {
    if client.transaction.log_level == Some(LogLevel::Silent) {
        entry.facts.silence();
    }
}

/// What HAProxy logs of a request that ends in content rules: in a frontend nothing was read of it yet, in a backend its time
/// is known once its body was waited for.
fn note_rejection(entry: &mut Entry, frontend: &FrontendView, backend: Option<&BackendView>) {
    let buffered = |proxy: &Proxy| proxy.http.buffer_request;
    entry.facts.rejected_as_content(backend.is_some());
    if !backend.is_some_and(|backend| buffered(&backend.plan.proxy) || buffered(&frontend.plan.proxy)) {
        entry.facts.forget_request_time();
    }
}

/// `tcp-request content` rules of one proxy in `mode tcp`: waits for bytes until they decide, at most `inspect-delay`.
pub async fn stream_content(
    core: &Core,
    client: &mut Client,
    view: &FrontendView,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<(), Ended> {
    if !rules.has(Ruleset::TcpContent) {
        return Ok(());
    }
    let due = rules.inspect_delay.map(|delay| core.now() + delay);
    let mut last_chance = due.is_none();
    loop {
        match with_stream(core, client, view, backend, last_chance, |cx| rules.tcp_content(cx)) {
            Verdict::Reject => return Err(Ended::refused(Cause::Proxy, Phase::Request, 0)),
            Verdict::Wait if !last_chance => {}
            _ => return Ok(()),
        }
        client.deadline.set(due);
        let mut buffer = client.take_input().unwrap_or_else(|| core.buffers.take());
        let Client { stream, deadline, registered, .. } = &mut *client;
        let read = until(core, &registered.orders, deadline, |cx| stream.poll_read(cx, buffer.room())).await;
        last_chance = match read {
            Ok(Ok(count)) => {
                buffer.filled(count);
                count == 0
            }
            Ok(Err(_)) | Err(Interrupt::Timeout) => true,
            Err(Interrupt::Abort) => return Err(Ended::aborted(Phase::Request)),
        };
        client.keep_input(buffer);
    }
}

/// Evaluates with what a client in `mode tcp` sent so far, and with the request if that is one.
pub fn with_stream<T>(
    core: &Core,
    client: &mut Client,
    view: &FrontendView,
    backend: Option<&BackendView>,
    last_chance: bool,
    evaluate: impl FnOnce(&mut Context<'_>) -> T,
) -> T {
    let input = client.input.take();
    let bytes: &[u8] = input.as_deref().map(|buffer| &**buffer).unwrap_or_default();
    let (mut head, decoder) = (RequestHead::new(), ChunkDecoder::default());
    let parsed = if bytes.is_empty() { Ok(Parsed::Partial) } else { head.parse(bytes, &view.limits) };
    let may_become_http = matches!(parsed, Ok(Parsed::Partial)) && !head.is_hopeless(bytes);
    let request = match parsed {
        Ok(Parsed::Complete(len)) => {
            let body = Body::of(head.framing, &bytes[len..], &decoder);
            Some(Request { head: &mut head, buf: &bytes[..len], body, complete: last_chance })
        }
        Ok(Parsed::Partial) | Err(_) => None,
    };
    let content = Some(Content { bytes, may_become_http });
    let about = About { content, last_chance, ..About::new(view, backend) };
    let value = with(core, client, about, request, None, evaluate);
    client.input = input;
    value
}

/// `http-request` and `redirect` rules of one proxy. `Some` is the answer they give.
pub async fn request(
    core: &Core,
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    rules: &ProxyRules,
    backend: Option<&BackendView>,
) -> Result<Option<Answer>, Ended> {
    let (has_rules, has_redirects) = (rules.has(Ruleset::HttpRequest), rules.has(Ruleset::Redirect));
    if !has_rules && !has_redirects {
        return Ok(None);
    }
    let view = entry.progress.frontend.clone();
    let verdict = with_request(core, client, work, &view, backend, |cx| {
        let verdict = if has_rules { rules.http_request(cx) } else { Verdict::Continue };
        match verdict {
            Verdict::Continue | Verdict::Allow if has_redirects => {
                rules.redirect(cx).map_or(Verdict::Continue, Verdict::Redirect)
            }
            verdict => verdict,
        }
    });
    note_silence(client, entry);
    match verdict {
        // Only content rules wait.
        Verdict::Continue | Verdict::Allow | Verdict::Wait => Ok(None),
        Verdict::Deny(denial) => {
            entry.facts.denied();
            deny(denial, Phase::Request).map(Some)
        }
        Verdict::Tarpit(denial) => {
            entry.facts.denied();
            let began = core.now();
            let held = tarpit(core, client, &view).await;
            entry.facts.held(core.now().saturating_duration_since(began));
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
            entry.facts.denied();
            entry.facts.forget_request_time();
            Err(Ended::refused(Cause::Proxy, Phase::Request, 0))
        }
        Verdict::Failed => {
            entry.facts.forget_request_time();
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
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    rules: &ProxyRules,
    backend: &Rc<BackendView>,
    (slot, server_tls): (&Slot, Option<&Facts>),
) -> Result<(), Ended> {
    if !rules.has(Ruleset::HttpResponse) {
        return Ok(());
    }
    let view = entry.progress.frontend.clone();
    let Work { request, response, input, received, .. } = work;
    let request = Request { head: request, buf: input.pinned(), body: Body::NONE, complete: true };
    let response = Response { head: response, buf: received };
    let server_counters = entry.progress.server_counters().cloned();
    let server_counters = server_counters.as_deref();
    let server = Some(&**slot.server().name());
    let about = About { server, server_tls, server_counters, ..About::new(&view, Some(backend)) };
    let verdict = with(core, client, about, Some(request), Some(response), |cx| rules.http_response(cx));
    note_silence(client, entry);
    match verdict {
        Verdict::Continue | Verdict::Allow | Verdict::Wait => Ok(()),
        Verdict::Deny(denial) | Verdict::Tarpit(denial) => {
            entry.facts.denied();
            entry.progress.replace_response(denial.reply.as_ref().map(page));
            Err(Ended::refused(Cause::Proxy, Phase::Headers, denial.status))
        }
        Verdict::Redirect(redirect) => {
            let mut page = Vec::new();
            redirect.write_head(false, &mut page);
            entry.progress.replace_response(Some(page));
            Err(Ended::refused(Cause::Local, Phase::Headers, redirect.status))
        }
        Verdict::Return(reply) => {
            entry.progress.replace_response(Some(page(&reply)));
            Err(Ended::refused(Cause::Local, Phase::Headers, reply.status))
        }
        Verdict::Reject => {
            entry.facts.denied();
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
    client: &mut Client,
    work: &mut Work,
    entry: &mut Entry,
    page: Option<&[u8]>,
    server_tls: Option<&Facts>,
) -> bool {
    let frontend = entry.progress.frontend.clone();
    let backend = entry.progress.backend().cloned();
    let own = &frontend.plan.rules;
    let other = backend.as_ref().filter(|backend| backend.plan.proxy.name != frontend.plan.proxy.name);
    let lists = [other.map(|backend| &backend.plan.rules), Some(own)];
    for rules in lists.into_iter().flatten().filter(|rules| rules.has(Ruleset::HttpAfterResponse)) {
        let Work { request, response, input, received, .. } = &mut *work;
        let request = Request { head: request, buf: input.pinned(), body: Body::NONE, complete: true };
        let response = Response { head: response, buf: page.unwrap_or(received) };
        let server = entry.progress.server().map(|server| &**server.name());
        let server_counters = entry.progress.server_counters().map(|counters| &**counters);
        let about = About { server, server_tls, server_counters, ..About::new(&frontend, backend.as_deref()) };
        let verdict = with(core, client, about, Some(request), Some(response), |cx| rules.http_after_response(cx));
        note_silence(client, entry);
        if verdict == Verdict::Failed {
            return false;
        }
    }
    true
}
