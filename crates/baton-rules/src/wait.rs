//! Rule sets that wait in the middle. An evaluation is one call without waiting; a rule that has to wait ends it, and the caller evaluates
//! again from the same place when it has waited. Rule sets without such rules never see more than a first call.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::context::Context;
use crate::sample::Sample;
use crate::variable::VariableName;

/// How far an evaluation of a rule set has come: the next one goes on from here. New for each rule set of a proxy.
#[derive(Clone, Copy, Debug)]
pub struct RuleCursor {
    /// The rule to go on with.
    pub(crate) next: usize,
    /// `strict-mode`, which lasts to the end of the set.
    pub(crate) is_strict: bool,
}

impl Default for RuleCursor {
    fn default() -> RuleCursor {
        RuleCursor { next: 0, is_strict: true }
    }
}

/// What a rule waits for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RuleWait {
    /// More of what a condition looks at: evaluate again when there is, or with [`last_chance`](crate::Context::last_chance) when
    /// `inspect-delay` is over.
    Data,
    /// This time (`pause`).
    Time(Duration),
    /// Until these fields went to the client in a 103 response (`early-hint`), one line each.
    Hints(Vec<u8>),
    /// The body of the message (`wait-for-body`).
    Body(BodyWait),
    /// The address of a name (`do-resolve`): evaluate again when it is found and set, or when there is none.
    Address(AddressWait),
}

/// A name whose address a variable gets.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AddressWait {
    /// The `resolvers` section that is asked.
    pub resolvers: Arc<str>,
    /// The name: letters, digits, `-`, `_` and dots.
    pub name: String,
    /// Whether IPv6 is asked for first.
    pub prefers_v6: bool,
    pub(crate) variable: VariableName,
}

impl AddressWait {
    /// Sets the variable. Without an address it keeps its value, as in HAProxy.
    pub fn found(&self, address: IpAddr, cx: &mut Context<'_>) {
        cx.variables.set(&self.variable, Sample::Ip(address));
    }
}

/// How much of a body is waited for, and how long: also a body that is whole, or a buffer that is full, ends the wait.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BodyWait {
    /// The longest wait.
    pub time: Duration,
    /// So many bytes are enough; 0: all of them.
    pub at_least: u64,
}
