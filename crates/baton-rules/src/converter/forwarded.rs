//! The header field Forwarded (RFC 7239), and the nodes in it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::sample::{Sample, Type, cut};

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "rfc7239_is_valid",
        Type::Str,
        Type::Bool,
        is_valid,
        "Whether the text is a valid value of Forwarded.",
    ),
    Converter::new(
        "rfc7239_field",
        Type::Str,
        Type::Str,
        field,
        "The first value of a parameter of a Forwarded value.",
    )
    .args(&[Arg::req(ArgKind::Word(&["proto", "host", "for", "by"]))]),
    Converter::new(
        "rfc7239_n2nn",
        Type::Str,
        Type::Any,
        node_name,
        "The name of a node of Forwarded: an address, or a text.",
    ),
    Converter::new(
        "rfc7239_n2np",
        Type::Str,
        Type::Any,
        node_port,
        "The port of a node of Forwarded: a number, or a text.",
    ),
];

/// A parameter and where its value is in the text, without quotes.
struct Parameter<'t> {
    name: &'t [u8],
    start: usize,
    end: usize,
}

/// All parameters; nothing when the text is not a valid value of Forwarded.
fn parse(text: &[u8]) -> Option<Vec<Parameter<'_>>> {
    let mut found: Vec<Parameter<'_>> = Vec::new();
    let blanks = |at: usize| text[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let token = |at: usize| text[at..].iter().take_while(|byte| is_token(**byte)).count();
    let mut at = blanks(0);
    // Where the parameters of the present element begin.
    let mut element = 0;
    loop {
        let name = &text[at..at + token(at)];
        let repeated = found[element..].iter().any(|known| known.name.eq_ignore_ascii_case(name));
        if name.is_empty() || repeated || text.get(at + name.len()) != Some(&b'=') {
            return None;
        }
        at += name.len() + 1;
        let (start, end) = match text.get(at) {
            Some(b'"') => (at + 1, at + 1 + memchr::memchr(b'"', &text[at + 1..])?),
            _ => (at, at + token(at)),
        };
        if !valid_value(name, &text[start..end]) {
            return None;
        }
        at = if text.get(at) == Some(&b'"') { end + 1 } else { end };
        found.push(Parameter { name, start, end });
        at += blanks(at);
        match text.get(at) {
            None => return Some(found),
            Some(b';') => {}
            Some(b',') => element = found.len(),
            Some(_) => return None,
        }
        at += 1;
        at += blanks(at);
    }
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn valid_value(name: &[u8], value: &[u8]) -> bool {
    match &*name.to_ascii_lowercase() {
        b"for" | b"by" => node(value).is_some(),
        b"proto" => !value.is_empty() && value.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(byte)),
        b"host" => is_forwarded_host(value),
        _ => false,
    }
}

/// Whether a text can be the value of the parameter `host`.
pub(crate) fn is_forwarded_host(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token(*byte) || b":[]".contains(byte))
}

/// The name and the port of a node (RFC 7239 6), brackets left out.
fn node(text: &[u8]) -> Option<(&[u8], Option<&[u8]>)> {
    let (name, rest) = match text.strip_prefix(b"[") {
        Some(inner) => {
            let end = memchr::memchr(b']', inner)?;
            let address = &inner[..end];
            std::str::from_utf8(address).ok()?.parse::<Ipv6Addr>().ok()?;
            (address, &inner[end + 1..])
        }
        None => {
            let (name, rest) = text.split_at(memchr::memchr(b':', text).unwrap_or(text.len()));
            let is_address = || std::str::from_utf8(name).is_ok_and(|name| name.parse::<Ipv4Addr>().is_ok());
            if name != b"unknown" && !is_obfuscated(name) && !is_address() {
                return None;
            }
            (name, rest)
        }
    };
    match rest {
        [] => Some((name, None)),
        [b':', port @ ..] => {
            let number = std::str::from_utf8(port).is_ok_and(|port| port.parse::<u16>().is_ok());
            (number || is_obfuscated(port)).then_some((name, Some(port)))
        }
        _ => None,
    }
}

/// Whether a text is an identifier of RFC 7239 6.3.
pub(crate) fn is_obfuscated(text: &[u8]) -> bool {
    text.starts_with(b"_")
        && text.len() > 1
        && text.iter().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(byte))
}

fn is_valid<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::Bool(parse(&sample.into_text()).is_some()))
}

fn field<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let parameters = parse(&text)?;
    let found = parameters.iter().find(|known| known.name.eq_ignore_ascii_case(args[0].bytes()))?;
    let (start, end) = (found.start, found.end);
    Some(Sample::Str(cut(text, start, end)))
}

fn node_name<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let (name, _) = node(&text)?;
    Some(match std::str::from_utf8(name).ok().and_then(|name| name.parse().ok()) {
        Some(address) => Sample::Ip(address),
        None => Sample::Str(name.to_vec().into()),
    })
}

fn node_port<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let port = node(&text)?.1?;
    Some(match std::str::from_utf8(port).ok().and_then(|port| port.parse().ok()) {
        Some(number) => Sample::Int(number),
        None => Sample::Str(port.to_vec().into()),
    })
}
