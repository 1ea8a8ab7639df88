//! Moving bytes between two sockets through a pipe, without copying them into this process (splice(2)).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SpliceFFlags, fcntl, splice};
use nix::unistd::{pipe2, read};

/// Capacity we ask the kernel for, bytes: large enough that a full pipe is worth the two system calls.
pub const PIPE_BYTES: usize = 256 * 1024;

/// What one step moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// That many bytes, at least one.
    Bytes(usize),
    /// Nothing now: wait for the socket.
    WouldBlock,
    /// The source ended. Only [`Pipe::fill`] says so.
    End,
}

/// A pipe between two sockets, for one direction. It knows what it holds: a socket that would block may leave
/// bytes in it, and a pipe with bytes in it must not be given to another pair.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
    capacity: usize,
}

impl Pipe {
    /// A new pipe: two descriptors.
    ///
    /// # Errors
    /// When descriptors ran out. When the system refuses the larger capacity, the usual one is used.
    pub fn new() -> io::Result<Pipe> {
        let (read, write) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
        let wish = FcntlArg::F_SETPIPE_SZ(PIPE_BYTES as i32);
        let capacity = fcntl(&write, wish).or_else(|_| fcntl(&write, FcntlArg::F_GETPIPE_SZ))?;
        Ok(Pipe { read, write, held: 0, capacity: capacity.max(0) as usize })
    }

    /// Bytes that the pipe takes at most.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves at most `limit` bytes from a socket into the pipe.
    ///
    /// [`Moved::WouldBlock`] while the pipe holds bytes may mean that the pipe is full (it counts pages, and
    /// small segments waste them): drain it before waiting for the socket.
    pub fn fill(&mut self, from: &impl AsFd, limit: usize) -> io::Result<Moved> {
        let room = limit.min(self.capacity.saturating_sub(self.held));
        if room == 0 {
            return Ok(Moved::WouldBlock);
        }
        let moved = step(from, &self.write, room)?;
        if let Moved::Bytes(count) = moved {
            self.held += count;
        }
        Ok(moved)
    }

    /// Moves what the pipe holds, at most `limit` bytes, into a socket. `more` announces that more follows at
    /// once, so that the kernel may fill the segment (`SPLICE_F_MORE`). An empty pipe answers
    /// [`Moved::WouldBlock`].
    pub fn drain(&mut self, to: &impl AsFd, limit: usize, more: bool) -> io::Result<Moved> {
        let wish = limit.min(self.held);
        if wish == 0 {
            return Ok(Moved::WouldBlock);
        }
        let flags = if more { SpliceFFlags::SPLICE_F_MORE } else { SpliceFFlags::empty() };
        let moved = step_with(&self.read, to, wish, flags)?;
        if let Moved::Bytes(count) = moved {
            self.held -= count.min(self.held);
        }
        Ok(moved)
    }

    /// Takes out all that the pipe holds, behind these bytes.
    ///
    /// # Errors
    /// The system does not give it back; it is in the pipe still, but for what is in `out`.
    pub fn unload(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        while self.held > 0 {
            let start = out.len();
            out.resize(start + self.held, 0);
            let count = match read(&self.read, &mut out[start..]) {
                Ok(count) => count,
                Err(Errno::EINTR) => 0,
                Err(error) => {
                    out.truncate(start);
                    return Err(error.into());
                }
            };
            out.truncate(start + count);
            self.held -= count;
        }
        Ok(())
    }
}

fn step(from: &impl AsFd, to: &impl AsFd, limit: usize) -> io::Result<Moved> {
    step_with(from, to, limit, SpliceFFlags::empty())
}

fn step_with(from: &impl AsFd, to: &impl AsFd, limit: usize, flags: SpliceFFlags) -> io::Result<Moved> {
    let flags = flags | SpliceFFlags::SPLICE_F_MOVE | SpliceFFlags::SPLICE_F_NONBLOCK;
    debug_assert!(from.as_fd().as_raw_fd() != to.as_fd().as_raw_fd());
    loop {
        return match splice(from.as_fd(), None, to.as_fd(), None, limit, flags) {
            Ok(0) => Ok(Moved::End),
            Ok(count) => Ok(Moved::Bytes(count)),
            Err(Errno::EAGAIN) => Ok(Moved::WouldBlock),
            Err(Errno::EINTR) => continue,
            Err(error) => Err(error.into()),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::process::usage::open_descriptors;

    /// A chain: write into `.0`, splice from `.1` to `.2`, read from `.3`. The middle is non-blocking.
    fn chain() -> (UnixStream, UnixStream, UnixStream, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        let (c, d) = UnixStream::pair().unwrap();
        b.set_nonblocking(true).unwrap();
        c.set_nonblocking(true).unwrap();
        (a, b, c, d)
    }

    #[test]
    fn bytes_pass_in_order_and_the_end_is_seen() {
        let (mut source, from, to, mut sink) = chain();
        let mut pipe = Pipe::new().unwrap();
        assert_eq!(pipe.fill(&from, 100).unwrap(), Moved::WouldBlock);
        assert_eq!(pipe.drain(&to, 100, false).unwrap(), Moved::WouldBlock);
        source.write_all(b"hello world").unwrap();
        assert_eq!(pipe.fill(&from, 5).unwrap(), Moved::Bytes(5));
        assert_eq!(pipe.held(), 5);
        assert_eq!(pipe.fill(&from, 100).unwrap(), Moved::Bytes(6));
        assert_eq!(pipe.drain(&to, 4, true).unwrap(), Moved::Bytes(4));
        assert_eq!(pipe.held(), 7);
        while pipe.held() > 0 {
            assert!(matches!(pipe.drain(&to, 100, false).unwrap(), Moved::Bytes(_)));
        }
        let mut got = [0; 11];
        sink.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"hello world");
        drop(source);
        assert_eq!(pipe.fill(&from, 100).unwrap(), Moved::End);
    }

    #[test]
    fn what_is_held_can_be_taken_out() {
        let (mut source, from, to, mut sink) = chain();
        let mut pipe = Pipe::new().unwrap();
        source.write_all(b"hello world").unwrap();
        assert_eq!(pipe.fill(&from, 100).unwrap(), Moved::Bytes(11));
        assert_eq!(pipe.drain(&to, 4, true).unwrap(), Moved::Bytes(4));
        let mut out = b"got: ".to_vec();
        pipe.unload(&mut out).unwrap();
        assert_eq!((&*out, pipe.held()), (&b"got: o world"[..], 0));
        sink.read_exact(&mut [0; 4]).unwrap();
    }

    #[test]
    fn a_slow_reader_blocks_the_sender_and_no_byte_is_lost() {
        let (source, from, to, mut sink) = chain();
        source.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::new().unwrap();
        let (mut sent, mut stalled) = (0usize, false);
        while !stalled {
            let chunk: Vec<u8> = (sent..sent + 1000).map(|at| (at % 251) as u8).collect();
            sent += (&source).write(&chunk).unwrap_or(0);
            let filled = pipe.fill(&from, usize::MAX).unwrap();
            let drained = pipe.drain(&to, usize::MAX, true).unwrap();
            stalled = filled == Moved::WouldBlock && drained == Moved::WouldBlock;
        }
        assert!(pipe.held() > 0, "the pipe holds what the sink did not take");
        let mut got = Vec::new();
        let mut buffer = [0; 4096];
        sink.set_nonblocking(true).unwrap();
        while got.len() < sent {
            if let Ok(count) = sink.read(&mut buffer) {
                got.extend_from_slice(&buffer[..count]);
            }
            let _ = pipe.fill(&from, usize::MAX).unwrap();
            let _ = pipe.drain(&to, usize::MAX, false).unwrap();
        }
        assert!(got.iter().enumerate().all(|(at, &byte)| byte == (at % 251) as u8));
    }

    #[test]
    fn a_closed_reader_is_an_error() {
        let (mut source, from, to, sink) = chain();
        let mut pipe = Pipe::new().unwrap();
        source.write_all(b"x").unwrap();
        assert_eq!(pipe.fill(&from, 1).unwrap(), Moved::Bytes(1));
        drop(sink);
        assert_eq!(pipe.drain(&to, 1, false).unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(open_descriptors().unwrap() > 0);
    }
}
