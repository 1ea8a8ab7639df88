//! What happens when something fails: `errorfile`, `errorloc…`, `http-error`, `retry-on` (configuration manual, 4.2), and the section
//! `http-errors` (3.8).

use std::collections::BTreeMap;
use std::sync::Arc;

use baton_model::{ErrorFile, ErrorPage, HttpErrors, RetryOn, Ruleset};
use baton_rules::{check_error_file, suggestion};

use super::rule::rule;
use crate::diagnostic::Severity;
use crate::lower::{Call, Context, Draft, ErrorSetting, Prefix, late};
use crate::syntax::{Line, Section};

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
    draft.errors.push(ErrorSetting::Page(status, Some(page)));
}

pub(crate) fn errorfile(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let Some(status) = error_status(call, "file") else { return };
    if !call.at_most(2) {
        return;
    }
    if let Some(file) = read_error_file(call.line, call.first + 1, call.context) {
        set_error_page(draft, status, ErrorPage::File(file));
    }
}

/// Reads and checks the file that is named by a word of a line.
fn read_error_file(line: &Line, word: usize, context: &mut Context<'_>) -> Option<ErrorFile> {
    let path = context.path(&line.file, line.word(word));
    let (id, message) = match context.env.read(&path) {
        Ok(content) => match check_error_file(&content, context.buffer) {
            Ok(()) => return Some(ErrorFile { content: content.into() }),
            Err(reason) => ("bad-value", format!("errorfile : '{}': {reason}", path.display())),
        },
        Err(error) => ("cannot-open", format!("errorfile : error opening file '{}' ({error}).", path.display())),
    };
    context.report.add(line.diagnostic(Severity::Alert, id, word, message));
    None
}

pub(crate) fn errorloc(draft: &mut Draft, call: &mut Call<'_, '_>, page: fn(String) -> ErrorPage) {
    if let Some(status) = error_status(call, "url")
        && call.at_most(2)
    {
        if call.arg(1).bytes().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return call.wrong(1, format!("{} : a URL must be a single line.", call.name));
        }
        set_error_page(draft, status, page(call.arg(1).into()));
    }
}

/// `errorfiles NAME [CODE ..]`: the section may come later, so it is looked up in the end.
pub(crate) fn errorfiles(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.arg(0).is_empty() {
        return call.error(call.first, "missing-argument", "errorfiles : expects <name> as argument.".into());
    }
    let mut statuses = Vec::new();
    for index in 1..call.args() {
        match call.arg(index).parse::<u16>() {
            Ok(status) if ERROR_STATUSES.contains(&status) => statuses.push(status),
            _ => {
                let message = format!("errorfiles : status code '{}' not handled.", call.arg(index));
                return call.wrong(index, message);
            }
        }
    }
    let setting = ErrorSetting::Files { section: call.arg(0).into(), statuses, line: call.line.clone() };
    draft.errors.push(setting);
}

/// `http-error status CODE ..`. What composes a response is a rule, which `baton-rules` judges; the rest is what `errorfile` and
/// `errorfiles` say, too.
pub(crate) fn http_error(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let (mut status, mut whole) = (None, None);
    let mut at = 0;
    while at < call.args() {
        match call.arg(at) {
            "status" => {
                if call.arg(at + 1).is_empty() {
                    let message = "http-error : 'status' expects <status_code> as argument".into();
                    return call.error(call.first + at + 1, "missing-argument", message);
                }
                match call.arg(at + 1).parse::<u16>() {
                    Ok(code) if ERROR_STATUSES.contains(&code) => status = Some(code),
                    _ => {
                        let message = format!("http-error: status code '{}' not handled.", call.arg(at + 1));
                        return call.wrong(at + 1, message);
                    }
                }
                at += 2;
            }
            "hdr" => at += 3,
            form @ ("default-errorfiles" | "errorfile" | "errorfiles") => {
                whole = Some((form, at + 1));
                at += if form == "default-errorfiles" { 1 } else { 2 };
            }
            _ => at += 2,
        }
    }
    let Some(status) = status else {
        let message = "http-error : expects at least a <status> as arguments.".into();
        return call.error(call.first, "missing-argument", message);
    };
    let Some((form, argument)) = whole else {
        draft.errors.push(ErrorSetting::Page(status, Some(ErrorPage::Rule)));
        return rule(draft, call, Ruleset::HttpError);
    };
    if !only_one_form(call, form) {
        return;
    }
    if form != "default-errorfiles" && call.arg(argument).is_empty() {
        let what = if form == "errorfile" { "<file>" } else { "<name>" };
        let message = format!("http-error : '{form}' expects {what} as argument");
        return call.error(call.first + argument, "missing-argument", message);
    }
    match form {
        "errorfile" => {
            if let Some(file) = read_error_file(call.line, call.first + argument, call.context) {
                set_error_page(draft, status, ErrorPage::File(file));
            }
        }
        "errorfiles" => {
            let (section, line) = (call.arg(argument).into(), call.line.clone());
            draft.errors.push(ErrorSetting::Files { section, statuses: vec![status], line });
        }
        _ => draft.errors.push(ErrorSetting::Page(status, None)),
    }
}

/// Whether nothing else says what a whole response is to be; warns of what is ignored beside it.
fn only_one_form(call: &mut Call<'_, '_>, form: &str) -> bool {
    let mut at = 0;
    while at < call.args() {
        let word = call.arg(at);
        match word {
            "default-errorfiles" if word == form => at += 1,
            "status" => at += 2,
            "content-type" => {
                let message = format!("content-type '{}' ignored by the http reply with '{form}'.", call.arg(at + 1));
                call.warn(call.first + at, "ignored", message);
                at += 2;
            }
            "hdr" => {
                let message = format!("hdr parameters ignored by the http reply with '{form}'.");
                call.warn(call.first + at, "ignored", message);
                at += 3;
            }
            _ if word == form => at += 2,
            "default-errorfiles" | "errorfile" | "errorfiles" | "file" | "lf-file" | "string" | "lf-string" => {
                let message = format!("http-error : unexpected '{word}' argument, '{form}' already defined");
                call.wrong(at, message);
                return false;
            }
            _ => {
                call.wrong(at, format!("http-error : unknown keyword '{word}'."));
                return false;
            }
        }
    }
    true
}

/// Reads a section `http-errors NAME`, which has lines `errorfile CODE FILE`.
pub(crate) fn http_errors(section: &Section, context: &mut Context<'_>) {
    let head = &section.head;
    let name = head.word(1);
    let known = context.http_errors.iter().find(|(errors, _)| *errors.name == *name);
    let refused = match (name.chars().find(|char| !crate::lower::is_name(*char)), known) {
        _ if name.is_empty() => Some(("missing-name", "missing name for http-errors section.".to_string())),
        (Some(odd), _) => {
            Some(("bad-name", format!("character '{odd}' is not permitted in 'http-errors' name '{name}'.")))
        }
        (None, Some((_, line))) => {
            let place = format!("(declared at {}:{}).", line.file, line.number);
            Some(("duplicate-name", format!("http-errors section '{name}' already exists {place}")))
        }
        (None, None) => None,
    };
    if let Some((id, message)) = refused {
        return context.report.add(head.diagnostic(Severity::Alert, id, 1, message));
    }
    context.limit_arguments(head, 1);
    let mut files: Vec<(u16, ErrorFile)> = Vec::new();
    for line in &section.lines {
        if line.word(0) != "errorfile" {
            let message = format!("unknown keyword '{}' in 'http-errors' section", line.word(0));
            let mut diagnostic = line.diagnostic(Severity::Alert, "unknown-keyword", 0, message);
            diagnostic.hint = suggestion(line.word(0), ["errorfile"]);
            context.report.add(diagnostic);
            continue;
        }
        let mut call = Call::new(line, 1, Prefix::None, "errorfile", context);
        let Some(status) = error_status(&mut call, "file").filter(|_| call.at_most(2)) else { continue };
        if let Some(file) = read_error_file(line, 2, context) {
            files.retain(|(other, _)| *other != status);
            files.push((status, file));
        }
    }
    files.sort_by_key(|(status, _)| *status);
    context.http_errors.push((Arc::new(HttpErrors { name: name.into(), files }), head.clone()));
}

/// What the lines of a proxy and of its `defaults` amount to, in their order: a later one counts more.
pub(crate) fn error_pages(name: &str, settings: &[ErrorSetting], context: &mut Context<'_>) -> Vec<(u16, ErrorPage)> {
    let mut pages: BTreeMap<u16, ErrorPage> = BTreeMap::new();
    for setting in settings {
        match setting {
            ErrorSetting::Page(status, Some(page)) => _ = pages.insert(*status, page.clone()),
            ErrorSetting::Page(status, None) => _ = pages.remove(status),
            ErrorSetting::Files { section, statuses, line } => {
                for (status, file) in section_files(name, (section, statuses, line), context) {
                    pages.insert(status, ErrorPage::File(file));
                }
            }
        }
    }
    pages.into_iter().collect()
}

/// The files that a line takes from an `http-errors` section.
fn section_files(
    proxy: &str,
    (section, statuses, line): (&str, &[u16], &Line),
    context: &mut Context<'_>,
) -> Vec<(u16, ErrorFile)> {
    let place = format!("(at {}:{}).", line.file, line.number);
    let tell = |context: &mut Context<'_>, severity, id, message: String, hint| {
        let is_new = context.told.insert(((line.number, line.file.clone()), message.clone()));
        let message = format!("proxy '{proxy}': {message} {place}");
        if is_new {
            let mut diagnostic = late(line, severity, id, 1, message);
            diagnostic.hint = hint;
            context.report.add(diagnostic);
        }
    };
    let found = context.http_errors.iter().find(|(errors, _)| *errors.name == *section);
    let Some(errors) = found.map(|(errors, _)| Arc::clone(errors)) else {
        let hint = suggestion(section, context.http_errors.iter().map(|(errors, _)| &*errors.name));
        let message = format!("unknown http-errors section '{section}'");
        tell(context, Severity::Alert, "unknown-section", message, hint);
        return Vec::new();
    };
    if statuses.is_empty() {
        return errors.files.clone();
    }
    let mut files = Vec::new();
    for status in statuses {
        match errors.file(*status) {
            Some(file) => files.push((*status, file.clone())),
            None => {
                let message = format!("status '{status}' not declared in http-errors section '{section}'");
                tell(context, Severity::Warning, "no-error-file", message, None);
            }
        }
    }
    files
}

/// What `retry-on` names besides statuses.
const EVENTS: [&str; 7] = [
    "none",
    "conn-failure",
    "empty-response",
    "junk-response",
    "response-timeout",
    "0rtt-rejected",
    "all-retryable-errors",
];

pub(crate) fn retry_on(draft: &mut Draft, call: &mut Call<'_, '_>) {
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
            // Nothing is sent to a server before the handshake is complete, so nothing of it is rejected.
            "0rtt-rejected" => {}
            "all-retryable-errors" => {
                retry.conn_failure = true;
                retry.empty_response = true;
                retry.junk_response = true;
                retry.response_timeout = true;
                for status in [500, 502, 503, 504] {
                    add_status(&mut retry, status);
                }
            }
            status @ ("401" | "403" | "404" | "408" | "425" | "500" | "501" | "502" | "503" | "504") => {
                add_status(&mut retry, status.parse().unwrap_or_default());
            }
            other => return call.not_one_of(index, format!("'retry-on': unknown keyword '{other}'"), EVENTS),
        }
    }
    draft.proxy.retry_on = retry;
}

fn add_status(retry: &mut RetryOn, status: u16) {
    if !retry.statuses.contains(&status) {
        retry.statuses.push(status);
    }
}
