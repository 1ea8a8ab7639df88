//! Converters that set variables, and ones that look something up by the text (configuration manual 7.3.1).

use super::Converter;
use crate::args::{Arg, ArgKind, Value};
use crate::context::Context;
use crate::live::{BackendFigure, Figure, ServerFigure};
use crate::problem::RuleError;
use crate::sample::{Sample, Type};
use crate::variable::SetCondition;

pub(super) const ROWS: &[Converter] = &[
    Converter::new(
        "set-var",
        Type::Any,
        Type::Any,
        set,
        "Sets a variable to the value and passes it on, if the conditions hold.",
    )
    .args(&[
        Arg::req(ArgKind::Variable),
        Arg::opt(ArgKind::Str),
        Arg::opt(ArgKind::Str),
        Arg::opt(ArgKind::Str),
        Arg::opt(ArgKind::Str),
    ])
    .check(conditions),
    Converter::new("unset-var", Type::Any, Type::Any, unset, "Forgets a variable; passes the value on.")
        .args(&[Arg::req(ArgKind::Variable)]),
    Converter::new(
        "srv_queue",
        Type::Str,
        Type::Int,
        srv_queue,
        "The number of requests in the queue of the server of that name.",
    ),
    Converter::new("nbsrv", Type::Str, Type::Int, nbsrv, "The number of usable servers in the backend of that name."),
];

fn conditions(args: &mut [Value]) -> Result<(), RuleError> {
    for arg in args[1..].iter_mut().filter(|arg| !arg.is_absent()) {
        let text = String::from_utf8_lossy(arg.bytes()).into_owned();
        let condition = SetCondition::of(&text).ok_or_else(|| {
            RuleError::new(format!("'{text}' is no condition of set-var")).suggest(&text, SetCondition::NAMES)
        })?;
        *arg = Value::SetCondition(condition);
    }
    Ok(())
}

fn set<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Variable(name) = &args[0] else { return None };
    let known = cx.variables.value(name);
    let holds = |arg: &Value| match arg {
        Value::SetCondition(condition) => condition.holds(name, known, &sample),
        _ => true,
    };
    if !args[1..].iter().all(holds) {
        return None;
    }
    cx.variables.set_later(name, Some(sample.borrowed().into_owned()));
    Some(sample)
}

fn unset<'c>(sample: Sample<'c>, args: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let Value::Variable(name) = &args[0] else { return None };
    cx.variables.set_later(name, None);
    Some(sample)
}

fn nbsrv<'c>(sample: Sample<'c>, _: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let name = std::str::from_utf8(&text).ok()?;
    cx.live.figure(Figure::Backend(name, BackendFigure::UsableServers)).map(Sample::Int)
}

/// The server is `BACKEND/SERVER`, or `SERVER` of the backend of the request.
fn srv_queue<'c>(sample: Sample<'c>, _: &'c [Value], cx: &'c Context<'_>) -> Option<Sample<'c>> {
    let text = sample.into_text();
    let name = std::str::from_utf8(&text).ok()?;
    let (backend, server) = match name.split_once('/') {
        Some(names) => names,
        None => (cx.backend?.name, name),
    };
    cx.live.figure(Figure::Server(backend, server, ServerFigure::Queued)).map(Sample::Int)
}
