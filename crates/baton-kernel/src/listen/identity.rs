//! What the kernel says of a listening socket: enough to tell whether it is the one that somebody asks for.

use std::io;
use std::os::fd::AsFd;

use socket2::{Domain, SockRef, Socket, Type};

use crate::Endpoint;
use crate::sockopt;

/// What makes a listening socket the one it is, whoever opened it and whatever descriptor leads to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SocketIdentity {
    /// The address listened on; of a unix socket the path it was meant for, not the temporary one it was bound to.
    pub local: Endpoint,
    /// `SO_BINDTODEVICE`: only connections arriving by this interface.
    pub interface: Option<String>,
    /// `IPV6_V6ONLY` of a socket at `::`; `None` for all others: at a precise address it makes no difference, and the
    /// kernel sets it there.
    pub v6only: Option<bool>,
    /// Its network namespace, as a number that the kernel gives to no other one (`SO_NETNS_COOKIE`, Linux 5.14);
    /// `None` where the kernel does not tell.
    pub netns: Option<u64>,
    /// The socket, as a number that the kernel gives to no other one (`SO_COOKIE`). Two descriptors with the same
    /// number lead to the same queue.
    pub socket: u64,
}

impl SocketIdentity {
    /// What the kernel says of `socket`; `None` when it has no address, or one of a family we do not know.
    ///
    /// # Errors
    /// When it is not a socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Option<SocketIdentity>> {
        let known = SockRef::from(socket);
        let Some(local) = Endpoint::local_of(socket)? else { return Ok(None) };
        let interface = known.device()?.map(|name| String::from_utf8_lossy(&name).into_owned());
        let v6only = match local.inet() {
            Some(address) if address.is_ipv6() && address.ip().is_unspecified() => Some(known.only_v6()?),
            Some(_) | None => None,
        };
        Ok(Some(SocketIdentity { local, interface, v6only, netns: netns_of(socket), socket: known.cookie()? }))
    }
}

/// The network namespace new sockets of the calling thread belong to, as in [`SocketIdentity::netns`].
pub fn netns_here() -> Option<u64> {
    netns_of(&Socket::new(Domain::UNIX, Type::STREAM.cloexec(), None).ok()?)
}

/// What `IPV6_V6ONLY` is if nobody says otherwise (`net.ipv6.bindv6only`); `None` without IPv6.
pub fn v6only_default() -> Option<bool> {
    Socket::new(Domain::IPV6, Type::STREAM.cloexec(), None).ok()?.only_v6().ok()
}

/// The network namespace of a socket, as in [`SocketIdentity::netns`].
pub(crate) fn netns_of(socket: &impl AsFd) -> Option<u64> {
    let mut cookie = [0; 8];
    let length = sockopt::bytes_of(socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie).ok()?;
    (length == cookie.len()).then(|| u64::from_ne_bytes(cookie))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    use super::*;
    use crate::netns;

    #[test]
    fn a_socket_is_known_by_address_family_and_place() {
        let four = TcpListener::bind("127.0.0.1:0").unwrap();
        let known = SocketIdentity::of(&four).unwrap().unwrap();
        assert_eq!(known.local, Endpoint::Inet(four.local_addr().unwrap()));
        assert_eq!((known.interface.as_deref(), known.v6only), (None, None));
        assert_eq!(known.netns, netns_here());
        assert_eq!(SocketIdentity::of(&four.try_clone().unwrap()).unwrap().unwrap(), known, "a second descriptor");

        for (address, expect) in [("[::]:0", v6only_default()), ("[::1]:0", None)] {
            let six = TcpListener::bind(address).unwrap();
            assert_eq!(SocketIdentity::of(&six).unwrap().unwrap().v6only, expect, "{address}");
        }
    }

    #[test]
    fn a_unix_socket_is_known_by_the_path_it_was_meant_for() {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixListener::bind(folder.path().join("web.123.tmp")).unwrap();
        let known = SocketIdentity::of(&socket).unwrap().unwrap();
        assert_eq!(known.local, Endpoint::Unix(folder.path().join("web")));
    }

    #[test]
    fn a_namespace_and_an_interface_make_another_socket() {
        let inside = netns::in_new(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM.cloexec(), None).unwrap();
            socket.bind_device(Some(b"lo")).unwrap();
            socket.bind(&std::net::SocketAddr::from(([0, 0, 0, 0], 8080)).into()).unwrap();
            (SocketIdentity::of(&socket).unwrap().unwrap(), netns_here())
        });
        match inside {
            Ok((known, here)) => {
                assert_eq!(known.interface.as_deref(), Some("lo"));
                assert_eq!(known.netns, here);
                assert_ne!(here, netns_here());
            }
            Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
        }
    }
}
