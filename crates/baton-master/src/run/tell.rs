//! What the master tells: those who asked for a reload, sessions of `-S`, askers of the worker, systemd, and the log.

use std::os::fd::AsFd;
use std::time::Instant;

use baton_config::Severity;
use baton_control::protocol::{Message, Outcome, Reply};
use baton_control::runtime::spoken_version;
use baton_control::servant::link::ToWorker;
use baton_model::{AccessLevel, Author, Level};
use tokio::net::UnixStream;

use super::{Master, Waiting, respond};
use crate::cli::{One, Processes, Question, Target};
use crate::supervisor::{Ended, Tone, Worker, WorkerId};

impl Master {
    /// Answers a session of `-S`, which may have left.
    pub(super) async fn answer_session(&self, question: Question) {
        match question {
            Question::Processes(reply) => drop(reply.send(self.processes(Instant::now()))),
            Question::Logs(reply) => drop(reply.send(self.logs.clone())),
            Question::Reload(reply) => drop(reply.send(Reply::Failed { reason: "not now".into() })),
            Question::Worker(target, level, by, reply) => drop(reply.send(self.connect(target, level, by).await)),
        }
    }

    /// A connection to the runtime API of a worker, which is new for each command.
    pub(super) async fn connect(
        &self,
        target: Target,
        level: AccessLevel,
        by: Author,
    ) -> Option<(i32, Option<UnixStream>)> {
        let process = match target {
            Target::Relative(1) => self.workers.get(&self.supervisor.current()?.id)?,
            Target::Pid(pid) => self.workers.values().find(|process| process.pid == pid)?,
            Target::Master | Target::Relative(_) | Target::Nobody => return None,
        };
        let Author { uid, pid, socket } = by;
        let session = ToWorker::Session { level: level.word().into(), uid, pid, socket };
        let stream = match UnixStream::pair() {
            Ok((ours, theirs)) => process.link.say(&session, &[theirs.as_fd()]).await.ok().map(|()| ours),
            Err(_) => None,
        };
        Some((process.pid, stream))
    }

    /// `show proc`.
    pub(super) fn processes(&self, now: Instant) -> Processes {
        let one = |worker: &Worker| One {
            pid: worker.pid,
            reloads: worker.reloads,
            uptime: now.saturating_duration_since(worker.since),
            version: if worker.version.is_empty() { "-".into() } else { spoken_version(&worker.version) },
        };
        let master = One {
            pid: std::process::id().cast_signed(),
            reloads: self.supervisor.reloads,
            uptime: now.saturating_duration_since(self.since),
            version: spoken_version(&self.setup.version),
        };
        let trouble = self.supervisor.crash_loop(now).map(|(crashes, wait)| match wait.is_zero() {
            true => format!("{crashes} workers crashed in a row"),
            false => format!("{crashes} workers crashed in a row; the next one starts in {} ms", wait.as_millis()),
        });
        Processes {
            master,
            failed: self.supervisor.reloads_failed,
            workers: self.supervisor.current().into_iter().chain(self.supervisor.starting()).map(one).collect(),
            leaving: self.supervisor.leaving().iter().map(one).collect(),
            trouble,
            last_reload_failed: self.supervisor.last_reload_failed,
        }
    }

    /// Hands an asker to the worker that serves.
    pub(super) async fn hand_on(&mut self, stream: UnixStream) {
        let current = self.supervisor.current().and_then(|worker| self.workers.get(&worker.id));
        let handed = match current {
            Some(process) => process.link.say(&ToWorker::Serve, &[stream.as_fd()]).await.is_ok(),
            None => false,
        };
        if !handed {
            let reason = "no worker is running; try again".into();
            respond(stream, Reply::Failed { reason }, &self.busy);
        }
    }

    pub(super) fn reloaded(&mut self, outcome: Result<Reply, String>, waiting: Vec<Waiting>) {
        self.reloads_under_way = self.reloads_under_way.saturating_sub(1);
        let reply = outcome.unwrap_or_else(|reason| Reply::Failed { reason });
        let is_accepted = matches!(&reply, Reply::Reload(outcome) if outcome.accepted);
        self.supervisor.reloaded(is_accepted);
        match is_accepted {
            true => self.messages().notice("Loading success."),
            false => self.messages().warning("Loading failure!"),
        }
        waiting.into_iter().for_each(|waiting| waiting.answer(reply.clone(), &self.busy));
        self.setup.manager.ready(&self.status());
    }

    pub(super) fn upgraded(&mut self) {
        let done = Message::plain(Severity::Notice, "upgrade", "The new binary serves now.", std::process::id());
        self.upgrade_is_over(true, vec![done]);
    }

    /// The reason is what the new worker reported: an error of the configuration is not the program's.
    pub(super) fn not_upgraded(&mut self, id: WorkerId, ended: Ended) {
        let pid = std::process::id();
        let logs = if self.logs_of == Some(id) { self.logs.clone() } else { String::new() };
        let serving = match self.supervisor.current() {
            Some(_) => "the previous worker keeps serving",
            None => "a worker starts with the configuration that was in use",
        };
        let text = format!("Not upgraded: {}; {serving}.", why_not_ready(&logs, ended));
        self.messages().alert(&text);
        let mut messages = vec![Message::plain(Severity::Alert, "upgrade", &text, pid)];
        if !logs.is_empty() {
            messages.insert(0, Message { rendered: logs, ..Message::plain(Severity::Alert, "worker", "", pid) });
        }
        self.upgrade_is_over(false, messages);
    }

    fn upgrade_is_over(&mut self, accepted: bool, messages: Vec<Message>) {
        self.supervisor.reloaded(accepted);
        self.answer(&Reply::Reload(Outcome { accepted, generation: 1, messages, ..Outcome::default() }));
        self.setup.manager.ready(&self.status());
    }

    pub(super) fn answer(&mut self, reply: &Reply) {
        std::mem::take(&mut self.waiting).into_iter().for_each(|waiting| waiting.answer(reply.clone(), &self.busy));
    }

    /// Tells the service manager that we are alive, if the worker is.
    pub(super) async fn alive(&mut self) {
        let current = self.supervisor.current().and_then(|worker| self.workers.get(&worker.id));
        let Some(process) = current else { return };
        if self.is_started && self.answered != Some(false) {
            self.setup.manager.alive();
        }
        if process.link.say(&ToWorker::Ping, &[]).await.is_ok() {
            self.answered = Some(false);
        }
    }

    /// How we are, in a sentence.
    pub(super) fn status(&self) -> String {
        let mut text = match (self.supervisor.current(), self.supervisor.crash_loop(Instant::now())) {
            (_, Some((crashes, wait))) if !wait.is_zero() => {
                format!("{crashes} workers crashed in a row; the next one starts in {wait:?}")
            }
            (Some(worker), _) => format!("Serving with worker {}", worker.pid),
            (None, _) => "Starting a worker".into(),
        };
        if self.supervisor.crashed_total > 0 {
            text.push_str(&format!("; crashed workers: {}", self.supervisor.crashed_total));
        }
        if self.supervisor.last_reload_failed {
            text.push_str("; the last reload was rejected");
        }
        text + "."
    }

    pub(super) fn tell_status(&self) {
        if self.is_started {
            self.setup.manager.status(&self.status());
        }
    }

    pub(super) fn say(&self, tone: Tone, text: &str) {
        let (severity, level) = match tone {
            Tone::Notice => (Severity::Notice, Level(5)),
            Tone::Warning => (Severity::Warning, Level(4)),
            Tone::Alert => (Severity::Alert, Level(1)),
        };
        self.messages().event(severity, level, text);
    }
}

/// Why a new worker did not begin to serve: the first alert that it reported, or how it ended.
fn why_not_ready(logs: &str, ended: Ended) -> String {
    let alert = logs.lines().find_map(|line| line.strip_prefix("[ALERT]")?.split_once(" : "));
    match (alert, ended) {
        (Some((_, reason)), _) => format!("the new worker failed to start: {}", reason.trim_end_matches('.')),
        (None, Ended::Exited(code)) => {
            format!("the new program ended with exit code {code} before it was ready, and reported no reason")
        }
        (None, Ended::Signaled(signal)) => {
            format!("the new program was ended by signal {signal} before it was ready")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_upgrade_names_what_the_worker_reported() {
        let logs = "[NOTICE]   (7) : baton version is 1\n[ALERT]    (7) : config : parsing [a.cfg:9] : unknown keyword 'x'.\n   \
                    |   x\n[ALERT]    (7) : config : Fatal errors found in configuration.\n";
        let check = |logs: &str, ended, expect: &str| assert_eq!(why_not_ready(logs, ended), expect);
        check(
            logs,
            Ended::Exited(1),
            "the new worker failed to start: config : parsing [a.cfg:9] : unknown keyword 'x'",
        );
        let none = "the new program ended with exit code 3 before it was ready, and reported no reason";
        check("[NOTICE]   (7) : baton version is 1\n", Ended::Exited(3), none);
        check("", Ended::Signaled(9), "the new program was ended by signal 9 before it was ready");
    }
}
