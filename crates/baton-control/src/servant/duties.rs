//! What a worker tells its master, and what it does for it: pure. Events come in, duties go out, in the order in which the master has to
//! hear of them: a text before the sockets that it names, and that no address is left to be emptied after those that are closed.

use baton_model::{AccessLevel, Author, Field, Object};

use super::link::ToWorker;
use crate::handover::memory::MemoryKind;
use crate::messages::Said;
use crate::overrides::{OverrideKey, OverrideRecord};
use crate::reload::EntryNews;

/// Overrides that are told one by one; of more, all are told at once.
const TOLD_ONE_BY_ONE: usize = 64;

/// Changed entries of maps and ACLs that are told one by one, of which requests may change many.
const ENTRIES_ONE_BY_ONE: usize = 4096;

/// Parts of what is remembered that a master keeps whole.
const KEPT_PARTS: [MemoryKind; 2] = [MemoryKind::Variables, MemoryKind::History];

/// What happened.
#[derive(Debug)]
pub(crate) enum DutyEvent {
    /// The process serves. `text`: what it works by, unless the master has that already.
    Serving { text: Option<Vec<u8>>, is_leaving: bool },
    /// Another configuration is in use. `text`: what it was read from.
    Changed { text: Option<Vec<u8>>, overrides: Vec<(Object, Field)>, is_leaving: bool },
    /// Operators have set this, or files have ended it.
    Overridden(Vec<(Object, Field)>),
    /// Entries of maps and ACLs have changed at run time, or files have ended that.
    EntriesChanged(EntryNews),
    /// Sockets of addresses on their way out were closed. `is_leaving`: there are others.
    Closed { is_leaving: bool },
    /// Addresses are on their way out.
    Leaving,
    /// Another key seals session tickets.
    Rotated,
    /// Servers went up or down, or checks failed.
    HealthChanged,
    /// Another part of what is to be remembered has changed.
    PartChanged(MemoryKind),
    /// Another process has taken over.
    Succeeded(u32),
    /// The master says this.
    Heard(ToWorker),
}

/// What to do.
#[derive(Debug, Eq, PartialEq)]
pub(crate) enum Duty {
    /// Keeps the text in use with the master.
    KeepText(Vec<u8>),
    /// Keeps the keys of session tickets with it.
    KeepTickets,
    /// Keeps all that operators have set with it.
    KeepOverrides,
    /// Keeps the memory of counters with it.
    KeepCounters,
    /// Keeps the health of servers with it.
    KeepHealth,
    /// Keeps the memory of stick tables with it.
    KeepTables,
    /// Keeps another part of what is to be remembered with it.
    KeepPart(MemoryKind),
    /// Keeps what an operator has set, or that it is set no more.
    KeepOverride(Object, Field),
    /// Keeps an entry of a map or an ACL with it, or that it is as in the file.
    KeepEntry(OverrideKey, Option<Box<OverrideRecord>>),
    /// Tells it which sockets to hold.
    ReportSockets,
    /// Tells it that no address is left to be emptied.
    Settle,
    /// Has it keep new clients from addresses on their way out, where this process lacks right to.
    Retire,
    /// Tells it that this process serves.
    Ready,
    /// Tells it who has taken over, so that it does not replace this process.
    HandOver(u32),
    /// Answers that this process is alive.
    Pong,
    /// Serves whoever connected to the master's control socket.
    Serve,
    /// Serves an operator who connected to the master's socket.
    ServeOperator(AccessLevel, Option<Author>),
}

/// What follows from an event.
pub(crate) fn duties(event: DutyEvent) -> Vec<Duty> {
    let mut duties = Vec::new();
    match event {
        DutyEvent::Serving { text, is_leaving } => {
            duties.extend(text.map(Duty::KeepText));
            duties.extend([Duty::KeepTickets, Duty::KeepOverrides, Duty::KeepCounters, Duty::KeepHealth]);
            duties.extend(KEPT_PARTS.map(Duty::KeepPart));
            duties.extend([Duty::KeepTables, Duty::ReportSockets]);
            duties.push(if is_leaving { Duty::Retire } else { Duty::Settle });
            duties.push(Duty::Ready);
        }
        DutyEvent::Changed { text, overrides, is_leaving } => {
            duties.extend(text.map(Duty::KeepText));
            duties.extend(of_overrides(overrides));
            duties.extend([Duty::KeepTables, Duty::ReportSockets]);
            duties.extend((!is_leaving).then_some(Duty::Settle));
        }
        DutyEvent::Overridden(overrides) => duties = of_overrides(overrides),
        DutyEvent::EntriesChanged(EntryNews::These(entries)) if entries.len() <= ENTRIES_ONE_BY_ONE => {
            duties.extend(entries.into_iter().map(|(of, set)| Duty::KeepEntry(of, set.map(Box::new))));
        }
        DutyEvent::EntriesChanged(EntryNews::These(_) | EntryNews::Many) => duties.push(Duty::KeepOverrides),
        DutyEvent::Closed { is_leaving } => {
            duties.push(Duty::ReportSockets);
            duties.extend((!is_leaving).then_some(Duty::Settle));
        }
        DutyEvent::Leaving => duties.push(Duty::Retire),
        DutyEvent::HealthChanged => duties.push(Duty::KeepHealth),
        DutyEvent::PartChanged(kind) => duties.push(Duty::KeepPart(kind)),
        DutyEvent::Rotated => duties.push(Duty::KeepTickets),
        DutyEvent::Succeeded(pid) => duties.push(Duty::HandOver(pid)),
        DutyEvent::Heard(message) => duties.extend(of_message(message)),
    }
    duties
}

fn of_overrides(overrides: Vec<(Object, Field)>) -> Vec<Duty> {
    match overrides.len() {
        ..=TOLD_ONE_BY_ONE => overrides.into_iter().map(|(object, field)| Duty::KeepOverride(object, field)).collect(),
        _ => vec![Duty::KeepOverrides],
    }
}

fn of_message(message: ToWorker) -> Option<Duty> {
    match message {
        ToWorker::Serve => Some(Duty::Serve),
        ToWorker::Ping => Some(Duty::Pong),
        ToWorker::Session { level, uid, pid, socket } => {
            let by = (!socket.is_empty()).then_some(Author { uid, pid, socket });
            // A level that we do not know gets nobody to speak with.
            level_of(&level).map(|level| Duty::ServeOperator(level, by))
        }
        // What belongs to a start only.
        ToWorker::Sockets
        | ToWorker::Number { .. }
        | ToWorker::Input
        | ToWorker::Text
        | ToWorker::Earlier
        | ToWorker::Tickets
        | ToWorker::Overrides
        | ToWorker::Counters
        | ToWorker::Health
        | ToWorker::Part { .. }
        | ToWorker::Begin(_) => None,
    }
}

fn level_of(word: &str) -> Option<AccessLevel> {
    [AccessLevel::User, AccessLevel::Operator, AccessLevel::Admin].into_iter().find(|level| level.word() == word)
}

/// The line to the master failed: what is to be said of it. A process that stops needs none.
pub(crate) fn bereft(error: &std::io::Error, pid: u32, is_stopping: bool) -> Option<Said> {
    (!is_stopping).then(|| {
        Said::Alert(format!(
            "The master is gone ({error}); process {pid} keeps serving. Replace it with `-sf {pid}`, or stop it with a signal."
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overrides(count: usize) -> Vec<(Object, Field)> {
        (0..count).map(|number| (Object::server(&"b".into(), &number.to_string().into()), Field::Weight)).collect()
    }

    #[test]
    fn a_start_ends_with_ready_and_what_a_crash_needs_comes_before() {
        let serving = |text, is_leaving| duties(DutyEvent::Serving { text, is_leaving });
        // Addresses that were put back for those who wait there are on their way out already.
        let kept = [Duty::KeepTickets, Duty::KeepOverrides, Duty::KeepCounters, Duty::KeepHealth];
        let all = serving(None, true);
        assert_eq!(
            (&all[..4], &all[4..]),
            (
                &kept[..],
                &[
                    Duty::KeepPart(MemoryKind::Variables),
                    Duty::KeepPart(MemoryKind::History),
                    Duty::KeepTables,
                    Duty::ReportSockets,
                    Duty::Retire,
                    Duty::Ready
                ][..]
            )
        );
        let all = serving(Some(vec![1]), false);
        assert_eq!(all.first(), Some(&Duty::KeepText(vec![1])));
        assert_eq!(&all[8..], [Duty::ReportSockets, Duty::Settle, Duty::Ready]);
    }

    #[test]
    fn a_text_is_kept_before_its_sockets_and_is_settled_when_no_address_is_left() {
        let changed =
            |is_leaving| duties(DutyEvent::Changed { text: Some(vec![1]), overrides: Vec::new(), is_leaving });
        let kept = || [Duty::KeepText(vec![1]), Duty::KeepTables, Duty::ReportSockets];
        assert_eq!((&changed(false)[..3], &changed(false)[3..]), (&kept()[..], &[Duty::Settle][..]));
        assert_eq!(changed(true), kept());
        assert_eq!(duties(DutyEvent::Closed { is_leaving: true }), [Duty::ReportSockets]);
        assert_eq!(duties(DutyEvent::Closed { is_leaving: false }), [Duty::ReportSockets, Duty::Settle]);
    }

    #[test]
    fn many_overrides_are_told_at_once() {
        let count = |count| duties(DutyEvent::Overridden(overrides(count))).len();
        assert_eq!([0, 1, TOLD_ONE_BY_ONE, TOLD_ONE_BY_ONE + 1].map(count), [0, 1, TOLD_ONE_BY_ONE, 1]);
        assert_eq!(duties(DutyEvent::Overridden(overrides(TOLD_ONE_BY_ONE + 1))), [Duty::KeepOverrides]);
    }

    #[test]
    fn many_entries_are_told_at_once() {
        let entries = |count| EntryNews::These((0..count).map(|_| (OverrideKey::default(), None)).collect());
        let count = |count| duties(DutyEvent::EntriesChanged(entries(count))).len();
        assert_eq!([0, 1, ENTRIES_ONE_BY_ONE, ENTRIES_ONE_BY_ONE + 1].map(count), [0, 1, ENTRIES_ONE_BY_ONE, 1]);
        assert_eq!(duties(DutyEvent::EntriesChanged(EntryNews::Many)), [Duty::KeepOverrides]);
    }

    #[test]
    fn an_operator_gets_the_level_of_the_socket_and_none_without_one() {
        let session = |level: &str, socket: &str| {
            let message = ToWorker::Session { level: level.into(), uid: Some(1), pid: None, socket: socket.into() };
            duties(DutyEvent::Heard(message))
        };
        let by = Author { uid: Some(1), pid: None, socket: "unix@/m".into() };
        assert_eq!(session("admin", "unix@/m"), [Duty::ServeOperator(AccessLevel::Admin, Some(by))]);
        assert_eq!(session("user", ""), [Duty::ServeOperator(AccessLevel::User, None)]);
        assert_eq!(session("king", "unix@/m"), []);
        assert_eq!(duties(DutyEvent::Heard(ToWorker::Ping)), [Duty::Pong]);
        assert_eq!(duties(DutyEvent::Heard(ToWorker::Tickets)), []);
    }

    #[test]
    fn a_lost_master_is_reported_but_by_who_stops() {
        let error = std::io::Error::other("why");
        assert!(
            matches!(bereft(&error, 7, false), Some(Said::Alert(text)) if text.contains("(why); process 7 keeps serving"))
        );
        assert_eq!(bereft(&error, 7, true), None);
    }
}
