//! A protocol that makes several exchanges of a connection at a time.
//!
//! What such a protocol is, a [`MuxCodec`], is the only thing that differs between two of them. Here is the rest: one task reads and
//! writes the connection, one task for each exchange passes the request path, and what they share is in [`MuxShared`].
//!
//! ```text
//!            ┌─ MuxCodec ──▶ head ──▶ Exchange ──▶ request::serve    (a task for each stream)
//! client ◀──▶│               body ──▶ MuxStream ◀──────┘
//!            └─ MuxCodec ◀── out  ◀────── response
//! ```
//!
//! A bounded number of streams is in work, and a bounded number of bytes waits in either direction. A stream whose server does not
//! take its body holds up the connection; a protocol that gives each stream a credit (RFC 9113 5.2) does not let it come so far.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::buffer::Buffer;
use crate::client::Client;
use crate::connection::Connection;
use crate::core::{Core, Interrupt, Order, Orders, until};
use crate::deadline::Deadline;
use crate::exchange::{Exchange, Origin};
use crate::request;
use crate::respond::Ending;
use crate::session::Session;
use crate::transport::{Frame, HeadWriter, MalformedFrame, MuxCodec, MuxShared, MuxStream, Transport};

/// Streams of a connection that are in work at a time. One more is reset at once.
const STREAMS_MAX: usize = 100;

/// A connection and its session, shared by the exchanges in work.
#[derive(Debug)]
struct MuxClient {
    core: Rc<Core>,
    connection: Connection,
    session: Session,
    shared: Rc<MuxShared>,
    streams: RefCell<HashMap<u32, Rc<InWork>>>,
}

/// A stream whose exchange is in work.
#[derive(Debug)]
struct InWork {
    stream: MuxStream,
    /// What its exchange is told: what the connection is told, later.
    orders: Orders,
}

/// What there is to do for a connection.
enum ClientEvent {
    /// So many bytes came; 0 is the end.
    Read(usize),
    /// Room was made, or an exchange ended: there may be something to go on with.
    Changed,
    /// The client is gone.
    Broken,
}

/// How a connection was when its wait began.
#[derive(Clone, Copy)]
struct WaitStart {
    is_idle: bool,
    is_held: bool,
    has_ended: bool,
}

/// Serves a connection to its end.
pub async fn serve(core: Rc<Core>, client: Box<Client>, codec: Box<dyn MuxCodec>) {
    let Client { connection, session, input, mut deadline } = *client;
    let (shared, streams) = (Rc::new(MuxShared::new(codec)), RefCell::default());
    let client = Rc::new(MuxClient { core: core.clone(), connection, session, shared, streams });
    let mut input = input.map(|input| *input);
    client.drive(&mut input, &mut deadline).await;
    client.give_up();
    if let Some(input) = input {
        core.buffers.give(input);
    }
}

impl MuxClient {
    /// Reads and writes until nothing more is to be said.
    async fn drive(self: &Rc<Self>, input: &mut Option<Buffer>, deadline: &mut Deadline) {
        let (core, orders) = (&self.core, self.connection.orders());
        let mut head = HeadWriter::default();
        let mut has_ended = false;
        loop {
            if self.take_frames(input, &mut head).is_err() {
                return;
            }
            let is_idle = self.streams.borrow().is_empty();
            if is_idle && self.shared.is_flushed() && (has_ended || self.is_closing()) {
                return;
            }
            deadline.set(self.due(is_idle));
            let before = WaitStart { is_idle, is_held: self.is_held(), has_ended };
            match until(core, orders, deadline, |cx| self.poll(cx, input, before)).await {
                Ok(ClientEvent::Read(0)) => has_ended = true,
                Ok(ClientEvent::Read(_) | ClientEvent::Changed) => {}
                Ok(ClientEvent::Broken) | Err(Interrupt::Abort | Interrupt::Timeout) => return,
            }
        }
    }

    /// When a client that has nothing in work must have sent something, or taken what waits for it. An exchange waits by itself.
    fn due(&self, is_idle: bool) -> Option<std::time::Instant> {
        let now = self.core.now();
        if !self.shared.is_flushed() {
            return self.session.view().plan.proxy.timeouts.client.map(|limit| now + limit);
        }
        if is_idle { self.session.request_due(self.connection.accepted, now) } else { None }
    }

    /// Whether no more requests are taken.
    fn is_closing(&self) -> bool {
        let is_told = self.connection.orders().order() != Order::Run;
        is_told || self.core.draining.get() || self.session.slot.is_removed()
    }

    /// Writes what waits, and reads. Ready when something happened.
    fn poll(&self, cx: &mut Context<'_>, input: &mut Option<Buffer>, before: WaitStart) -> Poll<ClientEvent> {
        self.shared.drive(cx);
        let stream = &self.connection.stream;
        match self.shared.flush(|bytes| stream.poll_write(cx, bytes)) {
            Err(_) => return Poll::Ready(ClientEvent::Broken),
            Ok(true) => {
                self.streams.borrow().values().for_each(|at| at.stream.wake());
                return Poll::Ready(ClientEvent::Changed);
            }
            Ok(false) => {}
        }
        let (is_idle, is_held) = (self.streams.borrow().is_empty(), self.is_held());
        let has_input = input.as_ref().is_some_and(|input| !input.is_empty());
        let is_done = is_idle && (!before.is_idle || self.connection.orders().order() == Order::CloseIdle);
        if is_done || (before.is_held && !is_held) {
            return Poll::Ready(ClientEvent::Changed);
        }
        if before.has_ended || is_held {
            return Poll::Pending;
        }
        if is_idle && !has_input {
            // An idle connection holds no buffer.
            if let Some(input) = input.take() {
                self.core.buffers.give(input);
            }
            std::task::ready!(stream.poll_readable(cx));
        }
        let input = input.get_or_insert_with(|| self.core.buffers.take());
        stream.poll_read(cx, input.room()).map(|read| match read {
            Ok(count) => {
                input.filled(count);
                ClientEvent::Read(count)
            }
            Err(_) => ClientEvent::Broken,
        })
    }

    /// Whether so much waits, for the client or for a server, that no more is read.
    fn is_held(&self) -> bool {
        self.shared.is_full() || self.streams.borrow().values().any(|at| at.stream.is_full())
    }

    /// Takes the frames that are complete.
    fn take_frames(self: &Rc<Self>, input: &mut Option<Buffer>, head: &mut HeadWriter) -> Result<(), MalformedFrame> {
        let Some(input) = input else { return Ok(()) };
        while !input.is_empty() && !self.is_held() {
            let Some((len, frame)) = self.shared.compose(|codec, out| codec.receive(input, head, out))? else {
                return if input.is_full() { Err(MalformedFrame) } else { Ok(()) };
            };
            self.take_frame(frame, head);
            input.consume(len);
        }
        Ok(())
    }

    fn take_frame(self: &Rc<Self>, frame: Frame<'_>, head: &mut HeadWriter) {
        let at = |stream| self.streams.borrow().get(&stream).cloned();
        match frame {
            Frame::Head { stream, ends } => self.begin(stream, ends, head),
            Frame::Data { stream, bytes } => at(stream).into_iter().for_each(|at| at.stream.receive(bytes)),
            Frame::End { stream } => {
                let trailers = head.take_trailers();
                at(stream).into_iter().for_each(|at| match &trailers {
                    Some(trailers) => at.stream.receive_end(trailers.clone()),
                    None => at.stream.receive_reset(),
                });
            }
            Frame::Reset { stream } => at(stream).into_iter().for_each(|at| at.stream.receive_reset()),
            Frame::Other => {}
        }
    }

    /// Begins an exchange. A head that was malformed, or one too many, has none.
    fn begin(self: &Rc<Self>, number: u32, ends: bool, head: &mut HeadWriter) {
        let mut streams = self.streams.borrow_mut();
        let has_room = streams.len() < STREAMS_MAX && !streams.contains_key(&number) && !self.is_closing();
        let mut input = self.core.buffers.take();
        let room = input.room();
        let Some(text) = head.take().filter(|text| has_room && text.len() <= room.len()) else {
            self.core.buffers.give(input);
            return self.shared.compose(|codec, out| codec.reset(number, out));
        };
        room[..text.len()].copy_from_slice(text);
        input.filled(text.len());
        let stream = MuxStream::new(number, self.shared.clone());
        if ends {
            stream.receive_end(baton_http::Headers::new());
        }
        let at = Rc::new(InWork { stream, orders: Orders::default() });
        streams.insert(number, at.clone());
        tokio::task::spawn_local(exchange(StreamGuard { client: self.clone(), at }, input));
    }

    /// Nothing more is read or written: exchanges in work end. What the connection was told, they are told.
    fn give_up(&self) {
        let order = self.connection.orders().order();
        let streams: Vec<_> = self.streams.borrow().values().cloned().collect();
        for at in streams {
            match order {
                Order::Abort => at.orders.give(order),
                Order::Run | Order::CloseIdle => at.stream.receive_reset(),
            }
        }
    }
}

/// A stream among those of its connection, whose exchange gives it back however it ends.
struct StreamGuard {
    client: Rc<MuxClient>,
    at: Rc<InWork>,
}

impl Drop for StreamGuard {
    fn drop(&mut self) {
        self.at.stream.reset();
        let mut streams = self.client.streams.borrow_mut();
        streams.remove(&self.at.stream.number());
        if streams.is_empty() {
            self.client.connection.orders().notes.rests();
        }
        drop(streams);
        self.client.shared.wake();
    }
}

/// Passes the request path with one request, whose head is in `input`.
async fn exchange(place: StreamGuard, input: Buffer) {
    let StreamGuard { client, at } = &place;
    let (core, stream) = (&client.core, &at.stream);
    let mut deadline = Deadline::default();
    let origin = Origin {
        connection: &client.connection,
        session: &client.session,
        client: Transport::Multiplexed(stream),
        orders: &at.orders,
        deadline: &mut deadline,
    };
    let mut exchange = Exchange::of_http(core, origin, core.messages(Some(input)));
    match request::serve(core, &mut exchange).await {
        Ending::Kept | Ending::Closed { .. } => {
            let (trailers, bytes) = exchange.messages.response_chunks.trailers();
            stream.finish(trailers, bytes);
        }
        Ending::Broken => stream.reset(),
    }
    exchange.end(core);
    if let Some(unused) = core.rest(exchange.messages) {
        core.buffers.give(unused);
    }
}
