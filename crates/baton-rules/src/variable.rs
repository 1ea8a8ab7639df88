//! Variables of a session, a transaction, a request and a response (configuration manual 7.3.2 `var`).

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

/// The variables that an evaluation sees.
#[derive(Debug)]
pub struct VariableScopes<'a> {
    /// `sess.`
    pub session: &'a mut Variables,
    /// `txn.`, `req.` and `res.`; `None` before there is an exchange: setting one does nothing then, as in HAProxy.
    pub exchange: Option<&'a mut Variables>,
}

impl VariableScopes<'_> {
    /// The value of a variable, if it was set and still lives.
    pub fn value(&self, name: &VariableName) -> Option<&Sample<'static>> {
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
        if let Some(variables) = self.of(name) {
            variables.list.retain(|(key, _)| key.full != name.full);
        }
    }

    /// The request was sent on: `req.` variables end (HAProxy 2.6: response rules no longer see them).
    pub fn end_request(&mut self) {
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

        let mut connection = VariableScopes { session: &mut session, exchange: None };
        set(&mut connection);
        assert_eq!(shown(&connection), [true, false, false, false], "before there is an exchange");

        let mut request = VariableScopes { session: &mut session, exchange: Some(&mut exchange) };
        set(&mut request);
        assert_eq!(shown(&request), [true; 4]);
        request.end_request();
        assert_eq!(shown(&request), [true, true, false, true], "the request was sent on");
        exchange.clear();

        let mut next = VariableScopes { session: &mut session, exchange: Some(&mut exchange) };
        assert_eq!(shown(&next), [true, false, false, false], "the next request");
        next.unset(&names[0]);
        assert_eq!(shown(&next), [false; 4]);
    }
}
