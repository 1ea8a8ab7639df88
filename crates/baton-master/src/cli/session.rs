//! One session of the master's socket: its lines are taken apart, and each command is answered before the next is looked at.

use std::time::Duration;

use baton_control::operators::Connection;
use baton_control::operators::line::{self, Input, Line, Step};
use baton_control::operators::row::{self, Row, hidden, row};
use baton_control::protocol::Reply;
use baton_model::{AccessLevel, Author};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Question;
use super::prefix::{Target, join};

/// Bytes read at once.
const READ_BYTES: usize = 4096;
/// Bytes of a line with its payload, as `tune.bufsize` is for a worker.
const LINE_BYTES_MAX: usize = 16384;
/// How long a session without a prompt may be silent, and any may leave its answer unread.
const SILENCE: Duration = Duration::from_secs(10);
/// How long a session with a prompt may be silent.
const SILENCE_AT_PROMPT: Duration = Duration::from_secs(3600);

#[derive(Clone, Copy)]
enum Act {
    /// Understood before words are compared; a row for the help.
    Prefix,
    Lower(AccessLevel),
    Reload,
    Level,
    Sockets,
    Processes,
    Logs,
    Version,
    Help,
    Prompt,
    Quit,
    Switch(Flag),
}

#[derive(Clone, Copy)]
enum Flag {
    Expert,
    Experimental,
    Debug,
}

use AccessLevel::{Admin, Operator, User};

/// All commands, in the order of the help.
static ROWS: &[Row<Act>] = &[
    row(&["@!<pid>"], "", "send a command to the <pid> process", User, Act::Prefix),
    row(&["@<relative pid>"], "", "send a command to the <relative pid> process", User, Act::Prefix),
    row(&["@master"], "", "send a command to the master process", User, Act::Prefix),
    row(&["operator"], "", "drop the rights of an admin in this session", User, Act::Lower(Operator)),
    row(&["reload"], "", "reload the configuration, wait, and show the result", Operator, Act::Reload),
    row(&["show", "cli", "level"], "", "access level of this session", User, Act::Level),
    row(&["show", "cli", "sockets"], "", "the sockets of the master's runtime API", User, Act::Sockets),
    row(&["show", "proc"], "", "the master and its workers", User, Act::Processes),
    row(&["show", "startup-logs"], "", "start-up messages of the worker", User, Act::Logs),
    row(&["show", "version"], "", "the version of the process", User, Act::Version),
    row(&["user"], "", "drop to the rights of a user in this session", User, Act::Lower(User)),
    row(&["help"], "[<command>]", "all commands, or the similar ones", User, Act::Help),
    row(&["prompt"], "", "switch interactive mode with a prompt on or off", User, Act::Prompt),
    row(&["quit"], "", "end this session", User, Act::Quit),
    hidden(&["expert-mode"], Admin, Act::Switch(Flag::Expert)),
    hidden(&["experimental-mode"], Admin, Act::Switch(Flag::Experimental)),
    hidden(&["mcli-debug-mode"], Admin, Act::Switch(Flag::Debug)),
];

/// What a session remembers.
struct Session<'a, E> {
    connection: &'a Connection,
    version: &'a str,
    events: mpsc::UnboundedSender<E>,
    level: AccessLevel,
    by: Author,
    is_interactive: bool,
    is_over: bool,
    /// Whom commands without a prefix are for, and its process id.
    target: (Target, i32),
    is_expert: bool,
    is_experimental: bool,
    is_debugging: bool,
}

/// Speaks with a peer until it has nothing more to say.
pub(super) async fn serve<E: From<Question>>(
    connection: Connection,
    (level, by): (AccessLevel, Author),
    version: &str,
    events: mpsc::UnboundedSender<E>,
) {
    let mut session = Session {
        connection: &connection,
        version,
        events,
        level,
        by,
        is_interactive: false,
        is_over: false,
        target: (Target::Master, 0),
        is_expert: false,
        is_experimental: false,
        is_debugging: false,
    };
    // A peer that is gone, or does not read, ends it.
    let _ = session.converse().await;
    connection.finish();
}

/// The peer is gone.
struct Gone;

impl<E: From<Question>> Session<'_, E> {
    async fn converse(&mut self) -> Result<(), Gone> {
        let mut input = Input::new(LINE_BYTES_MAX);
        let mut room = [0; READ_BYTES];
        let mut has_answered = false;
        loop {
            match input.step() {
                Step::Line(line) => {
                    self.obey(line).await?;
                    has_answered = true;
                    if self.is_over {
                        return Ok(());
                    }
                }
                Step::Payload => {}
                Step::TooLong => return Ok(()),
                // Without a prompt what came at once is answered, and nothing else is waited for.
                Step::Wait if has_answered && !self.is_interactive => return Ok(()),
                Step::Wait => {
                    let silence = if self.is_interactive { SILENCE_AT_PROMPT } else { SILENCE };
                    match timeout(silence, self.connection.read(&mut room)).await {
                        Ok(Ok(count)) if count > 0 => input.push(&room[..count]),
                        _ => return Ok(()),
                    }
                }
            }
        }
    }

    /// The commands of one line, then the prompt.
    async fn obey(&mut self, line: Line) -> Result<(), Gone> {
        let Some(commands) = line::commands(&line.text) else { return Err(Gone) };
        let last = commands.len().saturating_sub(1);
        for (number, mut words) in commands.into_iter().enumerate() {
            let prefix = words.first().and_then(|word| Target::of(word));
            let mut target = self.target.0;
            if let Some(named) = prefix {
                let word = words.remove(0);
                let Some(pid) = self.find(named).await else {
                    self.write(&format!("Can't find the target PID matching the prefix '{word}'\n")).await?;
                    continue;
                };
                target = named;
                if words.is_empty() {
                    self.target = (named, pid);
                    continue;
                }
            }
            if words.is_empty() && self.is_interactive && target == Target::Master {
                continue;
            }
            let payload = line.payload.as_deref().filter(|_| number == last);
            match target {
                Target::Master => self.command(&words).await?,
                Target::Relative(_) | Target::Pid(_) | Target::Nobody => self.pass_on(target, &words, payload).await?,
            }
            if self.is_over {
                break;
            }
        }
        // Also after the last one, as in HAProxy.
        if self.is_interactive {
            let prompt = self.prompt().await;
            self.write(&prompt).await?;
        }
        Ok(())
    }

    async fn command(&mut self, words: &[String]) -> Result<(), Gone> {
        let Some((_, row)) = row::find(ROWS, words) else {
            return self.write(&row::unknown(ROWS, words)).await;
        };
        if self.level < row.level {
            return self.write("Permission denied\n\n").await;
        }
        let arguments = &words[row.words.len()..];
        let answer = match row.act {
            Act::Lower(level) => {
                self.level = self.level.min(level);
                (self.is_expert, self.is_experimental, self.is_debugging) = (false, false, false);
                return Ok(());
            }
            Act::Switch(flag) => {
                let value = arguments.first().is_none_or(|word| word == "on");
                match flag {
                    Flag::Expert => self.is_expert = value,
                    Flag::Experimental => self.is_experimental = value,
                    Flag::Debug => self.is_debugging = value,
                }
                return Ok(());
            }
            Act::Prompt => {
                self.is_interactive = !self.is_interactive;
                return Ok(());
            }
            Act::Quit => {
                self.is_over = true;
                return Ok(());
            }
            Act::Reload => {
                self.is_over = true;
                self.reload().await?
            }
            Act::Prefix | Act::Help => row::help(ROWS, arguments),
            Act::Level => format!("{}\n", self.level.word()),
            Act::Sockets => String::new(),
            Act::Version => format!("{}\n", self.version),
            Act::Processes => self.ask(Question::Processes).await?.to_string(),
            Act::Logs => self.ask(Question::Logs).await?,
        };
        self.write(&(answer + "\n")).await
    }

    /// As HAProxy shows it from 2.7 on: whether it was accepted, and what there was to say.
    async fn reload(&mut self) -> Result<String, Gone> {
        let (is_accepted, said) = match self.ask(Question::Reload).await? {
            Reply::Reload(outcome) => {
                let mut said: String = outcome.messages.iter().map(|message| message.rendered.as_str()).collect();
                for change in &outcome.plan.changes {
                    said.push_str(&change.change);
                    said.push('\n');
                }
                outcome.plan.ended().iter().for_each(|ended| said.push_str(&format!("{ended}\n")));
                (outcome.accepted, said)
            }
            Reply::Failed { reason } => (false, reason + "\n"),
            other => (false, format!("unexpected reply: {other:?}\n")),
        };
        Ok(format!("Success={}\n--\n{said}", u8::from(is_accepted)))
    }

    /// The process id of a target; 0 for the master.
    async fn find(&self, target: Target) -> Option<i32> {
        if target == Target::Master {
            return Some(0);
        }
        let (reply, answer) = oneshot::channel();
        self.events.send(Question::Worker(target, self.level, self.by.clone(), reply).into()).ok()?;
        Some(answer.await.ok()??.0)
    }

    /// Sends a command to a worker, and its answer to the peer.
    async fn pass_on(&self, target: Target, words: &[String], payload: Option<&[u8]>) -> Result<(), Gone> {
        let found = self.ask(|reply| Question::Worker(target, self.level, self.by.clone(), reply)).await?;
        let Some((pid, Some(mut stream))) = found else {
            return self.write("The worker cannot be reached right now.\n\n").await;
        };
        let mut line = join(words).into_bytes();
        if let Some(payload) = payload {
            line.extend_from_slice(b" <<\n");
            line.extend_from_slice(payload);
        }
        line.push(b'\n');
        let ended = || format!("Process {pid} ended before it replied.\n\n");
        if stream.write_all(&line).await.is_err() {
            return self.write(&ended()).await;
        }
        let mut room = vec![0; READ_BYTES];
        let mut has_answered = false;
        loop {
            match stream.read(&mut room).await {
                Ok(0) if has_answered => return Ok(()),
                Ok(0) | Err(_) => return self.write(&ended()).await,
                Ok(count) => {
                    has_answered = true;
                    self.write_bytes(&room[..count]).await?;
                }
            }
        }
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Question) -> Result<T, Gone> {
        let (reply, answer) = oneshot::channel();
        self.events.send(question(reply).into()).map_err(|_| Gone)?;
        answer.await.map_err(|_| Gone)
    }

    /// `master> `, `master[ReloadFailed]> `, `1271(xed)> `.
    async fn prompt(&self) -> String {
        let mut name = match self.target {
            (Target::Master, _) => {
                let has_failed = self.ask(Question::Processes).await.is_ok_and(|all| all.last_reload_failed);
                if has_failed { "master[ReloadFailed]".into() } else { "master".into() }
            }
            (_, pid) => pid.to_string(),
        };
        let flags = [(self.is_experimental, 'x'), (self.is_expert, 'e'), (self.is_debugging, 'd')];
        let flags: String = flags.iter().filter(|(is_on, _)| *is_on).map(|(_, flag)| *flag).collect();
        if !flags.is_empty() {
            name.push_str(&format!("({flags})"));
        }
        name + "> "
    }

    async fn write(&self, text: &str) -> Result<(), Gone> {
        self.write_bytes(text.as_bytes()).await
    }

    async fn write_bytes(&self, mut bytes: &[u8]) -> Result<(), Gone> {
        while !bytes.is_empty() {
            match timeout(SILENCE, self.connection.write(bytes)).await {
                Ok(Ok(count)) if count > 0 => bytes = &bytes[count..],
                _ => return Err(Gone),
            }
        }
        Ok(())
    }
}
