//! Leaving the terminal, and the pid file.

use baton_control::Messages;
use baton_kernel::process::daemon::{Daemonized, Ready, daemonize};
use baton_kernel::process::pid_file::PidFile;
use baton_model::Global;

use super::{Stop, is_under_systemd};
use crate::arguments::Run;

/// Whoever started us, when that one waits for a word.
#[derive(Debug)]
pub(super) struct Terminal {
    waits: Option<Ready>,
}

impl Terminal {
    /// Lets go of the terminal, if this is a daemon: we serve.
    pub(super) fn serving(self) {
        if let Some(waits) = self.waits
            && let Err(error) = waits.ready(true)
        {
            eprintln!("[WARNING]  ({}) : {error}", std::process::id());
        }
    }
}

/// Forks when `-D` or `daemon` asks for that. Only the daemon comes back from here; the process that was started waits for its
/// word and ends.
pub(super) fn leave(run: &Run, global: &Global) -> Result<Terminal, Stop> {
    let is_daemon = (run.daemon || global.daemon && !is_under_systemd(run)) && !run.foreground;
    if !is_daemon {
        return Ok(Terminal { waits: None });
    }
    match daemonize() {
        // The daemon's sockets must not be touched by destructors here: it has them too.
        Ok(Daemonized::Parent(waiting)) => std::process::exit(waiting.wait()),
        Ok(Daemonized::Child(ready)) => Ok(Terminal { waits: Some(ready) }),
        Err(error) => Err(format!("[haproxy.main()] Cannot fork: {error}").into()),
    }
}

/// `-p`, or `pidfile`; opened before anything is given up.
pub(super) fn open_pid_file(run: &Run, global: &Global) -> Result<Option<PidFile>, Stop> {
    let Some(path) = run.pid_file.as_deref().or(global.pidfile.as_deref()) else { return Ok(None) };
    let file = PidFile::open(path);
    Ok(Some(file.map_err(|_| format!("[haproxy.main()] Cannot create pidfile {}", path.display()))?))
}

/// Writes our number, after the last fork.
pub(super) fn write_pid(file: Option<PidFile>, messages: &Messages) {
    if let Some(mut file) = file
        && let Err(error) = file.write(&[std::process::id() as i32])
    {
        messages.warning(&format!("cannot write the pid file: {error}"));
    }
}
