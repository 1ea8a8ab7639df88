//! Fetches from the bytes of a connection in `mode tcp` (configuration manual 7.3.5): blocks of them, cookies of RDP, messages of
//! distcc, and the hello of a TLS server. While more bytes may come they wait for what they need. Facts about HAProxy 2.6 were found
//! by trying it.

use std::net::SocketAddrV4;

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

/// An offset and a length.
const BLOCK: &[Arg] = &[Arg::req(ArgKind::Int), Arg::req(ArgKind::Int)];
/// Where the length is, how many bytes it has, and where the block begins.
const LENGTH_VALUE: &[Arg] = &[Arg::req(ArgKind::Int), Arg::req(ArgKind::Int), Arg::opt(ArgKind::Str)];
const NAME: &[Arg] = &[Arg::opt(ArgKind::Str)];
/// A token and its occurrence.
const TOKEN: &[Arg] = &[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Int)];
/// TPKT and the connection request of X.224, which stand before the cookie in the first message of RDP.
const RDP_HEADER: usize = 11;
/// A token and its parameter in hexadecimal digits.
const DISTCC_HEADER: usize = 12;
/// Tokens of distcc that nothing but the parameter belongs to.
const DISTCC_BARE: [&[u8]; 5] = [b"DIST", b"ARGC", b"NFIL", b"DONE", b"STAT"];

#[rustfmt::skip]
pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["req.payload"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, args| block(cx, sent(cx), args),
        "Bytes that the client sent: offset and length, 0 for all that are there.").args(BLOCK).check(block_args),
    Fetch::new(&["res.payload"], Type::Bin, FetchNeeds::RESPONSE, |cx, args| block(cx, cx.answer, args),
        "Bytes that the server sent: offset and length, 0 for all that are there.").args(BLOCK).check(block_args),
    Fetch::new(&["payload"], Type::Bin, FetchNeeds::NOTHING, |cx, args| block(cx, either(cx), args),
        "req.payload, or res.payload in rules about responses.").args(BLOCK).check(block_args),
    Fetch::new(&["req.payload_lv"], Type::Bin, FetchNeeds::REQUEST_HEAD, |cx, args| length_value(cx, sent(cx), args),
        "Bytes that the client sent, as many as the number says that stands before them.")
        .args(LENGTH_VALUE).check(length_value_args),
    Fetch::new(&["res.payload_lv"], Type::Bin, FetchNeeds::RESPONSE, |cx, args| length_value(cx, cx.answer, args),
        "Bytes that the server sent, as many as the number says that stands before them.")
        .args(LENGTH_VALUE).check(length_value_args),
    Fetch::new(&["payload_lv"], Type::Bin, FetchNeeds::NOTHING, |cx, args| length_value(cx, either(cx), args),
        "req.payload_lv, or res.payload_lv in rules about responses.").args(LENGTH_VALUE).check(length_value_args),
    Fetch::new(&["res.ssl_hello_type", "rep_ssl_hello_type"], Type::Int, FetchNeeds::RESPONSE, server_hello,
        "2 when what the server sent is a TLS ServerHello; waits for all of it."),
    Fetch::new(&["req.rdp_cookie", "rdp_cookie", "req_rdp_cookie"], Type::Str, FetchNeeds::REQUEST_HEAD, rdp_cookie,
        "The cookie in the first message of RDP, if it has that name.").args(NAME),
    Fetch::new(&["req.rdp_cookie_cnt", "rdp_cookie_cnt", "req_rdp_cookie_cnt"], Type::Int, FetchNeeds::REQUEST_HEAD,
        rdp_cookie_count, "1 if the first message of RDP has a cookie, or one of that name.").args(NAME),
    Fetch::new(&["distcc_param"], Type::Int, FetchNeeds::NOTHING, distcc_param,
        "The parameter of a token in messages of distcc.").args(TOKEN).check(four_letters),
    Fetch::new(&["distcc_body"], Type::Bin, FetchNeeds::NOTHING, distcc_body,
        "The bytes behind a token in messages of distcc.").args(TOKEN).check(four_letters),
];

fn sent<'c>(cx: &'c Context<'_>) -> Option<&'c [u8]> {
    cx.content.map(|content| content.bytes)
}

/// The server's bytes, where there are any to look at.
fn either<'c>(cx: &'c Context<'_>) -> Option<&'c [u8]> {
    cx.answer.or_else(|| sent(cx))
}

fn index(value: &Value) -> Option<usize> {
    usize::try_from(value.int()?).ok()
}

fn block_args(args: &mut [Value]) -> Result<(), RuleError> {
    match args.iter().all(|arg| index(arg).is_some()) {
        true => Ok(()),
        false => Err(RuleError::new("payload offset and length must not be negative")),
    }
}

fn block<'c>(cx: &'c Context<'_>, bytes: Option<&'c [u8]>, args: &'c [Value]) -> Option<Sample<'c>> {
    let (bytes, offset, length) = (bytes?, index(&args[0])?, index(&args[1])?);
    let found = match length {
        0 => bytes.get(offset..),
        length => bytes.get(offset..offset.checked_add(length)?),
    };
    // Of all bytes there may be more with the next ones.
    if length == 0 || found.is_none() {
        cx.wait();
    }
    found.filter(|found| !found.is_empty()).map(|found| Sample::Bin(found.into()))
}

fn length_value_args(args: &mut [Value]) -> Result<(), RuleError> {
    let Some(offset) = index(&args[0]) else {
        return Err(RuleError::new("payload offset1 must be positive"));
    };
    let Some(length) = index(&args[1]).filter(|length| *length > 0) else {
        return Err(RuleError::new("payload length must be > 0"));
    };
    let behind = offset.saturating_add(length);
    let start = match args[2].name() {
        None => behind,
        Some(text) => {
            let number: i64 = text.parse().map_err(|_| RuleError::new("payload offset2 is not a number"))?;
            let is_relative = text.starts_with(['+', '-']);
            let start = if is_relative { number.saturating_add(behind as i64) } else { number };
            usize::try_from(start).map_err(|_| RuleError::new("payload offset2 too negative"))?
        }
    };
    args[2] = Value::Int(i64::try_from(start).unwrap_or(i64::MAX));
    Ok(())
}

fn length_value<'c>(cx: &'c Context<'_>, bytes: Option<&'c [u8]>, args: &'c [Value]) -> Option<Sample<'c>> {
    let (bytes, offset, length, start) = (bytes?, index(&args[0])?, index(&args[1])?, index(&args[2])?);
    let Some(digits) = bytes.get(offset..offset.checked_add(length)?) else {
        cx.wait();
        return None;
    };
    let size = digits.iter().fold(0_u32, |size, byte| size << 8 | u32::from(*byte)) as usize;
    let found = bytes.get(start..start.checked_add(size)?);
    if found.is_none() {
        cx.wait();
    }
    found.filter(|found| !found.is_empty()).map(|found| Sample::Bin(found.into()))
}

/// The type of the first message of a handshake, if it is one of a server.
fn server_hello<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    const HANDSHAKE: u8 = 22;
    const SERVER_HELLO: u8 = 2;
    let bytes = cx.answer?;
    let starts = [HANDSHAKE, 3].iter().zip(bytes).all(|(wanted, byte)| wanted == byte);
    let is_hello = bytes.get(5).is_none_or(|kind| *kind == SERVER_HELLO);
    if !starts || !is_hello {
        return None;
    }
    let message = bytes.get(5..9).map(|header| u32::from_be_bytes([0, header[1], header[2], header[3]]) as usize);
    match message.and_then(|length| bytes.get(9..9 + length)) {
        Some(_) => Some(Sample::Int(SERVER_HELLO.into())),
        None => {
            cx.wait();
            None
        }
    }
}

/// What stands where a cookie of RDP would.
enum RdpCookie<'c> {
    Found(&'c [u8]),
    /// Something else, or a cookie of another name.
    Other,
    /// Its end is missing.
    Partial,
}

/// `Cookie: NAME=VALUE` up to CR LF. The header before it is not looked at, as in HAProxy.
fn find_rdp_cookie<'c>(bytes: &'c [u8], name: &[u8]) -> RdpCookie<'c> {
    const FIELD: &[u8] = b"Cookie:";
    let Some((field, rest)) = bytes.get(RDP_HEADER..).and_then(|rest| rest.split_at_checked(FIELD.len())) else {
        return RdpCookie::Partial;
    };
    if rest.is_empty() {
        return RdpCookie::Partial;
    }
    if !field.eq_ignore_ascii_case(FIELD) {
        return RdpCookie::Other;
    }
    let spaces = rest.iter().take_while(|byte| **byte == b' ').count();
    let rest = &rest[spaces..];
    let value = if name.is_empty() {
        match memchr::memchr3(b'=', b'\r', b'\n', rest) {
            None => return RdpCookie::Partial,
            Some(at) if rest[at] == b'=' => &rest[at + 1..],
            Some(_) => return RdpCookie::Other,
        }
    } else {
        match rest.split_at_checked(name.len()) {
            None | Some((_, [])) => return RdpCookie::Partial,
            Some((found, [b'=', value @ ..])) if found.eq_ignore_ascii_case(name) => value,
            Some(_) => return RdpCookie::Other,
        }
    };
    match memchr::memchr(b'\r', value) {
        Some(end) => match value.get(end + 1) {
            Some(b'\n') => RdpCookie::Found(&value[..end]),
            Some(_) => RdpCookie::Other,
            None => RdpCookie::Partial,
        },
        None => RdpCookie::Partial,
    }
}

/// The address in the cookie `name` of the first message of RDP, by which a server sends its clients back to itself (`persist rdp-cookie`): the four
/// bytes of the address and the two of the port, each as a number in the byte order of Intel, and a part that is reserved.
pub fn rdp_server(bytes: &[u8], name: &str) -> Option<SocketAddrV4> {
    let RdpCookie::Found(value) = find_rdp_cookie(bytes, name.as_bytes()) else { return None };
    let mut parts = std::str::from_utf8(value).ok()?.split('.');
    let (address, port) = (parts.next()?.parse::<u32>().ok()?, parts.next()?.parse::<u16>().ok()?);
    parts.next()?;
    Some(SocketAddrV4::new(address.to_le_bytes().into(), port.swap_bytes()))
}

fn rdp_cookie<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    match find_rdp_cookie(sent(cx)?, args[0].bytes()) {
        RdpCookie::Found(value) => Some(Sample::str(value)),
        RdpCookie::Other => None,
        RdpCookie::Partial => {
            cx.wait();
            None
        }
    }
}

fn rdp_cookie_count<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let Some(bytes) = sent(cx) else {
        // There is none in HTTP.
        return cx.request.is_some().then_some(Sample::Int(0));
    };
    match find_rdp_cookie(bytes, args[0].bytes()) {
        RdpCookie::Found(_) => Some(Sample::Int(1)),
        RdpCookie::Other => Some(Sample::Int(0)),
        RdpCookie::Partial => {
            cx.wait();
            None
        }
    }
}

fn four_letters(args: &mut [Value]) -> Result<(), RuleError> {
    match args[0].bytes().len() {
        4 => Ok(()),
        _ => Err(RuleError::new("token name must be exactly 4 characters")),
    }
}

/// The parameter of a token, and what follows it.
fn distcc<'c>(cx: &'c Context<'_>, args: &[Value]) -> Option<(u32, &'c [u8])> {
    let mut rest = either(cx)?;
    let wanted = usize::try_from(args[1].int().unwrap_or(1)).ok()?.max(1);
    let mut seen = 0;
    loop {
        let Some((header, behind)) = rest.split_at_checked(DISTCC_HEADER) else {
            cx.wait();
            return None;
        };
        let (token, digits) = header.split_at(4);
        let param = digits.iter().try_fold(0_u32, |param, byte| Some(param << 4 | char::from(*byte).to_digit(16)?))?;
        if token == args[0].bytes() {
            seen += 1;
            if seen == wanted {
                return Some((param, behind));
            }
        }
        let body = if DISTCC_BARE.contains(&token) { 0 } else { param as usize };
        match behind.get(body..) {
            Some(next) => rest = next,
            None => {
                cx.wait();
                return None;
            }
        }
    }
}

fn distcc_param<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    distcc(cx, args).map(|(param, _)| Sample::Int(param.into()))
}

fn distcc_body<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let (param, behind) = distcc(cx, args)?;
    if DISTCC_BARE.contains(&args[0].bytes()) {
        return None;
    }
    let body = behind.get(..param as usize);
    if body.is_none() {
        cx.wait();
    }
    body.map(|body| Sample::Bin(body.into()))
}
