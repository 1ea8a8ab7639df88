//! What a request says about the server it goes to, and what comes of it.

use std::sync::Arc;
use std::time::Instant;

use baton_rules::QueuePriority;

use super::{QueueWait, ServerState, Slot};

/// What a request says about where it wants to go.
#[derive(Clone, Copy, Debug)]
pub struct PickCriteria<'a> {
    /// Hash of the balance key (see [`keys`](super::keys)). `None`: there is no key, and algorithms that need one fall back
    /// to round robin, as HAProxy does.
    pub key: Option<u32>,
    /// The server that a cookie or a `use-server` rule names.
    pub wanted: Option<WantedServer<'a>>,
    /// `force-persist` applies: `wanted` is honoured even when that server is down.
    pub force: bool,
    /// A redispatch: this server just failed, take another one if there is any.
    pub avoid: Option<&'a Arc<ServerState>>,
    /// The server of the session's previous request; used with `option prefer-last-server` only.
    pub last: Option<&'a Arc<ServerState>>,
    /// A random number, fresh for each request (`balance random`).
    pub random: u32,
    /// Its order where it has to wait.
    pub priority: QueuePriority,
    /// Now.
    pub now: Instant,
}

impl<'a> PickCriteria<'a> {
    /// A request without any preference.
    pub fn new(now: Instant) -> PickCriteria<'a> {
        let priority = QueuePriority::default();
        PickCriteria { key: None, wanted: None, force: false, avoid: None, last: None, random: 0, priority, now }
    }
}

/// How a server is wanted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WantedServer<'a> {
    /// By the value of the persistence cookie (a server's `cookie`, or its dynamic value).
    Cookie(&'a [u8]),
    /// By name (`use-server`, a stick table, the prefix of a cookie …).
    Name(&'a str),
}

/// What became of [`PickCriteria::wanted`]: the log's persistence letter follows from it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Affinity {
    /// Nothing was wanted (`N`).
    #[default]
    Nothing,
    /// No server has that cookie or name (`I`).
    Unknown,
    /// It is down, and the request was balanced instead (`D`).
    Down,
    /// Its queue is full, and the request was balanced instead (`D`).
    Full,
    /// The wanted server was taken (`V`).
    Kept,
}

/// What came of a choice.
#[derive(Debug)]
pub enum Picked {
    /// Go.
    Slot(Slot),
    /// Every server that could serve it is full: wait. `timeout queue` is the caller's.
    Queue(QueueWait),
    /// The queue to wait in is full (`maxqueue`, [`QUEUE_MAX`](super::QUEUE_MAX)).
    Full,
    /// No server is usable.
    None,
}
