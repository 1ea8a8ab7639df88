//! Arguments of fetches and converters: `name(arg,arg,…)` read into typed values (configuration manual 2.2 and 7.3).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use baton_model::UserList;

use crate::converter::{Digest, ExchangeCondition, FieldPath, JwtKey};
use crate::problem::RuleError;
use crate::reference::PatternUse;
use crate::substitute::Substitution;
use crate::variable::{SetCondition, VariableName};

/// What an argument must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ArgKind {
    /// An integer.
    Int,
    /// Any text.
    Str,
    /// An IPv4 address.
    Ipv4,
    /// An IPv6 address.
    Ipv6,
    /// An IPv4 netmask, as an address or a prefix length.
    Mask4,
    /// An IPv6 prefix length or mask.
    Mask6,
    /// The name of a variable.
    Variable,
    /// An integer or the name of a variable.
    IntOrVariable,
    /// A text, or the name of a variable with one.
    StrOrVariable,
    /// One of these words.
    Word(&'static [&'static str]),
    /// The name of a `userlist` section.
    Users,
    /// The name of a frontend; the proxy itself where it is left out.
    Frontend,
    /// The name of a backend; the proxy itself where it is left out.
    Backend,
    /// The name of a server, behind that of its backend and a slash where it is another one's.
    Server,
    /// The name of a stick table; that of the proxy itself where it is left out.
    Table,
    /// The name of a stick table, in the place of the one that is tracked.
    OtherTable,
    /// The name of a file that is a map.
    Map,
    /// `stdout`, `stderr` or the name of a ring.
    Sink,
}

/// One argument of a row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arg {
    pub kind: ArgKind,
    pub required: bool,
}

impl Arg {
    pub const fn req(kind: ArgKind) -> Arg {
        Arg { kind, required: true }
    }

    pub const fn opt(kind: ArgKind) -> Arg {
        Arg { kind, required: false }
    }
}

/// An argument as evaluation wants it.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Absent,
    Int(i64),
    Str(Box<[u8]>),
    Ip(IpAddr),
    Mask4(u32),
    Mask6(u128),
    Variable(VariableName),
    Substitution(Box<Substitution>),
    Users(Arc<UserList>),
    /// The names of a backend and a server.
    Server(Box<str>, Box<str>),
    Map(PatternUse),
    Digest(Digest),
    JwtKey(Box<JwtKey>),
    FieldPath(Box<FieldPath>),
    SetCondition(SetCondition),
    Condition(Box<ExchangeCondition>),
}

/// Checks the arguments of a row further than their types, and may replace them.
pub(crate) type Check = fn(&mut [Value]) -> Result<(), RuleError>;

impl Value {
    pub fn int(&self) -> Option<i64> {
        if let Value::Int(value) = self { Some(*value) } else { None }
    }

    /// The text of a name; `None` when absent.
    pub fn name(&self) -> Option<&str> {
        if let Value::Str(bytes) = self { std::str::from_utf8(bytes).ok() } else { None }
    }

    /// The text; empty when absent.
    pub fn bytes(&self) -> &[u8] {
        if let Value::Str(bytes) = self { bytes } else { &[] }
    }

    pub fn is_absent(&self) -> bool {
        matches!(self, Value::Absent)
    }
}

/// Splits `(a,"b,c",d)` at the start of `text`; gives the arguments and what follows. Without a parenthesis: none.
///
/// Quotes protect blanks, commas and parentheses. Outside single quotes `\\ \" \' \r \n \t` and an escaped blank are
/// replaced; any other backslash stays, so that regular expressions can be written.
pub(crate) fn split(text: &str) -> Result<(Vec<String>, &str), RuleError> {
    let Some(inner) = text.strip_prefix('(') else {
        return Ok((Vec::new(), text));
    };
    let mut args = vec![String::new()];
    let mut quote = None;
    let mut chars = inner.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let current = args.len() - 1;
        match (char, quote) {
            (')', None) => return Ok((args, &inner[at + 1..])),
            (',', None) => args.push(String::new()),
            ('"' | '\'', None) => quote = Some(char),
            (_, Some(open)) if char == open => quote = None,
            ('\\', None | Some('"')) => {
                let escaped = chars.peek().and_then(|&(_, next)| match next {
                    'r' => Some('\r'),
                    'n' => Some('\n'),
                    't' => Some('\t'),
                    '\\' | '"' | '\'' | ' ' => Some(next),
                    _ => None,
                });
                args[current].push(escaped.unwrap_or('\\'));
                if escaped.is_some() {
                    chars.next();
                }
            }
            _ => args[current].push(char),
        }
    }
    Err(RuleError::new("a closing parenthesis is missing").hint("quote an argument that contains ')', ',' or spaces"))
}

/// Checks the arguments of `what` (say "fetch 'hdr'") against its row.
pub(crate) fn typed(what: &str, rows: &[Arg], given: &[String]) -> Result<Vec<Value>, RuleError> {
    if given.len() > rows.len() && !(rows.is_empty() && given == [""]) {
        return Err(match rows.len() {
            0 => RuleError::new(format!("{what} takes no argument")),
            most => RuleError::new(format!("{what} takes at most {most} arguments, not {}", given.len())),
        });
    }
    let mut values = Vec::with_capacity(rows.len());
    for (nth, row) in rows.iter().enumerate() {
        let text = given.get(nth).map(String::as_str);
        values.push(match text {
            None if row.required => return Err(RuleError::new(format!("{what} needs argument {}", nth + 1))),
            None => Value::Absent,
            Some("") if !row.required => Value::Absent,
            Some(text) => one(row.kind, text).map_err(|why| RuleError {
                message: format!("argument {} of {what}: {}", nth + 1, why.message),
                ..why
            })?,
        });
    }
    Ok(values)
}

fn one(kind: ArgKind, text: &str) -> Result<Value, RuleError> {
    let wrong = |wanted: &str| RuleError::new(format!("'{text}' is not {wanted}"));
    Ok(match kind {
        ArgKind::Int => Value::Int(text.parse().map_err(|_| wrong("an integer"))?),
        // Replaced by the section itself, which only the caller knows.
        ArgKind::Users | ArgKind::Map => Value::Str(text.as_bytes().into()),
        // Names are looked up when the whole configuration is known.
        ArgKind::Str
        | ArgKind::Frontend
        | ArgKind::Backend
        | ArgKind::Server
        | ArgKind::Table
        | ArgKind::OtherTable
        | ArgKind::Sink => Value::Str(text.as_bytes().into()),
        ArgKind::Ipv4 => Value::Ip(IpAddr::V4(text.parse().map_err(|_| wrong("an IPv4 address"))?)),
        ArgKind::Ipv6 => Value::Ip(IpAddr::V6(text.parse().map_err(|_| wrong("an IPv6 address"))?)),
        ArgKind::Mask4 => Value::Mask4(match text.parse::<u32>() {
            Ok(bits @ 0..=32) => prefix4(bits),
            _ => text.parse::<Ipv4Addr>().map_err(|_| wrong("an IPv4 mask"))?.into(),
        }),
        ArgKind::Mask6 => Value::Mask6(match text.parse::<u32>() {
            Ok(bits @ 0..=128) => prefix6(bits),
            _ => text.parse::<Ipv6Addr>().map_err(|_| wrong("an IPv6 mask"))?.into(),
        }),
        ArgKind::Variable => Value::Variable(VariableName::parse(text)?),
        ArgKind::IntOrVariable => match text.parse() {
            Ok(number) => Value::Int(number),
            Err(_) if text.contains('.') => Value::Variable(VariableName::parse(text)?),
            Err(_) => return Err(wrong("an integer or the name of a variable")),
        },
        // As in HAProxy, what can be the name of a variable is one.
        ArgKind::StrOrVariable => match VariableName::parse(text) {
            Ok(name) => Value::Variable(name),
            Err(_) => Value::Str(text.as_bytes().into()),
        },
        ArgKind::Word(words) => match words.contains(&text) {
            true => Value::Str(text.as_bytes().into()),
            false => return Err(wrong(&format!("one of {}", words.join(", "))).suggest(text, words.iter().copied())),
        },
    })
}

/// The IPv4 mask of a prefix length from 0 to 32.
pub(crate) fn prefix4(bits: u32) -> u32 {
    u32::MAX.checked_shl(32 - bits.min(32)).unwrap_or(0)
}

/// The IPv6 mask of a prefix length from 0 to 128.
pub(crate) fn prefix6(bits: u32) -> u128 {
    u128::MAX.checked_shl(128 - bits.min(128)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &[&str], rest: &str) {
        let (args, left) = split(text).expect("well formed");
        assert_eq!((args.iter().map(String::as_str).collect::<Vec<_>>(), left), (expected.to_vec(), rest), "{text}");
    }

    #[test]
    fn quotes_and_backslashes_as_in_haproxy() {
        check("", &[], "");
        check(",lower", &[], ",lower");
        check("()", &[""], "");
        check("(a,b),x", &["a", "b"], ",x");
        check("( a b )", &[" a b "], "");
        check(r#"("a,b)",'c"')"#, &["a,b)", "c\""], "");
        check(r#"("a\"b","a\.b")"#, &["a\"b", r"a\.b"], "");
        check(r#"("<\1>",\\0,'\\')"#, &[r"<\1>", r"\0", r"\\"], "");
        assert!(split("(a").is_err());
        assert!(split("(a\\").is_err());
    }

    #[test]
    fn masks() {
        assert_eq!((prefix4(0), prefix4(24), prefix4(32)), (0, 0xffff_ff00, u32::MAX));
        assert_eq!((prefix6(0), prefix6(128)), (0, u128::MAX));
    }
}
