//! Actions on the request line: method, target and their parts.
//!
//! A result that could not be sent as a request target is not applied; HAProxy 2.6 would send it.

use baton_http::Name;
use regex::bytes::Regex;

use super::{Action, Row, Words, sets, with_text};
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
    Ok(Action::Uri(Edit::Method(words.format("a method")?)))
}

fn set(words: &mut Words<'_, '_>, part: Part) -> Result<Action, Located> {
    Ok(Action::Uri(Edit::Set(part, words.format("the new value")?)))
}

fn replace(words: &mut Words<'_, '_>, part: Part) -> Result<Action, Located> {
    let pattern = words.take("a regular expression")?;
    let regex = substitute::regex(pattern, false).map_err(|fault| words.blame(fault))?;
    Ok(Action::Uri(Edit::Replace { part, regex, with: words.format("the new value")? }))
}

impl Edit {
    pub fn run(&self, cx: &mut Context<'_>) {
        match self {
            Edit::Method(format) => with_text(format, cx, |cx, text| {
                let token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
                if let Some(request) = &mut cx.request
                    && !text.is_empty()
                    && text.iter().all(token)
                {
                    request.head.set_method(text);
                }
            }),
            Edit::Set(part, format) => with_text(format, cx, |cx, text| {
                if let Some(request) = &mut cx.request {
                    change(request, *part, text);
                }
            }),
            Edit::Replace { part, regex, with } => with_text(with, cx, |cx, text| {
                let Some(request) = &mut cx.request else {
                    return;
                };
                let target = request.head.target(request.buf);
                let (start, end) = range(request, *part);
                let Some(captures) = regex.captures(&target[start..end]) else {
                    return;
                };
                // The whole part is replaced, not only what the expression matched: `/(.)` with `/\1\1` makes `/aa`
                // of `/a/b`, as in HAProxy 2.6.
                let mut new = Vec::new();
                Template::new(text).write(&captures, &mut new);
                change(request, *part, &new);
            }),
        }
    }
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

fn change(request: &mut Request<'_>, part: Part, text: &[u8]) {
    let target = request.head.target(request.buf);
    let (start, end) = range(request, part);
    let mut new = Vec::with_capacity(target.len() + text.len() + 1);
    new.extend_from_slice(&target[..start]);
    if part == Part::Query && memchr::memchr(b'?', target).is_none() {
        new.push(b'?');
    }
    new.extend_from_slice(text);
    new.extend_from_slice(&target[end..]);
    if !request.head.set_target(&new) || part != Part::Whole {
        return;
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
}
