//! How messages travel: a length of four bytes (big endian), then JSON; descriptors come with the first byte of a message.
//!
//! Every send and every receive has a deadline, and every length a bound. Receiving may be abandoned and begun again: what has
//! arrived is kept.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use baton_kernel::inherit;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::message::{Message, SOCKETS_MAX};

/// How long the other side may take for an answer that needs no work.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the taker may take from the state to `ready`: compiling, binding, daemonizing, starting threads.
pub const READY_WITHIN: Duration = Duration::from_secs(30);
/// The longest message in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Bytes before a message.
const HEAD: usize = 4;
/// Bytes read at a time.
const READ: usize = 64 * 1024;

/// Why a conversation cannot go on.
#[derive(Debug)]
pub enum Broken {
    /// The other side closed: it ended, or was ended.
    Closed,
    /// It did not answer in time.
    Late(Duration),
    /// It said something that is no message.
    Malformed(String),
    /// It gave a reason to end.
    Said(String),
    /// Descriptors were lost on the way, or more came than were announced.
    Descriptors(String),
    /// The system's words.
    Io(io::Error),
}

impl fmt::Display for Broken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Broken::Closed => write!(out, "it ended"),
            Broken::Late(within) => write!(out, "no answer within {} s", within.as_secs_f32()),
            Broken::Malformed(what) => write!(out, "not a message: {what}"),
            Broken::Said(what) => write!(out, "{what}"),
            Broken::Descriptors(what) => write!(out, "{what}"),
            Broken::Io(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<io::Error> for Broken {
    fn from(error: io::Error) -> Broken {
        match error.kind() {
            // What the kernel's room says of descriptors that were lost.
            io::ErrorKind::InvalidData => Broken::Descriptors(error.to_string()),
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => Broken::Closed,
            _ => Broken::Io(error),
        }
    }
}

/// One end of a conversation, outside of a runtime: it can be carried over a fork and into another one.
#[derive(Debug)]
pub struct Parked {
    stream: StdStream,
    arrived: Arrived,
}

/// What has arrived and was not taken yet.
#[derive(Debug, Default)]
struct Arrived {
    bytes: Vec<u8>,
    fds: VecDeque<OwnedFd>,
}

/// One end of a conversation.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    arrived: Arrived,
}

impl Parked {
    /// Over a connected stream.
    pub fn new(stream: StdStream) -> Parked {
        Parked { stream, arrived: Arrived::default() }
    }

    /// Goes on within the current runtime.
    ///
    /// # Errors
    /// The reactor's.
    pub fn resume(self) -> io::Result<Channel> {
        self.stream.set_nonblocking(true)?;
        Ok(Channel { stream: UnixStream::from_std(self.stream)?, arrived: self.arrived })
    }
}

impl Channel {
    /// Over a connected stream of which nothing has been read ahead.
    pub fn new(stream: UnixStream) -> Channel {
        Channel { stream, arrived: Arrived::default() }
    }

    /// Leaves the runtime.
    ///
    /// # Errors
    /// The reactor's.
    pub fn park(self) -> io::Result<Parked> {
        Ok(Parked { stream: self.stream.into_std()?, arrived: self.arrived })
    }

    /// Says something, with descriptors.
    ///
    /// # Errors
    /// [`Broken`]; the conversation is over then.
    pub async fn send(&mut self, message: &Message, fds: &[BorrowedFd<'_>], within: Duration) -> Result<(), Broken> {
        self.send_frame(&Frame::of(message)?, fds, within).await
    }

    /// Says something that was written down before.
    ///
    /// # Errors
    /// [`Broken`]; the conversation is over then.
    pub async fn send_frame(&mut self, frame: &Frame, fds: &[BorrowedFd<'_>], within: Duration) -> Result<(), Broken> {
        let Frame(frame) = frame;
        let all = async {
            let mut sent = 0;
            while sent < frame.len() {
                let fds = if sent == 0 { fds } else { &[] };
                let stream = &self.stream;
                let send = || inherit::send(stream, &frame[sent..], fds);
                sent += stream.async_io(Interest::WRITABLE, send).await?;
            }
            Ok(())
        };
        tokio::time::timeout(within, all).await.map_err(|_| Broken::Late(within))?
    }

    /// The next message.
    ///
    /// # Errors
    /// [`Broken`]; after [`Broken::Late`] one may go on waiting.
    pub async fn receive(&mut self, within: Duration) -> Result<Message, Broken> {
        let end = Instant::now() + within;
        loop {
            if let Some(message) = self.arrived.message()? {
                return Ok(message);
            }
            timeout_at(end, self.read()).await.map_err(|_| Broken::Late(within))??;
        }
    }

    /// The next message, whenever it comes. May be abandoned and begun again.
    ///
    /// # Errors
    /// [`Broken`].
    pub async fn next(&mut self) -> Result<Message, Broken> {
        loop {
            if let Some(message) = self.arrived.message()? {
                return Ok(message);
            }
            self.read().await?;
        }
    }

    /// Takes the descriptors of the message that was received last.
    ///
    /// # Errors
    /// When they are not as many as the message said.
    pub fn take_fds(&mut self, count: usize) -> Result<Vec<OwnedFd>, Broken> {
        if self.arrived.fds.len() < count {
            let text = format!("{} descriptors came instead of {count}", self.arrived.fds.len());
            return Err(Broken::Descriptors(text));
        }
        Ok(self.arrived.fds.drain(..count).collect())
    }

    async fn read(&mut self) -> Result<(), Broken> {
        let (stream, bytes) = (&self.stream, &mut self.arrived.bytes);
        // All of it between two awaits: whoever is abandoned leaves nothing behind.
        let receive = || {
            let before = bytes.len();
            bytes.resize(before + READ, 0);
            let received = inherit::receive(stream, &mut bytes[before..]).map_err(io::Error::from);
            bytes.truncate(before + received.as_ref().map_or(0, |received| received.length));
            received
        };
        let received = stream.async_io(Interest::READABLE, receive).await?;
        if received.length == 0 {
            return Err(Broken::Closed);
        }
        self.arrived.fds.extend(received.fds);
        if self.arrived.fds.len() > SOCKETS_MAX as usize {
            return Err(Broken::Descriptors(format!("more than {SOCKETS_MAX} descriptors came")));
        }
        Ok(())
    }
}

impl Arrived {
    /// Takes a message if it is whole.
    fn message(&mut self) -> Result<Option<Message>, Broken> {
        let Some(head) = self.bytes.first_chunk::<HEAD>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MESSAGE_BYTES_MAX {
            return Err(Broken::Malformed(format!("of {length} bytes; at most {MESSAGE_BYTES_MAX} are read")));
        }
        let Some(body) = self.bytes.get(HEAD..HEAD + length) else { return Ok(None) };
        let malformed = |error: &dyn fmt::Display| Broken::Malformed(error.to_string());
        // At once, which is faster than word by word.
        let body = str::from_utf8(body).map_err(|error| malformed(&error))?;
        let mut message: Message = serde_json::from_str(body).map_err(|error| malformed(&error))?;
        message.escape();
        self.bytes.drain(..HEAD + length);
        Ok(Some(message))
    }
}

/// A message as it travels.
#[derive(Debug)]
pub struct Frame(Vec<u8>);

impl Frame {
    /// Writes a message down.
    ///
    /// # Errors
    /// [`Broken::Malformed`]: it is longer than [`MESSAGE_BYTES_MAX`].
    pub fn of(message: &Message) -> Result<Frame, Broken> {
        let mut frame = vec![0; HEAD];
        serde_json::to_writer(&mut frame, message).map_err(|error| Broken::Malformed(error.to_string()))?;
        let length = frame.len() - HEAD;
        if length > MESSAGE_BYTES_MAX {
            return Err(Broken::Malformed(format!("of {length} bytes; at most {MESSAGE_BYTES_MAX} are sent")));
        }
        frame[..HEAD].copy_from_slice(&(length as u32).to_be_bytes());
        Ok(Frame(frame))
    }

    /// Bytes of the message.
    #[expect(clippy::len_without_is_empty, reason = "no message is empty")]
    pub fn len(&self) -> usize {
        self.0.len() - HEAD
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    fn both() -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        (Channel::new(one), Channel::new(other))
    }

    #[tokio::test]
    async fn messages_and_descriptors_arrive_in_order() {
        let (mut one, mut other) = both();
        let file = std::fs::File::open("/dev/null").unwrap();
        let fds = [file.as_fd(), file.as_fd()];
        let moved = |to| Message::Moved { to };
        one.send(&moved(1), &[], ANSWER_WITHIN).await.unwrap();
        one.send(&moved(2), &fds, ANSWER_WITHIN).await.unwrap();
        one.send(&moved(3), &fds[..1], ANSWER_WITHIN).await.unwrap();
        for (number, count) in [(1, 0), (2, 2), (3, 1)] {
            assert_eq!(other.receive(ANSWER_WITHIN).await.unwrap(), moved(number));
            assert_eq!(other.take_fds(count).unwrap().len(), count);
        }
        drop(one);
        assert!(matches!(other.receive(ANSWER_WITHIN).await, Err(Broken::Closed)));
    }

    #[tokio::test]
    async fn a_large_message_needs_many_reads() {
        let (mut one, mut other) = both();
        let message = Message::Abort { reason: "x".repeat(3 << 20) };
        let (sent, received) = tokio::join!(one.send(&message, &[], ANSWER_WITHIN), other.receive(ANSWER_WITHIN));
        sent.unwrap();
        assert_eq!(received.unwrap(), message);
    }

    #[tokio::test]
    async fn what_is_no_message_ends_the_conversation() {
        let check = async |bytes: &[u8], expect: &str| {
            let (one, mut other) = both();
            one.stream.try_write(bytes).unwrap();
            drop(one);
            let error = other.receive(ANSWER_WITHIN).await.unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        check(b"GET / HTTP/1.1\r\n\r\n", "not a message: of 1195725856 bytes").await;
        check(b"\0\0\0\x02{}", "missing field `say`").await;
        check(b"\0\0\0\x02{", "it ended").await;
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_a_deadline_and_what_came_is_kept() {
        let (one, mut other) = both();
        let Frame(frame) = Frame::of(&Message::Send).unwrap();
        one.stream.try_write(&frame[..7]).unwrap();
        assert!(matches!(other.receive(ANSWER_WITHIN).await, Err(Broken::Late(_))));
        one.stream.try_write(&frame[7..]).unwrap();
        assert_eq!(other.receive(ANSWER_WITHIN).await.unwrap(), Message::Send);
        assert!(other.take_fds(1).is_err());
    }
}
