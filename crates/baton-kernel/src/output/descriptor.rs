//! What lines are written to, and how much of them at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::libc::{PIPE_BUF, S_IFMT, S_IFREG, S_IFSOCK};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::sys::stat::fstat;

/// How long one wait for a descriptor that is not blocking takes at most, before it is looked at again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A descriptor to write to.
#[derive(Debug)]
pub(super) enum Descriptor {
    Stdout,
    Stderr,
    /// A second descriptor of one that was passed to us.
    Passed(OwnedFd),
}

/// How many bytes may go into one call, so that lines of several processes do not mix.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AtOnce {
    /// Everything there is: a regular file.
    All,
    /// Whole lines of at most so many bytes: what a pipe takes in one piece.
    Bytes(usize),
    /// One line, which is one datagram.
    Line,
}

impl Descriptor {
    /// What is open under this number, unless it is one of our own, which all close themselves in another program.
    pub(super) fn passed(number: RawFd) -> io::Result<Descriptor> {
        crate::passed::duplicate(number).map(Descriptor::Passed)
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            // The standard descriptors are open as long as the process lives: Rust's start-up opens those that are not, and this
            // program replaces them but never closes them.
            Descriptor::Stdout => rustix::stdio::stdout(),
            Descriptor::Stderr => rustix::stdio::stderr(),
            Descriptor::Passed(fd) => fd.as_fd(),
        }
    }

    /// What kind of thing it is may change: a daemon replaces its standard descriptors.
    pub(super) fn at_once(&self) -> AtOnce {
        match fstat(self.fd()).map_or(0, |stat| stat.st_mode & S_IFMT) {
            S_IFREG => AtOnce::All,
            S_IFSOCK if getsockopt(&self.fd(), sockopt::SockType) != Ok(SockType::Stream) => AtOnce::Line,
            _ => AtOnce::Bytes(PIPE_BUF),
        }
    }

    /// Writes everything, and waits for the reader as long as it takes. Gives what was written before an error.
    pub(super) fn write(&self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        self.write_with(bytes, |_| true)
    }

    /// Writes everything, and waits as long as there is patience, which is used up by that.
    pub(super) fn write_briefly(&self, bytes: &[u8], patience: &mut Duration) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        // A pipe that can be written to takes so much without waiting.
        for piece in bytes.chunks(PIPE_BUF) {
            let began = Instant::now();
            let is_ready = self.wait(*patience);
            *patience = patience.saturating_sub(began.elapsed());
            if !is_ready {
                return Err((done, Errno::EAGAIN.into()));
            }
            self.write_with(piece, |_| false).map_err(|(more, error)| (done + more, error))?;
            done += piece.len();
        }
        Ok(())
    }

    fn write_with(&self, bytes: &[u8], mut goes_on: impl FnMut(&Descriptor) -> bool) -> Result<(), (usize, io::Error)> {
        let mut done = 0;
        while done < bytes.len() {
            match nix::unistd::write(self.fd(), &bytes[done..]) {
                Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
                Ok(written) => done += written,
                Err(Errno::EINTR) => {}
                // Somebody who shares the descriptor made it non-blocking.
                Err(Errno::EAGAIN) if goes_on(self) => drop(self.wait(LOOK_EVERY)),
                Err(error) => return Err((done, error.into())),
            }
        }
        Ok(())
    }

    /// Whether it can be written to within this time, or an error can be had from it.
    fn wait(&self, within: Duration) -> bool {
        let mut fds = [PollFd::new(self.fd(), PollFlags::POLLOUT)];
        let within = PollTimeout::try_from(within).unwrap_or(PollTimeout::MAX);
        poll(&mut fds, within).is_ok_and(|ready| ready > 0)
    }
}
