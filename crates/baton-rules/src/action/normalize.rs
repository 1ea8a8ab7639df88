//! `normalize-uri`: one kind of normalization of a target each (configuration manual 4.2, RFC 3986 6.2.2).

use super::uri::{UriPart, change_part, part_of};
use super::{Action, InvalidRewrite, Row, RuleArguments, sets};
use crate::context::Request;
use crate::problem::{LocatedError, RuleError};

pub(super) const ROWS: &[Row] =
    &[Row { name: "normalize-uri", sets: sets::REQUEST, parse, doc: "Normalizes the target in one of several ways." }];

/// Which normalization.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Normalizer {
    FragmentEncode,
    FragmentStrip,
    MergeSlashes,
    StripDot,
    StripDotdot { full: bool },
    DecodeUnreserved { strict: bool },
    ToUppercase { strict: bool },
    SortQuery,
}

/// Why a target was not normalized.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum NotNormalized {
    /// It has an invalid sequence, and `strict` says to refuse it.
    Refused,
    /// The result cannot be sent.
    Invalid,
}

fn parse(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    const NAMES: [&str; 8] = [
        "fragment-encode",
        "fragment-strip",
        "path-merge-slashes",
        "path-strip-dot",
        "path-strip-dotdot",
        "percent-decode-unreserved",
        "percent-to-uppercase",
        "query-sort-by-name",
    ];
    let name = words.take("a normalizer")?;
    let normalizer = match name {
        "fragment-encode" => Normalizer::FragmentEncode,
        "fragment-strip" => Normalizer::FragmentStrip,
        "path-merge-slashes" => Normalizer::MergeSlashes,
        "path-strip-dot" => Normalizer::StripDot,
        "path-strip-dotdot" => Normalizer::StripDotdot { full: option(words, "full")? },
        "percent-decode-unreserved" => Normalizer::DecodeUnreserved { strict: option(words, "strict")? },
        "percent-to-uppercase" => Normalizer::ToUppercase { strict: option(words, "strict")? },
        "query-sort-by-name" => Normalizer::SortQuery,
        _ => return Err(words.blame(RuleError::unknown("normalizer", name, &[], NAMES.into_iter()))),
    };
    Ok(Action::Normalize(normalizer))
}

fn option(words: &mut RuleArguments<'_, '_>, option: &str) -> Result<bool, LocatedError> {
    match words.peek() {
        None => Ok(false),
        Some(word) if word == option => {
            words.at += 1;
            Ok(true)
        }
        Some(word) => {
            let fault = RuleError::new(format!("unexpected argument '{word}'"));
            Err(fault.suggest(word, [option, "if", "unless"]).at(words.at))
        }
    }
}

impl Normalizer {
    /// Normalizes the target of a request.
    pub fn run(self, request: &mut Request<'_>) -> Result<(), NotNormalized> {
        let part = match self {
            Normalizer::MergeSlashes | Normalizer::StripDot | Normalizer::StripDotdot { .. } => UriPart::Path,
            Normalizer::FragmentEncode
            | Normalizer::FragmentStrip
            | Normalizer::DecodeUnreserved { .. }
            | Normalizer::ToUppercase { .. } => UriPart::PathAndQuery,
            Normalizer::SortQuery => UriPart::Query,
        };
        let before = part_of(request, part);
        let after = match self {
            Normalizer::FragmentEncode => encode_fragment(before),
            Normalizer::FragmentStrip => before[..memchr::memchr(b'#', before).unwrap_or(before.len())].to_vec(),
            Normalizer::MergeSlashes => merge_slashes(before),
            Normalizer::StripDot => strip_dot(before),
            Normalizer::StripDotdot { full } => strip_dotdot(before, full),
            Normalizer::DecodeUnreserved { strict } => percent(before, strict, |pair, byte, out| {
                match byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    true => out.push(byte),
                    false => out.extend_from_slice(&[b'%', pair[0], pair[1]]),
                }
            })?,
            Normalizer::ToUppercase { strict } => percent(before, strict, |pair, _, out| {
                out.extend_from_slice(&[b'%', pair[0].to_ascii_uppercase(), pair[1].to_ascii_uppercase()]);
            })?,
            Normalizer::SortQuery => sort_query(before),
        };
        if after == before {
            return Ok(());
        }
        change_part(request, part, &after).map_err(|InvalidRewrite| NotNormalized::Invalid)
    }
}

fn encode_fragment(target: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(target.len() + 2);
    for &byte in target {
        match byte {
            b'#' => out.extend_from_slice(b"%23"),
            _ => out.push(byte),
        }
    }
    out
}

fn merge_slashes(path: &[u8]) -> Vec<u8> {
    let mut out = path.to_vec();
    out.dedup_by(|next, before| *next == b'/' && *before == b'/');
    out
}

/// Drops segments that are a dot. The last one leaves its slash.
fn strip_dot(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    let mut is_first = true;
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        if segment == b"." && !is_last {
            continue;
        }
        if !is_first {
            out.push(b'/');
        }
        if segment != b"." {
            out.extend_from_slice(segment);
        }
        is_first = false;
    }
    out
}

/// Drops each segment that is followed by two dots, and them. Those that have none before them stay, unless `full`.
fn strip_dotdot(path: &[u8], full: bool) -> Vec<u8> {
    let Some(rest) = path.strip_prefix(b"/") else { return path.to_vec() };
    let mut kept: Vec<&[u8]> = Vec::new();
    // What ends in two dots is a directory.
    let mut ends_in_directory = false;
    for segment in rest.split(|byte| *byte == b'/') {
        ends_in_directory = segment == b"..";
        match (segment, kept.last()) {
            (b"..", Some(before)) if *before != b".." => _ = kept.pop(),
            (b"..", _) if full => {}
            _ => kept.push(segment),
        }
    }
    let mut out = Vec::with_capacity(path.len());
    for segment in &kept {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if ends_in_directory || out.is_empty() {
        out.push(b'/');
    }
    out
}

/// Gives each encoded byte to `take`, with its two digits; the rest stays as it is.
fn percent(
    target: &[u8],
    strict: bool,
    mut take: impl FnMut([u8; 2], u8, &mut Vec<u8>),
) -> Result<Vec<u8>, NotNormalized> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let mut out = Vec::with_capacity(target.len());
    let mut rest = target;
    while let [first, after @ ..] = rest {
        match (first, after) {
            (b'%', [high, low, after @ ..]) if digit(*high).is_some() && digit(*low).is_some() => {
                let byte = digit(*high).unwrap_or(0) * 16 + digit(*low).unwrap_or(0);
                take([*high, *low], byte as u8, &mut out);
                rest = after;
            }
            (b'%', _) if strict => return Err(NotNormalized::Refused),
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    Ok(out)
}

/// By the names of parameters; those of one name keep their order.
fn sort_query(query: &[u8]) -> Vec<u8> {
    fn name<'a>(parameter: &&'a [u8]) -> &'a [u8] {
        &parameter[..memchr::memchr(b'=', parameter).unwrap_or(parameter.len())]
    }
    let mut parameters: Vec<&[u8]> = query.split(|byte| *byte == b'&').collect();
    // As in HAProxy, nothing follows the last `&`.
    if parameters.len() > 1 && parameters.last().is_some_and(|last| last.is_empty()) {
        parameters.pop();
    }
    parameters.sort_by(|one, other| name(one).cmp(name(other)));
    parameters.join(&b'&')
}
