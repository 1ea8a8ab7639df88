//! Actions on the request line: method, target and their parts.
//!
//! A result that could not be sent as a request line ends the request with 500, as HAProxy 2.6 ends one whose rewrite does not fit
//! its buffer: the server must not get what a rule was to change. HAProxy sends `GET /a b HTTP/1.1`. Bytes beyond ASCII, which
//! `url_dec` brings about, are sent as `%XX`, and an empty path is `/` (RFC 3986 6.2.3).

use std::io::Write;

use baton_http::{Name, TargetForm};
use regex::bytes::Regex;

use super::{Action, InvalidRewrite, Row, RuleArguments, sets, with_text};
use crate::context::{Context, Request};
use crate::format::Format;
use crate::problem::LocatedError;
use crate::substitute::{self, Template};

pub(super) const ROWS: &[Row] = &[
    Row { name: "set-method", sets: sets::REQUEST, parse: set_method, doc: "Changes the method." },
    Row {
        name: "set-path",
        sets: sets::REQUEST,
        parse: |w| set(w, UriPart::Path),
        doc: "Changes the path, not the query.",
    },
    Row {
        name: "set-pathq",
        sets: sets::REQUEST,
        parse: |w| set(w, UriPart::PathAndQuery),
        doc: "Changes path and query.",
    },
    Row { name: "set-query", sets: sets::REQUEST, parse: |w| set(w, UriPart::Query), doc: "Changes the query." },
    Row { name: "set-uri", sets: sets::REQUEST, parse: |w| set(w, UriPart::Whole), doc: "Changes the whole target." },
    Row {
        name: "replace-path",
        sets: sets::REQUEST,
        parse: |w| replace(w, UriPart::Path),
        doc: "Replaces in the path.",
    },
    Row {
        name: "replace-pathq",
        sets: sets::REQUEST,
        parse: |w| replace(w, UriPart::PathAndQuery),
        doc: "Replaces in path and query.",
    },
    Row {
        name: "replace-uri",
        sets: sets::REQUEST,
        parse: |w| replace(w, UriPart::Whole),
        doc: "Replaces in the target.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) enum UriEdit {
    Method(Format),
    Set(UriPart, Format),
    Replace { part: UriPart, regex: Regex, with: Format },
}

/// What of the target is changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum UriPart {
    Path,
    PathAndQuery,
    Query,
    Whole,
}

fn set_method(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    Ok(Action::Uri(UriEdit::Method(words.line("a method")?)))
}

fn set(words: &mut RuleArguments<'_, '_>, part: UriPart) -> Result<Action, LocatedError> {
    Ok(Action::Uri(UriEdit::Set(part, words.line("the new value")?)))
}

fn replace(words: &mut RuleArguments<'_, '_>, part: UriPart) -> Result<Action, LocatedError> {
    let pattern = words.take("a regular expression")?;
    let regex = substitute::regex(pattern, false).map_err(|fault| words.blame(fault))?;
    Ok(Action::Uri(UriEdit::Replace { part, regex, with: words.line("the new value")? }))
}

impl UriEdit {
    pub fn run(&self, cx: &mut Context<'_>) -> Result<(), InvalidRewrite> {
        match self {
            UriEdit::Method(format) => with_text(format, cx, |cx, text| match &mut cx.request {
                Some(request) => set_request_method(request, text),
                None => Ok(()),
            }),
            UriEdit::Set(part, format) => with_text(format, cx, |cx, text| match &mut cx.request {
                Some(request) => change_part(request, *part, text),
                None => Ok(()),
            }),
            UriEdit::Replace { part, regex, with } => with_text(with, cx, |cx, text| {
                let Some(request) = &mut cx.request else {
                    return Ok(());
                };
                let target = request.head.view().target();
                let (start, end) = range(request, *part);
                let Some(captures) = regex.captures(&target[start..end]) else {
                    return Ok(());
                };
                // The whole part is replaced, not only what the expression matched: `/(.)` with `/\1\1` makes `/aa`
                // of `/a/b`, as in HAProxy 2.6.
                let mut new = Vec::new();
                Template::new(text).write(&captures, &mut new);
                change_part(request, *part, &new)
            }),
        }
    }
}

/// A method is a token, and CONNECT has a target of its own form.
fn set_request_method(request: &mut Request<'_>, text: &[u8]) -> Result<(), InvalidRewrite> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_authority = request.head.view().form() == TargetForm::Authority;
    if text.is_empty() || !text.iter().all(is_token) || (text == b"CONNECT") != is_authority {
        return Err(InvalidRewrite);
    }
    request.head.set_method(text);
    Ok(())
}

/// The part as it is.
pub(super) fn part_of<'r>(request: &'r Request<'_>, part: UriPart) -> &'r [u8] {
    let (start, end) = range(request, part);
    &request.head.view().target()[start..end]
}

/// Where the part stands in the target.
fn range(request: &Request<'_>, part: UriPart) -> (usize, usize) {
    let target = request.head.view().target();
    let both = request.head.view().path_and_query();
    let start = match both.is_empty() && !target.is_empty() {
        // `*`, an authority, or `http://host`: the path is the whole target, or stands at its end.
        true if memchr::memmem::find(target, b"://").is_some() => target.len(),
        true => 0,
        false => target.len() - both.len(),
    };
    let path_end = memchr::memchr(b'?', &target[start..]).map_or(target.len(), |mark| start + mark);
    match part {
        UriPart::Path => (start, path_end),
        UriPart::PathAndQuery => (start, target.len()),
        UriPart::Query => ((path_end + 1).min(target.len()), target.len()),
        UriPart::Whole => (0, target.len()),
    }
}

/// Gives the part another text.
pub(super) fn change_part(request: &mut Request<'_>, part: UriPart, text: &[u8]) -> Result<(), InvalidRewrite> {
    let target = request.head.view().target();
    let (start, end) = range(request, part);
    let mut new = Vec::with_capacity(target.len() + text.len() + 1);
    new.extend_from_slice(&target[..start]);
    match (part, text) {
        (UriPart::Path, []) | (UriPart::PathAndQuery, [] | [b'?', ..]) => new.push(b'/'),
        // What does not begin with a slash would go on what stands before it, the host at worst.
        (UriPart::Path | UriPart::PathAndQuery, [first, ..]) if *first != b'/' => return Err(InvalidRewrite),
        (UriPart::Query, _) if memchr::memchr(b'?', target).is_none() => new.push(b'?'),
        _ => {}
    }
    for &byte in text {
        match byte {
            0x80.. => _ = write!(new, "%{byte:02X}"),
            _ => new.push(byte),
        }
    }
    new.extend_from_slice(&target[end..]);
    if !request.head.set_target(&new) {
        return Err(InvalidRewrite);
    }
    if part != UriPart::Whole {
        return Ok(());
    }
    // A new authority is the new host too (RFC 9112 3.2.2).
    let authority = request.head.view().authority().to_vec();
    let host = match memchr::memrchr(b'@', &authority) {
        Some(at) => &authority[at + 1..],
        None => &authority[..],
    };
    let index = request.head.view().fields().known(Name::Host).map(|field| field.index);
    if let Some(index) = index
        && !host.is_empty()
    {
        request.head.fields().replace_value(index, host);
    }
    Ok(())
}
