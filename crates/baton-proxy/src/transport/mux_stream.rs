//! A protocol that carries several messages at a time on one connection, and one stream of it.
//!
//! The protocol is a [`MuxCodec`]: bytes in, frames out, frames in, bytes out, without I/O and without a clock. All else about such a
//! connection, reading, writing, bounds and timeouts, is [`mux`](crate::mux), whatever the protocol.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use baton_http::{Headers, Name, ResponseView};

/// Bytes that wait for the client, after which streams are not heard, and the client is not read, until some are gone.
const OUT_MAX: usize = 64 * 1024;
/// Room for such bytes that a connection keeps while none wait.
const OUT_KEPT_MAX: usize = 1024;
/// Bytes of a request's body that wait for its server, after which the connection is not read.
const UNREAD_MAX: usize = 16 * 1024;

/// Names and values of fields.
pub type PairsOf<'a> = &'a mut dyn Iterator<Item = (&'a [u8], &'a [u8])>;

/// A protocol whose connections carry several exchanges at a time, such as HTTP/2.
pub trait Multiplexer: fmt::Debug + Send + Sync {
    /// The state of a new connection.
    fn begin(&self) -> Box<dyn MuxCodec>;
}

/// One connection's frames. Nothing in here waits: what is to be sent is appended to `out`.
pub trait MuxCodec: fmt::Debug {
    /// The frame at the start of `input`, and how many bytes it takes there, at most those of a buffer (`tune.bufsize`); `None`: it is
    /// not complete. The head of a request is
    /// written to `head`. What the protocol answers by itself goes to `out`.
    ///
    /// # Errors
    /// The connection cannot go on.
    fn receive<'i>(
        &mut self,
        input: &'i [u8],
        head: &mut HeadWriter,
        out: &mut Vec<u8>,
    ) -> Result<Option<(usize, Frame<'i>)>, MalformedFrame>;

    /// The head of a response, final or interim. No field is about a connection.
    fn head(&mut self, stream: u32, status: u16, fields: PairsOf<'_>, out: &mut Vec<u8>);

    /// Bytes of its body.
    fn data(&mut self, stream: u32, bytes: &[u8], out: &mut Vec<u8>);

    /// The end of the response.
    fn end(&mut self, stream: u32, trailers: PairsOf<'_>, out: &mut Vec<u8>);

    /// The exchange is given up, or was never taken: nothing more comes.
    fn reset(&mut self, stream: u32, out: &mut Vec<u8>);
}

/// What a client sent.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Frame<'i> {
    /// A request, which has no body if it `ends`.
    Head {
        /// The number by which later frames name it.
        stream: u32,
        /// Nothing follows.
        ends: bool,
    },
    /// Bytes of its body.
    Data {
        /// Whose.
        stream: u32,
        /// The bytes.
        bytes: &'i [u8],
    },
    /// Fields after the body, written to the [`HeadWriter`], and its end.
    End {
        /// Whose.
        stream: u32,
    },
    /// The client gives it up.
    Reset {
        /// Whose.
        stream: u32,
    },
    /// Something about the protocol itself.
    Other,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MalformedFrame;

/// Takes down the head of a request from a protocol that sends its parts. Rules, routing and the log read it like any other.
#[derive(Debug, Default)]
pub struct HeadWriter {
    text: Vec<u8>,
    trailers: Headers,
    /// A part would be read as something else.
    is_malformed: bool,
}

impl HeadWriter {
    /// Begins a head. `target` is in one of the forms of RFC 9112 3.2.
    pub fn request(&mut self, method: &[u8], target: &[u8]) {
        self.clear();
        let is_word = |word: &[u8]| !word.is_empty() && word.iter().all(u8::is_ascii_graphic);
        // A tunnel needs the connection for itself, or a protocol that says otherwise (RFC 8441).
        self.is_malformed = !is_word(method) || !is_word(target) || method == b"CONNECT";
        self.text.extend_from_slice(method);
        self.text.push(b' ');
        self.text.extend_from_slice(target);
        self.text.extend_from_slice(b" HTTP/1.1\r\n");
    }

    /// Adds a field. Those about a connection are none of a stream's (RFC 9113 8.2.2).
    pub fn field(&mut self, name: &[u8], value: &[u8]) {
        self.is_malformed |= !is_field(name, value) || is_of_connection(Name::of(name));
        self.text.extend_from_slice(name);
        self.text.extend_from_slice(b": ");
        self.text.extend_from_slice(value);
        self.text.extend_from_slice(b"\r\n");
    }

    /// Adds a field after the body.
    pub fn trailer(&mut self, name: &[u8], value: &[u8]) {
        let id = Name::of(name);
        self.is_malformed |= !is_field(name, value) || is_of_connection(id) || id == Name::ContentLength;
        self.trailers.add(name, value);
    }

    /// The whole head; `None`: it was malformed.
    pub fn take(&mut self) -> Option<&[u8]> {
        self.text.extend_from_slice(b"\r\n");
        let is_malformed = std::mem::take(&mut self.is_malformed);
        (!is_malformed).then_some(&self.text)
    }

    /// The fields after the body; `None`: they were malformed.
    pub fn take_trailers(&mut self) -> Option<Headers> {
        let trailers = std::mem::take(&mut self.trailers);
        let is_malformed = std::mem::take(&mut self.is_malformed);
        (!is_malformed).then_some(trailers)
    }

    fn clear(&mut self) {
        self.text.clear();
        self.trailers.clear();
        self.is_malformed = false;
    }
}

/// A token and a value that cannot be read as more than one field.
fn is_field(name: &[u8], value: &[u8]) -> bool {
    let is_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_token) && !value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0))
}

/// Fields about the connection that a message came by.
fn is_of_connection(id: Name) -> bool {
    matches!(id, Name::Connection | Name::KeepAlive | Name::TransferEncoding | Name::Upgrade | Name::ProxyConnection)
}

/// What the streams of one connection share.
#[derive(Debug)]
pub struct MuxShared {
    codec: RefCell<Box<dyn MuxCodec>>,
    out: RefCell<Vec<u8>>,
    /// Of the task that reads and writes.
    driver: RefCell<Option<Waker>>,
}

impl MuxShared {
    /// Of a connection that speaks this.
    pub fn new(codec: Box<dyn MuxCodec>) -> MuxShared {
        MuxShared { codec: RefCell::new(codec), out: RefCell::default(), driver: RefCell::default() }
    }

    /// The codec, and where its bytes go. The driver is woken for them.
    pub fn compose<T>(&self, compose: impl FnOnce(&mut dyn MuxCodec, &mut Vec<u8>) -> T) -> T {
        let composed = compose(&mut **self.codec.borrow_mut(), &mut self.out.borrow_mut());
        self.wake();
        composed
    }

    /// Wakes the task that reads and writes.
    pub fn wake(&self) {
        let driver = self.driver.borrow_mut().take();
        if let Some(driver) = driver {
            driver.wake();
        }
    }

    /// This task reads and writes, and is woken when there is something to be done.
    pub fn drive(&self, cx: &Context<'_>) {
        *self.driver.borrow_mut() = Some(cx.waker().clone());
    }

    /// Whether so much waits for the client that no more is said.
    pub fn is_full(&self) -> bool {
        self.out.borrow().len() >= OUT_MAX
    }

    /// Whether nothing waits for the client.
    pub fn is_flushed(&self) -> bool {
        self.out.borrow().is_empty()
    }

    /// Writes what waits for the client by `write`, as far as it is taken. Whether some of it was.
    pub fn flush(&self, mut write: impl FnMut(&[u8]) -> Poll<io::Result<usize>>) -> io::Result<bool> {
        let mut out = self.out.borrow_mut();
        let mut sent = 0;
        while sent < out.len() {
            match write(&out[sent..]) {
                Poll::Ready(count) => sent += count?,
                Poll::Pending => break,
            }
        }
        out.drain(..sent);
        if out.is_empty() {
            out.shrink_to(OUT_KEPT_MAX);
        }
        Ok(sent > 0)
    }
}

/// One stream of a connection: the body of a request that comes in, and its response that goes out.
#[derive(Debug)]
pub struct MuxStream {
    number: u32,
    shared: Rc<MuxShared>,
    received: RefCell<Received>,
    /// The response is whole, or given up.
    is_over: Cell<bool>,
    /// Of the exchange's task.
    waker: RefCell<Option<Waker>>,
}

/// What came of a request's body and was not read yet.
#[derive(Debug, Default)]
struct Received {
    bytes: Vec<u8>,
    /// How many of them were read.
    read: usize,
    trailers: Headers,
    has_ended: bool,
    was_reset: bool,
}

impl MuxStream {
    /// The stream of that number, whose request has a head.
    pub fn new(number: u32, shared: Rc<MuxShared>) -> MuxStream {
        MuxStream { number, shared, received: RefCell::default(), is_over: Cell::default(), waker: RefCell::default() }
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// More of the body came.
    pub fn receive(&self, bytes: &[u8]) {
        let mut received = self.received.borrow_mut();
        if !received.has_ended {
            received.bytes.extend_from_slice(bytes);
        }
        drop(received);
        self.wake();
    }

    /// The body is whole.
    pub fn receive_end(&self, trailers: Headers) {
        let mut received = self.received.borrow_mut();
        received.trailers = trailers;
        received.has_ended = true;
        drop(received);
        self.wake();
    }

    /// The client gave it up, or is gone.
    pub fn receive_reset(&self) {
        self.received.borrow_mut().was_reset = true;
        self.is_over.set(true);
        self.wake();
    }

    /// Whether more of the body waits than the connection is read for.
    pub fn is_full(&self) -> bool {
        let received = self.received.borrow();
        received.bytes.len() - received.read >= UNREAD_MAX
    }

    /// Whether the request ended with its head.
    pub fn has_no_body(&self) -> bool {
        let Received { bytes, trailers, has_ended, .. } = &*self.received.borrow();
        *has_ended && bytes.is_empty() && trailers.is_empty()
    }

    /// Wakes the exchange.
    pub fn wake(&self) {
        let waker = self.waker.borrow_mut().take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reads some of the body; 0 is its end.
    pub fn poll_read(&self, cx: &Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut received = self.received.borrow_mut();
        if received.was_reset {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        let unread = &received.bytes[received.read..];
        if unread.is_empty() {
            let has_ended = received.has_ended;
            drop(received);
            return if has_ended { Poll::Ready(Ok(0)) } else { self.wait(cx) };
        }
        let was_full = unread.len() >= UNREAD_MAX;
        let count = unread.len().min(room.len());
        room[..count].copy_from_slice(&unread[..count]);
        received.read += count;
        if received.read == received.bytes.len() {
            received.bytes.clear();
            received.read = 0;
        }
        drop(received);
        if was_full {
            self.shared.wake();
        }
        Poll::Ready(Ok(count))
    }

    /// Ready when the client gave it up.
    pub fn poll_reset(&self, cx: &Context<'_>) -> Poll<io::Error> {
        if self.received.borrow().was_reset {
            return Poll::Ready(io::ErrorKind::ConnectionReset.into());
        }
        self.wait(cx)
    }

    /// Sends the head of a response, final or interim.
    pub fn head(&self, response: ResponseView<'_>) {
        self.compose(|codec, number, out| {
            let fields = response.fields().iter().filter(|field| !is_of_connection(field.id));
            codec.head(number, response.status(), &mut fields.map(|field| (field.name, field.value)), out);
        });
    }

    /// Sends an interim response without fields.
    pub fn interim(&self, status: u16) {
        self.compose(|codec, number, out| codec.head(number, status, &mut std::iter::empty(), out));
    }

    /// Sends bytes of the response's body, all of them or, while too much waits for the client, none.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.is_over.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if self.shared.is_full() {
            return self.wait(cx);
        }
        self.compose(|codec, number, out| codec.data(number, bytes, out));
        Poll::Ready(Ok(bytes.len()))
    }

    /// The response is whole; `trailers` lie in `buf`.
    pub fn finish(&self, trailers: &Headers, buf: &[u8]) {
        self.compose(|codec, number, out| {
            codec.end(number, &mut trailers.iter(buf).map(|field| (field.name, field.value)), out);
        });
        self.is_over.set(true);
    }

    /// Gives the response up, unless it is whole.
    pub fn reset(&self) {
        self.compose(|codec, number, out| codec.reset(number, out));
        self.is_over.set(true);
    }

    /// The fields that came after the body.
    pub fn take_trailers(&self) -> Headers {
        std::mem::take(&mut self.received.borrow_mut().trailers)
    }

    fn compose(&self, compose: impl FnOnce(&mut dyn MuxCodec, u32, &mut Vec<u8>)) {
        if !self.is_over.get() {
            self.shared.compose(|codec, out| compose(codec, self.number, out));
        }
    }

    fn wait<T>(&self, cx: &Context<'_>) -> Poll<T> {
        *self.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    }
}
