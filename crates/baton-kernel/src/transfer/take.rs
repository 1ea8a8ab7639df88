//! The successor's part: the old process's sockets come in.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use socket2::{Domain, SockRef, Socket, Type};

use super::{ENTRY_MAX, PADDING, PATIENCE, PER_MESSAGE, QUESTION};
use crate::Endpoint;
use crate::inherit::{self, ReceiveError};
use crate::process::limits::OpenFiles;
use crate::process::procfs;

/// Descriptors that must stay free for everything else besides the sockets that come.
const RESERVED: u64 = 64;

/// A listening socket that came.
#[derive(Debug)]
pub struct Taken {
    /// The socket, close-on-exec; the giver has it too.
    pub fd: OwnedFd,
    /// The giver's name for its network namespace; empty for the giver's own.
    pub namespace: String,
    /// The interface it is bound to, as the giver says; may be empty.
    pub interface: String,
}

/// Why no sockets came. None is kept, and the giver serves on as if nobody had asked.
#[derive(Debug)]
pub enum TakeError {
    /// Nobody listens there, or not to us.
    Connect(io::Error),
    /// The other side closed without an answer.
    NotExposed,
    /// The other side was too slow, or is gone.
    Talk(io::Error),
    /// More sockets than asked for at most.
    TooMany {
        /// How many there are.
        offered: i64,
        /// How many would be taken.
        limit: usize,
    },
    /// The limit of open files has no room for them.
    NoRoom {
        /// How many there are.
        offered: usize,
        /// How many descriptors are free.
        free: u64,
    },
    /// The other side speaks another language.
    Malformed(&'static str),
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeError::Connect(error) => write!(f, "cannot connect: {error}"),
            TakeError::NotExposed => {
                write!(f, "the old process does not pass its sockets; its 'stats socket' needs 'expose-fd listeners'")
            }
            TakeError::Talk(error) => write!(f, "unexpected reply of the old process: {error}"),
            TakeError::TooMany { offered, limit } => {
                write!(f, "the old process has {offered} sockets; the maximum is {limit}")
            }
            TakeError::NoRoom { offered, free } => write!(
                f,
                "the old process has {offered} sockets, and only {free} more descriptors may be opened; raise the limit \
                 of open files (`ulimit -n`, LimitNOFILE=)"
            ),
            TakeError::Malformed(what) => write!(f, "unexpected reply of the old process: {what}"),
        }
    }
}

impl std::error::Error for TakeError {}

/// Connects to the process behind the `stats socket` at `endpoint`.
///
/// # Errors
/// [`TakeError::Connect`].
pub fn connect(endpoint: &Endpoint) -> Result<Socket, TakeError> {
    let connect = || {
        let stream = Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None)?;
        // Of the wait in a full queue too.
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.connect(&endpoint.to_sockaddr()?)?;
        Ok(stream)
    };
    connect().map_err(TakeError::Connect)
}

/// Asks the process behind the `stats socket` at `endpoint` for its listening sockets, `limit` at most. Blocks, for
/// [`PATIENCE`] at each step.
///
/// # Errors
/// [`TakeError`] has the reason.
pub fn take(endpoint: &Endpoint, limit: usize) -> Result<Vec<Taken>, TakeError> {
    take_from(&connect(endpoint)?, limit)
}

/// Asks for the listening sockets over a stream that is connected to the runtime API of the old process.
///
/// # Errors
/// [`TakeError`] has the reason.
pub fn take_from(stream: &impl AsFd, limit: usize) -> Result<Vec<Taken>, TakeError> {
    let socket = SockRef::from(stream);
    let set = || {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))
    };
    set().and_then(|()| inherit::send_all(stream, QUESTION, &[])).map_err(TakeError::Talk)?;
    let count = count(stream, limit)?;
    let mut taken = Vec::with_capacity(count);
    while taken.len() < count {
        let most = (count - taken.len()).min(PER_MESSAGE);
        taken.extend(message(stream, most)?);
        match inherit::send_all(stream, &0u32.to_ne_bytes(), &[]) {
            // A giver may leave after its last message; one that left before is met by the next read.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {}
            other => other.map_err(TakeError::Talk)?,
        }
    }
    Ok(taken)
}

/// How many there will be, if there is room for them.
fn count(stream: &impl AsFd, limit: usize) -> Result<usize, TakeError> {
    let mut number = [0; size_of::<i32>()];
    let mut have = 0;
    while have < number.len() {
        let received = receive(stream, &mut number[have..])?;
        match received.length {
            0 if have == 0 => return Err(TakeError::NotExposed),
            0 => return Err(TakeError::Malformed("a number of sockets was cut short")),
            length => have += length,
        }
    }
    let offered = i32::from_ne_bytes(number);
    let count = usize::try_from(offered).map_err(|_| TakeError::Malformed("a negative number of sockets"))?;
    if count > limit {
        return Err(TakeError::TooMany { offered: offered.into(), limit });
    }
    let free = free_descriptors();
    match count as u64 > free {
        true => Err(TakeError::NoRoom { offered: count, free }),
        false => Ok(count),
    }
}

/// How many more descriptors this process may open, with some kept back.
fn free_descriptors() -> u64 {
    let soft = OpenFiles::now().map_or(0, |limit| limit.soft);
    let open = procfs::count("self/fd").unwrap_or_default() as u64;
    soft.saturating_sub(open + RESERVED)
}

/// One message with at most `most` descriptors, and what it says of each.
fn message(stream: &impl AsFd, most: usize) -> Result<Vec<Taken>, TakeError> {
    let mut buffer = vec![0; PER_MESSAGE * ENTRY_MAX];
    let left = || TakeError::Malformed("it closed the connection before all sockets were received");
    let received = receive(stream, &mut buffer).map_err(|error| match error {
        // It closed without reading our acknowledgement.
        TakeError::Talk(error) if error.kind() == io::ErrorKind::ConnectionReset => left(),
        other => other,
    })?;
    let (mut length, fds) = (received.length, received.fds);
    match fds.len() {
        _ if length == 0 => return Err(left()),
        0 => return Err(TakeError::Malformed("a message without a socket")),
        count if count > most => return Err(TakeError::Malformed("more sockets than announced")),
        _ => {}
    }
    let mut entries = entries(&buffer[..length], fds.len())?;
    // The descriptors come with the first byte; the rest of a long text may come later.
    while entries.len() < fds.len() && length < buffer.len() {
        let more = receive(stream, &mut buffer[length..])?;
        if more.length == 0 || !more.fds.is_empty() {
            return Err(TakeError::Malformed("a message was cut short"));
        }
        length += more.length;
        entries = self::entries(&buffer[..length], fds.len())?;
    }
    if entries.len() < fds.len() {
        return Err(TakeError::Malformed("a message that does not end"));
    }
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let taken = |(fd, (namespace, interface)): (OwnedFd, Entry<'_>)| Taken {
        fd,
        namespace: name(namespace),
        interface: name(interface),
    };
    Ok(fds.into_iter().zip(entries).map(taken).collect())
}

/// What a message says of a descriptor: namespace and interface.
type Entry<'a> = (&'a [u8], &'a [u8]);

/// The whole entries at the start of `payload`, at most `most`.
fn entries(mut payload: &[u8], most: usize) -> Result<Vec<Entry<'_>>, TakeError> {
    let mut entries = Vec::with_capacity(most);
    while entries.len() < most {
        let Some((namespace, rest)) = name(payload) else { break };
        let Some((interface, rest)) = name(rest) else { break };
        let Some((padding, rest)) = rest.split_at_checked(PADDING) else { break };
        if padding.iter().any(|&byte| byte != 0) {
            return Err(TakeError::Malformed("text where zeroes were expected"));
        }
        entries.push((namespace, interface));
        payload = rest;
    }
    Ok(entries)
}

/// A length byte and so many bytes.
fn name(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (&length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(length))
}

fn receive(stream: &impl AsFd, buffer: &mut [u8]) -> Result<inherit::Received, TakeError> {
    inherit::receive(stream, buffer).map_err(|error| match error {
        ReceiveError::Io(error) => TakeError::Talk(error),
        ReceiveError::Truncated { .. } => TakeError::Malformed("some sockets were lost on the way"),
    })
}
