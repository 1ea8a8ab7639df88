//! Converters of text (configuration manual 7.3.1).

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type, cut};
use crate::substitute::{self, Substitution, Template};

const FIELD: &[Arg] = &[Arg::req(ArgKind::Int), Arg::req(ArgKind::Str), Arg::opt(ArgKind::Int)];

pub(super) const ROWS: &[Converter] =
    &[
        Converter::new("lower", Type::Str, Type::Str, lower, "The text in lower case."),
        Converter::new("upper", Type::Str, Type::Str, upper, "The text in upper case."),
        Converter::new("length", Type::Str, Type::Int, length, "The text's length in bytes."),
        Converter::new("ltrim", Type::Str, Type::Str, ltrim, "The text without these characters at its start.")
            .args(&[Arg::req(ArgKind::Str)]),
        Converter::new("rtrim", Type::Str, Type::Str, rtrim, "The text without these characters at its end.")
            .args(&[Arg::req(ArgKind::Str)]),
        Converter::new("cut_crlf", Type::Str, Type::Str, cut_crlf, "The text up to its first CR or LF."),
        Converter::new("field", Type::Str, Type::Str, field, "A field between delimiters, empty fields counted.")
            .args(FIELD)
            .check(index_not_zero),
        Converter::new("word", Type::Str, Type::Str, word, "A word between delimiters, empty words not counted.")
            .args(FIELD)
            .check(index_not_zero),
        Converter::new("bytes", Type::Bin, Type::Bin, bytes, "The bytes from an offset on, of a length.")
            .args(&[Arg::req(ArgKind::Int), Arg::opt(ArgKind::Int)]),
        Converter::new("concat", Type::Str, Type::Str, concat, "The text, a text, a variable and another text.")
            .args(&[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Variable), Arg::opt(ArgKind::Str)]),
        Converter::new(
            "add_item",
            Type::Str,
            Type::Str,
            add_item,
            "The text, and a delimiter with a variable and a text if they are not empty.",
        )
        .args(&[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Variable), Arg::opt(ArgKind::Str)])
        .check(item_given),
        Converter::new("param", Type::Str, Type::Str, param, "The value of a parameter in a text such as a=1&b=2.")
            .args(&[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)]),
        Converter::new(
            "strcmp",
            Type::Str,
            Type::Int,
            strcmp,
            "The order of the text and a variable: below 0, 0, above 0.",
        )
        .args(&[Arg::req(ArgKind::Variable)]),
        Converter::new("regsub", Type::Str, Type::Str, regsub, "The text with what an expression matches replaced.")
            .args(&[Arg::req(ArgKind::Str), Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)])
            .check(substitution),
        Converter::new("host_only", Type::Str, Type::Str, host_only, "A Host value without its port, in lower case."),
        Converter::new("port_only", Type::Str, Type::Int, port_only, "The port of a Host value, 0 without one."),
    ];

fn lower<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut text = sample.into_text();
    if text.iter().any(u8::is_ascii_uppercase) {
        text.to_mut().make_ascii_lowercase();
    }
    Some(Sample::Str(text))
}

fn upper<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut text = sample.into_text();
    if text.iter().any(u8::is_ascii_lowercase) {
        text.to_mut().make_ascii_uppercase();
    }
    Some(Sample::Str(text))
}

fn length<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    Some(Sample::Int(sample.into_text().len() as i64))
}

fn ltrim<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let start = text.iter().position(|byte| !args[0].bytes().contains(byte)).unwrap_or(text.len());
    Some(Sample::Str(cut(text, start, usize::MAX)))
}

fn rtrim<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let end = text.iter().rposition(|byte| !args[0].bytes().contains(byte)).map_or(0, |last| last + 1);
    Some(Sample::Str(cut(text, 0, end)))
}

fn cut_crlf<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let end = memchr::memchr2(b'\r', b'\n', &text).unwrap_or(text.len());
    Some(Sample::Str(cut(text, 0, end)))
}

fn index_not_zero(args: &mut [Value]) -> Result<(), RuleError> {
    match args[0].int() {
        Some(0) => Err(RuleError::new("invalid index 0").hint("indexes count from 1, or from -1 at the end")),
        _ => Ok(()),
    }
}

fn field<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    pick(sample.into_text(), args, false)
}

fn word<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    pick(sample.into_text(), args, true).or(Some(Sample::str(b"")))
}

/// The pieces of a text from `index` on: from 1 counted from the start, from -1 counted from the end and then going
/// backwards. `count` of them (1 by default, all for 0), with what stands between. A word that is not there is empty, a
/// field that is not there gives nothing.
fn pick<'c>(text: Cow<'c, [u8]>, args: &[Value], words: bool) -> Option<Sample<'c>> {
    let index = args[0].int()?;
    let delimiters = args[1].bytes();
    let count = match args[2].int() {
        None => 1,
        Some(0) => usize::MAX,
        Some(count) => usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX),
    };
    let nth = usize::try_from(index.unsigned_abs()).ok()?.checked_sub(1)?;
    let mut ranges = Fields { text: &text, delimiters, words, front: 0, back: text.len(), done: false };
    let (start, end) = if index > 0 {
        let first = ranges.nth(nth)?;
        match count {
            1 => first,
            // With fewer words than were asked for, what stands behind the last one belongs to it.
            _ => (first.0, ranges.nth(count - 2).map_or(text.len(), |last| last.1)),
        }
    } else {
        let mut ranges = ranges.rev();
        let last = ranges.nth(nth)?;
        match count {
            1 => last,
            _ => (ranges.nth(count - 2).map_or(0, |first| first.0), last.1),
        }
    };
    Some(Sample::Str(cut(text, start, end)))
}

/// The ranges between delimiters, from both ends.
struct Fields<'t> {
    text: &'t [u8],
    delimiters: &'t [u8],
    words: bool,
    front: usize,
    back: usize,
    done: bool,
}

impl Iterator for Fields<'_> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        while !self.done {
            let rest = &self.text[self.front..self.back];
            let found = rest.iter().position(|byte| self.delimiters.contains(byte));
            let piece = (self.front, found.map_or(self.back, |at| self.front + at));
            match found {
                Some(at) => self.front += at + 1,
                None => self.done = true,
            }
            if !self.words || piece.0 < piece.1 {
                return Some(piece);
            }
        }
        None
    }
}

impl DoubleEndedIterator for Fields<'_> {
    fn next_back(&mut self) -> Option<(usize, usize)> {
        while !self.done {
            let rest = &self.text[self.front..self.back];
            let found = rest.iter().rposition(|byte| self.delimiters.contains(byte));
            let piece = (found.map_or(self.front, |at| self.front + at + 1), self.back);
            match found {
                Some(at) => self.back = self.front + at,
                None => self.done = true,
            }
            if !self.words || piece.0 < piece.1 {
                return Some(piece);
            }
        }
        None
    }
}

/// Past the end: empty. A negative offset gives nothing, a negative length all.
fn bytes<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_bytes();
    let start = usize::try_from(args[0].int()?).ok()?;
    let length = match args[1].int() {
        Some(length) => usize::try_from(length).unwrap_or(usize::MAX),
        None => usize::MAX,
    };
    Some(Sample::Bin(cut(text, start, start.saturating_add(length))))
}

fn concat<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut text = sample.into_text().into_owned();
    text.extend_from_slice(args[0].bytes());
    if let Value::Variable(name) = &args[1]
        && let Some(value) = cx.variables.value(name)
    {
        value.write(&mut text);
    }
    text.extend_from_slice(args[2].bytes());
    Some(Sample::Str(Cow::Owned(text)))
}

fn item_given(args: &mut [Value]) -> Result<(), RuleError> {
    match args[1].is_absent() && args[2].is_absent() {
        true => Err(RuleError::new("converter 'add_item' needs the name of a variable or a text")),
        false => Ok(()),
    }
}

fn add_item<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let mut text = sample.into_text().into_owned();
    let mut item = Vec::new();
    if let Value::Variable(name) = &args[1]
        && let Some(value) = cx.variables.value(name)
    {
        value.write(&mut item);
    }
    item.extend_from_slice(args[2].bytes());
    if !text.is_empty() && !item.is_empty() {
        text.extend_from_slice(args[0].bytes());
    }
    text.extend_from_slice(&item);
    Some(Sample::Str(Cow::Owned(text)))
}

/// The first parameter of that name; without a `=` it is empty.
fn param<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let delimiter = *args[1].bytes().first().unwrap_or(&b'&');
    let mut at = 0;
    for parameter in text.split(|&byte| byte == delimiter) {
        let end = at + parameter.len();
        match parameter.strip_prefix(args[0].bytes()) {
            Some([]) => return Some(Sample::Str(cut(text, end, end))),
            Some([b'=', ..]) => {
                let start = at + args[0].bytes().len() + 1;
                return Some(Sample::Str(cut(text, start, end)));
            }
            _ => at = end + 1,
        }
    }
    None
}

fn strcmp<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Variable(name) = &args[0] else {
        return None;
    };
    let other = cx.variables.value(name)?.borrowed().into_text();
    let text = sample.into_text();
    let differing = text.iter().zip(&*other).find(|(left, right)| left != right);
    Some(Sample::Int(match differing {
        Some((left, right)) => i64::from(*left) - i64::from(*right),
        None => (text.len() as i64 - other.len() as i64).signum(),
    }))
}

fn substitution(args: &mut [Value]) -> Result<(), RuleError> {
    let (all, ignore_case) = flags(args[2].bytes())?;
    let pattern = String::from_utf8_lossy(args[0].bytes()).into_owned();
    if pattern.is_empty() {
        return Err(RuleError::new("the regular expression of converter 'regsub' is missing"));
    }
    let regex = substitute::regex(&pattern, ignore_case)?;
    let template = Template::new(args[1].bytes());
    args[0] = Value::Substitution(Box::new(Substitution { regex, template, all }));
    Ok(())
}

fn flags(text: &[u8]) -> Result<(bool, bool), RuleError> {
    match text.iter().find(|flag| !b"gi".contains(flag)) {
        Some(flag) => Err(RuleError::new(format!("unknown flag '{}' of converter 'regsub'", flag.escape_ascii()))
            .hint("'g' replaces all matches, 'i' ignores the case")),
        None => Ok((text.contains(&b'g'), text.contains(&b'i'))),
    }
}

fn regsub<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let Value::Substitution(substitution) = &args[0] else {
        return None;
    };
    Some(Sample::Str(match substitution.apply(&text) {
        Some(changed) => Cow::Owned(changed),
        None => text,
    }))
}

/// Where the port of a Host value starts, after the colon; brackets of an IPv6 address stay with the host.
fn port_start(host: &[u8]) -> Option<usize> {
    let after = memchr::memrchr(b']', host).map_or(0, |at| at + 1);
    memchr::memrchr(b':', &host[after..]).map(|at| after + at + 1)
}

fn host_only<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let end = port_start(&text).map_or(text.len(), |start| start - 1);
    lower(Sample::Str(cut(text, 0, end)), args, cx)
}

/// As in HAProxy, whatever stands behind the colon counts as digits.
fn port_only<'c>(sample: Sample<'c>, _: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let digits = port_start(&text).map_or(&[][..], |start| &text[start..]);
    let digit = |byte: u8| u32::from(byte).wrapping_sub(u32::from(b'0'));
    let port = digits.iter().fold(0u32, |port, &byte| port.wrapping_mul(10).wrapping_add(digit(byte)));
    Some(Sample::Int(port.into()))
}
