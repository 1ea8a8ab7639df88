//! Messages that nobody asked for, such as packets of a queue, and messages that are not answered, such as verdicts on them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};

use super::message::{ReplyKind, answers};
use super::{DATAGRAM_BYTES, NetlinkError, Reply, Request, Socket};

impl Socket {
    /// Sends one message and waits for nothing. A refusal is among the next [`events`](Self::events), and is ignored there.
    ///
    /// # Errors
    /// Of the socket.
    pub fn tell(&mut self, request: &Request) -> Result<(), NetlinkError> {
        let number = self.next();
        Ok(self.send(&request.framed(0, number))?)
    }

    /// Makes room for so many bytes of events that wait, above the limit of the system where the right is there
    /// (CAP_NET_ADMIN).
    pub fn make_room(&self, bytes: usize) {
        let _ = setsockopt(&self.socket, sockopt::RcvBufForce, &bytes);
    }

    /// What came without being asked for, at most one read of it, and what an earlier question found instead of its answer.
    /// Empty when nothing waits: this never blocks.
    ///
    /// # Errors
    /// Of the socket. That events were lost (`ENOBUFS`) is none.
    pub fn events(&mut self) -> Result<Vec<Reply>, NetlinkError> {
        let mut events = std::mem::take(&mut self.unasked);
        let mut datagram = Vec::with_capacity(DATAGRAM_BYTES);
        match self.socket.recv_from(&mut datagram, libc::MSG_DONTWAIT) {
            Ok((_, from)) if from.port_number() == 0 => {
                for answer in answers(&datagram)? {
                    if let (_, ReplyKind::Reply(reply)) = answer? {
                        events.push(reply);
                    }
                }
            }
            Ok(_) => {} // another process, not the kernel
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(Errno::ENOBUFS as i32) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(events)
    }
}

impl AsFd for Socket {
    /// To wait until events can be read.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
