//! Regular expressions, and texts with `\0` to `\9` that stand for what their groups matched.

use regex::bytes::{Captures, Regex, RegexBuilder, RegexSet, RegexSetBuilder};

use crate::problem::RuleError;

/// How much memory one compiled expression may take, in bytes; a larger one is refused when the configuration is read.
const COMPILED_MAX: usize = 4 << 20;

/// Compiles an expression that matches bytes. The syntax is the `regex` crate's: Perl's without look-around and
/// back-references, so that matching takes linear time whatever a client sends.
pub(crate) fn regex(text: &str, ignore_case: bool) -> Result<Regex, RuleError> {
    RegexBuilder::new(text).unicode(false).case_insensitive(ignore_case).size_limit(COMPILED_MAX).build().map_err(
        |error| {
            let why = match &error {
                regex::Error::CompiledTooBig(_) => "it is too complex".to_owned(),
                other => other.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
            };
            RuleError::new(format!("the regular expression '{text}' is invalid: {why}"))
        },
    )
}

/// Expressions that were compiled before, to be matched in one pass. `None`: together they are too complex.
pub(crate) fn regex_set(texts: &[&str], ignore_case: bool) -> Option<RegexSet> {
    let mut builder = RegexSetBuilder::new(texts);
    builder.unicode(false).case_insensitive(ignore_case).size_limit(COMPILED_MAX).build().ok()
}

/// A text with references to groups.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pieces: Vec<SubstitutionPiece>,
}

#[derive(Clone, Debug)]
enum SubstitutionPiece {
    Text(Vec<u8>),
    Group(usize),
}

impl Template {
    /// Reads `\0`…`\9`, `\\` and `\xHH`; any other escaped byte is itself.
    pub fn new(text: &[u8]) -> Template {
        let mut pieces = Vec::new();
        let mut plain = Vec::new();
        let mut rest = text;
        while let [byte, tail @ ..] = rest {
            rest = tail;
            match (byte, tail) {
                (b'\\', [digit @ b'0'..=b'9', after @ ..]) => {
                    if !plain.is_empty() {
                        pieces.push(SubstitutionPiece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(SubstitutionPiece::Group(usize::from(digit - b'0')));
                    rest = after;
                }
                (b'\\', [b'x', high, low, after @ ..]) if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                    plain.push(hex_digit(*high) << 4 | hex_digit(*low));
                    rest = after;
                }
                (b'\\', [escaped, after @ ..]) => {
                    plain.push(*escaped);
                    rest = after;
                }
                _ => plain.push(*byte),
            }
        }
        if !plain.is_empty() {
            pieces.push(SubstitutionPiece::Text(plain));
        }
        Template { pieces }
    }

    /// Appends the text with the groups filled in.
    pub fn write(&self, captures: &Captures<'_>, out: &mut Vec<u8>) {
        for piece in &self.pieces {
            match piece {
                SubstitutionPiece::Text(text) => out.extend_from_slice(text),
                SubstitutionPiece::Group(number) => {
                    out.extend_from_slice(captures.get(*number).map_or(&[][..], |group| group.as_bytes()))
                }
            }
        }
    }
}

fn hex_digit(digit: u8) -> u8 {
    (digit as char).to_digit(16).unwrap_or(0) as u8
}

/// `regsub`: an expression, what to put in its place, and how often.
#[derive(Clone, Debug)]
pub(crate) struct Substitution {
    pub regex: Regex,
    pub template: Template,
    pub all: bool,
}

impl Substitution {
    /// The text with the matches replaced; `None` when nothing matched.
    pub fn apply(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let mut done = 0;
        for captures in self.regex.captures_iter(text) {
            let Some(whole) = captures.get(0) else {
                break;
            };
            out.extend_from_slice(&text[done..whole.start()]);
            self.template.write(&captures, &mut out);
            done = whole.end();
            if !self.all {
                break;
            }
        }
        if out.is_empty() && done == 0 {
            return None;
        }
        out.extend_from_slice(&text[done..]);
        Some(out)
    }
}
