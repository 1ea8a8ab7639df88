//! A file as lines of words: comments, quotes, parameters (keepalived.conf(5), "Quoted strings" and "Parameter substitution").

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::convert::ConvertError;
use crate::convert::service::Table;

/// Most bytes that all lines may have when their parameters are replaced.
const EXPANDED_BYTES_MAX: usize = 2 * crate::convert::MAX_CONVERT_BYTES;
/// Longest line when its parameters are replaced, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024;
/// How often the parameters of a line are replaced, since what replaces them may have some too.
const REPLACED_MAX: usize = 16;

/// What a line consists of.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum KeepalivedToken {
    Word(String),
    Open,
    Close,
}

/// The lines that say something, with their numbers. What is not carried over already here becomes a remark.
pub(super) fn lines(text: &str, table: &mut Table) -> Result<Vec<(u32, Vec<KeepalivedToken>)>, ConvertError> {
    let mut parameters: BTreeMap<String, String> = BTreeMap::new();
    let mut lines = Vec::new();
    let mut expanded = 0;
    let mut numbered = (1..).zip(text.lines());
    while let Some((line, text)) = numbered.next() {
        let trimmed = text.trim();
        if let Some((name, value)) = definition(trimmed) {
            if value.ends_with('\\') {
                let last = numbered.by_ref().find(|(_, text)| !text.trim_end().ends_with('\\'));
                let last = last.map_or_else(|| "its end".into(), |(line, _)| format!("line {line}"));
                let why =
                    format!("not read, up to {last}: multi-line definitions must be written out where they are used");
                table.remark(line, trimmed, why);
            } else {
                parameters.insert(name.to_owned(), value.to_owned());
            }
            continue;
        }
        if trimmed.starts_with('~') {
            table.remark(line, trimmed, "not read: lines repeated with ~SEQ or ~LST must be written out");
            continue;
        }
        let replaced = replace(trimmed, &parameters);
        let replaced = replaced.ok_or_else(|| too_long(line, "this line", LINE_BYTES_MAX))?;
        expanded += replaced.len();
        if expanded > EXPANDED_BYTES_MAX {
            return Err(too_long(line, "the file up to here", EXPANDED_BYTES_MAX));
        }
        let tokens = tokens(&replaced);
        if !tokens.is_empty() {
            lines.push((line, tokens));
        }
    }
    Ok(lines)
}

fn too_long(line: u32, what: &str, most: usize) -> ConvertError {
    ConvertError::at(line, format!("with parameters replaced, {what} is longer than {most} bytes"))
}

/// `$NAME=VALUE`.
fn definition(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.strip_prefix('$')?.split_once('=')?;
    is_name(name).then_some((name, value.trim()))
}

fn is_name(text: &str) -> bool {
    text.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
        && text.chars().all(|char| char.is_ascii_alphanumeric() || char == '_')
}

/// The line with `${NAME}` and `$NAME` replaced, as long as there is something to replace. `None`: it gets too long.
fn replace(text: &str, parameters: &BTreeMap<String, String>) -> Option<String> {
    let mut text = text.to_owned();
    for _ in 0..REPLACED_MAX {
        let Some(next) = replace_once(&text, parameters) else { break };
        if next.len() > LINE_BYTES_MAX {
            return None;
        }
        text = next;
    }
    (text.len() <= LINE_BYTES_MAX).then_some(text)
}

/// `None`: there is nothing to replace.
fn replace_once(text: &str, parameters: &BTreeMap<String, String>) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut is_changed = false;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let (name, length) = match rest.strip_prefix("${").and_then(|rest| rest.split_once('}')) {
            Some((name, _)) => (name, name.len() + 3),
            None => {
                let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                (&rest[1..end], end)
            }
        };
        match parameters.get(name) {
            Some(value) => {
                out.push_str(value);
                rest = &rest[length..];
                is_changed = true;
            }
            None => {
                out.push('$');
                rest = &rest[1..];
            }
        }
        // One pass of a line that grows is bounded too.
        if out.len() > LINE_BYTES_MAX {
            break;
        }
    }
    out.push_str(rest);
    is_changed.then_some(out)
}

/// Words, and the brackets of blocks.
fn tokens(line: &str) -> Vec<KeepalivedToken> {
    let mut tokens = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '#' | '!' => break,
            '"' | '\'' => quoted(char, &mut chars, word.get_or_insert_default()),
            '\\' => escaped(&mut chars, word.get_or_insert_default()),
            // A parameter that is not defined stays as it is.
            '$' if chars.peek() == Some(&'{') => {
                let word = word.get_or_insert_default();
                word.push('$');
                for char in chars.by_ref() {
                    word.push(char);
                    if char == '}' {
                        break;
                    }
                }
            }
            '{' | '}' => {
                tokens.extend(word.take().map(KeepalivedToken::Word));
                tokens.push(if char == '{' { KeepalivedToken::Open } else { KeepalivedToken::Close });
            }
            char if char.is_whitespace() => tokens.extend(word.take().map(KeepalivedToken::Word)),
            char => word.get_or_insert_default().push(char),
        }
    }
    tokens.extend(word.map(KeepalivedToken::Word));
    tokens
}

/// Up to the closing quote, or to the end of the line.
fn quoted(quote: char, chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    while let Some(char) = chars.next() {
        match char {
            char if char == quote => return,
            '\\' => escaped(chars, word),
            char => word.push(char),
        }
    }
}

/// What stands behind a backslash.
fn escaped(chars: &mut Peekable<Chars<'_>>, word: &mut String) {
    let Some(char) = chars.next() else { return word.push('\\') };
    word.push(match char {
        'a' => '\x07',
        'b' => '\x08',
        'E' => '\x1b',
        'f' => '\x0c',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'v' => '\x0b',
        'c' => chars.next().map_or('\\', |char| char::from_u32(char as u32 & 0x1f).unwrap_or(char)),
        'x' => number(chars, 16, usize::MAX, 0),
        '0'..='7' => number(chars, 8, 2, char.to_digit(8).unwrap_or_default()),
        char => char,
    });
}

/// A character by its number, of which at most so many more digits follow.
fn number(chars: &mut Peekable<Chars<'_>>, radix: u32, most: usize, mut number: u32) -> char {
    for _ in 0..most {
        let Some(digit) = chars.peek().and_then(|char| char.to_digit(radix)) else { break };
        chars.next();
        number = (number * radix + digit) & 0xff;
    }
    char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        let lines = lines(text, &mut Table::default()).expect("it is short");
        let show = |token| match token {
            KeepalivedToken::Word(word) => word,
            KeepalivedToken::Open => "{".into(),
            KeepalivedToken::Close => "}".into(),
        };
        lines.into_iter().flat_map(|(_, tokens)| tokens).map(show).collect()
    }

    #[test]
    fn words_are_as_in_the_manual() {
        assert_eq!(words("a b # c\n! d\n\te{ f }"), ["a", "b", "e", "{", "f", "}"]);
        assert_eq!(words(r#"abcd" efg h jkl "mnop"#), ["abcd efg h jkl mnop"]);
        assert_eq!(words(r#"abcd "efg h jkl" mnop"#), ["abcd", "efg h jkl", "mnop"]);
        assert_eq!(words(r#""a # ! {" 'b "c"'"#), ["a # ! {", "b \"c\""]);
        assert_eq!(words(r#"\"x\\ "\x41\101\cA\t|""#), ["\"x\\", "AA\u{1}\t|"]);
    }

    #[test]
    fn parameters_are_replaced_when_they_are_used() {
        let text = "$BASE=10.2.${SUB}\n$SUB=0\n${BASE}.100\n$SUB=10\n${BASE}.100 $SUB ${UNKNOWN} $SUB.1\n";
        assert_eq!(words(text), ["10.2.0.100", "10.2.10.100", "10", "${UNKNOWN}", "$SUB.1"]);
    }

    #[test]
    fn parameters_that_grow_end() {
        let doubling: String = (0..40).map(|n| format!("$A{n}=${{A{0}}}${{A{0}}}\n", n + 1)).collect();
        let refused = lines(&format!("{doubling}$A40=0123456789\n${{A20}}\n"), &mut Table::default());
        assert!(refused.is_err() || refused.is_ok_and(|lines| lines.iter().all(|(_, tokens)| tokens.len() < 4096)));
        let refused = lines("$A=${A}${A}x\n${A}\n", &mut Table::default());
        assert!(refused.is_err());
    }

    #[test]
    fn what_is_repeated_or_has_several_lines_is_told() {
        let mut table = Table::default();
        let text = "$RS= \\\nreal_server 1.2.3.4 { \\\n}\nnext\n~SEQ(A, 1, 3) x ${A}\n";
        let lines = lines(text, &mut table).expect("it is short");
        assert_eq!(lines, [(4, vec![KeepalivedToken::Word("next".into())])]);
        assert_eq!(table.remarks.iter().map(|remark| remark.line).collect::<Vec<_>>(), [1, 5]);
    }
}
