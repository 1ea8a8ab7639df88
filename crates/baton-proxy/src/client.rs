//! A client between its requests: its connection and its session, and what came before the next exchange.

pub mod parts;

use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{SockAddr, Socket};

use crate::buffer::Buffer;
use crate::connection::{Connection, Membership};
use crate::core::{Core, Interrupt, until};
use crate::deadline::Deadline;
use crate::exchange::Origin;
use crate::netscaler;
use crate::proxy_protocol::{self, Header, HeaderValues, Malformed};
use crate::session::Session;
use crate::transport::Transport;
use crate::view::FrontendSlot;

/// The longest we wait for a client to close, once all is said.
const LINGER_MAX: Duration = Duration::from_secs(2);
/// A client that speaks first has done so by then.
const TIME_TO_SPEAK: Duration = Duration::from_millis(50);
/// Bytes of it that we are willing to throw away meanwhile.
const LINGER_BYTES: usize = 1 << 20;

/// Bytes read but not used; seldom there, so in a place of their own.
pub type Input = Option<Box<Buffer>>;

/// An accepted connection that makes one exchange at a time: HTTP/1, or all bytes in `mode tcp`.
#[derive(Debug)]
pub struct Client {
    /// Its connection.
    pub connection: Connection,
    /// Its session.
    pub session: Session,
    /// What was read but not used, while no request is in work.
    pub input: Input,
    /// When the current wait ends.
    pub deadline: Deadline,
}

/// How somebody else says whom a connection is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Introduction {
    /// `accept-proxy`, `expect-proxy`.
    Proxy,
    /// `accept-netscaler-cip`, `expect-netscaler-cip`, with the magic number.
    Netscaler(u32),
}

impl Introduction {
    fn parse(self, bytes: &[u8]) -> Result<Header, Malformed> {
        match self {
            Introduction::Proxy => proxy_protocol::parse(bytes),
            Introduction::Netscaler(magic) => netscaler::parse(bytes, magic),
        }
    }

    /// The log's words.
    pub fn text(self, fault: Malformed) -> &'static str {
        match self {
            Introduction::Proxy => fault.text(),
            Introduction::Netscaler(_) => netscaler::text(fault),
        }
    }
}

impl Client {
    /// Takes over an accepted socket.
    ///
    /// # Errors
    /// The socket cannot be set up.
    pub fn new(socket: Socket, peer: &SockAddr, membership: Membership, slot: Rc<FrontendSlot>) -> io::Result<Client> {
        let connection = Connection::new(socket, peer, &slot.view(), membership)?;
        connection.orders().notes.enters(&slot);
        Ok(Client { connection, session: Session::new(slot), input: None, deadline: Deadline::default() })
    }

    /// What it lends to its next exchange, which has the connection for itself; and what was read already.
    pub fn origin(&mut self) -> (Origin<'_>, &mut Input) {
        let Client { connection, session, input, deadline } = self;
        let (client, orders) = (Transport::Connection(&connection.stream), connection.orders());
        (Origin { connection, session, client, orders, deadline }, input)
    }

    /// The bytes that were read but not used.
    pub fn take_input(&mut self) -> Option<Buffer> {
        self.input.take().map(|buffer| *buffer)
    }

    /// Keeps bytes for whoever reads next.
    pub fn keep_input(&mut self, buffer: Buffer) {
        self.input = Some(Box::new(buffer));
    }

    /// Reads the header that `accept-proxy` or `accept-netscaler-cip` requires, within `timeout client`. Bytes that are none end the
    /// connection by a reset; the caller logs the fault.
    pub async fn introduce(&mut self, core: &Core, by: Introduction) -> Result<(), Malformed> {
        let mut buffer = self.take_input().unwrap_or_else(|| core.buffers.take());
        let outcome = self.read_introduction(core, &mut buffer, by).await;
        self.keep_input(buffer);
        if outcome.is_err() && self.input.as_ref().is_some_and(|input| !input.is_empty()) {
            self.connection.stream.reset_on_close();
        }
        outcome
    }

    async fn read_introduction(&mut self, core: &Core, buffer: &mut Buffer, by: Introduction) -> Result<(), Malformed> {
        let limit = self.session.view().plan.proxy.timeouts.client;
        self.deadline.set(limit.map(|limit| self.connection.accepted + limit));
        loop {
            if !buffer.is_empty() {
                match by.parse(buffer)? {
                    Header::Partial if buffer.is_full() => return Err(Malformed::Truncated),
                    Header::Partial => {}
                    Header::Complete { len, addresses } => {
                        if by == Introduction::Proxy {
                            self.connection.has_proxy_header = true;
                            self.connection.proxy_values = HeaderValues::of(&buffer[..len]);
                        }
                        buffer.consume(len);
                        if let Some(addresses) = addresses {
                            self.connection.speak_for(addresses);
                        }
                        self.connection.begin_again(core.now());
                        return Ok(());
                    }
                }
            }
            let stream = &self.connection.stream;
            let orders = self.connection.orders();
            let read = until(core, orders, &mut self.deadline, |cx| stream.poll_read(cx, buffer.room())).await;
            match read {
                Ok(Ok(count)) if count > 0 => buffer.filled(count),
                Ok(_) | Err(Interrupt::Abort) if buffer.is_empty() => return Err(Malformed::Closed),
                Ok(_) | Err(Interrupt::Abort) => return Err(Malformed::Truncated),
                Err(Interrupt::Timeout) => return Err(Malformed::Late),
            }
        }
    }

    /// Ends our direction and reads what still comes, for a moment: closing with unread bytes would reset the connection
    /// and the client might lose the response that is on its way.
    pub async fn linger(&mut self, core: &Core) {
        linger(core, &self.connection, &self.session, &mut self.deadline).await;
    }

    /// Ends our direction and reads what came already, so that closing is no reset. A client that had no time to speak is
    /// waited for, unless it is refused: its first bytes may be on their way.
    pub async fn drain(&mut self, core: &Core, is_refused: bool) {
        let has_spoken = self.input.as_ref().is_some_and(|input| !input.is_empty());
        let had_time = core.now().saturating_duration_since(self.connection.accepted) >= TIME_TO_SPEAK;
        let waits = !has_spoken && !had_time && !is_refused && !is_full(core, &self.session);
        let patience = if waits { LINGER_MAX } else { Duration::ZERO };
        read_to_end(core, &self.connection, &mut self.deadline, patience, true).await;
    }
}

/// Ends our direction of a connection, and reads what the client still sends, as [`Client::linger`] does.
pub async fn linger(core: &Core, connection: &Connection, session: &Session, deadline: &mut Deadline) {
    // Nobody else's place is worth it: then only what came already is read.
    let patience = if is_full(core, session) { Duration::ZERO } else { LINGER_MAX };
    read_to_end(core, connection, deadline, patience, false).await;
}

fn is_full(core: &Core, session: &Session) -> bool {
    core.registry.open.load(Ordering::Relaxed) >= i64::from(session.view().maxconn_global)
}

/// Waits for the client's end as long as `patience` lasts, or only for its first bytes.
async fn read_to_end(
    core: &Core,
    connection: &Connection,
    deadline: &mut Deadline,
    patience: Duration,
    first_only: bool,
) {
    let Connection { stream, .. } = connection;
    if stream.is_forgotten() {
        return;
    }
    stream.shutdown_write();
    deadline.set(Some(core.now() + patience));
    let mut buffer = core.buffers.take();
    let mut left = LINGER_BYTES;
    while left > 0 {
        buffer.clear();
        let read = until(core, connection.orders(), deadline, |cx| stream.poll_read(cx, buffer.room())).await;
        match read {
            Ok(Ok(count)) if count > 0 => left = left.saturating_sub(count),
            _ => break,
        }
        if first_only {
            deadline.set(Some(core.now()));
        }
    }
    core.buffers.give(buffer);
}
