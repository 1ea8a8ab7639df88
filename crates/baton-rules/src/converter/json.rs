//! JSON (configuration manual 7.3.1): a value found by its path, and text escaped for a JSON string.
//!
//! The paths are those that HAProxy knows: `$`, then `.NAME` and `[INDEX]`. The text is read up to the value that is looked for; what
//! follows it may be malformed. Names are compared as they are written. A number is what C's `%g` prints of it.

use std::borrow::Cow;

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "json_query",
        Type::Str,
        Type::Any,
        json_query,
        "The value at a path such as $.a.b[0], or as an integer.",
    )
    .args(&[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)])
    .check(check_query),
    Converter::new("json", Type::Str, Type::Str, json, "The text escaped for a JSON string, decoded by a code.")
        .args(&[Arg::opt(ArgKind::Str)])
        .check(check_code),
];

/// The deepest nesting that is read, as in HAProxy.
const DEPTH_MAX: usize = 20;

/// Checks a path and the type of the result.
pub(super) fn check_query(args: &mut [Value]) -> Result<(), RuleError> {
    if args[0].bytes().is_empty() {
        return Err(RuleError::new("the JSON path must not be empty").hint("write a path such as '$.name'"));
    }
    match args[1].bytes() {
        b"" | b"int" => Ok(()),
        _ => Err(RuleError::new("the type of a JSON value can only be 'int'")),
    }
}

fn json_query<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    query(&sample.into_text(), args[0].bytes(), args[1].bytes() == b"int")
}

/// The value at `path`; a number as an integer if so wanted.
pub(super) fn query(text: &[u8], path: &[u8], as_int: bool) -> Option<Sample<'static>> {
    let path = path.strip_prefix(b"$")?;
    let token = Reader { text, at: 0 }.value(Some(path), 0).ok()??;
    match token {
        Token::String(raw) => unescape(raw).map(|text| Sample::Str(Cow::Owned(text))),
        Token::True => Some(Sample::Bool(true)),
        Token::False => Some(Sample::Bool(false)),
        Token::Number(raw) if as_int => int(raw).map(Sample::Int),
        Token::Number(raw) => Some(Sample::Str(Cow::Owned(general(float(raw)).into_bytes()))),
        Token::Null | Token::Container => None,
    }
}

/// A value that was found.
enum Token<'t> {
    /// Without its quotes, escapes as written.
    String(&'t [u8]),
    Number(&'t [u8]),
    True,
    False,
    Null,
    Container,
}

/// The text is not JSON.
struct Malformed;

struct Reader<'t> {
    text: &'t [u8],
    at: usize,
}

impl<'t> Reader<'t> {
    fn peek(&mut self) -> Option<u8> {
        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        self.at += self.text[self.at..].iter().take_while(blank).count();
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Result<(), Malformed> {
        if self.peek() != Some(byte) {
            return Err(Malformed);
        }
        self.at += 1;
        Ok(())
    }

    /// Reads a value. With a path, the value there ends the reading.
    fn value(&mut self, path: Option<&[u8]>, depth: usize) -> Result<Option<Token<'t>>, Malformed> {
        let found = |token| if path == Some(b"") { Some(token) } else { None };
        let start = match self.peek() {
            Some(b'{' | b'[') if depth == DEPTH_MAX => return Err(Malformed),
            Some(b'{' | b'[') if path == Some(b"") => return Ok(Some(Token::Container)),
            Some(b'{') => return self.object(path, depth),
            Some(b'[') => return self.array(path, depth),
            Some(b'"') => return self.string().map(|raw| found(Token::String(raw))),
            Some(_) => self.at,
            None => return Err(Malformed),
        };
        let rest = &self.text[start..];
        for (word, token) in [(&b"true"[..], Token::True), (b"false", Token::False), (b"null", Token::Null)] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(found(token));
            }
        }
        match number_length(rest) {
            0 => Err(Malformed),
            length => {
                self.at += length;
                Ok(found(Token::Number(&rest[..length])))
            }
        }
    }

    fn object(&mut self, path: Option<&[u8]>, depth: usize) -> Result<Option<Token<'t>>, Malformed> {
        self.at += 1;
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(None);
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(Malformed);
            }
            let name = self.string()?;
            self.expect(b':')?;
            if let Some(token) = self.value(path.and_then(|path| behind_name(path, name)), depth + 1)? {
                return Ok(Some(token));
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(None);
                }
                _ => return Err(Malformed),
            }
        }
    }

    fn array(&mut self, path: Option<&[u8]>, depth: usize) -> Result<Option<Token<'t>>, Malformed> {
        self.at += 1;
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(None);
        }
        let wanted = path.and_then(index);
        for place in 0.. {
            let inner = wanted.filter(|(index, _)| *index == place).map(|(_, rest)| rest);
            if let Some(token) = self.value(inner, depth + 1)? {
                return Ok(Some(token));
            }
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => break,
                _ => return Err(Malformed),
            }
        }
        self.at += 1;
        Ok(None)
    }

    /// What stands between quotes, as it is written.
    fn string(&mut self) -> Result<&'t [u8], Malformed> {
        let start = self.at + 1;
        let mut at = start;
        loop {
            match self.text.get(at) {
                None => return Err(Malformed),
                Some(b'"') => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
            }
        }
        self.at = at + 1;
        Ok(&self.text[start..at])
    }
}

/// What is left of a path that begins with `.NAME`. A backslash in it makes the next character a part of the name.
fn behind_name<'p>(path: &'p [u8], name: &[u8]) -> Option<&'p [u8]> {
    let mut rest = path.strip_prefix(b".")?;
    let mut name = name.iter();
    loop {
        let byte = match rest {
            [] | [b'.' | b'[', ..] => return name.next().is_none().then_some(rest),
            [b'\\', byte, more @ ..] | [byte, more @ ..] => {
                rest = more;
                byte
            }
        };
        if name.next() != Some(byte) {
            return None;
        }
    }
}

/// The index and what is left of a path that begins with `[INDEX]`.
fn index(path: &[u8]) -> Option<(usize, &[u8])> {
    let inner = path.strip_prefix(b"[")?;
    let end = inner.iter().position(|&byte| byte == b']')?;
    let digits = inner[..end].iter().take_while(|byte| byte.is_ascii_digit());
    let index = digits.fold(0usize, |index, digit| index.saturating_mul(10).saturating_add(usize::from(digit - b'0')));
    (!inner.starts_with(b"-")).then_some((index, &inner[end + 1..]))
}

/// How many bytes at the start are a number: a minus or a digit, then digits, a fraction and an exponent.
fn number_length(text: &[u8]) -> usize {
    let digits = |from: usize| text[from.min(text.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let mut at = usize::from(text.first() == Some(&b'-'));
    let whole = digits(at);
    if at == 0 && whole == 0 {
        return 0;
    }
    at += whole;
    if text.get(at) == Some(&b'.') {
        at += 1 + digits(at + 1);
    }
    if matches!(text.get(at), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'+' | b'-')));
        at += 1 + sign + digits(at + 1 + sign);
    }
    at
}

fn float(raw: &[u8]) -> f64 {
    let text = std::str::from_utf8(raw).unwrap_or_default();
    let text = text.trim_end_matches(['+', '-']).trim_end_matches(['e', 'E']);
    text.trim_end_matches('.').parse().unwrap_or(if raw.starts_with(b"-.") { -0.0 } else { 0.0 })
}

/// The digits that a number begins with; nothing for an integer that a real number could not tell from the next.
fn int(raw: &[u8]) -> Option<i64> {
    let end = raw.iter().skip(1).position(|byte| !byte.is_ascii_digit()).map_or(raw.len(), |at| at + 1);
    match raw[..end] {
        [b'-'] => Some(0),
        _ => std::str::from_utf8(&raw[..end]).ok()?.parse().ok().filter(|int: &i64| int.unsigned_abs() < 1 << 53),
    }
}

/// As C's `%g`: six significant digits, an exponent where it is below -4 or above 5, no zeros at the end.
fn general(value: f64) -> String {
    const DIGITS: i32 = 6;
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if value == 0.0 {
        return if value.is_sign_negative() { "-0" } else { "0" }.to_owned();
    }
    let scientific = format!("{value:.*e}", DIGITS as usize - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        return short(&format!("{value:.*}", (DIGITS - 1 - exponent) as usize));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
}

/// The text that a JSON string stands for; nothing for an escape that is not known. As in HAProxy, `\u` is known below 256 and gives one byte,
/// and `\/` is not known.
fn unescape(raw: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(raw.len());
    let mut bytes = raw.iter().copied();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'u' => {
                    let digits = [bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?];
                    // What is no digit counts as if it were one behind 'f'.
                    let digit = |byte: u8| match byte {
                        b'0'..=b'9' => byte - b'0',
                        b'A'..=b'F' => byte - b'7',
                        _ => byte.wrapping_sub(b'W'),
                    };
                    match digits {
                        [b'0', b'0', high, low] => digit(high) << 4 | digit(low),
                        _ => return None,
                    }
                }
                b'b' => 8,
                b'f' => 12,
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                byte @ (b'"' | b'\\') => byte,
                _ => return None,
            },
            byte => byte,
        });
    }
    Some(out)
}

fn check_code(args: &mut [Value]) -> Result<(), RuleError> {
    match args[0].bytes() {
        b"" | b"ascii" | b"utf8" | b"utf8s" | b"utf8p" | b"utf8ps" => Ok(()),
        other => Err(RuleError::new(format!("unexpected input code '{}'", other.escape_ascii()))
            .hint("ascii, utf8, utf8s, utf8p or utf8ps")
            .suggest(&String::from_utf8_lossy(other), ["ascii", "utf8", "utf8s", "utf8p", "utf8ps"])),
    }
}

/// How the text is decoded: `s` leaves out what is invalid instead of giving nothing, `p` accepts what is encoded with more bytes than
/// necessary.
fn json<'c>(sample: Sample<'c>, args: &'c [Value], _: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let (utf8, skip, overlong) = match args[0].bytes() {
        b"utf8" => (true, false, false),
        b"utf8s" => (true, true, false),
        b"utf8p" => (true, false, true),
        b"utf8ps" => (true, true, true),
        _ => (false, false, false),
    };
    let mut out = Vec::with_capacity(text.len() + 8);
    let mut rest = &text[..];
    while let [first, ..] = *rest {
        let (value, length) = match utf8 {
            true => decode(rest, overlong),
            false => (Some(u32::from(first)), 1),
        };
        rest = &rest[length..];
        match value {
            Some(value) => escape(value, &mut out),
            None if skip => {}
            None => return None,
        }
    }
    Some(Sample::Str(Cow::Owned(out)))
}

fn escape(value: u32, out: &mut Vec<u8>) {
    let short = match char::from_u32(value) {
        Some('"') => "\\\"",
        Some('\\') => "\\\\",
        Some('/') => "\\/",
        Some('\u{8}') => "\\b",
        Some('\u{c}') => "\\f",
        Some('\r') => "\\r",
        Some('\n') => "\\n",
        Some('\t') => "\\t",
        Some(' '..='~') => return out.push(value as u8),
        _ => return out.extend_from_slice(format!("\\u{value:04x}").as_bytes()),
    };
    out.extend_from_slice(short.as_bytes());
}

/// One character of UTF-8 in the old form of up to six bytes: its value, if it is one that JSON's `\u` can write, and its length.
fn decode(bytes: &[u8], overlong: bool) -> (Option<u32>, usize) {
    let first = bytes[0];
    let (length, bits, least) = match first {
        0..=0x7f => return (Some(first.into()), 1),
        0xc0..=0xdf => (2, first & 0x1f, 0x80),
        0xe0..=0xef => (3, first & 0x0f, 0x800),
        0xf0..=0xf7 => (4, first & 0x07, 0x1_0000),
        0xf8..=0xfb => (5, first & 0x03, 0x20_0000),
        0xfc..=0xfd => (6, first & 0x01, 0x400_0000),
        _ => return (None, 1),
    };
    let mut value = u32::from(bits);
    for at in 1..length {
        match bytes.get(at) {
            Some(byte @ 0x80..=0xbf) => value = value << 6 | u32::from(byte & 0x3f),
            _ => return (None, at),
        }
    }
    let valid = (overlong || value >= least) && !matches!(value, 0xd800..=0xdfff | 0xfffe.. );
    (valid.then_some(value), length)
}
