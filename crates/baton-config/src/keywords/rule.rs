//! Lines that are rules (configuration manual, 4.2 `acl`, `http-request`, `use_backend` …): kept as they are written.

use baton_model::{Rule, Ruleset};
use baton_rules::suggestion;

use crate::lower::{Call, Draft};

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

/// What a condition begins with.
const CONDITION: [&str; 2] = ["if", "unless"];

/// Keeps a rule as it is written; `baton-rules` judges it when all sections are read.
pub(crate) fn rule(draft: &mut Draft, call: &mut Call<'_, '_>, ruleset: Ruleset) {
    let source = call.line.source();
    if let Some(at) = ORDER.iter().position(|(set, _)| *set == ruleset) {
        let before = ORDER[at + 1..].iter().find(|(_, keyword)| draft.lines.get(keyword).is_some());
        if let Some((_, keyword)) = before {
            let own = ORDER[at].1;
            let message = format!("a '{own}' rule placed after a '{keyword}' rule will still be processed before.");
            call.warn(0, "rule-order", message);
        }
    }
    call.context.rule_lines.insert((source.line, source.file.clone()), (call.line.clone(), call.first));
    draft.proxy.rules.entry(ruleset).or_default().push(Rule { ruleset, words: call.rest(), source });
}

/// `tcp-request inspect-delay` is kept among the content rules, its own words included.
pub(crate) fn inspect_delay(draft: &mut Draft, call: &mut Call<'_, '_>) {
    call.first -= 1;
    rule(draft, call, Ruleset::TcpContent);
}

/// `tcp-response inspect-delay`, likewise.
pub(crate) fn response_inspect_delay(draft: &mut Draft, call: &mut Call<'_, '_>) {
    call.first -= 1;
    rule(draft, call, Ruleset::TcpResponse);
}

/// A rule that is nothing but a condition.
pub(crate) fn conditional(draft: &mut Draft, call: &mut Call<'_, '_>, ruleset: Ruleset) {
    if !matches!(call.arg(0), "if" | "unless") {
        let message = format!("'{}' requires either 'if' or 'unless' followed by a condition.", call.name);
        let hint = suggestion(call.arg(0), CONDITION);
        return call.error_with(call.first, "missing-condition", message, hint);
    }
    rule(draft, call, ruleset);
}

pub(crate) fn monitor_fail(draft: &mut Draft, call: &mut Call<'_, '_>) {
    conditional(draft, call, Ruleset::MonitorFail);
}

pub(crate) fn use_server(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "a server name");
    }
    if !matches!(call.arg(1), "if" | "unless") {
        let message = "'use-server' requires either 'if' or 'unless' followed by a condition.";
        let hint = suggestion(call.arg(1), CONDITION);
        return call.error_with(call.first + 1, "missing-condition", message.into(), hint);
    }
    rule(draft, call, Ruleset::UseServer);
}

pub(crate) fn use_backend(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.expects(0, "a backend name");
    }
    if !matches!(call.arg(1), "" | "if" | "unless") {
        let message =
            format!("unexpected keyword '{}' after switching rule, only 'if' and 'unless' are allowed.", call.arg(1));
        return call.not_one_of(1, message, CONDITION);
    }
    rule(draft, call, Ruleset::UseBackend);
}
