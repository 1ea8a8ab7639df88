//! An idle connection to a server as it is described to another process. It is sent without an offer before: a process that has no use for
//! it closes it, and nobody notices.

use std::time::{Duration, Instant};

use baton_proxy::moving::IdleServerState;
use serde::{Deserialize, Serialize};

use super::kinds::{MoveKind, MoveKinds};

/// An idle connection to a server, over which HTTP/1 is spoken without TLS.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerRecord {
    /// What one has to know to use it.
    #[serde(skip_serializing_if = "MoveKinds::is_empty")]
    pub needs: MoveKinds,
    /// Its backend.
    pub backend: String,
    /// Its server.
    pub server: String,
    /// By what it was opened. The text is compared as a whole: where a version has another one, the connection is not used.
    pub terms: String,
    /// The name that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Requests that it has carried.
    pub requests: u32,
    /// Since when it is idle, in milliseconds before now.
    pub idle_ms: u64,
}

impl ServerRecord {
    /// Of a connection that leaves.
    pub fn of(state: &IdleServerState, now: Instant) -> ServerRecord {
        ServerRecord {
            needs: [MoveKind::ServerPools].into_iter().collect(),
            backend: state.backend.to_string(),
            server: state.server.to_string(),
            terms: state.terms.clone(),
            name: state.name.as_deref().map(str::to_owned),
            requests: state.requests,
            idle_ms: super::memory::milliseconds(now.saturating_duration_since(state.since)),
        }
    }

    /// The connection that it describes, which arrives at `now`; `None`: it is not understood.
    pub fn state(self, now: Instant) -> Option<IdleServerState> {
        if self.needs.is_empty() || !self.needs.is_within(MoveKinds::taken()) {
            return None;
        }
        Some(IdleServerState {
            backend: self.backend.into(),
            server: self.server.into(),
            terms: self.terms,
            name: self.name.map(Into::into),
            requests: self.requests,
            since: now.checked_sub(Duration::from_millis(self.idle_ms))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_read_as_it_is_written() {
        let now = Instant::now();
        let check = |text: &str, expect: Option<u32>| {
            let record: ServerRecord = serde_json::from_str(text).unwrap();
            let state = record.clone().state(now);
            assert_eq!(state.as_ref().map(|state| state.requests), expect, "{text}");
            if let Some(state) = state {
                assert_eq!(ServerRecord::of(&state, now), record);
            }
        };
        check(
            r#"{"needs":["server-pools"],"backend":"b","server":"s","terms":"t","name":"n","requests":7,"idle_ms":9}"#,
            Some(7),
        );
        check(r#"{"needs":["server-pools"],"requests":7}"#, Some(7));
        check(r#"{"needs":["server-pools","later"],"requests":7}"#, None);
        check(r#"{"requests":7}"#, None);
        check(r#"{"needs":["server-pools"],"idle_ms":18446744073709551615}"#, Some(0));
    }
}
