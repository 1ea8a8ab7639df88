//! Frames of one interface, past the machine's own network stack: what is sent gets no route and passes no firewall, and what comes in is
//! seen before the machine judges it, even where it would drop it (packet(7)).
//!
//! For questions to neighbours and answers from them: some packets, a [`FrameFilter`] that the kernel applies, and a deadline. It is
//! no way to carry traffic. Takes CAP_NET_RAW.

mod filter;

pub use filter::FrameFilter;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, Type};

use crate::KernelError;

/// Bytes of a frame that are looked at, at most. Questions and answers are far shorter; the rest of a longer one is cut off.
pub const FRAME_BYTES: usize = 2048;
/// Frames that the kernel keeps for us, about, in bytes.
const RECEIVE_BYTES: usize = 256 << 10;

/// What is inside a frame (IEEE 802 numbers; `ETH_P_…`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EtherType {
    /// ARP (RFC 826).
    Arp,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl EtherType {
    /// Its number.
    pub const fn number(self) -> u16 {
        match self {
            EtherType::Arp => libc::ETH_P_ARP as u16,
            EtherType::Ipv4 => libc::ETH_P_IP as u16,
            EtherType::Ipv6 => libc::ETH_P_IPV6 as u16,
        }
    }

    /// What carries packets of this family.
    pub const fn of(address: IpAddr) -> EtherType {
        match address {
            IpAddr::V4(_) => EtherType::Ipv4,
            IpAddr::V6(_) => EtherType::Ipv6,
        }
    }
}

/// A socket that sends and receives whole frames, with their Ethernet header, on one interface.
#[derive(Debug)]
pub struct PacketSocket(Socket);

impl PacketSocket {
    /// Opens one on the interface with this number, in the network namespace of this thread. It receives frames of this kind that the
    /// filter keeps, also those for other hardware addresses that the interface lets in, and none that this machine sends.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, which is named; when the interface is not there or down.
    pub fn open(interface: u32, kind: EtherType, filter: &FrameFilter) -> Result<PacketSocket, KernelError> {
        let place = format!("packet socket on interface {interface}");
        let open = || {
            // Of no protocol it receives nothing until it is bound, with the filter on.
            let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), Some(Protocol::from(0)))?;
            socket.attach_filter(&filter.program())?;
            // Without the right to more, the kernel's limit is what one gets.
            let _ = socket.set_recv_buffer_size(RECEIVE_BYTES);
            socket.bind(&link_address(interface, kind)?)?;
            Ok(PacketSocket(socket))
        };
        open().map_err(|error: io::Error| match error.kind() {
            io::ErrorKind::PermissionDenied => {
                KernelError::new(&place, error.to_string(), "run it as root, or grant CAP_NET_RAW")
            }
            _ => KernelError::io(&place, &error),
        })
    }

    /// Sends a frame, which has its Ethernet header.
    ///
    /// # Errors
    /// Of the system, such as an interface that went down.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let sent = self.0.send(frame)?;
        if sent == frame.len() { Ok(()) } else { Err(io::Error::other("a frame was sent in part")) }
    }

    /// The next frame that waits, cut off at [`FRAME_BYTES`]; `None` when there is none until the deadline.
    ///
    /// # Errors
    /// Of the system, such as an interface that went down.
    pub fn receive(&self, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
        loop {
            let mut frame = vec![0; FRAME_BYTES];
            match nix::sys::socket::recv(self.0.as_raw_fd(), &mut frame, nix::sys::socket::MsgFlags::empty()) {
                Ok(length) => {
                    frame.truncate(length);
                    return Ok(Some(frame));
                }
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    // A part of a millisecond counts as one, so that this does not spin.
                    let milliseconds = u16::try_from(left.as_millis().saturating_add(1)).unwrap_or(u16::MAX);
                    let mut polled = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
                    match poll(&mut polled, PollTimeout::from(milliseconds)) {
                        Ok(_) | Err(Errno::EINTR) => {}
                        Err(errno) => return Err(errno.into()),
                    }
                }
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsFd for PacketSocket {
    /// To wait until a frame can be received.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A local port for packets that are made by hand: as long as this lives, no connection of this machine gets it.
#[derive(Debug)]
pub struct ReservedPort {
    _socket: OwnedFd,
    port: u16,
}

impl ReservedPort {
    /// Any free TCP port of an address of this machine.
    ///
    /// # Errors
    /// When the address is not this machine's, or no port is left.
    pub fn tcp(address: IpAddr) -> io::Result<ReservedPort> {
        let domain = if address.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
        let socket = Socket::new(domain, Type::STREAM.cloexec(), None)?;
        if address.is_ipv6() {
            SockRef::from(&socket).set_only_v6(true)?;
        }
        socket.bind(&SockAddr::from(std::net::SocketAddr::new(address, 0)))?;
        let port = socket.local_addr()?.as_socket().map(|address| address.port()).unwrap_or_default();
        Ok(ReservedPort { _socket: socket.into(), port })
    }

    /// Its number.
    pub fn number(&self) -> u16 {
        self.port
    }
}

/// `struct sockaddr_ll`: a kind of frames on an interface.
fn link_address(interface: u32, kind: EtherType) -> io::Result<SockAddr> {
    let index = i32::try_from(interface).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the closure gets zeroed storage large and aligned enough for every kind of socket address, so for a
    // `sockaddr_ll`, of integers alone; it writes one there and gives its size.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let address = &mut *storage.cast::<libc::sockaddr_ll>();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_protocol = kind.number().to_be();
            address.sll_ifindex = index;
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    Ok(address)
}

#[cfg(test)]
mod tests;
