//! New addresses where the kernel keeps `SO_ATTACH_FILTER` on TCP to CAP_NET_ADMIN (Linux 6.18 does) and rights were given
//! up: a socket is bound without listening, which nobody can reach either, and listens when it is published.

use std::io;
use std::net::SocketAddr;

use baton_kernel::{ListenOptions, ListenerGroup, Listening};
use socket2::{Domain, Socket, Type};

/// Bound sockets of one TCP address, in order.
#[derive(Debug)]
pub(super) struct BoundGroup {
    sockets: Vec<Socket>,
    options: ListenOptions,
}

impl BoundGroup {
    /// Binds `count` sockets. The first takes the address for itself if the options say so, the others join it.
    pub(super) fn bind(address: SocketAddr, options: &ListenOptions, count: usize) -> io::Result<BoundGroup> {
        let mut sockets = Vec::new();
        let mut exclusive = options.exclusive;
        for _ in 0..count.max(1) {
            sockets.push(bind(address, options, exclusive)?);
            exclusive = false;
        }
        Ok(BoundGroup { sockets, options: options.clone() })
    }

    /// Lets clients in.
    pub(super) fn publish(self) -> Result<ListenerGroup, String> {
        let listening: Result<Vec<_>, _> =
            self.sockets.into_iter().map(|socket| Listening::adopt(socket.into())).collect();
        let listening = listening.map_err(|error| error.to_string())?;
        let mut group = ListenerGroup::adopt(listening, &self.options).ok_or("no socket was bound")?;
        group.apply(&self.options).map_err(|error| error.to_string())?;
        Ok(group)
    }
}

fn bind(address: SocketAddr, options: &ListenOptions, exclusive: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking().cloexec(), None)?;
    socket.set_reuse_address(true)?;
    if options.reuse_port && !exclusive {
        socket.set_reuse_port(true)?;
    }
    if let (true, Some(only)) = (address.is_ipv6(), options.v6only) {
        socket.set_only_v6(only)?;
    }
    if options.transparent {
        match address {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => return Err(io::Error::other("'transparent' on IPv6 needs CAP_NET_ADMIN")),
        }
    }
    if let Some(interface) = &options.interface {
        socket.bind_device(Some(interface.as_bytes()))?;
    }
    socket.bind(&address.into())?;
    if options.reuse_port && exclusive {
        // Set after binding, it did not help us past anybody, and lets the others join.
        socket.set_reuse_port(true)?;
    }
    Ok(socket)
}
