//! Where a request goes: rules, the backend, the headers we add, and persistence.

mod cacheable;
mod credentials;
mod dates;
mod forwarded;
mod key;
mod names;
mod persistence;
mod statistics;
mod sticking;

use std::rc::Rc;
use std::sync::Arc;

use baton_model::{Mode, Proxy, Ruleset};
use baton_rules::{CaptureSide, Context, ProxyRules, REQUESTS, RuleCursor, RuleWait, Verdict};

use crate::balance::{Affinity, Slot, WantedServer, keys};
use crate::client::{Client, Input, Introduction};
use crate::core::Core;
use crate::desk::ServiceKind;
use crate::ended::{Cause, Ended, Phase};
use crate::exchange::Exchange;
use crate::facts::Ruled;
use crate::parse;
use crate::preference::Preference;
use crate::rules::{self, Decision, OwnResponse, StreamContent};
use crate::stream::Stream;
use crate::view::{BackendView, FrontendView};

/// What is to be done with a request.
pub enum Routed {
    /// To a server of this backend.
    Backend(Rc<BackendView>, Preference),
    /// Answered here.
    Answered(OwnResponse),
    /// A service of Baton's own responds.
    Served(ServiceKind),
}

/// `tcp-request connection`: whether a client is heard at all. What it has to begin with, in this order.
pub fn admits_connection(core: &Core, client: &mut Client) -> Result<[Option<Introduction>; 2], NotAdmitted> {
    let view = client.session.view();
    let rules = &view.plan.rules;
    let (mut expects_netscaler, mut expects_proxy) = (false, false);
    if rules.has(Ruleset::TcpConnection) {
        let (verdict, settings) = rules::with_connection(core, client, &view, |cx| rules.tcp_connection(cx));
        admitted(client, verdict)?;
        if let Some(set) = settings.values() {
            (expects_netscaler, expects_proxy) = (set.expects_netscaler, set.expects_proxy);
        }
    }
    let options = &client.connection.listener().bind.options;
    // A rule takes the number of the address; without one, it is 0.
    let magic = options.accept_netscaler.or(expects_netscaler.then_some(0));
    let by_proxy = expects_proxy || options.accept_proxy;
    Ok([magic.map(Introduction::Netscaler), by_proxy.then_some(Introduction::Proxy)])
}

/// `tcp-request session`: whether a client is served, now that everything is known about its connection.
pub fn admits_session(core: &Core, client: &mut Client, view: &FrontendView) -> Result<(), NotAdmitted> {
    let rules = &view.plan.rules;
    if !rules.has(Ruleset::TcpSession) {
        return Ok(());
    }
    let (verdict, _) = rules::with_connection(core, client, view, |cx| rules.tcp_session(cx));
    admitted(client, verdict)
}

/// Rules do not want a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NotAdmitted {
    /// It is to be closed.
    Rejected,
    /// It is forgotten: the client is not to notice.
    Forgotten,
}

fn admitted(client: &Client, verdict: Verdict) -> Result<(), NotAdmitted> {
    match verdict {
        Verdict::Reject => Err(NotAdmitted::Rejected),
        Verdict::SilentDrop(ttl) => {
            client.connection.stream.forget(ttl);
            Err(NotAdmitted::Forgotten)
        }
        _ => Ok(()),
    }
}

/// Rules of the frontend, the choice of a backend, its rules, and the headers that are ours to add.
pub async fn choose(core: &Rc<Core>, exchange: &mut Exchange<'_>) -> Result<Routed, Ended> {
    let view = exchange.progress.frontend.clone();
    if let Some(answer) = monitor(core, exchange, &view) {
        exchange.count(core, REQUESTS, 1);
        return Ok(Routed::Answered(answer));
    }
    if let Some(routed) = judge_in_frontend(core, exchange, &view).await? {
        return Ok(routed);
    }
    let backend = backend(core, exchange, &view)?;
    if backend.plan.proxy.mode != Mode::Http {
        // A connection of a frontend in `mode tcp` that is served as HTTP.
        exchange.progress.enter(&backend);
        return Err(Ended::refused(Cause::Internal, Phase::Request, 0));
    }
    if let Some(routed) = judge_in_backend(core, exchange, &backend).await? {
        return Ok(routed);
    }
    finish_request(core, exchange, &view, &backend);
    if backend.plan.rules.has(Ruleset::Forwarded) {
        let value = rules::with_request(core, exchange, Some(&backend), |cx| backend.plan.rules.forwarded(cx));
        forwarded::add_field(exchange, &value);
    }
    forwarded::add(exchange, &view.plan.proxy.http, &backend.plan.proxy.http);
    if key::is_in_body(&backend.plan.proxy, exchange.messages.request()) {
        parse::body(core, exchange, &backend.plan.proxy).await?;
    }
    let preference = preference(core, exchange, &backend);
    Ok(Routed::Backend(backend, preference))
}

/// What rules leave behind is captured and identified: `capture cookie`, `unique-id-format` and `unique-id-header`.
#[inline]
fn finish_request(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView, backend: &BackendView) {
    let own = &view.plan.rules;
    if own.has_captures() {
        let fields = exchange.messages.request().fields();
        own.capture_cookie(CaptureSide::Request, fields, exchange.captures.get_mut());
    }
    if own.has(Ruleset::UniqueIdFormat) {
        rules::with_request(core, exchange, Some(backend), |cx| _ = cx.unique_id());
        if let (Some(name), Some(id)) = (&view.plan.proxy.http.unique_id_header, exchange.unique_id.made()) {
            exchange.messages.request_mut().fields().add(name.as_bytes(), id);
        }
    }
}

/// `monitor-uri`.
fn monitor(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView) -> Option<OwnResponse> {
    let uri = view.plan.proxy.http.monitor_uri.as_ref()?;
    if exchange.messages.request().target() != uri.as_bytes() {
        return None;
    }
    exchange.facts.silence();
    exchange.facts.intercepted();
    let fails = view.plan.rules.has(Ruleset::MonitorFail)
        && rules::with_request(core, exchange, None, |cx| view.plan.rules.monitor_fail(cx));
    let status = if fails { 503 } else { 200 };
    let page = rules::error_page(core, exchange, None, status);
    Some(OwnResponse { page, logged: Some(status), ended: None })
}

/// The frontend's rules, which see the whole body with `option http-buffer-request`; only `tcp-request content` comes before
/// it and waits for itself.
async fn judge_in_frontend(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    view: &FrontendView,
) -> Result<Option<Routed>, Ended> {
    let (proxy, rules) = (&view.plan.proxy, &view.plan.rules);
    credentials::compare(core, exchange, rules).await?;
    // Its content was judged in `mode tcp`: that of HTTP/2 was none of a request.
    let is_judged = proxy.mode == Mode::Tcp && exchange.is_first && exchange.client.connection().is_some();
    if rules.judge_requests() && !is_judged {
        rules::content(core, exchange, rules, None).await?;
    }
    // As in HAProxy, what content rules reject is none yet.
    exchange.count(core, REQUESTS, 1);
    if proxy.http.buffer_request {
        parse::buffer_body(core, exchange, proxy).await?;
    }
    if !rules.judge_requests() && proxy.stats.is_none() && !names::are_restricted(proxy) {
        return Ok(None);
    }
    let routed = judge(core, exchange, (proxy, rules), None).await;
    if !matches!(routed, Ok(None)) && proxy.cookie.is_some() && proxy.role.is_backend() {
        let own = view.backends.get(&proxy.name);
        note_unused_cookie(core, exchange, own.as_deref().filter(|_| is_denied(exchange, &routed)), false);
    }
    if matches!(routed, Ok(Some(_))) {
        exchange.facts.intercepted();
    }
    routed
}

/// `http-request` rules of one proxy, its restriction of header names, its statistics page, and its `redirect` rules.
async fn judge(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    (proxy, rules): (&Proxy, &ProxyRules),
    backend: Option<&BackendView>,
) -> Result<Option<Routed>, Ended> {
    let ends_with_redirects = proxy.stats.is_none() && !names::are_restricted(proxy);
    if let Some(decision) = rules::request(core, exchange, rules, backend, ends_with_redirects).await? {
        return Ok(Some(decided(core, exchange, (proxy, backend), decision)));
    }
    if ends_with_redirects {
        return Ok(None);
    }
    names::restrict(exchange, proxy)?;
    if let Some(page) = &proxy.stats
        && let Some(routed) = statistics::admit(core, exchange, (page, rules), backend)?
    {
        return Ok(Some(routed));
    }
    Ok(rules::redirect(core, exchange, rules, backend).map(Routed::Answered))
}

fn decided(
    core: &Core,
    exchange: &mut Exchange<'_>,
    (proxy, backend): (&Proxy, Option<&BackendView>),
    decision: Decision,
) -> Routed {
    match decision {
        Decision::Answer(answer) => Routed::Answered(answer),
        Decision::Auth(realm) => {
            let realm = realm.as_deref().unwrap_or(&proxy.name);
            Routed::Answered(statistics::question(core, exchange, backend, realm))
        }
        Decision::Service(service) => Routed::Served(ServiceKind::Named(service)),
    }
}

/// The backend's rules. If only the backend has `option http-buffer-request`, the body is waited for before these.
async fn judge_in_backend(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
) -> Result<Option<Routed>, Ended> {
    let (proxy, rules) = (&backend.plan.proxy, &backend.plan.rules);
    let acts = rules.judge_requests() || proxy.http.buffer_request || proxy.stats.is_some() || rules.asks_for_hashes();
    if !(acts || names::are_restricted(proxy)) || exchange.progress.frontend.is_listen_of(backend) {
        return Ok(None);
    }
    let judged = async {
        if proxy.http.buffer_request {
            parse::buffer_body(core, exchange, proxy).await?;
        }
        credentials::compare(core, exchange, rules).await?;
        rules::content(core, exchange, rules, Some(backend)).await?;
        judge(core, exchange, (proxy, rules), Some(backend)).await
    };
    let judged = judged.await;
    if !matches!(judged, Ok(None)) {
        if proxy.cookie.is_some() {
            note_unused_cookie(core, exchange, is_denied(exchange, &judged).then_some(&**backend), true);
        }
        exchange.progress.enter(backend);
    }
    judged
}

/// Whether rules denied the request with a response, at once or after a tarpit.
fn is_denied(exchange: &Exchange<'_>, routed: &Result<Option<Routed>, Ended>) -> bool {
    let ended = match routed {
        Ok(Some(Routed::Answered(answer))) => answer.ended,
        Err(ended) => Some(*ended).filter(|ended| ended.status > 0),
        Ok(_) => None,
    };
    exchange.facts.ruled == Some(Ruled::Denied) && ended.is_some_and(|ended| ended.cause == Cause::Proxy)
}

/// A request that ends before its cookie is of use has none for the log, unless it is `denied_by` rules: HAProxy looks at it first, and
/// the log has its server. `comes_from_frontend`: `ignore-persist` and `force-persist` come before the rules.
fn note_unused_cookie(
    core: &Core,
    exchange: &mut Exchange<'_>,
    denied_by: Option<&BackendView>,
    comes_from_frontend: bool,
) {
    let cookie = denied_by.and_then(|backend| Some((backend, backend.plan.proxy.cookie.as_ref()?)));
    let Some((backend, cookie)) = cookie else { return exchange.facts.client_cookie(b'N') };
    let (state, compiled) = (&backend.plan.state, &backend.plan.rules);
    let mut applies = |set, judge: fn(&ProxyRules, &Context<'_>) -> bool| {
        comes_from_frontend
            && compiled.has(set)
            && rules::with_request(core, exchange, Some(backend), |cx| judge(compiled, cx))
    };
    let is_ignored = applies(Ruleset::IgnorePersist, ProxyRules::ignore_persist);
    let is_forced = applies(Ruleset::ForcePersist, ProxyRules::force_persist);
    let wants = |value: &[u8]| state.wanted(WantedServer::Cookie(value), is_forced);
    let mut preference = Preference::default();
    let usable = |value: &[u8]| !is_ignored && wants(value).is_ok();
    persistence::read(core, cookie, exchange.messages.request_mut(), (&mut preference, is_ignored), &usable);
    let wanted = preference.cookie.as_deref().map(wants);
    preference.found = wanted.as_ref().map(|wanted| wanted.as_ref().err().copied().unwrap_or(Affinity::Kept));
    let is_down = matches!(&wanted, Some(Ok(server)) if !server.is_running());
    exchange.facts.client_cookie(preference.cookie_letter(is_down));
    if let Some(Ok(server)) = wanted {
        exchange.facts.denied_before(Arc::clone(server.name()));
    }
}

/// `use_backend`, else `default_backend`.
fn backend(core: &Core, exchange: &mut Exchange<'_>, view: &FrontendView) -> Result<Rc<BackendView>, Ended> {
    let rules = &view.plan.rules;
    if rules.has(Ruleset::UseBackend) {
        // HAProxy, too, logs the frontend where a name that was computed is none of a backend.
        let named = |cx: &mut Context<'_>| rules.backend(cx).and_then(|name| view.backends.get(&name));
        if let Some(backend) = rules::with_request(core, exchange, None, named) {
            return Ok(backend);
        }
    }
    view.default_backend.clone().ok_or_else(|| {
        exchange.facts.backend_missing(view.plan.proxy.default_backend.as_deref().map(Arc::from));
        Ended::new(Cause::ServerAborted, Phase::Connect)
    })
}

/// What the request wants from the balancer: its key, its cookie, `use-server`.
fn preference(core: &Core, exchange: &mut Exchange<'_>, backend: &Rc<BackendView>) -> Preference {
    let proxy = &backend.plan.proxy;
    let compiled = &backend.plan.rules;
    let mut preference = Preference { key: key::of_request(proxy, exchange), ..Preference::default() };
    if compiled.has_balance_key() {
        preference.key = rules::with_request(core, exchange, Some(backend), |cx| {
            compiled.balance_key(cx, |bytes| keys::bytes(&proxy.balance.hash, bytes))
        });
    }
    if proxy.tcp.prefer_last_server {
        preference.last = exchange.session.preferred_server();
    }
    if let Some(cookie) = &proxy.cookie {
        let ignored = compiled.has(Ruleset::IgnorePersist)
            && rules::with_request(core, exchange, Some(backend), |cx| compiled.ignore_persist(cx));
        let usable =
            |value: &[u8]| !ignored && backend.plan.state.judge(WantedServer::Cookie(value), proxy.tcp.persist).is_ok();
        persistence::read(core, cookie, exchange.messages.request_mut(), (&mut preference, ignored), &usable);
    }
    if compiled.has(Ruleset::ForcePersist) {
        preference.force = rules::with_request(core, exchange, Some(backend), |cx| compiled.force_persist(cx));
    }
    preference.force |= proxy.tcp.persist;
    if compiled.has(Ruleset::UseServer) {
        let state = &backend.plan.state;
        preference.server = rules::with_request(core, exchange, Some(backend), |cx| {
            let mut usable = |name: &str| state.server(name).is_some_and(|server| server.is_running());
            compiled.server(cx, &mut usable).map(|name| name.into_owned())
        });
    }
    if compiled.has(Ruleset::Stick) {
        let (state, force) = (&backend.plan.state, preference.force);
        let is_placed = preference.is_placed(state);
        let choice = rules::with_request(core, exchange, Some(backend), |cx| {
            sticking::request(compiled, cx, state, is_placed, force)
        });
        exchange.progress.stick_keys = choice.keys;
        preference.stuck = choice.server;
    }
    preference
}

/// The backend of a connection in `mode tcp`: content rules, then `use_backend` and `default_backend`. `None`: it is to be served as
/// HTTP, because a rule or the backend's mode says so.
pub async fn tcp_backend(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_, Input>,
) -> Result<Option<Rc<BackendView>>, Ended> {
    let view = exchange.progress.frontend.clone();
    let rules = &view.plan.rules;
    let began = core.now();
    if rules.has_captures() {
        rules.begin_captures(exchange.captures.get_mut());
    }
    if rules::stream_content(core, exchange, rules, None).await? == StreamContent::IsHttp {
        return Ok(None);
    }
    let mut named = None;
    if rules.has(Ruleset::UseBackend) {
        named = rules::with_stream(core, exchange, None, true, |cx| {
            rules.backend(cx).and_then(|name| view.backends.get(&name))
        });
    }
    let Some(backend) = named.or_else(|| view.default_backend.clone()) else {
        return Err(Ended::new(Cause::ServerAborted, Phase::Connect));
    };
    if backend.plan.proxy.mode == Mode::Http {
        return Ok(None);
    }
    if !view.is_listen_of(&backend)
        && let Err(ended) = rules::stream_content(core, exchange, &backend.plan.rules, Some(&backend)).await
    {
        exchange.progress.enter(&backend);
        return Err(ended);
    }
    let waited = core.now().saturating_duration_since(began);
    if !waited.is_zero() {
        // HAProxy counts it as time in a queue.
        exchange.facts.waited(waited);
    }
    Ok(Some(backend))
}

/// What a connection in `mode tcp` wants from the balancer.
pub fn stream_preference(core: &Core, exchange: &mut Exchange<'_, Input>, backend: &Rc<BackendView>) -> Preference {
    let compiled = &backend.plan.rules;
    let mut preference = Preference { key: stream_key(core, exchange, backend), ..Preference::default() };
    if compiled.has(Ruleset::ForcePersist) {
        preference.force = rules::with_stream(core, exchange, Some(backend), true, |cx| compiled.force_persist(cx));
    }
    preference.force |= backend.plan.proxy.tcp.persist;
    let (state, force) = (&backend.plan.state, preference.force);
    if compiled.has(Ruleset::UseServer) {
        preference.server = rules::with_stream(core, exchange, Some(backend), true, |cx| {
            let mut usable = |name: &str| state.server(name).is_some_and(|server| server.is_running());
            compiled.server(cx, &mut usable).map(|name| name.into_owned())
        });
    }
    if let Some(name) = &backend.plan.proxy.tcp.rdp_cookie
        && preference.server.is_none()
    {
        let sent = exchange.messages.as_deref().map(|buffer| &**buffer).unwrap_or_default();
        let named = baton_rules::rdp_server(sent, name);
        preference.server = named.and_then(|address| state.name_at(address.into(), force));
    }
    if compiled.has(Ruleset::Stick) {
        let is_placed = preference.is_placed(state);
        let choice = rules::with_stream(core, exchange, Some(backend), true, |cx| {
            sticking::request(compiled, cx, state, is_placed, force)
        });
        exchange.progress.stick_keys = choice.keys;
        preference.stuck = choice.server;
    }
    preference
}

/// `stick` rules of a connection in `mode tcp` whose server was reached, with what it sent so far: its keys are bound to it.
pub fn stick_stream(
    core: &Core,
    exchange: &mut Exchange<'_, Input>,
    backend: &BackendView,
    slot: &Slot,
    answered: (&Stream, &[u8]),
) {
    let own = &backend.plan.rules;
    if own.has(Ruleset::Stick) {
        let mut keys = std::mem::take(&mut exchange.progress.stick_keys);
        if sticking::looks_at_responses(own) {
            rules::with_stream_response(core, exchange, backend, answered, true, |cx| {
                sticking::response(own, cx, &mut keys);
            });
        }
        exchange.progress.stick_keys = keys;
        sticking::bind(core, exchange, slot);
    }
}

/// The hash of what `balance` looks at of a connection in `mode tcp`.
fn stream_key(core: &Core, exchange: &mut Exchange<'_, Input>, backend: &BackendView) -> Option<u32> {
    let rules = &backend.plan.rules;
    let key = key::of_connection(&backend.plan.proxy, exchange);
    if key.is_some() || !rules.has_balance_key() {
        return key;
    }
    let kind = &backend.plan.proxy.balance.hash;
    rules::with_stream(core, exchange, Some(backend), true, |cx| {
        rules.balance_key(cx, |bytes| keys::bytes(kind, bytes))
    })
}

/// How far the rules about a response have come; kept while one of them waits.
#[derive(Debug, Default)]
pub struct ResponseProgress {
    has_begun: bool,
    is_in_frontend: bool,
    at: RuleCursor,
}

/// Response rules and cookies, before the response's head is written. `Some`: what to wait for before they go on.
pub fn response(
    core: &Rc<Core>,
    exchange: &mut Exchange<'_>,
    backend: &Rc<BackendView>,
    slot: &Slot,
    server: Option<&Stream>,
    progress: &mut ResponseProgress,
) -> Result<Option<RuleWait>, Ended> {
    let frontend = exchange.progress.frontend.clone();
    let has_begun = std::mem::replace(&mut progress.has_begun, true);
    if frontend.plan.rules.has_captures() && !has_begun {
        let fields = exchange.messages.response().fields();
        frontend.plan.rules.capture(CaptureSide::Response, fields, exchange.captures.get_mut());
    }
    if backend.plan.rules.has(Ruleset::Stick) && !has_begun {
        let mut keys = std::mem::take(&mut exchange.progress.stick_keys);
        let own = &backend.plan.rules;
        if sticking::looks_at_responses(own) {
            rules::with_response(core, exchange, backend, server, |cx| sticking::response(own, cx, &mut keys));
        }
        exchange.progress.stick_keys = keys;
        sticking::bind(core, exchange, slot);
    }
    if !has_begun && let Some(what) = baton_rules::of_status(exchange.messages.response.status) {
        exchange.count(core, what, 1);
    }
    let judges = backend.plan.rules.judge_responses() || frontend.plan.rules.judge_responses();
    if judges {
        if !progress.is_in_frontend {
            let wait = rules::response(core, exchange, &backend.plan.rules, backend, server, &mut progress.at)?;
            if wait.is_some() {
                return Ok(wait);
            }
            (progress.is_in_frontend, progress.at) = (true, RuleCursor::default());
        }
        if !frontend.is_listen_of(backend) {
            let wait = rules::response(core, exchange, &frontend.plan.rules, backend, server, &mut progress.at)?;
            if wait.is_some() {
                return Ok(wait);
            }
        }
    }
    if backend.plan.proxy.http.check_cache {
        cacheable::check(core, exchange, backend, slot)?;
    }
    capture_response_cookie(exchange);
    // Only now, as in HAProxy: `http-response` rules see the server's cookies, and `http-after-response` rules what clients get.
    if let Some(cookie) = &backend.plan.proxy.cookie {
        persistence::write(core, cookie, exchange, slot);
    }
    if judges && !rules::after(core, exchange, None, server) {
        return Err(Ended::refused(Cause::Proxy, Phase::Headers, 500));
    }
    Ok(None)
}

/// `capture cookie`, of what rules made of the response.
#[inline]
fn capture_response_cookie(exchange: &mut Exchange<'_>) {
    let own = &exchange.progress.frontend.plan.rules;
    if own.has_captures() {
        let fields = exchange.messages.response().fields();
        own.capture_cookie(CaptureSide::Response, fields, exchange.captures.get_mut());
    }
}
