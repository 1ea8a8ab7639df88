//! The `option` keywords (configuration manual, 4.2).

use baton_model::{ForwardedFor, LogFormat, Redispatch, RestrictedNames, Ruleset};
use baton_rules::suggestion;

use super::log;
use super::rows::{gone, none, row};
use super::{Apply, BACK, DEFAULTS, FRONT, Keyword, Sections, Status};
use crate::address;
use crate::lower::{Call, Draft, Kind, Prefix};

const FE: Sections = DEFAULTS | FRONT;
const BE: Sections = DEFAULTS | BACK;
const ALL: Sections = DEFAULTS | FRONT | BACK;

const fn flag(
    name: &'static str,
    sections: Sections,
    field: fn(&mut Draft) -> &mut bool,
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections, args: "", status: Status::Done, doc, apply: Apply::Flag(field) }
}

const fn http(
    name: &'static str,
    sections: Sections,
    field: fn(&mut Draft) -> &mut bool,
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections, args: "", status: Status::Done, doc, apply: Apply::HttpFlag(field) }
}

const SMART: &str = "it saves one packet, which is left to the kernel";

pub(crate) static KEYWORDS: &[Keyword] = &[
    flag(
        "option abortonclose",
        BE,
        |d| &mut d.proxy.tcp.abort_on_close,
        "Drop queued requests whose client has disconnected.",
    ),
    http(
        "option accept-invalid-http-request",
        FE,
        |d| &mut d.proxy.http.accept_invalid_request,
        "Let some malformed requests pass.",
    ),
    http(
        "option accept-invalid-http-response",
        BE,
        |d| &mut d.proxy.http.accept_invalid_response,
        "Let some malformed responses pass.",
    ),
    flag("option allbackups", BE, |d| &mut d.proxy.tcp.all_backups, "Use all backup servers at once."),
    http(
        "option checkcache",
        BE,
        |d| &mut d.proxy.http.check_cache,
        "Block responses that caches could keep although they set a cookie.",
    ),
    flag("option clitcpka", FE, |d| &mut d.proxy.tcp.client_keepalive, "TCP keep-alive on the client's side."),
    none("option contstats", FE, "", "a transfer is counted when it ends"),
    flag("option dontlog-normal", FE, |d| &mut d.proxy.logging.dont_log_normal, "Log only errors."),
    flag("option dontlognull", FE, |d| &mut d.proxy.logging.dont_log_null, "Do not log connections without data."),
    row(
        "option forwarded",
        BE,
        "[proto] [host|host-expr EXPR] [by|by-expr EXPR] [by_port|by_port-expr EXPR] [for|for-expr EXPR] \
         [for_port|for_port-expr EXPR]",
        forwarded_field,
        "Add Forwarded (RFC 7239), as in HAProxy 2.8; 'proto for' without arguments.",
    ),
    row("option forwardfor", ALL, "[except NET] [header NAME] [if-none]", forwardfor, "Add X-Forwarded-For."),
    http(
        "option http-buffer-request",
        ALL,
        |d| &mut d.proxy.http.buffer_request,
        "Wait for the body, up to the buffer size, before evaluating the rules of the section; in a backend, its own \
         rules.",
    ),
    http(
        "option disable-h2-upgrade",
        FE,
        |d| &mut d.proxy.http.disable_h2_upgrade,
        "A connection that begins as HTTP/1 cannot go on as HTTP/2, by its preface.",
    ),
    http(
        "option http-ignore-probes",
        FE,
        |d| &mut d.proxy.http.ignore_probes,
        "Close connections without a request silently.",
    ),
    flag(
        "option h1-case-adjust-bogus-client",
        FE,
        |d| &mut d.adjusts_client,
        "Send header names to clients in the spelling of 'h1-case-adjust'.",
    ),
    flag(
        "option h1-case-adjust-bogus-server",
        BE,
        |d| &mut d.adjusts_server,
        "Send header names to servers in the spelling of 'h1-case-adjust'.",
    ),
    row("option http-keep-alive", ALL, "", keep_alive, "Keep connections alive on both sides (the default)."),
    none("option http-no-delay", ALL, "", "data is always sent without delay"),
    http(
        "option http-pretend-keepalive",
        BE,
        |d| &mut d.proxy.http.pretend_keepalive,
        "Do not send 'Connection: close' to the server.",
    ),
    row(
        "option http-restrict-req-hdr-names",
        ALL,
        "preserve|delete|reject",
        restrict_names,
        "What becomes of header fields with other characters than letters, digits and '-' in their names.",
    ),
    row("option http-server-close", ALL, "", server_close, "Close server connections after each response."),
    none("option http-use-proxy-header", FE, "", "HAProxy 2.6 ignores Proxy-Connection too"),
    row("option httpclose", ALL, "", close, "Close the connections of both sides after each response."),
    row("option httpslog", ALL, "", httpslog, "HTTP log format with facts about TLS."),
    row("option httplog", ALL, "[clf]", httplog, "HTTP log format."),
    flag(
        "option independent-streams",
        ALL,
        |d| &mut d.proxy.tcp.independent_streams,
        "In tunnels, data sent to a side does not renew its timeout.",
    ),
    flag("option log-health-checks", BE, |d| &mut d.proxy.check.log, "Log changes of health check results."),
    flag(
        "option log-separate-errors",
        FE,
        |d| &mut d.proxy.logging.separate_errors,
        "Errors are logged at the level 'err'.",
    ),
    flag("option logasap", FE, |d| &mut d.proxy.logging.asap, "Log without waiting for the end of the response."),
    flag("option nolinger", ALL, |d| &mut d.proxy.tcp.no_linger, "Reset connections instead of closing them."),
    row("option originalto", ALL, "[except NET] [header NAME]", originalto, "Add X-Original-To."),
    flag("option persist", BE, |d| &mut d.proxy.tcp.persist, "Use the server of the cookie even if it is down."),
    http(
        "option prefer-last-server",
        BE,
        |d| &mut d.proxy.tcp.prefer_last_server,
        "Prefer the server of the connection's last request.",
    ),
    row("option redispatch", BE, "[INTERVAL]", redispatch, "A retry may go to another server."),
    flag(
        "option socket-stats",
        FE,
        |d| &mut d.proxy.tcp.socket_stats,
        "Separate statistics for each listening socket.",
    ),
    flag("option splice-auto", ALL, |d| &mut d.proxy.tcp.splice_auto, "Splice long transfers in both directions."),
    flag("option splice-request", ALL, |d| &mut d.proxy.tcp.splice_request, "Splice long transfers to servers."),
    flag("option splice-response", ALL, |d| &mut d.proxy.tcp.splice_response, "Splice long transfers to clients."),
    flag("option srvtcpka", BE, |d| &mut d.proxy.tcp.server_keepalive, "TCP keep-alive on the server's side."),
    none("option tcp-smart-accept", FE, "", SMART),
    none("option tcp-smart-connect", BE, "", SMART),
    row("option tcpka", ALL, "", tcpka, "TCP keep-alive on both sides."),
    row("option tcplog", ALL, "", tcplog, "TCP log format."),
    flag("option transparent", BE, |d| &mut d.transparent, "Connect to the client's original destination."),
    none("option idle-close-on-response", FE, "", "idle connections are closed gracefully anyway"),
    gone(
        "option forceclose",
        ALL,
        "option 'forceclose' is not supported any more since HAProxy 2.0, please just remove it, or use 'option httpclose' if absolutely needed.",
    ),
    gone(
        "option http-tunnel",
        ALL,
        "option 'http-tunnel' is not supported any more since HAProxy 2.1, please just remove it, it shouldn't be needed.",
    ),
    gone("option http_proxy", ALL, "option 'http_proxy' is not supported any more since HAProxy 2.5."),
];

fn on(call: &Call<'_, '_>) -> bool {
    call.prefix == Prefix::None
}

/// Remembers an option of `mode http` for the warning in other modes.
fn remember(draft: &mut Draft, call: &Call<'_, '_>) {
    match on(call) {
        true => draft.http_only.insert(call.name, (call.line.clone(), ALL)),
        false => draft.http_only.remove(call.name),
    };
}

fn keep_alive(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) && on(call) {
        (draft.close, draft.server_close) = (false, false);
    }
}

fn restrict_names(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let names = match call.arg(0) {
        _ if !on(call) => {
            let message = format!("negation/default is not supported for option '{}'.", call.name);
            return call.error(0, "bad-negation", message);
        }
        "preserve" => RestrictedNames::Preserve,
        "delete" => RestrictedNames::Delete,
        "reject" => RestrictedNames::Reject,
        _ => {
            let message = format!("'{}' expects 'preserve', 'reject' or 'delete' as option.", call.name);
            return call.not_one_of(0, message, ["preserve", "reject", "delete"]);
        }
    };
    if call.at_most(1) {
        draft.proxy.http.restricted_names = names;
    }
}

/// `baton-rules` compiles the arguments. A later one takes its place.
fn forwarded_field(draft: &mut Draft, call: &mut Call<'_, '_>) {
    remember(draft, call);
    if on(call) {
        let rule = log::keep(call, Ruleset::Forwarded, call.rest());
        draft.proxy.rules.insert(Ruleset::Forwarded, vec![rule]);
    } else if call.at_most(0) {
        draft.proxy.rules.remove(&Ruleset::Forwarded);
    }
}

fn server_close(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.server_close = on(call);
        if on(call) {
            draft.close = false;
        }
    }
}

fn close(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.close = on(call);
        if on(call) {
            draft.server_close = false;
        }
    }
}

fn tcpka(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.proxy.tcp.client_keepalive = true;
        draft.proxy.tcp.server_keepalive = true;
    }
}

fn redispatch(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if !call.at_most(1) {
        return;
    }
    draft.proxy.tcp.redispatch = match (call.prefix, call.arg(0)) {
        (Prefix::No | Prefix::Default, _) => Redispatch::Off,
        (Prefix::None, "") => Redispatch::Last(1),
        (Prefix::None, _) => match call.number_at(call.first, "option redispatch", i64::from(i32::MIN) + 1, 1 << 30) {
            None | Some(0) => Redispatch::Off,
            Some(value) if value > 0 => Redispatch::Every(value as u32),
            Some(value) => Redispatch::Last(value.unsigned_abs() as u32),
        },
    };
}

fn backend_log(draft: &Draft, call: &mut Call<'_, '_>) -> bool {
    if draft.kind != Kind::Backend {
        return false;
    }
    let message = format!("backend '{}' : '{}' directive is ignored in backends.", draft.proxy.name, call.name);
    call.warn(0, "wrong-section", message);
    true
}

fn httplog(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let format = match call.arg(0) {
        "" => LogFormat::Http,
        "clf" if call.at_most(1) => LogFormat::HttpClf,
        "clf" => return,
        odd => {
            let message = "keyword 'httplog' only supports option 'clf'.";
            return call.error_with(call.first, "extra-argument", message.into(), suggestion(odd, ["clf"]));
        }
    };
    if !backend_log(draft, call) {
        draft.format = Some(format);
    }
}

fn httpslog(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) && !backend_log(draft, call) {
        draft.format = Some(LogFormat::Https);
    }
}

fn tcplog(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) && !backend_log(draft, call) {
        draft.format = Some(LogFormat::Tcp);
    }
}

fn forwardfor(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = forwarded(call, "X-Forwarded-For", true) {
        draft.proxy.http.forwarded_for = Some(value);
        remember(draft, call);
    }
}

fn originalto(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = forwarded(call, "X-Original-To", false) {
        draft.proxy.http.original_to = Some(value);
        remember(draft, call);
    }
}

fn forwarded(call: &mut Call<'_, '_>, header: &str, has_if_none: bool) -> Option<ForwardedFor> {
    let name = call.name;
    let mut value = ForwardedFor { except: None, header: header.into(), if_none: false };
    let mut index = 0;
    while index < call.args() {
        match call.arg(index) {
            "except" => {
                index += 1;
                value.except = address::network(call.arg(index));
                if value.except.is_none() {
                    call.wrong(index, format!("'{name} except' expects <address>[/mask] as argument."));
                    return None;
                }
            }
            "header" => {
                index += 1;
                if call.arg(index).is_empty() {
                    call.wrong(index, format!("'{name} header' expects <header_name> as argument."));
                    return None;
                }
                value.header = call.arg(index).into();
            }
            "if-none" if has_if_none => value.if_none = true,
            _ => {
                let (words, known): (_, &[&str]) = match has_if_none {
                    true => ("'except', 'header' and 'if-none'", &["except", "header", "if-none"]),
                    false => ("'except' and 'header'", &["except", "header"]),
                };
                let message = format!("'{name}' only supports optional values: {words}.");
                call.not_one_of(index, message, known.iter().copied());
                return None;
            }
        }
        index += 1;
    }
    Some(value)
}
