//! From whom a process learns what was there before it: first from the process that it replaces, then from a peer.
//!
//! ```text
//! LOCAL ──▶ REMOTE ──▶ DONE      LOCAL: the process before this one dials and teaches, within 5 s
//!                                REMOTE: one peer after another is asked, until one knows all
//! ```

use crate::section::LinkId;

/// How long each step waits for somebody.
pub const WAIT_MS: u64 = 5000;

/// Where a section is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Resync {
    /// The process before this one is waited for.
    Local {
        /// Until then.
        until: u64,
    },
    /// A peer that knows more is waited for.
    Remote {
        /// Until then, if nobody teaches.
        until: u64,
        /// Who teaches.
        teacher: Option<LinkId>,
    },
    /// All that can be known is known.
    Done,
}

/// How a section begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Start {
    /// Its tables may be empty, and nobody was there before.
    Fresh,
    /// Another program's process was there before, and teaches this one while it ends.
    AfterOther,
}

impl Resync {
    /// The beginning.
    pub fn new(start: Start, now: u64) -> Resync {
        match start {
            Start::Fresh => Resync::remote(now),
            Start::AfterOther => Resync::local(now),
        }
    }

    /// Somebody is waited for from now on.
    pub fn remote(now: u64) -> Resync {
        Resync::Remote { until: now + WAIT_MS, teacher: None }
    }

    /// The process before this one, which knows all, is waited for from now on.
    pub fn local(now: u64) -> Resync {
        Resync::Local { until: now + WAIT_MS }
    }

    /// Who teaches.
    pub fn teacher(self) -> Option<LinkId> {
        match self {
            Resync::Remote { teacher, .. } => teacher,
            Resync::Local { .. } | Resync::Done => None,
        }
    }

    /// When time alone makes something happen.
    pub fn due(self) -> Option<u64> {
        match self {
            Resync::Local { until } | Resync::Remote { until, teacher: None } => Some(until),
            Resync::Remote { teacher: Some(_), .. } | Resync::Done => None,
        }
    }

    /// What time alone makes of it.
    pub fn tick(self, now: u64) -> Resync {
        match self {
            Resync::Local { until } if until <= now => Resync::remote(now),
            Resync::Remote { until, teacher: None } if until <= now => Resync::Done,
            other => other,
        }
    }
}
