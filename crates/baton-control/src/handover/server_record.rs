//! An idle connection to a server as it is described to another process. It is sent without an offer before: a process that has no use for
//! it closes it, and nobody notices.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_proxy::moving::{Http2Role, IdleServer, IdleServerState, ServerTerms, TlsRole};
use baton_tls::rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use super::kinds::{MoveKind, MoveKinds};
use super::record::{Http2Record, counted};
use super::tls_record::TlsRecord;

/// An idle connection to a server.
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
    /// By what it was encrypted, as text in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_terms: Option<String>,
    /// The name that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Requests that it has carried.
    pub requests: u32,
    /// Since when it is idle, in milliseconds before now.
    pub idle_ms: u64,
    /// TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<TlsRecord>>,
    /// What there is to know of HTTP/2; nothing: HTTP/1 is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http2: Option<Http2Record>,
}

/// More than everything takes that has no length of its own.
const SHORT_BYTES: usize = 1024;

impl ServerRecord {
    /// Of a connection that leaves.
    pub fn of(IdleServer { state, socket: _, tls, http2 }: &IdleServer, now: Instant) -> ServerRecord {
        let mut needs: MoveKinds = [MoveKind::ServerPools].into_iter().collect();
        if tls.is_some() {
            needs.add(MoveKind::Tls);
        }
        if http2.is_some() {
            needs.add(MoveKind::Http2Servers);
        }
        ServerRecord {
            needs,
            backend: state.backend.to_string(),
            server: state.server.to_string(),
            terms: state.terms.server.clone(),
            tls_terms: state.terms.tls.as_deref().map(str::to_owned),
            name: state.name.as_deref().map(str::to_owned),
            requests: state.requests,
            idle_ms: super::memory::milliseconds(now.saturating_duration_since(state.since)),
            tls: tls.as_deref().map(|tls| Box::new(TlsRecord::of(tls))),
            http2: http2.as_deref().map(Http2Record::of),
        }
    }

    /// Bytes of it as it travels, at most.
    pub fn bytes(&self) -> usize {
        // A character that is escaped has six.
        let texts =
            [self.backend.len(), self.server.len(), self.terms.len(), self.name.as_ref().map_or(0, String::len)];
        SHORT_BYTES
            + texts.iter().map(|length| 6 * length).sum::<usize>()
            + self.tls.as_ref().map_or(0, |tls| tls.bytes())
            + self.http2.as_ref().map_or(0, counted)
    }

    /// The connection that it describes, which arrives at `now` by this socket; `None`: it is not understood. `shown` are certificates of ours.
    pub fn idle(
        self,
        socket: OwnedFd,
        shown: &mut Vec<Arc<CertificateDer<'static>>>,
        now: Instant,
    ) -> Option<IdleServer> {
        let is_odd = self.tls.is_some() && !self.needs.has(MoveKind::Tls)
            || self.http2.is_some() != self.needs.has(MoveKind::Http2Servers);
        if self.needs.is_empty() || !self.needs.is_within(MoveKinds::taken()) || is_odd {
            return None;
        }
        let tls = match self.tls {
            Some(tls) => Some(tls.moved(TlsRole::Client, shown)?),
            None => None,
        };
        let http2 = match self.http2 {
            Some(http2) => Some(http2.state(Http2Role::Client)?),
            None => None,
        };
        let state = IdleServerState {
            backend: self.backend.into(),
            server: self.server.into(),
            terms: ServerTerms { server: self.terms, tls: self.tls_terms.map(Into::into) },
            name: self.name.map(Into::into),
            requests: self.requests,
            since: now.checked_sub(Duration::from_millis(self.idle_ms))?,
        };
        Some(IdleServer { state, socket, tls, http2 })
    }
}

#[cfg(test)]
mod tests {
    use baton_proxy::moving::{Http2Config, Http2Protocol};

    use super::super::tls_record::tests::{record, record_of_client};
    use super::*;

    #[test]
    fn an_idle_connection_is_read_as_it_is_written() {
        let now = Instant::now();
        let check = |text: &str, expect: Option<u32>| {
            let record: ServerRecord = serde_json::from_str(text).unwrap();
            assert!(record.bytes() >= text.len());
            let socket = std::fs::File::open("/dev/null").unwrap().into();
            let idle = record.clone().idle(socket, &mut Vec::new(), now);
            assert_eq!(idle.as_ref().map(|idle| idle.state.requests), expect, "{text}");
            if let Some(idle) = idle {
                assert_eq!(ServerRecord::of(&idle, now), record);
            }
        };
        let secure = |needs: &str, tls: TlsRecord| {
            let tls = serde_json::to_string(&tls).unwrap();
            format!(r#"{{"needs":[{needs}],"tls_terms":"0f","requests":7,"tls":{tls}}}"#)
        };
        check(&secure(r#""server-pools","tls""#, record_of_client()), Some(7));
        check(&secure(r#""server-pools""#, record_of_client()), None);
        // The other end of one.
        check(&secure(r#""server-pools","tls""#, record()), None);
        check(r#"{"needs":["server-pools","tls"],"requests":7,"tls":{"layer":"AAAA"}}"#, None);
        check(
            r#"{"needs":["server-pools"],"backend":"b","server":"s","terms":"t","name":"n","requests":7,"idle_ms":9}"#,
            Some(7),
        );
        check(r#"{"needs":["server-pools"],"requests":7}"#, Some(7));
        let state = |role| {
            let protocol = serde_json::to_value(Http2Protocol::new(role, Http2Config::default())).unwrap();
            format!(r#","http2":{{"protocol":{protocol},"input":"AAAA"}}"#)
        };
        let (own, other) = (state(Http2Role::Client), state(Http2Role::Server));
        check(&format!(r#"{{"needs":["server-pools","http2-servers"],"requests":7{own}}}"#), Some(7));
        check(&format!(r#"{{"needs":["server-pools","http2-servers"],"requests":7{other}}}"#), None);
        check(&format!(r#"{{"needs":["server-pools"],"requests":7{own}}}"#), None);
        check(r#"{"needs":["server-pools","http2-servers"],"requests":7}"#, None);
        check(r#"{"needs":["server-pools","later"],"requests":7}"#, None);
        check(r#"{"requests":7}"#, None);
        check(r#"{"needs":["server-pools"],"idle_ms":18446744073709551615}"#, Some(0));
    }
}
