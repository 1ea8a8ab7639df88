//! Actions on entries of stick tables: `track-sc0` and its likes, and those that change what is tracked.

use std::sync::Arc;

use baton_model::{DataType, KeyType};
use baton_tables::Tracked;

use super::{Action, Row, RuleArguments, sets};
use crate::context::Context;
use crate::expr::Expr;
use crate::key::SampleKey;
use crate::problem::{LocatedError, RuleError};
use crate::sample::Type;
use crate::stored::StoredNumber;
use crate::tracking::{self, REQUESTS};

/// Rule sets that can begin to track.
const TRACK: u8 = sets::CONNECTION | sets::SESSION | sets::CONTENT | sets::REQUEST | sets::RESPONSE;
/// Rule sets that can change what is tracked.
const CHANGE: u8 = TRACK | sets::TCP_RESPONSE;

pub(super) const ROWS: &[Row] = &[
    Row { name: "track-sc", sets: TRACK, parse: track, doc: "'track-sc0' and so on: counts in the entry of a key." },
    Row {
        name: "sc-inc-gpc",
        sets: CHANGE,
        parse: |words| increment(words, None),
        doc: "Increments a general purpose counter of a tracked entry.",
    },
    Row {
        name: "sc-inc-gpc0",
        sets: CHANGE,
        parse: |words| increment(words, Some(0)),
        doc: "Increments the first general purpose counter of a tracked entry.",
    },
    Row {
        name: "sc-inc-gpc1",
        sets: CHANGE,
        parse: |words| increment(words, Some(1)),
        doc: "Increments the second general purpose counter of a tracked entry.",
    },
    Row {
        name: "sc-add-gpc",
        sets: CHANGE,
        parse: add,
        doc: "Adds a number to a general purpose counter of a tracked entry (as in HAProxy 2.8).",
    },
    Row {
        name: "sc-set-gpt",
        sets: CHANGE,
        parse: |words| set(words, None),
        doc: "Sets a general purpose tag of a tracked entry.",
    },
    Row {
        name: "sc-set-gpt0",
        sets: CHANGE,
        parse: |words| set(words, Some(0)),
        doc: "Sets the first general purpose tag of a tracked entry.",
    },
];

/// The name of an action's row: `track-sc0`, `track-sc1` and so on are one.
pub(super) fn row_name(name: &str) -> &str {
    match name.strip_prefix("track-sc") {
        Some(number) if number.bytes().all(|byte| byte.is_ascii_digit()) => "track-sc",
        _ => name,
    }
}

/// A compiled action.
#[derive(Clone, Debug)]
pub(crate) enum TableEdit {
    Track { counter: u8, key: Expr, table: Arc<str>, counts: CountsRequest },
    Add { counter: u8, place: GeneralPlace, amount: Amount },
    SetTag { counter: u8, place: GeneralPlace, value: Amount },
}

/// Whether tracking counts the request, which began before it was tracked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum CountsRequest {
    /// It does.
    Always,
    /// It does in the backend: in the frontend, `tcp-request content` comes before requests are counted.
    InBackend,
    /// There is no request.
    Never,
}

/// A general purpose counter or tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum GeneralPlace {
    /// One that has a name of its own, or the element of an array that stands for it.
    Named(u8),
    /// An element of an array.
    Element(u8),
}

/// A number of a rule.
#[derive(Clone, Debug)]
pub(crate) enum Amount {
    Fixed(u32),
    Of(Expr),
}

/// `track-sc0 KEY [table NAME]`: the number stands in the name, or behind it in parentheses.
fn track(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let name = words.words[0].split('(').next().unwrap_or_default();
    let digits = words.argument.unwrap_or(name.strip_prefix("track-sc").unwrap_or_default());
    // As in HAProxy, none is 0.
    let counter = number(words, if digits.is_empty() { "0" } else { digits }, "counter")?;
    let counter = limit_counter(words, counter)?;
    if words.peek().is_none_or(|word| word == "table") {
        return Err(RuleError::new("the key is missing").hint("write an expression, such as 'src'").at(words.at));
    }
    let key = words.expr()?;
    let table = match words.peek() {
        Some("table") => {
            words.at += 1;
            words.take("a table's name")?.to_owned()
        }
        _ => words.around.files.within().map(|(proxy, _)| proxy.to_owned()).unwrap_or_default(),
    };
    let Some(found) = words.around.files.table(&table) else {
        let message = format!("unable to find table '{table}' referenced by track-sc{counter}");
        let hint = "add a 'stick-table' line to this section, or name a section that has one: 'table NAME'";
        return Err(words.blame(RuleError::new(message).hint(hint)));
    };
    if !key.gives().casts_to(type_of(found.key)) {
        let message = format!(
            "stick-table '{table}' has keys of type '{}', which a value of type '{}' cannot be",
            found.key.word(),
            key.gives().word()
        );
        return Err(words.blame(RuleError::new(message)));
    }
    let counts = match words.set {
        sets::REQUEST | sets::RESPONSE => CountsRequest::Always,
        sets::CONTENT => CountsRequest::InBackend,
        _ => CountsRequest::Never,
    };
    Ok(Action::Table(Box::new(TableEdit::Track { counter, key, table: table.into(), counts })))
}

fn increment(words: &mut RuleArguments<'_, '_>, fixed: Option<u8>) -> Result<Action, LocatedError> {
    let (counter, place) = place(words, fixed)?;
    Ok(Action::Table(Box::new(TableEdit::Add { counter, place, amount: Amount::Fixed(1) })))
}

fn add(words: &mut RuleArguments<'_, '_>) -> Result<Action, LocatedError> {
    let (counter, place) = place(words, None)?;
    let amount = amount(words)?;
    Ok(Action::Table(Box::new(TableEdit::Add { counter, place, amount })))
}

fn set(words: &mut RuleArguments<'_, '_>, fixed: Option<u8>) -> Result<Action, LocatedError> {
    let (counter, place) = place(words, fixed)?;
    let value = amount(words)?;
    Ok(Action::Table(Box::new(TableEdit::SetTag { counter, place, value })))
}

/// `(IDX,SC)`, or `(SC)` where the index is part of the name.
fn place(words: &RuleArguments<'_, '_>, fixed: Option<u8>) -> Result<(u8, GeneralPlace), LocatedError> {
    let argument = words.argument.unwrap_or_default();
    if let Some(index) = fixed {
        let counter = number(words, if argument.is_empty() { "0" } else { argument }, "counter")?;
        return Ok((limit_counter(words, counter)?, GeneralPlace::Named(index)));
    }
    let Some((index, counter)) = argument.split_once(',') else {
        let name = words.words[0].split('(').next().unwrap_or_default();
        let message = format!("'{name}' needs an index and the number of a counter");
        return Err(words.blame(RuleError::new(message).hint(format!("write {name}(INDEX,COUNTER)"))));
    };
    let index = number(words, index, "index")?;
    if index >= 100 {
        return Err(words.blame(RuleError::new(format!("index {index} is above 99, the last one of an array"))));
    }
    let counter = number(words, counter, "counter")?;
    Ok((limit_counter(words, counter)?, GeneralPlace::Element(index as u8)))
}

fn number(words: &RuleArguments<'_, '_>, text: &str, what: &str) -> Result<u32, LocatedError> {
    text.trim().parse().map_err(|_| words.blame(RuleError::new(format!("'{text}' is not the number of {what}"))))
}

fn limit_counter(words: &RuleArguments<'_, '_>, counter: u32) -> Result<u8, LocatedError> {
    let most = words.around.files.stick_counters();
    match u8::try_from(counter) {
        Ok(counter) if counter < most => Ok(counter),
        _ => {
            let fault = RuleError::new(format!(
                "there is no counter {counter}: they are numbered from 0, and there are {most}"
            ));
            Err(words.blame(fault.hint("'tune.stick-counters' in 'global' says how many there are")))
        }
    }
}

fn amount(words: &mut RuleArguments<'_, '_>) -> Result<Amount, LocatedError> {
    let Some(word) = words.peek() else {
        return Err(RuleError::new("the value is missing").hint("write a number or an expression").at(words.at));
    };
    if let Ok(number) = word.parse::<i64>() {
        words.at += 1;
        return match u32::try_from(number) {
            Ok(number) => Ok(Amount::Fixed(number)),
            Err(_) => Err(words.blame(RuleError::new(format!("'{word}' is not a number from 0 to {}", u32::MAX)))),
        };
    }
    Ok(Amount::Of(words.expr_of("the value", Type::Int)?))
}

/// The type of values that keys are made of.
fn type_of(key: KeyType) -> Type {
    match key {
        KeyType::Ip | KeyType::Ipv6 => Type::Ip,
        KeyType::Integer => Type::Int,
        KeyType::String { .. } => Type::Str,
        KeyType::Binary { .. } => Type::Bin,
    }
}

impl GeneralPlace {
    /// A counter and its rate.
    fn counter(self, entry: &Tracked) -> [(DataType, u8); 2] {
        match self {
            GeneralPlace::Named(0) => [StoredNumber::GPC0, StoredNumber::GPC0_RATE].map(|number| number.place(entry)),
            GeneralPlace::Named(_) => [StoredNumber::GPC1, StoredNumber::GPC1_RATE].map(|number| number.place(entry)),
            GeneralPlace::Element(index) => [(DataType::Gpc, index), (DataType::GpcRate, index)],
        }
    }

    fn tag(self, entry: &Tracked) -> (DataType, u8) {
        match self {
            GeneralPlace::Named(_) => StoredNumber::GPT0.place(entry),
            GeneralPlace::Element(index) => (DataType::Gpt, index),
        }
    }
}

impl Amount {
    fn value(&self, cx: &Context<'_>) -> Option<u32> {
        match self {
            Amount::Fixed(value) => Some(*value),
            Amount::Of(expr) => expr.eval(cx)?.into_int().map(|value| value as u32),
        }
    }
}

impl TableEdit {
    pub fn run(&self, cx: &mut Context<'_>) {
        match self {
            TableEdit::Track { counter, key, table, counts } => {
                begin(*counter, key, table, *counts, cx).unwrap_or_default();
            }
            TableEdit::Add { counter, place, amount } => {
                let Some(amount) = amount.value(cx) else { return };
                if let Some(entry) = cx.tracked.get(*counter) {
                    let now = cx.live.table_now();
                    for (data, index) in place.counter(entry) {
                        entry.add(data, index, amount.into(), now);
                    }
                    entry.touch(now);
                }
            }
            TableEdit::SetTag { counter, place, value } => {
                let Some(value) = value.value(cx) else { return };
                if let Some(entry) = cx.tracked.get(*counter) {
                    let (data, index) = place.tag(entry);
                    let now = cx.live.table_now();
                    entry.set(data, index, value.into(), now);
                    entry.touch(now);
                }
            }
        }
    }
}

/// Tracks the entry of a key, unless its counter tracks one already. `None`: there is no key, or no room for it.
fn begin(counter: u8, key: &Expr, table: &str, counts: CountsRequest, cx: &mut Context<'_>) -> Option<()> {
    if cx.tracked.get(counter).is_some() {
        return None;
    }
    let table = cx.live.table(table)?;
    let now = cx.live.table_now();
    let entry = table.track(&SampleKey::new(key.eval(cx)?, table.key_type())?.key(), now)?;
    let is_http = match counts {
        CountsRequest::Always => true,
        CountsRequest::InBackend => cx.backend.is_some() && cx.content.is_none(),
        CountsRequest::Never => false,
    };
    // A response that failed came before it was tracked, too.
    if is_http {
        tracking::count(&entry, REQUESTS, 1, now);
    }
    let status = cx.response.as_ref().filter(|_| is_http).map_or(0, |response| response.head.view().status());
    if let Some(what) = tracking::of_status(status) {
        tracking::count(&entry, what, 1, now);
    }
    cx.tracked.track(counter, entry, now);
    Some(())
}
