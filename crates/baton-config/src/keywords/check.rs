//! `http-check` (configuration manual, 4.2).

use baton_model::CheckStep;
use baton_rules::suggestion;

use crate::keywords::server::tls::protocols;
use crate::lower::{Call, Draft, Subject};

pub(crate) fn check_404(draft: &mut Draft, call: &mut Call<'_, '_>) {
    draft.proxy.check.disable_on_404 |= call.at_most(0);
}

pub(crate) fn check_connect(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let (mut port, mut send_proxy, mut ssl, mut default) = (None, false, false, false);
    let (mut sni, mut alpn) = (None, None);
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
            "default" => default = true,
            "ssl" => ssl = true,
            "sni" => {
                index += 1;
                match call.arg(index) {
                    "" => {
                        let message = "'http-check connect' : 'sni' expects a string as argument.";
                        return call.error(call.first + index, "missing-argument", message.into());
                    }
                    name => sni = Some(name.to_string()),
                }
            }
            "alpn" => {
                index += 1;
                call.about = Subject::Text("'http-check connect' : ".into());
                alpn = protocols(call, call.first + index, "alpn");
                if alpn.is_none() {
                    return;
                }
                call.about = Subject::Nothing;
            }
            "linger" => {}
            "comment" => index += 1,
            word @ ("addr" | "proto" | "via-socks4") => {
                let message = format!("'http-check connect {word}' is not supported yet");
                return call.error(call.first + index, "not-yet", message);
            }
            odd => {
                let message = format!(
                    "'http-check connect' : expects 'comment', 'port', 'send-proxy', 'ssl', 'sni', 'alpn', 'linger' or 'default' but got \
                     '{odd}' as argument."
                );
                let known = ["comment", "port", "send-proxy", "ssl", "sni", "alpn", "linger", "default"];
                return call.not_one_of(index, message, known);
            }
        }
        index += 1;
    }
    draft.check_steps.push(CheckStep::Connect { port, send_proxy, ssl, sni, alpn, default });
}

pub(crate) fn check_send(draft: &mut Draft, call: &mut Call<'_, '_>) {
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
                let message = format!("'http-check send {word}' is not supported yet");
                return call.error(call.first + index, "not-yet", message);
            }
            odd => {
                let message = format!(
                    "'http-check send' : expects 'comment', 'meth', 'uri', 'ver', 'hdr' or 'body' but got '{odd}' as \
                     argument."
                );
                return call.not_one_of(index, message, ["comment", "meth", "uri", "ver", "hdr", "body"]);
            }
        }
        index += 2;
    }
    draft.check_steps.push(CheckStep::Send(request));
}

pub(crate) fn check_expect(draft: &mut Draft, call: &mut Call<'_, '_>) {
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
            true => ("not-yet", format!("'http-check expect {kind}' is not supported yet")),
            false => (
                "bad-value",
                format!(
                    "'http-check expect' : only supports [!]string, [!]rstring, [!]status, [!]rstatus, [!]hdr and [!]fhdr but got '{kind}' as argument."
                ),
            ),
        };
        let hint = suggestion(kind, known).filter(|_| id == "bad-value");
        return call.error_with(call.first + index, id, message, hint);
    }
    let pattern: Vec<String> = call.rest().split_off((index + 1).min(call.args()));
    if pattern.is_empty() {
        let message = format!("'http-check expect' : '{kind}' expects a <pattern> as argument.");
        return call.error(call.first + index + 1, "missing-argument", message);
    }
    if kind == "status" && !is_status_list(&pattern[0]) {
        let message = format!("'http-check expect' : invalid list of status codes '{}'.", pattern[0]);
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
