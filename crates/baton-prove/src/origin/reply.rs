//! Answers as bytes, whole or with a failure on purpose.

use std::io;

use super::{
    fault::{DRIP_EVERY, InjectedFault},
    peer::OriginStream,
};

/// Bytes that a chunk of `/chunked` has at most; not a multiple of the pattern's length, so that a lost chunk shows.
const CHUNK: usize = 4000;

/// What is written at once of a long body, at least.
const WRITE: usize = 16 * 1024;

/// Says nothing in HTTP.
const NONSENSE: &[u8] = b"this is not a response\r\n";

/// A right answer.
pub(super) struct Reply<'a> {
    pub(super) status: u16,
    pub(super) kind: &'static str,
    pub(super) body: ReplyBody<'a>,
    /// The body is only told of (HEAD).
    pub(super) bodyless: bool,
    /// Whether it announces the connection's end.
    pub(super) close: bool,
}

/// The body of an answer.
#[derive(Clone, Copy)]
pub(super) enum ReplyBody<'a> {
    /// None at all, as under 204 and 304.
    None,
    Bytes(&'a [u8]),
    /// So many bytes of [`pattern`].
    Pattern {
        length: u64,
        chunked: bool,
    },
}

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionFate {
    Keep,
    Close,
    Reset,
    /// Nothing more is sent, until the client closes.
    Hold,
}

impl Reply<'_> {
    /// Whether it can fail like this.
    pub(super) fn can(&self, fault: InjectedFault) -> bool {
        !fault.needs_body() || !self.bodyless && self.body.length() > 0
    }

    /// Writes it, with `fault` if that is not `None` (and [`Reply::can`] agrees). `out` is scratch space.
    pub(super) async fn write(
        &self,
        peer: &mut OriginStream,
        fault: Option<InjectedFault>,
        out: &mut Vec<u8>,
    ) -> io::Result<ConnectionFate> {
        out.clear();
        let whole = self.body.length();
        let (promised, sent) = match fault {
            Some(InjectedFault::WrongLength) => (whole - 1, whole - 1),
            Some(InjectedFault::HalfBody | InjectedFault::ResetBody | InjectedFault::Stall) => (whole, whole / 2),
            _ => (whole, whole),
        };
        match fault {
            Some(InjectedFault::Reset) => return Ok(ConnectionFate::Reset),
            Some(InjectedFault::Close) => return Ok(ConnectionFate::Close),
            Some(InjectedFault::Silence) => return Ok(ConnectionFate::Hold),
            Some(InjectedFault::Malformed) => {
                peer.write_all(NONSENSE).await?;
                return Ok(ConnectionFate::Close);
            }
            Some(InjectedFault::WrongStatus) => self.head(500, promised, out),
            _ => self.head(self.status, promised, out),
        }
        if fault == Some(InjectedFault::HalfHead) {
            peer.write_all(&out[..out.len() / 2]).await?;
            return Ok(ConnectionFate::Close);
        }

        if !self.bodyless {
            let flip = (fault == Some(InjectedFault::WrongBody)).then_some(whole / 2);
            let mut at = 0;
            while at < sent {
                at += self.body.piece(at, sent, flip, out);
                // The last piece goes out with what follows it.
                if out.len() >= WRITE && at < sent {
                    send(peer, fault, out).await?;
                }
            }
            if let (ReplyBody::Pattern { chunked: true, .. }, true) = (self.body, sent == promised) {
                out.extend_from_slice(b"0\r\n\r\n");
            }
        }
        if fault == Some(InjectedFault::TooLong) {
            out.push(b'!');
        }
        send(peer, fault, out).await?;
        Ok(match fault {
            Some(InjectedFault::HalfBody | InjectedFault::CloseAfter) => ConnectionFate::Close,
            Some(InjectedFault::ResetBody | InjectedFault::ResetAfter) => ConnectionFate::Reset,
            Some(InjectedFault::Stall) => ConnectionFate::Hold,
            _ if self.close => ConnectionFate::Close,
            _ => ConnectionFate::Keep,
        })
    }

    fn head(&self, status: u16, length: u64, out: &mut Vec<u8>) {
        let framing = match self.body {
            ReplyBody::None if status == self.status => String::new(),
            ReplyBody::Pattern { chunked: true, .. } => "Transfer-Encoding: chunked\r\n".to_owned(),
            ReplyBody::None | ReplyBody::Bytes(_) | ReplyBody::Pattern { .. } => {
                format!("Content-Length: {length}\r\n")
            }
        };
        let kind = match self.body {
            ReplyBody::None => String::new(),
            ReplyBody::Bytes(_) | ReplyBody::Pattern { .. } => format!("Content-Type: {}\r\n", self.kind),
        };
        let close = if self.close { "Connection: close\r\n" } else { "" };
        let reason = reason(status);
        out.extend_from_slice(format!("HTTP/1.1 {status} {reason}\r\n{kind}{framing}{close}\r\n").as_bytes());
    }
}

/// Writes `out`, all at once or drop by drop, and empties it.
async fn send(peer: &mut OriginStream, fault: Option<InjectedFault>, out: &mut Vec<u8>) -> io::Result<()> {
    if fault == Some(InjectedFault::Drip) {
        for byte in out.iter() {
            peer.write_all(&[*byte]).await?;
            tokio::time::sleep(DRIP_EVERY).await;
        }
    } else {
        peer.write_all(out).await?;
    }
    out.clear();
    Ok(())
}

impl ReplyBody<'_> {
    /// This body for a protocol that has no chunks.
    pub(super) fn without_chunks(self) -> Self {
        match self {
            ReplyBody::Pattern { length, .. } => ReplyBody::Pattern { length, chunked: false },
            ReplyBody::None | ReplyBody::Bytes(_) => self,
        }
    }

    pub(super) fn length(&self) -> u64 {
        match self {
            ReplyBody::None => 0,
            ReplyBody::Bytes(bytes) => bytes.len() as u64,
            ReplyBody::Pattern { length, .. } => *length,
        }
    }

    /// Appends the next piece from `at` on, not beyond `end`, with the byte at `flip` made wrong; gives its length.
    pub(super) fn piece(&self, at: u64, end: u64, flip: Option<u64>, out: &mut Vec<u8>) -> u64 {
        let left = usize::try_from(end - at).unwrap_or(usize::MAX);
        let (source, chunked) = match self {
            ReplyBody::None => return end - at,
            ReplyBody::Bytes(bytes) => (&bytes[at as usize..at as usize + left], false),
            ReplyBody::Pattern { chunked, .. } => {
                // Never over the end of the block, so that the next piece begins where this one ends.
                let place = (at % BLOCK.len() as u64) as usize;
                let most = if *chunked { CHUNK } else { BLOCK.len() };
                (&BLOCK[place..place + left.min(most).min(BLOCK.len() - place)], *chunked)
            }
        };
        if chunked {
            out.extend_from_slice(format!("{:x}\r\n", source.len()).as_bytes());
        }
        let start = out.len();
        out.extend_from_slice(source);
        if let Some(byte) =
            flip.and_then(|flip| flip.checked_sub(at)).and_then(|flip| out.get_mut(start + flip as usize))
        {
            *byte ^= 1;
        }
        if chunked {
            out.extend_from_slice(b"\r\n");
        }
        source.len() as u64
    }
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        204 => "No Content",
        304 => "Not Modified",
        400 => "Bad Request",
        404 => "Not Found",
        413 => "Content Too Large",
        426 => "Upgrade Required",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Other",
    }
}

/// The letters that [`pattern`] repeats.
const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";

/// Whole alphabets, to be sent again and again.
static BLOCK: [u8; 26 * 630] = {
    let (mut block, mut at) = ([0; 26 * 630], 0);
    while at < block.len() {
        block[at] = LETTERS[at % 26];
        at += 1;
    }
    block
};

/// The first `length` bytes of what `/bytes` and `/chunked` answer: the alphabet again and again, so that a byte lost or doubled
/// anywhere shows.
pub fn pattern(length: usize) -> Vec<u8> {
    LETTERS.iter().copied().cycle().take(length).collect()
}
