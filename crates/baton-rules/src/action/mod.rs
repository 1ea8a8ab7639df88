//! Actions: one row each. To add one, write its parser and its row, and what it does.

mod answer;
mod connection;
mod header;
mod hint;
mod log;
mod normalize;
mod pattern;
mod redirect;
mod response;
mod service;
pub(crate) mod state;
mod tracking;
mod uri;
mod wait;

use std::sync::Arc;

use baton_model::Service;

use crate::condition::{Condition, Surroundings};
use crate::context::{Context, RuleLine};
use crate::expr::{Expr, name_at};
use crate::format::Format;
use crate::problem::{LocatedError, RuleError};
use crate::rules::Verdict;
use crate::sample::Type;

use normalize::NotNormalized;
pub(crate) use redirect::{RedirectRule, Value as RedirectValue};
pub(crate) use response::ResponseRule;

/// The rule sets an action may stand in, as bits.
pub(crate) mod sets {
    pub const REQUEST: u8 = 1;
    pub const RESPONSE: u8 = 2;
    pub const AFTER: u8 = 4;
    pub const CONNECTION: u8 = 8;
    pub const SESSION: u8 = 16;
    pub const CONTENT: u8 = 32;
    pub const TCP_RESPONSE: u8 = 64;
    pub const STATS: u8 = 128;
    pub const HTTP: u8 = REQUEST | RESPONSE | AFTER;
}

/// A row.
pub(crate) struct Row {
    pub name: &'static str,
    /// Where it may stand.
    pub sets: u8,
    /// Reads what follows the name, up to the condition.
    pub parse: fn(&mut RuleArguments<'_, '_>) -> Result<Action, LocatedError>,
    /// What it does, for help and manual.
    pub doc: &'static str,
}

/// A compiled action.
#[derive(Clone, Debug)]
pub(crate) enum Action {
    Allow,
    Reject,
    /// `close`: ends the server's connection.
    Close,
    /// `silent-drop`, with the TTL of the reset.
    SilentDrop(Option<u8>),
    /// `switch-mode http`.
    SwitchMode,
    Deny(ResponseRule),
    Tarpit(ResponseRule),
    Return(ResponseRule),
    /// `auth`, with its realm.
    Auth(Option<Arc<str>>),
    UseService(Service),
    Redirect(Box<RedirectRule>),
    Header(header::HeaderEdit),
    Uri(uri::UriEdit),
    State(state::StateEdit),
    Connection(connection::ConnectionEdit),
    /// `set-map` and its likes.
    Pattern(Box<pattern::PatternEdit>),
    /// `track-sc0` and its likes, and what they track.
    Table(Box<tracking::TableEdit>),
    Normalize(normalize::Normalizer),
    Hint(hint::Hint),
    Log(log::LogAction),
    /// `strict-mode`: whether a rewrite that fails after it ends the request.
    Strict(bool),
    Wait(wait::WaitRule),
    /// What is always so.
    Nothing,
}

const TABLES: [&[Row]; 13] = [
    answer::ROWS,
    redirect::ROWS,
    header::ROWS,
    uri::ROWS,
    state::ROWS,
    log::ROWS,
    service::ROWS,
    wait::ROWS,
    connection::ROWS,
    pattern::ROWS,
    normalize::ROWS,
    hint::ROWS,
    tracking::ROWS,
];

pub(crate) fn rows() -> impl Iterator<Item = &'static Row> {
    TABLES.iter().flat_map(|table| table.iter())
}

/// An action with its condition.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub action: Action,
    pub condition: Option<Condition>,
    /// Where it stands, for `last_rule_line`.
    pub line: RuleLine,
}

impl Rule {
    /// Compiles the words of a rule for the set with the bit `set`, called `keyword`.
    pub fn compile(
        words: &[String],
        set: u8,
        keyword: &str,
        around: &mut Surroundings<'_>,
    ) -> Result<Rule, LocatedError> {
        let Some(first) = words.first() else {
            return Err(RuleError::new(format!("'{keyword}' needs an action")).at(0));
        };
        let (name, rest) = name_at(first);
        let name = tracking::row_name(name);
        let row = rows().find(|row| row.name == name && row.sets & set != 0);
        let Some(row) = row else {
            let fits = rows().filter(|row| row.sets & set != 0).map(|row| row.name);
            let fault = match rows().any(|row| row.name == name) {
                true => RuleError::new(format!("'{keyword}' has no action '{name}'")),
                false => RuleError::unknown(&format!("{keyword} action"), name, crate::later::ACTIONS, fits),
            };
            return Err(fault.at(0));
        };
        let argument = match rest {
            "" => None,
            _ => match rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
                Some(inner) => Some(inner),
                None => return Err(RuleError::new(format!("unexpected '{rest}' after '{name}'")).at(0)),
            },
        };
        let mut input = RuleArguments { words, at: 1, set, argument, around };
        let action = (row.parse)(&mut input)?;
        if argument.is_some() && !action.takes_argument() {
            return Err(RuleError::new(format!("'{name}' takes no argument in parentheses")).at(0));
        }
        let at = input.at;
        let line = RuleLine::of(around.source);
        Ok(Rule { action, condition: Condition::compile(words, at, around)?, line })
    }
}

impl Rule {
    /// Whether no rule after it is ever reached.
    pub fn is_final(&self) -> bool {
        let ends = match &self.action {
            Action::Allow
            | Action::Reject
            | Action::Close
            | Action::SilentDrop(_)
            | Action::SwitchMode
            | Action::Deny(_)
            | Action::Tarpit(_)
            | Action::Return(_)
            | Action::Auth(_)
            | Action::UseService(_) => true,
            Action::Redirect(rule) => rule.always(),
            Action::Header(_)
            | Action::Uri(_)
            | Action::State(_)
            | Action::Connection(_)
            | Action::Normalize(_)
            | Action::Hint(_)
            | Action::Log(_)
            | Action::Strict(_)
            | Action::Wait(_)
            | Action::Pattern(_)
            | Action::Table(_)
            | Action::Nothing => false,
        };
        ends && self.condition.is_none()
    }
}

impl Action {
    /// Whether something stands in parentheses after its name, which its parser reads.
    fn takes_argument(&self) -> bool {
        matches!(
            self,
            Action::State(_) | Action::Pattern(_) | Action::Table(_) | Action::Wait(wait::WaitRule::Address(_))
        )
    }

    /// Does it. `Continue` goes on with the next rule.
    pub fn run(&self, cx: &mut Context<'_>) -> Verdict {
        match self {
            Action::Allow => return Verdict::Allow,
            Action::Reject => return Verdict::Reject,
            Action::Close => return Verdict::Close,
            Action::SilentDrop(ttl) => return Verdict::SilentDrop(*ttl),
            Action::SwitchMode => return Verdict::SwitchMode,
            Action::Deny(page) => return Verdict::Deny(page.make(cx)),
            Action::Tarpit(page) => return Verdict::Tarpit(page.make(cx)),
            Action::Return(content) => return Verdict::Return(content.make(cx)),
            Action::Auth(realm) => return Verdict::Auth(realm.clone()),
            Action::UseService(service) => return Verdict::UseService(*service),
            Action::Redirect(rule) => {
                if let Some(redirect) = rule.make(cx) {
                    return Verdict::Redirect(redirect);
                }
            }
            Action::Header(edit) => return rewritten(edit.run(cx), cx),
            Action::Uri(edit) => return rewritten(edit.run(cx), cx),
            Action::State(edit) => edit.run(cx),
            Action::Connection(edit) => edit.run(cx),
            Action::Pattern(edit) => edit.run(cx),
            Action::Table(edit) => edit.run(cx),
            Action::Log(action) => action.run(cx),
            Action::Wait(rule) => {
                if let Some(wait) = rule.make(cx) {
                    return Verdict::Wait(wait);
                }
            }
            Action::Normalize(normalizer) => {
                if let Some(request) = &mut cx.request {
                    return match normalizer.run(request) {
                        Ok(()) => Verdict::Continue,
                        Err(NotNormalized::Refused) => Verdict::Invalid,
                        Err(NotNormalized::Invalid) => rewritten(Err(InvalidRewrite), cx),
                    };
                }
            }
            // Whoever goes through the rules collects hints.
            Action::Hint(_) | Action::Strict(_) | Action::Nothing => {}
        }
        Verdict::Continue
    }
}

fn rewritten(outcome: Result<(), InvalidRewrite>, cx: &mut Context<'_>) -> Verdict {
    match outcome {
        Ok(()) => Verdict::Continue,
        Err(InvalidRewrite) => {
            cx.failed_rewrites += 1;
            Verdict::Failed
        }
    }
}

/// The result of a rewrite cannot be sent; nothing was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct InvalidRewrite;

/// Compiles an `http-error` line, of which only those come here that compose a response.
pub(crate) fn http_error(words: &mut RuleArguments<'_, '_>) -> Result<ResponseRule, LocatedError> {
    let (rule, has_status) = response::read(words, 200)?;
    match words.words.get(words.at) {
        Some(word) => Err(RuleError::new(format!("unknown keyword '{word}'")).at(words.at)),
        None if !has_status => Err(RuleError::new("a status is missing").hint("add 'status CODE'").at(words.at)),
        None => Ok(rule),
    }
}

/// The arguments of a rule while they are read.
pub(crate) struct RuleArguments<'a, 'b> {
    pub words: &'a [String],
    pub at: usize,
    pub set: u8,
    /// What stood in parentheses after the action's name.
    pub argument: Option<&'a str>,
    pub around: &'a mut Surroundings<'b>,
}

impl<'a> RuleArguments<'a, '_> {
    /// The next word, if the action goes on: not at the end and not at the condition.
    pub fn peek(&self) -> Option<&'a str> {
        self.words.get(self.at).map(String::as_str).filter(|word| !matches!(*word, "if" | "unless"))
    }

    /// Takes the next word, whatever it is.
    pub fn take(&mut self, what: &str) -> Result<&'a str, LocatedError> {
        match self.words.get(self.at) {
            Some(word) if !word.is_empty() => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(RuleError::new(format!("{what} is missing")).at(self.at)),
        }
    }

    /// Takes the next word as a format.
    pub fn format(&mut self, what: &str) -> Result<Format, LocatedError> {
        let text = self.take(what)?;
        Format::compile(text, self.around.place, self.around.files).map_err(|fault| self.blame(fault))
    }

    /// Takes the next word as a format of what stands in one line of a message.
    pub fn line(&mut self, what: &str) -> Result<Format, LocatedError> {
        let format = self.format(what)?;
        if format.texts().flatten().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(
                self.blame(RuleError::new(format!("{what} must be a single line")).hint("remove the line break"))
            );
        }
        Ok(format)
    }

    /// Takes an expression. HAProxy lets it go on in the next word after a comma.
    pub fn expr(&mut self) -> Result<Expr, LocatedError> {
        let mut text = self.take("an expression")?.to_owned();
        while text.ends_with(',') {
            text.push_str(self.take("a converter")?);
        }
        Expr::compile(&text, self.around.place, self.around.files).map_err(|fault| self.blame(fault))
    }

    /// Takes `what`, an expression whose value can be of this type.
    pub fn expr_of(&mut self, what: &str, kind: Type) -> Result<Expr, LocatedError> {
        if self.peek().is_none() {
            return Err(RuleError::new(format!("{what} is missing")).at(self.at));
        }
        let expr = self.expr()?;
        match expr.gives().casts_to(kind) {
            true => Ok(expr),
            false => {
                let gives = expr.gives().word();
                Err(self.blame(RuleError::new(format!("this needs type {}, not {gives}", kind.word()))))
            }
        }
    }

    /// The fault, at the word taken last.
    pub fn blame(&self, fault: RuleError) -> LocatedError {
        fault.at(self.at - 1)
    }

    pub fn warn(&mut self, fault: RuleError) {
        let located = fault.at(self.at - 1);
        self.around.warnings.push(located);
    }
}

/// Evaluates a format into the working memory and hands it over together with the context.
pub(crate) fn with_text<T>(
    format: &Format,
    cx: &mut Context<'_>,
    then: impl FnOnce(&mut Context<'_>, &[u8]) -> T,
) -> T {
    if let Some(text) = format.constant() {
        return then(cx, text);
    }
    let mut text = std::mem::take(cx.scratch);
    text.clear();
    format.write(cx, &mut text);
    let value = then(cx, &text);
    *cx.scratch = text;
    value
}
