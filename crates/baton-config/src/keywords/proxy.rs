//! The keywords of `defaults`, `frontend`, `backend` and `listen` that are no `option` (configuration manual, 4.2).

use std::time::Duration;

use baton_model::{ErrorPage, Mode, Reuse, Ruleset, StateFile, Timeouts};
use baton_rules::suggestion;

use super::balance::{balance, hash_balance_factor, hash_type, persist};
use super::cookie::cookie;
use super::failure::{errorfile, errorfiles, errorloc, http_error, retry_on};
use super::log;
use super::mail::email_alert;
use super::rows::{gone, later, none, row};
use super::rule::{conditional, inspect_delay, monitor_fail, response_inspect_delay, rule, use_backend, use_server};
use super::server::{default_server, server, template};
use super::source::source_words;
use super::table::stick_table;
use super::{BACK, DEFAULTS, FRONT, Keyword, NAMED, STRICT, Sections, bind, tls};
use crate::lower::{Call, Draft};

const FE: Sections = DEFAULTS | FRONT;
const BE: Sections = DEFAULTS | BACK;
const ALL: Sections = DEFAULTS | FRONT | BACK;

const KEEPALIVE: &str = "the kernel's TCP keep-alive settings are used";

pub(crate) static KEYWORDS: &[Keyword] = &[
    row(
        "acl",
        NAMED | FRONT | BACK,
        "NAME CRITERION …",
        |d, c| rule(d, c, Ruleset::Acl),
        "Declares an access control list (ACL).",
    ),
    row("backlog", FE, "NUMBER", backlog, "Length of the kernel's accept queue."),
    row("balance", BE, "ALGORITHM …", balance, "Load balancing algorithm."),
    row("bind", FRONT, "ADDRESS[,…] …", bind::bind, "Address to listen on."),
    row("capture cookie", FRONT, "NAME len LENGTH", log::capture, "Captures a cookie for the log."),
    row("capture request", FRONT, "header NAME len LENGTH", log::capture, "Captures a request header for the log."),
    row("capture response", FRONT, "header NAME len LENGTH", log::capture, "Captures a response header for the log."),
    row("cookie", BE, "NAME …", cookie, "Cookie-based persistence."),
    row(
        "declare capture",
        FRONT | STRICT,
        "request|response len LENGTH",
        log::declare_capture,
        "Declares a slot that rules capture into.",
    ),
    row("default-server", DEFAULTS | BACK | STRICT, "…", default_server, "Default settings of the servers below."),
    row("default_backend", FE, "NAME", default_backend, "Backend used if no rule selects one."),
    row("description", FRONT | BACK, "TEXT", description, "Description on the statistics page."),
    row("disabled", ALL, "", |d, c| d.proxy.disabled = c.at_most(0), "Disables the proxy."),
    row("dynamic-cookie-key", BE, "TEXT", dynamic_cookie_key, "Secret key of dynamic cookies."),
    row("enabled", ALL, "", |d, c| d.proxy.disabled &= !c.at_most(0), "Undoes 'disabled'."),
    row(
        "error-log-format",
        FE,
        "FORMAT",
        |d, c| log::format(d, c, Ruleset::ErrorLogFormat),
        "Log format of connections that fail, and of malformed requests.",
    ),
    row("errorfile", ALL, "CODE FILE", errorfile, "Response for an error, from a file."),
    row("errorfiles", ALL, "NAME [CODE …]", errorfiles, "Responses for errors, from an 'http-errors' section."),
    row("errorloc", ALL, "CODE URL", |d, c| errorloc(d, c, ErrorPage::Found), "Redirect (302) instead of an error."),
    row("errorloc302", ALL, "CODE URL", |d, c| errorloc(d, c, ErrorPage::Found), "Redirect (302) instead of an error."),
    row(
        "errorloc303",
        ALL,
        "CODE URL",
        |d, c| errorloc(d, c, ErrorPage::SeeOther),
        "Redirect (303) instead of an error.",
    ),
    row(
        "force-persist",
        BACK,
        "if|unless CONDITION",
        |d, c| conditional(d, c, Ruleset::ForcePersist),
        "When to use the server of the cookie even if it is down.",
    ),
    row("fullconn", BE, "NUMBER", fullconn, "Connections of the backend at which its servers reach their 'maxconn'."),
    row(
        "hash-balance-factor",
        BE,
        "PERCENT",
        hash_balance_factor,
        "Maximum load of a server relative to the average, in percent.",
    ),
    row("hash-type", BE, "METHOD [FUNCTION [MODIFIER]]", hash_type, "How keys are mapped to servers."),
    row(
        "http-after-response",
        NAMED | FRONT | BACK,
        "ACTION …",
        |d, c| rule(d, c, Ruleset::HttpAfterResponse),
        "Rules for all responses.",
    ),
    row("http-error", ALL, "status CODE …", http_error, "Response for an error, as 'http-request return' has it."),
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
        "When to ignore the persistence cookie.",
    ),
    row(
        "load-server-state-from-file",
        BE,
        "global|local|none",
        load_server_state,
        "Which file has the states that servers start with.",
    ),
    row("log", ALL, "global | ADDRESS … FACILITY [MAX [MIN]]", log::log, "Log target."),
    row("log-format", FE, "FORMAT", log::log_format, "Log format."),
    row(
        "log-format-sd",
        FE,
        "FORMAT",
        |d, c| log::format(d, c, Ruleset::LogFormatSd),
        "Format of the structured data of log lines (RFC 5424).",
    ),
    row("log-tag", ALL, "TEXT", log::log_tag, "Program name in log lines."),
    row("maxconn", FE, "NUMBER", maxconn, "Maximum number of concurrent connections."),
    row("mode", ALL, "tcp|http|direct", mode, "Protocol of the traffic."),
    row("monitor fail", FRONT, "if|unless CONDITION", monitor_fail, "When 'monitor-uri' reports a failure."),
    row(
        "monitor-uri",
        FE,
        "URI",
        monitor_uri,
        "URI that the proxy itself responds to, for health checks of the proxy.",
    ),
    row("rate-limit sessions", FE, "NUMBER", rate_limit, "Maximum number of new connections per second."),
    row(
        "redirect",
        FRONT | BACK,
        "prefix|location|scheme …",
        |d, c| rule(d, c, Ruleset::Redirect),
        "Redirects requests.",
    ),
    row("retries", BE, "NUMBER", retries, "Number of retries after a failed attempt to connect."),
    row("retry-on", DEFAULTS | BACK | STRICT, "EVENT …", retry_on, "Failures after which a request is retried."),
    row("server", BACK | STRICT, "NAME ADDRESS[:PORT] …", server, "A server."),
    row(
        "server-state-file-name",
        BE,
        "[use-backend-name|FILE]",
        server_state_file_name,
        "Name of the backend's own file of server states; its own name by default.",
    ),
    row(
        "server-template",
        BACK | STRICT,
        "PREFIX NUMBER|RANGE ADDRESS[:PORT] …",
        template,
        "Several servers of one kind.",
    ),
    row(
        "source",
        BE,
        "ADDRESS[:PORT] [usesrc …] [interface NAME]",
        source,
        "Source address of connections to servers.",
    ),
    row(
        "stick-table",
        FRONT | BACK,
        "type TYPE [len LENGTH] size SIZE [expire TIME] [nopurge] [store DATA,…] …",
        stick_table,
        "The section's stick table: what it counts by address, by a header, or by any other key.",
    ),
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
    row(
        "tcp-response inspect-delay",
        NAMED | BACK | STRICT,
        "TIME",
        response_inspect_delay,
        "How long rules may wait for data of a server.",
    ),
    row("timeout check", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.check), "Timeout of a health check's response."),
    row("timeout client", FE, "TIME", |d, c| timeout(d, c, |t| &mut t.client), "Inactivity of the client."),
    row(
        "timeout client-fin",
        FE,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.client_fin),
        "Inactivity of the client on half-closed connections.",
    ),
    row("timeout connect", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.connect), "Timeout of an attempt to connect."),
    row(
        "timeout http-keep-alive",
        ALL,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.http_keep_alive),
        "Timeout of the wait for the next request.",
    ),
    row(
        "timeout http-request",
        ALL,
        "TIME",
        |d, c| timeout(d, c, |t| &mut t.http_request),
        "Timeout of receiving a request head.",
    ),
    row("timeout queue", BE, "TIME", |d, c| timeout(d, c, |t| &mut t.queue), "Timeout of the wait in a queue."),
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
    row("transparent", BE, "", |d, c| d.transparent |= c.at_most(0), "Old name of 'option transparent'."),
    row(
        "unique-id-format",
        FE,
        "FORMAT",
        |d, c| log::format(d, c, Ruleset::UniqueIdFormat),
        "Format of the unique ID of each request.",
    ),
    row("unique-id-header", FE, "NAME", log::unique_id_header, "Request header that gets the unique ID."),
    row("persist", BE, "rdp-cookie[(NAME)]", persist, "The server is the one that a cookie of RDP names."),
    row("http-send-name-header", BE, "NAME", send_name_header, "Request header that gets the name of the server."),
    row("use-server", BACK, "NAME if|unless CONDITION", use_server, "Selects a server by a condition."),
    row(
        "ssl-f-use",
        FRONT,
        "[crt FILE] [key FILE] … [OPTIONS]",
        tls::use_in_frontend,
        "A certificate for all 'bind … ssl' of the section (as in HAProxy 3.1).",
    ),
    row(
        "email-alert",
        ALL,
        "from|to ADDRESS, level LEVEL, mailers SECTION, myhostname NAME",
        email_alert,
        "Mail about servers that go down and come back.",
    ),
    row("use_backend", FRONT, "NAME [if|unless CONDITION]", use_backend, "Selects a backend by a condition."),
    none("bind-process", ALL, "…", "all threads serve all proxies"),
    none("clitcpka-cnt", FE, "…", KEEPALIVE),
    none("clitcpka-idle", FE, "…", KEEPALIVE),
    none("clitcpka-intvl", FE, "…", KEEPALIVE),
    none("max-keep-alive-queue", BE, "…", "a queued request never waits for an idle connection"),
    none("srvtcpka-cnt", BE, "…", KEEPALIVE),
    none("srvtcpka-idle", BE, "…", KEEPALIVE),
    none("srvtcpka-intvl", BE, "…", KEEPALIVE),
    later("compression", ALL),
    later("dispatch", BACK),
    later("filter", FRONT | BACK),
    later("use-fcgi-app", BACK),
    gone("appsession", ALL, "'appsession' is not supported anymore since HAProxy 1.6."),
    gone(
        "block",
        ALL,
        "The 'block' directive is not supported anymore since HAProxy 2.1. Use 'http-request deny' which uses the exact same syntax.",
    ),
    gone(
        "clitimeout",
        ALL,
        "the 'clitimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout client'.",
    ),
    gone(
        "contimeout",
        ALL,
        "the 'contimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout connect'.",
    ),
    gone("grace", ALL, "the 'grace' keyword is not supported any more since HAProxy version 2.5."),
    gone(
        "monitor-net",
        ALL,
        "'monitor-net' doesn't exist anymore. Please use 'http-request return status 200 if { src … }' instead.",
    ),
    gone(
        "redisp",
        ALL,
        "keyword 'redisp' directive is not supported anymore since HAProxy 2.1. Use 'option redispatch'.",
    ),
    gone(
        "redispatch",
        ALL,
        "keyword 'redispatch' directive is not supported anymore since HAProxy 2.1. Use 'option redispatch'.",
    ),
    gone(
        "reqadd",
        ALL,
        "The 'reqadd' directive is not supported anymore since HAProxy 2.1. Use 'http-request add-header' instead.",
    ),
    gone(
        "reqallow",
        ALL,
        "The 'reqallow' directive is not supported anymore since HAProxy 2.1. Use 'http-request allow' instead.",
    ),
    gone(
        "reqdel",
        ALL,
        "The 'reqdel' directive is not supported anymore since HAProxy 2.1. Use 'http-request del-header' instead.",
    ),
    gone(
        "reqdeny",
        ALL,
        "The 'reqdeny' directive is not supported anymore since HAProxy 2.1. Use 'http-request deny' instead.",
    ),
    gone(
        "reqirep",
        ALL,
        "The 'reqirep' directive is not supported anymore since HAProxy 2.1. Use 'http-request replace-header' instead.",
    ),
    gone(
        "reqrep",
        ALL,
        "The 'reqrep' directive is not supported anymore since HAProxy 2.1. Use 'http-request replace-header' instead.",
    ),
    gone(
        "reqtarpit",
        ALL,
        "The 'reqtarpit' directive is not supported anymore since HAProxy 2.1. Use 'http-request tarpit' instead.",
    ),
    gone(
        "rspadd",
        ALL,
        "The 'rspadd' directive is not supported anymore since HAProxy 2.1. Use 'http-response add-header' instead.",
    ),
    gone(
        "rspdel",
        ALL,
        "The 'rspdel' directive is not supported anymore since HAProxy 2.1. Use 'http-response del-header' instead.",
    ),
    gone(
        "rspdeny",
        ALL,
        "The 'rspdeny' directive is not supported anymore since HAProxy 2.1. Use 'http-response deny' instead.",
    ),
    gone(
        "rspirep",
        ALL,
        "The 'rspirep' directive is not supported anymore since HAProxy 2.1. Use 'http-response replace-header' instead.",
    ),
    gone(
        "rsprep",
        ALL,
        "The 'rsprep' directive is not supported anymore since HAProxy 2.1. Use 'http-response replace-header' instead.",
    ),
    gone(
        "srvtimeout",
        ALL,
        "the 'srvtimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout server'.",
    ),
    gone(
        "timeout clitimeout",
        ALL,
        "the 'clitimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout client'.",
    ),
    gone(
        "timeout contimeout",
        ALL,
        "the 'contimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout connect'.",
    ),
    gone(
        "timeout srvtimeout",
        ALL,
        "the 'srvtimeout' directive is not supported anymore since HAProxy 2.1. Use 'timeout server'.",
    ),
];

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

/// `load-server-state-from-file global|local|none`.
fn load_server_state(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.state_file = match call.arg(0) {
        "global" => StateFile::Global,
        "local" => StateFile::Local,
        "none" => StateFile::None,
        other => {
            let message = format!("'load-server-state-from-file' expects 'global', 'local' or 'none'. Got '{other}'");
            return call.not_one_of(0, message, ["global", "local", "none"]);
        }
    };
}

/// `server-state-file-name [use-backend-name|FILE]`.
fn server_state_file_name(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(1) {
        draft.proxy.state_file_name = match call.arg(0) {
            "" | "use-backend-name" => None,
            file => Some(file.to_owned()),
        };
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
        draft.dynamic_cookie_key = Some(key.into());
    }
}

fn mode(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.mode = match call.arg(0) {
        "tcp" => Mode::Tcp,
        "http" => Mode::Http,
        "direct" => Mode::Direct,
        "health" => {
            let message = "'mode health' doesn't exist anymore. Please use 'http-request return status 200' instead.";
            return call.error(call.first, "removed-keyword", message.into());
        }
        other => {
            let message = format!("unknown proxy mode '{other}'.");
            return call.not_one_of(0, message, ["http", "tcp", "direct"]);
        }
    };
    call.at_most(1);
}

/// `http-send-name-header`. A server that was told another length of the body than ours would read the rest of it as a request.
fn send_name_header(draft: &mut Draft, call: &mut Call<'_, '_>) {
    const HOP_BY_HOP: [&str; 8] = [
        "connection",
        "content-length",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    let Some(name) = log::header_name(call) else { return };
    if HOP_BY_HOP.iter().any(|field| name.eq_ignore_ascii_case(field)) {
        let message = format!("'{}' : the header '{name}' is about the connection to the server.", call.name);
        let hint = Some("use a header of your own, such as 'X-Server'".into());
        return call.error_with(call.first, "bad-name", message, hint);
    }
    draft.proxy.http.send_name_header = Some(name);
}

fn monitor_uri(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(uri) = call.only("an URI") {
        draft.proxy.http.monitor_uri = Some(uri.into());
    }
}

fn timeout(draft: &mut Draft, call: &mut Call<'_, '_>, field: fn(&mut Timeouts) -> &mut Option<Duration>) {
    let Some(time) = call.time() else { return };
    let time = Some(time).filter(|time| !time.is_zero());
    let field = field(&mut draft.proxy.timeouts);
    if *field != time && field.is_some() && draft.lines.get(call.name).is_some() {
        call.warn(0, "overwritten", format!("overwriting '{}' which was already specified", call.name));
    }
    *field = time;
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

fn source(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "<addr>[:<port>], and optionally 'usesrc' <addr>, and 'interface' <name>");
    }
    let (source, used) = source_words(call, call.first, false);
    if call.args() > used {
        let message = "'source' only supports optional keywords 'interface' and 'usesrc'.";
        let hint = suggestion(call.arg(used), ["interface", "usesrc"]);
        return call.error_with(call.first + used, "extra-argument", message.into(), hint);
    }
    if source.is_some() {
        draft.proxy.source_address = source;
    }
}
