//! The socket itself: bytes as they are on the wire.
//!
//! A read that does not fill its buffer has emptied the socket, so readiness is cleared at once and the next wait costs no
//! extra `recv`. The calls go to the kernel without the C library in between, whose `recv` and `send` are cancellation points
//! that cost each of them two atomic operations in a process with threads.
//!
//! A client's connection is registered with the reactor when it has to be waited for. A request that was there when its connection was
//! accepted is answered without: that saves a connection with one request two system calls and a turn of the event loop.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::pin;
use std::task::{Context, Poll, ready};

use baton_kernel::splice::{Moved, Pipe};
use baton_kernel::watch::{FirstLook, LazyStream};
use rustix::io::{Errno, ioctl_fionread};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use socket2::Socket;
use tokio::io::Interest;

thread_local! {
    /// Of the connections of this core.
    static FORECAST: Forecast = const { Forecast::new() };
}

/// Whether the next connection likely has its first bytes already, by how it was with those before.
///
/// Two looks in vain cost two system calls and a turn of the event loop, those that succeed save as much: what most of the last sixteen or so
/// connections did decides. One in [`SAMPLE`] is looked at in any case, so that a change is noticed.
#[derive(Debug)]
struct Forecast {
    /// The share of looks with success, in 256ths; older ones count less.
    success: Cell<u32>,
    /// Connections since the last look.
    skipped: Cell<u32>,
}

/// One connection of so many is looked at where looks are not worth it.
const SAMPLE: u32 = 16;

impl Forecast {
    const fn new() -> Forecast {
        Forecast { success: Cell::new(256), skipped: Cell::new(0) }
    }

    fn is_look_worth(&self) -> bool {
        let skipped = self.skipped.get() + 1;
        let is_worth = self.success.get() >= 128 || skipped >= SAMPLE;
        self.skipped.set(if is_worth { 0 } else { skipped });
        is_worth
    }

    fn note(&self, found: bool) {
        let success = self.success.get();
        self.success.set(success - success / 16 + if found { 16 } else { 0 });
    }
}

/// A socket with its readiness.
#[derive(Debug)]
pub struct Wire {
    stream: LazyStream,
    /// The peer is not to notice the end.
    forgotten: Cell<bool>,
}

impl Wire {
    /// A non-blocking socket, registered with the current runtime.
    pub fn new(socket: Socket) -> io::Result<Wire> {
        let wire = Wire::unwatched(socket);
        wire.stream.watch()?;
        Ok(wire)
    }

    /// A non-blocking socket that is registered with the current runtime when it has to be waited for.
    pub fn unwatched(socket: Socket) -> Wire {
        Wire { stream: LazyStream::new(socket), forgotten: Cell::new(false) }
    }

    /// A non-blocking socket whose first bytes are not its connection's: it is registered when it has to be waited for.
    pub fn moved(socket: Socket) -> Wire {
        let wire = Wire::unwatched(socket);
        wire.stream.first_look.set(FirstLook::Over);
        wire
    }

    /// The socket, for options and addresses.
    pub fn socket(&self) -> &Socket {
        self.stream.socket()
    }

    /// Whether it is registered with the reactor.
    #[cfg(test)]
    pub fn is_watched(&self) -> bool {
        self.stream.watched().is_some()
    }

    /// Reads into `room`; 0 is the end of the stream. In line, like the two below, so that a plain connection pays for no call
    /// more than it would without TLS.
    #[inline(always)]
    pub fn poll_read(&self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = match self.stream.watched() {
                Some(watch) => Some(ready!(watch.poll_read_ready(cx))?),
                None => None,
            };
            match recv(self.socket(), &mut *room, RecvFlags::empty()) {
                Ok((count, _)) => {
                    if let Some(ready) = &mut ready
                        && count > 0
                        && count < room.len()
                    {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(count));
                }
                Err(Errno::AGAIN) => match &mut ready {
                    Some(ready) => ready.clear_ready(),
                    None => drop(self.stream.watch()?),
                },
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Ready when a read will find bytes, the end or an error; reads nothing. May be wrong once in a while: the read then
    /// waits.
    ///
    /// The first bytes of a connection often arrive with it, or while the core serves others: two looks, one before and one after those
    /// had their turn, then save registering it. Where clients send later the looks would only cost, so their success decides
    /// whether later connections get them ([`Forecast`]).
    #[inline(always)]
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.stream.watched().is_none() {
            match self.stream.first_look.replace(FirstLook::Over) {
                FirstLook::Over => {}
                FirstLook::Due if !FORECAST.with(Forecast::is_look_worth) => {}
                look => {
                    let found = self.has_bytes();
                    if !found && look == FirstLook::Due {
                        self.stream.first_look.set(FirstLook::Again);
                        return pin!(tokio::task::yield_now()).poll(cx);
                    }
                    FORECAST.with(|forecast| forecast.note(found));
                    if found {
                        return Poll::Ready(());
                    }
                }
            }
        }
        match self.stream.watch() {
            Ok(watch) => watch.poll_read_ready(cx).map(|_| ()),
            // The read will say it.
            Err(_) => Poll::Ready(()),
        }
    }

    /// Whether bytes wait, by a system call that does not take them.
    fn has_bytes(&self) -> bool {
        ioctl_fionread(self.socket()).is_ok_and(|count| count > 0)
    }

    /// Writes some of `bytes`.
    ///
    /// The reactor is asked only after a write that the socket did not take whole: hardly one in a short exchange.
    #[inline(always)]
    pub fn poll_write(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_room(cx))?;
            match send(self.socket(), bytes, SendFlags::NOSIGNAL) {
                Ok(count) => {
                    if count < bytes.len() {
                        self.note_full(cx);
                    }
                    return Poll::Ready(Ok(count));
                }
                // A SYN that was to carry these bytes went without them: the peer's cookie does not hold any more.
                Err(Errno::AGAIN | Errno::INPROGRESS) => self.note_full(cx),
                Err(Errno::INTR) => {}
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    /// Moves at most `most` bytes into an empty pipe; 0 is the end of the stream.
    pub fn poll_splice_in(&self, cx: &mut Context<'_>, pipe: &mut Pipe, most: usize) -> Poll<io::Result<usize>> {
        loop {
            let mut ready = ready!(self.stream.watch()?.poll_read_ready(cx))?;
            match pipe.fill(self.socket(), most)? {
                Moved::Bytes(count) => return Poll::Ready(Ok(count)),
                Moved::End => return Poll::Ready(Ok(0)),
                Moved::WouldBlock => ready.clear_ready(),
            }
        }
    }

    /// Moves some of what a pipe holds. A part does not mean that the socket is full: only the next call can say.
    pub fn poll_splice_out(&self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.poll_room(cx))?;
            match pipe.drain(self.socket(), usize::MAX, false)? {
                Moved::Bytes(count) => return Poll::Ready(Ok(count)),
                Moved::End => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Moved::WouldBlock => self.note_full(cx),
            }
        }
    }

    /// The socket took less than it was given: the next write waits for room. The reactor notes events on this thread between
    /// two polls, so that what it noted before this write can be forgotten, and what comes after it is not.
    fn note_full(&self, cx: &mut Context<'_>) {
        self.stream.full.set(true);
        // One that is registered only now was not noted before.
        if let Some(watch) = self.stream.watched()
            && let Poll::Ready(Ok(mut ready)) = watch.poll_write_ready(cx)
        {
            ready.clear_ready();
        }
    }

    /// Ready at once unless the last write met a full socket: then when there is room.
    #[inline(always)]
    fn poll_room(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.stream.full.get() {
            let _ready = ready!(self.stream.watch()?.poll_write_ready(cx))?;
            self.stream.full.set(false);
        }
        Poll::Ready(Ok(()))
    }

    /// Ready when a connection that was started is established, or with the reason why not.
    pub fn poll_connected(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let _ready = ready!(self.stream.watch()?.poll_write_ready(cx))?;
        Poll::Ready(match self.socket().take_error() {
            Ok(None) => Ok(()),
            Ok(Some(error)) | Err(error) => Err(error),
        })
    }

    /// Whether the peer closed (or sent something) while the connection was idle. Costs no system call as long as nothing
    /// happened.
    pub fn is_stale(&self) -> bool {
        let look = self.if_readable(|socket| socket.peek(&mut [MaybeUninit::uninit()]));
        !matches!(look, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Looks, without reading, whether the peer has ended its direction or reset the connection. Registers for the next
    /// event when it has not; bytes that wait hide what comes after them.
    pub fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.stream.watch()?.poll_read_ready(cx))?;
            let mut byte = [MaybeUninit::uninit()];
            match self.socket().peek(&mut byte) {
                Ok(0) => return Poll::Ready(Ok(())),
                Ok(_) => return Poll::Pending,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    /// Reads what is there, without waiting for more: [`WouldBlock`](io::ErrorKind::WouldBlock) when nothing is, which costs no
    /// system call as long as nothing happened.
    pub fn try_read(&self, room: &mut [u8]) -> io::Result<usize> {
        self.if_readable(|socket| {
            recv(socket, room, RecvFlags::empty()).map(|(count, _)| count).map_err(io::Error::from)
        })
    }

    /// Asks the socket, unless it is known that nothing came.
    fn if_readable<T>(&self, ask: impl FnOnce(&Socket) -> io::Result<T>) -> io::Result<T> {
        match self.stream.watched() {
            Some(watch) => watch.try_io(Interest::READABLE, |_| ask(self.socket())),
            None => ask(self.socket()),
        }
    }

    /// Writes what the socket takes, without waiting for room.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.socket(), bytes, SendFlags::NOSIGNAL)?)
    }

    /// Ends our direction: the peer reads the end of the stream.
    pub fn shutdown_write(&self) {
        if self.forgotten.get() {
            return;
        }
        let _ = self.socket().shutdown(Shutdown::Write);
    }

    /// The coming close does not reach the peer, or only as a reset.
    pub fn forget(&self, ttl: Option<u8>) {
        self.forgotten.set(true);
        baton_kernel::stream::forget(self.socket(), ttl);
    }

    /// Whether it was forgotten.
    pub fn is_forgotten(&self) -> bool {
        self.forgotten.get()
    }

    /// Makes the coming close a reset.
    pub fn reset_on_close(&self) {
        let _ = self.socket().set_linger(Some(std::time::Duration::ZERO));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `connections` are looked at, when looks find something (`found`) or do not.
    fn looks(forecast: &Forecast, connections: u32, found: bool) -> u32 {
        (0..connections).filter(|_| forecast.is_look_worth()).map(|_| forecast.note(found)).count() as u32
    }

    #[test]
    fn looks_follow_what_clients_did_lately() {
        let forecast = Forecast::new();
        assert_eq!(looks(&forecast, 100, true), 100);
        assert!(looks(&forecast, 100, false) < 20, "given up soon");
        assert_eq!(looks(&forecast, 16 * SAMPLE, false), 16, "a sample goes on");
        looks(&forecast, 16 * SAMPLE, true);
        assert_eq!(looks(&forecast, 100, true), 100, "and notices the change");
    }
}
