//! Conditions of `.if`, `.elif` and `-cc` (configuration manual, 2.4).

/// Deepest nesting of parentheses and negations in one condition.
pub const MAX_DEPTH: usize = 128;

/// HAProxy's version that Baton answers for in `version_atleast()` and `version_before()`.
pub const COMPATIBLE_VERSION: &str = "2.6.12";

/// The names `feature()` knows, as `haproxy -vv` lists them, and whether Baton has what a configuration asks for by them, whatever
/// library it is made with: `OPENSSL` is `ssl` on `bind` and `server` lines, `LIBCRYPT` hashed passwords.
pub const FEATURES: &[(&str, bool)] = &[
    ("51DEGREES", false),
    ("ACCEPT4", true),
    ("BACKTRACE", true),
    ("CLOSEFROM", false),
    ("CPU_AFFINITY", true),
    ("CRYPT_H", true),
    ("DEVICEATLAS", false),
    ("DL", false),
    ("ENGINE", false),
    ("EPOLL", true),
    ("EVPORTS", false),
    ("GETADDRINFO", true),
    ("KQUEUE", false),
    ("LIBCRYPT", true),
    ("LINUX_SPLICE", true),
    ("LINUX_TPROXY", true),
    ("LUA", false),
    ("MEMORY_PROFILING", false),
    ("NETFILTER", true),
    ("NS", false),
    ("OBSOLETE_LINKER", false),
    ("OPENSSL", true),
    ("OT", false),
    ("PCRE", false),
    ("PCRE2", false),
    ("PCRE2_JIT", false),
    ("PCRE_JIT", false),
    ("POLL", false),
    ("PRCTL", true),
    ("PROCCTL", false),
    ("PROMEX", true),
    ("QUIC", false),
    ("RT", true),
    ("SLZ", false),
    ("STATIC_PCRE", false),
    ("STATIC_PCRE2", false),
    ("SYSTEMD", true),
    ("TFO", true),
    ("THREAD", true),
    ("THREAD_DUMP", false),
    ("TPROXY", true),
    ("WURFL", false),
    ("ZLIB", false),
];

/// Evaluates a condition; `defined` says whether a variable exists. The error is a sentence. An empty text is false.
pub fn evaluate(text: &str, defined: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let mut parser = Parser { text, at: 0, defined };
    parser.blanks();
    if parser.rest().is_empty() {
        return Ok(false);
    }
    let value = parser.or(0)?;
    parser.blanks();
    match parser.rest().chars().next() {
        None => Ok(value),
        Some(char) => Err(format!("unexpected character '{char}' at the end of conditional expression '{text}'")),
    }
}

struct Parser<'a> {
    text: &'a str,
    at: usize,
    defined: &'a dyn Fn(&str) -> bool,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        self.at = self.text.len() - self.rest().trim_start_matches([' ', '\t']).len();
    }

    fn take(&mut self, token: &str) -> bool {
        self.blanks();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// Both sides are always read, so that a fault on the right is found whatever the left says.
    fn or(&mut self, depth: usize) -> Result<bool, String> {
        let mut value = self.and(depth)?;
        while self.take("||") {
            value |= self.and(depth)?;
        }
        Ok(value)
    }

    fn and(&mut self, depth: usize) -> Result<bool, String> {
        let mut value = self.term(depth)?;
        while self.take("&&") {
            value &= self.term(depth)?;
        }
        Ok(value)
    }

    fn term(&mut self, depth: usize) -> Result<bool, String> {
        if depth > MAX_DEPTH {
            return Err(format!("conditional expression nested deeper than {MAX_DEPTH} levels"));
        }
        self.blanks();
        let from = self.rest();
        if self.take("!") {
            self.blanks();
            if self.rest().is_empty() {
                return Err(unparsable(from));
            }
            return Ok(!self.term(depth + 1)?);
        }
        if self.take("(") {
            let value = self.or(depth + 1)?;
            if !self.take(")") {
                return Err(format!("expected ')' after conditional expression '{from}'"));
            }
            return Ok(value);
        }
        let number = from.strip_prefix('-').unwrap_or(from);
        let digits = number.len() - number.trim_start_matches(|char: char| char.is_ascii_digit()).len();
        if digits > 0 {
            self.at += from.len() - number.len() + digits;
            return Ok(number[..digits].bytes().any(|digit| digit != b'0'));
        }
        self.predicate(from)
    }

    fn predicate(&mut self, from: &'a str) -> Result<bool, String> {
        let length =
            from.len() - from.trim_start_matches(|char: char| char.is_ascii_alphanumeric() || char == '_').len();
        let name = &from[..length];
        let wanted = match name {
            "streq" | "strneq" => 2,
            "defined" | "feature" | "version_atleast" | "version_before" => 1,
            "openssl_version_atleast" | "openssl_version_before" => 1,
            _ => return Err(unparsable(from)),
        };
        if !from[length..].starts_with('(') {
            return Err(unparsable(from));
        }
        self.at += length + 1;
        let mut args = Vec::new();
        while args.len() < wanted {
            args.push(self.argument());
            if args.len() < wanted && !self.take_exact(",") {
                return Err(format!(
                    "missing arguments (got {}/{wanted}), type 'string' expected in argument {} of predicate '{name}' \
                     used in conditional expression",
                    args.len(),
                    args.len()
                ));
            }
        }
        if !self.take_exact(")") {
            return Err(format!(
                "expected ')' before '{}' in argument {wanted} of predicate '{name}' used in conditional expression",
                self.rest()
            ));
        }
        let second = args.get(1).map(String::as_str).unwrap_or_default();
        Ok(match name {
            "streq" => args[0] == second,
            "strneq" => args[0] != second,
            "defined" => (self.defined)(&args[0]),
            "feature" => FEATURES.iter().any(|(feature, present)| *feature == args[0] && *present),
            "version_atleast" => version(COMPATIBLE_VERSION) >= version(&args[0]),
            "version_before" => version(COMPATIBLE_VERSION) < version(&args[0]),
            _ => false,
        })
    }

    fn take_exact(&mut self, token: &str) -> bool {
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    /// One argument: up to an unquoted comma or closing parenthesis.
    fn argument(&mut self) -> String {
        let mut value = String::new();
        let mut quote = None;
        let mut chars = self.rest().char_indices();
        let start = self.at;
        self.at = self.text.len();
        while let Some((offset, char)) = chars.next() {
            match (char, quote) {
                ('"', None | Some('"')) | ('\'', None | Some('\'')) => {
                    quote = if quote.is_some() { None } else { Some(char) };
                }
                ('\\', None | Some('"')) => match chars.clone().next() {
                    Some((_, next @ ('\\' | '"' | '\'' | ' '))) => {
                        chars.next();
                        value.push(next);
                    }
                    _ => value.push(char),
                },
                (',' | ')', None) => {
                    self.at = start + offset;
                    break;
                }
                _ => value.push(char),
            }
        }
        value
    }
}

fn unparsable(text: &str) -> String {
    format!("unparsable conditional expression '{text}'")
}

/// A version as numbers that compare: `2.4-dev18-rc2.3` gives major, minor, patch, development (releases after them), rest.
/// Missing parts are zero.
pub fn version(text: &str) -> [u32; 5] {
    let mut parts = [0, 0, 0, u32::MAX, 0];
    let (numbers, suffix) = text.split_once('-').unwrap_or((text, ""));
    for (part, number) in parts.iter_mut().zip(numbers.splitn(3, '.')) {
        *part = leading(number);
    }
    if let Some(development) = suffix.strip_prefix("dev") {
        parts[3] = leading(development);
        parts[4] = development.split_once('-').map_or(0, |(_, commits)| leading(commits));
    } else if !suffix.is_empty() {
        parts[4] = leading(suffix);
    }
    parts
}

fn leading(text: &str) -> u32 {
    let digits = text.len() - text.trim_start_matches(|char: char| char.is_ascii_digit()).len();
    text[..digits].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expect: &str) {
        let shown = match evaluate(text, &|name| name == "HOME") {
            Ok(value) => value.to_string(),
            Err(message) => message.split(['\'', '(']).next().unwrap_or_default().trim().to_string(),
        };
        assert_eq!(shown, expect, "{text}");
    }

    #[test]
    fn values() {
        check("", "false");
        check("0", "false");
        check("00", "false");
        check("-1", "true");
        check("!0 && (1 || 0)", "true");
        check("0 && 0 || 1", "true");
        check("!!1", "true");
        check("! defined(X) || ( 1 && 0 )", "true");
        check("defined(HOME)", "true");
        check("defined()", "false");
        check("feature(EPOLL)", "true");
        check("feature(NOSUCH)", "false");
        check("feature(OPENSSL) && feature(PROMEX) && feature(SYSTEMD) && feature(LIBCRYPT)", "true");
        check("feature(LUA) || feature(ZLIB) || feature(SLZ) || feature(QUIC)", "false");
        check("streq(a b,a b)", "true");
        check("streq(\"a,b\",'a,b')", "true");
        check("streq(,)", "true");
        check("strneq(a,b)", "true");
        check("streq(a,a)&&streq(b,b)", "true");
        check("version_atleast(2.6.12)", "true");
        check("version_atleast(2.6-dev3)", "true");
        check("version_atleast(2.7-dev1)", "false");
        check("version_before(2.6.13)", "true");
        check("version_before(3)", "true");
    }

    #[test]
    fn faults() {
        check("foo", "unparsable conditional expression");
        check("foo(1)", "unparsable conditional expression");
        check("1 2", "unexpected character");
        check("1x", "unexpected character");
        check("1 &&", "unparsable conditional expression");
        check("(1", "expected");
        check("!", "unparsable conditional expression");
        check("streq(a", "missing arguments");
        check("streq(a,b,c)", "expected");
        check("defined(a", "expected");
        check(&"(".repeat(100_000), "conditional expression nested deeper than 128 levels");
        check(&"!".repeat(100_000), "conditional expression nested deeper than 128 levels");
    }
}
