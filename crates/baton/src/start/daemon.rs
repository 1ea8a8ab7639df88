//! Leaving the terminal, and the pid file.

use baton_control::Messages;
use baton_control::servant::Summoned;
use baton_kernel::output;
use baton_kernel::process::daemon::{ChildEnd, Daemonized, Nowhere, daemonize};
use baton_kernel::process::pid_file::PidFile;
use baton_model::Global;

use super::{Stop, is_under_systemd, plain};
use crate::arguments::Run;

/// Whoever started us, when that one waits for a word, and the pid file with our number.
#[derive(Debug)]
pub(super) struct Terminal {
    waits: Option<ChildEnd>,
    pid_file: Option<PidFile>,
    /// A worker whose master is a daemon.
    nowhere: Option<Nowhere>,
    /// Whether the file also names those we take over from.
    names_others: bool,
}

impl Terminal {
    /// Of a worker: its master has left the terminal, or will.
    pub(super) fn of_worker(summoned: &Summoned) -> Terminal {
        let nowhere = summoned.begin.is_detached.then(|| Nowhere::open().ok()).flatten();
        Terminal { waits: None, pid_file: None, nowhere, names_others: false }
    }

    /// Whether this is a daemon.
    pub(super) fn is_daemon(&self) -> bool {
        self.waits.is_some()
    }

    /// We serve: the pid file holds from now on, and a daemon lets go of its terminal.
    pub(super) fn serving(self) {
        if let Some(mut pid_file) = self.pid_file {
            if self.names_others
                && let Err(error) = pid_file.write(&[std::process::id() as i32])
            {
                warn(&format!("cannot write the pid file: {error}"));
            }
            pid_file.keep();
        }
        let left = match self.waits {
            Some(waits) => waits.ready(true),
            None => self.nowhere.map_or(Ok(()), |nowhere| nowhere.replace_terminal()),
        };
        if let Err(error) = left {
            warn(&error.to_string());
        }
    }
}

fn warn(text: &str) {
    output::print_error(&format!("[WARNING]  ({}) : {text}\n", std::process::id()));
}

/// Whether `-D` or `daemon` asks for the background, and nothing forbids it.
fn is_daemon(run: &Run, global: &Global) -> bool {
    (run.daemon || global.daemon && !is_under_systemd(run)) && !run.foreground
}

/// Opens the pid file, forks when a daemon is asked for, and writes our number. Only the daemon comes back from here; the
/// process that was started waits for its word and ends. What the pid file held before comes back if we never serve.
///
/// Until it is decided who serves, the file names those we take over from (`before`) too: whoever is left when the other is
/// killed can be found by it.
pub(super) fn leave(run: &Run, global: &Global, before: &[u32], messages: &Messages) -> Result<Terminal, Stop> {
    let is_daemon = is_daemon(run, global);
    let pid_file = open_pid_file(run, global, is_daemon, messages)?;
    let waits = if is_daemon { fork()? } else { None };
    let mut terminal = Terminal { waits, pid_file, nowhere: None, names_others: !before.is_empty() };
    let before = before.iter().filter_map(|pid| i32::try_from(*pid).ok());
    let pids: Vec<i32> = [std::process::id() as i32].into_iter().chain(before).collect();
    if let Some(file) = &mut terminal.pid_file
        && let Err(error) = file.write(&pids)
    {
        let text = format!("[haproxy.main()] Cannot write pidfile {}: {}", file.path().display(), plain(&error));
        if is_daemon {
            return Err(text.into());
        }
        messages.notice(&text);
    }
    Ok(terminal)
}

fn fork() -> Result<Option<ChildEnd>, Stop> {
    match daemonize() {
        // The daemon's sockets must not be touched by destructors here: it has them too.
        Ok(Daemonized::Parent(waiting)) => std::process::exit(waiting.wait()),
        Ok(Daemonized::Child(ready)) => Ok(Some(ready)),
        Err(error) => Err(format!("[haproxy.main()] Cannot fork: {error}").into()),
    }
}

/// `-p`, or `pidfile`, before anything is given up. A daemon does not start without it. In the foreground, where HAProxy
/// writes none, its absence is remarked.
fn open_pid_file(run: &Run, global: &Global, is_daemon: bool, messages: &Messages) -> Result<Option<PidFile>, Stop> {
    let Some(path) = run.pid_file.as_deref().or(global.pidfile.as_deref()) else { return Ok(None) };
    match PidFile::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) => {
            let text = format!("[haproxy.main()] Cannot create pidfile {}: {}", path.display(), plain(&error));
            if is_daemon {
                return Err(text.into());
            }
            messages.notice(&text);
            Ok(None)
        }
    }
}
