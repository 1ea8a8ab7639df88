//! Steps of a check but for `expect`.

use baton_model::{CheckConnect, CheckData, CheckPort, CheckStep, CheckText, HttpCheckSend, ServerProtocol};
use baton_rules::{CheckAssignment, CheckFiles, CheckValue, RuleError, check_expression, check_format, check_variable};

use super::is_http;
use crate::keywords::server::check_address;
use crate::keywords::server::tls::protocols;
use crate::lower::{Call, Draft, Subject};

/// The outside of a check's expressions.
fn files(call: &Call<'_, '_>) -> CheckFiles {
    CheckFiles { hostname: call.context.env.hostname() }
}

/// A format is judged; the word is the argument's.
pub(super) fn judge_format(call: &mut Call<'_, '_>, index: usize) -> bool {
    let judged = check_format(call.arg(index), &files(call)).map(drop);
    say(call, index, judged.map_err(|error| format!("'{}' invalid log-format string ({error})", call.arg(index))))
}

/// An expression is judged.
pub(super) fn judge_expression(call: &mut Call<'_, '_>, index: usize, what: &str) -> bool {
    let judged = check_expression(call.arg(index), &files(call)).map(drop);
    say(call, index, judged.map_err(|error| format!("error detected while parsing {what} expression : {error}")))
}

fn say(call: &mut Call<'_, '_>, index: usize, judged: Result<(), String>) -> bool {
    match judged {
        Ok(()) => true,
        Err(reason) => {
            call.wrong(index, format!("'{}' : {reason}.", call.name));
            false
        }
    }
}

/// The argument at an index that must be there.
pub(super) fn needed<'l>(call: &mut Call<'l, '_>, index: usize, word: &str, what: &str) -> Option<&'l str> {
    let text = call.arg(index);
    if text.is_empty() {
        let message = format!("'{}' : '{word}' expects {what} as argument.", call.name);
        call.error(call.first + index, "missing-argument", message);
        return None;
    }
    Some(text)
}

pub(super) fn comment(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        let message = format!("'{}' : expects a string as argument.", call.name);
        return call.error(call.first, "missing-argument", message);
    }
    let step = CheckStep::Comment(call.arg(0).into());
    draft.check.own(is_http(call)).push(step);
}

pub(super) fn connect(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut connect = CheckConnect::default();
    let mut index = 0;
    while index < call.args() {
        match call.arg(index) {
            "default" => connect.default = true,
            "send-proxy" => connect.send_proxy = true,
            "via-socks4" => connect.via_socks4 = true,
            "ssl" => connect.ssl = true,
            "linger" => connect.linger = true,
            "port" => {
                index += 1;
                let Some(text) = needed(call, index, "port", "a port number or a sample expression") else { return };
                let Some(port) = port(call, index, text) else { return };
                connect.port = Some(port);
            }
            "addr" => {
                index += 1;
                let Some(text) = needed(call, index, "addr", "<ipv4|ipv6>") else { return };
                match check_address(text, call.context) {
                    Ok(address) => connect.addr = Some(address),
                    Err(reason) => return call.wrong(index, format!("'{}' : 'addr' : {reason}.", call.name)),
                }
            }
            "sni" => {
                index += 1;
                let Some(name) = needed(call, index, "sni", "a string") else { return };
                connect.sni = Some(name.into());
            }
            "alpn" => {
                index += 1;
                call.about = Subject::Text(format!("'{}' : ", call.name));
                let alpn = protocols(call, call.first + index, "alpn");
                call.about = Subject::Nothing;
                if alpn.is_none() {
                    return;
                }
                connect.alpn = alpn;
            }
            "comment" => {
                index += 1;
                let Some(text) = needed(call, index, "comment", "a string") else { return };
                connect.comment = Some(text.into());
            }
            "proto" => {
                index += 1;
                let Some(name) = needed(call, index, "proto", "a MUX protocol") else { return };
                match name {
                    "h1" if is_http(call) => connect.proto = Some(ServerProtocol::H1),
                    "h2" if is_http(call) => connect.proto = Some(ServerProtocol::H2),
                    "none" if !is_http(call) => {}
                    "h1" | "h2" | "fcgi" | "none" => {
                        let kind = if is_http(call) { "http-check" } else { "tcp-check" };
                        let message = format!("'{}' : 'proto' : invalid MUX protocol '{name}' for {kind}.", call.name);
                        return call.wrong(index, message);
                    }
                    _ => {
                        let message = format!("'{}' : 'proto' : unknown MUX protocol '{name}'.", call.name);
                        return call.not_one_of(index, message, ["h1", "h2", "none"]);
                    }
                }
            }
            odd => {
                let message = format!(
                    "'{}' : expects 'comment', 'port', 'addr', 'send-proxy', 'ssl', 'sni', 'alpn' or 'via-socks4', 'linger', \
                     'default' but got '{odd}' as argument.",
                    call.name
                );
                let known =
                    ["comment", "port", "addr", "send-proxy", "ssl", "sni", "alpn", "via-socks4", "linger", "default"];
                return call.not_one_of(index, message, known);
            }
        }
        index += 1;
    }
    let steps = draft.check.own(is_http(call));
    let is_late = |step: &CheckStep| {
        !matches!(step, CheckStep::Comment(_) | CheckStep::SetVariable { .. } | CheckStep::UnsetVariable(_))
    };
    if !steps.iter().any(|step| matches!(step, CheckStep::Connect(_))) && steps.iter().any(is_late) {
        let message = format!(
            "'{}' : first step MUST also be a 'connect', optionally preceded by a 'set-var', an 'unset-var' or a 'comment', when \
             there is a 'connect' step in the tcp-check ruleset.",
            call.name
        );
        return call.error(0, "wrong-order", message);
    }
    steps.push(CheckStep::Connect(connect));
}

fn port(call: &mut Call<'_, '_>, index: usize, text: &str) -> Option<CheckPort> {
    if let Ok(number) = text.parse::<i64>() {
        return match u16::try_from(number) {
            Ok(port) if port > 0 => Some(CheckPort::Number(port)),
            _ => {
                let message = format!(
                    "'{}' : expects a valid TCP port (from range 1 to 65535) or a sample expression, got {text}.",
                    call.name
                );
                call.wrong(index, message);
                None
            }
        };
    }
    judge_expression(call, index, "port").then(|| CheckPort::Expression(text.into()))
}

pub(super) fn http_send(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let steps = draft.check.own(true);
    // What is closer than the last connection, or than the beginning.
    let since = steps.iter().rposition(|step| matches!(step, CheckStep::Connect(_))).map_or(0, |at| at + 1);
    let is_taken = |step: &CheckStep| matches!(step, CheckStep::Send(_) | CheckStep::Expect(_));
    if steps[since..].iter().any(is_taken) {
        let message = format!(
            "'http-check send' : unable to add http-check send rule at step {} (missing connect rule).",
            steps.len() + 1
        );
        return call.error(0, "wrong-order", message);
    }
    let is_first = !steps.iter().any(|step| matches!(step, CheckStep::Send(_)));
    let mut request = HttpCheckSend::default();
    if let Some(usual) = draft.check.request.as_ref().filter(|_| is_first) {
        // What the option hides behind its version goes, too.
        request = usual.clone();
    }
    if let Some(request) = read_send(call, request) {
        draft.check.own(true).push(CheckStep::Send(request));
    }
}

fn read_send(call: &mut Call<'_, '_>, mut request: HttpCheckSend) -> Option<HttpCheckSend> {
    let mut index = 0;
    while index < call.args() {
        let value = call.arg(index + 1);
        match call.arg(index) {
            "hdr" => {
                if value.is_empty() || call.arg(index + 2).is_empty() {
                    let message = "'http-check send' : 'hdr' expects <name> and <value> as arguments.";
                    call.wrong(index + 1, message.into());
                    return None;
                }
                if let Some(odd) = value.chars().find(|char| !is_token(*char)) {
                    call.wrong(index + 1, format!("'http-check send' : '{odd}' is not allowed in a header's name."));
                    return None;
                }
                if !judge_format(call, index + 2) || !is_one_line(call, index + 2) {
                    return None;
                }
                request.headers.push((value.into(), call.arg(index + 2).into()));
                index += 1;
            }
            word @ ("meth" | "uri" | "uri-lf" | "ver" | "body" | "body-lf" | "comment") => {
                if value.is_empty() {
                    call.wrong(index + 1, format!("'http-check send' : '{word}' expects a value as argument."));
                    return None;
                }
                if word.ends_with("-lf") && !judge_format(call, index + 1) {
                    return None;
                }
                if !matches!(word, "body" | "body-lf" | "comment") && !is_one_line(call, index + 1) {
                    return None;
                }
                match word {
                    "meth" => request.method = value.into(),
                    "uri" => request.uri = CheckText::Plain(value.into()),
                    "uri-lf" => request.uri = CheckText::Format(value.into()),
                    "ver" => request.version = value.into(),
                    "body" => request.body = Some(CheckText::Plain(value.into())),
                    "body-lf" => request.body = Some(CheckText::Format(value.into())),
                    _ => request.comment = Some(value.into()),
                }
            }
            odd => {
                let message = format!(
                    "'http-check send' : expects 'comment', 'meth', 'uri', 'uri-lf', 'body', 'body-lf' or 'hdr' but got \
                     '{odd}' as argument."
                );
                let known = ["comment", "meth", "uri", "uri-lf", "ver", "hdr", "body", "body-lf"];
                call.not_one_of(index, message, known);
                return None;
            }
        }
        index += 2;
    }
    Some(request)
}

/// What stands in a line of a request's head.
fn is_one_line(call: &mut Call<'_, '_>, index: usize) -> bool {
    if !call.arg(index).contains(['\r', '\n', '\0']) {
        return true;
    }
    call.wrong(index, format!("'{}' : a request's head cannot have a line break or a NUL there.", call.name));
    false
}

fn is_token(char: char) -> bool {
    char.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(char)
}

/// `tcp-check send`, `send-lf`, `send-binary`, `send-binary-lf`.
pub(super) fn send(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let word = call.name.trim_start_matches("tcp-check ");
    let text = call.arg(0);
    if text.is_empty() {
        let message = format!("'{}' : expects a string as argument.", call.name);
        return call.error(call.first, "missing-argument", message);
    }
    let is_binary = word.contains("binary");
    let text = if word.ends_with("-lf") {
        if !judge_format(call, 0) {
            return;
        }
        CheckText::Format(text.into())
    } else {
        if is_binary && let Err(reason) = judge_digits(text) {
            return call.wrong(0, format!("'{}' : '{text}' invalid binary string ({reason}).", call.name));
        }
        CheckText::Plain(text.into())
    };
    let mut comment = None;
    match call.arg(1) {
        "" => {}
        "comment" => {
            let Some(text) = needed(call, 2, "comment", "a string") else { return };
            comment = Some(text.to_owned());
        }
        odd => {
            let message = format!("'{}' : expects 'comment' but got '{odd}' as argument.", call.name);
            return call.not_one_of(1, message, ["comment"]);
        }
    }
    if call.args() > 3 {
        let message = format!("'{}' : expects 'comment' but got '{}' as argument.", call.name, call.arg(3));
        return call.error(call.first + 3, "extra-argument", message);
    }
    draft.check.own(false).push(CheckStep::SendData(CheckData { text, is_binary, comment }));
}

/// Hexadecimal digits, two for each byte.
pub(super) fn judge_digits(text: &str) -> Result<(), String> {
    if !text.len().is_multiple_of(2) {
        return Err("an even number of hex digit is expected".into());
    }
    match text.chars().find(|char| !char.is_ascii_hexdigit()) {
        Some(odd) => Err(format!("an hex digit is expected (found '{odd}')")),
        None => Ok(()),
    }
}

/// What is wrong with a regular expression for bytes.
pub(super) fn regex_fault(pattern: &str) -> Option<String> {
    let error = regex::bytes::RegexBuilder::new(pattern).unicode(false).build().err()?.to_string();
    Some(error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_string())
}

/// What stands in the parentheses of `set-var(…)`.
fn target<'l>(call: &mut Call<'l, '_>, word: &str) -> Option<&'l str> {
    let whole = call.line.word(call.first - 1);
    let target = whole.strip_prefix(word).and_then(|rest| rest.strip_prefix('(')?.strip_suffix(')'));
    if target.is_none() {
        let message = format!(
            "'{}' : invalid or incomplete action '{whole}'. Expects 'set-var(<var-name>)', 'set-var-fmt(<var-name>)' or \
             'unset-var(<var-name>)'.",
            call.name
        );
        call.error(call.first - 1, "bad-value", message);
    }
    target
}

pub(super) fn set_var(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let is_format = call.line.word(call.first - 1).starts_with("set-var-fmt");
    let word = if is_format { "set-var-fmt" } else { "set-var" };
    let Some(target) = target(call, word) else { return };
    let text = call.arg(0);
    if text.is_empty() {
        let what = if is_format { "format" } else { "fetch method" };
        let message = format!("'{}({target})' : missing {what}.", call.name.trim_end_matches('*'));
        return call.error(call.first, "missing-argument", message);
    }
    let value = match is_format {
        true => check_format(text, &files(call)).map(CheckValue::Format),
        false => check_expression(text, &files(call)).map(CheckValue::Expr),
    };
    let judged = match value {
        Ok(value) => CheckAssignment::compile(target, value).map(drop).map_err(|error| (call.first - 1, error)),
        Err(error) => Err((call.first, error)),
    };
    if let Err((at, error)) = judged {
        return refuse(call, at, error);
    }
    if call.args() > 1 {
        let message = format!("'{}' : unexpected argument '{}'.", call.name.trim_end_matches('*'), call.arg(1));
        return call.error(call.first + 1, "extra-argument", message);
    }
    let value = if is_format { CheckText::Format(text.into()) } else { CheckText::Plain(text.into()) };
    draft.check.own(is_http(call)).push(CheckStep::SetVariable { target: target.into(), value });
}

pub(super) fn unset_var(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let Some(target) = target(call, "unset-var") else { return };
    if let Err(error) = check_variable(target) {
        return refuse(call, call.first - 1, error);
    }
    if call.args() > 0 {
        let message = format!("'{}' : unexpected argument '{}'.", call.name.trim_end_matches('*'), call.arg(0));
        return call.error(call.first, "extra-argument", message);
    }
    draft.check.own(is_http(call)).push(CheckStep::UnsetVariable(target.into()));
}

fn refuse(call: &mut Call<'_, '_>, word: usize, error: RuleError) {
    let message = format!("'{}' : {}.", call.name.trim_end_matches('*'), error.message);
    call.error_with(word, "bad-rule", message, error.hint);
}
