//! The master becomes a new binary: `exec` keeps its process id, its children and the descriptors it names.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use baton_control::control_socket::ControlSocket;
use baton_control::early_signals;
use baton_control::servant::kept::KeptOverrides;
use baton_control::servant::link::STATE_VERSION;
use baton_kernel::output;
use baton_kernel::process::over_exec::{hold_back, keep, keep_no_more, let_in, memory_file, read_whole, take};
use nix::sys::signal::Signal;
use socket2::Socket;
use tokio::sync::mpsc;

use super::{ANSWERED_WITHIN, Event, Master, Setup};
use crate::state::{self, STATE_ARGUMENT, SavedWorker, State};
use crate::supervisor::WorkerId;

/// Signals that would end a master that has just begun.
const SIGNALS: [Signal; 6] =
    [Signal::SIGUSR1, Signal::SIGUSR2, Signal::SIGHUP, Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD];

/// How often a conversation that goes on is waited for.
const PUT_OFF_MAX: u32 = 50;

/// What a master was before it became this binary.
#[derive(Debug)]
pub struct Resumed {
    state: State,
    /// The socket of `-S`.
    pub cli: Option<OwnedFd>,
}

impl Resumed {
    /// From the number in [`STATE_ARGUMENT`].
    ///
    /// # Errors
    /// A sentence. The worker serves on without a master.
    pub fn from_argument(number: &str) -> Result<Resumed, String> {
        let wrong = |error: std::io::Error| format!("the master cannot resume: {error}");
        let number: RawFd = number.parse().map_err(|_| format!("{STATE_ARGUMENT}{number}: not a descriptor"))?;
        let bytes = take(number).and_then(|fd| read_whole(fd, state::BYTES_MAX)).map_err(wrong)?;
        let state = State::from_bytes(&bytes).map_err(wrong)?;
        let cli = state.cli.and_then(|number| take(number).ok());
        Ok(Resumed { state, cli })
    }

    /// Nobody sees standard output and error.
    pub fn is_detached(&self) -> bool {
        self.state.is_detached
    }
}

impl Master {
    /// Becomes the program on disk, if nothing is under way; else soon.
    pub(super) fn reexec(&mut self, is_idle: bool) {
        if self.supervisor.is_stopping() {
            return;
        }
        let is_starting = self.supervisor.starting().is_some();
        let is_waited_for = !is_idle && self.put_off < PUT_OFF_MAX;
        let Some(current) = self.supervisor.current().filter(|_| !is_starting && !is_waited_for) else {
            // A start has its own limit, and whoever waits for its result gets the time after it.
            self.put_off = if is_starting { 0 } else { self.put_off + 1 };
            return self.reexec_soon();
        };
        let understood = self.workers.get(&current.id).map_or(0, |process| process.state);
        if understood != STATE_VERSION {
            self.messages().warning(&format!(
                "The master keeps its binary: the new one reads version {understood} of its state, not {}.",
                STATE_VERSION
            ));
            return;
        }
        let error = match self.try_reexec() {
            Ok(never) => match never {},
            Err(error) => error,
        };
        self.messages().alert(&format!("The master cannot become the new binary and keeps the old one: {error}"));
    }

    /// Tries later.
    pub(super) fn reexec_soon(&self) {
        let events = self.events.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(ANSWERED_WITHIN).await;
            let _ = events.send(Event::Reexec);
        });
    }

    fn try_reexec(&mut self) -> std::io::Result<std::convert::Infallible> {
        let now = Instant::now();
        let current = self.supervisor.current().and_then(|worker| self.workers.get(&worker.id));
        if !current.is_some_and(|process| process.keeps_file)
            && let Some(socket) = &mut self.socket
        {
            // A program that does not know of it would leave everybody waiting there.
            socket.remove_file();
        }
        let by_name = self.socket.as_ref().and_then(ControlSocket::by_name);
        let by_path = self.socket.as_ref().and_then(ControlSocket::by_path);
        let workers = self.supervisor.leaving().iter().chain(self.supervisor.current());
        let lines: Vec<_> = workers.filter_map(|worker| Some((worker, self.workers.get(&worker.id)?))).collect();
        let mut kept = Vec::new();
        let overrides = self.overrides.to_file()?;
        let state = State {
            version: STATE_VERSION,
            workers: lines
                .iter()
                .map(|(worker, process)| {
                    let line = process.link.socket().as_fd();
                    kept.push(line);
                    SavedWorker::of(worker, AsRawFd::as_raw_fd(&line), now)
                })
                .collect(),
            sockets: self.held.fds().iter().map(AsRawFd::as_raw_fd).collect(),
            numbers: self.held.numbered().map(|(number, fd)| (AsRawFd::as_raw_fd(&fd), number)).collect(),
            input: self.input.as_ref().map(AsRawFd::as_raw_fd),
            text: self.text.as_ref().map(AsRawFd::as_raw_fd),
            earlier: self.earlier.iter().map(AsRawFd::as_raw_fd).collect(),
            tickets: self.tickets.as_ref().map(AsRawFd::as_raw_fd),
            counters: self.counters.as_ref().map(AsRawFd::as_raw_fd),
            health: self.health.as_ref().map(AsRawFd::as_raw_fd),
            overrides: overrides.as_ref().map(AsRawFd::as_raw_fd),
            parts: self.parts.iter().map(|(kind, part)| (kind.clone(), AsRawFd::as_raw_fd(part))).collect(),
            cli: self.cli.as_ref().map(AsRawFd::as_raw_fd),
            asked: by_name.map(AsRawFd::as_raw_fd),
            asked_at: by_path.map(|(listener, path)| (AsRawFd::as_raw_fd(listener), path.to_owned())),
            is_detached: self.setup.is_detached,
            uptime_ms: u64::try_from(now.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX),
            reloads: self.supervisor.reloads,
            reloads_failed: self.supervisor.reloads_failed,
            crashed: self.supervisor.crashed_total,
            startup_logs: self.logs.clone(),
        };
        kept.extend(self.held.fds());
        kept.extend(by_name.into_iter().chain(by_path.map(|(listener, _)| listener)).map(AsFd::as_fd));
        kept.extend(
            self.input
                .iter()
                .chain(&self.text)
                .chain(&self.earlier)
                .chain(&self.tickets)
                .chain(&self.counters)
                .chain(&self.health)
                .chain(&overrides)
                .chain(self.parts.values())
                .chain(&self.cli)
                .map(AsFd::as_fd),
        );
        let file = memory_file("baton-master", &state.to_bytes()?)?;
        kept.push(file.as_fd());
        // The threads that write it end with this program.
        output::flush(output::FLUSHED_WITHIN);
        hold_back(&SIGNALS)?;
        let outcome = kept.iter().try_for_each(|fd| keep(fd).map(|_| ()));
        let error = match outcome {
            Ok(()) => {
                let program = &self.setup.program;
                let state = format!("{STATE_ARGUMENT}{}", AsRawFd::as_raw_fd(&file));
                Command::new(&program.path).arg0(&program.called).arg(state).args(&program.arguments).exec()
            }
            Err(error) => error,
        };
        for fd in &kept {
            // Was possible a moment ago.
            let _ = keep_no_more(fd);
        }
        let_in(&SIGNALS)?;
        Err(error)
    }

    /// Goes on as what was before.
    ///
    /// # Errors
    /// The reactor's.
    pub(super) fn resumed(
        setup: Setup,
        resumed: Resumed,
        events: mpsc::UnboundedSender<Event>,
    ) -> std::io::Result<Master> {
        let now = Instant::now();
        let state = resumed.state;
        let mut master = Master::new(setup, events)?;
        master.since = now.checked_sub(Duration::from_millis(state.uptime_ms)).unwrap_or(now);
        master.is_started = true;
        master.logs = state.startup_logs;
        master.input = state.input.and_then(|number| take(number).ok());
        master.text = state.text.and_then(|number| take(number).ok());
        master.earlier = state.earlier.into_iter().filter_map(|number| take(number).ok()).collect();
        master.tickets = state.tickets.and_then(|number| take(number).ok());
        master.counters = state.counters.and_then(|number| take(number).ok());
        master.health = state.health.and_then(|number| take(number).ok());
        master.parts = state.parts.into_iter().filter_map(|(kind, number)| Some((kind, take(number).ok()?))).collect();
        let overrides = state.overrides.and_then(|number| take(number).ok());
        master.overrides = overrides.map(KeptOverrides::of_file).unwrap_or_default();
        let listener = |number: RawFd| take(number).ok().map(Into::into);
        let by_path = state.asked_at.and_then(|(number, path)| Some((listener(number)?, path)));
        let mut socket = ControlSocket::resumed(state.asked.and_then(listener), by_path);
        if !socket.has_file() {
            // The master before did not know of it.
            socket.open_file();
        }
        master.socket = Some(socket);
        let current = state.workers.last().map(|worker| WorkerId(worker.id));
        for number in state.sockets {
            let named = state.numbers.iter().find(|(fd, _)| *fd == number).map(|(_, number)| *number);
            let hold = |fd: OwnedFd| {
                let again = fd.try_clone()?;
                master.held.hold(fd, current)?;
                named.map_or(Ok(()), |named| master.held.number(&again, named))
            };
            if let Err(error) = take(number).and_then(hold) {
                master.messages().warning(&format!("a listening socket is no longer held: {error}"));
            }
        }
        let mut workers = Vec::new();
        for saved in &state.workers {
            // One without a line is still waited for.
            if let Ok(line) = take(saved.line) {
                master.follow(WorkerId(saved.id), saved.pid, Socket::from(line), STATE_VERSION)?;
            }
            workers.push(saved.worker(now));
        }
        master.supervisor.resume(workers);
        master.supervisor.reloads = state.reloads;
        master.supervisor.reloads_failed = state.reloads_failed;
        master.supervisor.crashed_total = state.crashed;
        // Who ended in between.
        let _ = master.events.send(Event::Child);
        Ok(master)
    }

    /// Signals that waited for this binary may come.
    pub(super) fn let_signals_in() {
        // Without them there is a master that can be killed only; it says so by doing nothing.
        let _ = let_in(&SIGNALS).and_then(|()| early_signals::come());
    }
}
