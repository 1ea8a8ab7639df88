//! `tcp-check expect`: what the bytes that a server has sent have to look like. Pure.

use baton_rules::{Files, Format, check_format};
use regex::bytes::{Regex, RegexBuilder};

use crate::expect::contains;
use crate::report::Status;

/// A pattern for bytes.
#[derive(Clone, Debug)]
pub(crate) enum RawMatch {
    /// `string`.
    Text(String),
    /// `string-lf`.
    TextFormat(Format),
    /// `rstring`.
    Regex(Regex),
    /// `binary`.
    Binary(Vec<u8>),
    /// `binary-lf`.
    BinaryFormat(Format),
    /// `rbinary`: matches the hexadecimal digits of the bytes.
    BinaryRegex(Regex),
}

/// Judges what has come by a protocol's own rules; `true`: nothing follows.
pub(crate) type Judge = fn(&[u8], bool) -> Finding;

/// What a protocol's own rules make of the bytes so far.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Finding {
    /// All is well, and this is worth logging.
    Passed(String),
    /// More of them decide.
    Pending,
    /// A code and a description.
    Failed(Status, u32, String),
}

impl Finding {
    /// It is not the protocol.
    pub(crate) fn malformed(reason: &str) -> Finding {
        Finding::Failed(Status::L7Response, 0, reason.into())
    }

    /// What has come is not enough.
    pub(crate) fn incomplete(is_over: bool) -> Finding {
        if is_over { Finding::malformed("") } else { Finding::Pending }
    }
}

/// How bytes stand to an expectation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Standing {
    /// They are as expected.
    Met,
    /// More of them decide.
    Pending,
    /// They are not as expected.
    Failed(String),
}

/// What the format of a `binary-lf` gave is not hexadecimal.
pub(crate) const NOT_HEX: &str = "Failed to parse hexastring resulting of eval of a log-format string";

impl RawMatch {
    pub(crate) fn compile(kind: &str, words: &[String], files: &dyn Files) -> Result<RawMatch, String> {
        let text = words.first().ok_or(format!("'expect {kind}' needs a pattern"))?;
        let format = || check_format(text, files).map_err(|error| error.to_string());
        Ok(match kind {
            "string" => RawMatch::Text(text.clone()),
            "string-lf" => RawMatch::TextFormat(format()?),
            "rstring" => RawMatch::Regex(bytes_regex(text)?),
            "binary" => RawMatch::Binary(from_hex(text.as_bytes()).ok_or(format!("'{text}' is not hexadecimal"))?),
            "binary-lf" => RawMatch::BinaryFormat(format()?),
            "rbinary" => RawMatch::BinaryRegex(bytes_regex(text)?),
            other => return Err(format!("unknown type '{other}' of 'tcp-check expect'")),
        })
    }

    /// Judges what has come. `render` writes a format; `is_over`: nothing follows.
    pub(crate) fn judge(
        &self,
        negated: bool,
        min_recv: Option<usize>,
        bytes: &[u8],
        is_over: bool,
        render: &mut dyn FnMut(&Format) -> Vec<u8>,
    ) -> Standing {
        let wanted = match self {
            RawMatch::Text(text) => Some(text.as_bytes().to_vec()),
            RawMatch::Binary(bytes) => Some(bytes.clone()),
            RawMatch::TextFormat(format) => Some(render(format)),
            RawMatch::BinaryFormat(format) => match from_hex(&render(format)) {
                Some(bytes) => Some(bytes),
                None => return Standing::Failed(NOT_HEX.into()),
            },
            RawMatch::Regex(_) | RawMatch::BinaryRegex(_) => None,
        };
        let least = wanted.as_ref().map_or(0, Vec::len).max(min_recv.unwrap_or(0));
        if bytes.len() < least && !is_over {
            return Standing::Pending;
        }
        let is_in = match (self, wanted) {
            (_, Some(wanted)) => contains(bytes, &wanted),
            (RawMatch::Regex(regex), None) => regex.is_match(bytes),
            (RawMatch::BinaryRegex(regex), None) => regex.is_match(&to_hex(bytes)),
            (_, None) => false,
        };
        match (is_in, negated) {
            (true, true) => Standing::Failed(format!("TCPCHK matched unwanted content {}", self.told())),
            (true, false) => Standing::Met,
            // Without `min-recv` the next bytes may have it.
            (false, _) if min_recv.is_none() && !is_over => Standing::Pending,
            (false, true) => Standing::Met,
            (false, false) => Standing::Failed(format!("TCPCHK did not match content {}", self.told())),
        }
    }

    /// How descriptions of results call it.
    fn told(&self) -> String {
        match self {
            RawMatch::Text(text) => format!("'{text}'"),
            RawMatch::TextFormat(_) => "(log-format string)".into(),
            RawMatch::Regex(_) => "(regex)".into(),
            RawMatch::Binary(_) => "(binary)".into(),
            RawMatch::BinaryFormat(_) => "(log-format binary)".into(),
            RawMatch::BinaryRegex(_) => "(binary regex)".into(),
        }
    }

    /// How descriptions of where a check has failed call it.
    pub(crate) fn words(&self) -> String {
        match self {
            RawMatch::Text(text) => format!("expect string '{text}'"),
            RawMatch::TextFormat(_) => "expect log-format string".into(),
            RawMatch::Regex(_) => "expect regex".into(),
            RawMatch::Binary(bytes) => format!("expect binary '{}'", String::from_utf8_lossy(bytes)),
            RawMatch::BinaryFormat(_) => "expect log-format binary".into(),
            RawMatch::BinaryRegex(_) => "expect binary regex".into(),
        }
    }
}

/// A pattern for bytes of any kind.
fn bytes_regex(text: &str) -> Result<Regex, String> {
    RegexBuilder::new(text).unicode(false).build().map_err(|error| format!("'{text}': {error}"))
}

/// Digits in upper case, as HAProxy has them.
fn to_hex(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().flat_map(|byte| format!("{byte:02X}").into_bytes()).collect()
}

/// The bytes of hexadecimal digits.
pub(crate) fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(digit(*high)? << 4 | digit(*low)?).ok(),
            _ => None,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use baton_rules::NoFiles;

    use super::*;

    /// What comes of bytes while more may come, and when nothing follows.
    fn check(expect: &str, min_recv: Option<usize>, bytes: &str, results: [&str; 2]) {
        let (negated, expect) = expect.strip_prefix("! ").map_or((false, expect), |rest| (true, rest));
        let (kind, pattern) = expect.split_once(' ').expect("a kind and a pattern");
        let compiled = RawMatch::compile(kind, &[pattern.to_owned()], &NoFiles).expect("a pattern");
        let seen = [false, true].map(|is_over| {
            let mut render = |format: &Format| format.constant().unwrap_or_default().to_vec();
            match compiled.judge(negated, min_recv, bytes.as_bytes(), is_over, &mut render) {
                Standing::Met => "ok".into(),
                Standing::Pending => "pending".into(),
                Standing::Failed(reason) => reason.trim_start_matches("TCPCHK ").to_owned(),
            }
        });
        assert_eq!(seen, results, "{expect} {min_recv:?} {bytes:?}");
    }

    #[test]
    fn what_is_not_found_may_come() {
        check("string +OK", None, "+OK hello", ["ok", "ok"]);
        check("string +OK", None, "-ERR", ["pending", "did not match content '+OK'"]);
        check("! string BAD", None, "fine", ["pending", "ok"]);
        check("! string BAD", None, "BAD", ["matched unwanted content 'BAD'", "matched unwanted content 'BAD'"]);
        check("rstring ^[0-9]+$", None, "123", ["ok", "ok"]);
        check("! rstring ^a", None, "b", ["pending", "ok"]);
        check("string-lf zz", None, "abc", ["pending", "did not match content (log-format string)"]);
        check("binary 2b4f", None, "+OK", ["ok", "ok"]);
        check("rbinary 2B4F.*0D", None, "+OK\r", ["ok", "ok"]);
        check("rbinary 2b4f", None, "+OK", ["pending", "did not match content (binary regex)"]);
        check("binary-lf zz", None, "abc", [NOT_HEX, NOT_HEX]);
    }

    #[test]
    fn min_recv_decides() {
        let failed = "did not match content '+OK'";
        check("string +OK", Some(5), "-ERR", ["pending", failed]);
        check("string +OK", Some(5), "+OK", ["pending", "ok"]);
        check("string +OK", Some(2), "-E", ["pending", failed]);
        check("string +OK", Some(2), "-ER", [failed, failed]);
        check("string +OK", Some(0), "-E", ["pending", failed]);
        check("rstring OK", Some(2), "-E", ["did not match content (regex)", "did not match content (regex)"]);
        check("! rstring BAD", Some(4), "fine", ["ok", "ok"]);
    }

    #[test]
    fn hexadecimal_digits() {
        assert_eq!(from_hex(b"2b4F0a"), Some(b"+O\n".to_vec()));
        assert_eq!((from_hex(b""), from_hex(b"1"), from_hex(b"zz")), (Some(Vec::new()), None, None));
    }
}
