//! One connection with a peer: how far its session is, and what both sides know of each other's tables and texts.

use baton_tables::Cursor;
use rustc_hash::FxHashMap;

use crate::definition::Columns;
use crate::dictionary::{ReceivedTexts, SentTexts};

/// A connection.
#[derive(Debug)]
pub(crate) struct Link {
    /// The peer, by its place in the section. Of a connection that was accepted it is known from the hello on.
    pub peer: Option<usize>,
    /// This side dialled.
    pub is_dialled: bool,
    pub phase: Phase,
    /// When the phase began.
    pub since: u64,
    /// Received, and not complete yet.
    pub input: Vec<u8>,
    /// To be sent before anything else.
    pub output: Vec<u8>,
    /// When bytes were received last.
    pub heard: u64,
    /// When bytes were sent last.
    pub said: u64,
    pub session: Session,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Phase {
    /// It is dialled.
    Connecting,
    /// The dialler's lines are missing.
    AwaitHello,
    /// The acceptor's line is missing.
    AwaitStatus,
    /// The session.
    Open,
    /// It is closed when all that is there to be sent is sent.
    Ending,
}

/// What both sides know of each other.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The minor version.
    pub minor: u32,
    /// Tables that the other side has defined, by its numbers.
    pub defined_there: FxHashMap<u64, (usize, Columns)>,
    /// The number of the table that its updates are about.
    pub current_there: Option<u64>,
    /// The table that the other side takes updates for.
    pub current_here: Option<usize>,
    /// What arrived, by table.
    pub received: Vec<Received>,
    pub sent_texts: SentTexts,
    pub received_texts: ReceivedTexts,
    pub lesson: Lesson,
    /// Where live updates go on: tables take turns.
    pub turn: usize,
}

/// What arrived for a table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Received {
    /// The other side's number of the table.
    pub id: u64,
    /// The types of data that it has, one bit each.
    pub bits: u64,
    /// The last update.
    pub last: u32,
    /// The last update that was acknowledged.
    pub acknowledged: u32,
}

/// Whether the other side is being taught.
#[derive(Debug, Default)]
pub(crate) enum Lesson {
    #[default]
    None,
    /// All entries are sent.
    Running(Progress),
    /// It is waited for the other side's confirmation.
    Sent {
        /// By table, the last change that is part of the lesson.
        until: Vec<u64>,
    },
}

/// How far a lesson is.
#[derive(Debug)]
pub(crate) struct Progress {
    pub table: usize,
    pub is_defined: bool,
    pub cursor: Cursor,
    pub until: Vec<u64>,
}

impl Link {
    pub(crate) fn new(peer: Option<usize>, phase: Phase, tables: usize, now: u64) -> Link {
        Link {
            peer,
            is_dialled: peer.is_some(),
            phase,
            since: now,
            input: Vec::new(),
            output: Vec::new(),
            heard: now,
            said: now,
            session: Session { received: vec![Received::default(); tables], ..Session::default() },
        }
    }

    pub(crate) fn enter(&mut self, phase: Phase, now: u64) {
        self.phase = phase;
        self.since = now;
        self.heard = now;
    }
}
