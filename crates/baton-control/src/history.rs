//! What changed lately, and by whom: the last changes of a process, for the statistics page. And the connections that came under an earlier
//! configuration, of which requests and tunnels in flight are still served by it.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Weak};

use baton_model::{Author, Object};
use baton_proxy::{FrontendService, Generation, ListenerPlan};
use baton_rules::PatternChange;

use crate::printable;
use crate::protocol::{ChangeRecord, Outcome};
use crate::reload::{Change, Changed, DynamicCookie};

/// Changes that are remembered, over a takeover and a crash too.
const CHANGES_MAX: usize = 50;
/// Changes of a reload that are named one by one.
const NAMED_MAX: usize = 4;
/// Bytes of the text of one.
const TEXT_MAX: usize = 2048;
/// Reasons against a reload that are given.
const REASONS_MAX: usize = 2;
/// Listeners of earlier configurations whose connections are counted.
const EARLIER_MAX: usize = 4096;

/// The last changes.
#[derive(Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<ChangeRecord>,
    /// There are changes of which the master does not know.
    has_news: bool,
    earlier: Vec<Weak<ListenerPlan>>,
}

/// A change that is being made.
pub(crate) struct Pending {
    what: String,
    by: String,
}

impl Pending {
    /// What a change is, in words; `None`: it is of no interest, or only its outcome tells.
    pub(crate) fn of(change: &Change) -> Option<Pending> {
        let by_operator = |what: String, by: &Author| Some(Pending { what, by: format!("operator ({by})") });
        let operator = |what: String| Some(Pending { what, by: "operator".into() });
        let server = |server: &baton_proxy::balance::ServerState| match server.backend() {
            Some(backend) => format!("server {}/{}", backend.name(), server.name()),
            None => format!("server {}", server.name()),
        };
        match change {
            Change::Reload(_) => Some(Pending { what: String::new(), by: "files (reload)".into() }),
            Change::Override { server: whose, value, by } => {
                by_operator(format!("{}: {} {value}", server(whose), value.field().word()), by)
            }
            Change::OverridesCleared { object, field } => {
                let whose = object.as_ref().map_or_else(|| "all".to_owned(), ToString::to_string);
                let field = field.map(|field| format!(" {}", field.word())).unwrap_or_default();
                Some(Pending { what: format!("overrides cleared: {whose}{field}"), by: "operator".into() })
            }
            Change::Health { server: whose, is_checked, by } => {
                let word = if *is_checked { "on" } else { "off" };
                by_operator(format!("{}: health checks {word}", server(whose)), by)
            }
            Change::ServerAdded { backend, server, by, .. } => {
                by_operator(format!("server {backend}/{server} added"), by)
            }
            Change::ServerDeleted { server: whose, by } => by_operator(format!("{} deleted", server(whose)), by),
            Change::Certificates(_) => {
                Some(Pending { what: "certificates replaced".into(), by: "files or operator".into() })
            }
            Change::Authority { path, .. } => {
                Some(Pending { what: format!("{} replaced", path.display()), by: "operator".into() })
            }
            Change::OcspResponse { .. } => Some(Pending { what: "OCSP response set".into(), by: "operator".into() }),
            Change::TicketKey { .. } => {
                Some(Pending { what: "key of session tickets added".into(), by: "operator".into() })
            }
            Change::Patterns(reference, change) => {
                let what = match change {
                    PatternChange::Add { .. } => "entry added",
                    PatternChange::Set(..) | PatternChange::SetNumber(..) => "entry set",
                    PatternChange::Delete(_) | PatternChange::DeleteNumber(_) => "entry deleted",
                    PatternChange::Clear(_) => "emptied",
                    PatternChange::Prepare => return None,
                    PatternChange::Commit(_) => "other version in use",
                };
                operator(format!("{}: {what}", reference.title()))
            }
            // What checks, agents, sessions and name servers would do by themselves, some of them every second.
            Change::TicketKeyExpired | Change::SessionEnded(_) | Change::Discovered(_) | Change::Agent { .. } => None,
            Change::AgentForced { server: whose, .. } => operator(format!("{}: agent set", server(whose))),
            Change::HealthForced(whose, _) => operator(format!("{}: health set", server(whose))),
            Change::ServerSessionsEnded(whose) => operator(format!("{}: sessions ended", server(whose))),
            Change::DynamicCookie { backend, wanted } => operator(match wanted {
                DynamicCookie::Enabled => format!("backend {backend}: dynamic cookie enabled"),
                DynamicCookie::Disabled => format!("backend {backend}: dynamic cookie disabled"),
                DynamicCookie::Key(_) => format!("backend {backend}: key of the dynamic cookie set"),
            }),
            Change::Limited { object, field, value, by } => {
                let object = match object {
                    Object::Process => field.word().to_owned(),
                    other => format!("{other}: {}", field.word()),
                };
                let limit = value.as_ref().map_or_else(|| "of the configuration".to_owned(), ToString::to_string);
                by_operator(format!("{object} {limit}"), by)
            }
            Change::FrontendService(plan, service, by) => {
                let word = match service {
                    FrontendService::Open => "enabled",
                    FrontendService::Paused => "disabled",
                    FrontendService::Stopped => "shut down",
                };
                by_operator(format!("frontend {} {word}", plan.proxy.name), by)
            }
            Change::VariableSet { line, by, .. } => by_operator(format!("variable {} set", line.name().full()), by),
            Change::CountersCleared { all } => {
                let what = if *all { "counters cleared" } else { "peaks cleared" };
                Some(Pending { what: what.into(), by: "operator".into() })
            }
        }
    }
}

impl History {
    /// Notes what came of a change.
    pub(crate) fn note(&mut self, pending: Option<Pending>, changed: &Changed, at_s: u64) {
        let Some(Pending { mut what, by }) = pending else { return };
        let is_refused = match changed {
            Changed::Reload(outcome) => {
                what = of_reload(outcome);
                !outcome.accepted
            }
            Changed::Refused(reason) => {
                what = format!("{what}: refused: {}", reason.trim_end());
                true
            }
            Changed::Certificates(_) | Changed::Done | Changed::Discovered(_) | Changed::Version(_) => false,
        };
        self.push(ChangeRecord { at_s, what, by, is_refused });
    }

    /// Goes on from the changes of another process.
    pub(crate) fn recall(&mut self, kept: &[ChangeRecord]) {
        let mut all: Vec<ChangeRecord> = kept.iter().cloned().chain(std::mem::take(&mut self.changes)).collect();
        all.sort_by_key(|change| change.at_s);
        all.into_iter().for_each(|change| self.push(change));
    }

    /// The changes for another process or the master, the oldest first.
    pub(crate) fn remember(&self) -> Vec<ChangeRecord> {
        self.changes.iter().cloned().collect()
    }

    /// Whether there was another change since this was asked last.
    pub(crate) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.has_news)
    }

    fn push(&mut self, mut change: ChangeRecord) {
        // Another process may have written it, and it is shown.
        for text in [&mut change.what, &mut change.by] {
            *text = printable::line(text).into_owned();
            let end = (0..=TEXT_MAX.min(text.len())).rev().find(|&at| text.is_char_boundary(at));
            text.truncate(end.unwrap_or_default());
        }
        if self.changes.len() == CHANGES_MAX {
            self.changes.pop_front();
        }
        self.changes.push_back(change);
        self.has_news = true;
    }

    /// The changes, the last one first.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &ChangeRecord> {
        self.changes.iter().rev()
    }

    /// Another configuration is in use instead of the one before.
    pub(crate) fn replaced(&mut self, before: &Generation, now: &Generation) {
        let stay: HashSet<*const ListenerPlan> = now.listeners.iter().map(Arc::as_ptr).collect();
        let stays = |plan: &Arc<ListenerPlan>| stay.contains(&Arc::as_ptr(plan));
        self.earlier.retain(|plan| plan.strong_count() > 0);
        let gone = before.listeners.iter().filter(|plan| !stays(plan)).map(Arc::downgrade);
        self.earlier.extend(gone.take(EARLIER_MAX.saturating_sub(self.earlier.len())));
    }

    /// Connections that came under an earlier configuration.
    pub(crate) fn earlier_connections(&self) -> usize {
        self.earlier.iter().map(Weak::strong_count).sum()
    }
}

fn of_reload(outcome: &Outcome) -> String {
    if !outcome.accepted {
        let reasons = outcome.messages.iter().filter(|message| message.severity == "alert");
        let reasons: Vec<&str> = reasons.take(REASONS_MAX).map(|message| message.message.trim_end()).collect();
        return format!("reload refused: {}", reasons.join("; "));
    }
    let changes: Vec<&str> = outcome.plan.changes.iter().map(|change| &*change.change).collect();
    match changes.len() {
        0 => "reload without a difference".into(),
        count if count > NAMED_MAX => format!("{}; and {} more", changes[..NAMED_MAX].join("; "), count - NAMED_MAX),
        _ => changes.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Plan, PlannedChange};

    fn reload(changes: &[&str], accepted: bool) -> Changed {
        let change = |change: &&str| PlannedChange { change: (*change).into(), ..PlannedChange::default() };
        let plan = Plan { changes: changes.iter().map(change).collect(), ..Plan::default() };
        Changed::Reload(Box::new(Outcome { accepted, plan, ..Outcome::default() }))
    }

    fn pending() -> Option<Pending> {
        Some(Pending { what: "counters cleared".into(), by: "operator".into() })
    }

    #[test]
    fn the_last_changes_are_remembered_in_words() {
        let mut history = History::default();
        let mut check = |changed: Changed, expect: &str, is_refused: bool| {
            history.note(pending(), &changed, 7);
            let last = history.changes().next().expect("one");
            assert_eq!((&*last.what, last.is_refused, last.at_s), (expect, is_refused, 7));
        };
        check(Changed::Done, "counters cleared", false);
        check(Changed::Refused("No.\n".into()), "counters cleared: refused: No.", true);
        check(reload(&[], true), "reload without a difference", false);
        check(reload(&["a", "b"], true), "a; b", false);
        check(reload(&["a", "b", "c", "d", "e", "f"], true), "a; b; c; d; and 2 more", false);
        check(reload(&[], false), "reload refused: ", true);
        for _ in 0..60 {
            history.note(pending(), &Changed::Done, 8);
        }
        assert_eq!(history.changes().count(), CHANGES_MAX);
        history.note(None, &Changed::Done, 9);
        assert!(history.changes().all(|change| change.at_s == 8), "what is of no interest is not noted");
    }
}
