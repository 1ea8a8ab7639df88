//! Variables of a session, a transaction, a request and a response (configuration manual 7.3.2 `var`).

use std::cell::OnceCell;
use std::sync::Arc;

use crate::problem::RuleError;
use crate::sample::Sample;

/// The most variables an evaluation may see; setting one more does nothing, as when HAProxy's memory limit is reached.
pub const VARIABLES_MAX: usize = 1024;

/// The longest text a variable may hold, in bytes: HAProxy's default buffer.
pub const VARIABLE_BYTES_MAX: usize = 16384;

/// How long a variable lives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum VariableScope {
    /// `sess.`: the client connection.
    Session,
    /// `txn.`: one request and its response.
    Transaction,
    /// `req.`: while the request is processed.
    Request,
    /// `res.`: while the response is processed.
    Response,
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
        let scopes = "write sess.NAME, txn.NAME, req.NAME or res.NAME";
        let (scope, name) = text.split_once('.').unwrap_or((text, ""));
        let scope = match scope {
            "sess" => VariableScope::Session,
            "txn" => VariableScope::Transaction,
            "req" => VariableScope::Request,
            "res" => VariableScope::Response,
            "proc" | "check" => {
                return Err(RuleError::new(format!("variables of scope '{scope}' are not supported yet")));
            }
            _ => return Err(RuleError::new(format!("invalid variable name '{text}'")).hint(scopes)),
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
}

/// The variables of one session, or of one exchange. Empty costs nothing.
#[derive(Debug, Default, PartialEq)]
pub struct Variables {
    list: Vec<(VariableName, Sample<'static>)>,
}

impl Variables {
    /// No variables.
    pub fn new() -> Variables {
        Variables::default()
    }

    /// Forgets all of them, and keeps the memory for the next exchange.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    fn position(&self, name: &VariableName) -> Option<usize> {
        self.list.iter().position(|(key, _)| key.full == name.full)
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

    /// Whether a variable that is `known` may be set to `new`.
    pub fn holds(self, known: Option<&Sample<'_>>, new: &Sample<'_>) -> bool {
        let numbers = match (known, new) {
            (Some(Sample::Int(known)), Sample::Int(new)) => Some((known, new)),
            _ => None,
        };
        let empty = match new {
            Sample::Str(bytes) | Sample::Bin(bytes) | Sample::Method(bytes) => bytes.is_empty(),
            Sample::Bool(_) | Sample::Int(_) | Sample::Ip(_) => false,
        };
        match self {
            SetCondition::Exists(wanted) | SetCondition::Set(wanted) => known.is_some() == wanted,
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

/// The variables that an evaluation sees.
#[derive(Debug)]
pub struct VariableScopes<'a> {
    /// `sess.`
    session: &'a mut Variables,
    /// `txn.`, `req.` and `res.`; `None` before there is an exchange: setting one does nothing then, as in HAProxy.
    exchange: Option<&'a mut Variables>,
    pending: Pending,
}

impl Drop for VariableScopes<'_> {
    fn drop(&mut self) {
        self.store_pending();
    }
}

impl<'a> VariableScopes<'a> {
    /// The variables of a session, and of an exchange if there is one.
    pub fn new(session: &'a mut Variables, exchange: Option<&'a mut Variables>) -> VariableScopes<'a> {
        VariableScopes { session, exchange, pending: Pending::default() }
    }

    /// Sets or forgets a variable where others may be borrowed.
    pub(crate) fn set_later(&self, name: &VariableName, value: Option<Sample<'static>>) {
        let of_exchange = name.scope != VariableScope::Session;
        if !(of_exchange && self.exchange.is_none()) {
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
            VariableScope::Session => &*self.session,
            VariableScope::Transaction | VariableScope::Request | VariableScope::Response => {
                self.exchange.as_deref()?
            }
        };
        variables.position(name).map(|index| &variables.list[index].1)
    }

    /// Sets a variable. A text longer than [`VARIABLE_BYTES_MAX`] is not stored: the variable is then unset.
    pub fn set(&mut self, name: &VariableName, value: Sample<'static>) {
        self.store_pending();
        if value.added_bytes() > VARIABLE_BYTES_MAX {
            return self.unset(name);
        }
        let count = self.session.list.len() + self.exchange.as_ref().map_or(0, |exchange| exchange.list.len());
        let Some(variables) = self.of(name) else { return };
        match variables.position(name) {
            Some(index) => variables.list[index].1 = value,
            None if count < VARIABLES_MAX => variables.list.push((name.clone(), value)),
            None => {}
        }
    }

    /// Forgets a variable.
    pub fn unset(&mut self, name: &VariableName) {
        self.store_pending();
        if let Some(variables) = self.of(name) {
            variables.list.retain(|(key, _)| key.full != name.full);
        }
    }

    /// The request was sent on: `req.` variables end (HAProxy 2.6: response rules no longer see them).
    pub fn end_request(&mut self) {
        self.store_pending();
        if let Some(exchange) = &mut self.exchange {
            exchange.list.retain(|(key, _)| key.scope != VariableScope::Request);
        }
    }

    fn of(&mut self, name: &VariableName) -> Option<&mut Variables> {
        match name.scope {
            VariableScope::Session => Some(self.session),
            VariableScope::Transaction | VariableScope::Request | VariableScope::Response => {
                self.exchange.as_deref_mut()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scope_has_its_own_life() {
        let (mut session, mut exchange) = (Variables::new(), Variables::new());
        let names = ["sess.a", "txn.a", "req.a", "res.a"].map(|name| VariableName::parse(name).expect("a name"));
        let shown = |scopes: &VariableScopes<'_>| names.each_ref().map(|name| scopes.value(name).is_some());
        let set = |scopes: &mut VariableScopes<'_>| names.iter().for_each(|name| scopes.set(name, Sample::Int(1)));

        let mut connection = VariableScopes::new(&mut session, None);
        set(&mut connection);
        assert_eq!(shown(&connection), [true, false, false, false], "before there is an exchange");

        drop(connection);
        let mut request = VariableScopes::new(&mut session, Some(&mut exchange));
        set(&mut request);
        assert_eq!(shown(&request), [true; 4]);
        request.end_request();
        assert_eq!(shown(&request), [true, true, false, true], "the request was sent on");
        drop(request);
        exchange.clear();

        let mut next = VariableScopes::new(&mut session, Some(&mut exchange));
        assert_eq!(shown(&next), [true, false, false, false], "the next request");
        next.unset(&names[0]);
        assert_eq!(shown(&next), [false; 4]);
    }
}
