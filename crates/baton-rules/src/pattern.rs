//! Matching a sample against patterns (configuration manual 7.1.1 to 7.1.6).

use std::cmp::Ordering;
use std::fmt;
use std::net::IpAddr;

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexSet};

use crate::problem::RuleError;
use crate::reference::{self, AddressPattern};
use crate::sample::{Sample, Type};
use crate::substitute;

/// `-m`, and the endings of ACL criteria.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Method {
    Found,
    Bool,
    Int,
    Ip,
    Str,
    Beg,
    End,
    Sub,
    Dir,
    Dom,
    Len,
    Reg,
    Bin,
}

pub(crate) const METHODS: &[(&str, Method)] = &[
    ("found", Method::Found),
    ("bool", Method::Bool),
    ("int", Method::Int),
    ("ip", Method::Ip),
    ("str", Method::Str),
    ("beg", Method::Beg),
    ("end", Method::End),
    ("sub", Method::Sub),
    ("dir", Method::Dir),
    ("dom", Method::Dom),
    ("len", Method::Len),
    ("reg", Method::Reg),
    ("bin", Method::Bin),
];

impl Method {
    /// What a sample of this type is matched as when the rule does not say.
    pub fn default_for(kind: Type) -> Option<Method> {
        match kind {
            Type::Bool => Some(Method::Bool),
            Type::Int => Some(Method::Int),
            Type::Ip => Some(Method::Ip),
            Type::Str | Type::Method => Some(Method::Str),
            Type::Bin | Type::Any => None,
        }
    }

    /// Its word after `-m`.
    pub fn word(self) -> &'static str {
        METHODS.iter().find(|(_, method)| *method == self).map_or("", |(word, _)| word)
    }

    pub const fn needs(self) -> Type {
        match self {
            Method::Found => Type::Any,
            Method::Bool => Type::Bool,
            Method::Int => Type::Int,
            Method::Ip => Type::Ip,
            Method::Bin => Type::Bin,
            _ => Type::Str,
        }
    }

    /// Whether it can match samples of this type. A boolean is read from text through a number.
    pub fn takes(self, kind: Type) -> bool {
        kind.casts_to(self.needs())
    }
}

/// What a sample is compared with.
#[derive(Clone, Debug)]
pub(crate) enum Patterns {
    Found,
    Bool,
    Ranges(Vec<Range>),
    Lengths(Vec<Range>),
    Networks(Vec<AddressPattern>),
    /// Sorted, so that long lists are searched quickly.
    Exact {
        sorted: Vec<Box<[u8]>>,
        ignore_case: bool,
    },
    Text {
        how: Method,
        list: Vec<Box<[u8]>>,
        ignore_case: bool,
    },
    /// Parts of the text, looked for in one pass.
    Parts(AhoCorasick),
    Regexes(Vec<Regex>),
    /// Many expressions, looked for in one pass.
    RegexSet(RegexSet),
}

/// Fewer expressions are faster one by one.
const REGEX_SET_MIN: usize = 4;

/// A range of integers, both ends included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Range {
    low: i64,
    high: i64,
}

/// Reads patterns; the position of the one at fault comes with it.
pub(crate) struct Reader {
    method: Method,
    ignore_case: bool,
    operator: Operator,
    patterns: Patterns,
}

#[derive(Clone, Copy)]
enum Operator {
    Eq,
    Ge,
    Gt,
    Le,
    Lt,
}

impl Reader {
    pub fn new(method: Method, ignore_case: bool) -> Reader {
        let patterns = match method {
            Method::Found => Patterns::Found,
            Method::Bool => Patterns::Bool,
            Method::Int => Patterns::Ranges(Vec::new()),
            Method::Len => Patterns::Lengths(Vec::new()),
            Method::Ip => Patterns::Networks(Vec::new()),
            Method::Str | Method::Bin => Patterns::Exact { sorted: Vec::new(), ignore_case },
            Method::Reg => Patterns::Regexes(Vec::new()),
            how => Patterns::Text { how, list: Vec::new(), ignore_case },
        };
        Reader { method, ignore_case, operator: Operator::Eq, patterns }
    }

    /// Adds one pattern, and gives it as the runtime API shows it; `None` of an operator. Operators before numbers (`gt 5`) hold for the
    /// numbers after them.
    pub fn add(&mut self, text: &str) -> Result<Option<String>, RuleError> {
        match &mut self.patterns {
            Patterns::Found | Patterns::Bool => {}
            Patterns::Ranges(ranges) | Patterns::Lengths(ranges) => {
                let operator = match text {
                    "eq" => Some(Operator::Eq),
                    "ge" => Some(Operator::Ge),
                    "gt" => Some(Operator::Gt),
                    "le" => Some(Operator::Le),
                    "lt" => Some(Operator::Lt),
                    _ => None,
                };
                match operator {
                    Some(operator) => {
                        self.operator = operator;
                        return Ok(None);
                    }
                    None => {
                        let range = Range::parse(text, self.operator)?;
                        ranges.push(range);
                        return Ok(Some(range.to_string()));
                    }
                }
            }
            Patterns::Networks(networks) => networks.push(reference::address(text)?),
            Patterns::Exact { sorted, .. } if self.method == Method::Bin => sorted.push(hexadecimal(text)?.into()),
            Patterns::Exact { sorted, .. } => sorted.push(text.as_bytes().into()),
            Patterns::Text { list, .. } => list.push(text.as_bytes().into()),
            Patterns::Regexes(regexes) => regexes.push(substitute::regex(text, self.ignore_case)?),
            Patterns::Parts(_) | Patterns::RegexSet(_) => unreachable!("they are made when all patterns were read"),
        }
        Ok(Some(text.to_owned()))
    }

    pub fn finish(mut self) -> Patterns {
        if let Patterns::Exact { sorted, ignore_case } = &mut self.patterns {
            sorted.sort_unstable_by(|left, right| compare(left, right, *ignore_case));
            sorted.dedup();
        }
        let joined = match &self.patterns {
            Patterns::Text { how: Method::Sub, list, ignore_case } if list.len() > 1 || *ignore_case => {
                AhoCorasick::builder().ascii_case_insensitive(*ignore_case).build(list).ok().map(Patterns::Parts)
            }
            Patterns::Regexes(list) if list.len() >= REGEX_SET_MIN => {
                let texts: Vec<&str> = list.iter().map(Regex::as_str).collect();
                substitute::regex_set(&texts, self.ignore_case).map(Patterns::RegexSet)
            }
            _ => None,
        };
        joined.unwrap_or(self.patterns)
    }
}

impl Patterns {
    /// Whether nothing can match because no pattern was given.
    pub fn is_empty(&self) -> bool {
        match self {
            Patterns::Found | Patterns::Bool => false,
            Patterns::Ranges(list) | Patterns::Lengths(list) => list.is_empty(),
            Patterns::Networks(list) => list.is_empty(),
            Patterns::Exact { sorted, .. } => sorted.is_empty(),
            Patterns::Text { list, .. } => list.is_empty(),
            Patterns::Parts(_) | Patterns::RegexSet(_) => false,
            Patterns::Regexes(list) => list.is_empty(),
        }
    }

    /// Whether the sample matches one of them.
    pub fn matches(&self, sample: Sample<'_>) -> bool {
        match self {
            Patterns::Found => true,
            Patterns::Bool => sample.into_bool().unwrap_or(false),
            Patterns::Ranges(ranges) => sample.into_int().is_some_and(|value| holds(ranges, value)),
            Patterns::Lengths(ranges) => holds(ranges, sample.into_text().len() as i64),
            Patterns::Networks(networks) => {
                sample.into_ip().is_some_and(|address: IpAddr| networks.iter().any(|network| network.holds(address)))
            }
            Patterns::Exact { sorted, ignore_case } => {
                let text = match sample {
                    Sample::Bin(bytes) => bytes,
                    other => other.into_text(),
                };
                sorted.binary_search_by(|pattern| compare(pattern, &text, *ignore_case)).is_ok()
            }
            Patterns::Text { how, list, ignore_case } => {
                let text = sample.into_text();
                list.iter().any(|pattern| text_matches(*how, &text, pattern, *ignore_case))
            }
            Patterns::Regexes(regexes) => {
                let text = sample.into_text();
                regexes.iter().any(|regex| regex.is_match(&text))
            }
            Patterns::Parts(parts) => parts.is_match(&*sample.into_text()),
            Patterns::RegexSet(set) => set.is_match(&sample.into_text()),
        }
    }
}

fn holds(ranges: &[Range], value: i64) -> bool {
    ranges.iter().any(|range| range.holds(value))
}

impl fmt::Display for Range {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.low, self.high) {
            (low, high) if low == high => write!(out, "{low}"),
            (i64::MIN, i64::MAX) => write!(out, ":"),
            (i64::MIN, high) => write!(out, ":{high}"),
            (low, i64::MAX) => write!(out, "{low}:"),
            (low, high) => write!(out, "{low}:{high}"),
        }
    }
}

/// The bytes of `-m bin`.
pub(crate) fn hexadecimal(text: &str) -> Result<Vec<u8>, RuleError> {
    if !text.len().is_multiple_of(2) {
        return Err(RuleError::new("an even number of hex digit is expected"));
    }
    if let Some(other) = text.chars().find(|char| !char.is_ascii_hexdigit()) {
        return Err(RuleError::new(format!("an hex digit is expected (found '{other}')")));
    }
    let digits = text.as_bytes().chunks(2).filter_map(|pair| std::str::from_utf8(pair).ok());
    Ok(digits.filter_map(|pair| u8::from_str_radix(pair, 16).ok()).collect())
}

impl Range {
    /// A number or a range that is no argument of an operator.
    pub fn of(text: &str) -> Result<Range, RuleError> {
        Range::parse(text, Operator::Eq)
    }

    /// The number, if it is one.
    pub fn single(self) -> Option<i64> {
        (self.low == self.high).then_some(self.low)
    }

    pub fn holds(self, value: i64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// `5`, `1:5`, `1-5`, `:5` or `5:`; an operator in front applies to a single number. As in HAProxy, the first `:` or `-` stands between
    /// the ends of a range, so that `-5` is every number up to 5.
    fn parse(text: &str, operator: Operator) -> Result<Range, RuleError> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|_| !text.starts_with('+'));
        if let Some(at) = text.find([':', '-']) {
            let (low, high) = (&text[..at], &text[at + 1..]);
            let end = |text: &str, open: i64| if text.is_empty() { Some(open) } else { number(text) };
            let ends = end(low, i64::MIN).zip(end(high, i64::MAX)).filter(|_| text.len() > 1);
            return match ends {
                Some((low, high)) if low <= high => Ok(Range { low, high }),
                _ => Err(RuleError::new(format!("'{text}' is not a valid number range"))
                    .hint("write the lower number first; only the upper one may be negative")),
            };
        }
        let value = number(text).ok_or_else(|| {
            RuleError::new(format!("'{text}' is not a number"))
                .hint("use a number, a range such as 1:5, or eq, ge, gt, le or lt before a number")
        })?;
        Ok(match operator {
            Operator::Eq => Range { low: value, high: value },
            Operator::Ge => Range { low: value, high: i64::MAX },
            Operator::Gt => Range { low: value.saturating_add(1), high: i64::MAX },
            Operator::Le => Range { low: i64::MIN, high: value },
            Operator::Lt => Range { low: i64::MIN, high: value.saturating_sub(1) },
        })
    }
}

fn compare(left: &[u8], right: &[u8], ignore_case: bool) -> Ordering {
    match ignore_case {
        false => left.cmp(right),
        true => left.iter().map(u8::to_ascii_lowercase).cmp(right.iter().map(u8::to_ascii_lowercase)),
    }
}

fn same(left: &[u8], right: &[u8], ignore_case: bool) -> bool {
    if ignore_case { left.eq_ignore_ascii_case(right) } else { left == right }
}

fn text_matches(how: Method, text: &[u8], pattern: &[u8], ignore_case: bool) -> bool {
    match how {
        Method::Beg => text.get(..pattern.len()).is_some_and(|start| same(start, pattern, ignore_case)),
        Method::End => text.len().checked_sub(pattern.len()).is_some_and(|at| same(&text[at..], pattern, ignore_case)),
        Method::Sub if ignore_case => {
            pattern.is_empty() || text.windows(pattern.len()).any(|part| part.eq_ignore_ascii_case(pattern))
        }
        Method::Sub => memchr::memmem::find(text, pattern).is_some(),
        Method::Dir => between(text, pattern, b"/?", ignore_case),
        Method::Dom => between(text, pattern, b"/?.:", ignore_case),
        _ => same(text, pattern, ignore_case),
    }
}

/// Whether the pattern stands in the text with a delimiter or an end on each side; its own outer delimiters do not count.
fn between(text: &[u8], pattern: &[u8], delimiters: &[u8], ignore_case: bool) -> bool {
    let is_delimiter = |byte: &u8| delimiters.contains(byte);
    let start = pattern.iter().position(|byte| !is_delimiter(byte)).unwrap_or(pattern.len());
    let end = pattern.iter().rposition(|byte| !is_delimiter(byte)).map_or(start, |last| last + 1);
    let pattern = &pattern[start..end];
    if pattern.is_empty() {
        return false;
    }
    let ends_at = |at: usize| text.get(at).is_none_or(is_delimiter);
    (0..text.len()).any(|at| {
        (at == 0 || is_delimiter(&text[at - 1]))
            && ends_at(at + pattern.len())
            && text.get(at..at + pattern.len()).is_some_and(|part| same(part, pattern, ignore_case))
    })
}
