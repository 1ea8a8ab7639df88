//! New addresses where the kernel keeps `SO_ATTACH_FILTER` on TCP to CAP_NET_ADMIN (Linux 6.18 does) and rights were given
//! up: a socket is bound without listening, which nobody can reach either, and listens when it is published. Our master may
//! bind it for us (see [`opening`](crate::servant::opening)).

use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use baton_kernel::listen::{self, ListenError};
use baton_kernel::{ListenOptions, ListenerGroup, Listening};

/// Bound sockets of one TCP address, in order.
#[derive(Debug)]
pub(crate) struct BoundGroup {
    sockets: Vec<OwnedFd>,
    options: ListenOptions,
}

impl BoundGroup {
    /// Binds `count` sockets. The first takes the address for itself if the options say so, the others join it.
    ///
    /// # Errors
    /// The first socket that cannot be bound; then none is.
    pub(crate) fn bind(
        address: SocketAddr,
        options: &ListenOptions,
        count: usize,
    ) -> Result<BoundGroup, Box<ListenError>> {
        let mut sockets = vec![listen::bind(address, options)?.into()];
        let joining = ListenOptions { exclusive: false, ..options.clone() };
        for _ in 1..count {
            sockets.push(listen::bind(address, &joining)?.into());
        }
        Ok(BoundGroup { sockets, options: options.clone() })
    }

    /// Sockets that another process bound.
    pub(super) fn of(sockets: Vec<OwnedFd>, options: ListenOptions) -> BoundGroup {
        BoundGroup { sockets, options }
    }

    /// The sockets alone, in order.
    pub(crate) fn into_fds(self) -> Vec<OwnedFd> {
        self.sockets
    }

    /// Lets clients in.
    pub(super) fn publish(self) -> Result<ListenerGroup, String> {
        let listening: Result<Vec<_>, _> = self.sockets.into_iter().map(Listening::adopt).collect();
        let listening = listening.map_err(|error| error.to_string())?;
        let mut group = ListenerGroup::adopt(listening, &self.options).ok_or("no socket was bound")?;
        group.apply(&self.options).map_err(|error| error.to_string())?;
        Ok(group)
    }
}
