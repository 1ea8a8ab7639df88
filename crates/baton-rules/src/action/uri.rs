//! Actions on the request line: method, target and their parts.
//!
//! A result that could not be sent as a request line ends the request with 500, as HAProxy 2.6 ends one whose rewrite does not fit
//! its buffer: the server must not get what a rule was to change. HAProxy sends `GET /a b HTTP/1.1`. Bytes beyond ASCII, which
//! `url_dec` brings about, are sent as `%XX`, and an empty path is `/` (RFC 3986 6.2.3).

use std::io::Write;

use baton_http::{Name, TargetForm};
use regex::bytes::Regex;

use super::{Action, Row, Unfit, Words, sets, with_text};
use crate::context::{Context, Request};
use crate::format::Format;
use crate::problem::Located;
use crate::substitute::{self, Template};

pub(super) const ROWS: &[Row] = &[
    Row { name: "set-method", sets: sets::REQUEST, parse: set_method, doc: "Changes the method." },
    Row {
        name: "set-path",
        sets: sets::REQUEST,
        parse: |w| set(w, Part::Path),
        doc: "Changes the path, not the query.",
    },
    Row {
        name: "set-pathq",
        sets: sets::REQUEST,
        parse: |w| set(w, Part::PathAndQuery),
        doc: "Changes path and query.",
    },
    Row { name: "set-query", sets: sets::REQUEST, parse: |w| set(w, Part::Query), doc: "Changes the query." },
    Row { name: "set-uri", sets: sets::REQUEST, parse: |w| set(w, Part::Whole), doc: "Changes the whole target." },
    Row { name: "replace-path", sets: sets::REQUEST, parse: |w| replace(w, Part::Path), doc: "Replaces in the path." },
    Row {
        name: "replace-pathq",
        sets: sets::REQUEST,
        parse: |w| replace(w, Part::PathAndQuery),
        doc: "Replaces in path and query.",
    },
    Row {
        name: "replace-uri",
        sets: sets::REQUEST,
        parse: |w| replace(w, Part::Whole),
        doc: "Replaces in the target.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Method(Format),
    Set(Part, Format),
    Replace { part: Part, regex: Regex, with: Format },
}

/// What of the target is changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Part {
    Path,
    PathAndQuery,
    Query,
    Whole,
}

fn set_method(words: &mut Words<'_, '_>) -> Result<Action, Located> {
    Ok(Action::Uri(Edit::Method(words.line("a method")?)))
}

fn set(words: &mut Words<'_, '_>, part: Part) -> Result<Action, Located> {
    Ok(Action::Uri(Edit::Set(part, words.line("the new value")?)))
}

fn replace(words: &mut Words<'_, '_>, part: Part) -> Result<Action, Located> {
    let pattern = words.take("a regular expression")?;
    let regex = substitute::regex(pattern, false).map_err(|fault| words.blame(fault))?;
    Ok(Action::Uri(Edit::Replace { part, regex, with: words.line("the new value")? }))
}

impl Edit {
    pub fn run(&self, cx: &mut Context<'_>) -> Result<(), Unfit> {
        match self {
            Edit::Method(format) => with_text(format, cx, |cx, text| match &mut cx.request {
                Some(request) => set_request_method(request, text),
                None => Ok(()),
            }),
            Edit::Set(part, format) => with_text(format, cx, |cx, text| match &mut cx.request {
                Some(request) => change(request, *part, text),
                None => Ok(()),
            }),
            Edit::Replace { part, regex, with } => with_text(with, cx, |cx, text| {
                let Some(request) = &mut cx.request else {
                    return Ok(());
                };
                let target = request.head.target(request.buf);
                let (start, end) = range(request, *part);
                let Some(captures) = regex.captures(&target[start..end]) else {
                    return Ok(());
                };
                // The whole part is replaced, not only what the expression matched: `/(.)` with `/\1\1` makes `/aa`
                // of `/a/b`, as in HAProxy 2.6.
                let mut new = Vec::new();
                Template::new(text).write(&captures, &mut new);
                change(request, *part, &new)
            }),
        }
    }
}

/// A method is a token, and CONNECT has a target of its own form.
fn set_request_method(request: &mut Request<'_>, text: &[u8]) -> Result<(), Unfit> {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    let is_authority = request.head.form() == TargetForm::Authority;
    if text.is_empty() || !text.iter().all(is_token) || (text == b"CONNECT") != is_authority {
        return Err(Unfit);
    }
    request.head.set_method(text);
    Ok(())
}

/// Where the part stands in the target.
fn range(request: &Request<'_>, part: Part) -> (usize, usize) {
    let target = request.head.target(request.buf);
    let both = request.head.path_and_query(request.buf);
    let start = match both.is_empty() && !target.is_empty() {
        // `*`, an authority, or `http://host`: the path is the whole target, or stands at its end.
        true if memchr::memmem::find(target, b"://").is_some() => target.len(),
        true => 0,
        false => target.len() - both.len(),
    };
    let path_end = memchr::memchr(b'?', &target[start..]).map_or(target.len(), |mark| start + mark);
    match part {
        Part::Path => (start, path_end),
        Part::PathAndQuery => (start, target.len()),
        Part::Query => ((path_end + 1).min(target.len()), target.len()),
        Part::Whole => (0, target.len()),
    }
}

fn change(request: &mut Request<'_>, part: Part, text: &[u8]) -> Result<(), Unfit> {
    let target = request.head.target(request.buf);
    let (start, end) = range(request, part);
    let mut new = Vec::with_capacity(target.len() + text.len() + 1);
    new.extend_from_slice(&target[..start]);
    match (part, text) {
        (Part::Path, []) | (Part::PathAndQuery, [] | [b'?', ..]) => new.push(b'/'),
        // What does not begin with a slash would go on what stands before it, the host at worst.
        (Part::Path | Part::PathAndQuery, [first, ..]) if *first != b'/' => return Err(Unfit),
        (Part::Query, _) if memchr::memchr(b'?', target).is_none() => new.push(b'?'),
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
        return Err(Unfit);
    }
    if part != Part::Whole {
        return Ok(());
    }
    // A new authority is the new host too (RFC 9112 3.2.2).
    let authority = request.head.authority(request.buf).to_vec();
    let host = match memchr::memrchr(b'@', &authority) {
        Some(at) => &authority[at + 1..],
        None => &authority[..],
    };
    let index = request.head.headers.known(request.buf, Name::Host).map(|field| field.index);
    if let Some(index) = index
        && !host.is_empty()
    {
        request.head.headers.replace_value(index, host);
    }
    Ok(())
}
