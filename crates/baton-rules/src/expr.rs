//! Sample expressions: a fetch and converters, `hdr(host),lower,field(1,:)`.

use std::fmt;

use crate::args::{self, Value};
use crate::context::Context;
use crate::converter::{self, Converter, ExchangeCondition};
use crate::fetch::{self, Fetch};
use crate::later;
use crate::names;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::RuleError;
use crate::reference::{FileUse, References};
use crate::sample::{Sample, Type};

/// The most converters of one expression.
const CONVERTERS_MAX: usize = 64;

/// The longest text a converter may make, in bytes; a longer one gives nothing. HAProxy's bound is its buffer, 16 kB.
const CONVERTED_BYTES_MAX: usize = 64 << 10;

/// A converter and its arguments.
type ConverterCall = (&'static Converter, Box<[Value]>);

/// A compiled expression.
#[derive(Clone)]
pub struct Expr {
    fetch: &'static Fetch,
    args: Box<[Value]>,
    converters: Box<[ConverterCall]>,
    text: Box<str>,
}

impl Expr {
    /// Compiles an expression for a rule that stands at `place`. Names and arguments are checked, and that each
    /// converter can take what the one before it gives.
    pub fn compile(text: &str, place: RulePosition, files: &dyn Files) -> Result<Expr, RuleError> {
        let expr = Expr::parse(text, files)?;
        match expr.missing_at(place) {
            None => Ok(expr),
            Some(missing) => Err(RuleError::new(format!(
                "'{}' cannot be used here: it needs {missing}, which {} does not have",
                expr.fetch.names[0],
                place.words()
            ))),
        }
    }

    /// Compiles without judging where it stands.
    pub(crate) fn parse(text: &str, files: &dyn Files) -> Result<Expr, RuleError> {
        let (name, rest) = name_at(text);
        let Some(fetch) = fetch::find(name) else {
            return Err(RuleError::unknown("sample fetch", name, later::FETCHES, fetch::names()));
        };
        Expr::parse_rest(fetch, text, rest, files)
    }

    /// Compiles what follows the fetch's name.
    pub(crate) fn parse_rest(
        fetch: &'static Fetch,
        text: &str,
        rest: &str,
        files: &dyn Files,
    ) -> Result<Expr, RuleError> {
        let what = format!("sample fetch '{}'", fetch.names[0]);
        let (given, mut rest) = args::split(rest)?;
        let mut args = args::typed(&what, fetch.args, &given)?;
        if let Some(check) = fetch.check {
            check(&mut args)?;
        }
        match fetch.names[0] {
            "env" => args[0] = Value::Str(files.environment(&given[0]).unwrap_or_default().into_bytes().into()),
            "http_auth" | "http_auth_group" => {
                let list = &given[0];
                let missing = || RuleError::new(format!("unable to find userlist '{list}'"));
                args[0] = Value::Users(files.users(list).ok_or_else(missing)?);
            }
            _ if fetch.args.iter().any(|arg| names::is_name(arg.kind)) => {
                names::resolve(&format!("sample fetch keyword '{}'", fetch.names[0]), fetch.args, &mut args, files)?;
            }
            "hostname" => args = vec![Value::Str(files.hostname().into_bytes().into())],
            _ => {}
        }
        let mut gives = fetch.gives;
        let mut converters = Vec::new();
        while !rest.is_empty() {
            let Some(after) = rest.strip_prefix(',') else {
                return Err(RuleError::new(format!("unexpected '{rest}' after {what}"))
                    .hint("write a comma and no spaces before a converter"));
            };
            let (name, after) = name_at(after);
            let Some(row) = converter::find(name) else {
                let known = converter::rows().map(|row| row.name);
                return Err(RuleError::unknown("converter", name, &[], known));
            };
            let what = format!("converter '{name}'");
            let (given, after) = args::split(after)?;
            let mut args = args::typed(&what, row.args, &given)?;
            if let Some(check) = row.check {
                check(&mut args)?;
            }
            if let (Some(spec), Some(path)) = (row.map, given.first()) {
                let own = References::default();
                let references = files.pattern_references().unwrap_or(&own);
                args[0] = Value::Map(references.file(
                    path,
                    FileUse { is_map: true, by_acl: false, resolves: false },
                    spec,
                    files,
                )?);
            }
            if row.args.iter().any(|arg| names::is_name(arg.kind)) {
                let by = format!("conversion keyword '{name}' for sample fetch keyword '{}'", fetch.names[0]);
                names::resolve(&by, row.args, &mut args, files)?;
            }
            match row.name {
                "jwt_verify" => converter::read_key(&mut args, files),
                "when" => args[0] = Value::Condition(Box::new(ExchangeCondition::read(&args, files)?)),
                _ => {}
            }
            if !gives.casts_to(row.takes) {
                return Err(RuleError::new(format!("{what} takes type {}, not {}", row.takes.word(), gives.word())));
            }
            if converters.len() == CONVERTERS_MAX {
                return Err(RuleError::new(format!("an expression has at most {CONVERTERS_MAX} converters")));
            }
            gives = row.gives_with(&args);
            converters.push((row, args.into()));
            rest = after;
        }
        Ok(Expr { fetch, args: args.into(), converters: converters.into(), text: text.into() })
    }

    /// What a rule at `place` lacks for this expression.
    pub(crate) fn missing_at(&self, place: RulePosition) -> Option<&'static str> {
        let lacks_connection = match place {
            RulePosition::Process => !self.fetch.is_of_process(),
            RulePosition::Command => !self.fetch.is_of_command(),
            _ => false,
        };
        if lacks_connection {
            return Some("a connection or a request");
        }
        self.fetch.needs.missing_at(place)
    }

    /// The type of its result.
    pub fn gives(&self) -> Type {
        self.converters.last().map_or(self.fetch.gives, |(row, args)| row.gives_with(args))
    }

    /// Whether a pattern can be a value of this expression at all: a group of `http_auth_group` must be one of the userlist.
    pub(crate) fn judge_pattern(&self, pattern: &str) -> Result<(), RuleError> {
        match (self.fetch.names[0], self.args.first()) {
            ("http_auth_group", Some(Value::Users(list))) if !list.groups.iter().any(|group| **group == *pattern) => {
                let message = format!("userlist '{}' has no group '{pattern}'", list.name);
                Err(RuleError::new(message).suggest(pattern, list.groups.iter().map(|group| &**group)))
            }
            _ => Ok(()),
        }
    }

    /// Whether an ACL of this expression may have no pattern beside it.
    pub(crate) fn judge_no_pattern(&self) -> Result<(), RuleError> {
        match self.fetch.names[0] {
            "http_auth_group" => Err(RuleError::new("'http_auth_group' needs the names of groups")),
            _ => Ok(()),
        }
    }

    pub(crate) fn has_converters(&self) -> bool {
        !self.converters.is_empty()
    }

    /// The fetch's first name.
    pub(crate) fn name(&self) -> &'static str {
        self.fetch.names[0]
    }

    /// The value now; `None` when there is none. Where a name has several values, the one HAProxy takes outside ACLs.
    pub fn eval<'c>(&'c self, cx: &'c Context<'_>) -> Option<Sample<'c>> {
        let sample = (self.fetch.eval)(cx, &self.args)?;
        self.convert(sample, cx)
    }

    /// Whether one of the values passes the test: what ACLs do.
    pub(crate) fn any<'c>(&'c self, cx: &'c Context<'_>, test: &mut dyn FnMut(Sample<'c>) -> bool) -> bool {
        match self.fetch.each {
            Some(each) => each(cx, &self.args, &mut |sample| self.convert(sample, cx).is_some_and(&mut *test)),
            None => self.eval(cx).is_some_and(test),
        }
    }

    fn convert<'c>(&'c self, sample: Sample<'c>, cx: &'c Context<'_>) -> Option<Sample<'c>> {
        self.converters.iter().try_fold(sample, |sample, (row, args)| {
            (row.eval)(sample.cast(row.takes)?, args, cx).filter(|sample| sample.added_bytes() <= CONVERTED_BYTES_MAX)
        })
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Expr({})", self.text)
    }
}

/// Splits a name off the start.
pub(crate) fn name_at(text: &str) -> (&str, &str) {
    let end = text.find(|char: char| !(char.is_ascii_alphanumeric() || "_.-+".contains(char))).unwrap_or(text.len());
    text.split_at(end)
}
