//! `option forwarded`: what the header field Forwarded says about a request (RFC 7239), as HAProxy 2.8 and newer write it.
//!
//! A value of an expression that cannot stand in the field is not sent: the name of a node becomes `unknown`, a port or a host is left
//! out. So no byte of a client can add a parameter or an element.

use std::io::Write;
use std::net::{IpAddr, SocketAddr};

use crate::context::Context;
use crate::converter::{is_forwarded_host, is_obfuscated};
use crate::expr::Expr;
use crate::nearest::suggestion;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleError};
use crate::sample::Sample;

/// The parameters that a request gets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Forwarded {
    proto: bool,
    host: Option<ParameterSource>,
    by: Node,
    for_: Node,
}

/// `by` and `by_port`, or `for` and `for_port`.
#[derive(Clone, Debug, Default)]
struct Node {
    name: Option<ParameterSource>,
    port: Option<ParameterSource>,
}

/// Where a value comes from.
#[derive(Clone, Debug)]
enum ParameterSource {
    /// The connection or the request.
    Own,
    /// An expression.
    Expr(Box<Expr>),
}

const WORDS: [&str; 11] = [
    "proto",
    "host",
    "host-expr",
    "by",
    "by-expr",
    "by_port",
    "by_port-expr",
    "for",
    "for-expr",
    "for_port",
    "for_port-expr",
];

impl Forwarded {
    /// Compiles the arguments of the option. Without any, they are `proto for`.
    pub fn compile(words: &[String], files: &dyn Files) -> Result<Forwarded, LocatedError> {
        let mut option = Forwarded::default();
        if words.is_empty() {
            option.proto = true;
            option.for_.name = Some(ParameterSource::Own);
        }
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let name = word.strip_suffix("-expr").unwrap_or(word);
            let field = match name {
                "proto" if name == word => {
                    option.proto = true;
                    at += 1;
                    continue;
                }
                "host" => &mut option.host,
                "by" => &mut option.by.name,
                "by_port" => &mut option.by.port,
                "for" => &mut option.for_.name,
                "for_port" => &mut option.for_.port,
                _ => {
                    let message = format!("'option forwarded' has no parameter '{word}'");
                    return Err(RuleError { hint: suggestion(word, WORDS), ..RuleError::new(message) }.at(at));
                }
            };
            if name == word {
                *field = Some(ParameterSource::Own);
                at += 1;
                continue;
            }
            let missing = || RuleError::new(format!("'{word}' expects an expression")).at(at);
            let text = words.get(at + 1).ok_or_else(missing)?;
            let expr = Expr::compile(text, RulePosition::BackendRequest, files).map_err(|error| error.at(at + 1))?;
            *field = Some(ParameterSource::Expr(Box::new(expr)));
            at += 2;
        }
        Ok(option)
    }

    /// The value of the field for a request; empty if there is nothing to say.
    pub fn value(&self, cx: &Context<'_>) -> Vec<u8> {
        let mut value = Vec::new();
        if self.proto {
            let secure = cx.client_tls.is_some();
            value.extend_from_slice(if secure { b"proto=https" } else { b"proto=http" });
        }
        if let Some(host) = &self.host {
            self::host(host, cx, &mut value);
        }
        self.by.write(b"by", (cx.destination)(), cx, &mut value);
        self.for_.write(b"for", cx.client, cx, &mut value);
        value
    }
}

fn host(source: &ParameterSource, cx: &Context<'_>, value: &mut Vec<u8>) {
    let own = || cx.request.as_ref().and_then(|request| request.head.view().host()).map(Sample::str);
    let host = match source {
        ParameterSource::Own => own(),
        ParameterSource::Expr(expr) => expr.eval(cx),
    };
    if let Some(host) = host.map(Sample::into_text).filter(|host| is_forwarded_host(host)) {
        begin(b"host", value);
        value.push(b'"');
        value.extend_from_slice(&host);
        value.push(b'"');
    }
}

impl Node {
    fn write(&self, parameter: &[u8], own: Option<SocketAddr>, cx: &Context<'_>, value: &mut Vec<u8>) {
        if self.name.is_none() && self.port.is_none() {
            return;
        }
        let name = match &self.name {
            None => None,
            Some(ParameterSource::Own) => own.map(|own| address(own.ip())),
            Some(ParameterSource::Expr(expr)) => expr.eval(cx).and_then(node_name),
        };
        let port = match &self.port {
            None => None,
            Some(ParameterSource::Own) => own.map(|own| own.port().to_string().into_bytes()),
            Some(ParameterSource::Expr(expr)) => expr.eval(cx).and_then(node_port),
        };
        let name = name.unwrap_or_else(|| b"unknown".to_vec());
        // Brackets and colons are no characters of a token.
        let is_quoted = port.is_some() || name.starts_with(b"[");
        begin(parameter, value);
        value.extend(is_quoted.then_some(b'"'));
        value.extend_from_slice(&name);
        if let Some(port) = port {
            value.push(b':');
            value.extend_from_slice(&port);
        }
        value.extend(is_quoted.then_some(b'"'));
    }
}

fn begin(parameter: &[u8], value: &mut Vec<u8>) {
    if !value.is_empty() {
        value.push(b';');
    }
    value.extend_from_slice(parameter);
    value.push(b'=');
}

fn address(ip: IpAddr) -> Vec<u8> {
    let mut text = Vec::new();
    // A vector takes all that is written.
    let _ = match ip {
        IpAddr::V4(ip) => write!(text, "{ip}"),
        IpAddr::V6(ip) => write!(text, "[{ip}]"),
    };
    text
}

/// An address, `unknown`, or an identifier, which begins with `_`.
fn node_name(sample: Sample<'_>) -> Option<Vec<u8>> {
    if let Sample::Ip(ip) = sample {
        return Some(address(ip));
    }
    let text = sample.into_text();
    let parsed = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    match parsed {
        Some(ip) => Some(address(ip)),
        None if *text == *b"unknown" => Some(text.into_owned()),
        None => identifier(&text),
    }
}

/// A number, or an identifier.
fn node_port(sample: Sample<'_>) -> Option<Vec<u8>> {
    let text = sample.into_text();
    let is_number = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    match is_number {
        true => std::str::from_utf8(&text).ok()?.parse::<u16>().ok().map(|port| port.to_string().into_bytes()),
        false => identifier(&text),
    }
}

fn identifier(text: &[u8]) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(text.len() + 1);
    if !text.starts_with(b"_") {
        name.push(b'_');
    }
    name.extend_from_slice(text);
    is_obfuscated(&name).then_some(name)
}
