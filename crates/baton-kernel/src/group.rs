//! One address, several sockets: with `SO_REUSEPORT` every core accepts from a queue of its own ("shards").
//!
//! The kernel spreads new connections over the sockets of the address in equal parts. The order of the shards
//! here is the kernel's order of the sockets, as long as shards are added and removed at the end.

use std::io;
use std::os::fd::AsFd;

use nix::sys::socket::{setsockopt, sockopt::AttachReusePortCbpf};
use socket2::SockRef;

use crate::Endpoint;
use crate::listen::{self, ListenError, ListenOptions, ListenReason, Listening, Prepared};
use crate::sockopt;

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
    /// The first socket that cannot be opened; then none stays open, and no connection had begun.
    pub fn open(endpoint: &Endpoint, options: &ListenOptions, shards: usize) -> Result<ListenerGroup, ListenError> {
        ListenerGroup::prepare(endpoint, options, shards)?.publish()
    }

    /// As [`ListenerGroup::open`], but nobody can connect before [`PreparedGroup::publish`].
    pub fn prepare(endpoint: &Endpoint, options: &ListenOptions, shards: usize) -> Result<PreparedGroup, ListenError> {
        let mut options = options.clone();
        options.reuse_port |= shards > 1 && endpoint.inet().is_some();
        let first = listen::prepare(endpoint, &options)?;
        let missing = shards.saturating_sub(1);
        // All new connections are steered to the first socket, and that one is hidden.
        steer_from(first.listening(), &options, missing, 1)?;
        let rest = more(first.listening(), &options, missing)?;
        Ok(PreparedGroup { first, rest, options })
    }

    /// Takes over sockets of one address, in the order in which they were opened; `None` when there are none. They
    /// are reachable all the time and nothing about them changes; [`ListenerGroup::apply`] gives them `options`.
    pub fn adopt(shards: Vec<Listening>, options: &ListenOptions) -> Option<ListenerGroup> {
        let is_shared = SockRef::from(shards.first()?).reuse_port().unwrap_or(false);
        Some(ListenerGroup { shards, options: ListenOptions { reuse_port: is_shared, ..options.clone() } })
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
    /// The socket that cannot be opened; those opened before it are given up again. No connection had begun
    /// with them.
    pub fn grow(&mut self, shards: usize) -> Result<(), ListenError> {
        let missing = shards.saturating_sub(self.shards.len());
        if missing == 0 {
            return Ok(());
        }
        steer_from(self.first(), &self.options, missing, self.shards.len())?;
        let opened = more(self.first(), &self.options, missing);
        // If some failed, the others are closed by now, and this leads to the old ones only.
        steer_to_all(self.first(), &self.options, missing)?;
        self.shards.append(&mut opened?);
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
    /// connection any more. Handshakes begun with them end with them: [`Surplus`](crate::surplus::Surplus) knows when
    /// they may be closed, and closes the last one first.
    ///
    /// The kernel numbers all sockets of the address: this needs a group that has the address to itself
    /// (`exclusive`), and nobody else's sockets among them.
    pub fn shrink(&mut self, live: usize) -> io::Result<Vec<Listening>> {
        let live = live.max(1);
        if live >= self.shards.len() {
            return Ok(Vec::new());
        }
        if matches!(self.local(), Endpoint::Inet(_)) && self.options.reuse_port {
            steer(self.first(), live)?;
        }
        Ok(self.shards.split_off(live))
    }

    /// After a [`ListenerGroup::shrink`], once the sockets it gave back are closed: the kernel chooses among all sockets
    /// of the address again, other processes' included.
    pub fn settle(&self) -> io::Result<()> {
        match is_steered(self.first(), &self.options, 1) {
            true => unsteer(self.first()),
            false => Ok(()),
        }
    }

    fn first(&self) -> &Listening {
        self.shards.first().expect("a group has at least one shard from its making on")
    }
}

/// A group that is complete but not to be reached yet. Dropped, it leaves no trace.
#[derive(Debug)]
pub struct PreparedGroup {
    first: Prepared,
    rest: Vec<Listening>,
    options: ListenOptions,
}

impl PreparedGroup {
    /// The address listened on, with the port the system chose.
    pub fn local(&self) -> &Endpoint {
        self.first.listening().local()
    }

    /// Lets clients in.
    ///
    /// # Errors
    /// As [`Prepared::publish`]: practically never.
    pub fn publish(self) -> Result<ListenerGroup, ListenError> {
        let missing = self.rest.len();
        let mut shards = vec![self.first.publish()?];
        steer_to_all(&shards[0], &self.options, missing)?;
        shards.extend(self.rest);
        Ok(ListenerGroup { shards, options: self.options })
    }
}

/// `count` more sockets of the address of `first`, or descriptors of `first` where an address has one socket.
fn more(first: &Listening, options: &ListenOptions, count: usize) -> Result<Vec<Listening>, ListenError> {
    let options = ListenOptions { exclusive: false, ..options.clone() };
    let one = || match first.local() {
        Endpoint::Inet(address) if options.reuse_port => listen::join(first.endpoint(), *address, &options),
        _ => first.try_clone().map_err(|e| ListenError::socket(first.endpoint(), e)),
    };
    (0..count).map(|_| one()).collect()
}

fn is_steered(first: &Listening, options: &ListenOptions, missing: usize) -> bool {
    missing > 0 && options.reuse_port && matches!(first.local(), Endpoint::Inet(_))
}

/// Before `missing` sockets join the `live` ones: nothing new shall come to them.
fn steer_from(first: &Listening, options: &ListenOptions, missing: usize, live: usize) -> Result<(), ListenError> {
    if !is_steered(first, options, missing) {
        return Ok(());
    }
    steer(first, live).map_err(|e| ListenError::new(first.endpoint(), ListenReason::Option("SO_REUSEPORT"), e))
}

/// Once they have joined: the kernel chooses among all again.
fn steer_to_all(first: &Listening, options: &ListenOptions, missing: usize) -> Result<(), ListenError> {
    if !is_steered(first, options, missing) {
        return Ok(());
    }
    unsteer(first).map_err(|error| ListenError::new(first.endpoint(), ListenReason::Option("SO_REUSEPORT"), error))
}

/// Undoes [`steer`].
fn unsteer(first: &Listening) -> io::Result<()> {
    match sockopt::set_int(first, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 0) {
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Makes the kernel choose among the first `live` sockets of the address only, at random.
fn steer(first: &Listening, live: usize) -> io::Result<()> {
    /// Where classic BPF finds a random number instead of packet data (linux/filter.h).
    const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
    let one = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let mut program = [
        one(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, RANDOM),
        one(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, u32::try_from(live.max(1)).unwrap_or(u32::MAX)),
        one(libc::BPF_RET | libc::BPF_A, 0),
    ];
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    setsockopt(&first.as_fd(), AttachReusePortCbpf, &program)?;
    Ok(())
}

#[cfg(test)]
mod tests;
