//! Converters that look the sample up in a map: `map_<match>_<output>`.

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::pattern::Method;
use crate::problem::RuleError;
use crate::reference::{MatchSpec, Output};
use crate::sample::Sample;

const TEXT: &[Arg] = &[Arg::req(ArgKind::Map), Arg::opt(ArgKind::Str)];
const INT: &[Arg] = &[Arg::req(ArgKind::Map), Arg::opt(ArgKind::Int)];

#[rustfmt::skip]
pub(super) const ROWS: &[Converter] = &[
    row("map", Method::Str, Output::Text, "The value of a map for the key that is equal."),
    row("map_str", Method::Str, Output::Text, "The text a map has for the key that is equal."),
    row("map_str_int", Method::Str, Output::Int, "The number a map has for the key that is equal."),
    row("map_str_ip", Method::Str, Output::Ip, "The address a map has for the key that is equal."),
    row("map_beg", Method::Beg, Output::Text, "The text a map has for the longest key it begins with."),
    row("map_beg_int", Method::Beg, Output::Int, "The number a map has for the longest key it begins with."),
    row("map_beg_ip", Method::Beg, Output::Ip, "The address a map has for the longest key it begins with."),
    row("map_end", Method::End, Output::Text, "The text a map has for the first key it ends with."),
    row("map_end_int", Method::End, Output::Int, "The number a map has for the first key it ends with."),
    row("map_end_ip", Method::End, Output::Ip, "The address a map has for the first key it ends with."),
    row("map_sub", Method::Sub, Output::Text, "The text a map has for the first key it contains."),
    row("map_sub_int", Method::Sub, Output::Int, "The number a map has for the first key it contains."),
    row("map_sub_ip", Method::Sub, Output::Ip, "The address a map has for the first key it contains."),
    row("map_dir", Method::Dir, Output::Text, "The text a map has for the first key that is one of its path components."),
    row("map_dir_int", Method::Dir, Output::Int, "The number a map has for the first key that is one of its path components."),
    row("map_dir_ip", Method::Dir, Output::Ip, "The address a map has for the first key that is one of its path components."),
    row("map_dom", Method::Dom, Output::Text, "The text a map has for the first key that is a domain it is in."),
    row("map_dom_int", Method::Dom, Output::Int, "The number a map has for the first key that is a domain it is in."),
    row("map_dom_ip", Method::Dom, Output::Ip, "The address a map has for the first key that is a domain it is in."),
    row("map_reg", Method::Reg, Output::Text, "The text a map has for the first regular expression that matches."),
    row("map_regm", Method::Reg, Output::Template, "The text for the first regular expression that matches, with its groups."),
    row("map_reg_int", Method::Reg, Output::Int, "The number a map has for the first regular expression that matches."),
    row("map_reg_ip", Method::Reg, Output::Ip, "The address a map has for the first regular expression that matches."),
    row("map_int", Method::Int, Output::Text, "The text a map has for the first number or range it is in."),
    row("map_int_int", Method::Int, Output::Int, "The number a map has for the first number or range it is in."),
    row("map_int_ip", Method::Int, Output::Ip, "The address a map has for the first number or range it is in."),
    row("map_ip", Method::Ip, Output::Text, "The text a map has for the smallest network it is in."),
    row("map_ip_int", Method::Ip, Output::Int, "The number a map has for the smallest network it is in."),
    row("map_ip_ip", Method::Ip, Output::Ip, "The address a map has for the smallest network it is in."),
];

const fn row(name: &'static str, method: Method, output: Output, doc: &'static str) -> Converter {
    let mut row = Converter::new(name, method.needs(), output.kind(), look_up, doc);
    row.map = Some(MatchSpec { method, ignore_case: false, output });
    row = row.args(match output {
        Output::Int => INT,
        _ => TEXT,
    });
    match output {
        Output::Ip => row.check(default_address),
        _ => row,
    }
}

/// Reads the default of a map of addresses.
fn default_address(args: &mut [Value]) -> Result<(), RuleError> {
    if let Value::Str(text) = &args[1] {
        let text = String::from_utf8_lossy(text).into_owned();
        let address = text.parse().map_err(|_| RuleError::new(format!("'{text}' is not an IPv4 or IPv6 address")))?;
        args[1] = Value::Ip(address);
    }
    Ok(())
}

fn look_up<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Map(map) = &args[0] else { return None };
    map.value(sample).or_else(|| match &args[1] {
        Value::Str(text) => Some(Sample::str(text)),
        Value::Int(number) => Some(Sample::Int(*number)),
        Value::Ip(address) => Some(Sample::Ip(*address)),
        _ => None,
    })
}
