//! The keywords of `defaults`, `frontend`, `backend` and `listen` that are no `option` (configuration manual, 4.2).

use std::time::Duration;

use baton_model::{
    Algorithm, Avalanche, CheckStep, Cookie, CookieMode, ErrorPage, HashFunction, Mode, RetryOn, Reuse, Rule, Ruleset,
    Timeouts, UriHash,
};

use super::server::{default_server, server, source_words, template};
use super::{Apply, BACK, DEFAULTS, FRONT, Keyword, NAMED, STRICT, Sections, Status, bind};
use crate::lower::{Call, Draft, LogEntry, Prefix, log_target};
use crate::values::Unit;

const FE: Sections = DEFAULTS | FRONT;
const BE: Sections = DEFAULTS | BACK;
const ALL: Sections = DEFAULTS | FRONT | BACK;

const fn row(
    name: &'static str,
    sections: Sections,
    args: &'static str,
    apply: fn(&mut Draft, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections, args, status: Status::Done, doc, apply: Apply::Proxy(apply) }
}

const fn none(name: &'static str, sections: Sections, why: &'static str) -> Keyword {
    Keyword { name, sections, args: "…", status: Status::NoEffect(why), doc: "", apply: Apply::Nothing }
}

const fn later(name: &'static str, sections: Sections) -> Keyword {
    Keyword { name, sections, args: "…", status: Status::NotYet, doc: "", apply: Apply::Nothing }
}

const fn gone(name: &'static str, text: &'static str) -> Keyword {
    Keyword { name, sections: ALL, args: "", status: Status::Removed(text), doc: "", apply: Apply::Nothing }
}

const KEEPALIVE: &str = "the kernel's TCP keep-alive settings are used";

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("acl", NAMED | FRONT | BACK, "NAME CRITERION …", |d, c| rule(d, c, Ruleset::Acl), "Names a condition."),
    row("backlog", FE, "NUMBER", backlog, "Length of the kernel's queue of connections that wait to be accepted."),
    row("balance", BE, "ALGORITHM …", balance, "How a server is chosen."),
    row("bind", FRONT, "ADDRESS[,…] …", bind::bind, "Where to listen."),
    row("cookie", BE, "NAME …", cookie, "Persistence by cookie."),
    row("default-server", DEFAULTS | BACK | STRICT, "…", default_server, "Settings of the servers below."),
    row("default_backend", FE, "NAME", default_backend, "The backend when no rule chose one."),
    row("description", FRONT | BACK, "TEXT", description, "A text about the proxy."),
    row("disabled", ALL, "", |d, c| d.proxy.disabled = c.at_most(0), "The proxy takes no part."),
    row("dynamic-cookie-key", BE, "TEXT", dynamic_cookie_key, "Key of dynamic cookies."),
    row("enabled", ALL, "", |d, c| d.proxy.disabled &= !c.at_most(0), "Undoes 'disabled'."),
    row("errorfile", ALL, "CODE FILE", errorfile, "The answer for an error, from a file."),
    row("errorloc", ALL, "CODE URL", |d, c| errorloc(d, c, ErrorPage::Found), "Redirect (302) in place of an error."),
    row(
        "errorloc302",
        ALL,
        "CODE URL",
        |d, c| errorloc(d, c, ErrorPage::Found),
        "Redirect (302) in place of an error.",
    ),
    row(
        "errorloc303",
        ALL,
        "CODE URL",
        |d, c| errorloc(d, c, ErrorPage::SeeOther),
        "Redirect (303) in place of an error.",
    ),
    row(
        "force-persist",
        BACK,
        "if|unless CONDITION",
        |d, c| conditional(d, c, Ruleset::ForcePersist),
        "Follow the cookie to a server that is down.",
    ),
    row("fullconn", BE, "NUMBER", fullconn, "Connections at which servers reach their 'maxconn'."),
    row("hash-balance-factor", BE, "PERCENT", hash_balance_factor, "How far a server may be over the average."),
    row("hash-type", BE, "METHOD [FUNCTION [MODIFIER]]", hash_type, "How keys are mapped to servers."),
    row(
        "http-after-response",
        NAMED | FRONT | BACK,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::HttpAfterResponse),
        "Rules for all responses.",
    ),
    row("http-check connect", BE, "[port N] [send-proxy] …", check_connect, "Opens a connection of a health check."),
    row("http-check disable-on-404", BE, "", check_404, "404 puts a server into maintenance softly."),
    row("http-check expect", BE, "[!] KIND PATTERN", check_expect, "What the answer must be."),
    row(
        "http-check send",
        BE,
        "[meth M] [uri U] [ver V] [hdr N V]… [body B]",
        check_send,
        "The request of a health check.",
    ),
    row(
        "http-request",
        NAMED | FRONT | BACK,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::HttpRequest),
        "Rules for requests.",
    ),
    row(
        "http-response",
        NAMED | FRONT | BACK,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::HttpResponse),
        "Rules for responses.",
    ),
    row("http-reuse", BE, "never|safe|aggressive|always", http_reuse, "Which requests may use idle connections."),
    row("id", FRONT | BACK, "NUMBER", id, "Numeric id of the proxy."),
    row(
        "ignore-persist",
        BACK,
        "if|unless CONDITION",
        |d, c| conditional(d, c, Ruleset::IgnorePersist),
        "Do not follow the cookie.",
    ),
    row("log", ALL, "global | ADDRESS … FACILITY [MAX [MIN]]", log, "Where log lines go."),
    row("log-tag", ALL, "TEXT", log_tag, "The program's name in log lines."),
    row("maxconn", FE, "NUMBER", maxconn, "Connections at once."),
    row("mode", ALL, "tcp|http", mode, "What is understood of the traffic."),
    row("monitor fail", FRONT, "if|unless CONDITION", monitor_fail, "When 'monitor-uri' reports a failure."),
    row("monitor-uri", FE, "URI", monitor_uri, "A URI answered by the proxy itself."),
    row("rate-limit sessions", FE, "NUMBER", rate_limit, "Connections a second."),
    row(
        "redirect",
        FRONT | BACK,
        "prefix|location|scheme …",
        |d, c| rule(d, c, Ruleset::Redirect),
        "Redirects requests.",
    ),
    row("retries", BE, "NUMBER", retries, "Attempts after a failed connection."),
    row("retry-on", DEFAULTS | BACK | STRICT, "EVENT …", retry_on, "What may be tried again."),
    row("server", BACK | STRICT, "NAME ADDRESS[:PORT] …", server, "A server."),
    row(
        "server-template",
        BACK | STRICT,
        "PREFIX NUMBER|RANGE ADDRESS[:PORT] …",
        template,
        "Several servers of one kind.",
    ),
    row("source", BE, "ADDRESS[:PORT] [usesrc …] [interface NAME]", source, "Address to connect from."),
    row(
        "tcp-request connection",
        NAMED | FRONT | STRICT,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::TcpConnection),
        "Rules for new connections.",
    ),
    row(
        "tcp-request content",
        NAMED | FRONT | BACK,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::TcpContent),
        "Rules for the first data.",
    ),
    row(
        "tcp-request inspect-delay",
        NAMED | FRONT | BACK,
        "TIME",
        inspect_delay,
        "How long content rules may wait for data.",
    ),
    row(
        "tcp-request session",
        NAMED | FRONT | STRICT,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::TcpSession),
        "Rules for new sessions.",
    ),
    row(
        "tcp-response content",
        NAMED | BACK | STRICT,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::TcpResponse),
        "Rules for the first data of a server.",
    ),
    row("timeout check", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.check), "Reading part of a health check."),
    row("timeout client", FE, "TIME", |d, c| timeout(d, c, |t| &mut t.client), "Inactivity of the client."),
    row(
        "timeout client-fin",
        FE,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.client_fin),
        "Inactivity of the client on half-closed connections.",
    ),
    row("timeout connect", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.connect), "One attempt to connect."),
    row(
        "timeout http-keep-alive",
        ALL,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.http_keep_alive),
        "Wait for the next request.",
    ),
    row("timeout http-request", ALL, "TIME", |d, c| timeout(d, c, |t| &mut t.http_request), "A request's head."),
    row("timeout queue", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.queue), "Wait for a free slot on a server."),
    row("timeout server", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.server), "Inactivity of the server."),
    row(
        "timeout server-fin",
        BE,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.server_fin),
        "Inactivity of the server on half-closed connections.",
    ),
    row("timeout tarpit", ALL, "TIME", |d, c| timeout(d, c, |t| &mut t.tarpit), "How long a tarpit holds a request."),
    row("timeout tunnel", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.tunnel), "Inactivity of upgraded connections."),
    row("transparent", BE, "", |d, c| d.proxy.tcp.transparent |= c.at_most(0), "Old name of 'option transparent'."),
    row("use-server", BACK, "NAME if|unless CONDITION", use_server, "Chooses a server by a rule."),
    row("use_backend", FRONT, "NAME [if|unless CONDITION]", use_backend, "Chooses a backend by a rule."),
    none("bind-process", ALL, "all threads serve all proxies"),
    none("clitcpka-cnt", FE, KEEPALIVE),
    none("clitcpka-idle", FE, KEEPALIVE),
    none("clitcpka-intvl", FE, KEEPALIVE),
    none("http-check comment", BE, "it only names the next step in messages"),
    none("max-keep-alive-queue", BE, "a queue does not keep a request from its idle connection"),
    none("srvtcpka-cnt", BE, KEEPALIVE),
    none("srvtcpka-idle", BE, KEEPALIVE),
    none("srvtcpka-intvl", BE, KEEPALIVE),
    later("capture cookie", FRONT),
    later("capture request", FRONT),
    later("capture response", FRONT),
    later("compression", ALL),
    later("declare capture", FRONT | STRICT),
    later("dispatch", BACK),
    later("email-alert", ALL),
    later("error-log-format", FE),
    later("errorfiles", ALL),
    later("external-check command", BE),
    later("external-check path", BE),
    later("filter", FRONT | BACK),
    later("http-check send-state", BE),
    later("http-check set-var*", BE),
    later("http-check unset-var*", BE),
    later("http-error", ALL),
    later("http-send-name-header", BE),
    later("load-server-state-from-file", BE),
    later("log-format", FE),
    later("log-format-sd", FE),
    later("persist", BE),
    later("server-state-file-name", BE),
    later("stats", ALL),
    later("stick", BACK),
    later("stick-table", FRONT | BACK),
    later("tcp-check", BE),
    later("tcp-response inspect-delay", NAMED | BACK | STRICT),
    later("unique-id-format", FE),
    later("unique-id-header", FE),
    later("use-fcgi-app", BACK),
    gone("appsession", "'appsession' is not supported anymore since HAProxy 1.6."),
    gone(
        "block",
        "The 'block' directive is not supported anymore since HAProxy 2.1. Use 'http-request deny' which uses the exact same syntax.",
    ),
    gone("clitimeout", "the 'clitimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout client'."),
    gone("contimeout", "the 'contimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout connect'."),
    gone("grace", "the 'grace' keyword is not supported any more since HAProxy version 2.5."),
    gone(
        "monitor-net",
        "'monitor-net' doesn't exist anymore. Please use 'http-request return status 200 if { src … }' instead.",
    ),
    gone("redisp", "keyword 'redisp' directive is not supported anymore since HAProxy 2.1. Use 'option redispatch'."),
    gone(
        "redispatch",
        "keyword 'redispatch' directive is not supported anymore since HAProxy 2.1. Use 'option redispatch'.",
    ),
    gone(
        "reqadd",
        "The 'reqadd' directive is not supported anymore since HAProxy 2.1. Use 'http-request add-header' instead.",
    ),
    gone(
        "reqallow",
        "The 'reqallow' directive is not supported anymore since HAProxy 2.1. Use 'http-request allow' instead.",
    ),
    gone(
        "reqdel",
        "The 'reqdel' directive is not supported anymore since HAProxy 2.1. Use 'http-request del-header' instead.",
    ),
    gone(
        "reqdeny",
        "The 'reqdeny' directive is not supported anymore since HAProxy 2.1. Use 'http-request deny' instead.",
    ),
    gone(
        "reqirep",
        "The 'reqirep' directive is not supported anymore since HAProxy 2.1. Use 'http-request replace-header' instead.",
    ),
    gone(
        "reqrep",
        "The 'reqrep' directive is not supported anymore since HAProxy 2.1. Use 'http-request replace-header' instead.",
    ),
    gone(
        "reqtarpit",
        "The 'reqtarpit' directive is not supported anymore since HAProxy 2.1. Use 'http-request tarpit' instead.",
    ),
    gone(
        "rspadd",
        "The 'rspadd' directive is not supported anymore since HAProxy 2.1. Use 'http-response add-header' instead.",
    ),
    gone(
        "rspdel",
        "The 'rspdel' directive is not supported anymore since HAProxy 2.1. Use 'http-response del-header' instead.",
    ),
    gone(
        "rspdeny",
        "The 'rspdeny' directive is not supported anymore since HAProxy 2.1. Use 'http-response deny' instead.",
    ),
    gone(
        "rspirep",
        "The 'rspirep' directive is not supported anymore since HAProxy 2.1. Use 'http-response replace-header' instead.",
    ),
    gone(
        "rsprep",
        "The 'rsprep' directive is not supported anymore since HAProxy 2.1. Use 'http-response replace-header' instead.",
    ),
    gone("srvtimeout", "the 'srvtimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout server'."),
    gone(
        "timeout clitimeout",
        "the 'clitimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout client'.",
    ),
    gone(
        "timeout contimeout",
        "the 'contimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout connect'.",
    ),
    gone(
        "timeout srvtimeout",
        "the 'srvtimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout server'.",
    ),
];

/// Keeps a rule as it is written; `baton-rules` judges it when all sections are read.
fn rule(draft: &mut Draft, call: &mut Call<'_, '_>, ruleset: Ruleset) {
    let source = call.line.source();
    if let Some(at) = ORDER.iter().position(|(set, _)| *set == ruleset) {
        let before = ORDER[at + 1..].iter().find(|(_, keyword)| draft.lines.contains_key(keyword));
        if let Some((_, keyword)) = before {
            let own = ORDER[at].1;
            let message = format!("a '{own}' rule placed after a '{keyword}' rule will still be processed before.");
            call.warn(0, "rule-order", message);
        }
    }
    call.context.rule_lines.insert((source.file.clone(), source.line), (call.line.clone(), call.first));
    draft.proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words: call.rest(), source });
}

/// Rule sets in the order in which they are evaluated, whatever the order of their lines.
const ORDER: [(Ruleset, &str); 8] = [
    (Ruleset::TcpConnection, "tcp-request connection"),
    (Ruleset::TcpSession, "tcp-request session"),
    (Ruleset::TcpContent, "tcp-request content"),
    (Ruleset::MonitorFail, "monitor fail"),
    (Ruleset::HttpRequest, "http-request"),
    (Ruleset::Redirect, "redirect"),
    (Ruleset::UseBackend, "use_backend"),
    (Ruleset::UseServer, "use-server"),
];

/// `tcp-request inspect-delay` is kept among the content rules, its own words included.
fn inspect_delay(draft: &mut Draft, call: &mut Call<'_, '_>) {
    call.first -= 1;
    rule(draft, call, Ruleset::TcpContent);
}

/// A rule that is nothing but a condition.
fn conditional(draft: &mut Draft, call: &mut Call<'_, '_>, ruleset: Ruleset) {
    if !matches!(call.arg(0), "if" | "unless") {
        let message = format!("'{}' requires either 'if' or 'unless' followed by a condition.", call.name);
        return call.error(call.first, "missing-condition", message);
    }
    rule(draft, call, ruleset);
}

fn monitor_fail(draft: &mut Draft, call: &mut Call<'_, '_>) {
    conditional(draft, call, Ruleset::MonitorFail);
}

fn use_server(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "a server name");
    }
    if !matches!(call.arg(1), "if" | "unless") {
        let message = "'use-server' requires either 'if' or 'unless' followed by a condition.";
        return call.error(call.first + 1, "missing-condition", message.into());
    }
    rule(draft, call, Ruleset::UseServer);
}

fn use_backend(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "a backend name");
    }
    if !matches!(call.arg(1), "" | "if" | "unless") {
        let message =
            format!("unexpected keyword '{}' after switching rule, only 'if' and 'unless' are allowed.", call.arg(1));
        return call.error(call.first + 1, "bad-value", message);
    }
    rule(draft, call, Ruleset::UseBackend);
}

fn backlog(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        draft.proxy.backlog = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

fn maxconn(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        draft.proxy.maxconn = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

fn fullconn(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        draft.proxy.fullconn = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

fn rate_limit(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        draft.proxy.rate_limit = u32::try_from(value).ok().filter(|value| *value > 0);
    }
}

fn retries(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        draft.proxy.retries = value as u32;
    }
}

fn id(draft: &mut Draft, call: &mut Call<'_, '_>) {
    match call.arg(0).parse::<u32>() {
        Ok(value) if value > 0 => {
            if call.at_most(1) {
                draft.id = Some(value);
            }
        }
        _ => call.wrong(0, "custom id has to be > 0.".into()),
    }
}

fn default_backend(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(name) = call.only("a backend name") {
        draft.proxy.default_backend = Some(name.into());
    }
}

fn description(draft: &mut Draft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" => call.expects(0, "a string argument"),
        _ => draft.proxy.description = Some(call.rest().join(" ")),
    }
}

fn dynamic_cookie_key(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(key) = call.only("a secret key as an argument") {
        draft.proxy.dynamic_cookie_key = Some(key.into());
    }
}

fn mode(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.mode = match call.arg(0) {
        "tcp" => Mode::Tcp,
        "http" => Mode::Http,
        "health" => {
            let message = "'mode health' doesn't exist anymore. Please use 'http-request return status 200' instead.";
            return call.error(call.first, "removed-keyword", message.into());
        }
        other => return call.wrong(0, format!("unknown proxy mode '{other}'.")),
    };
    call.at_most(1);
}

fn monitor_uri(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(uri) = call.only("an URI") {
        draft.proxy.http.monitor_uri = Some(uri.into());
    }
}

fn log(draft: &mut Draft, call: &mut Call<'_, '_>) {
    match (call.prefix, call.arg(0)) {
        (Prefix::No | Prefix::Default, "") => draft.logs.clear(),
        (Prefix::No | Prefix::Default, _) => call.wrong(0, "log : 'no log' does not expect arguments".into()),
        (Prefix::None, "global") if call.args() == 1 => draft.logs.push(LogEntry::Global),
        (Prefix::None, _) => {
            if let Some(target) = log_target(call) {
                draft.logs.push(LogEntry::Target(target));
            }
        }
    }
}

fn log_tag(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(tag) = call.only("a tag for use in syslog") {
        draft.proxy.logging.tag = Some(tag.into());
    }
}

fn timeout(draft: &mut Draft, call: &mut Call<'_, '_>, field: fn(&mut Timeouts) -> &mut Option<Duration>) {
    let Some(time) = call.time() else { return };
    let time = Some(time).filter(|time| !time.is_zero());
    let field = field(&mut draft.proxy.timeouts);
    if *field != time && field.is_some() && draft.lines.contains_key(call.name) {
        call.warn(0, "overwritten", format!("overwriting '{}' which was already specified", call.name));
    }
    *field = time;
}

/// Statuses `errorfile` and `errorloc` can replace.
const ERROR_STATUSES: [u16; 19] =
    [200, 400, 401, 403, 404, 405, 407, 408, 410, 413, 421, 422, 425, 429, 500, 501, 502, 503, 504];

fn error_status(call: &mut Call<'_, '_>, what: &str) -> Option<u16> {
    if call.arg(0).is_empty() || call.arg(1).is_empty() {
        let message = format!("{} : expects <status_code> and <{what}> as arguments.", call.name);
        call.error(call.first + call.args().min(1), "missing-argument", message);
        return None;
    }
    match call.arg(0).parse::<u16>() {
        Ok(status) if ERROR_STATUSES.contains(&status) => Some(status),
        _ => {
            let message = format!("{} : status code '{}' not handled.", call.name, call.arg(0));
            call.wrong(0, message);
            None
        }
    }
}

fn set_error_page(draft: &mut Draft, status: u16, page: ErrorPage) {
    let pages = &mut draft.proxy.http.error_pages;
    match pages.binary_search_by_key(&status, |(status, _)| *status) {
        Ok(at) => pages[at].1 = page,
        Err(at) => pages.insert(at, (status, page)),
    }
}

fn errorfile(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let Some(status) = error_status(call, "file") else { return };
    let path = call.context.path(&call.line.file, call.arg(1));
    if !call.at_most(2) {
        return;
    }
    match call.context.env.read(&path) {
        Ok(content) => {
            let page = ErrorPage::File { path, content: content.into() };
            set_error_page(draft, status, page);
        }
        Err(error) => {
            let message = format!("errorfile : error opening file '{}' ({error}).", path.display());
            call.error(call.first + 1, "cannot-open", message);
        }
    }
}

fn errorloc(draft: &mut Draft, call: &mut Call<'_, '_>, page: fn(String) -> ErrorPage) {
    if let Some(status) = error_status(call, "url")
        && call.at_most(2)
    {
        set_error_page(draft, status, page(call.arg(1).into()));
    }
}

fn http_reuse(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let choices =
        [("never", Reuse::Never), ("safe", Reuse::Safe), ("aggressive", Reuse::Aggressive), ("always", Reuse::Always)];
    if let Some(value) = call.choose(call.first, "http-reuse", &choices)
        && call.at_most(1)
    {
        draft.proxy.http.reuse = value;
    }
}

fn retry_on(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut retry = RetryOn { conn_failure: false, ..RetryOn::default() };
    if call.args() == 0 {
        return call.expects(0, "at least one event");
    }
    for index in 0..call.args() {
        match call.arg(index) {
            "none" if call.args() == 1 => {}
            "none" => return call.wrong(index, "'retry-on' 'none' keyword only usable alone".into()),
            "conn-failure" => retry.conn_failure = true,
            "empty-response" => retry.empty_response = true,
            "junk-response" => retry.junk_response = true,
            "response-timeout" => retry.response_timeout = true,
            "0rtt-rejected" => retry.early_rejected = true,
            "all-retryable-errors" => {
                retry.conn_failure = true;
                retry.empty_response = true;
                retry.junk_response = true;
                retry.response_timeout = true;
                retry.early_rejected = true;
                for status in [500, 502, 503, 504] {
                    add_status(&mut retry, status);
                }
            }
            status @ ("401" | "403" | "404" | "408" | "425" | "500" | "501" | "502" | "503" | "504") => {
                add_status(&mut retry, status.parse().unwrap_or_default());
            }
            other => return call.wrong(index, format!("'retry-on': unknown keyword '{other}'")),
        }
    }
    draft.proxy.retry_on = retry;
}

fn add_status(retry: &mut RetryOn, status: u16) {
    if !retry.statuses.contains(&status) {
        retry.statuses.push(status);
    }
}

fn hash_type(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let hash = &mut draft.proxy.balance.hash;
    hash.consistent = match call.arg(0) {
        "consistent" => true,
        "map-based" => false,
        _ => return call.wrong(0, "'hash-type' only supports 'consistent' and 'map-based'.".into()),
    };
    // Written without a modifier, the default function is mixed by a consistent hash and not by the map.
    hash.avalanche = Avalanche::Default;
    hash.function = match call.arg(1) {
        "" | "sdbm" => HashFunction::Sdbm,
        "djb2" => HashFunction::Djb2,
        "wt6" => HashFunction::Wt6,
        "crc32" => HashFunction::Crc32,
        "none" => HashFunction::None,
        _ => {
            let message = "'hash-type' only supports 'sdbm', 'djb2', 'crc32', or 'wt6' hash functions.";
            return call.wrong(1, message.into());
        }
    };
    match call.arg(2) {
        "" => {}
        "avalanche" => hash.avalanche = Avalanche::Full,
        _ => {
            let message = "'hash-type' only supports 'avalanche' as a modifier for hash functions.";
            return call.wrong(2, message.into());
        }
    }
    call.at_most(3);
}

fn hash_balance_factor(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.number(0, i64::from(i32::MAX)) {
        if value != 0 && value <= 100 {
            return call.wrong(0, "'hash-balance-factor' must be 0 or greater than 100.".into());
        }
        draft.proxy.balance.factor = value as u32;
    }
}

fn source(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "<addr>[:<port>], and optionally 'usesrc' <addr>, and 'interface' <name>");
    }
    let (source, used) = source_words(call, call.first, false);
    if call.args() > used {
        let message = "'source' only supports optional keywords 'interface' and 'usesrc'.";
        return call.error(call.first + used, "extra-argument", message.into());
    }
    if source.is_some() {
        draft.proxy.source_address = source;
    }
}

/// `NAME(ARGUMENT)` or `NAME`: the name and the argument.
fn called(text: &str) -> (&str, Option<&str>) {
    match text.split_once('(') {
        Some((name, argument)) => (name, Some(argument.strip_suffix(')').unwrap_or(argument))),
        None => (text, None),
    }
}

fn balance(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let algorithm = match called(call.arg(0)) {
        ("" | "roundrobin", None) => Algorithm::RoundRobin,
        ("static-rr", None) => Algorithm::StaticRr,
        ("first", None) => Algorithm::First,
        ("leastconn", None) => Algorithm::LeastConn,
        ("source", None) => Algorithm::Source,
        ("random", None) => Algorithm::Random { draws: 2 },
        ("random", Some(draws)) => match draws.parse::<u32>() {
            Ok(0) => return call.wrong(0, "balance random : number of draws must be at least 1.".into()),
            Ok(draws) => Algorithm::Random { draws },
            Err(_) => return call.wrong(0, format!("balance random : '{draws}' is no number of draws.")),
        },
        ("uri", None) => match balance_uri(call) {
            Some(hash) => Algorithm::Uri(hash),
            None => return,
        },
        ("url_param", None) => match balance_url_param(call) {
            Some(algorithm) => algorithm,
            None => return,
        },
        ("hdr", Some("")) => return call.wrong(0, "balance hdr requires an http header field name.".into()),
        ("hdr", Some(name)) => {
            let domain_only = match call.arg(1) {
                "" => false,
                "use_domain_only" => true,
                odd => {
                    let message = format!("balance hdr({name}) only accepts 'use_domain_only' modifier (got '{odd}').");
                    return call.wrong(1, message);
                }
            };
            Algorithm::Hdr { name: name.into(), domain_only }
        }
        ("hash", None) if !call.arg(1).is_empty() => Algorithm::Hash(call.arg(1).into()),
        ("rdp-cookie", _) => {
            let message = "'balance rdp-cookie' is known to HAProxy but Baton does not do it yet";
            return call.error(call.first, "not-yet", message.into());
        }
        _ => {
            let message = "balance only supports 'roundrobin', 'static-rr', 'leastconn', 'first', 'random', 'source', \
                           'uri', 'url_param', 'hdr(name)', 'hash' and 'rdp-cookie(name)' options.";
            return call.wrong(0, message.into());
        }
    };
    draft.proxy.balance.algorithm = algorithm;
}

fn balance_uri(call: &mut Call<'_, '_>) -> Option<UriHash> {
    let mut hash = UriHash::default();
    let mut index = 1;
    while index < call.args() {
        match call.arg(index) {
            word @ ("len" | "depth") => {
                let Some(value) = call.arg(index + 1).parse::<u32>().ok().filter(|value| *value > 0) else {
                    let message =
                        format!("balance uri : '{word}' expects a positive integer (got '{}').", call.arg(index + 1));
                    call.wrong(index + 1, message);
                    return None;
                };
                *(if word == "len" { &mut hash.len } else { &mut hash.depth }) = value;
                index += 2;
            }
            "whole" => {
                hash.whole = true;
                index += 1;
            }
            "path-only" => {
                hash.path_only = true;
                index += 1;
            }
            odd => {
                let message = format!(
                    "balance uri only accepts parameters 'len', 'depth', 'path-only', and 'whole' (got '{odd}')."
                );
                call.wrong(index, message);
                return None;
            }
        }
    }
    Some(hash)
}

fn balance_url_param(call: &mut Call<'_, '_>) -> Option<Algorithm> {
    let name = call.arg(1);
    if name.is_empty() {
        call.wrong(1, "balance url_param requires an URL parameter name.".into());
        return None;
    }
    let check_post = match call.arg(2) {
        "" => None,
        "check_post" => Some(call.arg(3).parse().unwrap_or(48)),
        odd => {
            call.wrong(2, format!("balance url_param only accepts 'check_post' modifier (got '{odd}')."));
            return None;
        }
    };
    Some(Algorithm::UrlParam { name: name.into(), check_post })
}

fn cookie(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "<cookie_name> as argument");
    }
    let mut cookie = Cookie {
        name: call.arg(0).into(),
        mode: CookieMode::Passive,
        indirect: false,
        nocache: false,
        postonly: false,
        preserve: false,
        httponly: false,
        secure: false,
        domains: Vec::new(),
        max_idle: None,
        max_life: None,
        dynamic_key: None,
        attributes: Vec::new(),
    };
    let mut modes = 0;
    let mut dynamic = false;
    let mut index = 1;
    while index < call.args() {
        match call.arg(index) {
            "rewrite" => (cookie.mode, modes) = (CookieMode::Rewrite, modes + 1),
            "insert" => (cookie.mode, modes) = (CookieMode::Insert, modes + 1),
            "prefix" => (cookie.mode, modes) = (CookieMode::Prefix, modes + 1),
            "indirect" => cookie.indirect = true,
            "nocache" => cookie.nocache = true,
            "postonly" => cookie.postonly = true,
            "preserve" => cookie.preserve = true,
            "httponly" => cookie.httponly = true,
            "secure" => cookie.secure = true,
            "dynamic" => dynamic = true,
            "domain" => {
                index += 1;
                let domain = call.arg(index);
                if domain.is_empty() {
                    return call.wrong(index, "'domain' expects <domain> as argument.".into());
                }
                if !domain.get(1..).is_some_and(|rest| rest.contains('.')) {
                    let message = format!(
                        "domain '{domain}' contains no embedded dot, this configuration may not work properly \
                         (see RFC6265#5.2.3)."
                    );
                    call.warn(call.first + index, "odd-domain", message);
                }
                cookie.domains.push(domain.into());
            }
            word @ ("maxidle" | "maxlife") => {
                index += 1;
                if call.arg(index).is_empty() {
                    return call.wrong(index, format!("'{word}' expects a time in seconds as argument."));
                }
                let Some(time) = call.time_at(call.first + index, word, Unit::Seconds) else { return };
                *(if word == "maxidle" { &mut cookie.max_idle } else { &mut cookie.max_life }) = Some(time);
            }
            "attr" => {
                index += 1;
                let attribute = call.arg(index);
                if attribute.is_empty() {
                    return call.wrong(index, "'attr' expects <value> as argument.".into());
                }
                if let Some(odd) = attribute.chars().find(|char| char.is_control() || *char == ';') {
                    let message = format!("character '%x{:02X}' is not permitted in attribute value.", odd as u32);
                    return call.wrong(index, message);
                }
                cookie.attributes.push(attribute.into());
            }
            _ => {
                let message = "'cookie' supports 'rewrite', 'insert', 'prefix', 'indirect', 'nocache', 'postonly', \
                               'preserve', 'httponly', 'secure', 'domain', 'maxidle', 'dynamic', 'maxlife' and \
                               'attr' options.";
                return call.wrong(index, message.into());
            }
        }
        index += 1;
    }
    if modes > 1 {
        let message = "cookie 'rewrite', 'insert' and 'prefix' modes are incompatible.";
        return call.error(call.first, "bad-value", message.into());
    }
    if cookie.mode == CookieMode::Rewrite && cookie.indirect {
        let message = "cookie 'rewrite' and 'indirect' modes are incompatible.";
        return call.error(call.first, "bad-value", message.into());
    }
    draft.cookie_dynamic = dynamic;
    draft.proxy.cookie = Some(cookie);
}

fn check_404(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.check.disable_on_404 |= call.at_most(0);
}

fn check_connect(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let (mut port, mut send_proxy) = (None, false);
    let mut index = 0;
    while index < call.args() {
        match call.arg(index) {
            "port" => {
                index += 1;
                let value = call.number_at(call.first + index, "http-check connect port", 1, 65535);
                let Some(value) = value else { return };
                port = u16::try_from(value).ok();
            }
            "send-proxy" => send_proxy = true,
            "default" | "linger" => {}
            "comment" => index += 1,
            word @ ("addr" | "ssl" | "sni" | "alpn" | "proto" | "via-socks4") => {
                let message = format!("'http-check connect {word}' is known to HAProxy but Baton does not do it yet");
                return call.error(call.first + index, "not-yet", message);
            }
            odd => {
                let message = format!(
                    "'http-check connect' : expects 'comment', 'port', 'send-proxy', 'linger' or 'default' but got \
                     '{odd}' as argument."
                );
                return call.wrong(index, message);
            }
        }
        index += 1;
    }
    draft.check_steps.push(CheckStep::Connect { port, send_proxy });
}

fn check_send(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut request = draft.check_request.clone().unwrap_or_default();
    request.headers.clear();
    request.body = None;
    let mut index = 0;
    while index < call.args() {
        let value = call.arg(index + 1);
        match call.arg(index) {
            "hdr" => {
                if value.is_empty() || call.arg(index + 2).is_empty() {
                    let message = "'http-check send' : 'hdr' expects <name> and <value> as arguments.";
                    return call.wrong(index + 1, message.into());
                }
                request.headers.push((value.into(), call.arg(index + 2).into()));
                index += 1;
            }
            word @ ("meth" | "uri" | "ver" | "body" | "comment") => {
                if value.is_empty() {
                    return call.wrong(index + 1, format!("'http-check send' : '{word}' expects a value as argument."));
                }
                match word {
                    "meth" => request.method = value.into(),
                    "uri" => request.uri = value.into(),
                    "ver" => request.version = value.into(),
                    "body" => request.body = Some(value.into()),
                    _ => {}
                }
            }
            word @ ("uri-lf" | "body-lf") => {
                let message = format!("'http-check send {word}' is known to HAProxy but Baton does not do it yet");
                return call.error(call.first + index, "not-yet", message);
            }
            odd => {
                let message = format!(
                    "'http-check send' : expects 'comment', 'meth', 'uri', 'ver', 'hdr' or 'body' but got '{odd}' as \
                     argument."
                );
                return call.wrong(index, message);
            }
        }
        index += 2;
    }
    draft.check_steps.push(CheckStep::Send(request));
}

fn check_expect(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut index = 0;
    let negated = call.arg(0) == "!";
    if negated {
        index += 1;
    }
    let (negated, kind) = match call.arg(index).strip_prefix('!') {
        Some(kind) if !kind.is_empty() => (!negated, kind),
        _ => (negated, call.arg(index)),
    };
    if kind.is_empty() {
        let message = "'http-check expect' : expects at least a matching pattern as arguments.";
        return call.error(call.first + index, "missing-argument", message.into());
    }
    let known = ["status", "rstatus", "string", "rstring", "hdr", "fhdr"];
    if !known.contains(&kind) {
        let later = ["min-recv", "comment", "ok-status", "error-status", "tout-status", "on-success", "on-error"];
        let (id, message) = match later.contains(&kind) || matches!(kind, "string-lf" | "status-code") {
            true => ("not-yet", format!("'http-check expect {kind}' is known to HAProxy but Baton does not do it yet")),
            false => (
                "bad-value",
                format!(
                    "'http-check expect' : only supports [!]string, [!]rstring, [!]status, [!]rstatus, [!]hdr and [!]fhdr but got '{kind}' as argument."
                ),
            ),
        };
        return call.error(call.first + index, id, message);
    }
    let pattern: Vec<String> = call.rest().split_off((index + 1).min(call.args()));
    if pattern.is_empty() {
        let message = format!("'http-check expect' : '{kind}' expects a <pattern> as argument.");
        return call.error(call.first + index + 1, "missing-argument", message);
    }
    if kind == "status" && !is_status_list(&pattern[0]) {
        let message = format!("'http-check expect' : '{}' is no list of status codes.", pattern[0]);
        return call.wrong(index + 1, message);
    }
    if !matches!(kind, "hdr" | "fhdr") && pattern.len() > 1 {
        let message = format!("'http-check expect' : unexpected argument '{}'.", pattern[1]);
        return call.error(call.first + index + 2, "extra-argument", message);
    }
    if matches!(kind, "rstatus" | "rstring")
        && let Err(error) = regex::bytes::RegexBuilder::new(&pattern[0]).unicode(false).build()
    {
        let reason = error.to_string();
        let reason = reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string();
        let message = format!("'http-check expect' : regex '{}' is invalid ({reason}).", pattern[0]);
        return call.wrong(index + 1, message);
    }
    draft.check_steps.push(CheckStep::Expect { negated, kind: kind.into(), pattern });
}

/// `200`, `200,204`, `200-299,404`.
fn is_status_list(text: &str) -> bool {
    text.split(',').all(|part| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match (low.parse::<u16>(), high.parse::<u16>()) {
            (Ok(low), Ok(high)) => digits(part.split('-').next().unwrap_or_default()) && low <= high && low >= 100,
            _ => false,
        }
    })
}
