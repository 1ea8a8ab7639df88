//! A client's connection to an origin, over TCP or a unix socket.

use std::{io, net::Shutdown, time::Duration};

use socket2::SockRef;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
};

/// Bytes that a read has room for.
const READ: usize = 16 * 1024;

/// A listening socket.
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// May be dropped while it waits without losing a connection.
    pub(super) async fn accept(&self) -> io::Result<OriginStream> {
        Ok(match self {
            Listener::Tcp(listener) => OriginStream::Tcp(listener.accept().await?.0),
            Listener::Unix(listener) => OriginStream::Unix(listener.accept().await?.0),
        })
    }

    /// Closes the socket, but not before it has handed out who waits in its queue (at most `most`), who would be reset.
    pub(super) fn close(self, most: usize) -> io::Result<Vec<OriginStream>> {
        let mut waiting = Vec::new();
        match self {
            Listener::Tcp(listener) => {
                let listener = listener.into_std()?;
                while let (true, Ok((stream, _))) = (waiting.len() < most, listener.accept()) {
                    stream.set_nonblocking(true)?;
                    waiting.push(OriginStream::Tcp(TcpStream::from_std(stream)?));
                }
            }
            Listener::Unix(listener) => {
                let listener = listener.into_std()?;
                while let (true, Ok((stream, _))) = (waiting.len() < most, listener.accept()) {
                    stream.set_nonblocking(true)?;
                    waiting.push(OriginStream::Unix(UnixStream::from_std(stream)?));
                }
            }
        }
        Ok(waiting)
    }
}

/// A connection.
pub(super) enum OriginStream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl OriginStream {
    /// Nagle's algorithm off.
    pub(super) fn prepare(&self) {
        if let OriginStream::Tcp(stream) = self {
            // Fails only on a socket that is gone already, which the first write or read tells better.
            let _ = stream.set_nodelay(true);
        }
    }

    /// Appends what can be read; `false` says that the client has closed its side. May be dropped while it waits without
    /// losing anything.
    pub(super) async fn read(&self, into: &mut Vec<u8>) -> io::Result<bool> {
        into.reserve(READ);
        loop {
            let read = match self {
                OriginStream::Tcp(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
                OriginStream::Unix(stream) => {
                    stream.readable().await?;
                    stream.try_read_buf(into)
                }
            };
            match read {
                Ok(length) => return Ok(length > 0),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            OriginStream::Tcp(stream) => stream.write_all(bytes).await,
            OriginStream::Unix(stream) => stream.write_all(bytes).await,
        }
    }

    /// Closes this side in order.
    pub(super) async fn shutdown(&mut self) -> io::Result<()> {
        match self {
            OriginStream::Tcp(stream) => stream.shutdown().await,
            OriginStream::Unix(stream) => stream.shutdown().await,
        }
    }

    /// Closes by a reset. A unix socket knows none and closes in order.
    pub(super) fn reset(self) -> io::Result<()> {
        match self {
            OriginStream::Tcp(stream) => SockRef::from(&stream).set_linger(Some(Duration::ZERO)),
            OriginStream::Unix(stream) => SockRef::from(&stream).shutdown(Shutdown::Both),
        }
    }
}
