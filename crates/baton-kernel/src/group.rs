//! One address, several sockets: with `SO_REUSEPORT` every core accepts from a queue of its own ("shards").
//!
//! The kernel spreads new connections over the sockets of the address in equal parts. The order of the shards
//! here is the kernel's order of the sockets, as long as shards are added and removed at the end.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};

use crate::Endpoint;
use crate::listen::{self, ListenError, ListenOptions, ListenReason, Listening};

/// The sockets of one address. Unix sockets cannot be doubled: their shards are descriptors of one socket, and
/// so are those of an inherited `fd@N`.
#[derive(Debug)]
pub struct ListenerGroup {
    shards: Vec<Listening>,
    options: ListenOptions,
}

impl ListenerGroup {
    /// Opens `shards` sockets (at least one). Port 0 is chosen once and the same for all. With more than one
    /// shard `reuse_port` is implied.
    ///
    /// # Errors
    /// The first socket that cannot be opened; then none stays open.
    pub fn open(endpoint: &Endpoint, options: &ListenOptions, shards: usize) -> Result<ListenerGroup, ListenError> {
        let mut options = options.clone();
        options.reuse_port |= shards > 1 && endpoint.inet().is_some();
        let first = listen::open(endpoint, &options)?;
        let mut group = ListenerGroup { shards: vec![first], options };
        group.grow(shards)?;
        Ok(group)
    }

    /// Takes over sockets of one address, in the order in which they were opened; `None` when there are none.
    pub fn adopt(shards: Vec<Listening>, options: &ListenOptions) -> Option<ListenerGroup> {
        (!shards.is_empty()).then(|| ListenerGroup { shards, options: options.clone() })
    }

    /// The address listened on, with the port the system chose.
    pub fn local(&self) -> &Endpoint {
        self.first().local()
    }

    /// The sockets, in order.
    pub fn shards(&self) -> &[Listening] {
        &self.shards
    }

    /// The sockets, for their workers.
    pub fn into_shards(self) -> Vec<Listening> {
        self.shards
    }

    /// Adds shards until there are `shards` of them; fewer are never closed. After a [`ListenerGroup::shrink`] the
    /// sockets it gave back must be closed first: the kernel chooses among all of the address again.
    ///
    /// # Errors
    /// The socket that cannot be opened; those opened before it are given up again (nothing reached them but
    /// what a client began within the last moments).
    pub fn grow(&mut self, shards: usize) -> Result<(), ListenError> {
        let mut more = Vec::new();
        let options = ListenOptions { exclusive: false, ..self.options.clone() };
        while self.shards.len() + more.len() < shards {
            let first = self.first();
            more.push(match first.local() {
                Endpoint::Inet(_) if self.options.reuse_port => {
                    let mut next = listen::open(first.local(), &options)?;
                    next.asked_as(first.endpoint());
                    next
                }
                _ => first.try_clone().map_err(|e| ListenError::socket(first.endpoint(), e))?,
            });
        }
        if !more.is_empty() && matches!(self.local(), Endpoint::Inet(_)) {
            let first = self.first().endpoint();
            self.steer_to_all().map_err(|e| ListenError::new(first, ListenReason::Option("steering"), e))?;
        }
        self.shards.append(&mut more);
        Ok(())
    }

    /// Gives new options to all shards; see [`Listening::apply`].
    pub fn apply(&mut self, options: &ListenOptions) -> Result<(), ListenError> {
        for shard in &self.shards {
            shard.apply(options)?;
        }
        self.options = ListenOptions { reuse_port: self.options.reuse_port, ..options.clone() };
        Ok(())
    }

    /// Keeps the first `live` shards (at least one) and gives back the others, to which the kernel sends no new
    /// connection any more. Handshakes begun with them end with them: accept from each until
    /// [`accept_queue`](crate::retire::accept_queue) is empty and nothing is
    /// [half open](crate::half_open::count), then close the last one first.
    pub fn shrink(&mut self, live: usize) -> io::Result<Vec<Listening>> {
        let live = live.max(1);
        if live >= self.shards.len() {
            return Ok(Vec::new());
        }
        if matches!(self.local(), Endpoint::Inet(_)) {
            self.steer(live)?;
        }
        Ok(self.shards.split_off(live))
    }

    /// Makes the kernel choose among the first `live` sockets only, at random; undone with
    /// [`ListenerGroup::steer_to_all`] when the group grows again.
    pub fn steer(&self, live: usize) -> io::Result<()> {
        /// Where classic BPF finds a random number instead of packet data (linux/filter.h).
        const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
        let one = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = [
            one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RANDOM),
            one(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::try_from(live.max(1)).unwrap_or(u32::MAX)),
            one(libc::BPF_RET | libc::BPF_A, 0),
        ];
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        setsockopt(&self.first().as_fd(), AttachReusePortCbpf, &program)?;
        Ok(())
    }

    /// Lets the kernel choose among all sockets again.
    pub fn steer_to_all(&self) -> io::Result<()> {
        match crate::sockopt::set_int(self.first(), libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other,
        }
    }

    fn first(&self) -> &Listening {
        self.shards.first().expect("a group has at least one shard from its making on")
    }
}

#[cfg(test)]
mod tests;
