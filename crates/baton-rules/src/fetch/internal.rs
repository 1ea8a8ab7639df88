//! Fetches from internal states (configuration manual 7.3.2).

use std::borrow::Cow;
use std::time::UNIX_EPOCH;

use super::Fetch;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::place::FetchNeeds;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Fetch] = &[
    Fetch::new(&["always_true"], Type::Bool, FetchNeeds::NOTHING, |_, _| Some(Sample::Bool(true)), "True."),
    Fetch::new(&["always_false"], Type::Bool, FetchNeeds::NOTHING, |_, _| Some(Sample::Bool(false)), "False."),
    Fetch::new(&["str"], Type::Str, FetchNeeds::NOTHING, constant, "The text given.").args(&[Arg::req(ArgKind::Str)]),
    Fetch::new(&["bin"], Type::Bin, FetchNeeds::NOTHING, constant, "The bytes given in hexadecimal.")
        .args(&[Arg::req(ArgKind::Str)])
        .check(from_hex),
    Fetch::new(&["meth"], Type::Method, FetchNeeds::NOTHING, method, "The method given.")
        .args(&[Arg::req(ArgKind::Str)]),
    Fetch::new(&["int"], Type::Int, FetchNeeds::NOTHING, constant, "The integer given.")
        .args(&[Arg::req(ArgKind::Int)]),
    Fetch::new(&["bool"], Type::Bool, FetchNeeds::NOTHING, boolean, "The boolean given: true, false, 1 or 0.")
        .args(&[Arg::req(ArgKind::Word(&["true", "false", "1", "0"]))]),
    Fetch::new(&["ipv4"], Type::Ip, FetchNeeds::NOTHING, constant, "The address given.")
        .args(&[Arg::req(ArgKind::Ipv4)]),
    Fetch::new(&["ipv6"], Type::Ip, FetchNeeds::NOTHING, constant, "The address given.")
        .args(&[Arg::req(ArgKind::Ipv6)]),
    Fetch::new(&["date"], Type::Int, FetchNeeds::NOTHING, date, "The time since 1970, with an offset, in s, ms or us.")
        .args(&[Arg::opt(ArgKind::Int), Arg::opt(ArgKind::Word(&["s", "ms", "us"]))]),
    Fetch::new(
        &["date_us"],
        Type::Int,
        FetchNeeds::NOTHING,
        date_us,
        "The microseconds of the second that date gives.",
    ),
    Fetch::new(&["rand"], Type::Int, FetchNeeds::NOTHING, rand, "A random number below 2^32, or below the argument.")
        .args(&[Arg::opt(ArgKind::Int)]),
    Fetch::new(&["uuid"], Type::Str, FetchNeeds::NOTHING, uuid, "A random UUID (RFC 9562), version 4.")
        .args(&[Arg::opt(ArgKind::Int)])
        .check(version_four),
    Fetch::new(&["var"], Type::Any, FetchNeeds::NOTHING, var, "A variable, or the default given.")
        .args(&[Arg::req(ArgKind::Variable), Arg::opt(ArgKind::Str)]),
    // The two below become constants when the expression is compiled (`Expr::compile`).
    Fetch::new(&["env"], Type::Str, FetchNeeds::NOTHING, constant, "An environment variable, read at start-up.")
        .args(&[Arg::req(ArgKind::Str)]),
    Fetch::new(&["hostname"], Type::Str, FetchNeeds::NOTHING, constant, "The host name, read at start-up."),
    Fetch::new(&["be_name"], Type::Str, FetchNeeds::BACKEND, be_name, "The backend's name."),
    Fetch::new(&["be_id"], Type::Int, FetchNeeds::BACKEND, be_id, "The backend's id."),
    Fetch::new(&["wait_end"], Type::Bool, FetchNeeds::NOTHING, wait_end, "True once no more data is awaited."),
];

fn constant<'c>(_: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    Some(match args.first()? {
        Value::Int(value) => Sample::Int(*value),
        Value::Ip(address) => Sample::Ip(*address),
        Value::Str(bytes) => Sample::str(bytes),
        _ => return None,
    })
}

fn method<'c>(_: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Method(args.first()?.bytes().into()))
}

fn boolean<'c>(_: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Bool(matches!(args.first()?.bytes(), b"true" | b"1")))
}

fn from_hex(args: &mut [Value]) -> Result<(), RuleError> {
    let text = args.first().map(|value| value.bytes().to_vec()).unwrap_or_default();
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    let bytes: Option<Vec<u8>> =
        text.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(*pair.get(1)?)?)).collect();
    match bytes {
        Some(bytes) => args[0] = Value::Str(bytes.into()),
        None => return Err(RuleError::new("expected an even number of hexadecimal digits")),
    }
    Ok(())
}

fn date<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let since = cx.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    let offset = args[0].int().unwrap_or(0);
    let value = match args[1].bytes() {
        b"ms" => (since.as_millis() as i64).saturating_add(offset.saturating_mul(1000)),
        b"us" => (since.as_micros() as i64).saturating_add(offset.saturating_mul(1_000_000)),
        _ => (since.as_secs() as i64).saturating_add(offset),
    };
    Some(Sample::Int(value))
}

fn date_us<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let since = cx.now.duration_since(UNIX_EPOCH).unwrap_or_default();
    Some(Sample::Int(since.subsec_micros().into()))
}

fn rand<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let random = i64::from((cx.random)());
    Some(Sample::Int(match args[0].int() {
        None => random,
        Some(range) => ((i128::from(random) * i128::from(range)) >> 32) as i64,
    }))
}

fn version_four(args: &mut [Value]) -> Result<(), RuleError> {
    match args[0].int() {
        None | Some(4) => Ok(()),
        Some(version) => Err(RuleError::new(format!("UUID version {version} is not supported")).hint("use 4")),
    }
}

fn uuid<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    let mut fields = [(); 4].map(|()| (cx.random)());
    // The version is in the upper bits of the third group, the variant in those of the fourth (RFC 9562 4.1, 4.2).
    fields[1] = fields[1] & 0xffff_0fff | 0x4000;
    fields[2] = fields[2] & 0x3fff_ffff | 0x8000_0000;
    let [a, b, c, d] = fields;
    let text = format!("{a:08x}-{:04x}-{:04x}-{:04x}-{:04x}{d:08x}", b >> 16, b & 0xffff, c >> 16, c & 0xffff);
    Some(Sample::Str(Cow::Owned(text.into_bytes())))
}

fn var<'c>(cx: &'c Context<'_>, args: &'c [Value]) -> Option<Sample<'c>> {
    let Value::Variable(name) = &args[0] else {
        return None;
    };
    match cx.variables.value(name) {
        Some(value) => Some(value.borrowed()),
        None if args[1].is_absent() => None,
        None => Some(Sample::str(args[1].bytes())),
    }
}

fn be_name<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    // What a frontend answers itself is its own, as in HAProxy.
    Some(Sample::str(cx.backend.unwrap_or(cx.frontend).name.as_bytes()))
}

fn be_id<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Int(cx.backend.unwrap_or(cx.frontend).id.into()))
}

fn wait_end<'c>(cx: &'c Context<'_>, _: &'c [Value]) -> Option<Sample<'c>> {
    Some(Sample::Bool(!cx.wait()))
}
