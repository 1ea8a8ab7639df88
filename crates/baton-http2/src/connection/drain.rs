//! The end of a connection: GOAWAY, twice (RFC 9113 6.8).

use super::{Connection, DRAIN_PING, Drain};
use crate::error::{ErrorCode, Violation};
use crate::frame::{self, MAX_31};

impl Connection {
    /// Announces the end: the peer should open no more streams, but those that it opens before it knows are served. Once a PING behind it
    /// is answered, [`end_drain`](Self::end_drain) follows automatically; who does not want to wait longer calls it.
    pub fn begin_drain(&mut self, out: &mut Vec<u8>) {
        if self.drain == Drain::No {
            self.drain = Drain::Announced;
            self.counts.go_aways_sent += 1;
            frame::write_go_away(MAX_31, ErrorCode::NO_ERROR, "", out);
            frame::write_ping(DRAIN_PING, false, out);
        }
    }

    /// Names the last stream that is served; the peer may repeat later ones elsewhere, whatever they ask for. The connection may be closed
    /// once [`is_drained`](Self::is_drained).
    pub fn end_drain(&mut self, out: &mut Vec<u8>) {
        if !matches!(self.drain, Drain::Final { .. }) {
            self.drain = Drain::Final { last: self.last_peer };
            self.counts.go_aways_sent += 1;
            frame::write_go_away(self.last_peer, ErrorCode::NO_ERROR, "", out);
        }
    }

    /// Ends the connection for a reason; nothing more is received.
    pub fn abort(&mut self, code: ErrorCode, text: &str, out: &mut Vec<u8>) {
        self.drain = Drain::Final { last: self.last_peer };
        self.counts.go_aways_sent += 1;
        frame::write_go_away(self.last_peer, code, text, out);
    }

    /// Whether we have announced the end.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No
    }

    /// Whether we have named the last stream that is served.
    pub fn is_drain_final(&self) -> bool {
        matches!(self.drain, Drain::Final { .. })
    }

    /// Whether no stream is left, and none will be taken.
    pub fn is_drained(&self) -> bool {
        matches!(self.drain, Drain::Final { .. }) && self.streams.len() == 0
    }

    /// Whether the peer has announced the end: no more streams may be opened.
    pub fn has_peer_gone_away(&self) -> bool {
        self.peer_last.is_some()
    }

    /// The connection cannot go on.
    pub(super) fn fail(&mut self, violation: Violation, out: &mut Vec<u8>) {
        self.failed = Some(violation);
        self.counts.connection_errors += 1;
        self.counts.go_aways_sent += 1;
        frame::write_go_away(self.last_peer, violation.code(), violation.text(), out);
    }

    /// Whether a new stream of the peer's is beyond the last one that we have named.
    pub(super) fn is_beyond_last(&self, stream: u32) -> bool {
        matches!(self.drain, Drain::Final { last } if stream > last)
    }
}
