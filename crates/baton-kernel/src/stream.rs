//! Options of connected stream sockets, and questions to them, where std and tokio have no word for it.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use nix::sys::socket::{MsgFlags, getsockopt, recv, sockopt::PeerCredentials};
use socket2::{SockRef, TcpKeepalive};

use crate::sockopt;

/// `IPV6_TRANSPARENT` (linux/in6.h); libc has it for some platforms only.
const IPV6_TRANSPARENT: i32 = 75;

/// TCP keepalive; what is `None` follows the system's settings (`net.ipv4.tcp_keepalive_*`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe, whole seconds (`TCP_KEEPIDLE`).
    pub idle: Option<Duration>,
    /// Time between probes, whole seconds (`TCP_KEEPINTVL`).
    pub interval: Option<Duration>,
    /// Unanswered probes before the connection is dead (`TCP_KEEPCNT`).
    pub count: Option<u32>,
}

/// Switches keepalive on with its times, or off.
pub fn set_keepalive(fd: &impl AsFd, keepalive: Option<&Keepalive>) -> io::Result<()> {
    let socket = SockRef::from(fd);
    let Some(keepalive) = keepalive else { return socket.set_keepalive(false) };
    let mut times = TcpKeepalive::new();
    if let Some(idle) = keepalive.idle {
        times = times.with_time(idle.max(Duration::from_secs(1)));
    }
    if let Some(interval) = keepalive.interval {
        times = times.with_interval(interval.max(Duration::from_secs(1)));
    }
    if let Some(count) = keepalive.count {
        times = times.with_retries(count);
    }
    socket.set_tcp_keepalive(&times)
}

/// `TCP_NODELAY`: small segments leave at once.
pub fn set_nodelay(fd: &impl AsFd, on: bool) -> io::Result<()> {
    SockRef::from(fd).set_tcp_nodelay(on)
}

/// `TCP_USER_TIMEOUT`: how long sent data may stay unacknowledged before the connection is dead; `None` follows
/// the system's retransmission limits.
pub fn set_user_timeout(fd: &impl AsFd, limit: Option<Duration>) -> io::Result<()> {
    SockRef::from(fd).set_tcp_user_timeout(limit.or(Some(Duration::ZERO)))
}

/// `SO_LINGER` with time zero: closing drops what is unsent and sends RST. The kernel then keeps no TIME_WAIT.
pub fn reset_on_close(fd: &impl AsFd) -> io::Result<()> {
    SockRef::from(fd).set_linger(Some(Duration::ZERO))
}

/// `IP_TOS` or `IPV6_TCLASS`: the TOS byte of what this socket sends.
pub fn set_tos(fd: &impl AsFd, tos: u8) -> io::Result<()> {
    let socket = SockRef::from(fd);
    match is_ipv6(&socket) {
        true => socket.set_tclass_v6(tos.into()),
        false => socket.set_tos_v4(tos.into()),
    }
}

/// The coming close is not to be noticed by the peer: the socket is put in repair mode, in which closing sends nothing. Without the right to
/// do so (CAP_NET_ADMIN), or with a TTL, closing is a reset that gets no further than that, by default to the first router.
pub fn forget(fd: &impl AsFd, ttl: Option<u8>) {
    if ttl.is_none() && sockopt::set_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR, 1).is_ok() {
        return;
    }
    let socket = SockRef::from(fd);
    let ttl = ttl.unwrap_or(1).into();
    // A socket that takes none of it is closed as usual, which is all that is left.
    let _ = match is_ipv6(&socket) {
        true => socket.set_unicast_hops_v6(ttl),
        false => socket.set_ttl_v4(ttl),
    };
    let _ = reset_on_close(fd);
}

/// Whether packets are IPv6: not of an IPv4 peer with a mapped address.
fn is_ipv6(socket: &SockRef<'_>) -> bool {
    let peer = socket.peer_addr().ok().and_then(|peer| peer.as_socket());
    matches!(peer, Some(SocketAddr::V6(peer)) if peer.ip().to_ipv4_mapped().is_none())
}

/// `SO_MARK`: the packet mark of what this socket sends. Needs CAP_NET_ADMIN.
pub fn set_mark(fd: &impl AsFd, mark: u32) -> io::Result<()> {
    SockRef::from(fd).set_mark(mark)
}

/// `SO_BINDTODEVICE`: send and receive by this interface only.
///
/// # Errors
/// `ENODEV` when there is no such interface, `EPERM` without CAP_NET_RAW.
pub fn set_interface(fd: &impl AsFd, name: &str) -> io::Result<()> {
    SockRef::from(fd).bind_device(Some(name.as_bytes()))
}

/// `SO_ORIGINAL_DST`: where an accepted connection was going before Netfilter translated its destination. `None` without
/// connection tracking, and for other families than IP.
pub fn original_destination(fd: &impl AsFd) -> Option<SocketAddr> {
    let socket = SockRef::from(fd);
    let original = socket.original_dst_v4().or_else(|_| socket.original_dst_v6()).ok()?;
    // An IPv4 client of an IPv6 socket is known by its mapped address everywhere else.
    original.as_socket()
}

/// `IP_TRANSPARENT` or `IPV6_TRANSPARENT`: local addresses may be foreign. Needs CAP_NET_ADMIN.
pub fn set_transparent(fd: &impl AsFd, is_ipv6: bool) -> io::Result<()> {
    match is_ipv6 {
        true => sockopt::set_int(fd, libc::IPPROTO_IPV6, IPV6_TRANSPARENT, 1),
        false => SockRef::from(fd).set_ip_transparent_v4(true),
    }
}

/// Who is at the other end of a unix socket, as of when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Process id, in our pid namespace (0 if it is not in ours).
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
}

/// `SO_PEERCRED` of a unix socket.
pub fn peer(fd: &impl AsFd) -> io::Result<Peer> {
    let found = getsockopt(&fd.as_fd(), PeerCredentials)?;
    Ok(Peer { pid: found.pid(), uid: found.uid(), gid: found.gid() })
}

/// What the kernel measured of a TCP connection (`TCP_INFO`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Smoothed round-trip time in microseconds.
    pub rtt: u32,
    /// How much it varies, in microseconds.
    pub rtt_variance: u32,
    /// Segments sent and not acknowledged.
    pub unacked: u32,
    /// Segments acknowledged selectively.
    pub sacked: u32,
    /// Segments taken for lost.
    pub lost: u32,
    /// Retransmissions in a row of the segment that is waited for.
    pub retransmits: u8,
    /// Segments of forward acknowledgement; zero since Linux 4.15.
    pub fackets: u32,
    /// How far segments change their order.
    pub reordering: u32,
}

/// `TCP_INFO`.
///
/// # Errors
/// This is no TCP socket.
pub fn tcp_info(fd: &impl AsFd) -> io::Result<TcpInfo> {
    use std::mem::offset_of;
    let mut bytes = [0; size_of::<libc::tcp_info>()];
    sockopt::bytes_of(fd, libc::IPPROTO_TCP, libc::TCP_INFO, &mut bytes)?;
    let u32_at = |at: usize| bytes[at..].first_chunk().map_or(0, |chunk| u32::from_ne_bytes(*chunk));
    Ok(TcpInfo {
        rtt: u32_at(offset_of!(libc::tcp_info, tcpi_rtt)),
        rtt_variance: u32_at(offset_of!(libc::tcp_info, tcpi_rttvar)),
        unacked: u32_at(offset_of!(libc::tcp_info, tcpi_unacked)),
        sacked: u32_at(offset_of!(libc::tcp_info, tcpi_sacked)),
        lost: u32_at(offset_of!(libc::tcp_info, tcpi_lost)),
        retransmits: bytes[offset_of!(libc::tcp_info, tcpi_retransmits)],
        fackets: u32_at(offset_of!(libc::tcp_info, tcpi_fackets)),
        reordering: u32_at(offset_of!(libc::tcp_info, tcpi_reordering)),
    })
}

/// Whether the system has this address. Asks the kernel by binding a socket to it.
pub fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// What a read of a socket would return now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PendingInput {
    /// Nothing: the connection is quiet.
    Nothing,
    /// Data.
    Data,
    /// The peer has ended its sending.
    End,
    /// The connection is broken (reset, timed out), or this is no connected socket.
    Broken,
}

/// Looks without taking, in one system call and without touching the socket's mode: whether an idle connection
/// may be used again, for example.
pub fn waiting(fd: &impl AsFd) -> PendingInput {
    let mut byte = [0; 1];
    loop {
        let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
        return match recv(fd.as_fd().as_raw_fd(), &mut byte, flags) {
            Ok(0) => PendingInput::End,
            Ok(_) => PendingInput::Data,
            Err(nix::errno::Errno::EAGAIN) => PendingInput::Nothing,
            Err(nix::errno::Errno::EINTR) => continue,
            Err(_) => PendingInput::Broken,
        };
    }
}

#[cfg(test)]
mod tests;
