//! Actions that wait before the next rule: `pause`, `wait-for-body`, `wait-for-handshake`.

use std::time::Duration;

use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::expr::Expr;
use crate::problem::{LocatedError, RuleError};
use crate::sample::Type;
use crate::units;
use crate::wait::{BodyWait, RuleWait};

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "pause",
        sets: sets::REQUEST | sets::RESPONSE,
        parse: pause,
        doc: "Waits before the next rule, for a time or as many milliseconds as an expression gives.",
    },
    Row {
        name: "wait-for-body",
        sets: sets::REQUEST | sets::RESPONSE,
        parse: wait_for_body,
        doc: "Waits for the body, or its first bytes, before the next rule.",
    },
    Row {
        name: "wait-for-handshake",
        sets: sets::REQUEST,
        parse: |_| Ok(Action::Nothing),
        doc: "Goes on at once: no request is read before the end of its TLS handshake.",
    },
];

/// A compiled wait.
#[derive(Clone, Debug)]
pub(crate) enum WaitRule {
    Pause(Delay),
    Body(BodyWait),
}

/// A time that is given, or computed.
#[derive(Clone, Debug)]
pub(crate) enum Delay {
    Fixed(Duration),
    /// Milliseconds.
    Computed(Expr),
}

impl Delay {
    /// Takes a time or an expression.
    pub fn parse(words: &mut RuleArguments<'_, '_>, what: &str) -> Result<Delay, LocatedError> {
        if words.peek().is_some_and(|word| word.starts_with(|char: char| char.is_ascii_digit())) {
            let text = words.take(what)?;
            return units::time(text).map(Delay::Fixed).map_err(|fault| words.blame(fault));
        }
        words.expr_of(what, Type::Int).map(Delay::Computed)
    }

    /// The time now; `None` when the expression gives no number, or a negative one.
    pub fn now(&self, cx: &Context<'_>) -> Option<Duration> {
        match self {
            Delay::Fixed(time) => Some(*time),
            Delay::Computed(expr) => {
                expr.eval(cx)?.into_int().and_then(|ms| u64::try_from(ms).ok()).map(Duration::from_millis)
            }
        }
    }
}

fn pause(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    Delay::parse(words, "a time or an expression").map(|delay| Action::Wait(WaitRule::Pause(delay)))
}

fn wait_for_body(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let (mut time, mut at_least) = (None, 0);
    while let Some(word) = words.peek() {
        words.at += 1;
        match word {
            "time" => {
                let text = words.take("a time")?;
                time = Some(units::time(text).map_err(|fault| words.blame(fault))?);
            }
            "at-least" => {
                let text = words.take("a size")?;
                at_least = units::size(text).map_err(|fault| words.blame(fault))?;
            }
            _ => {
                let fault = RuleError::new(format!("unexpected argument '{word}'"));
                return Err(words.blame(fault.suggest(word, ["time", "at-least"])));
            }
        }
    }
    match time {
        Some(time) => Ok(Action::Wait(WaitRule::Body(BodyWait { time, at_least }))),
        None => Err(RuleError::new("the longest wait is missing").hint("add 'time' with a time").at(words.at)),
    }
}

impl WaitRule {
    /// What is waited for; `None`: nothing, go on.
    pub fn make(&self, cx: &Context<'_>) -> Option<RuleWait> {
        match self {
            WaitRule::Pause(delay) => delay.now(cx).filter(|time| !time.is_zero()).map(RuleWait::Time),
            WaitRule::Body(body) => Some(RuleWait::Body(*body)),
        }
    }
}
