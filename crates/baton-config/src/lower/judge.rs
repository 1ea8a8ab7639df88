//! What only the whole configuration can tell: modes that must fit, numbers that are given out, names that must exist (`named.rs`), and
//! the values that follow from several lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_model::{
    Address, Algorithm, CheckStep, ConnectionMode, Global, KeywordLines, LogFormat, Mode, Model, Proxy, Role, Rule,
    Ruleset, Server, ServerProtocol, Source,
};

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::direct;
use super::draft::resolve_server;
use super::named;
use super::stick;
use super::tables;
use super::track::tracking;
use super::{Context, Draft, GlobalDraft, Kind, LogEntry, RuleFiles, ServerDraft};
use crate::diagnostic::{Diagnostic, Severity};
use crate::environment::PROXIES_PER_PAUSE;
use crate::keywords::check::{self, CheckKind};
use crate::keywords::server::tls::{JudgedFiles, Surroundings};
use crate::keywords::{bind, failure, mail, peers, resolvers, ring, server, statistics, tls, userlist};
use crate::own::Own;
use crate::syntax::Line;

/// Turns the drafts into a model and complains about what does not fit together.
pub(crate) fn finish(global: GlobalDraft, mut drafts: Vec<Draft>, context: &mut Context<'_>) -> Model {
    let userlists = userlist::finish(context);
    let mut model = Model {
        global: global.model.clone(),
        proxies: Vec::with_capacity(drafts.len()),
        userlists,
        ..Model::default()
    };
    let lines = global.lines.iter().map(|(keyword, line)| (*keyword, line.source()));
    model.global.lines = KeywordLines { own: lines.collect(), inherited: Arc::default() };
    model.global.log.iter_mut().for_each(|target| ring::settle(target, &context.rings));
    ring::check_names(context);
    command_line(&mut model, context);
    number_proxies(&mut drafts, !model.global.stats.sockets.is_empty(), context);
    let nobody = Own::new(Proxy::new("", Role::Backend));
    let mut judged = JudgedFiles::new(context.env.tls_files());
    direct::service_ports(&mut drafts);
    stick::store_servers(&mut drafts, &mut context.peers);
    tables::collect(&drafts, context);
    for (count, draft) in drafts.iter_mut().enumerate() {
        if count % PROXIES_PER_PAUSE == PROXIES_PER_PAUSE - 1 {
            context.env.pause();
        }
        finish_proxy(draft, &nobody, &global, &model.global, &mut judged, context);
        if draft.valid {
            model.proxies.push(draft.proxy.share());
        }
    }
    let heads: SectionIndex<'_> = drafts.iter().map(|draft| ((&*draft.proxy.name, draft.kind), draft)).collect();
    let known: Vec<&str> =
        drafts.iter().filter(|draft| draft.kind != Kind::Frontend).map(|draft| &*draft.proxy.name).collect();
    for draft in &drafts {
        named::servers_exist(draft, context);
        named::backends_exist(draft, &heads, &known, context);
        named::references_exist(draft, &heads, context);
        timeouts(draft, context);
    }
    direct::whole(&drafts, &heads, context);
    tracking(&drafts, context);
    model.crt_stores = std::mem::take(&mut context.tls.stores).into_iter().map(Arc::new).collect();
    resolvers::check_names(&drafts, context);
    model.resolvers = resolvers::finish(&model.global.tls, &mut judged, context);
    model.mailers = mail::finish(&model.proxies, context);
    model.rings = ring::finish(&mut context.rings);
    let mut peers = std::mem::take(&mut context.peers);
    for section in &mut peers {
        finish_proxy(&mut section.draft, &nobody, &global, &model.global, &mut judged, context);
    }
    model.peers = peers::finish(peers, context);
    tls::references(&model, &drafts, context);
    crate::free(drafts, context.env);
    model
}

/// Sections by name and kind.
pub(super) type SectionIndex<'d> = FxHashMap<(&'d str, Kind), &'d Draft>;

/// A diagnostic that was found late, about a word of a line.
pub(crate) fn late(line: &Line, severity: Severity, id: &'static str, word: usize, message: String) -> Diagnostic {
    Diagnostic { late: true, ..line.diagnostic(severity, id, word, message) }
}

/// What the command line overrides.
fn command_line(model: &mut Model, context: &Context<'_>) {
    if let Some(maxconn) = context.options.maxconn {
        model.global.maxconn = Some(maxconn);
    }
    model.global.nosplice |= context.options.no_splice;
}

/// Gives out the ids: those that are written, else the next free number in the order of the file, from 1, or from 2 where `stats socket`
/// makes a proxy of its own.
fn number_proxies(drafts: &mut [Draft], has_socket: bool, context: &mut Context<'_>) {
    let mut used: BTreeMap<u32, (Arc<str>, Line)> = BTreeMap::new();
    for draft in drafts.iter() {
        let Some(id) = draft.id else { continue };
        if let Some((other, place)) = used.get(&id) {
            let message = format!(
                "{} {} reuses same custom id as {} {other} (declared at {}:{}).",
                draft.kind.label(),
                draft.proxy.name,
                place.word(0),
                place.file,
                place.number
            );
            let line = draft.lines.get("id").unwrap_or(&draft.head);
            context.report.add(line.diagnostic(Severity::Alert, "duplicate-id", 1, message));
        }
        used.insert(id, (draft.proxy.name.clone(), draft.head.clone()));
    }
    let mut next = 1 + u32::from(has_socket);
    for draft in drafts {
        while draft.id.is_none() && used.contains_key(&next) {
            next += 1;
        }
        draft.proxy.id = draft.id.unwrap_or(next);
        // A section with a number of its own takes up a place in the count, too.
        next += 1;
    }
}

/// The values of a proxy that follow from several lines.
fn finish_proxy(
    draft: &mut Draft,
    nobody: &Own<Proxy>,
    global: &GlobalDraft,
    model: &Global,
    files: &mut JudgedFiles<'_>,
    context: &mut Context<'_>,
) {
    // Apart from its draft, where nobody stands in for it, as long as it is changed.
    let mut own = std::mem::replace(&mut draft.proxy, nobody.clone());
    let proxy = &mut *own;
    let http = proxy.mode == Mode::Http;
    statistics::judge(proxy, draft, context);
    match proxy.mode {
        Mode::Http => direct::foreign(proxy, draft, context),
        Mode::Tcp => {
            http_only_warnings(proxy, draft, context);
            drop_http(proxy, draft, context);
            direct::foreign(proxy, draft, context);
        }
        Mode::Direct => {
            statistics::drop_page(proxy, draft, context);
            direct::finish(proxy, draft, context);
        }
    }
    proxy.http.connection = match (draft.close, draft.server_close) {
        (true, _) => ConnectionMode::Close,
        (false, true) => ConnectionMode::ServerClose,
        (false, false) => ConnectionMode::KeepAlive,
    };
    proxy.logging.format = match draft.format {
        Some(LogFormat::Http | LogFormat::HttpClf | LogFormat::Https) if !http => LogFormat::Tcp,
        Some(format) => format,
        None => LogFormat::Default,
    };
    capture_length(proxy, model, draft, context);
    if !proxy.role.is_frontend() {
        // Of the defaults.
        [Ruleset::LogFormat, Ruleset::LogFormatSd, Ruleset::ErrorLogFormat, Ruleset::UniqueIdFormat]
            .iter()
            .for_each(|set| _ = proxy.rules.remove(set));
    } else if proxy.logging.format != LogFormat::Custom {
        proxy.rules.remove(&Ruleset::LogFormat);
    }
    if !proxy.role.is_backend() || !http {
        proxy.rules.remove(&Ruleset::Forwarded);
        proxy.http.send_name_header = None;
    }
    if !proxy.role.is_backend() || !http {
        proxy.http.check_cache = false;
    }
    let spelled =
        |wanted: bool| (wanted && http && !global.header_cases.is_empty()).then(|| global.header_cases.clone());
    proxy.http.client_cases = spelled(draft.adjusts_client && proxy.role.is_frontend());
    proxy.http.server_cases = spelled(draft.adjusts_server && proxy.role.is_backend());
    for entry in &draft.logs {
        match entry {
            LogEntry::Global => proxy.logging.targets.extend(model.log.iter().cloned()),
            LogEntry::Target(target) => proxy.logging.targets.push(target.clone()),
        }
    }
    proxy.logging.targets.iter_mut().for_each(|target| ring::settle(target, &context.rings));
    mail::finish_proxy(proxy, draft, context);
    if proxy.role.is_frontend() && proxy.maxconn.is_none() {
        proxy.maxconn = context.options.proxy_maxconn;
    }
    if let Some(cookie) = &mut proxy.cookie
        && draft.cookie_dynamic
    {
        cookie.dynamic_key = draft.dynamic_cookie_key.clone();
        if cookie.dynamic_key.is_none()
            && let Some(line) = draft.lines.get("cookie")
        {
            let message = "'cookie … dynamic' needs a 'dynamic-cookie-key' in the same backend.";
            context.report.add(late(line, Severity::Alert, "missing-key", 0, message.into()));
        }
    }
    for bind in &mut proxy.binds {
        if let Address::Unix(path) = &mut bind.address {
            if !global.unix_prefix.is_empty() {
                *path = format!("{}{}", global.unix_prefix, path.display()).into();
            }
            let (socket, default) = (&mut bind.options.socket, &global.unix_socket);
            socket.mode = socket.mode.or(default.mode);
            socket.uid = socket.uid.or(default.uid);
            socket.gid = socket.gid.or(default.gid);
        }
    }
    tls::certificates(proxy, &draft.ssl_lines, &draft.uses, context);
    bind::judge_protocols(proxy, draft.kind, context);
    proxy.check.kind = draft.check.kind();
    external_check(proxy, draft, global, context);
    if proxy.mode == Mode::Direct {
        let (own, kind) = (&draft.direct, &proxy.check.kind);
        draft.servers.iter_mut().for_each(|server| direct::check_port(server, own, kind, context));
    }
    transparent(proxy, draft, context);
    proxy.http.error_pages = failure::error_pages(&proxy.name, &draft.errors, context);
    rules(proxy, draft.lines.get("balance").unwrap_or(&draft.head), context);
    idle_settings(proxy, draft, context);
    proxy.servers = match proxy.role.is_backend() {
        false => Vec::new(),
        true => {
            let steps = proxy.check.kind.steps();
            let check_protos = check::protos(&proxy.check.kind);
            let (global, backend) = (&model.tls, &proxy.name);
            let around = Surroundings { global, backend, http, check_protos, steps, files, last: None };
            fast_open(proxy, draft, context);
            servers(draft, around, context)
        }
    };
    let inherited = Arc::clone(&draft.inherited_lines);
    proxy.lines = KeywordLines { own: draft.lines.sources().collect(), inherited };
    draft.proxy = own;
}

/// The longest part of a cookie that is captured is the process's.
fn capture_length(proxy: &mut Proxy, global: &Global, draft: &Draft, context: &mut Context<'_>) {
    let Some(rules) = proxy.rules.get_mut(&Ruleset::Capture) else { return };
    for rule in rules.iter_mut().filter(|rule| rule.words.first().is_some_and(|word| word == "cookie")) {
        let max = global.captured_cookie_len;
        if let Some(len) = rule.words.get_mut(3).filter(|len| len.parse().is_ok_and(|len: usize| len > max)) {
            *len = max.to_string();
            let message =
                format!("truncating capture length to {max} bytes for {} '{}'.", draft.kind.label(), proxy.name);
            let line = draft.lines.get("capture cookie").unwrap_or(&draft.head);
            context.report.add(late(line, Severity::Warning, "capture-length", 0, message));
        }
    }
}

/// Compiles the rules, for their faults and for use.
fn rules(proxy: &Proxy, balance: &Line, context: &mut Context<'_>) {
    if !baton_rules::has_rules(proxy) {
        return;
    }
    let (mut hash_fault, mut compiled) = (None, None);
    let files = RuleFiles::new(context, proxy.source.file.clone());
    let (problems, severity) = match baton_rules::compile(proxy, &files) {
        Ok(rules) => {
            let warnings = rules.warnings.clone();
            compiled = Some(rules);
            (warnings, Severity::Warning)
        }
        Err(problems) => (problems, Severity::Alert),
    };
    if let Some(text) = proxy.balance.algorithm.expression()
        && let Err(fault) = baton_rules::Expr::compile(&text, baton_rules::RulePosition::BackendRequest, &files)
    {
        let message = format!("failed to parse the expression of 'balance', '{text}' : {}.", fault.message);
        hash_fault = Some((message, fault.hint));
    }
    if let Some(rules) = compiled {
        context.compiled.insert(proxy, rules);
    }
    if let Some((message, hint)) = hash_fault {
        let mut diagnostic = balance.diagnostic(Severity::Alert, "bad-rule", 2, message);
        diagnostic.hint = hint;
        context.report.add(diagnostic);
    }
    for problem in problems {
        let place = key(&problem.source);
        let Some((line, first)) = context.rule_lines.get(&place) else { continue };
        // A rule of a `defaults` section is compiled in every proxy that inherits it, its fault is told once.
        if !context.told.insert((place, problem.message.clone())) {
            continue;
        }
        let keyword = line.texts().take(*first).collect::<Vec<_>>().join(" ");
        let message = format!("'{keyword}' : {}.", problem.message);
        let mut diagnostic = line.diagnostic(severity, "bad-rule", first + problem.word, message);
        diagnostic.hint = problem.hint;
        context.report.add(diagnostic);
    }
}

/// Where the line of a rule is kept.
pub(super) fn key(source: &Source) -> (u32, Arc<str>) {
    (source.line, source.file.clone())
}

/// `option transparent`: connections without a server.
fn transparent(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    if !draft.transparent || !proxy.role.is_backend() || proxy.mode == Mode::Direct {
        return;
    }
    let words = ["option transparent", "transparent"];
    let line = words.iter().find_map(|word| draft.lines.get(word).or_else(|| draft.inherited.get(word)));
    let line = line.unwrap_or(&draft.head);
    let message = format!("{} '{}' : 'option transparent' is not supported yet", draft.kind.label(), proxy.name);
    let mut diagnostic = late(line, Severity::Alert, "not-yet", 0, message);
    diagnostic.hint = Some("'server any *' connects to the client's original destination".into());
    context.report.add(diagnostic);
}

/// What is sent with a SYN is lost with it, and only some events of `retry-on` send it again.
fn fast_open(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    let retry = &proxy.retry_on;
    if proxy.mode == Mode::Direct || (retry.conn_failure && retry.empty_response && retry.response_timeout) {
        return;
    }
    for server in draft.servers.iter().filter(|server| server.server.tfo) {
        let Some(line) = &server.line else { continue };
        let message = format!(
            "'server {}/{}' : server has tfo activated, the backend should be configured with at least 'conn-failure', \
             'empty-response' and 'response-timeout' or we wouldn't be able to retry the connection on failure.",
            proxy.name, server.server.name
        );
        context.report.add(late(line, Severity::Warning, "tfo-without-retry", 0, message));
    }
}

/// Servers with their names checked, their addresses resolved and their ids given out.
fn servers(draft: &mut Draft, mut around: Surroundings<'_, '_>, context: &mut Context<'_>) -> Vec<Arc<Server>> {
    let backend = around.backend;
    let kind = draft.kind.label();
    let mut names: FxHashMap<&str, u32> = FxHashMap::with_capacity_and_hasher(draft.servers.len(), FxBuildHasher);
    let mut ids: BTreeMap<u32, (Arc<str>, u32)> = BTreeMap::new();
    for server in &draft.servers {
        let Some(line) = &server.line else { continue };
        let name = &server.server.name;
        if let Some(first) = names.insert(name, line.number) {
            let message = format!(
                "{kind} '{backend}', another server named '{name}' was already defined at line {first}, please use \
                 distinct names."
            );
            context.report.add(late(line, Severity::Alert, "duplicate-name", 1, message));
        }
        if let Some(id) = server.id
            && let Some((other, first)) = ids.insert(id, (name.clone(), line.number))
        {
            let message = format!(
                "'server {backend}/{name}' : 'id' : custom id {id} already used at {}:{first} ('server {other}').",
                line.file
            );
            context.report.add(line.diagnostic(Severity::Alert, "duplicate-id", 1, message));
        }
    }
    let mut next = 1;
    let mut list = Vec::with_capacity(draft.servers.len());
    for server in &mut draft.servers {
        while server.id.is_none() && ids.contains_key(&next) {
            next += 1;
        }
        server.server.id = server.id.unwrap_or(next);
        // A server with a number of its own takes up a place in the count, too.
        next += 1;
        judge_server(server, kind, &mut around, context);
        list.push(server.server.share());
    }
    list
}

pub(crate) fn judge_server(
    server: &mut ServerDraft,
    kind: &str,
    around: &mut Surroundings<'_, '_>,
    context: &mut Context<'_>,
) {
    let Some(line) = server.line.clone() else { return };
    let (backend, http) = (around.backend, around.http);
    server::tls::judge(server, &line, around, context);
    let name = server.server.name.clone();
    resolvers::settle(server);
    let resolved = resolve_server(server, context);
    if let Ok(Some(host)) = &resolved {
        let message = format!("'server {backend}/{name}' : could not resolve address '{host}', disabling server.");
        context.report.add(late(&line, Severity::Warning, "unresolved", 1, message));
    }
    if let Err(host) = resolved {
        let message = format!("'server {backend}/{name}' : could not resolve address '{host}'.");
        let mut diagnostic =
            late(&line, Severity::Alert, "unresolved", if line.word(0) == "server" { 2 } else { 3 }, message);
        diagnostic.hint = Some("'init-addr last,libc,none' lets the server start without an address".into());
        context.report.add(diagnostic);
    }
    let check = &server.server.check;
    let checked_port = check.port.is_some() || matches!(check.addr, Some(Address::Inet(address)) if address.port() > 0);
    if check.enabled && !server.has_port && !checked_port {
        let message = format!("{kind} '{backend}': server '{name}' has neither service port nor check port.");
        let mut diagnostic = late(&line, Severity::Alert, "no-check-port", 1, message);
        diagnostic.hint = Some("add 'port NUMBER' to the server".into());
        context.report.add(diagnostic);
    }
    let fitting = if http { "h1" } else { "none" };
    let is_usable = |proto: &&str| *proto == fitting || http && *proto == "h2";
    server.server.proto = match server.proto {
        Some("h1") => Some(ServerProtocol::H1),
        Some("h2") => Some(ServerProtocol::H2),
        _ => None,
    };
    if let Some(proto) = server.proto.filter(|proto| !is_usable(proto)) {
        let message = format!("{kind} '{backend}' : MUX protocol '{proto}' is not usable for server '{name}'.");
        let mut diagnostic = late(&line, Severity::Alert, "bad-proto", 1, message);
        diagnostic.hint = Some(format!("'proto {fitting}' is what this mode has, without the word, too"));
        context.report.add(diagnostic);
    }
    let checks = server.server.check.enabled;
    server.server.check.proto = match server.check_proto {
        Some("h1") => Some(ServerProtocol::H1),
        Some("h2") => Some(ServerProtocol::H2),
        _ => server.server.proto,
    };
    if checks && server.server.check.proto == Some(ServerProtocol::H2) && around.steps.iter().any(asks_without_host) {
        let message = format!(
            "the HTTP check of server '{backend}/{name}' speaks HTTP/2 and names no host, which many servers answer with 400."
        );
        let mut diagnostic = late(&line, Severity::Notice, "check-without-host", 1, message);
        diagnostic.hint = Some("'http-check send hdr host NAME' names one".into());
        context.report.add(diagnostic);
    }
    if let Some(proto) = server.check_proto.filter(|proto| !around.check_protos.contains(proto) && checks) {
        let message = format!(
            "{kind} '{backend}': server '{name}' uses an incompatible MUX protocol for the selected check type: \
             'check-proto {proto}'."
        );
        let mut diagnostic = late(&line, Severity::Alert, "bad-proto", 1, message);
        let fitting = around.check_protos.first().copied().unwrap_or("none");
        diagnostic.hint = Some(format!("'check-proto {fitting}' is what these checks have, without the word, too"));
        context.report.add(diagnostic);
    }
    if server.server.agent().is_some_and(|agent| agent.port.is_none()) {
        let message = format!(
            "'server {backend}/{name}' : server {name} does not have agent port. Agent check has been disabled."
        );
        let mut diagnostic = late(&line, Severity::Alert, "no-agent-port", 1, message);
        diagnostic.hint = Some("add 'agent-port NUMBER' to the server".into());
        context.report.add(diagnostic);
    }
    // Settings without an agent wait for nobody any more.
    if server.server.agent.is_some() && server.server.agent().is_none() {
        server.server.agent = None;
    }
    if !http && server.server.redir.is_some() {
        let message = format!("{kind} '{backend}' : server '{name}' cannot have a redirect prefix in non-HTTP mode.");
        context.report.add(late(&line, Severity::Alert, "needs-http", 1, message));
    }
    if !http && server.server.cookie.is_some() {
        let message = format!("{kind} '{backend}' : ignoring cookie for server '{name}' as HTTP mode is disabled.");
        context.report.add(late(&line, Severity::Warning, "needs-http", 1, message));
    }
}

/// Whether a step of a check is a request without `Host`, which has no `:authority` in HTTP/2.
fn asks_without_host(step: &CheckStep) -> bool {
    let CheckStep::Send(send) = step else { return false };
    !send.headers.iter().chain(&send.old_headers).any(|(name, _)| name.eq_ignore_ascii_case("host"))
}

/// Options and rules of HTTP in another mode.
fn http_only_warnings(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    let (kind, name) = (draft.kind.label(), &proxy.name);
    for (option, (line, sections)) in &draft.http_only {
        if !draft.allows(*sections) {
            continue;
        }
        let message = format!("'{option}' ignored for {kind} '{name}' as it requires HTTP mode.");
        context.report.add(late(line, Severity::Warning, "needs-http", 0, message));
    }
    // With such a rule, a connection of a frontend in `mode tcp` may go on as HTTP.
    let switches = |rule: &Rule| rule.words.first().is_some_and(|word| word == "switch-mode");
    let may_switch = proxy.role.is_frontend() && proxy.rules(Ruleset::TcpContent).iter().any(switches);
    let sets = [
        (Ruleset::HttpRequest, "http-request"),
        (Ruleset::HttpResponse, "http-response"),
        (Ruleset::HttpAfterResponse, "http-after-response"),
        (Ruleset::Redirect, "redirect"),
    ];
    for (set, word) in sets {
        if let Some(rule) = proxy.rules(set).first()
            && !may_switch
        {
            let message = format!("'{word}' rules ignored for {kind} '{name}' as they require HTTP mode.");
            let place = context.rule_lines.get(&key(&rule.source)).map(|(line, _)| line.clone());
            let line = place.as_ref().unwrap_or(&draft.head);
            context.report.add(late(line, Severity::Warning, "needs-http", 0, message));
        }
    }
    if let Some(format @ (LogFormat::Http | LogFormat::HttpClf | LogFormat::Https)) = draft.format {
        let option = if format == LogFormat::Https { "option httpslog" } else { "option httplog" };
        let message =
            format!("'{option}' not usable with {kind} '{name}' (needs 'mode http'). Falling back to 'option tcplog'.");
        let line = draft.lines.get(option).unwrap_or(&draft.head);
        context.report.add(late(line, Severity::Warning, "needs-http", 0, message));
    }
}

/// Settings that another mode cannot have: dropped, each with a warning.
fn drop_http(proxy: &mut Proxy, draft: &Draft, context: &mut Context<'_>) {
    statistics::drop_page(proxy, draft, context);
    let (kind, name) = (draft.kind.label(), proxy.name.clone());
    let mut warn = |keyword: &'static str, message: String| {
        let line = draft.lines.get(keyword).unwrap_or(&draft.head);
        context.report.add(late(line, Severity::Warning, "needs-http", 0, message));
    };
    let hashes =
        matches!(proxy.balance.algorithm, Algorithm::Uri(_) | Algorithm::UrlParam { .. } | Algorithm::Hdr { .. });
    if proxy.role.is_backend() && hashes {
        proxy.balance.algorithm = Algorithm::RoundRobin;
        let message =
            format!("Layer 7 hash not possible for {kind} '{name}' (needs 'mode http'). Falling back to round robin.");
        warn("balance", message);
    }
    if proxy.role.is_backend() && proxy.cookie.take().is_some() {
        warn("cookie", format!("cookie will be ignored for {kind} '{name}' (needs 'mode http')."));
    }
    if proxy.role.is_frontend() && proxy.http.monitor_uri.take().is_some() {
        warn("monitor-uri", format!("monitor-uri will be ignored for {kind} '{name}' (needs 'mode http')."));
    }
}

/// `option external-check` needs a permission and a program.
fn external_check(proxy: &Proxy, draft: &Draft, global: &GlobalDraft, context: &mut Context<'_>) {
    let (kind, name) = (draft.kind.label(), &proxy.name);
    if draft.check.kind != CheckKind::External || !proxy.role.is_backend() {
        let line = ["external-check command", "external-check path"]
            .into_iter()
            .find_map(|row| draft.lines.get(row).map(|line| (row, line)).filter(|_| proxy.role.is_backend()));
        if let Some((row, line)) = line {
            let message = format!("'{row}' will be ignored for {kind} '{name}' (requires 'option external-check').");
            context.report.add(late(line, Severity::Warning, "idle-rules", 0, message));
        }
        return;
    }
    let line = draft.lines.get("option external-check").or_else(|| draft.inherited.get("option external-check"));
    let line = line.unwrap_or(&draft.head);
    let about = format!("Proxy '{name}' : 'option external-check'");
    if !global.permits_external_checks {
        let message = format!("{about} unable to find required 'global.external-check'.");
        let mut diagnostic = late(line, Severity::Alert, "no-permission", 0, message);
        diagnostic.hint = Some("write 'external-check' in the global section, if programs may be started".into());
        context.report.add(diagnostic);
    }
    if draft.check.command.is_none() {
        let message = format!("{about} unable to find required 'external-check command'.");
        context.report.add(late(line, Severity::Alert, "missing-command", 0, message));
    }
    if !global.wants_forks {
        let message = format!(
            "Proxy '{name}' : 'insecure-fork-wanted' not enabled in the global section, 'option external-check' will likely fail."
        );
        context.report.add(late(line, Severity::Warning, "no-fork-wanted", 0, message));
    }
}

/// Lines that say something about what the proxy does not do.
fn idle_settings(proxy: &Proxy, draft: &Draft, context: &mut Context<'_>) {
    let (kind, name) = (draft.kind.label(), &proxy.name);
    let mut warn = |line: &Line, id: &'static str, message: String| {
        context.report.add(late(line, Severity::Warning, id, 0, message));
    };
    let ignored = [
        ("http-check", "option httpchk", draft.check.http.is_own && draft.check.kind != CheckKind::Http),
        ("tcp-check", "option tcp-check", draft.check.tcp.is_own && draft.check.kind != CheckKind::Tcp),
    ];
    for (rules, option, is_ignored) in ignored {
        let line = draft.lines.iter().find(|(keyword, _)| keyword.starts_with(rules));
        if let Some((_, line)) = line.filter(|_| is_ignored && proxy.role.is_backend()) {
            let message = format!("{kind} '{name}' uses {rules} rules without '{option}', so the rules are ignored.");
            warn(line, "idle-rules", message);
        }
    }
    if proxy.role.is_frontend() && draft.format.is_some() && draft.logs.is_empty() {
        let line = ["option httplog", "option httpslog", "option tcplog", "log-format"]
            .iter()
            .find_map(|row| draft.lines.get(row));
        let message = format!("log format ignored for {kind} '{name}' since it has no log address.");
        warn(line.unwrap_or(&draft.head), "no-log-address", message);
    }
}

/// The warning about timeouts that HAProxy gives, too: without them connections can stay for ever.
fn timeouts(draft: &Draft, context: &mut Context<'_>) {
    let timeouts = &draft.proxy.timeouts;
    let role = draft.proxy.role;
    let front = role.is_frontend() && timeouts.client.is_none() && !draft.proxy.binds.is_empty();
    let back =
        role.is_backend() && !draft.servers.is_empty() && (timeouts.server.is_none() || timeouts.connect.is_none());
    if !draft.proxy.disabled && draft.proxy.mode != Mode::Direct && (front || back) {
        let message = format!(
            "missing timeouts for {} '{}'.\nWhile not properly invalid, you will certainly encounter various problems\n\
             with such a configuration. To fix this, please ensure that all following\n\
             timeouts are set to a non-zero value: 'client', 'connect', 'server'.",
            draft.kind.label(),
            draft.proxy.name
        );
        let mut diagnostic = late(&draft.head, Severity::Warning, "missing-timeouts", 0, message);
        // HAProxy names no line here.
        diagnostic.line = 0;
        diagnostic.columns = None;
        context.report.add(diagnostic);
    }
}
