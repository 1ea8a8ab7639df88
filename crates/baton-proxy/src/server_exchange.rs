//! What an exchange has of a server, whatever version of HTTP is spoken to it: a connection of its own, or one stream of a connection that
//! others use too. The response side of the request path reads and writes this.

mod request;

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use baton_http2::NotOpened;
use baton_model::HeaderCases;

use crate::balance::ServerState;
use crate::http2_server::{BegunStream, HeadRoom, Http2Server, ServerStream, StreamFailure};
use crate::messages::Messages;
use crate::server_connection::ServerConnection;
use crate::stream::Stream;
use crate::transport::Transport;

/// A server's side of one exchange.
#[derive(Debug)]
pub enum ServerExchange {
    /// A connection that carries one request at a time. Apart, because it passes through many hands on its way.
    Http1(Box<ServerConnection>),
    /// One stream of a connection that carries several.
    Http2(ServerStream),
}

/// A request that has begun at a server.
#[derive(Debug)]
pub enum BegunRequest {
    /// It is the connection's request of this number.
    Http1(u32),
    /// It has this stream.
    Http2(BegunStream),
}

/// What came of the wait for a response's head.
#[derive(Debug)]
pub enum HeadPart {
    /// So many bytes were added to those received, which have to be parsed; 0 is the end.
    Bytes(usize),
    /// The head is there, in so many of the bytes received.
    Whole(usize),
    /// None comes.
    Failed(StreamFailure),
}

impl ServerExchange {
    /// The connection, which others may use too.
    pub fn connection(&self) -> &ServerConnection {
        match self {
            ServerExchange::Http1(connection) => connection,
            ServerExchange::Http2(stream) => &stream.server().connection,
        }
    }

    /// The socket, for what is known of it.
    pub fn socket(&self) -> &Stream {
        &self.connection().stream
    }

    /// What carries the bodies. Of a stream there is one only once the request's head was sent.
    pub fn transport(&self) -> Transport<'_> {
        match self {
            ServerExchange::Http1(connection) => Transport::Connection(&connection.stream),
            ServerExchange::Http2(stream) => match stream.stream() {
                Some(stream) => Transport::Http2(stream),
                None => Transport::Connection(&stream.server().connection.stream),
            },
        }
    }

    /// Requests that its connection has carried before this one.
    pub fn requests_before(&self) -> u32 {
        match self {
            ServerExchange::Http1(connection) => connection.requests,
            ServerExchange::Http2(stream) => stream.server().requests().saturating_sub(1),
        }
    }

    /// The request begins: what is composed is made what the server's version has for it (`cases`: with names in these spellings in HTTP/1), and the
    /// head of HTTP/2 is sent.
    ///
    /// # Errors
    /// The server does not take it any more, and nothing was sent.
    pub fn begin(&mut self, messages: &mut Messages, cases: Option<&HeaderCases>) -> Result<(), NotOpened> {
        match self {
            ServerExchange::Http1(connection) => {
                connection.requests = connection.requests.saturating_add(1);
                messages.compose_for_http1(cases);
                Ok(())
            }
            ServerExchange::Http2(stream) => request::send_head(messages, stream),
        }
    }

    /// Where the request has begun.
    pub fn begun(&self) -> Option<BegunRequest> {
        match self {
            ServerExchange::Http1(connection) => Some(BegunRequest::Http1(connection.requests)),
            ServerExchange::Http2(stream) => stream.begun().map(BegunRequest::Http2),
        }
    }

    /// Reads the response's head, or a part of it.
    pub fn poll_head(&self, cx: &mut Context<'_>, room: HeadRoom<'_>) -> Poll<HeadPart> {
        match self {
            ServerExchange::Http1(connection) => {
                let HeadRoom { buffers, received, .. } = room;
                if received.capacity() == 0 {
                    // What waits for its server holds no room for the response.
                    ready!(connection.stream.poll_readable(cx));
                    *received = buffers.take();
                }
                let read: Poll<io::Result<usize>> = connection.stream.poll_read(cx, received.room());
                if read.is_pending() && received.is_empty() {
                    buffers.give(std::mem::take(received));
                }
                read.map(|read| HeadPart::Bytes(read.unwrap_or(0)))
            }
            ServerExchange::Http2(stream) => stream.poll_head(cx, room).map(|head| match head {
                Ok(len) => HeadPart::Whole(len),
                Err(failure) => HeadPart::Failed(failure),
            }),
        }
    }

    /// Whether it is a stream, whose body ends with it.
    pub fn is_stream(&self) -> bool {
        matches!(self, ServerExchange::Http2(_))
    }

    /// Given up by us: a server that has a part of the request is not to take it for the whole. (A stream is reset when it is given back.)
    pub fn give_up(&self) {
        if let ServerExchange::Http1(connection) = self {
            connection.stream.reset_on_close();
        }
    }
}

/// A server's connection that only one client may use.
#[derive(Debug)]
pub enum PrivateConnection {
    /// It is idle.
    Http1(Box<ServerConnection>),
    /// Its streams may be used; it is closed once it is dropped and they have ended.
    Http2(PrivateHttp2),
}

/// The hold of a session on its own connection.
#[derive(Debug)]
pub struct PrivateHttp2(pub Rc<Http2Server>);

impl Drop for PrivateHttp2 {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl PrivateConnection {
    /// The connection.
    pub fn connection(&self) -> &ServerConnection {
        match self {
            PrivateConnection::Http1(connection) => connection,
            PrivateConnection::Http2(PrivateHttp2(server)) => &server.connection,
        }
    }

    /// Whether it is of use for this client alone: it was authenticated for it. (Streams are not authenticated together.)
    pub fn is_bound(&self) -> bool {
        matches!(self, PrivateConnection::Http1(connection) if connection.private)
    }

    /// Whose it is.
    pub fn server(&self) -> &Arc<ServerState> {
        &self.connection().server
    }
}
