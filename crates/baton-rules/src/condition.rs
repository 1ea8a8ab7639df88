//! Conditions: `if`/`unless`, ACLs joined by blanks (and) and `or` (configuration manual 7.2).

use baton_model::Source;

use crate::acl::{Acl, Criterion, PREDEFINED};
use crate::capture::SlotLines;
use crate::context::Context;
use crate::outside::Files;
use crate::place::RulePosition;
use crate::problem::{LocatedError, RuleError};

/// A compiled condition. Without one a rule always applies.
#[derive(Clone, Debug)]
pub struct Condition {
    /// `unless`.
    negated: bool,
    /// Where it stands: a criterion that needs what is not there never matches.
    place: RulePosition,
    /// One of the alternatives must hold; in each, all terms.
    alternatives: Vec<Vec<Term>>,
}

#[derive(Clone, Debug)]
struct Term {
    negated: bool,
    what: Criteria,
    /// All that it needs is there at the condition's position.
    has_all: bool,
}

#[derive(Clone, Debug)]
enum Criteria {
    /// Index of a named ACL of the proxy.
    Named(usize),
    /// What stood between braces, or a predefined ACL.
    Own(Criterion),
}

/// What conditions need while they are compiled.
pub(crate) struct Surroundings<'a> {
    /// The proxy's ACLs.
    pub acls: &'a [Acl],
    /// Where the rule stands: an ACL must be declared above.
    pub source: &'a Source,
    pub place: RulePosition,
    pub files: &'a dyn Files,
    /// The slots of captures that the proxy has.
    pub slots: &'a SlotLines,
    /// Faults that do not stop HAProxy either.
    pub warnings: &'a mut Vec<LocatedError>,
}

impl Condition {
    /// Compiles `words[at..]`, which begin with `if` or `unless`. Nothing left: `None`.
    pub(crate) fn compile(
        words: &[String],
        at: usize,
        around: &mut Surroundings<'_>,
    ) -> Result<Option<Condition>, LocatedError> {
        let Some(keyword) = words.get(at) else {
            return Ok(None);
        };
        let negated = match keyword.as_str() {
            "if" => false,
            "unless" => true,
            _ => {
                let fault = RuleError::new(format!("unexpected argument '{keyword}'"));
                let fault = fault.hint("expected 'if' or 'unless' with a condition, or the end of the line");
                let fault = fault.suggest(keyword, ["if", "unless"]);
                return Err(fault.at(at));
            }
        };
        let mut alternatives = vec![Vec::new()];
        let mut at = at + 1;
        while let Some(word) = words.get(at) {
            if matches!(word.as_str(), "or" | "||") {
                alternatives.push(Vec::new());
                at += 1;
                continue;
            }
            let (term, next) = term(words, at, around)?;
            if let Some(last) = alternatives.last_mut() {
                last.push(term);
            }
            at = next;
        }
        // HAProxy ignores an alternative without terms, and a condition without any never holds.
        alternatives.retain(|terms| !terms.is_empty());
        if alternatives.is_empty() {
            around.warnings.push(RuleError::new(format!("no condition after '{keyword}'")).at(at - 1));
        }
        Ok(Some(Condition { negated, place: around.place, alternatives }))
    }

    /// Whether the condition holds now.
    pub(crate) fn holds(&self, acls: &[Acl], cx: &Context<'_>) -> bool {
        let any = self.alternatives.iter().any(|terms| terms.iter().all(|term| term.holds(self.place, acls, cx)));
        any != self.negated
    }

    /// Whether the condition holds, where data may be missing: `None` when more of it could change the answer. As in HAProxy, a test that holds
    /// already is not waited for.
    pub(crate) fn decides(&self, acls: &[Acl], cx: &Context<'_>) -> Option<bool> {
        let mut open = false;
        for terms in &self.alternatives {
            let mut all = Some(true);
            for term in terms {
                match term.decides(self.place, acls, cx) {
                    Some(true) => {}
                    Some(false) => {
                        all = Some(false);
                        break;
                    }
                    None => all = None,
                }
            }
            match all {
                Some(true) => return Some(!self.negated),
                Some(false) => {}
                None => open = true,
            }
        }
        (!open).then_some(self.negated)
    }
}

/// Reads one term at `at`; gives where the next one starts.
fn term(words: &[String], at: usize, around: &mut Surroundings<'_>) -> Result<(Term, usize), LocatedError> {
    let mut at = at;
    let mut negated = false;
    let mut word = words[at].as_str();
    while let Some(rest) = word.strip_prefix('!') {
        negated = !negated;
        word = rest;
        if word.is_empty() {
            at += 1;
            word = words
                .get(at)
                .map(String::as_str)
                .ok_or_else(|| RuleError::new("an ACL is missing after '!'").at(at))?;
        }
    }
    if word == "{" {
        let inner = &words[at + 1..];
        let Some(length) = inner.iter().position(|word| word == "}") else {
            return Err(RuleError::new("a closing '}' is missing")
                .hint("put spaces around the braces")
                .at(words.len()));
        };
        let criterion = own(&inner[..length], at + 1, around)?;
        let has_all = criterion.missing_at(around.place).is_none();
        return Ok((Term { negated, what: Criteria::Own(criterion), has_all }, at + length + 2));
    }
    let what = match around.acls.iter().position(|acl| &*acl.name == word) {
        Some(index) => {
            let declared = &around.acls[index].source;
            if declared.file == around.source.file && declared.line > around.source.line {
                let fault =
                    RuleError::new(format!("the ACL '{word}' is declared below this line, in line {}", declared.line));
                return Err(fault.hint("declare an ACL before the rules that use it").at(at));
            }
            for criterion in &around.acls[index].criteria {
                warn_never(criterion, at, around.place, around.warnings);
            }
            Criteria::Named(index)
        }
        None => match PREDEFINED.iter().find(|(name, _)| *name == word) {
            Some((_, words)) => {
                let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
                let criterion =
                    Criterion::compile(&words, around.files).map_err(|located| LocatedError { word: at, ..located })?;
                warn_never(&criterion, at, around.place, around.warnings);
                Criteria::Own(criterion)
            }
            None => return Err(no_such_acl(word, around).at(at)),
        },
    };
    let has_all = match &what {
        Criteria::Own(criterion) => criterion.missing_at(around.place).is_none(),
        Criteria::Named(index) => {
            around.acls[*index].criteria.iter().all(|criterion| criterion.missing_at(around.place).is_none())
        }
    };
    Ok((Term { negated, what, has_all }, at + 1))
}

fn own(words: &[String], at: usize, around: &mut Surroundings<'_>) -> Result<Criterion, LocatedError> {
    let criterion = Criterion::compile(words, around.files)
        .map_err(|located| LocatedError { word: located.word + at, ..located })?;
    if !criterion.has_patterns() {
        let fault = RuleError::new(format!("'{}' has no pattern and never matches", words[0]));
        around.warnings.push(fault.hint("use '-m found' to test that there is a value").at(at));
    }
    warn_never(&criterion, at, around.place, around.warnings);
    Ok(criterion)
}

fn warn_never(criterion: &Criterion, at: usize, place: RulePosition, warnings: &mut Vec<LocatedError>) {
    if let Some((name, missing)) = criterion.missing_at(place) {
        let what = format!("this never matches: '{name}' needs {missing}, which {} does not have", place.words());
        warnings.push(RuleError::new(what).at(at));
    }
}

fn no_such_acl(name: &str, around: &Surroundings<'_>) -> RuleError {
    let fault = RuleError::new(format!("no ACL '{name}' is declared above this line"));
    let declared = around.acls.iter().map(|acl| &*acl.name);
    let known = declared.chain(PREDEFINED.iter().map(|(name, _)| *name));
    match crate::fetch::find(name) {
        Some(_) => fault.hint(format!("write {{ {name} … }} to test the sample fetch")),
        None => fault,
    }
    .suggest(name, known)
}

impl Term {
    fn holds(&self, place: RulePosition, acls: &[Acl], cx: &Context<'_>) -> bool {
        let test =
            |criterion: &Criterion| (self.has_all || criterion.missing_at(place).is_none()) && criterion.matches(cx);
        let matches = match &self.what {
            Criteria::Own(criterion) => test(criterion),
            Criteria::Named(index) => acls.get(*index).is_some_and(|acl| acl.criteria.iter().any(test)),
        };
        matches != self.negated
    }

    fn decides(&self, place: RulePosition, acls: &[Acl], cx: &Context<'_>) -> Option<bool> {
        cx.undecided.set(false);
        let holds = self.holds(place, acls, cx);
        (holds != self.negated || !cx.undecided.take()).then_some(holds)
    }
}
