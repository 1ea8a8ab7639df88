//! A stream with what is still to be written and what was read and not used yet; and the bytes that sessions send.

use std::{future::poll_fn, io, pin::Pin, task::Poll};

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::LossKind;
use crate::stream::Stream;

/// Bytes read at a time.
const READ: usize = 16 * 1024;

pub(super) struct Link {
    stream: Stream,
    /// Still to be written.
    pub(super) out: Vec<u8>,
    /// Read and not used yet.
    pub(super) input: Vec<u8>,
}

impl Link {
    pub(super) fn new(stream: Stream) -> Link {
        Link { stream, out: Vec::new(), input: Vec::new() }
    }

    /// Writes what can be written until something was read. Both go on together, so that large messages cannot block each
    /// other. May be dropped while it waits without losing a byte.
    pub(super) async fn step(&mut self) -> Result<(), LossKind> {
        let Link { stream, out, input } = self;
        poll_fn(|cx| {
            let mut broken = None;
            while !out.is_empty() && broken.is_none() {
                match Pin::new(&mut *stream).poll_write(cx, out) {
                    Poll::Ready(Ok(0)) => broken = Some(LossKind::Other),
                    Poll::Ready(Ok(length)) => drop(out.drain(..length)),
                    Poll::Ready(Err(error)) => broken = Some(LossKind::new(&error)),
                    Poll::Pending => break,
                }
            }
            let mut buffer = [0; READ];
            let mut into = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(cx, &mut into) {
                Poll::Ready(Ok(())) if into.filled().is_empty() => Poll::Ready(Err(LossKind::Closed)),
                Poll::Ready(Ok(())) => {
                    input.extend_from_slice(into.filled());
                    Poll::Ready(Ok(()))
                }
                Poll::Ready(Err(error)) => Poll::Ready(Err(LossKind::new(&error))),
                // Reading tells best why writing failed, but it may have nothing to tell.
                Poll::Pending => broken.map_or(Poll::Pending, |kind| Poll::Ready(Err(kind))),
            }
        })
        .await
    }

    /// Writes the rest and closes this side.
    pub(super) async fn finish(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.stream.shutdown().await
    }
}

/// Appends the bytes `at..at + length` of the sequence that `session` sends. Every eight bytes name the session and their own
/// place (mixed by a multiplication, which loses nothing), so that a byte lost, doubled, or from another session shows.
pub(super) fn fill(session: u64, at: u64, length: usize, into: &mut Vec<u8>) {
    into.extend((at..at + length as u64).map(|place| {
        let block = ((session << 40) ^ (place / 8)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        block.to_be_bytes()[(place % 8) as usize]
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_goes_on_where_it_ended() {
        let (mut whole, mut parts, mut other) = (Vec::new(), Vec::new(), Vec::new());
        fill(3, 0, 1000, &mut whole);
        fill(3, 0, 13, &mut parts);
        fill(3, 13, 987, &mut parts);
        fill(4, 0, 1000, &mut other);
        assert_eq!(whole, parts);
        assert_ne!(whole, other);
        for shift in 1..500 {
            assert_ne!(whole[shift..shift + 64], whole[..64], "the sequence must not repeat");
        }
    }
}
