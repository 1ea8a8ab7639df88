//! `http-check expect` and `tcp-check expect`.

use baton_model::{CheckExpect, CheckStep};

use super::is_http;
use super::step::{judge_digits, judge_expression, judge_format, needed, regex_fault};
use crate::lower::{Call, Draft};

const HTTP_KINDS: &[&str] = &["status", "rstatus", "string", "rstring", "string-lf", "hdr", "fhdr"];
const TCP_KINDS: &[&str] = &["string", "rstring", "string-lf", "binary", "rbinary", "binary-lf"];

pub(super) fn expect(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut expect = CheckExpect::default();
    if call.args() == 0 {
        let message = format!("'{}' : expects at least a matching pattern as arguments.", call.name);
        return call.error(call.first, "missing-argument", message);
    }
    let kinds = if is_http(call) { HTTP_KINDS } else { TCP_KINDS };
    let mut index = 0;
    while index < call.args() {
        let Some(next) = word(&mut expect, call, index, kinds) else { return };
        index = next;
    }
    if expect.kind.is_empty() {
        return unknown(call, call.args(), kinds);
    }
    let is_http = is_http(call);
    let steps = draft.check.own(is_http);
    let connected = steps.iter().rposition(|step| matches!(step, CheckStep::Connect(_)));
    if is_http
        && let Some(at) = connected
        && !steps[at..].iter().any(|step| matches!(step, CheckStep::Send(_)))
    {
        let step = steps.len() + 1;
        let message =
            format!("'http-check expect' : unable to add http-check expect rule at step {step} (missing send rule).");
        return call.error(0, "wrong-order", message);
    }
    steps.push(CheckStep::Expect(expect));
}

/// Reads a word with what belongs to it; the index of the next one.
fn word(expect: &mut CheckExpect, call: &mut Call<'_, '_>, at: usize, kinds: &[&str]) -> Option<usize> {
    let status = |call: &mut Call<'_, '_>, word: &str, known: &[&str]| -> Option<Option<String>> {
        let text = call.arg(at + 1);
        if known.contains(&text) {
            return Some(Some(text.to_owned()));
        }
        let list = known.iter().map(|name| format!("'{name}'")).collect::<Vec<_>>().join(", ");
        let message = format!("'{}' : '{word}' only supports {list} status (got '{text}').", call.name);
        call.not_one_of(at + 1, message, known.iter().copied());
        None
    };
    match call.arg(at) {
        "min-recv" => {
            let text = needed(call, at + 1, "min-recv", "a integer")?;
            expect.min_recv = match text.parse::<i64>() {
                Ok(-1) => None,
                Ok(number @ 0..=0x7fff_ffff) => u32::try_from(number).ok(),
                _ => {
                    let message = format!("'{}' : 'min-recv' expects -1 or an integer from 0 to INT_MAX.", call.name);
                    call.wrong(at + 1, message);
                    return None;
                }
            };
        }
        "comment" => expect.comment = Some(needed(call, at + 1, "comment", "a string")?.into()),
        "ok-status" => expect.ok_status = status(call, "ok-status", &["L7OK", "L7OKC", "L6OK", "L4OK"])?,
        "error-status" => {
            expect.error_status = status(call, "error-status", &["L7OKC", "L7RSP", "L7STS", "L6RSP", "L4CON"])?;
        }
        "tout-status" => expect.timeout_status = status(call, "tout-status", &["L7TOUT", "L6TOUT", "L4TOUT"])?,
        word @ ("on-success" | "on-error") => {
            let text = needed(call, at + 1, word, "a string")?.to_owned();
            if !judge_format(call, at + 1) {
                return None;
            }
            match word {
                "on-success" => expect.on_success = Some(text),
                _ => expect.on_error = Some(text),
            }
        }
        "status-code" => {
            let text = needed(call, at + 1, "status-code", "an expression")?.to_owned();
            if !judge_expression(call, at + 1, "status-code") {
                return None;
            }
            expect.status_code = Some(text);
        }
        "!" => {
            expect.negated = !expect.negated;
            return Some(at + 1);
        }
        first => return pattern(expect, call, at, first, kinds),
    }
    Some(at + 2)
}

/// Reads the kind and its pattern.
fn pattern(expect: &mut CheckExpect, call: &mut Call<'_, '_>, at: usize, first: &str, kinds: &[&str]) -> Option<usize> {
    let kind = match first.strip_prefix('!') {
        Some(kind) => {
            expect.negated = !expect.negated;
            kind
        }
        None => first,
    };
    if !kinds.contains(&kind) {
        unknown(call, at, kinds);
        return None;
    }
    if !expect.kind.is_empty() {
        call.wrong(at, format!("'{}' : only on pattern expected.", call.name));
        return None;
    }
    expect.kind = kind.into();
    if matches!(kind, "hdr" | "fhdr") {
        return header(expect, call, at + 1, kind);
    }
    let text = needed(call, at + 1, kind, "a <pattern>")?;
    let fault = match kind {
        "status" if !is_status_list(text) => Some(format!("invalid list of status codes '{text}'")),
        "rstatus" | "rstring" | "rbinary" => {
            regex_fault(text).map(|reason| format!("regex '{text}' is invalid ({reason})"))
        }
        "binary" => judge_digits(text).err().map(|reason| format!("invalid binary string ({reason})")),
        "string-lf" | "binary-lf" if !judge_format(call, at + 1) => return None,
        _ => None,
    };
    if let Some(fault) = fault {
        call.wrong(at + 1, format!("'{}' : {fault}.", call.name));
        return None;
    }
    expect.pattern = vec![text.into()];
    Some(at + 2)
}

/// `name|name-lf [-m METHOD] NAME [value|value-lf [-m METHOD] VALUE]`.
fn header(expect: &mut CheckExpect, call: &mut Call<'_, '_>, mut at: usize, kind: &str) -> Option<usize> {
    for part in ["name", "value"] {
        let word = call.arg(at);
        if word != part && word.strip_suffix("-lf") != Some(part) {
            if part == "value" {
                break;
            }
            let message = format!("'{}' : '{kind}' expects 'name' or 'name-lf', got '{word}'.", call.name);
            call.not_one_of(at, message, ["name", "name-lf"]);
            return None;
        }
        let is_format = word.ends_with("-lf");
        expect.pattern.push(word.into());
        at += 1;
        let mut is_regex = false;
        if call.arg(at) == "-m" {
            let method = call.arg(at + 1);
            let known = ["str", "beg", "end", "sub", "reg"];
            if !known.contains(&method) || is_format && method == "reg" {
                let message = format!("'{}' : '{kind}' : '{method}' is not a matching method there.", call.name);
                call.not_one_of(at + 1, message, known);
                return None;
            }
            is_regex = method == "reg";
            expect.pattern.extend(["-m".to_owned(), method.to_owned()]);
            at += 2;
        }
        let text = needed(call, at, word, "a <pattern>")?;
        if is_format && !judge_format(call, at) {
            return None;
        }
        if is_regex && let Some(reason) = regex_fault(text) {
            call.wrong(at, format!("'{}' : regex '{text}' is invalid ({reason}).", call.name));
            return None;
        }
        expect.pattern.push(text.into());
        at += 1;
    }
    Some(at)
}

fn unknown(call: &mut Call<'_, '_>, at: usize, kinds: &[&str]) {
    let list = kinds.iter().map(|kind| format!("[!]{kind}")).collect::<Vec<_>>().join(", ");
    let message = format!(
        "'{}' : only supports min-recv, comment, ok-status, error-status, tout-status, on-success, on-error, status-code, {list} \
         but got '{}' as argument.",
        call.name,
        call.arg(at)
    );
    call.not_one_of(at, message, kinds.iter().copied());
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
