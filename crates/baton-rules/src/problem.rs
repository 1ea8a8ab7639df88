//! What is wrong with a rule, in words an operator can act on.

use std::fmt;

use baton_model::{Ruleset, Source};

use crate::later::{KEPT_SECRET, LUA, NOT_OURS, NOT_OURS_CONVERTER};
use crate::nearest::suggestion;

/// An error in a part of a rule, before its position is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleError {
    /// What is wrong, starting in lower case and without a full stop.
    pub message: String,
    /// What to write instead, where we can tell.
    pub hint: Option<String>,
}

impl RuleError {
    /// A fault without a hint.
    pub fn new(message: impl Into<String>) -> RuleError {
        RuleError { message: message.into(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> RuleError {
        self.hint = Some(hint.into());
        self
    }

    /// `kind` `name` is not known: says "not supported yet" for what HAProxy 2.6 knows, else names the nearest known word.
    pub(crate) fn unknown(
        kind: &str,
        name: &str,
        later: &[&str],
        known: impl Iterator<Item = &'static str>,
    ) -> RuleError {
        if KEPT_SECRET.contains(&name) {
            return RuleError::new(format!(
                "the {kind} '{name}' is not supported: keys, randoms and session identifiers \
                                           never leave the TLS library"
            ))
            .hint("use ssl_fc_is_resumed and ssl_fc_cipher for what was negotiated");
        }
        let not_ours = NOT_OURS.iter().find(|(start, ..)| kind == "sample fetch" && name.starts_with(start));
        let (converter, ..) = NOT_OURS_CONVERTER;
        let not_ours = not_ours.or_else(|| (kind == "converter" && name == converter).then_some(&NOT_OURS_CONVERTER));
        if let Some((_, reason, hint)) = not_ours {
            return RuleError::new(format!("the {kind} '{name}' is not supported: {reason}")).hint(*hint);
        }
        let is_lua = (kind == "converter" || !later.is_empty()) && name.starts_with(LUA);
        if is_lua || later.contains(&name) {
            return RuleError::new(format!("the {kind} '{name}' is not supported yet"));
        }
        RuleError::new(format!("unknown {kind} '{name}'")).suggest(name, known)
    }

    /// Adds the known name nearest to `name` as a hint, if there is one.
    #[must_use]
    pub(crate) fn suggest<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> RuleError {
        RuleError { hint: suggestion(name, known).or(self.hint), ..self }
    }

    pub(crate) fn at(self, word: usize) -> LocatedError {
        LocatedError { word, fault: self }
    }
}

impl fmt::Display for RuleError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(out, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for RuleError {}

/// An error and the argument of its rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct LocatedError {
    pub word: usize,
    pub fault: RuleError,
}

/// An error of a rule and its position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RuleDiagnostic {
    /// The rule set of the line.
    pub ruleset: Ruleset,
    /// The line.
    pub source: Source,
    /// Index into `Rule::words`; equal to their number when something is missing at the end.
    pub word: usize,
    /// What is wrong, starting in lower case and without a full stop.
    pub message: String,
    /// What to write instead, where we can tell.
    pub hint: Option<String>,
}
