//! What is wrong with a rule, in words an operator can act on.

use std::fmt;

use baton_model::{Ruleset, Source};

use crate::later::KEPT_SECRET;

/// What is wrong with a piece of a rule, before it is known where that stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fault {
    /// What is wrong, starting in lower case and without a full stop.
    pub message: String,
    /// What to write instead, where we can tell.
    pub hint: Option<String>,
}

impl Fault {
    /// A fault without a hint.
    pub fn new(message: impl Into<String>) -> Fault {
        Fault { message: message.into(), hint: None }
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Fault {
        self.hint = Some(hint.into());
        self
    }

    /// `kind` `name` is not known: says "not supported yet" for what HAProxy 2.6 knows, else names the nearest known word.
    pub(crate) fn unknown(kind: &str, name: &str, later: &[&str], known: impl Iterator<Item = &'static str>) -> Fault {
        if KEPT_SECRET.contains(&name) {
            return Fault::new(format!("the {kind} '{name}' cannot be had: keys, randoms and session identifiers stay inside of the TLS library"))
                .hint("nothing that is secret or proves secrets leaves it; ssl_fc_is_resumed and ssl_fc_cipher say what was agreed on");
        }
        if later.contains(&name) {
            return Fault::new(format!("the {kind} '{name}' is not supported yet"));
        }
        let fault = Fault::new(format!("unknown {kind} '{name}'"));
        match nearest(name, known) {
            Some(near) => fault.hint(format!("did you mean '{near}'?")),
            None => fault,
        }
    }

    pub(crate) fn at(self, word: usize) -> Located {
        Located { word, fault: self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(out, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Fault {}

/// A fault and the word of its rule.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Located {
    pub word: usize,
    pub fault: Fault,
}

/// A fault of a rule in its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Problem {
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

/// The known word nearest to `name`, if one is near enough to be a typing error.
pub(crate) fn nearest(name: &str, known: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    /// Longer words are no typing errors, and comparing them costs time.
    const LONGEST: usize = 64;
    if name.is_empty() || name.len() > LONGEST {
        return None;
    }
    known
        .map(|word| (strsim::damerau_levenshtein(name, word), word))
        .filter(|&(distance, word)| distance <= 1 + name.len().min(word.len()) / 4)
        .min()
        .map(|(_, word)| word)
}
