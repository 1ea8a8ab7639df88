//! ACL criteria: a sample, flags and patterns (configuration manual 7.1), and the predefined ACLs (7.4).

use std::borrow::Cow;
use std::sync::Arc;

use baton_model::Source;

use crate::context::Context;
use crate::expr::{Expr, name_at};
use crate::fetch::{self, Fetch};
use crate::later;
use crate::outside::Files;
use crate::pattern::{METHODS, Method, Patterns, Reader};
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleError};
use crate::reference::{self, FileUse, MatchSpec, Output, PatternUse, References};

/// One line of an ACL, or what stands between braces.
#[derive(Clone, Debug)]
pub(crate) struct Criterion {
    expr: Expr,
    /// What stands in the line, as long as nobody changes it at run time.
    patterns: Patterns,
    line: Option<PatternUse>,
    files: Vec<PatternUse>,
}

/// A named ACL: one of its criteria must match.
#[derive(Clone, Debug)]
pub(crate) struct Acl {
    pub name: Arc<str>,
    /// Its first line: HAProxy knows it only from there on.
    pub source: Source,
    pub criteria: Vec<Criterion>,
}

/// The names the manual predefines, with what they stand for.
pub(crate) const PREDEFINED: &[(&str, &[&str])] = &[
    ("FALSE", &["always_false"]),
    ("HTTP", &["req.proto_http"]),
    ("HTTP_1.0", &["req.ver", "1.0"]),
    ("HTTP_1.1", &["req.ver", "1.1"]),
    ("HTTP_2.0", &["req.ver", "2.0"]),
    ("HTTP_CONTENT", &["req.hdr_val(content-length)", "gt", "0"]),
    ("HTTP_URL_ABS", &["url_reg", "^[^/:]*://"]),
    ("HTTP_URL_SLASH", &["url_beg", "/"]),
    ("HTTP_URL_STAR", &["url", "*"]),
    ("LOCALHOST", &["src", "127.0.0.1/8", "::1"]),
    ("METH_CONNECT", &["method", "CONNECT"]),
    ("METH_DELETE", &["method", "DELETE"]),
    ("METH_GET", &["method", "GET", "HEAD"]),
    ("METH_HEAD", &["method", "HEAD"]),
    ("METH_OPTIONS", &["method", "OPTIONS"]),
    ("METH_POST", &["method", "POST"]),
    ("METH_PUT", &["method", "PUT"]),
    ("METH_TRACE", &["method", "TRACE"]),
    ("RDP_COOKIE", &["req.rdp_cookie_cnt", "gt", "0"]),
    ("REQ_CONTENT", &["req.len", "gt", "0"]),
    ("TRUE", &["always_true"]),
    ("WAIT_END", &["wait_end"]),
];

/// The endings of derived criteria such as `path_beg`, and the fetches that have them.
const ENDINGS: &[&str] = &["beg", "end", "sub", "dir", "dom", "len", "reg"];
const DERIVED: &[&str] =
    &["base", "cook", "hdr", "path", "req.cook", "res.cook", "res.hdr", "scook", "shdr", "ssl_fc_sni", "url", "urlp"];

impl Criterion {
    /// Compiles `CRITERION [FLAGS] [PATTERNS]`; word numbers in faults count from the criterion.
    pub fn compile(words: &[String], files: &dyn Files) -> Result<Criterion, LocatedError> {
        let Some(first) = words.first() else {
            return Err(RuleError::new("a sample fetch is missing").at(0));
        };
        let (expr, derived) = criterion(first, files).map_err(|fault| fault.at(0))?;
        let mut method = match (derived, expr.has_converters()) {
            (Some(derived), false) => Some(derived),
            _ => Method::default_for(expr.gives()),
        };
        let mut ignore_case = false;
        let (mut is_map, mut id) = (false, None);
        let mut resolves = true;
        let mut pattern_files = Vec::new();
        let mut at = 1;
        while let Some(flag) = words.get(at).filter(|word| word.starts_with('-') && word.len() > 1) {
            let argument = |what: &str| {
                words.get(at + 1).ok_or_else(|| RuleError::new(format!("'{flag}' needs {what}")).at(at + 1))
            };
            match flag.as_str() {
                "--" => {
                    at += 1;
                    break;
                }
                "-i" => ignore_case = true,
                "-n" => resolves = false,
                "-m" => {
                    let name = argument("a matching method")?;
                    method = Some(matching_method(name, &expr).map_err(|fault| fault.at(at + 1))?);
                    at += 1;
                }
                "-f" => {
                    pattern_files.push((at + 1, argument("a file")?));
                    at += 1;
                }
                "-M" => is_map = true,
                "-u" => {
                    let text = argument("a number")?;
                    let invalid = || RuleError::new("the argument of -u must be an integer").at(at + 1);
                    id = Some(text.parse().map_err(|_| invalid())?);
                    at += 1;
                }
                _ => {
                    return Err(RuleError::new(format!("'{flag}' is not an ACL flag"))
                        .hint("write '--' before a pattern that begins with '-'")
                        .at(at));
                }
            }
            at += 1;
        }
        let Some(method) = method else {
            return Err(RuleError::new(format!("'{first}' needs a matching method"))
                .hint("add one, such as '-m str'")
                .at(0));
        };
        let versions = method == Method::Int && expr.name() == "req.ssl_ver" && !expr.has_converters();
        let mut reader = Reader::new(method, ignore_case);
        let spec = MatchSpec { method, ignore_case, output: Output::Nothing };
        let own = References::default();
        let references = files.pattern_references().unwrap_or(&own);
        let mut in_files = Vec::new();
        for (word, path) in pattern_files {
            let used = references
                .file(path, FileUse { is_map, by_acl: true, resolves }, spec, files)
                .map_err(|fault| fault.at(word))?;
            in_files.push(used);
        }
        let mut shown = Vec::new();
        if words.len() == at {
            expr.judge_no_pattern().map_err(|fault| fault.at(0))?;
        }
        for (word, pattern) in words.iter().enumerate().skip(at) {
            if pattern.is_empty() {
                return Err(RuleError::new("empty pattern").hint("use '-m len 0' to match an empty text").at(word));
            }
            let pattern = match versions {
                true => Cow::Owned(dotted(pattern)),
                false => Cow::Borrowed(pattern.as_str()),
            };
            let pattern = match (method, resolves) {
                (Method::Ip, true) => reference::resolved(pattern, files),
                (Method::Ip, false) if pattern == "localhost" => {
                    return Err(RuleError::new("'localhost' is not a valid IPv4 or IPv6 address")
                        .hint("'-n' forbids names: write 127.0.0.1")
                        .at(word));
                }
                _ => pattern,
            };
            expr.judge_pattern(&pattern).map_err(|fault| fault.at(word))?;
            shown.extend(reader.add(&pattern).map_err(|fault| fault.at(word))?);
        }
        let patterns = reader.finish();
        let line = references.line(files.within(), words, shown, id, spec).map_err(|fault| fault.at(0))?;
        Ok(Criterion { expr, patterns, line: Some(line), files: in_files })
    }

    /// Whether it can match at all: HAProxy lets a criterion without a pattern pass and warns.
    pub fn has_patterns(&self) -> bool {
        !self.patterns.is_empty() || !self.files.is_empty()
    }

    /// Why it can never match at `place`.
    pub fn missing_at(&self, place: RulePosition) -> Option<(&'static str, &'static str)> {
        self.expr.missing_at(place).map(|missing| (self.expr.name(), missing))
    }

    /// Whether one of the sample's values matches one of the patterns.
    pub fn matches(&self, cx: &Context<'_>) -> bool {
        self.expr.any(cx, &mut |sample| {
            if self.files.iter().any(|file| file.matches(sample.borrowed())) {
                return true;
            }
            match &self.line {
                Some(line) if line.is_changed() => line.matches(sample),
                _ => self.patterns.matches(sample),
            }
        })
    }
}

/// As a criterion, `hdr` is about requests everywhere, as in HAProxy.
fn of_requests(name: &str) -> Option<&'static Fetch> {
    fetch::find(if name == "hdr" { "req.hdr" } else { name })
}

/// The expression, and the matching method if the name is a derived one.
fn criterion(text: &str, files: &dyn Files) -> Result<(Expr, Option<Method>), RuleError> {
    let (name, rest) = name_at(text);
    if name.is_empty() {
        return Err(RuleError::new("a sample fetch is missing"));
    }
    if fetch::find(name).is_none()
        && let Some((base, ending)) = name.rsplit_once('_')
        && ENDINGS.contains(&ending)
        && let Some(row) = of_requests(base)
    {
        if !DERIVED.contains(&base) {
            return Err(RuleError::new(format!("unknown sample fetch '{name}'"))
                .hint(format!("write '{base}' with '-m {ending}'")));
        }
        let method = METHODS.iter().find(|(known, _)| *known == ending).map(|(_, method)| *method);
        return Ok((Expr::parse_rest(row, text, rest, files)?, method));
    }
    match of_requests(name) {
        Some(row) => Ok((Expr::parse_rest(row, text, rest, files)?, None)),
        None => Err(RuleError::unknown("sample fetch", name, later::FETCHES, known_criteria())),
    }
}

fn known_criteria() -> impl Iterator<Item = &'static str> {
    /// The derived names people mistype.
    const COMMON: &[&str] = &[
        "path_beg", "path_end", "path_sub", "path_dir", "path_dom", "path_len", "path_reg", "hdr_beg", "hdr_end",
        "hdr_sub", "hdr_dir", "hdr_dom", "hdr_len", "hdr_reg", "url_beg", "url_end", "url_sub", "url_dir", "url_dom",
        "url_len", "url_reg", "base_beg", "base_end", "base_sub", "base_dir", "base_dom", "base_len", "base_reg",
    ];
    fetch::names().chain(COMMON.iter().copied())
}

fn matching_method(name: &str, expr: &Expr) -> Result<Method, RuleError> {
    let Some((_, method)) = METHODS.iter().find(|(known, _)| *known == name) else {
        return Err(RuleError::unknown("matching method", name, &[], METHODS.iter().map(|(known, _)| *known)));
    };
    match method.takes(expr.gives()) {
        true => Ok(*method),
        false => Err(RuleError::new(format!(
            "'-m {name}' cannot match '{}', which is of type {}",
            expr.name(),
            expr.gives().word()
        ))),
    }
}

/// `3.1` and `3.1:3.3` as the numbers that `req.ssl_ver` gives; other words stay as they are.
fn dotted(pattern: &str) -> String {
    let number = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((u32::from(major.parse::<u16>().ok()?) << 16 | u32::from(minor.parse::<u16>().ok()?)).to_string())
    };
    let ends: Vec<String> = pattern.split(':').map(|text| number(text).unwrap_or_else(|| text.to_owned())).collect();
    ends.join(":")
}
