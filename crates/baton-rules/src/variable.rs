//! Variables of a session, a transaction, a request and a response (configuration manual 7.3.2 `var`).

use std::sync::Arc;

use crate::problem::Fault;
use crate::sample::Sample;

/// The most variables one connection may hold; setting one more does nothing, as when HAProxy's memory limit is reached.
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
    pub fn parse(text: &str) -> Result<VariableName, Fault> {
        let scopes = "a variable is written sess.NAME, txn.NAME, req.NAME or res.NAME";
        let (scope, name) = text.split_once('.').unwrap_or((text, ""));
        let scope = match scope {
            "sess" => VariableScope::Session,
            "txn" => VariableScope::Transaction,
            "req" => VariableScope::Request,
            "res" => VariableScope::Response,
            "proc" | "check" => return Err(Fault::new(format!("variables of scope '{scope}' are not supported yet"))),
            _ => return Err(Fault::new(format!("invalid variable name '{text}'")).hint(scopes)),
        };
        if name.is_empty() {
            return Err(Fault::new(format!("invalid variable name '{text}'")).hint(scopes));
        }
        match name.chars().find(|&char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '.'))) {
            Some(char) => Err(Fault::new(format!("invalid character '{char}' in variable name '{text}'"))
                .hint("letters, digits, '_' and '.' are allowed")),
            None => Ok(VariableName { scope, full: text.into() }),
        }
    }
}

/// The variables of one client connection. Empty costs nothing.
#[derive(Debug, Default)]
pub struct Variables {
    list: Vec<(VariableName, Sample<'static>)>,
}

impl Variables {
    /// No variables.
    pub fn new() -> Variables {
        Variables::default()
    }

    /// The value of a variable, if it was set and still lives.
    pub fn value(&self, name: &VariableName) -> Option<&Sample<'static>> {
        self.list.iter().find(|(key, _)| key.full == name.full).map(|(_, value)| value)
    }

    /// Sets a variable. A text longer than [`VARIABLE_BYTES_MAX`] is not stored: the variable is then unset.
    pub fn set(&mut self, name: &VariableName, value: Sample<'static>) {
        if value.added_bytes() > VARIABLE_BYTES_MAX {
            return self.unset(name);
        }
        match self.list.iter().position(|(key, _)| key.full == name.full) {
            Some(index) => self.list[index].1 = value,
            None if self.list.len() < VARIABLES_MAX => self.list.push((name.clone(), value)),
            None => {}
        }
    }

    /// Forgets a variable.
    pub fn unset(&mut self, name: &VariableName) {
        self.list.retain(|(key, _)| key.full != name.full);
    }

    /// The request was sent on: `req.` variables end (HAProxy 2.6: response rules no longer see them).
    pub fn end_request(&mut self) {
        self.list.retain(|(key, _)| key.scope != VariableScope::Request);
    }

    /// Request and response are over: only `sess.` variables stay.
    pub fn end_transaction(&mut self) {
        self.list.retain(|(key, _)| key.scope == VariableScope::Session);
    }
}
