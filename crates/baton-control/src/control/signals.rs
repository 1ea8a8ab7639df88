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
        })
    }
}

/// SIGTERM and SIGINT end any other process without our doing; to the first one of a container the kernel gives only signals
/// that it listens to.
pub(super) fn end_as_first_process() -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signal = signal(kind)?;
        tokio::spawn(async move {
            signal.recv().await;
            std::process::exit(128 + kind.as_raw_value());
        });
    }
    Ok(())
}
