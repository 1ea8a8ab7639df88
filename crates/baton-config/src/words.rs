//! A line to words (configuration manual, 2.1 to 2.3): quoting, escapes, comments and variables.
//!
//! Works on bytes, since a comment or a quoted text may hold anything; a word must be UTF-8 in the end.

use std::ops::Range;

/// Most words of a line, as in HAProxy.
pub const MAX_WORDS: usize = 64;

/// Room for the words of most lines, and for the bytes of most words.
const USUAL_WORDS: usize = 8;
const USUAL_BYTES: usize = 64;

/// Longest line after its variables are replaced, in bytes.
pub const MAX_LINE_BYTES: usize = 1024 * 1024;

/// One word and the bytes of the line it was made from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Token {
    /// Quotes and escapes resolved, variables replaced; `None`: it reads as it stands in the line, which most words do.
    resolved: Option<Box<str>>,
    /// Where it stands in the line, which is no longer than [`MAX_LINE_BYTES`].
    at: (u32, u32),
}

impl Token {
    fn new(resolved: Option<Box<str>>, at: Range<usize>) -> Token {
        Token { resolved, at: (at.start as u32, at.end as u32) }
    }

    /// Puts it elsewhere: a line that is no UTF-8 is shown as another text.
    pub(crate) fn shift(&mut self, to: impl FnOnce(Range<usize>) -> Range<usize>) {
        let at = to(self.at());
        self.at = (at.start as u32, at.end as u32);
    }

    /// Makes it read otherwise.
    pub(crate) fn set_text(&mut self, text: String) {
        self.resolved = Some(text.into());
    }

    /// Where it stands in the line.
    pub fn at(&self) -> Range<usize> {
        self.at.0 as usize..self.at.1 as usize
    }

    /// Its text, given the line that it was cut from.
    pub fn text<'a>(&'a self, line: &'a str) -> &'a str {
        match &self.resolved {
            Some(text) => text,
            None => line.get(self.at()).unwrap_or_default(),
        }
    }
}

/// A line that cannot be cut into words.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TokenError {
    /// Stable name.
    pub id: &'static str,
    /// The bytes at fault.
    pub at: Range<usize>,
    /// What is wrong.
    pub message: String,
}

impl TokenError {
    fn new(id: &'static str, at: Range<usize>, message: &str) -> TokenError {
        TokenError { id, at, message: message.into() }
    }
}

/// Cuts a line (without its end) into words. `variable` answers for the environment and the pseudo-variables.
pub fn split(line: &[u8], variable: &dyn Fn(&str) -> Option<String>) -> Result<Vec<Token>, TokenError> {
    if let Some(words) = plain(line) {
        return Ok(words);
    }
    let is_text = std::str::from_utf8(line).is_ok();
    let (words, word) = (Vec::with_capacity(USUAL_WORDS), Vec::with_capacity(USUAL_BYTES));
    let mut cutter = Lexer { line, is_text, at: 0, words, word, start: None, grown: 0 };
    cutter.run(variable)?;
    Ok(cutter.words)
}

/// The words of a line that reads as it stands, without quotes, escapes or comments, as most do; `None`: it has to be read byte by
/// byte.
fn plain(line: &[u8]) -> Option<Vec<Token>> {
    let mut words = Vec::with_capacity(USUAL_WORDS);
    let mut start = None;
    for (at, byte) in line.iter().enumerate() {
        match byte {
            b' ' | b'\t' => words.extend(start.take().map(|start| Token::new(None, start..at))),
            b'"' | b'\'' | b'\\' | b'#' | b'\r' | 0 | 0x80.. => return None,
            _ => {
                start.get_or_insert(at);
            }
        }
    }
    words.extend(start.map(|start| Token::new(None, start..line.len())));
    (words.len() <= MAX_WORDS).then_some(words)
}

struct Lexer<'a> {
    line: &'a [u8],
    /// Whether all of it is UTF-8: a comment need not be.
    is_text: bool,
    at: usize,
    words: Vec<Token>,
    word: Vec<u8>,
    /// Where the current word began; `None` between words. A pair of quotes begins a word, too.
    start: Option<usize>,
    /// Bytes that variables have added.
    grown: usize,
}

impl Lexer<'_> {
    fn run(&mut self, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), TokenError> {
        let mut weak: Option<usize> = None;
        while let Some(&byte) = self.line.get(self.at) {
            match byte {
                b'"' => {
                    self.begin();
                    weak = if weak.is_some() { None } else { Some(self.at) };
                    self.at += 1;
                }
                b'\'' if weak.is_none() => self.strong()?,
                b'\\' => self.escape()?,
                b'$' if weak.is_some() => self.variable(variable)?,
                b'#' if weak.is_none() => break,
                b'\r' if weak.is_none() && self.at + 1 == self.line.len() => break,
                b' ' | b'\t' if weak.is_none() => {
                    self.end()?;
                    self.at += 1;
                }
                _ => self.plain(weak.is_some()),
            }
        }
        if let Some(quote) = weak {
            return Err(TokenError::new("unmatched-quote", quote..self.line.len(), "unmatched quote"));
        }
        self.end()
    }

    fn begin(&mut self) {
        self.start.get_or_insert(self.at);
    }

    fn push(&mut self, byte: u8, taken: usize) {
        self.begin();
        self.word.push(byte);
        self.at += taken;
    }

    /// Takes everything up to the next byte that means something. The first one means nothing.
    fn plain(&mut self, weak: bool) {
        self.begin();
        let rest = &self.line[self.at..];
        let special = |&byte: &u8| match byte {
            b'"' | b'\\' => true,
            b'\'' | b'#' | b'\r' | b' ' | b'\t' => !weak,
            b'$' => weak,
            _ => false,
        };
        let length = 1 + rest[1..].iter().position(special).unwrap_or(rest.len() - 1);
        self.word.extend_from_slice(&rest[..length]);
        self.at += length;
    }

    fn end(&mut self) -> Result<(), TokenError> {
        let Some(start) = self.start.take() else { return Ok(()) };
        let at = start..self.at;
        if self.words.len() == MAX_WORDS {
            let message = format!("too many words, a line may have {MAX_WORDS}");
            return Err(TokenError { id: "too-many-words", at, message });
        }
        if self.word.contains(&0) {
            return Err(TokenError::new("nul-in-word", at, "an argument cannot contain a NUL character"));
        }
        let resolved = if self.is_text && self.line[at.clone()] == *self.word {
            None
        } else {
            match std::str::from_utf8(&self.word) {
                Ok(text) => Some(text.into()),
                Err(_) => return Err(TokenError::new("not-utf8", at, "an argument must be valid UTF-8")),
            }
        };
        self.words.push(Token::new(resolved, at));
        self.word.clear();
        Ok(())
    }

    fn strong(&mut self) -> Result<(), TokenError> {
        self.begin();
        let rest = &self.line[self.at + 1..];
        let Some(length) = rest.iter().position(|&byte| byte == b'\'') else {
            return Err(TokenError::new("unmatched-quote", self.at..self.line.len(), "unmatched quote"));
        };
        self.word.extend_from_slice(&rest[..length]);
        self.at += length + 2;
        Ok(())
    }

    /// Known escapes are resolved; before any other character the backslash stays.
    fn escape(&mut self) -> Result<(), TokenError> {
        match self.line.get(self.at + 1) {
            Some(&byte @ (b' ' | b'\\' | b'#' | b'\'' | b'"' | b'\t')) => self.push(byte, 2),
            Some(b'$') if self.start.is_some_and(|start| self.inside_weak(start)) => self.push(b'$', 2),
            Some(b'n') => self.push(b'\n', 2),
            Some(b'r') => self.push(b'\r', 2),
            Some(b't') => self.push(b'\t', 2),
            Some(b'x') => {
                let digits = self.line.get(self.at + 2..self.at + 4).and_then(|digits| {
                    let text = std::str::from_utf8(digits).ok().filter(|text| !text.starts_with(['+', '-']))?;
                    u8::from_str_radix(text, 16).ok()
                });
                let Some(byte) = digits else {
                    let at = self.at..(self.at + 4).min(self.line.len());
                    return Err(TokenError::new("bad-escape", at, "truncated or invalid hexadecimal sequence"));
                };
                self.push(byte, 4);
            }
            _ => self.push(b'\\', 1),
        }
        Ok(())
    }

    /// Whether the current position is inside double quotes: an odd number of unescaped ones since the word began.
    fn inside_weak(&self, start: usize) -> bool {
        let (mut inside, mut at) = (false, start);
        while at < self.at {
            match self.line[at] {
                b'\\' => at += 1,
                b'"' => inside = !inside,
                b'\'' if !inside => {
                    at += 1 + self.line[at + 1..].iter().position(|&byte| byte == b'\'').unwrap_or(0);
                }
                _ => {}
            }
            at += 1;
        }
        inside
    }

    /// `$NAME`, `${NAME}`, `${NAME-default}` or `${NAME[*]}`, and pseudo-variables such as `${.LINE}`.
    fn variable(&mut self, variable: &dyn Fn(&str) -> Option<String>) -> Result<(), TokenError> {
        let dollar = self.at;
        let braced = self.line.get(dollar + 1) == Some(&b'{');
        let mut at = dollar + 1 + usize::from(braced);
        let from = at;
        let pseudo = self.line.get(at) == Some(&b'.');
        if pseudo {
            at += 1;
        }
        if !self.line.get(at).is_some_and(|byte| byte.is_ascii_alphabetic() || *byte == b'_') {
            let message = "forbidden first char in environment variable name";
            return Err(TokenError::new("bad-variable", dollar..(at + 1).min(self.line.len()), message));
        }
        while self.line.get(at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            at += 1;
        }
        let name = String::from_utf8_lossy(&self.line[from..at]).into_owned();
        let mut default = None;
        let mut list = false;
        if braced {
            if self.line[at..].starts_with(b"[*]") {
                list = true;
                at += 3;
            } else if self.line.get(at) == Some(&b'-') {
                let length = self.line[at + 1..].iter().position(|&byte| byte == b'}').unwrap_or(0);
                default = Some(self.line[at + 1..at + 1 + length].to_vec());
                at += 1 + length;
            }
            if self.line.get(at) != Some(&b'}') {
                let message = "unmatched brace in environment variable name";
                return Err(TokenError::new("unmatched-brace", dollar..at.min(self.line.len()), message));
            }
            at += 1;
        }
        let value = variable(&name).map(String::into_bytes).or(default).unwrap_or_default();
        self.grown += value.len();
        if self.grown > MAX_LINE_BYTES {
            return Err(TokenError::new(
                "line-too-long",
                dollar..at,
                "the line is too long with its variables replaced",
            ));
        }
        self.begin();
        self.at = at;
        if !list {
            self.word.extend_from_slice(&value);
            return Ok(());
        }
        let mut parts = value.split(|byte| matches!(byte, b' ' | b'\t')).filter(|part| !part.is_empty());
        self.word.extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            self.end()?;
            self.start = Some(dollar);
            self.word.extend_from_slice(part);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: &str) {
        let variable = |name: &str| match name {
            "A" => Some("one".into()),
            "LIST" => Some("x y  z".into()),
            ".LINE" => Some("7".into()),
            _ => None,
        };
        let shown = match split(line.as_bytes(), &variable) {
            Ok(words) => words.iter().map(|word| format!("<{}>", word.text(line))).collect::<String>(),
            Err(fault) => format!("{} at {}", fault.id, fault.at.start),
        };
        assert_eq!(shown, expect, "{line}");
    }

    #[test]
    fn words_quotes_and_escapes() {
        check("  a\tb  c # d", "<a><b><c>");
        check("a#b", "<a>");
        check(r#""" b"#, "<><b>");
        check(r#"a"b c"'d e'f"#, "<ab cd ef>");
        check(r"a\ b\#c \\ \x41\n", "<a b#c><\\><A\n>");
        check(r#"'a\n$A' "x\zb \"q\" \' \$A""#, r#"<a\n$A><x\zb "q" ' $A>"#);
        check(r"a\$b c\", r"<a\$b><c\>");
        check("a b\r", "<a><b>");
        check(r#"a "b"#, "unmatched-quote at 2");
        check("a 'b", "unmatched-quote at 2");
        check(r"a \x4", "bad-escape at 2");
        check(r"a \x+4", "bad-escape at 2");
        check(r"\x00", "nul-in-word at 0");
    }

    #[test]
    fn only_words_that_read_otherwise_have_a_text_of_their_own() {
        let owned = |line: &[u8]| -> Vec<bool> {
            split(line, &|_| None).unwrap().iter().map(|word| word.resolved.is_some()).collect()
        };
        assert_eq!(owned("é b \"c\" d\\ e 'f g' h\r".as_bytes()), [false, false, true, true, true, false]);
        // Where a comment is no text, the line's text is not its bytes.
        assert_eq!(owned(b"a b # \xff"), [true, true]);
    }

    #[test]
    fn variables() {
        check(r#"$A "$A-${A}" ${A}"#, "<$A><one-one><${A}>");
        check(r#""${B-x y}" "${B-}" "${A-x}" "$B""#, "<x y><><one><>");
        check(r#""1${LIST[*]}2" "${LIST}""#, "<1x><y><z2><x y  z>");
        check(r#""${.LINE}""#, "<7>");
        check(r#""$1""#, "bad-variable at 1");
        check(r#""${}""#, "bad-variable at 1");
        check(r#""${A""#, "unmatched-brace at 1");
        check(r#""${A B}""#, "unmatched-brace at 1");
    }

    #[test]
    fn the_number_of_words_is_bounded() {
        assert_eq!(split("x ".repeat(MAX_WORDS).as_bytes(), &|_| None).map(|words| words.len()), Ok(MAX_WORDS));
        check(&"x ".repeat(MAX_WORDS + 1), "too-many-words at 128");
    }
}
