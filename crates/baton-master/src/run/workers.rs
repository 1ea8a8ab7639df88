//! The master and its workers: starting one, hearing what it says, and its end.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use baton_control::apart::Apart;
use baton_control::servant::kept::KeptOverrides;
use baton_control::servant::link::{self, Begin, Heard, Link, ToMaster, ToWorker};
use socket2::Socket;
use tokio::sync::mpsc;

use super::{EARLIER_MAX, Event, Master, PARTS_MAX, Process};
use crate::opening;
use crate::process;
use crate::supervisor::{Effect, Ended, Stop, Text, Why, WorkerId};

/// How long to wait for the last words of a worker that has ended.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(200);
/// Bytes of start-up messages that are kept.
const LOGS_BYTES_MAX: usize = 64 * 1024;
/// Conversations about new addresses of a worker that wait for their turn.
const OPENINGS_MAX: usize = 16;

impl Master {
    pub(super) async fn spawn(&mut self, id: WorkerId, why: Why, text: Text, now: Instant) -> Vec<Effect> {
        match self.try_spawn(id, why, text).await {
            Ok(pid) => {
                self.supervisor.spawned(id, pid);
                self.messages().notice(&format!("New worker ({pid}) forked"));
                Vec::new()
            }
            Err(error) => {
                self.messages().alert(&format!("Cannot start a worker: {error}"));
                self.supervisor.exited(id, Ended::Exited(1), now)
            }
        }
    }

    pub(super) async fn try_spawn(&mut self, id: WorkerId, why: Why, text: Text) -> std::io::Result<i32> {
        let (ours, theirs) = link::pair()?;
        let pid = self.setup.program.spawn(theirs, why == Why::Upgrade)?;
        let link = self.follow(id, pid, ours, 0)?;
        let take_over = match why {
            Why::Upgrade => self.supervisor.current().and_then(|worker| u32::try_from(worker.pid).ok()),
            Why::First | Why::Replace => None,
        };
        let begin = Begin {
            is_first: why == Why::First,
            is_detached: self.setup.is_detached && why == Why::First,
            take_over,
            may_ask: vec![nix::unistd::geteuid().as_raw()],
            opens: self.setup.reading.is_some(),
        };
        // A worker that is gone already is reaped like any other.
        let _ = self.summon(&link, begin, why, text).await;
        Ok(pid)
    }

    /// Listens to a worker from now on.
    pub(super) fn follow(&mut self, id: WorkerId, pid: i32, line: Socket, state: u32) -> std::io::Result<Rc<Link>> {
        let link = Rc::new(Link::new(line)?);
        let reader = tokio::task::spawn_local(listen(id, link.clone(), self.events.clone()));
        self.workers.insert(
            id,
            Process {
                pid,
                link: link.clone(),
                reader,
                state,
                keeps_file: true,
                is_opening: false,
                openings: VecDeque::new(),
            },
        );
        Ok(link)
    }

    async fn summon(&self, link: &Link, begin: Begin, why: Why, text: Text) -> std::io::Result<()> {
        link.say_sockets(&ToWorker::Sockets, &self.held.fds()).await?;
        for (number, socket) in self.held.numbered() {
            link.say(&ToWorker::Number { number }, &[socket]).await?;
        }
        if let Some(input) = &self.input {
            link.say(&ToWorker::Input, &[input.as_fd()]).await?;
        }
        let of_files = self.text.iter().filter(|_| text == Text::Files);
        // With an upgrade the worker before is there to serve who waits.
        for earlier in self.earlier.iter().chain(of_files).filter(|_| why == Why::Replace) {
            link.say(&ToWorker::Earlier, &[earlier.as_fd()]).await?;
        }
        if let (Text::LastGood, Some(text)) = (text, &self.text) {
            link.say(&ToWorker::Text, &[text.as_fd()]).await?;
        }
        if let Some(tickets) = &self.tickets {
            link.say(&ToWorker::Tickets, &[tickets.as_fd()]).await?;
        }
        if let Some(counters) = &self.counters {
            link.say(&ToWorker::Counters, &[counters.as_fd()]).await?;
        }
        if let Some(health) = &self.health {
            link.say(&ToWorker::Health, &[health.as_fd()]).await?;
        }
        if let Some(overrides) = self.overrides.to_file()? {
            link.say(&ToWorker::Overrides, &[overrides.as_fd()]).await?;
        }
        for (kind, part) in &self.parts {
            link.say(&ToWorker::Part { kind: kind.clone() }, &[part.as_fd()]).await?;
        }
        link.say(&ToWorker::Begin(begin), &[]).await
    }

    pub(super) fn heard(&mut self, id: WorkerId, message: ToMaster, fds: Vec<OwnedFd>) -> Vec<Effect> {
        match message {
            ToMaster::Hold => {
                let mut new = Vec::new();
                for fd in fds {
                    match self.held.hold(fd, Some(id)) {
                        Ok(cookie) => new.extend(cookie),
                        Err(error) => self.messages().warning(&format!("a listening socket is not held: {error}")),
                    }
                }
                self.store(&new);
            }
            // Of something else than a socket there is nothing to remember.
            ToMaster::Number { number } => fds.iter().for_each(|fd| drop(self.held.number(fd, number))),
            ToMaster::Release { sockets } => {
                let workers = &self.workers;
                let closed = self.held.release(&sockets, id, |other| workers.contains_key(&other));
                self.unstore(&closed);
            }
            ToMaster::Open => self.open_for(id, fds),
            ToMaster::Retire { sockets } if self.setup.reading.is_some() => self.held.retire(&sockets, id),
            ToMaster::Retire { .. } => {}
            ToMaster::Text => {
                let before = std::mem::replace(&mut self.text, fds.into_iter().next());
                self.earlier.extend(before);
                if self.earlier.len() > EARLIER_MAX {
                    self.earlier.pop_front();
                }
            }
            ToMaster::Tickets => self.tickets = fds.into_iter().next(),
            // What a worker says that is leaving, another one knows better.
            ToMaster::Overrides | ToMaster::Override { .. } | ToMaster::Restored { .. } if self.is_leaving(id) => {}
            ToMaster::Counters | ToMaster::Health | ToMaster::Part { .. } if self.is_leaving(id) => {}
            ToMaster::Counters => self.counters = fds.into_iter().next(),
            ToMaster::Health => self.health = fds.into_iter().next(),
            ToMaster::Part { kind } if self.parts.len() < PARTS_MAX || self.parts.contains_key(&kind) => {
                match fds.into_iter().next() {
                    Some(part) => drop(self.parts.insert(kind, part)),
                    None => drop(self.parts.remove(&kind)),
                }
            }
            ToMaster::Part { .. } => {}
            ToMaster::Overrides => {
                self.overrides = fds.into_iter().next().map(KeptOverrides::of_file).unwrap_or_default()
            }
            ToMaster::Override { set } => self.overrides.set(set),
            ToMaster::Restored { of } => self.overrides.restored(&of),
            ToMaster::Settled => self.earlier.clear(),
            ToMaster::Said { text } => {
                let is_room = text.len() <= LOGS_BYTES_MAX;
                self.logs = if is_room { text } else { String::new() };
                self.logs_of = Some(id);
            }
            ToMaster::Ready { version, state, keeps_file } => {
                if let Some(process) = self.workers.get_mut(&id) {
                    (process.state, process.keeps_file) = (state, keeps_file);
                }
                self.answered = None;
                let effects = self.supervisor.ready(id, &version, Instant::now());
                self.tell_status();
                return effects;
            }
            ToMaster::HandedOver { to } => {
                let is_ours = self.workers.values().any(|process| u32::try_from(process.pid) == Ok(to));
                if !is_ours {
                    self.messages()
                        .notice(&format!("Process {to} took over from the worker; the master ends with it."));
                    let theirs = self.held.clear();
                    self.unstore(&theirs);
                    self.setup.manager.stopping();
                    return self.supervisor.stop(Stop::Soft, Instant::now());
                }
            }
            ToMaster::Pong => self.answered = Some(true),
        }
        Vec::new()
    }

    fn is_leaving(&self, id: WorkerId) -> bool {
        self.supervisor.leaving().iter().any(|worker| worker.id == id)
    }

    /// Talks with a worker about addresses to bind, one conversation after the other.
    fn open_for(&mut self, id: WorkerId, fds: Vec<OwnedFd>) {
        let Some(process) = self.workers.get_mut(&id) else { return };
        // One too many, and one that cannot be served, sees the end of its line.
        if process.openings.len() < OPENINGS_MAX && self.setup.reading.is_some() {
            process.openings.extend(fds.into_iter().next().map(Socket::from));
        }
        self.open_next(id);
    }

    /// A conversation is over.
    pub(super) fn opened(&mut self, id: WorkerId) {
        if let Some(process) = self.workers.get_mut(&id) {
            process.is_opening = false;
        }
        self.open_next(id);
    }

    /// Begins the next conversation, on a thread of its own: files are read.
    fn open_next(&mut self, id: WorkerId) {
        let Some(process) = self.workers.get_mut(&id).filter(|process| !process.is_opening) else { return };
        let (Some(line), Some(reading)) = (process.openings.pop_front(), self.setup.reading.clone()) else { return };
        let held = self.held.identities();
        let events = self.events.clone();
        let opening = Apart::run(move || {
            let tell = |address| drop(events.send(Event::Bound(id, address)));
            // A worker that is gone or silent has nothing more to ask.
            let _ = opening::answer(&line, &reading, &held, tell);
        });
        match opening {
            Ok(opening) => {
                process.is_opening = true;
                let events = self.events.clone();
                tokio::task::spawn_local(async move {
                    // However it ended, the next one has its turn.
                    let _ = opening.await;
                    let _ = events.send(Event::Opened(id));
                });
            }
            // The worker sees the end of its line.
            Err(error) => self.messages().warning(&format!("Cannot bind addresses for the worker: {error}")),
        }
    }

    /// Children have ended: first their last words, then the end.
    pub(super) async fn reap(&mut self, happened: &mut mpsc::UnboundedReceiver<Event>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for (pid, ended) in process::reap() {
            let Some(id) = self.workers.iter().find(|(_, process)| process.pid == pid).map(|(id, _)| *id) else {
                continue;
            };
            if let Some(process) = self.workers.get_mut(&id) {
                // It ends when everything was heard; a child of the worker that kept the line is not waited for.
                let _ = tokio::time::timeout(LAST_WORDS_WITHIN, &mut process.reader).await;
                process.reader.abort();
            }
            let mut later = Vec::new();
            while let Ok(event) = happened.try_recv() {
                match event {
                    Event::Heard(id, message, fds) => effects.extend(self.heard(id, message, fds)),
                    other => later.push(other),
                }
            }
            later.into_iter().for_each(|event| drop(self.events.send(event)));
            self.workers.remove(&id);
            if self.is_leaving(id) {
                let closed = self.held.forget(id);
                self.unstore(&closed);
            }
            effects.extend(self.supervisor.exited(id, ended, Instant::now()));
            self.tell_status();
        }
        effects
    }
}

/// Passes on what a worker says, until it is gone.
async fn listen(id: WorkerId, link: Rc<Link>, events: mpsc::UnboundedSender<Event>) {
    loop {
        match link.hear().await {
            Ok(Heard::Message(message, fds)) => {
                if events.send(Event::Heard(id, message, fds)).is_err() {
                    return;
                }
            }
            Ok(Heard::Unknown) => {}
            Ok(Heard::Closed) | Err(_) => return,
        }
    }
}
