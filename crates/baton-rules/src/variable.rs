//! Variables of the process, a session, a transaction, a request and a response (configuration manual 7.3.2 `var`).

use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use baton_model::VariableLimits;

use crate::nearest::nearest;
use crate::problem::RuleError;
use crate::process::{ProcessVariables, ReadValue, counted};
use crate::sample::Sample;

/// The most variables an evaluation may see; setting one more does nothing, as when HAProxy's memory limit is reached.
pub const VARIABLES_MAX: usize = 1024;

/// The longest text a variable may hold, in bytes: HAProxy's default buffer.
pub const VARIABLE_BYTES_MAX: usize = 16384;

/// How long a variable lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VariableScope {
    /// `proc.`: the process, over reloads.
    Process,
    /// `sess.`: the client connection.
    Session,
    /// `txn.`: one request and its response.
    Transaction,
    /// `req.`: while the request is processed.
    Request,
    /// `res.`: while the response is processed.
    Response,
    /// `check.`: one health check. Elsewhere there are none.
    Check,
}

/// A checked name with its scope, such as `txn.user`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct VariableName {
    scope: VariableScope,
    full: Arc<str>,
}

impl VariableName {
    /// Reads `SCOPE.NAME`.
    pub fn parse(text: &str) -> Result<VariableName, RuleError> {
        let scopes = "write proc.NAME, sess.NAME, txn.NAME, req.NAME or res.NAME";
        let (scope, name) = text.split_once('.').unwrap_or((text, ""));
        let scope = match scope {
            "proc" => VariableScope::Process,
            "sess" => VariableScope::Session,
            "txn" => VariableScope::Transaction,
            "req" => VariableScope::Request,
            "res" => VariableScope::Response,
            "check" => VariableScope::Check,
            _ => {
                let meant = nearest(scope, ["proc", "sess", "txn", "req", "res"]).filter(|_| !name.is_empty());
                let hint = meant.map(|scope| format!("did you mean '{scope}.{name}'?")).unwrap_or(scopes.to_owned());
                return Err(RuleError::new(format!("invalid variable name '{text}'")).hint(hint));
            }
        };
        if name.is_empty() {
            return Err(RuleError::new(format!("invalid variable name '{text}'")).hint(scopes));
        }
        match name.chars().find(|&char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '.'))) {
            Some(char) => Err(RuleError::new(format!("invalid character '{char}' in variable name '{text}'"))
                .hint("use letters, digits, '_' and '.'")),
            None => Ok(VariableName { scope, full: text.into() }),
        }
    }

    /// How long it lives.
    pub fn scope(&self) -> VariableScope {
        self.scope
    }

    /// The name with its scope.
    pub fn full(&self) -> &Arc<str> {
        &self.full
    }
}

/// The variables of one session, or of one exchange. Empty costs nothing.
#[derive(Debug, Default, PartialEq)]
pub struct Variables {
    list: Vec<(VariableName, Sample<'static>)>,
    /// They are counted for a limit of the process (`tune.vars.proc-max-size`, `global-max-size`).
    charge: Option<Box<Charge>>,
}

/// Bytes that are counted for a limit of the process until the variables end.
#[derive(Debug)]
struct Charge {
    bytes: usize,
    sum: Arc<AtomicUsize>,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl PartialEq for Charge {
    /// It is no part of what the variables are.
    fn eq(&self, _: &Charge) -> bool {
        true
    }
}

impl Variables {
    /// No variables.
    pub fn new() -> Variables {
        Variables::default()
    }

    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Forgets all of them, and keeps the memory for the next exchange.
    pub fn clear(&mut self) {
        self.list.clear();
        self.charge = None;
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&VariableName, &Sample<'static>)> {
        self.list.iter().map(|(name, value)| (name, value))
    }

    /// Goes on with these, of another process: as many as there may be, and none that is too long.
    pub fn resumed(
        list: impl IntoIterator<Item = (VariableName, Sample<'static>)>,
        process: &ProcessVariables,
    ) -> Variables {
        let fits = |(_, value): &(VariableName, Sample<'static>)| value.added_bytes() <= VARIABLE_BYTES_MAX;
        let list = list.into_iter().filter(fits).take(VARIABLES_MAX).collect();
        let mut variables = Variables { list, charge: None };
        variables.recharge(process, process.limits().within_process() != usize::MAX);
        variables
    }

    fn position(&self, name: &VariableName) -> Option<usize> {
        self.list.iter().position(|(key, _)| key.full == name.full)
    }

    /// What `tune.vars.*` count of them, those of some scopes alone.
    fn bytes(&self, of: impl Fn(VariableScope) -> bool) -> usize {
        self.list.iter().filter(|(name, _)| of(name.scope)).map(|(_, value)| counted(value)).sum()
    }

    /// Counts them for the limits of the process, if there are any; what was counted before is corrected.
    fn recharge(&mut self, process: &ProcessVariables, is_limited: bool) {
        if !is_limited && self.charge.is_none() {
            return;
        }
        let bytes = self.bytes(|_| true);
        let charge =
            self.charge.get_or_insert_with(|| Box::new(Charge { bytes: 0, sum: Arc::clone(process.sessions()) }));
        charge.sum.fetch_add(bytes, Ordering::Relaxed);
        charge.sum.fetch_sub(charge.bytes, Ordering::Relaxed);
        charge.bytes = bytes;
    }
}

/// A condition of the converter `set-var`, or of the action (configuration manual 7.3.1).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SetCondition {
    Exists(bool),
    Empty(bool),
    Set(bool),
    Greater,
    Less,
}

impl SetCondition {
    pub const NAMES: [&str; 8] =
        ["ifexists", "ifnotexists", "ifempty", "ifnotempty", "ifset", "ifnotset", "ifgt", "iflt"];

    pub fn of(name: &str) -> Option<SetCondition> {
        Some(match name {
            "ifexists" => SetCondition::Exists(true),
            "ifnotexists" => SetCondition::Exists(false),
            "ifempty" => SetCondition::Empty(true),
            "ifnotempty" => SetCondition::Empty(false),
            "ifset" => SetCondition::Set(true),
            "ifnotset" => SetCondition::Set(false),
            "ifgt" => SetCondition::Greater,
            "iflt" => SetCondition::Less,
            _ => return None,
        })
    }

    /// Whether a variable of this name that is `known` may be set to `new`. Those of the process exist since the configuration names them.
    pub fn holds(self, name: &VariableName, known: Option<&Sample<'_>>, new: &Sample<'_>) -> bool {
        let numbers = match (known, new) {
            (Some(Sample::Int(known)), Sample::Int(new)) => Some((known, new)),
            _ => None,
        };
        let empty = match new {
            Sample::Str(bytes) | Sample::Bin(bytes) | Sample::Method(bytes) => bytes.is_empty(),
            Sample::Bool(_) | Sample::Int(_) | Sample::Ip(_) => false,
        };
        match self {
            SetCondition::Exists(wanted) => (name.scope == VariableScope::Process || known.is_some()) == wanted,
            SetCondition::Set(wanted) => known.is_some() == wanted,
            SetCondition::Empty(wanted) => empty == wanted,
            SetCondition::Greater => numbers.is_none_or(|(known, new)| known > new),
            SetCondition::Less => numbers.is_none_or(|(known, new)| known < new),
        }
    }
}

/// What converters set while an expression is evaluated, in order. It is seen at once, and stored when the evaluation is over: until then values
/// of variables may be borrowed.
#[derive(Debug, Default)]
struct Pending {
    first: OnceCell<Box<PendingSet>>,
}

#[derive(Debug)]
struct PendingSet {
    name: VariableName,
    /// `None`: it was forgotten.
    value: Option<Sample<'static>>,
    next: Pending,
}

impl Pending {
    fn add(&self, name: &VariableName, value: Option<Sample<'static>>) {
        let mut last = self;
        while let Some(set) = last.first.get() {
            last = &set.next;
        }
        let set = PendingSet { name: name.clone(), value, next: Pending::default() };
        last.first.get_or_init(|| Box::new(set));
    }

    /// What was last set of that name.
    fn last(&self, name: &VariableName) -> Option<Option<&Sample<'static>>> {
        let mut found = None;
        let mut at = self;
        while let Some(set) = at.first.get() {
            if set.name.full == name.full {
                found = Some(set.value.as_ref());
            }
            at = &set.next;
        }
        found
    }
}

/// Values of variables of the process that an evaluation has read: they stay as they were until it sets one.
#[derive(Debug, Default)]
struct ReadValues {
    first: OnceCell<Box<ReadOnce>>,
}

#[derive(Debug)]
struct ReadOnce {
    name: Arc<str>,
    value: ReadValue,
    next: ReadValues,
}

impl ReadValues {
    fn value(&self, name: &Arc<str>, process: &ProcessVariables) -> Option<&Sample<'static>> {
        let mut last = self;
        loop {
            let next = || ReadOnce { name: name.clone(), value: process.read(name), next: ReadValues::default() };
            let read = last.first.get_or_init(|| Box::new(next()));
            if read.name == *name {
                return read.value.as_deref();
            }
            last = &read.next;
        }
    }
}

/// The variables that an evaluation sees.
#[derive(Debug)]
pub struct VariableScopes<'a> {
    /// `proc.`
    process: &'a ProcessVariables,
    read: ReadValues,
    /// `sess.`
    session: &'a mut Variables,
    /// `txn.`, `req.` and `res.`; `None` before there is an exchange: setting one does nothing then, as in HAProxy.
    exchange: Option<&'a mut Variables>,
    /// `check.`; `None` where there is no health check: setting one does nothing.
    check: Option<&'a mut Variables>,
    pending: Pending,
}

impl Drop for VariableScopes<'_> {
    fn drop(&mut self) {
        self.store_pending();
    }
}

impl<'a> VariableScopes<'a> {
    /// The variables of the process and of a session, and of an exchange if there is one.
    pub fn new(
        process: &'a ProcessVariables,
        session: &'a mut Variables,
        exchange: Option<&'a mut Variables>,
    ) -> VariableScopes<'a> {
        let (read, pending) = (ReadValues::default(), Pending::default());
        VariableScopes { process, read, session, exchange, check: None, pending }
    }

    /// The variables of the process and of a health check.
    pub(crate) fn of_check(
        process: &'a ProcessVariables,
        session: &'a mut Variables,
        check: &'a mut Variables,
    ) -> VariableScopes<'a> {
        let (read, pending) = (ReadValues::default(), Pending::default());
        VariableScopes { process, read, session, exchange: None, check: Some(check), pending }
    }

    /// Sets or forgets a variable where others may be borrowed.
    pub(crate) fn set_later(&self, name: &VariableName, value: Option<Sample<'static>>) {
        let is_there = match name.scope {
            VariableScope::Process | VariableScope::Session => true,
            VariableScope::Check => self.check.is_some(),
            VariableScope::Transaction | VariableScope::Request | VariableScope::Response => self.exchange.is_some(),
        };
        if is_there {
            self.pending.add(name, value.filter(|value| value.added_bytes() <= VARIABLE_BYTES_MAX));
        }
    }

    fn store_pending(&mut self) {
        let mut next = self.pending.first.take();
        while let Some(set) = next {
            let PendingSet { name, value, next: rest } = *set;
            match value {
                Some(value) => self.set(&name, value),
                None => self.unset(&name),
            }
            next = rest.first.into_inner();
        }
    }

    /// The value of a variable, if it was set and still lives.
    pub fn value(&self, name: &VariableName) -> Option<&Sample<'static>> {
        if self.pending.first.get().is_some()
            && let Some(set) = self.pending.last(name)
        {
            return set;
        }
        let variables = match name.scope {
            VariableScope::Process => return self.read.value(&name.full, self.process),
            VariableScope::Session => &*self.session,
            VariableScope::Transaction | VariableScope::Request | VariableScope::Response => {
                self.exchange.as_deref()?
            }
            VariableScope::Check => self.check.as_deref()?,
        };
        variables.position(name).map(|index| &variables.list[index].1)
    }

    /// Sets a variable. A text longer than [`VARIABLE_BYTES_MAX`] is not stored: the variable is then unset.
    pub fn set(&mut self, name: &VariableName, value: Sample<'static>) {
        self.store_pending();
        if name.scope == VariableScope::Process {
            self.read = ReadValues::default();
            return self.process.set(name, value);
        }
        let limits = self.process.limits();
        if value.added_bytes() > VARIABLE_BYTES_MAX || limits.is_any() && !self.fits(name, &value, &limits) {
            return self.unset(name);
        }
        let process = self.process;
        let others = [&self.exchange, &self.check];
        let others: usize = others.into_iter().flatten().map(|variables| variables.list.len()).sum();
        let count = self.session.list.len() + others;
        let Some(variables) = self.of(name) else { return };
        match variables.position(name) {
            Some(index) => variables.list[index].1 = value,
            None if count < VARIABLES_MAX => variables.list.push((name.clone(), value)),
            None => {}
        }
        variables.recharge(process, limits.within_process() != usize::MAX);
    }

    /// Whether all limits allow this value (configuration manual, `tune.vars.*`): each includes the scopes that live shorter.
    fn fits(&self, name: &VariableName, value: &Sample<'_>, limits: &VariableLimits) -> bool {
        let before = self.value(name).map_or(0, counted);
        let of_exchange = |of: fn(VariableScope) -> bool| self.exchange.as_ref().map_or(0, |all| all.bytes(of));
        let message = of_exchange(|scope| scope != VariableScope::Transaction);
        let transaction = message + of_exchange(|scope| scope == VariableScope::Transaction);
        let session = transaction + self.session.bytes(|_| true);
        let check = self.check.as_ref().map_or(0, |all| all.bytes(|_| true));
        let sums = [
            (limits.message, message),
            (limits.transaction, transaction),
            (limits.session, session),
            (limits.check, check),
        ];
        let own = match name.scope {
            VariableScope::Request | VariableScope::Response => 0..3,
            VariableScope::Transaction => 1..3,
            VariableScope::Process | VariableScope::Session => 2..3,
            VariableScope::Check => 3..4,
        };
        let new = |sum: usize| (sum + counted(value)).saturating_sub(before);
        let within = limits.within_process();
        sums[own].iter().all(|(allowed, sum)| allowed.is_none_or(|most| new(*sum) <= most))
            && (within == usize::MAX || new(self.process.bytes()) <= within)
    }

    /// Forgets a variable.
    pub fn unset(&mut self, name: &VariableName) {
        self.store_pending();
        if name.scope == VariableScope::Process {
            self.read = ReadValues::default();
            return self.process.unset(name);
        }
        let process = self.process;
        if let Some(variables) = self.of(name) {
            variables.list.retain(|(key, _)| key.full != name.full);
            variables.recharge(process, false);
        }
    }

    /// The request was sent on: `req.` variables end (HAProxy 2.6: response rules no longer see them).
    pub fn end_request(&mut self) {
        self.store_pending();
        if let Some(exchange) = &mut self.exchange {
            exchange.list.retain(|(key, _)| key.scope != VariableScope::Request);
            exchange.recharge(self.process, false);
        }
    }

    fn of(&mut self, name: &VariableName) -> Option<&mut Variables> {
        match name.scope {
            VariableScope::Process => None,
            VariableScope::Session => Some(self.session),
            VariableScope::Transaction | VariableScope::Request | VariableScope::Response => {
                self.exchange.as_deref_mut()
            }
            VariableScope::Check => self.check.as_deref_mut(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_own_life() {
        let process = ProcessVariables::default();
        let (mut session, mut exchange) = (Variables::new(), Variables::new());
        let names = ["sess.a", "txn.a", "req.a", "res.a"].map(|name| VariableName::parse(name).expect("a name"));
        let shown = |scopes: &VariableScopes<'_>| names.each_ref().map(|name| scopes.value(name).is_some());
        let set = |scopes: &mut VariableScopes<'_>| names.iter().for_each(|name| scopes.set(name, Sample::Int(1)));

        let mut connection = VariableScopes::new(&process, &mut session, None);
        set(&mut connection);
        assert_eq!(shown(&connection), [true, false, false, false], "before there is an exchange");

        drop(connection);
        let mut request = VariableScopes::new(&process, &mut session, Some(&mut exchange));
        set(&mut request);
        assert_eq!(shown(&request), [true; 4]);
        request.end_request();
        assert_eq!(shown(&request), [true, true, false, true], "the request was sent on");
        drop(request);
        exchange.clear();

        let mut next = VariableScopes::new(&process, &mut session, Some(&mut exchange));
        assert_eq!(shown(&next), [true, false, false, false], "the next request");
        next.unset(&names[0]);
        assert_eq!(shown(&next), [false; 4]);
    }
    #[test]
    fn the_process_keeps_its_own_and_an_evaluation_sees_what_it_read() {
        let process = ProcessVariables::default();
        let name = VariableName::parse("proc.a").expect("a name");
        let (mut session, mut other) = (Variables::new(), Variables::new());
        let mut one = VariableScopes::new(&process, &mut session, None);
        assert_eq!(one.value(&name), None);
        one.set(&name, Sample::Int(1));
        assert_eq!(one.value(&name), Some(&Sample::Int(1)));
        let two = VariableScopes::new(&process, &mut other, None);
        assert_eq!(two.value(&name), Some(&Sample::Int(1)));
        two.set_later(&name, Some(Sample::Int(2)));
        assert_eq!(two.value(&name), Some(&Sample::Int(2)));
        drop(two);
        assert_eq!(one.value(&name), Some(&Sample::Int(1)), "as it was read before");
        one.unset(&name);
        assert_eq!((one.value(&name), process.value("proc.a")), (None, None));
    }

    /// Sets a text of each length in a scope, under one limit, and gives the longest that was kept.
    fn longest(scope: &str, limits: VariableLimits) -> usize {
        let process = ProcessVariables::default();
        process.limit(&limits);
        let name = VariableName::parse(&format!("{scope}.a")).expect("a name");
        let mut longest = 0;
        for length in 1..300 {
            let (mut session, mut exchange) = (Variables::new(), Variables::new());
            let mut scopes = VariableScopes::new(&process, &mut session, Some(&mut exchange));
            scopes.set(&name, Sample::Str(vec![b'x'; length].into()));
            if scopes.value(&name).is_some() {
                longest = length;
            }
            scopes.unset(&name);
        }
        assert_eq!(process.bytes(), 0, "what ended is not counted any more");
        longest
    }

    #[test]
    fn each_limit_includes_the_scopes_that_live_shorter() {
        let none = VariableLimits::default();
        let check = |scopes: [bool; 5], limits: VariableLimits| {
            for (scope, is_limited) in ["proc", "sess", "txn", "req", "res"].into_iter().zip(scopes) {
                assert_eq!(longest(scope, limits), if is_limited { 120 } else { 299 }, "{scope} {limits:?}");
            }
        };
        // HAProxy 2.6 counts 80 bytes besides the text.
        check([false, false, false, true, true], VariableLimits { message: Some(200), ..none });
        check([false, false, true, true, true], VariableLimits { transaction: Some(200), ..none });
        check([false, true, true, true, true], VariableLimits { session: Some(200), ..none });
        check([true; 5], VariableLimits { process: Some(200), ..none });
        check([false; 5], VariableLimits { check: Some(200), ..none });
        check([true; 5], VariableLimits { global: Some(200), ..none });
        check([false; 5], none);
    }

    #[test]
    fn variables_of_a_health_check_have_a_limit_of_their_own() {
        let process = ProcessVariables::default();
        process.limit(&VariableLimits { check: Some(200), ..VariableLimits::default() });
        let name = |text: &str| VariableName::parse(text).expect("a name");
        let (mut session, mut check) = (Variables::new(), Variables::new());
        let mut scopes = VariableScopes::of_check(&process, &mut session, &mut check);
        scopes.set(&name("check.a"), Sample::Str(vec![b'x'; 121].into()));
        assert_eq!(scopes.value(&name("check.a")), None);
        scopes.set(&name("check.a"), Sample::Str(vec![b'x'; 120].into()));
        assert!(scopes.value(&name("check.a")).is_some());
    }

    #[test]
    fn sessions_count_for_the_process_until_they_end() {
        let process = ProcessVariables::default();
        process.limit(&VariableLimits { process: Some(200), ..VariableLimits::default() });
        let name = |text: &str| VariableName::parse(text).expect("a name");
        let (mut one, mut two) = (Variables::new(), Variables::new());
        VariableScopes::new(&process, &mut one, None).set(&name("sess.a"), Sample::Str(vec![b'x'; 50].into()));
        VariableScopes::new(&process, &mut two, None).set(&name("sess.a"), Sample::Int(1));
        assert_eq!((one.list.len(), two.list.len()), (1, 0), "there is no room for another session's");
        drop(one);
        VariableScopes::new(&process, &mut two, None).set(&name("sess.a"), Sample::Int(1));
        assert_eq!(two.list.len(), 1);
        two.clear();
        assert_eq!(process.bytes(), 0);
    }
}
