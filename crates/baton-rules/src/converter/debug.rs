//! Converters for those who look for an error: `debug` shows the sample that passes, `when` lets it pass only if something happened.

use std::io::Write;
use std::net::IpAddr;
use std::sync::Arc;

use baton_model::Ring;

use super::Converter;
use crate::acl::Acl;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::live::{Figure, ProcessFigure};
use crate::outside::{Files, KnownAcls};
use crate::problem::RuleError;
use crate::sample::{Sample, Type};

pub(super) const ROWS: &[Converter] = &[
    Converter::new("debug", Type::Any, Type::Any, debug, "The sample unchanged; it is shown in a ring, or on stderr.")
        .args(&[Arg::opt(ArgKind::Str), Arg::opt(ArgKind::Sink)]),
    Converter::new(
        "when",
        Type::Any,
        Type::Any,
        when,
        "The sample unchanged, if a condition is met (as in HAProxy 3.1).",
    )
    .args(&[Arg::req(ArgKind::Str), Arg::opt(ArgKind::Str)]),
];

/// A condition of `when`, and whether it must not hold.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeCondition {
    is_negated: bool,
    test: ExchangeTest,
}

/// What `when` asks.
#[derive(Clone, Debug)]
pub(crate) enum ExchangeTest {
    /// One of the proxy's ACLs matches.
    Acl(Arc<Vec<Acl>>, usize),
    /// An error occurred, by the rules of `option dontlog-normal`.
    Error,
    /// A server got the request.
    Forwarded,
    /// No error occurred.
    Normal,
    /// A server or a service got the request.
    Processed,
    /// The process is stopping.
    Stopping,
    /// A service got the request.
    ToApplet,
}

impl ExchangeCondition {
    const NAMES: [&str; 7] = ["acl", "error", "forwarded", "normal", "processed", "stopping", "toapplet"];

    /// Reads `[!]CONDITION[,ACL]`.
    pub fn read(args: &[Value], files: &dyn Files) -> Result<ExchangeCondition, RuleError> {
        let text = args[0].name().unwrap_or_default();
        let (is_negated, name) = text.strip_prefix('!').map_or((false, text), |name| (true, name));
        let given = args[1].name();
        let test = match name {
            "acl" => acl(given.unwrap_or_default(), files)?,
            "error" => ExchangeTest::Error,
            "forwarded" => ExchangeTest::Forwarded,
            "normal" => ExchangeTest::Normal,
            "processed" => ExchangeTest::Processed,
            "stopping" => ExchangeTest::Stopping,
            "toapplet" => ExchangeTest::ToApplet,
            _ => {
                return Err(RuleError::new(format!("converter 'when' does not know the condition '{name}'"))
                    .hint(format!("supported are {}", ExchangeCondition::NAMES.join(", ")))
                    .suggest(name, ExchangeCondition::NAMES));
            }
        };
        match given {
            Some(given) if name != "acl" => Err(RuleError::new(format!(
                "the condition '{name}' of converter 'when' takes no argument, not '{given}'"
            ))),
            _ => Ok(ExchangeCondition { is_negated, test }),
        }
    }

    fn holds(&self, cx: &Context<'_>) -> bool {
        let course = || cx.log.course();
        let holds = match &self.test {
            ExchangeTest::Acl(acls, index) => {
                acls.get(*index).is_some_and(|acl| acl.criteria.iter().any(|criterion| criterion.matches(cx)))
            }
            ExchangeTest::Error => !course().is_normal,
            ExchangeTest::Forwarded => course().is_forwarded,
            ExchangeTest::Normal => course().is_normal,
            ExchangeTest::Processed => course().is_forwarded || course().has_service,
            ExchangeTest::Stopping => cx.live.figure(Figure::Process(ProcessFigure::IsStopping)) == Some(1),
            ExchangeTest::ToApplet => course().has_service,
        };
        holds != self.is_negated
    }
}

fn acl(name: &str, files: &dyn Files) -> Result<ExchangeTest, RuleError> {
    if name.is_empty() {
        return Err(RuleError::new("the condition 'acl' of converter 'when' needs the name of an ACL"));
    }
    let KnownAcls(acls) = files.acls();
    match acls.iter().position(|acl| *acl.name == *name) {
        Some(index) => Ok(ExchangeTest::Acl(acls, index)),
        None => Err(RuleError::new(format!("converter 'when' finds no ACL '{name}' in this section"))
            .suggest(name, acls.iter().map(|acl| &*acl.name))),
    }
}

fn when<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Condition(condition) = &args[0] else { return None };
    condition.holds(cx).then_some(sample)
}

/// Writes `[debug] PREFIX: type=TYPE <VALUE>`. What is not printable is a dot, as in HAProxy.
fn debug<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let kind = match &sample {
        Sample::Bool(_) => "bool",
        Sample::Int(_) => "sint",
        Sample::Ip(IpAddr::V4(_)) => "ipv4",
        Sample::Ip(IpAddr::V6(_)) => "ipv6",
        Sample::Str(_) => "str",
        Sample::Bin(_) => "bin",
        Sample::Method(_) => "meth",
    };
    let mut line = b"[debug] ".to_vec();
    line.extend_from_slice(args[0].bytes());
    // Writing to memory does not fail.
    let _ = write!(line, ": type={kind} <");
    let text = match sample.borrowed() {
        Sample::Bin(bytes) => bytes,
        other => other.into_text(),
    };
    line.extend_from_slice(&text);
    line.push(b'>');
    line.iter_mut().filter(|byte| !matches!(byte, b' '..=b'~')).for_each(|byte| *byte = b'.');
    cx.log.debug_line(args[1].name().unwrap_or(Ring::BUILT_IN), &line);
    Some(sample)
}
