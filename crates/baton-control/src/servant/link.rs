//! The line between a master and its worker: messages with descriptors over a `SOCK_SEQPACKET` pair, of which the worker
//! gets its end as standard input.
//!
//! A message is a packet of JSON, so that a side that dies leaves none half said. Both sides may be of different versions
//! while a binary is replaced: unknown fields are passed over, and a message that is not known is [`Heard::Unknown`].

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use baton_kernel::inherit::{self, FDS_MAX};
use baton_kernel::watch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use socket2::{Domain, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::overrides::{OverrideKey, OverrideRecord};

/// The longest message in bytes; what is longer travels as a memory file.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// How long the other side may leave us without room for a message before it counts as stuck.
pub const ROOM_WITHIN: Duration = Duration::from_secs(5);

/// Version of what a master keeps when it becomes a new binary. It becomes only a binary that reads it.
pub const STATE_VERSION: u32 = 1;

/// Descriptors of listening sockets in one message.
pub const SOCKETS_PER_MESSAGE: usize = FDS_MAX - 3;

/// What a master says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToWorker {
    /// Listening sockets that the master holds, one descriptor each.
    Sockets,
    /// With a descriptor of such a socket: the configuration may name it by this number (`fd@N`), which it had in a process
    /// before.
    Number {
        /// The number.
        number: i32,
    },
    /// With a memory file: what standard input held when the master was started (`-f -`).
    Input,
    /// With a memory file: the text to work by instead of the files (see [`crate::environment`]).
    Text,
    /// With a memory file: a text that was in use before the last one, some of whose addresses may not be empty yet. The
    /// oldest comes first.
    Earlier,
    /// With a memory file: keys of session tickets that the worker before used (see [`crate::tickets`]).
    Tickets,
    /// With a memory file: what operators had set in the worker before (see [`crate::overrides`]).
    Overrides,
    /// With the memory in which the worker before counted (see [`crate::handover::crashed`]).
    Counters,
    /// With a memory file: the health of servers as the worker before knew it.
    Health,
    /// With a memory file: another part of what is remembered of the worker before (see [`crate::handover::memory`]).
    Part {
        /// Which part.
        kind: String,
    },
    /// Everything was said that is needed for a start.
    Begin(Begin),
    /// With a connected stream: somebody who speaks [`crate::protocol`] to the master's address.
    Serve,
    /// With a connected stream: a session of the runtime API with the rights of this level (`user`, `operator`, `admin`).
    Session {
        /// HAProxy's word for it.
        level: String,
        /// Who it is: the user.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        uid: Option<u32>,
        /// Who it is: the process.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pid: Option<u32>,
        /// The master's socket that it connected to.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        socket: String,
    },
    /// Answer with [`ToMaster::Pong`].
    Ping,
}

/// How a worker shall start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Begin {
    /// The master has shown the messages about the files already.
    pub is_first: bool,
    /// Nobody sees standard output and error once the service runs (`-D`).
    pub is_detached: bool,
    /// The worker whose state to take over.
    pub take_over: Option<u32>,
    /// Users besides root that may ask.
    pub may_ask: Vec<u32>,
    /// The master is root: it binds and retires what a worker that is not cannot (see [`super::opening`]).
    pub opens: bool,
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum ToMaster {
    /// With descriptors: listening sockets that it opened and the master shall hold.
    Hold,
    /// With a descriptor of such a socket: the configuration names it by this number (`fd@N`), and whoever comes after shall
    /// find it by that.
    Number {
        /// The number.
        number: i32,
    },
    /// Sockets that it closed for good, by the kernel's numbers (`SO_COOKIE`).
    Release {
        /// The numbers.
        sockets: Vec<u64>,
    },
    /// With an end of a line of its own: a conversation as in [`super::opening`].
    Open,
    /// Keep new connections from these of its TCP sockets, by the kernel's numbers: it has no right to.
    Retire {
        /// The numbers.
        sockets: Vec<u64>,
    },
    /// With a memory file: the text that is in use now.
    Text,
    /// With a memory file: keys of session tickets, for a worker after this one.
    Tickets,
    /// With a memory file: all that operators have set, for a worker after this one.
    Overrides,
    /// With the memory in which it counts, for a worker after this one.
    Counters,
    /// With a memory file: the health of servers, for a worker after this one.
    Health,
    /// With a memory file: another part of what is to be remembered of it, for a worker after this one (see
    /// [`crate::handover::memory`]).
    Part {
        /// Which part.
        kind: String,
    },
    /// An operator has set this.
    Override {
        /// What.
        set: OverrideRecord,
    },
    /// This is as in the file again.
    Restored {
        /// Which field of what, as in [`OverrideRecord`].
        of: OverrideKey,
    },
    /// No address of a text before is left to be emptied.
    Settled,
    /// It serves.
    Ready {
        /// Version of its binary.
        version: String,
        /// The version of the master's own state that its binary reads: whether its master could take up from this one.
        state: u32,
        /// Whether its binary, as a master, goes on at the socket file of the master before.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        keeps_file: bool,
    },
    /// What it said while it started, also when it failed.
    Said {
        /// Lines as they were printed.
        text: String,
    },
    /// Another process took over from it: it ends, and shall not be replaced.
    HandedOver {
        /// The other's process id.
        to: u32,
    },
    /// To [`ToWorker::Ping`].
    Pong,
}

/// What was heard.
#[derive(Debug)]
pub enum Heard<T> {
    /// A message with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Something that only another version understands; its descriptors are closed.
    Unknown,
    /// The other side is gone.
    Closed,
}

/// One end of the line, within a runtime.
#[derive(Debug)]
pub struct Link {
    socket: AsyncFd<Socket>,
}

/// Both ends of a new line.
pub fn pair() -> io::Result<(Socket, Socket)> {
    Socket::pair(Domain::UNIX, Type::from(nix::libc::SOCK_SEQPACKET), None)
}

impl Link {
    /// Goes on within the current runtime.
    pub fn new(socket: Socket) -> io::Result<Link> {
        socket.set_nonblocking(true)?;
        Ok(Link { socket: watch::stream(socket)? })
    }

    /// The socket, to be kept over `exec`.
    pub fn socket(&self) -> &Socket {
        self.socket.get_ref()
    }

    /// Says something, with descriptors.
    ///
    /// # Errors
    /// When the other side is gone, or `TimedOut` when it is stuck.
    pub async fn say<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let text = encode(message)?;
        let send = self.socket.async_io(Interest::WRITABLE, |socket| inherit::send(socket, &text, fds));
        let sent = tokio::time::timeout(ROOM_WITHIN, send).await;
        sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map(|_| ())
    }

    /// Hands over any number of listening sockets, some in each message.
    ///
    /// # Errors
    /// As [`Link::say`].
    pub async fn say_sockets<T: Serialize>(&self, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        for some in fds.chunks(SOCKETS_PER_MESSAGE) {
            self.say(message, some).await?;
        }
        Ok(())
    }

    /// The next message, whenever it comes. May be abandoned and begun again.
    ///
    /// # Errors
    /// The system's, or lost descriptors.
    pub async fn hear<T: DeserializeOwned>(&self) -> io::Result<Heard<T>> {
        self.socket.async_io(Interest::READABLE, |socket| receive(socket)).await
    }
}

/// Says something outside of a runtime, waiting for room.
pub fn say<T: Serialize>(socket: &Socket, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    inherit::send(&socket.as_fd(), &encode(message)?, fds).map(|_| ())
}

/// The next message, outside of a runtime; blocks as long as the socket's timeout says.
pub fn hear<T: DeserializeOwned>(socket: &Socket) -> io::Result<Heard<T>> {
    receive(socket)
}

fn receive<T: DeserializeOwned>(socket: &Socket) -> io::Result<Heard<T>> {
    let mut packet = vec![0; MESSAGE_BYTES_MAX];
    let received = match inherit::receive(&socket.as_fd(), &mut packet) {
        Ok(received) => received,
        Err(error) => {
            let error = io::Error::from(error);
            return if error.kind() == io::ErrorKind::ConnectionReset { Ok(Heard::Closed) } else { Err(error) };
        }
    };
    if received.length == 0 {
        return Ok(Heard::Closed);
    }
    match serde_json::from_slice(&packet[..received.length]) {
        Ok(message) => Ok(Heard::Message(message, received.fds)),
        Err(_) => Ok(Heard::Unknown),
    }
}

fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: T, expect: &str) {
        assert_eq!(String::from_utf8(encode(&message).unwrap()).unwrap(), expect);
        assert_eq!(serde_json::from_str::<T>(expect).unwrap(), message);
    }

    #[test]
    fn messages_are_these_for_ever() {
        check(ToWorker::Sockets, r#"{"say":"sockets"}"#);
        let session =
            |uid, pid, socket: &str| ToWorker::Session { level: "admin".into(), uid, pid, socket: socket.into() };
        check(session(None, None, ""), r#"{"say":"session","level":"admin"}"#);
        let text = r#"{"say":"session","level":"admin","uid":0,"pid":7,"socket":"unix@/m"}"#;
        check(session(Some(0), Some(7), "unix@/m"), text);
        let begin = Begin { is_first: true, is_detached: false, take_over: Some(7), may_ask: vec![0], opens: true };
        let text = r#"{"say":"begin","is_first":true,"is_detached":false,"take_over":7,"may_ask":[0],"opens":true}"#;
        check(ToWorker::Begin(begin), text);
        check(ToWorker::Earlier, r#"{"say":"earlier"}"#);
        check(ToWorker::Number { number: 7 }, r#"{"say":"number","number":7}"#);
        check(ToMaster::Number { number: 7 }, r#"{"say":"number","number":7}"#);
        check(ToWorker::Tickets, r#"{"say":"tickets"}"#);
        check(ToWorker::Part { kind: "history".into() }, r#"{"say":"part","kind":"history"}"#);
        check(ToMaster::Part { kind: "history".into() }, r#"{"say":"part","kind":"history"}"#);
        check(ToMaster::Tickets, r#"{"say":"tickets"}"#);
        check(ToWorker::Overrides, r#"{"say":"overrides"}"#);
        check(ToMaster::Overrides, r#"{"say":"overrides"}"#);
        check(ToWorker::Counters, r#"{"say":"counters"}"#);
        check(ToMaster::Counters, r#"{"say":"counters"}"#);
        check(ToWorker::Health, r#"{"say":"health"}"#);
        check(ToMaster::Health, r#"{"say":"health"}"#);
        let of = OverrideKey {
            backend: "app".into(),
            server: "s1".into(),
            field: "weight".into(),
            ..OverrideKey::default()
        };
        let text = r#"{"say":"restored","of":{"backend":"app","server":"s1","field":"weight"}}"#;
        check(ToMaster::Restored { of }, text);
        let set =
            OverrideRecord { field: "weight".into(), value: "3".into(), file: "9".into(), ..OverrideRecord::default() };
        let text = r#"{"say":"override","set":{"backend":"","server":"","field":"weight","value":"3","file":"9","socket":"","at_s":0}}"#;
        check(ToMaster::Override { set }, text);
        check(ToMaster::Settled, r#"{"say":"settled"}"#);
        check(ToMaster::Open, r#"{"say":"open"}"#);
        check(ToMaster::Retire { sockets: vec![1] }, r#"{"say":"retire","sockets":[1]}"#);
        check(ToMaster::Release { sockets: vec![1, 2] }, r#"{"say":"release","sockets":[1,2]}"#);
        let ready = |keeps_file| ToMaster::Ready { version: "0.1.0".into(), state: 1, keeps_file };
        check(ready(false), r#"{"say":"ready","version":"0.1.0","state":1}"#);
        check(ready(true), r#"{"say":"ready","version":"0.1.0","state":1,"keeps_file":true}"#);
        check(ToMaster::HandedOver { to: 7 }, r#"{"say":"handed-over","to":7}"#);
    }

    #[tokio::test]
    async fn packets_keep_their_descriptors_and_strangers_are_passed_over() {
        let (one, other) = pair().unwrap();
        let (one, other) = (Link::new(one).unwrap(), Link::new(other).unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        let many = vec![file.as_fd(); SOCKETS_PER_MESSAGE + 1];
        one.say_sockets(&ToMaster::Hold, &many).await.unwrap();
        inherit::send(&one.socket(), br#"{"say":"something new"}"#, &[]).unwrap();
        one.say(&ToMaster::Pong, &[]).await.unwrap();
        assert!(one.say(&ToMaster::Said { text: "x".repeat(MESSAGE_BYTES_MAX) }, &[]).await.is_err());
        drop(one);
        for count in [SOCKETS_PER_MESSAGE, 1] {
            let Heard::Message(ToMaster::Hold, fds) = other.hear().await.unwrap() else { panic!() };
            assert_eq!(fds.len(), count);
        }
        assert!(matches!(other.hear::<ToMaster>().await.unwrap(), Heard::Unknown));
        assert!(matches!(other.hear().await.unwrap(), Heard::Message(ToMaster::Pong, _)));
        assert!(matches!(other.hear::<ToMaster>().await.unwrap(), Heard::Closed));
    }
}
