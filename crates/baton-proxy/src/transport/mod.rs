//! What carries the bytes of a message: a whole connection, or one stream of a connection that has several.
//!
//! Stages of the request path, and the flows of bodies, read and write by a [`Transport`] and do not know which of the two it is. It is
//! an enum of two, copied like a reference: HTTP/1 pays one branch for each read and write.

mod by_number;
mod http2_stream;

use std::io;
use std::task::{Context, Poll};

use baton_http::{Framing, Headers, Method, RequestHead};
use baton_http2::ErrorCode;

pub use by_number::ByNumber;
pub use http2_stream::{Http2Shared, Http2State, Http2Stream, OutPool, PeerAbort};

use crate::stream::Stream;

/// What carries a message.
#[derive(Clone, Copy, Debug)]
pub enum Transport<'a> {
    /// A connection that carries one message at a time.
    Connection(&'a Stream),
    /// A stream of a connection that carries several.
    Http2(&'a Http2Stream),
}

impl<'a> Transport<'a> {
    /// Reads into `room`; 0 is the end of the stream.
    #[inline]
    pub fn poll_read(self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Transport::Connection(stream) => stream.poll_read(cx, room),
            Transport::Http2(stream) => stream.poll_read(cx, room),
        }
    }

    /// Writes some of `bytes`, the last ones of the message if `is_last`. After [`Poll::Pending`], the next call begins with the same
    /// bytes.
    #[inline]
    pub fn poll_write(self, cx: &mut Context<'_>, bytes: &[u8], is_last: bool) -> Poll<io::Result<usize>> {
        match self {
            Transport::Connection(stream) => stream.poll_write(cx, bytes),
            Transport::Http2(stream) => stream.poll_write(cx, bytes, is_last),
        }
    }

    /// Ready when the peer does not want the rest of the exchange: it reset its stream. Of a connection only a reset, or the end of its
    /// direction, can tell, which many clients mean otherwise: it counts if `end_counts`.
    pub fn poll_gone(self, cx: &mut Context<'_>, end_counts: bool) -> Poll<io::Result<()>> {
        match self {
            Transport::Connection(stream) if end_counts => stream.poll_closed(cx),
            Transport::Connection(_) => Poll::Pending,
            Transport::Http2(stream) => stream.poll_reset(cx).map(Err),
        }
    }

    /// Ready when the peer can take nothing any more. The end of its own direction is no reason.
    pub fn poll_broken(self, cx: &mut Context<'_>) -> Poll<()> {
        match self.poll_gone(cx, true) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            Poll::Ready(Ok(())) | Poll::Pending => Poll::Pending,
        }
    }

    /// The connection, if it carries nothing else.
    pub fn connection(self) -> Option<&'a Stream> {
        match self {
            Transport::Connection(stream) => Some(stream),
            Transport::Http2(_) => None,
        }
    }

    /// The connection, if bytes may be spliced to and from its socket.
    pub fn spliceable(self) -> Option<&'a Stream> {
        self.connection().filter(|stream| !stream.is_secure())
    }

    /// How the end of a request's body is known, of which the head says this much. A stream has an end of its own.
    pub fn body_framing(self, request: &RequestHead) -> Framing {
        let is_tunnel = request.method == Method::Connect || request.upgrade;
        match (self, request.framing) {
            (Transport::Http2(stream), Framing::None) if !stream.has_no_body() && !is_tunnel => Framing::UntilClose,
            (_, announced) => announced,
        }
    }

    /// Bytes that came on a stream and wait to be read.
    #[inline]
    pub fn unread(self) -> usize {
        match self {
            Transport::Connection(_) => 0,
            Transport::Http2(stream) => stream.unread(),
        }
    }

    /// Whether nothing more comes, as far as that is known without reading: a stream tells its end together with its last bytes.
    pub fn is_read(self) -> bool {
        match self {
            Transport::Connection(_) => false,
            Transport::Http2(stream) => stream.is_read(),
        }
    }

    /// Reads what is there already of a stream's body. `None`: nothing is, or it is a connection.
    pub fn read(self, room: &mut [u8]) -> Option<usize> {
        match self {
            Transport::Connection(_) => None,
            Transport::Http2(stream) => stream.read(room),
        }
    }

    /// The message is whole: a stream is told so, with the trailers, which lie in `buf`.
    pub fn finish(self, trailers: &Headers, buf: &[u8]) {
        if let Transport::Http2(stream) = self {
            stream.finish(trailers, buf);
        }
    }

    /// Fields that came after the body, of a stream that was read to its end; a chunk decoder has those of HTTP/1.
    pub fn take_trailers(self) -> Headers {
        match self {
            Transport::Connection(_) => Headers::new(),
            Transport::Http2(stream) => stream.take_trailers(),
        }
    }

    /// Ends our direction: the peer reads the end of the stream.
    pub fn shutdown_write(self) {
        match self {
            Transport::Connection(stream) => stream.shutdown_write(),
            Transport::Http2(stream) => stream.finish(&Headers::new(), &[]),
        }
    }

    /// What was sent is not to be taken for a whole.
    pub fn reset_on_close(self) {
        match self {
            Transport::Connection(stream) => stream.reset_on_close(),
            Transport::Http2(stream) => stream.reset(ErrorCode::CANCEL),
        }
    }
}
