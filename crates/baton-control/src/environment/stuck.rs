//! Readings of files that do not end. A file system or a name service that does not respond keeps the thread that asks it, and would
//! keep every later reload, the graceful stop and a successor with it: so the reading is given up, its thread is abandoned, and what it
//! read is not used.
//!
//! A reading that makes progress may take long, up to [`READ_WITHIN`]. One that waits for one and the same file is given up after
//! [`CALL_WITHIN`], and earlier when somebody waits for it to end: a newer reload, or a process that takes over. How much earlier doubles
//! each time, from [`OVERTAKEN_AFTER`], so that reloads that keep coming do not overtake each other for ever.

use std::time::{Duration, Instant};

use super::{Call, Progress};

/// How long a reading may take in all.
pub(crate) const READ_WITHIN: Duration = Duration::from_secs(15 * 60);
/// How long it may wait for one file or host name.
pub(crate) const CALL_WITHIN: Duration = Duration::from_secs(60);
/// How long it may wait for one file when a later change waits for the reading, the first time.
pub(crate) const OVERTAKEN_AFTER: Duration = Duration::from_secs(2);
/// A name service is asked several times before it counts as silent.
const RESOLVED_WITHIN: Duration = Duration::from_secs(30);

/// Why a reading that has been going on for `time` is given up; `None`: it is not. `awaited`: somebody waits for it to end, and has this
/// much patience.
pub(crate) fn verdict(time: Duration, progress: &Progress, now: Instant, awaited: Option<Duration>) -> Option<String> {
    let (waited, call) = progress.longest(now).unzip();
    let patience = awaited.unwrap_or(CALL_WITHIN).min(CALL_WITHIN);
    let limit = match &call {
        Some(Call::Host(_)) => patience.max(RESOLVED_WITHIN),
        Some(Call::File(_)) | None => patience,
    };
    if let (Some(waited), Some(call)) = (waited.filter(|waited| *waited >= limit), &call) {
        let newer = if awaited.is_some() { " and was superseded" } else { "" };
        let cause = match call {
            Call::File(_) => "its file system does not respond",
            Call::Host(_) => "the name service does not respond",
        };
        return Some(format!("{call} has taken {} s{newer}: {cause}", waited.as_secs()));
    }
    (time >= READ_WITHIN).then(|| {
        let call = call.map(|call| format!(", at last {call}")).unwrap_or_default();
        format!("reading the files has taken {} min{call}", READ_WITHIN.as_secs() / 60)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outside;

    #[test]
    fn a_reading_is_given_up_when_one_call_does_not_return() {
        let outside = Outside::new("/".into(), None).unwrap();
        let progress = outside.progress();
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let said = |time, awaited: Option<u64>| {
            verdict(Duration::from_secs(time), &progress, after(time), awaited.map(Duration::from_secs))
        };
        assert_eq!(said(600, Some(2)), None, "nothing is waited for: it computes");
        assert!(said(1000, None).is_some_and(|reason| reason.contains("15 min")));
        let call = progress.file(std::path::Path::new("/mnt/a.map"));
        assert_eq!((said(1, Some(2)), said(5, Some(8)), said(50, None)), (None, None, None));
        let overtaken = said(5, Some(2)).unwrap();
        assert!(overtaken.contains("reading '/mnt/a.map'") && overtaken.contains("superseded"), "{overtaken}");
        assert!(said(70, None).is_some_and(|reason| reason.contains("reading '/mnt/a.map'")));
        drop(call);
        let _call = progress.host("db.example");
        assert_eq!(said(20, Some(2)), None);
        assert!(said(40, Some(2)).is_some_and(|reason| reason.contains("resolving 'db.example'")));
    }
}
