//! The signals that a running process listens to.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that are listened to. Several of one kind that arrive before it is looked at are one.
pub(super) struct Signals {
    pub(super) usr1: Signal,
    pub(super) usr2: Signal,
    pub(super) hup: Signal,
    pub(super) ttou: Signal,
    pub(super) ttin: Signal,
    /// SIGTERM and SIGINT, if somebody listens; see [`Signals::listen_for_the_end`].
    pub(super) end: Option<(Signal, Signal)>,
    /// SIGCHLD, if this is the first process of a PID namespace; see [`Signals::listen_for_children`].
    pub(super) child: Option<Signal>,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Signals> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Signals {
            usr1: signal(SignalKind::user_defined1())?,
            usr2: signal(SignalKind::user_defined2())?,
            hup: signal(SignalKind::hangup())?,
            ttou: of(nix::libc::SIGTTOU)?,
            ttin: of(nix::libc::SIGTTIN)?,
            end: None,
            child: None,
        })
    }

    /// Listens for children that have ended: to the first process of a PID namespace the kernel gives those whose parent has ended.
    pub(super) fn listen_for_children(&mut self) -> io::Result<()> {
        self.child = Some(signal(SignalKind::child())?);
        Ok(())
    }

    /// SIGTERM and SIGINT do not end this process by themselves any more: whoever asks for this does something first.
    pub(super) fn listen_for_the_end(&mut self) -> io::Result<()> {
        if self.end.is_none() {
            self.end = Some((signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?));
        }
        Ok(())
    }
}

/// A child has ended, if that is listened for.
pub(super) async fn a_child_ended(child: &mut Option<Signal>) {
    match child {
        Some(child) => _ = child.recv().await,
        None => std::future::pending().await,
    }
}

/// The number of the signal that asks for the end at once, of those that are listened to.
pub(super) async fn the_end(listened: &mut Option<(Signal, Signal)>) -> i32 {
    let Some((term, int)) = listened else { return std::future::pending().await };
    tokio::select! {
        _ = term.recv() => nix::libc::SIGTERM,
        _ = int.recv() => nix::libc::SIGINT,
    }
}
