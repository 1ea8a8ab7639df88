//! What changes in a section, keyword by keyword: old value, new value, and the line in the file. A line of a `defaults` section reaches many
//! sections, and is one change.

use std::collections::HashMap;

use baton_model::diff::{FieldChange, proxy_fields};
use baton_model::{Effects, Impact, Proxy, Rule, Ruleset, Source};
use serde::{Deserialize, Serialize};

/// Sections that a change of `defaults` names one by one.
pub(super) const SECTIONS_NAMED: usize = 5;
/// Rules that are shown of a section.
const RULES_MAX: usize = 50;

/// A value that changes.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlannedValue {
    /// The keyword, or the family of keywords.
    pub keyword: String,
    /// The old value; `None`: there is none, or it is too large to be shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The new value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// The file that has the new value; empty: none has.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line from 1, or 0.
    #[serde(skip_serializing_if = "is_none")]
    pub line: u32,
}

fn is_none(line: &u32) -> bool {
    *line == 0
}

impl PlannedValue {
    /// Of a field, with the line that sets it.
    pub(super) fn of(field: &FieldChange, source: Option<&Source>) -> PlannedValue {
        let is_shown = field.from != field.to;
        let value = |text: &String| is_shown.then(|| text.clone());
        PlannedValue {
            keyword: field.word.into(),
            from: value(&field.from),
            to: value(&field.to),
            ..PlannedValue::at(source)
        }
    }

    fn at(source: Option<&Source>) -> PlannedValue {
        let source = source.filter(|source| source.line > 0);
        PlannedValue {
            file: source.map(|source| source.file.to_string()).unwrap_or_default(),
            line: source.map_or(0, |source| source.line),
            ..PlannedValue::default()
        }
    }

    /// As a line of a plan; `None`: there is nothing to show.
    pub(super) fn shown(&self) -> Option<String> {
        let place = if self.line > 0 { format!(" ({}:{})", self.file, self.line) } else { String::new() };
        match (&self.from, &self.to) {
            (Some(from), Some(to)) => Some(format!("{} {from} -> {to}{place}", self.keyword)),
            (Some(from), None) => Some(format!("- {} {from}", self.keyword)),
            (None, Some(to)) => Some(format!("+ {} {to}{place}", self.keyword)),
            (None, None) => (self.line > 0).then(|| format!("{}{place}", self.keyword)),
        }
    }
}

/// A change within a section.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// The word of its row, as in the change of the section.
    pub word: &'static str,
    pub value: PlannedValue,
    pub effects: Effects,
    /// It stands in a `defaults` section.
    is_inherited: bool,
}

/// What differs between two states of a section.
pub(super) fn of_proxy(old: &Proxy, new: &Proxy) -> Vec<Part> {
    let mut parts = Vec::new();
    for field in proxy_fields(old, new) {
        if field.word == "rules" {
            rules(old, new, field.effects, &mut parts);
            continue;
        }
        let keyword = keyword(field.word);
        let (source, is_inherited) = match (new.lines.find(keyword), old.lines.find(keyword)) {
            (Some((source, is_inherited)), _) => (Some(source), is_inherited),
            (None, before) => (None, before.is_some_and(|(_, is_inherited)| is_inherited)),
        };
        let value = PlannedValue::of(&field, source);
        parts.push(Part { word: field.word, value, effects: field.effects, is_inherited });
    }
    parts
}

/// The keyword under which the line of a field is noted.
fn keyword(word: &'static str) -> &'static str {
    match word {
        "rate-limit" => "rate-limit sessions",
        "check" => "option httpchk",
        "stats" => "stats uri",
        word => word,
    }
}

/// Rules that are in one of them only. The same rules in another order are one change without values.
fn rules(old: &Proxy, new: &Proxy, effects: Effects, parts: &mut Vec<Part>) {
    let mut part = |value| parts.push(Part { word: "rules", value, effects, is_inherited: false });
    let mut count = 0;
    let mut sets: Vec<Ruleset> = old.rules.keys().chain(new.rules.keys()).copied().collect();
    sets.sort_unstable();
    sets.dedup();
    for set in sets {
        let (before, after) = (old.rules(set), new.rules(set));
        for rule in without(before, after) {
            let from = Some(rule.words.join(" "));
            part(PlannedValue { keyword: word(set).into(), from, ..PlannedValue::default() });
            count += 1;
        }
        for rule in without(after, before) {
            let to = Some(rule.words.join(" "));
            part(PlannedValue { keyword: word(set).into(), to, ..PlannedValue::at(Some(&rule.source)) });
            count += 1;
        }
    }
    if count == 0 {
        part(PlannedValue { keyword: "rules".into(), ..PlannedValue::default() });
    }
    if count > RULES_MAX {
        parts.truncate(parts.len() - count + RULES_MAX);
    }
}

/// The rules that others do not have, as often as they do not.
fn without<'r>(rules: &'r [Rule], others: &[Rule]) -> Vec<&'r Rule> {
    let mut left: HashMap<&[String], usize> = HashMap::new();
    others.iter().for_each(|rule| *left.entry(&rule.words).or_default() += 1);
    let is_missing = |rule: &&Rule| match left.get_mut(&*rule.words) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        Some(_) | None => true,
    };
    rules.iter().filter(is_missing).collect()
}

fn word(set: Ruleset) -> &'static str {
    match set {
        Ruleset::Acl => "acl",
        Ruleset::HttpRequest => "http-request",
        Ruleset::HttpResponse => "http-response",
        Ruleset::HttpAfterResponse => "http-after-response",
        Ruleset::TcpConnection => "tcp-request connection",
        Ruleset::TcpSession => "tcp-request session",
        Ruleset::TcpContent => "tcp-request content",
        Ruleset::TcpResponse => "tcp-response content",
        Ruleset::UseBackend => "use_backend",
        Ruleset::UseServer => "use-server",
        Ruleset::Redirect => "redirect",
        Ruleset::HttpError => "http-error",
        Ruleset::MonitorFail => "monitor fail",
        Ruleset::ForcePersist => "force-persist",
        Ruleset::IgnorePersist => "ignore-persist",
        Ruleset::Stick => "stick",
        Ruleset::StatsRequest => "stats http-request",
        Ruleset::StatsAdmin => "stats admin",
        Ruleset::Capture => "capture",
        Ruleset::LogFormat => "log-format",
        Ruleset::LogFormatSd => "log-format-sd",
        Ruleset::ErrorLogFormat => "error-log-format",
        Ruleset::UniqueIdFormat => "unique-id-format",
        Ruleset::Forwarded => "option forwarded",
    }
}

/// Changes that several sections have in common.
#[derive(Debug, Default)]
pub(super) struct Shared<'m> {
    sections: HashMap<PlannedValue, Vec<&'m Proxy>>,
}

impl<'m> Shared<'m> {
    /// Counts a change of a section.
    pub fn note(&mut self, part: &Part, proxy: &'m Proxy) {
        self.sections.entry(part.value.clone()).or_default().push(proxy);
    }

    /// Whether a change is one of a `defaults` section, which says it once.
    pub fn has(&self, part: &Part) -> bool {
        // What a change of the mode does depends on the section.
        let is_alike = part.effects.impact == Impact::Nobody;
        // A rule stands in one section, unless this is a `defaults`.
        let is_line_of_several = part.value.line > 0 && self.sections_of(part).len() > 1;
        is_alike && (part.is_inherited || is_line_of_several)
    }

    /// The sections that have it.
    pub fn sections_of(&self, part: &Part) -> &[&'m Proxy] {
        self.sections.get(&part.value).map_or(&[], Vec::as_slice)
    }

    /// The change in one line.
    pub fn describe(&self, part: &Part) -> String {
        let sections = self.sections_of(part);
        let mut names: Vec<&str> = sections.iter().take(SECTIONS_NAMED).map(|proxy| &*proxy.name).collect();
        let more = sections.len().saturating_sub(SECTIONS_NAMED);
        let more = format!("{more} more");
        if sections.len() > SECTIONS_NAMED {
            names.push(&more);
        }
        let count = match sections.len() {
            1 => "1 section".to_owned(),
            count => format!("{count} sections"),
        };
        format!("defaults: {} changed in {count}: {}", part.word, names.join(", "))
    }
}
