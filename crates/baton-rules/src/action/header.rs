//! Actions on header fields of requests and responses.
//!
//! `Content-Length` and `Transfer-Encoding` describe how a body is delimited on the wire and are not changed by rules:
//! such a rule compiles with a warning and does nothing.

use baton_http::FieldsMut;
use regex::bytes::Regex;

use super::{Action, InvalidRewrite, Row, RuleArguments, sets, with_text};
use crate::context::Context;
use crate::format::Format;
use crate::problem::{LocatedError, RuleError};
use crate::substitute::{self, Template};

pub(super) const ROWS: &[Row] = &[
    Row { name: "set-header", sets: sets::HTTP, parse: set, doc: "Removes a header and adds it with a new value." },
    Row { name: "add-header", sets: sets::HTTP, parse: add, doc: "Adds a header." },
    Row { name: "del-header", sets: sets::HTTP, parse: del, doc: "Removes headers by name or pattern." },
    Row {
        name: "replace-header",
        sets: sets::HTTP,
        parse: |words| replace(words, false),
        doc: "Replaces the whole value of each line that an expression matches.",
    },
    Row {
        name: "replace-value",
        sets: sets::HTTP,
        parse: |words| replace(words, true),
        doc: "Replaces each comma-separated value that an expression matches.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) struct HeaderEdit {
    on_request: bool,
    what: HeaderOperation,
}

#[derive(Clone, Debug)]
enum HeaderOperation {
    Set { name: Box<[u8]>, value: Format },
    Add { name: Box<[u8]>, value: Format },
    Del(Names),
    Replace { name: Box<[u8]>, regex: Regex, with: Format, each_value: bool },
    Nothing,
}

#[derive(Clone, Debug)]
enum Names {
    Exact(Box<[u8]>),
    Beg(Box<[u8]>),
    End(Box<[u8]>),
    Sub(Box<[u8]>),
    Regex(Regex),
}

/// Takes a header's name. HAProxy takes any text; only a token can stand in a message (RFC 9110 5.1).
pub(super) fn name(words: &mut RuleArguments<'_, '_>) -> Result<Vec<u8>, LocatedError> {
    let name = words.take("a header's name")?;
    match name.bytes().find(|byte| !(byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))) {
        Some(byte) => {
            Err(words.blame(RuleError::new(format!("'{}' is not allowed in a header name", byte.escape_ascii()))))
        }
        None => Ok(name.as_bytes().to_vec()),
    }
}

/// The edit, unless it would change how bodies are delimited.
fn edit(words: &mut RuleArguments<'_, '_>, name: Option<&[u8]>, what: HeaderOperation) -> Action {
    let framing = name.is_some_and(is_framing);
    if framing {
        words.warn(RuleError::new("this has no effect: rules cannot change how a body is delimited"));
    }
    let on_request = words.set == sets::REQUEST;
    Action::Header(HeaderEdit { on_request, what: if framing { HeaderOperation::Nothing } else { what } })
}

pub(super) fn is_framing(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"content-length") || name.eq_ignore_ascii_case(b"transfer-encoding")
}

fn set(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = name(words)?;
    let value = words.line("the header's value")?;
    Ok(edit(words, Some(&name), HeaderOperation::Set { name: name.clone().into(), value }))
}

fn add(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = name(words)?;
    let value = words.line("the header's value")?;
    Ok(edit(words, Some(&name), HeaderOperation::Add { name: name.clone().into(), value }))
}

fn del(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let text = words.take("a header's name")?;
    if words.peek() != Some("-m") {
        return Ok(edit(words, Some(text.as_bytes()), HeaderOperation::Del(Names::Exact(text.as_bytes().into()))));
    }
    words.at += 1;
    let method = words.take("a matching method")?;
    let bytes: Box<[u8]> = text.as_bytes().into();
    let names = match method {
        "str" => Names::Exact(bytes),
        "beg" => Names::Beg(bytes),
        "end" => Names::End(bytes),
        "sub" => Names::Sub(bytes),
        "reg" => Names::Regex(substitute::regex(text, false).map_err(|fault| words.blame(fault))?),
        _ => {
            let known = ["str", "beg", "end", "sub", "reg"];
            return Err(words.blame(RuleError::unknown("matching method", method, &[], known.into_iter())));
        }
    };
    Ok(edit(words, None, HeaderOperation::Del(names)))
}

fn replace(words: &mut RuleArguments<'_, '_>, each_value: bool) -> Result<Action, LocatedError> {
    let name = name(words)?;
    let pattern = words.take("a regular expression")?;
    let regex = substitute::regex(pattern, false).map_err(|fault| words.blame(fault))?;
    let with = words.line("the new value")?;
    Ok(edit(words, Some(&name), HeaderOperation::Replace { name: name.clone().into(), regex, with, each_value }))
}

impl Names {
    /// Patterns see names in lower case, as HAProxy keeps them, and with their own case.
    fn match_name(&self, name: &[u8]) -> bool {
        match self {
            Names::Exact(exact) => name.eq_ignore_ascii_case(exact),
            Names::Beg(start) => name.get(..start.len()).is_some_and(|part| part.eq_ignore_ascii_case(start)),
            Names::End(end) => name.len().checked_sub(end.len()).is_some_and(|at| name[at..].eq_ignore_ascii_case(end)),
            Names::Sub(part) => {
                part.is_empty() || name.windows(part.len()).any(|window| window.eq_ignore_ascii_case(part))
            }
            Names::Regex(regex) => regex.is_match(&name.to_ascii_lowercase()),
        }
    }
}

impl HeaderEdit {
    pub fn run(&self, cx: &mut Context<'_>) -> Result<(), InvalidRewrite> {
        match &self.what {
            HeaderOperation::Nothing => return Ok(()),
            HeaderOperation::Set { name, value } => with_text(value, cx, |cx, text| {
                if let Some(mut fields) = self.fields(cx) {
                    fields.set(name, text);
                }
            }),
            HeaderOperation::Add { name, value } => with_text(value, cx, |cx, text| {
                if let Some(mut fields) = self.fields(cx) {
                    fields.add(name, text);
                }
            }),
            HeaderOperation::Del(names) => {
                if let Some(fields) = self.fields(cx) {
                    delete(fields, names);
                }
            }
            HeaderOperation::Replace { name, regex, with, each_value } => {
                with_text(with, cx, |cx, text| match self.fields(cx) {
                    Some(fields) => replace_lines(fields, name, regex, &Template::new(text), *each_value),
                    None => Ok(()),
                })?
            }
        }
        match &mut cx.request {
            Some(request) if self.on_request && self.is_about_host() => {
                if request.head.follow_host() {
                    Ok(())
                } else {
                    Err(InvalidRewrite)
                }
            }
            _ => Ok(()),
        }
    }

    /// Whether it may give `Host` another value.
    fn is_about_host(&self) -> bool {
        match &self.what {
            HeaderOperation::Set { name, .. }
            | HeaderOperation::Add { name, .. }
            | HeaderOperation::Replace { name, .. } => name.eq_ignore_ascii_case(b"host"),
            HeaderOperation::Del(_) | HeaderOperation::Nothing => false,
        }
    }

    fn fields<'c>(&self, cx: &'c mut Context<'_>) -> Option<FieldsMut<'c>> {
        match self.on_request {
            true => cx.request.as_mut().map(|request| request.head.fields()),
            false => cx.response.as_mut().map(|response| response.head.fields()),
        }
    }
}

fn delete(mut fields: FieldsMut<'_>, names: &Names) {
    if let Names::Exact(name) = names {
        fields.remove(name);
        return;
    }
    let indices: Vec<usize> = fields
        .view()
        .iter()
        .filter(|field| !is_framing(field.name) && names.match_name(field.name))
        .map(|field| field.index)
        .collect();
    for index in indices {
        fields.remove_at(index);
    }
}

/// None of the lines is changed when one of the new values is more than a line: `\\x0a` in a template is a line end.
fn replace_lines(
    mut fields: FieldsMut<'_>,
    name: &[u8],
    regex: &Regex,
    template: &Template,
    each_value: bool,
) -> Result<(), InvalidRewrite> {
    let mut changed: Vec<(usize, Vec<u8>)> = Vec::new();
    for field in fields.view().all(name) {
        if let Some(value) = match each_value {
            true => replace_values(field.value, regex, template),
            false => filled(field.value, regex, template),
        } {
            if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                return Err(InvalidRewrite);
            }
            changed.push((field.index, value));
        }
    }
    for (index, value) in changed {
        fields.replace_value(index, &value);
    }
    Ok(())
}

/// The template filled with what the expression finds in the value.
fn filled(value: &[u8], regex: &Regex, template: &Template) -> Option<Vec<u8>> {
    let captures = regex.captures(value)?;
    let mut out = Vec::new();
    template.write(&captures, &mut out);
    Some(out)
}

/// Each value on its own. As in HAProxy 2.6 a replaced value loses the blanks before it, the others keep theirs.
fn replace_values(line: &[u8], regex: &Regex, template: &Template) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut done = 0;
    let mut any = false;
    for value in baton_http::values(line) {
        let start = value.as_ptr() as usize - line.as_ptr() as usize;
        let Some(new) = filled(value, regex, template) else {
            continue;
        };
        any = true;
        let kept = line[done..start].trim_ascii_end();
        out.extend_from_slice(if start > done { kept } else { &[] });
        out.extend_from_slice(&new);
        done = start + value.len();
    }
    out.extend_from_slice(&line[done..]);
    any.then_some(out)
}
