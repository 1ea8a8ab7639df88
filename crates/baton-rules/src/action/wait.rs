//! Actions that wait before the next rule: `do-resolve`, `pause`, `wait-for-body`, `wait-for-handshake`.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::expr::Expr;
use crate::outside::{NameReference, ReferenceKind};
use crate::problem::{LocatedError, RuleError};
use crate::sample::Type;
use crate::units;
use crate::variable::VariableName;
use crate::wait::{AddressWait, BodyWait, RuleWait};

/// The longest name that is looked up (RFC 1035 2.3.4), with the dot of the root.
const NAME_MAX: usize = 254;

pub(super) const ROWS: &[Row] = &[
    Row {
        name: "do-resolve",
        sets: sets::REQUEST | sets::CONTENT,
        parse: do_resolve,
        doc: "Sets a variable to an address of the name that an expression gives, which name servers are asked for.",
    },
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
    Address(Box<AddressRule>),
}

/// `do-resolve`.
#[derive(Clone, Debug)]
pub(crate) struct AddressRule {
    variable: VariableName,
    resolvers: Arc<str>,
    prefers_v6: bool,
    name: Expr,
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

/// `do-resolve(VARIABLE,RESOLVERS[,ipv4|ipv6]) EXPRESSION`.
fn do_resolve(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let malformed = || {
        RuleError::new("'do-resolve' needs a variable and a section of name servers in parentheses")
            .hint("write 'do-resolve(<varname>,<resolvers>[,<options>]) <expr>'; options are 'ipv4' and 'ipv6'")
    };
    let mut parts = words.argument.unwrap_or_default().split(',');
    let (Some(variable), Some(resolvers), family, None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(words.blame(malformed()));
    };
    if variable.is_empty() || resolvers.is_empty() {
        return Err(words.blame(malformed()));
    }
    let variable = VariableName::parse(variable).map_err(|fault| words.blame(fault))?;
    let prefers_v6 = match family {
        None | Some("" | "ipv6") => true,
        Some("ipv4") => false,
        Some(other) => {
            let fault = RuleError::unknown("option of 'do-resolve'", other, &[], ["ipv4", "ipv6"].into_iter());
            return Err(words.blame(fault));
        }
    };
    let by = "do-resolve action".to_owned();
    let proxy = resolvers.to_owned();
    words.around.files.refers(NameReference { by, proxy, kind: ReferenceKind::Resolvers, asks_for_rate: false });
    let name = words.expr_of("an expression", Type::Str)?;
    let resolvers = resolvers.into();
    Ok(Action::Wait(WaitRule::Address(Box::new(AddressRule { variable, resolvers, prefers_v6, name }))))
}

impl AddressRule {
    /// What is looked up; `None`: there is no name, or none that has addresses.
    fn make(&self, cx: &Context<'_>) -> Option<AddressWait> {
        let value = self.name.eval(cx)?;
        let bytes = value.into_bytes();
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        (!bytes.is_empty() && bytes.len() <= NAME_MAX && bytes.iter().all(is_of_name)).then_some(())?;
        let name = String::from_utf8(bytes.into_owned()).ok()?;
        let AddressRule { variable, resolvers, prefers_v6, .. } = self;
        let (variable, resolvers) = (variable.clone(), Arc::clone(resolvers));
        Some(AddressWait { resolvers, name, prefers_v6: *prefers_v6, variable })
    }
}

impl WaitRule {
    /// What is waited for; `None`: nothing, go on.
    pub fn make(&self, cx: &Context<'_>) -> Option<RuleWait> {
        match self {
            WaitRule::Pause(delay) => delay.now(cx).filter(|time| !time.is_zero()).map(RuleWait::Time),
            WaitRule::Body(body) => Some(RuleWait::Body(*body)),
            WaitRule::Address(rule) => rule.make(cx).map(RuleWait::Address),
        }
    }
}
