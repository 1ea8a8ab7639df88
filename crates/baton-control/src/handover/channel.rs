//! A conversation over a stream: messages out and in, descriptors with them, and nothing that waits without an end.
//!
//! Every frame that is sent or received has a deadline of its own, so that much may travel as long as it moves; [`super::wire`] has the
//! bounds. Receiving may be abandoned and begun again: what has arrived is kept.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::time::Duration;

use baton_kernel::inherit::{self, FDS_MAX};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{Instant, timeout_at};

use super::message::Message;
use super::wire::{Arrival, Encoder, Incoming, Malformed, Outgoing, Part, WireVersion};

/// How long the other side may take for a frame, or an answer that needs no work.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// How long the taker may take from the state to `ready`: compiling, binding, daemonizing, starting threads.
pub const READY_WITHIN: Duration = Duration::from_secs(30);

/// Bytes read at a time.
const READ: usize = 64 * 1024;
/// The most descriptors that wait for their message. It is in the bytes that came with them, or begins there.
const WAITING_MAX: usize = 4 * FDS_MAX;

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
            Broken::Late(within) => write!(out, "no reply within {} s", within.as_secs_f32()),
            Broken::Malformed(what) => write!(out, "not a message: {what}"),
            Broken::Said(what) => write!(out, "{what}"),
            Broken::Descriptors(what) => write!(out, "{what}"),
            Broken::Io(error) => write!(out, "{error}"),
        }
    }
}

impl std::error::Error for Broken {}

impl From<Malformed> for Broken {
    fn from(Malformed(what): Malformed) -> Broken {
        Broken::Malformed(what)
    }
}

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
    talk: Talk,
}

/// How far a conversation is.
#[derive(Debug, Default)]
struct Talk {
    out: Encoder,
    arrived: Incoming,
    /// Descriptors that have arrived before their message.
    waiting: VecDeque<OwnedFd>,
    /// Those of the last message.
    fds: Vec<OwnedFd>,
}

/// One end of a conversation.
#[derive(Debug)]
pub struct Channel {
    stream: UnixStream,
    talk: Talk,
}

impl Parked {
    /// Over a connected stream.
    pub fn new(stream: StdStream) -> Parked {
        Parked { stream, talk: Talk::default() }
    }

    /// Goes on within the current runtime.
    ///
    /// # Errors
    /// The reactor's.
    pub fn resume(self) -> io::Result<Channel> {
        self.stream.set_nonblocking(true)?;
        Ok(Channel { stream: UnixStream::from_std(self.stream)?, talk: self.talk })
    }
}

impl Channel {
    /// Over a connected stream of which nothing has been read ahead.
    pub fn new(stream: UnixStream) -> Channel {
        Channel { stream, talk: Talk::default() }
    }

    /// Leaves the runtime.
    ///
    /// # Errors
    /// The reactor's.
    pub fn park(self) -> io::Result<Parked> {
        Ok(Parked { stream: self.stream.into_std()?, talk: self.talk })
    }

    /// Both sides go on in that version.
    pub fn speak(&mut self, version: WireVersion) {
        self.talk.out.speak(version);
        self.talk.arrived.speak(version);
    }

    /// The version that is spoken.
    pub fn version(&self) -> WireVersion {
        self.talk.out.version()
    }

    /// Kinds of frames that were not understood since this was asked, with the number of frames.
    pub fn skipped(&mut self) -> Vec<(String, u64)> {
        self.talk.arrived.skipped()
    }

    /// Says something, with descriptors. `within` is for each frame of it.
    ///
    /// # Errors
    /// [`Broken`]; the conversation is over then.
    pub async fn send(&mut self, message: Message, fds: &[BorrowedFd<'_>], within: Duration) -> Result<(), Broken> {
        let mut message: Outgoing = self.talk.out.message(message);
        while let Some(Part { bytes, has_descriptors }) = self.talk.out.next(&mut message, fds.len())? {
            let fds = if has_descriptors { fds } else { &[] };
            let sent = tokio::time::timeout(within, self.write(&bytes, fds)).await;
            sent.map_err(|_| Broken::Late(within))??;
        }
        Ok(())
    }

    async fn write(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Broken> {
        let mut sent = 0;
        while sent < bytes.len() {
            let fds = if sent == 0 { fds } else { &[] };
            let send = || inherit::send(&self.stream, &bytes[sent..], fds);
            sent += self.stream.async_io(Interest::WRITABLE, send).await?;
        }
        Ok(())
    }

    /// The next message. `within` is for each frame of it.
    ///
    /// # Errors
    /// [`Broken`]; after [`Broken::Late`] one may go on waiting.
    pub async fn receive(&mut self, within: Duration) -> Result<Message, Broken> {
        let mut end = Instant::now() + within;
        loop {
            match self.talk.take()? {
                Some(Arrival { message: Some(message), .. }) => return Ok(message),
                Some(Arrival { message: None, .. }) => end = Instant::now() + within,
                None => timeout_at(end, self.read()).await.map_err(|_| Broken::Late(within))??,
            }
        }
    }

    /// The next message, whenever it comes. May be abandoned and begun again.
    ///
    /// # Errors
    /// [`Broken`].
    pub async fn next(&mut self) -> Result<Message, Broken> {
        loop {
            match self.talk.take()? {
                Some(Arrival { message: Some(message), .. }) => return Ok(message),
                Some(Arrival { message: None, .. }) => {}
                None => self.read().await?,
            }
        }
    }

    /// Takes the descriptors of the message that was received last.
    ///
    /// # Errors
    /// When they are not as many as the message said.
    pub fn take_fds(&mut self, count: usize) -> Result<Vec<OwnedFd>, Broken> {
        let fds = std::mem::take(&mut self.talk.fds);
        match fds.len() == count {
            true => Ok(fds),
            false => Err(Broken::Descriptors(format!("{} descriptors received instead of {count}", fds.len()))),
        }
    }

    async fn read(&mut self) -> Result<(), Broken> {
        let (stream, bytes) = (&self.stream, self.talk.arrived.bytes_with_room(READ));
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
        self.talk.waiting.extend(received.fds);
        if self.talk.waiting.len() > WAITING_MAX {
            return Err(Broken::Descriptors(format!("more than {WAITING_MAX} descriptors received with one message")));
        }
        Ok(())
    }
}

impl Talk {
    /// Takes what has arrived whole, with its descriptors.
    fn take(&mut self) -> Result<Option<Arrival>, Broken> {
        let Some(arrival) = self.arrived.arrival()? else { return Ok(None) };
        if self.waiting.len() < arrival.descriptors {
            let text = format!("{} descriptors received instead of {}", self.waiting.len(), arrival.descriptors);
            return Err(Broken::Descriptors(text));
        }
        let fds = self.waiting.drain(..arrival.descriptors).collect();
        if self.arrived.is_between_frames() && !self.waiting.is_empty() {
            let text = format!("{} unannounced descriptors received", self.waiting.len());
            return Err(Broken::Descriptors(text));
        }
        // Those of a frame that is skipped are closed.
        if arrival.message.is_some() {
            self.fds = fds;
        }
        Ok(Some(arrival))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::handover::memory::ProcessMemory;
    use crate::handover::message::{Socket, Sockets};

    fn both(version: WireVersion) -> (Channel, Channel) {
        let (one, other) = UnixStream::pair().unwrap();
        let (mut one, mut other) = (Channel::new(one), Channel::new(other));
        one.speak(version);
        other.speak(version);
        (one, other)
    }

    fn sockets(count: usize) -> Message {
        Message::Sockets(Sockets { sockets: vec![Socket::default(); count] })
    }

    const VERSIONS: [WireVersion; 2] = [WireVersion::Messages, WireVersion::Frames];

    #[tokio::test]
    async fn messages_and_descriptors_arrive_in_order() {
        for version in VERSIONS {
            let (mut one, mut other) = both(version);
            let file = std::fs::File::open("/dev/null").unwrap();
            let fds = [file.as_fd(), file.as_fd()];
            one.send(Message::Send, &[], ANSWER_WITHIN).await.unwrap();
            one.send(sockets(2), &fds, ANSWER_WITHIN).await.unwrap();
            one.send(sockets(1), &fds[..1], ANSWER_WITHIN).await.unwrap();
            for (message, count) in [(Message::Send, 0), (sockets(2), 2), (sockets(1), 1)] {
                assert_eq!(other.receive(ANSWER_WITHIN).await.unwrap(), message);
                assert_eq!(other.take_fds(count).unwrap().len(), count);
            }
            drop(one);
            assert!(matches!(other.receive(ANSWER_WITHIN).await, Err(Broken::Closed)));
        }
    }

    #[tokio::test]
    async fn descriptors_are_as_many_as_were_announced() {
        let check = async |version, message: Message, count: usize, expect: &str| {
            let (mut one, mut other) = both(version);
            let file = std::fs::File::open("/dev/null").unwrap();
            one.send(message, &vec![file.as_fd(); count], ANSWER_WITHIN).await.unwrap();
            let received = other.receive(ANSWER_WITHIN).await;
            let error = received.and_then(|_| other.take_fds(2)).unwrap_err().to_string();
            assert_eq!(error, expect);
        };
        let [messages, frames] = VERSIONS;
        check(messages, sockets(2), 1, "1 descriptors received instead of 2").await;
        check(messages, sockets(2), 3, "1 unannounced descriptors received").await;
        check(messages, Message::Send, 1, "1 unannounced descriptors received").await;
        check(frames, sockets(2), 1, "1 descriptors received instead of 2").await;
        check(frames, Message::Send, 1, "1 descriptors received instead of 2").await;
    }

    #[tokio::test]
    async fn what_is_unknown_is_skipped_with_its_descriptors() {
        let (mut one, mut other) = both(WireVersion::Frames);
        let file = std::fs::File::open("/dev/null").unwrap();
        one.send(Message::Unknown, &[file.as_fd()], ANSWER_WITHIN).await.unwrap();
        one.send(sockets(1), &[file.as_fd()], ANSWER_WITHIN).await.unwrap();
        assert_eq!(other.receive(ANSWER_WITHIN).await.unwrap(), sockets(1));
        assert_eq!(other.take_fds(1).unwrap().len(), 1);
        assert_eq!((other.skipped(), other.skipped()), (vec![("unknown".into(), 1)], Vec::new()));
    }

    #[tokio::test]
    async fn a_large_message_needs_many_reads() {
        for version in VERSIONS {
            let (mut one, mut other) = both(version);
            let message = Message::Abort { reason: "x".repeat(3 << 20) };
            let sent = one.send(message.clone(), &[], ANSWER_WITHIN);
            let (sent, received) = tokio::join!(sent, other.receive(ANSWER_WITHIN));
            sent.unwrap();
            assert_eq!(received.unwrap(), message);
        }
    }

    #[tokio::test]
    async fn what_is_no_message_ends_the_conversation() {
        let check = async |version, bytes: &[u8], expect: &str| {
            let (one, mut other) = both(version);
            one.stream.try_write(bytes).unwrap();
            drop(one);
            let error = other.receive(ANSWER_WITHIN).await.unwrap_err().to_string();
            assert!(error.contains(expect), "{error}");
        };
        let [messages, frames] = VERSIONS;
        check(messages, b"GET / HTTP/1.1\r\n\r\n", "not a message: of 1195725856 bytes").await;
        check(messages, b"\0\0\0\x02{}", "missing field `say`").await;
        check(messages, b"\0\0\0\x02{", "it ended").await;
        check(frames, b"GET / HTTP/1.1\r\nhost: a.example\r\n\r\n", "not a message: not the head of a frame").await;
        check(frames, b"\0\0\0\x02\0\0\0\0\0\0send", "it ended").await;
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_a_deadline_and_what_came_is_kept() {
        for version in VERSIONS {
            let (mut one, mut other) = both(version);
            let mut message = one.talk.out.message(Message::Send);
            let Part { bytes, .. } = one.talk.out.next(&mut message, 0).unwrap().unwrap();
            one.stream.try_write(&bytes[..7]).unwrap();
            assert!(matches!(other.receive(ANSWER_WITHIN).await, Err(Broken::Late(_))));
            one.stream.try_write(&bytes[7..]).unwrap();
            assert_eq!(other.receive(ANSWER_WITHIN).await.unwrap(), Message::Send);
            assert!(other.take_fds(1).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_moves_may_take_longer_than_a_frame() {
        let (mut one, mut other) = both(WireVersion::Frames);
        let quiet = [("app".into(), "srv ".repeat(200_000))].into_iter().collect();
        let memory = ProcessMemory { quiet, ..ProcessMemory::default() };
        let mut message = one.talk.out.message(Message::State(Box::new(memory)));
        let begun = Instant::now();
        let sent = async {
            while let Some(Part { bytes, .. }) = one.talk.out.next(&mut message, 0).unwrap() {
                tokio::time::sleep(ANSWER_WITHIN - Duration::from_millis(1)).await;
                one.write(&bytes, &[]).await.unwrap();
            }
        };
        let ((), received) = tokio::join!(sent, other.receive(ANSWER_WITHIN));
        assert!(matches!(received.unwrap(), Message::State(_)));
        assert!(begun.elapsed() > 5 * ANSWER_WITHIN, "{:?}", begun.elapsed());
    }
}
