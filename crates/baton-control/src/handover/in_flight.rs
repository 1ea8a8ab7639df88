//! A request in flight as it is described to another process (`requests` of [`super::kinds`]).

use std::time::Instant;

use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use baton_proxy::moving::{
    Body, ChunkPosition, FlowState, HELD_MAX, InFlightRequest, ResponseState, ReusableServer, ServerTerms,
    is_request_head,
};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::record::{ago, is_false, microseconds};

/// A request in flight. What is left out is none, 0, or not so.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct InFlightRecord {
    /// Its head as HTTP/1, as rules have made it.
    pub head: Bytes,
    /// `Connection: close` was there.
    #[serde(skip_serializing_if = "is_false")]
    pub wants_close: bool,
    /// `Connection: keep-alive` was there.
    #[serde(skip_serializing_if = "is_false")]
    pub wants_kept: bool,
    /// Its connection is not kept whatever it says.
    #[serde(skip_serializing_if = "is_false")]
    pub must_close: bool,
    /// It on its way to the server.
    pub upload: FlowRecord,
    /// Bytes of its head in what is composed for the server.
    pub up_head: usize,
    /// Where the line with the server's name is in that: from, to.
    pub server_line: (usize, usize),
    /// Since it was sent on, microseconds.
    pub began_us: u64,
    /// Its server's connection had carried another one.
    #[serde(skip_serializing_if = "is_false")]
    pub is_reused: bool,
    /// A rule forbids to send it again.
    #[serde(skip_serializing_if = "is_false")]
    pub no_retry: bool,
    /// It goes to this server for its cookie, a rule or a stick table.
    #[serde(skip_serializing_if = "is_false")]
    pub is_wanted: bool,
    /// The response gets no cookie.
    #[serde(skip_serializing_if = "is_false")]
    pub ignores_persistence: bool,
    /// The dates in the cookie that was followed: last and first sent, in steps of four seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookie_dates: Option<(Option<u32>, Option<u32>)>,
    /// The server takes no more of it.
    #[serde(skip_serializing_if = "is_false")]
    pub is_given_up: bool,
    /// What its connection to the server may be used for after it; nothing: it is closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ReusableRecord>,
    /// What is there of the response's head; nothing: it is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub awaited: Option<Bytes>,
    /// The response on its way to the client, once its head is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub download: Option<FlowRecord>,
    /// The response has no body.
    #[serde(skip_serializing_if = "is_false")]
    pub is_empty: bool,
    /// The client's connection stays for another request.
    #[serde(skip_serializing_if = "is_false")]
    pub keep: bool,
}

/// A server's connection that may carry other requests after this one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReusableRecord {
    /// By what it was opened: see [`super::server_record`].
    pub terms: String,
    /// By what it was encrypted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_terms: Option<String>,
    /// The name that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Box<str>>,
    /// Requests that it has carried before.
    #[serde(skip_serializing_if = "is_none_yet")]
    pub requests: u32,
}

/// One direction of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FlowRecord {
    /// What is left of the body: `length` with a number, `chunks`, `until-close`; nothing: it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    /// How many bytes are left of a body of known length.
    #[serde(skip_serializing_if = "is_zero")]
    pub left: u64,
    /// It is passed on in chunks.
    #[serde(skip_serializing_if = "is_false")]
    pub as_chunks: bool,
    /// What was read and not looked at.
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub input: Bytes,
    /// What is to be written.
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub out: Bytes,
    /// How much of that is written.
    #[serde(skip_serializing_if = "is_zero_size")]
    pub sent: usize,
    /// Bytes of the body so far.
    pub moved: u64,
    /// What is to be written begins with the head: it can be sent again.
    #[serde(skip_serializing_if = "is_false")]
    pub replayable: bool,
    /// Everything was written.
    #[serde(skip_serializing_if = "is_false")]
    pub finished: bool,
    /// The place in a chunked body, in a word.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stage: String,
    /// What is left of its chunk, or was read of its size.
    #[serde(skip_serializing_if = "is_zero")]
    pub size: u64,
    /// Bytes of its line so far.
    #[serde(skip_serializing_if = "is_zero_size")]
    pub line: usize,
    /// Its trailer lines so far.
    #[serde(skip_serializing_if = "Bytes::is_empty")]
    pub trailers: Bytes,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn is_none_yet(value: &u32) -> bool {
    *value == 0
}

fn is_zero_size(value: &usize) -> bool {
    *value == 0
}

impl InFlightRecord {
    /// Of a request that leaves.
    pub fn of(state: &InFlightRequest, now: Instant) -> InFlightRecord {
        let (is_wanted, ignores_persistence, cookie_dates) = state.persistence;
        let (awaited, download, is_empty, keep) = match &state.response {
            ResponseState::Awaited(bytes) => (Some(Bytes(bytes.clone())), None, false, false),
            ResponseState::Passed { download, is_empty, keep } => {
                (None, Some(FlowRecord::of(download)), *is_empty, *keep)
            }
        };
        InFlightRecord {
            head: Bytes(state.head.clone()),
            wants_close: state.wants_close,
            wants_kept: state.wants_kept,
            must_close: state.must_close,
            upload: FlowRecord::of(&state.upload),
            up_head: state.up_head,
            server_line: state.server_line,
            began_us: microseconds(now.saturating_duration_since(state.began)),
            is_reused: state.is_reused,
            no_retry: state.no_retry,
            is_wanted,
            ignores_persistence,
            cookie_dates,
            is_given_up: state.is_given_up,
            server: state.server.as_ref().map(|server| ReusableRecord {
                terms: server.terms.server.clone(),
                tls_terms: server.terms.tls.as_deref().map(str::to_owned),
                name: server.name.clone(),
                requests: server.requests,
            }),
            awaited,
            download,
            is_empty,
            keep,
        }
    }

    /// The request at `now`; `None`: what is said of it cannot be.
    pub fn state(self, now: Instant) -> Option<InFlightRequest> {
        let response = match (self.awaited, self.download) {
            (Some(Bytes(bytes)), None) => ResponseState::Awaited(bytes),
            (None, Some(download)) => {
                ResponseState::Passed { download: download.state()?, is_empty: self.is_empty, keep: self.keep }
            }
            (Some(_), Some(_)) | (None, None) => return None,
        };
        let (start, end) = self.server_line;
        let upload = self.upload.state()?;
        // Only what can be sent again has a head at its front.
        let is_head_there =
            !upload.replayable || (start <= end && end <= self.up_head && self.up_head <= upload.out.len());
        if !is_head_there || !is_request_head(&self.head.0) {
            return None;
        }
        let state = InFlightRequest {
            head: self.head.0,
            wants_close: self.wants_close,
            wants_kept: self.wants_kept,
            must_close: self.must_close,
            upload,
            up_head: self.up_head,
            server_line: (start, end),
            began: ago(now, self.began_us)?,
            is_reused: self.is_reused,
            no_retry: self.no_retry,
            persistence: (self.is_wanted, self.ignores_persistence, self.cookie_dates),
            is_given_up: self.is_given_up,
            server: self.server.map(|server| {
                let ReusableRecord { terms, tls_terms, name, requests } = server;
                ReusableServer { terms: ServerTerms { server: terms, tls: tls_terms.map(Into::into) }, name, requests }
            }),
            response,
        };
        // Twice: heads may grow a little.
        (state.held() <= 2 * HELD_MAX).then_some(state)
    }
}

impl FlowRecord {
    fn of(state: &FlowState) -> FlowRecord {
        let (body, left) = match state.body {
            Body::Done => (None, 0),
            Body::Length(left) => (Some("length"), left),
            Body::Chunked => (Some("chunks"), 0),
            Body::UntilClose => (Some("until-close"), 0),
        };
        let ChunkPosition { stage, size, line, trailers } = state.chunks.clone().unwrap_or_default();
        FlowRecord {
            body: body.map(str::to_owned),
            left,
            as_chunks: state.as_chunks,
            input: Bytes(state.input.clone()),
            out: Bytes(state.out.clone()),
            sent: state.sent,
            moved: state.moved,
            replayable: state.replayable,
            finished: state.finished,
            stage,
            size,
            line,
            trailers: Bytes(trailers),
        }
    }

    fn state(self) -> Option<FlowState> {
        let body = match self.body.as_deref() {
            None => Body::Done,
            Some("length") => Body::Length(self.left),
            Some("chunks") => Body::Chunked,
            Some("until-close") => Body::UntilClose,
            Some(_) => return None,
        };
        let position =
            || ChunkPosition { stage: self.stage, size: self.size, line: self.line, trailers: self.trailers.0 };
        let state = FlowState {
            body,
            as_chunks: self.as_chunks,
            input: self.input.0,
            out: self.out.0,
            sent: self.sent,
            moved: self.moved,
            replayable: self.replayable,
            finished: self.finished,
            chunks: (body == Body::Chunked).then(position),
        };
        state.is_possible().then_some(state)
    }
}

/// Bytes of a connection, in base64 between processes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Bytes(pub Vec<u8>);

impl Bytes {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD_NO_PAD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        STANDARD_NO_PAD.decode(text.as_bytes()).map(Bytes).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<InFlightRequest> {
        let record: InFlightRecord = serde_json::from_str(text).unwrap();
        record.state(Instant::now())
    }

    #[test]
    fn a_request_is_read_as_it_is_written() {
        let now = Instant::now();
        let head = b"GET /a HTTP/1.1\r\nhost: x\r\n\r\n".to_vec();
        let chunks = ChunkPosition { stage: "data".into(), size: 9, line: 3, trailers: Vec::new() };
        let upload = FlowState {
            body: Body::Chunked,
            as_chunks: true,
            input: b"\x00\xff".to_vec(),
            out: b"head and body".to_vec(),
            sent: 5,
            moved: 7,
            replayable: true,
            finished: false,
            chunks: Some(chunks),
        };
        let awaited = InFlightRequest {
            head,
            wants_close: true,
            wants_kept: true,
            must_close: true,
            upload: upload.clone(),
            up_head: 4,
            server_line: (2, 3),
            began: now,
            is_reused: true,
            no_retry: true,
            persistence: (true, true, Some((Some(1), None))),
            is_given_up: true,
            server: Some(ReusableServer {
                terms: ServerTerms { server: "terms".into(), tls: Some("0f".into()) },
                name: Some("a.example".into()),
                requests: 3,
            }),
            response: ResponseState::Awaited(b"HTTP/1.1 2".to_vec()),
        };
        let download = FlowState { body: Body::Length(11), chunks: None, ..upload };
        let response = ResponseState::Passed { download, is_empty: true, keep: true };
        let passed = InFlightRequest { response, ..awaited.clone() };
        for state in [awaited, passed] {
            let text = serde_json::to_string(&InFlightRecord::of(&state, now)).unwrap();
            let record: InFlightRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(record.state(now), Some(state), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        // GET / HTTP/1.0 and an empty line.
        let head = r#""head":"R0VUIC8gSFRUUC8xLjANCg0K""#;
        let check = |rest: &str, is_taken: bool| {
            assert_eq!(read(&format!("{{{head},{rest}}}")).is_some(), is_taken, "{rest}");
        };
        check(r#""awaited":"""#, true);
        check(r#""awaited":"","later":1"#, true);
        check(r#""download":{}"#, true);
        check(r#""download":{},"awaited":"""#, false);
        check(r#""is_empty":true"#, false);
        check(r#""awaited":"","upload":{"sent":1}"#, false);
        check(r#""awaited":"","upload":{"body":"length"}"#, false);
        check(r#""awaited":"","upload":{"body":"later"}"#, false);
        check(r#""awaited":"","upload":{"body":"chunks"}"#, false);
        check(r#""awaited":"","upload":{"body":"chunks","stage":"size"}"#, true);
        check(r#""awaited":"","upload":{"replayable":true},"up_head":1"#, false);
        check(r#""awaited":"","upload":{"replayable":true},"server_line":[1,0]"#, false);
        check(r#""awaited":"","began_us":18446744073709551615"#, false);
        assert!(read(r#"{"awaited":""}"#).is_none(), "no head");
        assert!(read(r#"{"head":"R0VUIC8gSFRUUC8xLjANCg","awaited":""}"#).is_none(), "no end of it");
        assert!(serde_json::from_str::<InFlightRecord>(r#"{"head":"!"}"#).is_err());
    }
}
