//! `baton keep`: listening sockets that outlive the program that serves them.
//!
//! They are opened once and never closed; a program gets them by systemd's convention, and another one takes its place without
//! anybody being refused: what connects meanwhile waits in the kernel's queue. `supervisor` decides which program serves, [`run`]
//! does it, `export` hands the sockets to programs that were not started from here.
//!
//! It never accepts a connection, and does not know what is spoken over one.

pub mod listen;
pub mod probe;
pub mod readiness;

mod export;
mod instance;
mod manager;
mod run;
mod supervisor;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

pub use listen::Listen;
pub use probe::Probe;
pub use readiness::Readiness;
pub use run::run;

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Keep {
    /// Where to listen.
    pub listen: Vec<Listen>,
    /// The program, and its arguments.
    pub command: Vec<OsString>,
    /// What says that it serves.
    pub readiness: Readiness,
    /// How long it may take until then.
    pub ready_within: Duration,
    /// What tells it to finish its connections and end.
    pub drain_signal: Signal,
    /// How long that may take before it is killed; `None`: as long as it takes.
    pub drain_max: Option<Duration>,
    /// Where programs may ask for the sockets.
    pub export: Option<PathBuf>,
    /// Whom to become once the sockets are open: user, group, all groups.
    pub user: Option<(u32, u32, Vec<u32>)>,
    /// Also pass the sockets as this program expects them.
    pub dialect: Dialect,
}

/// How a program takes sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// By `LISTEN_FDS`, or by a number in its configuration (`bind fd@3`).
    #[default]
    Systemd,
    /// nginx: by the variable `NGINX`, and only non-blocking ones.
    Nginx,
}
