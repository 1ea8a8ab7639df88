//! Maps and ACLs on the change path: their contents change here at run time, apart from what rules do by themselves, and here they are what
//! other processes and the master learn of.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_rules::{ChangedKey, FileEdits, PatternChange, PatternRefusal, PlannedPatterns, Reference, References};

use super::{ChangeLine, Changed};
use crate::overrides::entries;
use crate::overrides::{OverrideKey, OverrideRecord, PlannedOverride};

/// How often the master learns what requests have changed.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// An entry that changed: under which key it is kept, and its record; `None`: it is as in the file.
pub(crate) type EntryReport = (OverrideKey, Option<OverrideRecord>);

/// What changed in maps and ACLs since the last time.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum EntryNews {
    These(Vec<EntryReport>),
    /// More than are told one by one.
    Many,
}

/// What of the entries another process or the master has to know.
#[derive(Debug, Default)]
pub(super) struct Entries {
    /// Of another process, until the first commit.
    expected: Vec<OverrideRecord>,
    /// Somebody wants to know what changes.
    is_told: bool,
    due: Option<Instant>,
}

impl ChangeLine {
    /// The pattern references of the configuration in use.
    pub(crate) fn references(&self) -> &Arc<References> {
        self.rules.references()
    }

    pub(super) fn change_patterns(&self, reference: &Reference, change: PatternChange) -> Changed {
        match reference.live().change_patterns(change) {
            Ok(None) => Changed::Done,
            Ok(Some(version)) => Changed::Version(version),
            Err(refusal) => Changed::Refused(match refusal {
                PatternRefusal::NotFound => "Key not found.".into(),
                PatternRefusal::Version => "Version number out of range.".into(),
                PatternRefusal::Invalid(message) => format!("{message}."),
            }),
        }
    }

    /// Entries of another process are expected, for the first commit.
    pub(super) fn expect_entries(&mut self, kept: &[OverrideRecord]) {
        self.entries.expected.extend(kept.iter().filter(|record| record.field == entries::ENTRY).cloned());
    }

    /// The contents of the configuration that comes into use: what its files changed, and, the first time, what another process had.
    pub(super) fn commit_patterns(&mut self, references: &References) {
        references.commit();
        let expected = std::mem::take(&mut self.entries.expected);
        if !expected.is_empty() {
            let by_title: HashMap<String, Arc<Reference>> =
                references.list().into_iter().map(|one| (one.title(), one)).collect();
            for (title, change) in expected.iter().filter_map(entries::read) {
                if let Some(reference) = by_title.get(title) {
                    reference.live().restore(&change);
                }
            }
        }
        if self.entries.is_told {
            references.list().iter().for_each(|one| one.live().note_changes());
        }
    }

    /// From now on, what changes is told.
    pub(crate) fn tell_entries(&mut self, now: Instant) {
        self.entries.is_told = true;
        self.entries.due = self.references().has_actions().then_some(now + TOLD_EVERY);
        self.references().list().iter().for_each(|one| one.live().note_changes());
    }

    /// All entries that are not as in their files.
    pub(crate) fn entry_records(&self) -> Vec<OverrideRecord> {
        let all = self.references().list();
        let of = |one: &Arc<Reference>| {
            let title = one.title();
            one.live().changes().into_iter().map(move |change| entries::record(&title, &change)).collect::<Vec<_>>()
        };
        all.iter().flat_map(of).collect()
    }

    /// How many entries of each reference are not as in its file.
    pub(crate) fn entry_counts(&self) -> Vec<(String, usize)> {
        let all = self.references().list();
        let counts = all.iter().map(|one| (one.title(), one.live().changed_count()));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    /// Whether entries changed of which the master does not know. It is asked again after a while if requests change entries.
    pub(crate) fn has_untold_entries(&mut self, now: Instant) -> bool {
        if !self.entries.is_told {
            return false;
        }
        self.entries.due = self.references().has_actions().then_some(now + TOLD_EVERY);
        self.references().list().iter().any(|one| one.live().has_noted())
    }

    /// The entries that changed since the last time, for the master to know.
    pub(crate) fn take_untold_entries(&mut self) -> EntryNews {
        let mut news = Some(Vec::new());
        for one in self.references().list() {
            let title = one.title();
            let report = |change: ChangedKey| {
                let record = (change.file != change.live).then(|| entries::record(&title, &change));
                (entries::key(&title, &change), record)
            };
            let noted = one.live().take_noted();
            news = news.zip(noted).map(|(mut all, noted)| {
                all.extend(noted.into_iter().map(report));
                all
            });
        }
        news.map_or(EntryNews::Many, EntryNews::These)
    }

    /// When requests may have changed something that the master has to know.
    pub(crate) fn entries_due(&self) -> Option<Instant> {
        self.entries.due
    }
}

/// What a reload does with entries: those of files that changed, in words, and those that were changed at run time and end.
pub(super) fn planned(references: &References) -> (Vec<String>, Vec<PlannedOverride>) {
    let (mut lines, mut ended) = (Vec::new(), Vec::new());
    for PlannedPatterns { name, edits, ended: keys } in references.planned() {
        let FileEdits { added, changed, removed, named } = edits;
        if added + changed + removed > 0 {
            let more = (added + changed + removed).saturating_sub(named.len());
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            lines.push(format!(
                "patterns of {name}: {added} added, {changed} changed, {removed} removed ({}{more})",
                named.join(", ")
            ));
        }
        ended.extend(keys.iter().map(|change| PlannedOverride {
            set: entries::record(&name, change),
            ends: Some("the file changed this entry".into()),
        }));
    }
    (lines, ended)
}
