//! Converters of numbers, booleans and addresses (configuration manual 7.3.1).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::sample::{Sample, Type};

const OPERAND: &[Arg] = &[Arg::req(ArgKind::IntOrVariable)];

pub(super) const ROWS: &[Converter] = &[
    Converter::new("add", Type::Int, Type::Int, |s, a, c| math(s, a, c, i64::saturating_add), "The sum, saturating.")
        .args(OPERAND),
    Converter::new(
        "sub",
        Type::Int,
        Type::Int,
        |s, a, c| math(s, a, c, i64::saturating_sub),
        "The difference, saturating.",
    )
    .args(OPERAND),
    Converter::new(
        "mul",
        Type::Int,
        Type::Int,
        |s, a, c| math(s, a, c, i64::saturating_mul),
        "The product, saturating.",
    )
    .args(OPERAND),
    Converter::new(
        "div",
        Type::Int,
        Type::Int,
        |s, a, c| math(s, a, c, divide),
        "The quotient; the largest integer when divided by 0.",
    )
    .args(OPERAND),
    Converter::new(
        "mod",
        Type::Int,
        Type::Int,
        |s, a, c| math(s, a, c, remainder),
        "The remainder; 0 when divided by 0.",
    )
    .args(OPERAND),
    Converter::new("and", Type::Int, Type::Int, |s, a, c| math(s, a, c, |x, y| x & y), "The bits of both.")
        .args(OPERAND),
    Converter::new("or", Type::Int, Type::Int, |s, a, c| math(s, a, c, |x, y| x | y), "The bits of either.")
        .args(OPERAND),
    Converter::new("xor", Type::Int, Type::Int, |s, a, c| math(s, a, c, |x, y| x ^ y), "The bits that differ.")
        .args(OPERAND),
    Converter::new("cpl", Type::Int, Type::Int, |s, _, _| unary(s, |x| !x), "The complement of the bits."),
    Converter::new(
        "neg",
        Type::Int,
        Type::Int,
        |s, _, _| unary(s, i64::saturating_neg),
        "The number with its sign inverted.",
    ),
    Converter::new("bool", Type::Int, Type::Bool, |s, _, _| test(s, |x| x != 0), "Whether the number is not 0."),
    Converter::new("not", Type::Int, Type::Bool, |s, _, _| test(s, |x| x == 0), "Whether the number is 0."),
    Converter::new("even", Type::Int, Type::Bool, |s, _, _| test(s, |x| x & 1 == 0), "Whether the number is even."),
    Converter::new("odd", Type::Int, Type::Bool, |s, _, _| test(s, |x| x & 1 == 1), "Whether the number is odd."),
    Converter::new("iif", Type::Bool, Type::Str, iif, "The first text if true, the second if false.")
        .args(&[Arg::req(ArgKind::Str), Arg::req(ArgKind::Str)]),
    Converter::new("ipmask", Type::Ip, Type::Ip, ipmask, "The address under a mask, one for IPv4 and one for IPv6.")
        .args(&[Arg::req(ArgKind::Mask4), Arg::opt(ArgKind::Mask6)]),
];

fn math<'c>(
    sample: Sample<'c>,
    args: &'c [Value],
    cx: &'c Context<'_>,
    with: fn(i64, i64) -> i64,
) -> Option<Sample<'c>> {
    let operand = match &args[0] {
        Value::Int(value) => *value,
        Value::Variable(name) => cx.variables.value(name)?.borrowed().into_int()?,
        _ => return None,
    };
    Some(Sample::Int(with(sample.into_int()?, operand)))
}

fn divide(left: i64, right: i64) -> i64 {
    match right {
        0 => i64::MAX,
        _ => left.saturating_div(right),
    }
}

fn remainder(left: i64, right: i64) -> i64 {
    left.checked_rem(right).unwrap_or(0)
}

fn unary(sample: Sample<'_>, with: fn(i64) -> i64) -> Option<Sample<'_>> {
    Some(Sample::Int(with(sample.into_int()?)))
}

fn test(sample: Sample<'_>, with: fn(i64) -> bool) -> Option<Sample<'_>> {
    Some(Sample::Bool(with(sample.into_int()?)))
}

fn iif<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::str(args[usize::from(!sample.into_bool()?)].bytes()))
}

/// An IPv6 address that maps an IPv4 one is taken for that. Without an IPv6 mask any other IPv6 address gives nothing.
fn ipmask<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::Ip(match (sample.into_ip()?.to_canonical(), &args[0], &args[1]) {
        (IpAddr::V4(address), Value::Mask4(mask), _) => IpAddr::V4(Ipv4Addr::from(u32::from(address) & mask)),
        (IpAddr::V6(address), _, Value::Mask6(mask)) => IpAddr::V6(Ipv6Addr::from(u128::from(address) & mask)),
        _ => return None,
    }))
}
