//! What a master keeps when it becomes a new binary (`exec` with the same process id): who its workers are, and the numbers of
//! the descriptors that stay open.

use std::io;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use baton_control::servant::link::STATE_VERSION;
use serde::{Deserialize, Serialize};

use crate::supervisor::{Worker, WorkerId};

/// The argument that names the descriptor of the state's memory file.
pub const STATE_ARGUMENT: &str = "--master-state=";

/// Bytes of a state.
pub const BYTES_MAX: u64 = 16 << 20;

/// All of it. Fields may be added; what an older master did not know has its default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct State {
    /// [`STATE_VERSION`].
    pub version: u32,
    /// Workers, the one that serves last.
    pub workers: Vec<SavedWorker>,
    /// Listening sockets, in order.
    pub sockets: Vec<RawFd>,
    /// Those of them that a configuration names by another number (`fd@N`): the descriptor, and that number.
    pub numbers: Vec<(RawFd, i32)>,
    /// What standard input held.
    pub input: Option<RawFd>,
    /// The last text that was in use.
    pub text: Option<RawFd>,
    /// Texts before it, the newest last, some of whose addresses are not empty yet.
    pub earlier: Vec<RawFd>,
    /// Keys of session tickets that the worker uses.
    pub tickets: Option<RawFd>,
    /// The memory in which the worker counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counters: Option<RawFd>,
    /// The health of servers as the worker reported it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<RawFd>,
    /// What operators have set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overrides: Option<RawFd>,
    /// Other parts of what is remembered of the worker, by their words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<(String, RawFd)>,
    /// The socket of `-S`.
    pub cli: Option<RawFd>,
    /// Where `baton reload` asks: the abstract socket.
    pub asked: Option<RawFd>,
    /// The socket in the run directory, and its file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked_at: Option<(RawFd, PathBuf)>,
    /// Nobody sees standard output and error.
    pub is_detached: bool,
    /// Milliseconds since the master was started.
    pub uptime_ms: u64,
    /// Reloads asked for.
    pub reloads: u32,
    /// Reloads that were refused.
    pub reloads_failed: u32,
    /// Workers that crashed.
    pub crashed: u32,
    /// What was said at the start.
    pub startup_logs: String,
}

/// A worker over `exec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SavedWorker {
    /// Its number.
    pub id: u32,
    /// Its process.
    pub pid: i32,
    /// Milliseconds since it was started, and since it serves.
    pub age_ms: u64,
    /// Milliseconds since it serves.
    pub ready_ms: u64,
    /// Reloads it has lived through.
    pub reloads: u32,
    /// Version of its binary.
    pub version: String,
    /// The line to it.
    pub line: RawFd,
}

impl SavedWorker {
    /// Of a worker, at `now`.
    pub fn of(worker: &Worker, line: RawFd, now: Instant) -> SavedWorker {
        let ms = |since: Instant| u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
        SavedWorker {
            id: worker.id.0,
            pid: worker.pid,
            age_ms: ms(worker.since),
            ready_ms: worker.ready.map(ms).unwrap_or_default(),
            reloads: worker.reloads,
            version: worker.version.clone(),
            line,
        }
    }

    /// As the supervisor knows it, at `now`.
    pub fn worker(&self, now: Instant) -> Worker {
        let since = |ms: u64| now.checked_sub(Duration::from_millis(ms)).unwrap_or(now);
        Worker {
            id: WorkerId(self.id),
            pid: self.pid,
            since: since(self.age_ms),
            ready: Some(since(self.ready_ms)),
            reloads: self.reloads,
            version: self.version.clone(),
        }
    }
}

impl State {
    /// As bytes.
    ///
    /// # Errors
    /// Never, in practice.
    pub fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    /// From bytes.
    ///
    /// # Errors
    /// When it is none, or of a version that we do not read.
    pub fn from_bytes(bytes: &[u8]) -> io::Result<State> {
        let state: State = serde_json::from_slice(bytes)?;
        match state.version {
            STATE_VERSION => Ok(state),
            other => Err(io::Error::other(format!("the state has version {other}, and {STATE_VERSION} is read"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_version_is_read_for_ever() {
        let text = r#"{"version":1,"workers":[{"id":2,"pid":77,"age_ms":5000,"ready_ms":4000,"reloads":1,
            "version":"0.1.0","line":9}],"sockets":[5,6],"input":null,"text":7,"cli":8,"asked":10,
            "is_detached":true,"uptime_ms":60000,"reloads":3,"reloads_failed":1,"crashed":2,"startup_logs":"x"}"#;
        let state = State::from_bytes(text.as_bytes()).unwrap();
        assert_eq!((state.sockets.as_slice(), state.text, state.crashed), ([5, 6].as_slice(), Some(7), 2));
        let now = Instant::now();
        let worker = state.workers[0].worker(now);
        assert_eq!(SavedWorker::of(&worker, 9, now), state.workers[0]);
        assert_eq!(State::from_bytes(&state.to_bytes().unwrap()).unwrap(), state);
        assert!(State::from_bytes(br#"{"version":2}"#).is_err());
        assert!(State::from_bytes(b"{}").is_err());
    }
}
