//! The chunked transfer coding (RFC 9112 7.1): walking through it, and writing it.
//!
//! The decoder keeps no body bytes: it says where the data lies in each piece of input. Chunk extensions are dropped,
//! as HAProxy 2.6 does. Trailer fields, which are rare, are copied and given back as [`Headers`].

use std::fmt;

use crate::error::{HeadError, HeadErrorKind};
use crate::fields;
use crate::headers::Headers;
use crate::scan::{Limits, Scan, is_blank};

/// Most bytes of a chunk's first line: zeros in front of the size, the size and the extensions, line end included.
pub const CHUNK_LINE_MAX: usize = 4096;

/// Chunks of this many bytes or more are refused; HAProxy 2.6 takes 13 hexadecimal digits too.
const CHUNK_SIZE_LIMIT: u64 = 1 << 52;

/// The end of a chunked body without trailer fields.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Most bytes that [`write_chunk_header`] appends.
pub const CHUNK_HEADER_MAX: usize = 18;

/// Appends the line that goes before `len` bytes of data, which want a CRLF after them. With `len` 0 it begins the last
/// chunk, so do not call it for an empty piece of data.
pub fn write_chunk_header(out: &mut Vec<u8>, len: usize) {
    let mut line = [0; CHUNK_HEADER_MAX];
    let mut at = CHUNK_HEADER_MAX - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut rest = len as u64;
    loop {
        at -= 1;
        line[at] = b"0123456789ABCDEF"[(rest & 15) as usize];
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&line[at..]);
}

/// Appends the last chunk with `trailers` (of `buf`), without those that RFC 9110 6.5.1 forbids.
pub fn write_last_chunk(out: &mut Vec<u8>, buf: &[u8], trailers: &Headers) {
    out.extend_from_slice(b"0\r\n");
    for field in trailers.iter(buf).filter(|field| !fields::is_no_trailer(field.id, field.name)) {
        let start = out.len();
        out.extend_from_slice(field.name);
        out[start..].make_ascii_lowercase();
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// What one step through chunked input found. Go on with the input after the bytes it accounts for.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ChunkStep {
    /// `len` (at least 1) bytes of data lie in the input after `skip` bytes of framing.
    Data {
        /// Bytes of framing to drop.
        skip: usize,
        /// Bytes of data after them.
        len: usize,
    },
    /// All of the input was framing, and more is wanted.
    NeedMore {
        /// Always the length of the input.
        consumed: usize,
    },
    /// The body is over; see [`ChunkDecoder::trailers`].
    Done {
        /// Bytes of the input that still belonged to the body.
        consumed: usize,
    },
}

/// What is wrong with a chunked body.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub enum ChunkErrorKind {
    /// The line does not begin with a hexadecimal size, or something other than an extension follows it.
    Size,
    /// The size is 2^52 or more.
    TooLarge,
    /// The line is longer than [`CHUNK_LINE_MAX`].
    LineTooLong,
    /// A line of the framing or the data does not end in CRLF (from a server: in CRLF or LF).
    LineEnd,
    /// A trailer field is bad, or there are too many.
    Trailer(HeadErrorKind),
}

/// A refused chunked body: what is wrong, and where in the input of that step.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct ChunkError {
    /// What is wrong.
    pub kind: ChunkErrorKind,
    /// Offset in the input.
    pub at: usize,
}

impl fmt::Display for ChunkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            ChunkErrorKind::Size => f.write_str("invalid chunk size"),
            ChunkErrorKind::TooLarge => f.write_str("chunk too large"),
            ChunkErrorKind::LineTooLong => f.write_str("chunk line too long"),
            ChunkErrorKind::LineEnd => f.write_str("chunk line or data does not end in CRLF"),
            ChunkErrorKind::Trailer(kind) => write!(f, "trailer: {}", HeadError { kind, at: self.at }),
        }
    }
}

impl std::error::Error for ChunkError {}

/// Who sends a chunked body, which decides how its lines may end.
#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
pub enum ChunkSender {
    /// CRLF only: a line of a request that two parsers read in two ways is a smuggling form.
    #[default]
    Client,
    /// CRLF or LF alone, as HAProxy 2.6 accepts it: what is passed on is encoded anew.
    Server,
}

/// Walks through a chunked body. Reuse one for many bodies after [`ChunkDecoder::clear`].
///
/// ```text
/// Size ─ digits ─▶ Extension ─ CR ─▶ SizeEnd ─ LF ─▶ Data ─▶ DataCr ─▶ DataLf ─▶ Size
///                                          └─ size 0 ─▶ Trailers ─ empty line ─▶ Done
/// ```
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct ChunkDecoder {
    sender: ChunkSender,
    state: State,
    /// Size of the chunk being read; in `Data`, what is still to come.
    size: u64,
    /// Bytes of the current line so far.
    line: usize,
    limits: Limits,
    scan: Scan,
    trailers: Headers,
    trailer_bytes: Vec<u8>,
}

/// The position of a decoder in a body, as data, from which another process continues.
#[derive(Clone, Default, Eq, PartialEq, Debug)]
pub struct ChunkPosition {
    /// What comes next, as a keyword.
    pub stage: String,
    /// Size of the chunk being read; in its data, what is still to come.
    pub size: u64,
    /// Bytes of the current line so far.
    pub line: usize,
    /// The trailer lines so far, as they came.
    pub trailers: Vec<u8>,
}

/// What comes next, with its keyword in a [`ChunkPosition`].
const STAGES: [(State, &str); 9] = [
    (State::Size, "size"),
    (State::AfterSize, "after-size"),
    (State::Extension, "extension"),
    (State::SizeEnd, "size-end"),
    (State::Data, "data"),
    (State::DataCr, "data-cr"),
    (State::DataLf, "data-lf"),
    (State::Trailers, "trailers"),
    (State::Done, "done"),
];

#[derive(Copy, Clone, Default, Eq, PartialEq, Debug)]
enum State {
    #[default]
    Size,
    /// Blanks after the size.
    AfterSize,
    Extension,
    SizeEnd,
    Data,
    DataCr,
    DataLf,
    Trailers,
    Done,
    /// Refused; every further step repeats the error.
    Refused(ChunkErrorKind),
}

impl ChunkDecoder {
    /// A decoder at the start of a client's body, whose trailer section `limits` bounds like a head.
    pub fn new(limits: &Limits) -> ChunkDecoder {
        ChunkDecoder { limits: *limits, ..ChunkDecoder::default() }
    }

    /// A decoder at the start of a server's body.
    pub fn of_server(limits: &Limits) -> ChunkDecoder {
        ChunkDecoder { sender: ChunkSender::Server, ..ChunkDecoder::new(limits) }
    }

    /// Goes back to the start of a body, wherever it stands; keeps the sender, the limits and the memory.
    pub fn clear(&mut self) {
        let ChunkDecoder { sender: _, state, size, line, limits: _, scan, trailers, trailer_bytes } = self;
        *state = State::default();
        *size = 0;
        *line = 0;
        *scan = Scan::default();
        trailers.clear();
        trailer_bytes.clear();
    }

    /// Its position; `None`: the body was refused.
    pub fn position(&self) -> Option<ChunkPosition> {
        let (_, word) = STAGES.iter().find(|(state, _)| *state == self.state)?;
        let trailers = if self.state == State::Trailers { self.trailer_bytes.clone() } else { Vec::new() };
        Some(ChunkPosition { stage: (*word).to_owned(), size: self.size, line: self.line, trailers })
    }

    /// Continues at the position of another decoder of the same sender. False, and nothing changes: it is invalid.
    pub fn go_on_from(&mut self, position: &ChunkPosition) -> bool {
        let ChunkPosition { stage, size, line, trailers } = position;
        let Some((state, _)) = STAGES.iter().find(|(_, word)| word == stage) else { return false };
        let is_possible = *size < CHUNK_SIZE_LIMIT
            && *line <= CHUNK_LINE_MAX
            && (*size > 0 || *state != State::Data)
            && (trailers.is_empty() || *state == State::Trailers)
            && trailers.len() <= self.limits.head_bytes;
        if is_possible {
            self.clear();
            (self.state, self.size, self.line) = (*state, *size, *line);
            self.trailer_bytes.extend_from_slice(trailers);
            // Lines that were read already are read again with the next ones.
            self.scan = Scan::fields_at(0);
        }
        is_possible
    }

    /// Whether the body is over.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// The trailer fields with the buffer they are spans of. Complete once the body is over.
    pub fn trailers(&self) -> (&Headers, &[u8]) {
        (&self.trailers, &self.trailer_bytes)
    }

    /// Looks at `input`, the bytes that follow those accounted for by earlier steps.
    pub fn step(&mut self, input: &[u8]) -> Result<ChunkStep, ChunkError> {
        let mut at = 0;
        loop {
            match self.state {
                State::Data => return Ok(self.data(input, at)),
                State::Trailers => return self.trailer_lines(input, at),
                State::Done => return Ok(ChunkStep::Done { consumed: at }),
                State::Refused(kind) => return Err(ChunkError { kind, at }),
                _ => {}
            }
            let Some(&byte) = input.get(at) else {
                return Ok(ChunkStep::NeedMore { consumed: at });
            };
            if let Err(kind) = self.framing(byte) {
                self.state = State::Refused(kind);
                return Err(ChunkError { kind, at });
            }
            at += 1;
        }
    }

    /// Takes one byte of a chunk's line or of the CRLF after its data.
    #[inline]
    fn framing(&mut self, byte: u8) -> Result<(), ChunkErrorKind> {
        self.line += 1;
        if self.line > CHUNK_LINE_MAX {
            return Err(ChunkErrorKind::LineTooLong);
        }
        let lf_ends = self.sender == ChunkSender::Server;
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                let digit = if byte.is_ascii_digit() { byte - b'0' } else { (byte | 0x20) - b'a' + 10 };
                self.size = self.size << 4 | u64::from(digit);
                if self.size >= CHUNK_SIZE_LIMIT {
                    return Err(ChunkErrorKind::TooLarge);
                }
                State::Size
            }
            (State::Size, _) if self.line == 1 => return Err(ChunkErrorKind::Size),
            (State::Size | State::AfterSize, b'\r') => State::SizeEnd,
            (State::Size | State::AfterSize, b';') => State::Extension,
            (State::Size | State::AfterSize, _) if is_blank(byte) => State::AfterSize,
            (State::Size | State::AfterSize | State::Extension, b'\n') if lf_ends => self.size_is_over(),
            (State::Size | State::AfterSize | State::Extension, b'\n') => return Err(ChunkErrorKind::LineEnd),
            (State::Size | State::AfterSize, _) => return Err(ChunkErrorKind::Size),
            (State::Extension, b'\r') => State::SizeEnd,
            (State::Extension, _) => State::Extension,
            (State::SizeEnd, b'\n') => self.size_is_over(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataCr, b'\n') if lf_ends => self.data_is_over(),
            (State::DataLf, b'\n') => self.data_is_over(),
            (State::SizeEnd | State::DataCr | State::DataLf, _) => return Err(ChunkErrorKind::LineEnd),
            (State::Data | State::Trailers | State::Done | State::Refused(_), _) => self.state,
        };
        Ok(())
    }

    /// What comes after a chunk's first line.
    fn size_is_over(&mut self) -> State {
        if self.size > 0 {
            return State::Data;
        }
        self.scan = Scan::fields_at(0);
        State::Trailers
    }

    /// What comes after the line end behind a chunk's data.
    fn data_is_over(&mut self) -> State {
        self.line = 0;
        State::Size
    }

    fn data(&mut self, input: &[u8], skip: usize) -> ChunkStep {
        let there = input.len().saturating_sub(skip);
        if there == 0 {
            return ChunkStep::NeedMore { consumed: skip };
        }
        let len = usize::try_from(self.size).unwrap_or(usize::MAX).min(there);
        self.size -= len as u64;
        if self.size == 0 {
            self.state = State::DataCr;
            self.line = 0;
        }
        ChunkStep::Data { skip, len }
    }

    /// Copies trailer lines, one at a time so that nothing after the empty line is touched.
    fn trailer_lines(&mut self, input: &[u8], mut at: usize) -> Result<ChunkStep, ChunkError> {
        loop {
            let rest = input.get(at..).unwrap_or(&[]);
            let taken = memchr::memchr(b'\n', rest).map_or(rest.len(), |end| end + 1);
            if taken == 0 {
                return Ok(ChunkStep::NeedMore { consumed: at });
            }
            let room = self.limits.head_bytes.saturating_sub(self.trailer_bytes.len()).saturating_add(1);
            self.trailer_bytes.extend_from_slice(&rest[..taken.min(room)]);
            match self.scan.fields(&self.trailer_bytes, &mut self.trailers, &self.limits) {
                Ok(true) => {
                    self.state = State::Done;
                    return self.check_trailers(at).map(|()| ChunkStep::Done { consumed: at + taken });
                }
                Ok(false) => at += taken,
                Err(HeadError { kind, .. }) => return self.refuse_trailer(kind, at),
            }
        }
    }

    fn check_trailers(&mut self, at: usize) -> Result<(), ChunkError> {
        match memchr::memchr(0, &self.trailer_bytes) {
            Some(_) => self.refuse_trailer(HeadErrorKind::Nul, at),
            None => Ok(()),
        }
    }

    fn refuse_trailer<T>(&mut self, kind: HeadErrorKind, at: usize) -> Result<T, ChunkError> {
        let kind = ChunkErrorKind::Trailer(kind);
        self.state = State::Refused(kind);
        Err(ChunkError { kind, at })
    }
}
