//! What the tests of this crate share.

use std::net::SocketAddr;
use std::os::fd::AsFd;

use nix::poll::{PollFd, PollFlags, poll};

use crate::{Endpoint, ListenOptions, Listening, listen};

/// How long a test waits for an event before it fails, milliseconds. Nothing is ever slept through.
const PATIENCE_MS: u16 = 20_000;

/// 127.0.0.1 or ::1, with a port of the system's choice.
pub(crate) const LOOPBACKS: [&str; 2] = ["127.0.0.1:0", "[::1]:0"];

pub(crate) fn endpoint(text: &str) -> Endpoint {
    Endpoint::Inet(text.parse().unwrap())
}

pub(crate) fn listener(text: &str) -> Listening {
    listen::open(&endpoint(text), &ListenOptions::default()).unwrap()
}

pub(crate) fn address(listening: &Listening) -> SocketAddr {
    listening.local().inet().unwrap()
}

pub(crate) fn wait_writable(fd: &impl AsFd) {
    wait(fd, PollFlags::POLLOUT);
}

pub(crate) fn wait_readable(fd: &impl AsFd) {
    wait(fd, PollFlags::POLLIN);
}

fn wait(fd: &impl AsFd, what: PollFlags) {
    let mut polled = [PollFd::new(fd.as_fd(), what)];
    assert_eq!(poll(&mut polled, PATIENCE_MS).unwrap(), 1, "no {what:?} within {PATIENCE_MS} ms");
}

/// Runs something on a thread with a network namespace of its own, which ends with it. Programs that it starts are in there too.
///
/// # Panics
/// Without the right to make one (CAP_SYS_ADMIN), and where `run` does.
pub(crate) fn in_network<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    let alone = || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).expect("the right to make a network namespace");
        run()
    };
    std::thread::scope(|scope| scope.spawn(alone).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
}
