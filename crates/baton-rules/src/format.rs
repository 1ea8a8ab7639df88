//! Log-format strings as actions use them: text, `%[expression]` and `%x` variables (configuration manual 8.2.6).
//!
//! The variables that need timing, counters or captures are the log's and not done here yet.

use std::io::Write;
use std::net::SocketAddr;

use crate::context::{Context, Request};
use crate::converter::hex_pair;
use crate::expr::Expr;
use crate::nearest::nearest;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::RuleError;

/// A compiled format.
#[derive(Clone, Debug)]
pub struct Format {
    pieces: Vec<FormatPiece>,
}

#[derive(Clone, Debug)]
enum FormatPiece {
    Text(Box<[u8]>),
    Expr(Expr),
    Variable { variable: Variable, quote: bool, hex: bool },
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Variable {
    ClientIp,
    ClientPort,
    FrontendIp,
    FrontendPort,
    Backend,
    Frontend,
    FrontendTransport,
    Hostname,
    Method,
    Uri,
    UriWithoutQuery,
    Path,
    Query,
    Version,
    Server,
    Status,
    RequestLine,
    TlsCipher,
    TlsVersion,
}

const VARIABLES: &[(&str, Variable)] = &[
    ("ci", Variable::ClientIp),
    ("cp", Variable::ClientPort),
    ("fi", Variable::FrontendIp),
    ("fp", Variable::FrontendPort),
    ("b", Variable::Backend),
    ("f", Variable::Frontend),
    ("ft", Variable::FrontendTransport),
    ("H", Variable::Hostname),
    ("HM", Variable::Method),
    ("HU", Variable::Uri),
    ("HP", Variable::UriWithoutQuery),
    ("HPO", Variable::Path),
    ("HQ", Variable::Query),
    ("HV", Variable::Version),
    ("s", Variable::Server),
    ("ST", Variable::Status),
    ("r", Variable::RequestLine),
    ("sslc", Variable::TlsCipher),
    ("sslv", Variable::TlsVersion),
];

/// Known to HAProxy 2.6, not here yet.
const LATER: &[&str] = &[
    "B", "CC", "CS", "ID", "T", "Ta", "Tc", "Td", "Tl", "Th", "Ti", "Tq", "TR", "Tr", "Ts", "Tt", "Tu", "Tw", "U",
    "ac", "bc", "bi", "bp", "bq", "fc", "lc", "hr", "hrl", "hs", "hsl", "ms", "pid", "rc", "rt", "sc", "si", "sp",
    "sq", "t", "tr", "trg", "trl", "ts", "tsc",
];

impl Format {
    /// Compiles a format for a rule at `place`.
    pub fn compile(text: &str, place: RulePosition, files: &dyn Files) -> Result<Format, RuleError> {
        match text.bytes().find(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            Some(byte) => Err(RuleError::new(format!("the byte 0x{byte:02x} is not allowed in a message head"))),
            None => Format::compile_lines(text, place, files),
        }
    }

    /// Compiles the format of a body, which may have several lines.
    pub(crate) fn compile_lines(text: &str, place: RulePosition, files: &dyn Files) -> Result<Format, RuleError> {
        let mut format = Format { pieces: Vec::new() };
        let mut plain = Vec::new();
        let mut rest = text;
        let (mut quote_all, mut hex_all) = (false, false);
        while let Some(at) = rest.find('%') {
            plain.extend_from_slice(&rest.as_bytes()[..at]);
            rest = &rest[at + 1..];
            if let Some(after) = rest.strip_prefix('%') {
                plain.push(b'%');
                rest = after;
                continue;
            }
            let (mut quote, mut hex) = (quote_all, hex_all);
            if let Some(flags) = rest.strip_prefix('{') {
                let Some((flags, after)) = flags.split_once('}') else {
                    return Err(RuleError::new("a closing '}' is missing after '%{'"));
                };
                read_flags(flags, &mut quote, &mut hex)?;
                rest = after;
            }
            if let Some(inner) = rest.strip_prefix('[') {
                let end = expression_end(inner)?;
                format.text(&mut plain);
                format.pieces.push(FormatPiece::Expr(Expr::compile(&inner[..end], place, files)?));
                rest = &inner[end + 1..];
                continue;
            }
            let end = rest.find(|char: char| !char.is_ascii_alphabetic()).unwrap_or(rest.len());
            let (name, after) = rest.split_at(end);
            rest = after;
            if name == "o" {
                (quote_all, hex_all) = (quote, hex);
                continue;
            }
            let variable = find_variable(name)?;
            format.text(&mut plain);
            format.pieces.push(match variable {
                Variable::Hostname => FormatPiece::Text(files.hostname().into_bytes().into()),
                _ => FormatPiece::Variable { variable, quote, hex },
            });
        }
        plain.extend_from_slice(rest.as_bytes());
        format.text(&mut plain);
        Ok(format)
    }

    /// Bytes that stay as they are.
    pub(crate) fn verbatim(bytes: &[u8]) -> Format {
        Format { pieces: vec![FormatPiece::Text(bytes.into())] }
    }

    fn text(&mut self, plain: &mut Vec<u8>) {
        if !plain.is_empty() {
            self.pieces.push(FormatPiece::Text(std::mem::take(plain).into()));
        }
    }

    /// The text, if the format has no variable part.
    pub fn constant(&self) -> Option<&[u8]> {
        match &self.pieces[..] {
            [] => Some(&[]),
            [FormatPiece::Text(text)] => Some(text),
            _ => None,
        }
    }

    /// The parts that stand as they are.
    pub fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().filter_map(|piece| match piece {
            FormatPiece::Text(text) => Some(&text[..]),
            FormatPiece::Expr(_) | FormatPiece::Variable { .. } => None,
        })
    }

    /// Appends the format's value. Control characters but tabs become `%XX`, as in HAProxy 2.6, so that no value can
    /// end a header line.
    pub fn write(&self, cx: &Context<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            let start = out.len();
            match piece {
                FormatPiece::Text(text) => {
                    out.extend_from_slice(text);
                    continue;
                }
                FormatPiece::Expr(expr) => {
                    if let Some(sample) = expr.eval(cx) {
                        sample.write(out);
                    }
                }
                FormatPiece::Variable { variable, quote, hex } => {
                    if *quote && !variable.is_number() {
                        out.push(b'"');
                    }
                    variable.write(cx, *hex, out);
                    if *quote && !variable.is_number() {
                        out.push(b'"');
                    }
                }
            }
            encode_controls(out, start);
        }
    }
}

fn find_variable(name: &str) -> Result<Variable, RuleError> {
    if let Some((_, variable)) = VARIABLES.iter().find(|(known, _)| *known == name) {
        return Ok(*variable);
    }
    if name.is_empty() {
        return Err(RuleError::new("a name or '[' is missing after '%'").hint("write '%%' for a percent sign"));
    }
    if LATER.contains(&name) {
        return Err(RuleError::new(format!("the log-format variable '%{name}' is not supported here yet")));
    }
    let fault = RuleError::new(format!("unknown log-format variable '%{name}'"));
    Err(match nearest(name, VARIABLES.iter().map(|(known, _)| *known).filter(|known| known.len() > 1)) {
        Some(near) if name.len() > 1 => fault.hint(format!("did you mean '%{near}'? A percent sign is written '%%'")),
        _ => fault.hint("write '%%' for a percent sign"),
    })
}

fn read_flags(flags: &str, quote: &mut bool, hex: &mut bool) -> Result<(), RuleError> {
    for flag in flags.split(',') {
        match flag {
            "+Q" => *quote = true,
            "-Q" => *quote = false,
            "+X" => *hex = true,
            "-X" => *hex = false,
            "+E" | "-E" => {}
            _ => {
                return Err(RuleError::new(format!("unknown flag '{flag}' in '%{{{flags}}}'"))
                    .hint("use +Q, -Q, +X, -X, +E or -E")
                    .suggest(flag, ["+Q", "-Q", "+X", "-X", "+E", "-E"]));
            }
        }
    }
    Ok(())
}

/// Where the `]` of `%[…]` stands: quotes inside of parentheses protect it.
fn expression_end(text: &str) -> Result<usize, RuleError> {
    let mut quote = None;
    let mut depth = 0usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match (byte, quote) {
            (b']', None) if depth == 0 => return Ok(at),
            (b'(', None) => depth += 1,
            (b')', None) => depth = depth.saturating_sub(1),
            (b'"' | b'\'', None) if depth > 0 => quote = Some(byte),
            (b'\\', None | Some(b'"')) => _ = bytes.next(),
            (_, Some(open)) if byte == open => quote = None,
            _ => {}
        }
    }
    Err(RuleError::new(format!("a closing ']' is missing after '%[{text}'")))
}

/// Replaces control characters from `start` on.
fn encode_controls(out: &mut Vec<u8>, start: usize) {
    let control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
    if !out[start..].iter().any(control) {
        return;
    }
    let raw = out.split_off(start);
    for byte in raw {
        if control(&byte) {
            out.push(b'%');
            out.extend_from_slice(&hex_pair(byte));
        } else {
            out.push(byte);
        }
    }
}

impl Variable {
    /// Numbers are not quoted.
    fn is_number(self) -> bool {
        matches!(self, Variable::ClientPort | Variable::FrontendPort | Variable::Status)
    }

    fn write(self, cx: &Context<'_>, hex: bool, out: &mut Vec<u8>) {
        let received = cx.request.as_ref().map(Request::received);
        match self {
            Variable::ClientIp => write_ip(cx.client, hex, out),
            Variable::ClientPort => write_port(cx.client, hex, out),
            Variable::FrontendIp => write_ip((cx.destination)(), hex, out),
            Variable::FrontendPort => write_port((cx.destination)(), hex, out),
            Variable::Backend => out.extend_from_slice(cx.backend.unwrap_or(cx.frontend).name.as_bytes()),
            Variable::Frontend => out.extend_from_slice(cx.frontend.name.as_bytes()),
            Variable::FrontendTransport => {
                out.extend_from_slice(cx.frontend.name.as_bytes());
                if cx.client_tls.is_some() {
                    out.push(b'~');
                }
            }
            Variable::Hostname => {}
            Variable::Method => out.extend_from_slice(received.map_or(BAD_REQUEST, |line| line.method)),
            Variable::Uri => out.extend_from_slice(received.map_or(BAD_REQUEST, |line| line.target)),
            Variable::UriWithoutQuery => {
                out.extend_from_slice(before_query(received.map_or(BAD_REQUEST, |line| line.target)));
            }
            Variable::Path => out.extend_from_slice(received.map_or(BAD_REQUEST, |line| path_of(line.target))),
            Variable::Query => {
                let target = received.map_or(&b""[..], |line| line.target);
                out.extend_from_slice(&target[before_query(target).len()..]);
            }
            Variable::Version => out.extend_from_slice(received.map_or(BAD_REQUEST, |line| line.version)),
            Variable::Server => out.extend_from_slice(cx.server.unwrap_or("<NOSRV>").as_bytes()),
            Variable::Status => match &cx.response {
                Some(response) => _ = write!(out, "{}", response.head.view().status()),
                None => match cx.own_status {
                    Some(status) => _ = write!(out, "{status}"),
                    None => out.extend_from_slice(b"-1"),
                },
            },
            Variable::RequestLine => out.extend_from_slice(received.map_or(BAD_REQUEST, |line| line.whole)),
            // Nothing without TLS, as in HAProxy.
            Variable::TlsCipher => {
                let suite = cx.client_tls.and_then(|facts| facts.suite);
                let name = suite.and_then(|suite| baton_tls::names::cipher_name(suite.suite()));
                out.extend_from_slice(name.unwrap_or_default().as_bytes());
            }
            Variable::TlsVersion => {
                let version = cx.client_tls.and_then(|facts| facts.version);
                out.extend_from_slice(version.map_or("", baton_tls::names::version_name).as_bytes());
            }
        }
    }
}

/// What stands for a request line that could not be read.
const BAD_REQUEST: &[u8] = b"<BADREQ>";

fn before_query(target: &[u8]) -> &[u8] {
    &target[..memchr::memchr(b'?', target).unwrap_or(target.len())]
}

fn path_of(target: &[u8]) -> &[u8] {
    let target = before_query(target);
    match memchr::memmem::find(target, b"://") {
        Some(at) => memchr::memchr(b'/', &target[at + 3..]).map_or(b"/", |slash| &target[at + 3 + slash..]),
        None => target,
    }
}

fn write_ip(address: Option<SocketAddr>, hex: bool, out: &mut Vec<u8>) {
    let _ = match address {
        None => write!(out, "unix"),
        Some(SocketAddr::V4(address)) if hex => write!(out, "{:08X}", u32::from(*address.ip())),
        Some(address) => write!(out, "{}", address.ip()),
    };
}

fn write_port(address: Option<SocketAddr>, hex: bool, out: &mut Vec<u8>) {
    let port = address.map_or(0, |address| address.port());
    let _ = if hex { write!(out, "{port:04X}") } else { write!(out, "{port}") };
}
