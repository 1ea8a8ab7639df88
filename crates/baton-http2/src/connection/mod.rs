//! A connection: bytes in, events out; calls in, bytes out.
//!
//! Nothing in here waits, reads a clock or a socket. All state is plain data, which can be written down (`serde`) between two calls and
//! continued by another process.

mod drain;
mod headers;
mod receive;
mod send;

use serde::{Deserialize, Serialize};

use crate::budget::Budget;
use crate::config::Config;
use crate::error::{ErrorCode, Violation};
use crate::frame::{self, MAX_31, PREFACE};
use crate::head::Head;
use crate::hpack::{Decoder, Encoder};
use crate::settings::Settings;
use crate::stream::{Forgiven, Half, ResetBy, Stream, Streams};
use crate::window::{ReceiveWindow, SendWindow};

pub use send::{DataFrame, NotOpened, RequestPseudo};

/// Which side of a connection is ours.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub enum Role {
    /// The peer is a client: its streams are requests.
    Server,
    /// The peer is a server: our streams are requests.
    Client,
}

/// What happened on a connection.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum Event<'i> {
    /// A request, or a final response, in [`Connection::head`] until the next call of [`Connection::receive`]. Server role: the stream is new,
    /// and has to be given back by [`Connection::release`].
    Head {
        /// Whose.
        stream: u32,
        /// It has neither body nor trailers.
        ends: bool,
    },
    /// An interim response (1xx), in [`Connection::head`]; another head follows.
    Interim {
        /// Whose.
        stream: u32,
    },
    /// A head larger than [`Config::head_bytes_max`], or with more fields. Those that fit are in [`Connection::head`]. Like `Head`, it makes
    /// a stream in the server role, whose request is best answered with 431.
    HeadTooLarge {
        /// Whose.
        stream: u32,
        /// It has neither body nor trailers.
        ends: bool,
    },
    /// Bytes of a body, a frame or a part of one. [`Connection::consumed`] has to be called for them in time.
    Data {
        /// Whose.
        stream: u32,
        /// They lie in the input.
        bytes: &'i [u8],
        /// They are the last, and there are no trailers.
        ends: bool,
    },
    /// A trailer section, in [`Connection::head`], which ends the message.
    Trailers {
        /// Whose.
        stream: u32,
    },
    /// The peer gives a stream up.
    Reset {
        /// Which.
        stream: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The peer violated the protocol on a stream; it was sent RST_STREAM. Server role: an exchange need not exist, because its head
    /// may have been malformed; then there is nothing to give back.
    Failed {
        /// Which.
        stream: u32,
        /// How.
        violation: Violation,
    },
    /// More may be sent on a stream on which less was taken than was wanted; stream 0: on any.
    Window {
        /// Which.
        stream: u32,
    },
    /// The peer's SETTINGS arrived (and are acknowledged): [`Connection::peer_settings`]. Streams may have larger windows.
    Settings,
    /// The peer answered [`Connection::ping`].
    Pong {
        /// What was sent.
        payload: [u8; 8],
    },
    /// The peer takes no new streams, and those above `last` were not processed: [`Connection::is_unprocessed`].
    GoAway {
        /// The last stream that is, or may be, processed.
        last: u32,
        /// Why.
        code: ErrorCode,
    },
}

/// What [`Connection::receive`] made of its input.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Received<'i> {
    /// Bytes at the start of the input that are done with.
    pub consumed: usize,
    /// What happened; `None`: more input is needed.
    pub event: Option<Event<'i>>,
}

/// What is read next.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
enum Reading {
    /// The client's preface, of which so many bytes have come.
    Preface { seen: u8 },
    /// A frame's header.
    Header,
    /// A body's bytes; then padding.
    Data { stream: u32, left: u32, padding: u32, ends: bool },
    /// Part of a field block; then padding.
    Block { left: u32, padding: u32 },
    /// Settings of six bytes each.
    Settings { left: u32, window_before: u32 },
    /// Bytes of no interest.
    Skip { left: u32 },
}

/// A field block that began.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
struct OpenBlock {
    stream: u32,
    ends_stream: bool,
    /// END_HEADERS was there: the frame that is read is the last one.
    is_last: bool,
    continuations: u32,
    depends_on_itself: bool,
}

/// How far a graceful end of ours is (RFC 9113 6.8).
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
enum Drain {
    /// None was begun.
    No,
    /// A GOAWAY without a last stream and a PING were sent: once the PING is answered, the peer has read both.
    Announced,
    /// A GOAWAY with this last stream was sent.
    Final { last: u32 },
}

/// One connection's state, in either role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Connection {
    role: Role,
    config: Config,
    /// What the peer has acknowledged of ours, and so obeys.
    obeyed: Settings,
    /// SETTINGS of ours without an acknowledgement.
    unacknowledged: u32,
    peer: Settings,
    /// The peer's first SETTINGS arrived.
    has_settings: bool,
    decoder: Decoder,
    encoder: Encoder,
    streams: Streams,
    forgiven: Forgiven,
    receive_window: ReceiveWindow,
    send_window: SendWindow,
    reading: Reading,
    block: Option<OpenBlock>,
    /// Bytes of a field block that did not arrive at once.
    block_bytes: Vec<u8>,
    /// Nothing of it outlives the event that names it.
    #[serde(skip)]
    head: Head,
    /// The highest stream of the peer's.
    last_peer: u32,
    /// The next stream of ours.
    next_own: u32,
    drain: Drain,
    /// The last stream that the peer's GOAWAY named.
    peer_last: Option<u32>,
    budget: Budget,
    failed: Option<Violation>,
    counts: Counts,
}

/// What happened on a connection since [`Connection::take_counts`].
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// HEADERS frames that came.
    pub headers: u32,
    /// DATA frames that came.
    pub data: u32,
    /// SETTINGS frames that came.
    pub settings: u32,
    /// RST_STREAM frames that came.
    pub resets: u32,
    /// GOAWAY frames that came.
    pub go_aways: u32,
    /// Violations that ended a stream.
    pub stream_errors: u32,
    /// Violations that ended the connection.
    pub connection_errors: u32,
    /// RST_STREAM frames that were sent.
    pub resets_sent: u32,
    /// GOAWAY frames that were sent.
    pub go_aways_sent: u32,
}

/// The payload of the PING behind a graceful GOAWAY.
const DRAIN_PING: [u8; 8] = *b"draining";

impl Connection {
    /// The state of a new connection. [`open`](Self::open) comes first.
    pub fn new(role: Role, config: Config) -> Connection {
        let initial = Settings::default();
        Connection {
            role,
            obeyed: initial,
            unacknowledged: 0,
            peer: initial,
            has_settings: false,
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            streams: Streams::default(),
            forgiven: Forgiven::default(),
            receive_window: ReceiveWindow::new(initial.initial_window_size),
            send_window: SendWindow::new(initial.initial_window_size),
            reading: if role == Role::Server { Reading::Preface { seen: 0 } } else { Reading::Header },
            block: None,
            block_bytes: Vec::new(),
            head: Head::default(),
            last_peer: 0,
            next_own: 1,
            drain: Drain::No,
            peer_last: None,
            budget: Budget::new(&config),
            failed: None,
            counts: Counts::default(),
            config,
        }
    }

    /// Writes what we begin with: a client its preface, both their SETTINGS, and the window of the connection.
    pub fn open(&mut self, out: &mut Vec<u8>) {
        let is_client = self.role == Role::Client;
        if is_client {
            out.extend_from_slice(PREFACE);
        }
        frame::write_settings(self.config.settings.changed(is_client), out);
        self.unacknowledged += 1;
        if let Some(increment) = self.receive_window.grow(self.config.connection_window.min(MAX_31)) {
            frame::write_window_update(0, increment, out);
        }
    }

    /// Which side we are.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The head, or trailer section, of the last event.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// What we want of the peer.
    pub fn own_settings(&self) -> &Settings {
        &self.config.settings
    }

    /// What the peer has set.
    pub fn peer_settings(&self) -> &Settings {
        &self.peer
    }

    /// Whether the peer's first SETTINGS have arrived: only then is it known to speak HTTP/2, and what it allows.
    pub fn has_settings(&self) -> bool {
        self.has_settings
    }

    /// Whether the peer has acknowledged all of our SETTINGS.
    pub fn is_acknowledged(&self) -> bool {
        self.unacknowledged == 0
    }

    /// Streams that their consumers have not given back.
    pub fn streams(&self) -> usize {
        self.streams.len()
    }

    /// Streams that may be open at a time: of a client as many as we have announced, of ours as many as both sides allow.
    pub fn streams_limit(&self) -> usize {
        let own = self.config.settings.max_concurrent_streams as usize;
        match self.role {
            Role::Server => own,
            Role::Client => own.min(self.streams_max()),
        }
    }

    /// Whether so many streams wait for their consumers that reading should pause: peers that reset streams as fast as they make
    /// them are not served faster than those that do not.
    pub fn is_crowded(&self) -> bool {
        self.role == Role::Server && self.streams.len() >= self.config.settings.max_concurrent_streams.max(1) as usize
    }

    /// Whether the connection is in the middle of a frame or a field block: what was read so far is no whole.
    pub fn is_within_frame(&self) -> bool {
        self.block.is_some() || !matches!(self.reading, Reading::Header)
    }

    /// Whether another process can go on in this role with a connection in this state: no stream is open, and it is one that there can be.
    /// What was written down elsewhere need not.
    pub fn can_go_on(&self, role: Role) -> bool {
        let Config { settings, connection_window, block_bytes_max, .. } = &self.config;
        let is_possible = |settings: &Settings| {
            settings.initial_window_size <= MAX_31
                && (frame::FRAME_SIZE_MIN..=frame::FRAME_SIZE_MAX).contains(&settings.max_frame_size)
        };
        let has_own_streams = role == Role::Server || self.next_own % 2 == 1 && self.may_go_on();
        let is_preface = match self.reading {
            Reading::Preface { seen } => role == Role::Server && usize::from(seen) < PREFACE.len(),
            _ => true,
        };
        self.role == role
            && self.streams.len() == 0
            && self.failed.is_none()
            && self.drain == Drain::No
            && has_own_streams
            && is_preface
            && [settings, &self.obeyed, &self.peer].into_iter().all(is_possible)
            && *connection_window <= MAX_31
            && self.decoder.is_sound()
            && self.encoder.is_sound()
            && self.receive_window.is_sound()
            && self.block_bytes.len() <= *block_bytes_max as usize
    }

    /// Oddities so far, HAProxy's `glitches`.
    pub fn glitches(&self) -> u32 {
        self.budget.glitches()
    }

    /// Time has passed: call it about once a second while frames arrive. See [`Config::control_frames_max`].
    pub fn refill(&mut self) {
        self.budget.refill(&self.config);
    }

    /// Gives back all memory that an idle connection has no use for.
    pub fn shrink(&mut self) {
        self.head.shrink();
        self.decoder.shrink();
        self.encoder.shrink();
        self.streams.shrink();
        if self.block.is_none() {
            self.block_bytes = Vec::new();
        }
    }

    /// The consumer took bytes of a body, so that the peer may send as many again. Bytes of a stream that was given back are taken already.
    pub fn consumed(&mut self, stream: u32, len: usize, out: &mut Vec<u8>) {
        let len = u32::try_from(len).unwrap_or(MAX_31);
        let Some(at) = self.streams.get_mut(stream) else { return };
        at.unconsumed = at.unconsumed.saturating_sub(len);
        if at.receiving != Half::Ended
            && at.reset.is_none()
            && let Some(increment) = at.receive_window.take(len)
        {
            frame::write_window_update(stream, increment, out);
        }
        self.take_from_connection(len, out);
    }

    /// The consumer is done with a stream, however it ended. One that has not is reset: with NO_ERROR if the response is whole and only the
    /// rest of the request is of no interest (RFC 9113 8.1), else with CANCEL.
    pub fn release(&mut self, stream: u32, out: &mut Vec<u8>) {
        let Some(at) = self.streams.get(stream) else { return };
        if at.reset.is_none() && at.is_open() {
            let is_answered = self.role == Role::Server && at.sending == Half::Ended;
            self.reset(stream, if is_answered { ErrorCode::NO_ERROR } else { ErrorCode::CANCEL }, out);
        }
        let Some(at) = self.streams.remove(stream) else { return };
        if at.reset.is_none() {
            self.budget.ended(&self.config);
        }
        self.take_from_connection(at.unconsumed, out);
    }

    /// Gives a stream up. It has to be given back as well.
    pub fn reset(&mut self, stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
        if let Some(at) = self.streams.get_mut(stream).filter(|at| at.reset.is_none()) {
            at.reset = Some(ResetBy::Us);
            if at.receiving != Half::Ended {
                self.forgiven.add(stream);
            }
            self.counts.resets_sent += 1;
            frame::write_reset(stream, code, out);
        }
    }

    /// What happened since the last call.
    pub fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.counts)
    }

    /// Whether the stream was reset by the peer or by us.
    pub fn is_reset(&self, stream: u32) -> bool {
        self.streams.get(stream).is_none_or(|at| at.reset.is_some())
    }

    /// Whether the peer certainly has not processed a stream of ours (a GOAWAY, or REFUSED_STREAM): any request may be repeated.
    pub fn is_unprocessed(&self, stream: u32) -> bool {
        self.streams.get(stream).is_some_and(|at| at.is_unprocessed)
    }

    /// Asks whether the peer is there.
    pub fn ping(&mut self, payload: [u8; 8], out: &mut Vec<u8>) {
        frame::write_ping(payload, false, out);
    }

    fn take_from_connection(&mut self, len: u32, out: &mut Vec<u8>) {
        if let Some(increment) = self.receive_window.take(len) {
            frame::write_window_update(0, increment, out);
        }
    }

    /// A new stream, of either side.
    fn add_stream(&mut self, id: u32, receiving: Half, sending: Half) -> &mut Stream {
        self.streams.add(Stream {
            id,
            receiving,
            sending,
            reset: None,
            receive_window: ReceiveWindow::new(self.obeyed.initial_window_size),
            send_window: SendWindow::new(self.peer.initial_window_size),
            expected: None,
            unconsumed: 0,
            is_head: false,
            is_unprocessed: false,
        });
        self.streams.get_mut(id).expect("it was just added")
    }

    /// Whether no frame was ever sent or received on the stream.
    fn is_idle(&self, stream: u32) -> bool {
        let is_own = (stream % 2 == 1) == (self.role == Role::Client);
        if is_own { stream >= self.next_own } else { stream > self.last_peer }
    }
}
