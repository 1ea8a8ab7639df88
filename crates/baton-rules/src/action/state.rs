//! Actions on variables, the response's status and what is logged.

use super::{Action, Row, RuleArguments, sets, with_text};
use crate::context::{Context, LogLevel};
use crate::expr::Expr;
use crate::format::Format;
use crate::problem::{LocatedError, RuleError};
use crate::reply::reason;
use crate::sample::Sample;
use crate::variable::{SetCondition, VariableName};

const ANY: u8 = sets::HTTP | sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::TCP_RESPONSE;

pub(super) const ROWS: &[Row] = &[
    Row { name: "set-var", sets: ANY, parse: set_var, doc: "Sets a variable to an expression's value." },
    Row { name: "set-var-fmt", sets: ANY, parse: set_var_fmt, doc: "Sets a variable to a format's text." },
    Row { name: "unset-var", sets: ANY, parse: unset_var, doc: "Unsets a variable." },
    Row {
        name: "set-status",
        sets: sets::RESPONSE | sets::AFTER,
        parse: set_status,
        doc: "Changes the response's status.",
    },
    Row {
        name: "set-log-level",
        sets: sets::HTTP | sets::CONTENT,
        parse: set_log_level,
        doc: "Changes the level of the log line, or drops it.",
    },
    Row {
        name: "disable-l7-retry",
        sets: sets::REQUEST,
        parse: |words| no_argument(words).map(|()| Action::State(StateEdit::NoRetry)),
        doc: "Disables retries of the request after its response failed.",
    },
    Row {
        name: "strict-mode",
        sets: sets::HTTP,
        parse: strict_mode,
        doc: "Whether a rewrite that fails ends the request, for the following rules of the set.",
    },
];

/// A compiled edit.
#[derive(Clone, Debug)]
pub(crate) enum StateEdit {
    Set(SetVariable, Expr),
    SetFormat(SetVariable, Format),
    Unset(VariableName),
    Status { status: u16, reason: Vec<u8> },
    LogLevel(LogLevel),
    NoRetry,
}

/// A variable, and the conditions for setting it.
#[derive(Clone, Debug)]
pub(crate) struct SetVariable {
    name: VariableName,
    conditions: Box<[SetCondition]>,
}

impl SetVariable {
    fn parse(words: &RuleArguments<'_, '_>) -> Result<SetVariable, LocatedError> {
        SetVariable::read(argument(words)?).map_err(|fault| words.blame(fault))
    }

    /// Reads `NAME[,CONDITION...]`.
    pub fn read(text: &str) -> Result<SetVariable, RuleError> {
        let mut parts = text.split(',');
        let name = VariableName::parse(parts.next().unwrap_or_default())?;
        let condition = |name: &str| {
            SetCondition::of(name)
                .ok_or_else(|| RuleError::unknown("condition", name, &[], SetCondition::NAMES.into_iter()))
        };
        Ok(SetVariable { name, conditions: parts.map(condition).collect::<Result<_, _>>()? })
    }

    /// The variable.
    pub fn name(&self) -> &VariableName {
        &self.name
    }

    /// Sets it, if the conditions hold.
    pub fn set(&self, value: Sample<'static>, cx: &mut Context<'_>) {
        let known = cx.variables.value(&self.name);
        if self.conditions.iter().all(|condition| condition.holds(&self.name, known, &value)) {
            cx.variables.set(&self.name, value);
        }
    }
}

fn argument<'a>(words: &RuleArguments<'a, '_>) -> Result<&'a str, LocatedError> {
    let Some(name) = words.argument else {
        return Err(
            words.blame(RuleError::new("the variable's name is missing").hint("write it in parentheses: (txn.name)"))
        );
    };
    Ok(name)
}

fn set_var(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let variable = SetVariable::parse(words)?;
    Ok(Action::State(StateEdit::Set(variable, words.expr()?)))
}

fn set_var_fmt(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    Ok(Action::State(StateEdit::SetFormat(SetVariable::parse(words)?, words.format("a format")?)))
}

fn unset_var(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = VariableName::parse(argument(words)?).map_err(|fault| words.blame(fault))?;
    Ok(Action::State(StateEdit::Unset(name)))
}

fn no_argument(words: &RuleArguments<'_, '_>) -> Result<(), LocatedError> {
    match words.argument {
        None => Ok(()),
        Some(_) => Err(words.blame(RuleError::new("this action takes no argument in parentheses"))),
    }
}

fn set_status(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    no_argument(words)?;
    let text = words.take("a status")?;
    let status = match text.parse() {
        Ok(status @ 100..=999) => status,
        _ => return Err(words.blame(RuleError::new(format!("'{text}' is not a status from 100 to 999")))),
    };
    let mut phrase = reason(status).as_bytes().to_vec();
    if words.peek() == Some("reason") {
        words.at += 1;
        phrase = words.take("a reason")?.as_bytes().to_vec();
        if phrase.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(words.blame(RuleError::new("a reason must be a single line")));
        }
    }
    Ok(Action::State(StateEdit::Status { status, reason: phrase }))
}

fn set_log_level(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    const LEVELS: [&str; 8] = ["emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"];
    no_argument(words)?;
    let text = words.take("a log level")?;
    let level = match (text, LEVELS.iter().position(|level| *level == text)) {
        ("silent", _) => LogLevel::Silent,
        (_, Some(level)) => LogLevel::Level(level as u8),
        _ => {
            let known = LEVELS.into_iter().chain(["silent"]);
            return Err(words.blame(RuleError::unknown("log level", text, &[], known)));
        }
    };
    Ok(Action::State(StateEdit::LogLevel(level)))
}

fn strict_mode(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    match words.take("'on' or 'off'")? {
        "on" => Ok(Action::Strict(true)),
        "off" => Ok(Action::Strict(false)),
        other => {
            let fault = RuleError::new(format!("expected 'on' or 'off', found '{other}'"));
            Err(words.blame(fault.suggest(other, ["on", "off"])))
        }
    }
}

impl StateEdit {
    pub fn run(&self, cx: &mut Context<'_>) {
        match self {
            StateEdit::Set(variable, expr) => {
                let value = expr.eval(cx).map(Sample::into_owned);
                // Without a value the variable keeps its own, as in HAProxy: rules that come before give a default so.
                if let Some(value) = value {
                    variable.set(value, cx);
                }
            }
            StateEdit::SetFormat(variable, format) => {
                with_text(format, cx, |cx, text| variable.set(Sample::Str(text.to_vec().into()), cx));
            }
            StateEdit::Unset(name) => cx.variables.unset(name),
            StateEdit::Status { status, reason } => {
                if let Some(response) = &mut cx.response {
                    response.head.set_status(*status, reason);
                }
            }
            StateEdit::LogLevel(level) => cx.log_level = Some(*level),
            StateEdit::NoRetry => cx.no_retry = true,
        }
    }
}
