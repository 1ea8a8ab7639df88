//! The worker's end of the line to its master.
//!
//! Before anything else it takes what it needs for its start ([`Summons`]); then it tells the master which sockets to hold,
//! and serves whoever the master hands to it ([`Servant`]). A master that is gone changes nothing: the worker serves on.

pub(crate) mod duties;
pub mod kept;
mod ledger;
pub mod link;
pub mod opening;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use baton_kernel::process::over_exec::{memory_file, read_whole, take_standard_input};
use baton_tables::Table;
use socket2::{SockRef, Socket};
use zeroize::Zeroizing;

use self::ledger::Ledger;
use self::link::{Begin, Heard, Link, ToMaster, ToWorker};
use crate::handover::crashed;
use crate::handover::memory::{MemoryKind, ProcessMemory};
use crate::listeners::{Inherited, Listeners};
use crate::overrides::{OverrideKey, OverrideRecord};

/// How long the master may take to say what a start needs.
const SUMMONS_WITHIN: Duration = Duration::from_secs(10);
/// Numbers of sockets in one message.
const NUMBERS_PER_MESSAGE: usize = 1024;
/// What the kind of a part begins with that is the memory of a stick table; its name follows.
const TABLE_PART: &str = "table ";
/// Bytes of a text or of what standard input held.
const TEXT_BYTES_MAX: u64 = 256 << 20;

/// What a worker starts with.
#[derive(Debug)]
pub struct Summons {
    line: Socket,
    /// How to start.
    pub begin: Begin,
    /// What standard input held when the master was started.
    pub input: Option<Vec<u8>>,
    /// The text to work by.
    pub text: Option<Vec<u8>>,
    /// Texts before it, the newest last, some of whose addresses may not be empty yet.
    pub earlier: Vec<Vec<u8>>,
    /// What is remembered of the worker before: counters, health, keys of session tickets, and what operators had set.
    pub memory: ProcessMemory,
    /// The memory of its stick tables, by name.
    pub tables: Vec<(String, OwnedFd)>,
    sockets: Vec<OwnedFd>,
    /// Numbers by which the configuration may name some of them (`fd@N`), by the kernel's.
    numbers: BTreeMap<u64, i32>,
}

impl Summons {
    /// Takes the line from standard input, and hears what the master has to say.
    ///
    /// # Errors
    /// A sentence; somebody who is no master has started us like a worker, perhaps.
    pub fn receive() -> Result<Summons, String> {
        let wrong = |error: io::Error| format!("no master at standard input: {error}");
        let line = Socket::from(take_standard_input().map_err(wrong)?);
        line.set_nonblocking(false).map_err(wrong)?;
        line.set_read_timeout(Some(SUMMONS_WITHIN)).map_err(wrong)?;
        let (mut sockets, mut input, mut text, mut earlier) = (Vec::new(), None, None, Vec::new());
        let mut numbers = BTreeMap::new();
        let (mut memory, mut tables) = (ProcessMemory::default(), Vec::new());
        let remember = |memory: &mut ProcessMemory, kind: MemoryKind, fds| -> io::Result<()> {
            if let Some(piece) = content(fds)?.map(Zeroizing::new) {
                // What a master of another version kept and we cannot read is nothing.
                let _ = memory.join(kind, &piece);
            }
            Ok(())
        };
        loop {
            match link::hear(&line).map_err(wrong)? {
                Heard::Message(ToWorker::Sockets, fds) => sockets.extend(fds),
                Heard::Message(ToWorker::Number { number }, fds) => {
                    let cookies = fds.iter().filter_map(|fd| SockRef::from(fd).cookie().ok());
                    numbers.extend(cookies.map(|cookie| (cookie, number)));
                }
                Heard::Message(ToWorker::Input, fds) => input = content(fds).map_err(wrong)?,
                Heard::Message(ToWorker::Text, fds) => text = content(fds).map_err(wrong)?,
                Heard::Message(ToWorker::Earlier, fds) => earlier.extend(content(fds).map_err(wrong)?),
                Heard::Message(ToWorker::Tickets, fds) => {
                    remember(&mut memory, MemoryKind::TicketKeys, fds).map_err(wrong)?;
                }
                Heard::Message(ToWorker::Overrides, fds) => {
                    remember(&mut memory, MemoryKind::Overrides, fds).map_err(wrong)?;
                }
                // What a worker of another version left and we cannot read is nothing.
                Heard::Message(ToWorker::Counters, fds) => {
                    let counters = fds.into_iter().next().and_then(|file| crashed::read_counters(file).ok());
                    memory.join_crashed(counters.unwrap_or_default());
                }
                Heard::Message(ToWorker::Health, fds) => {
                    let report = content(fds).map_err(wrong)?.unwrap_or_default();
                    memory.join_crashed(crashed::read_health(&report));
                }
                // What a master of another version kept and we do not know is nothing.
                Heard::Message(ToWorker::Part { kind }, fds) => {
                    if let Some(name) = kind.strip_prefix(TABLE_PART) {
                        tables.extend(fds.into_iter().next().map(|file| (name.to_owned(), file)));
                    } else if let Some(kind) = MemoryKind::of_word(&kind) {
                        remember(&mut memory, kind, fds).map_err(wrong)?;
                    }
                }
                Heard::Message(ToWorker::Begin(begin), _) => {
                    return Ok(Summons { line, begin, input, text, earlier, memory, tables, sockets, numbers });
                }
                Heard::Message(ToWorker::Serve | ToWorker::Session { .. } | ToWorker::Ping, _) | Heard::Unknown => {}
                Heard::Closed => return Err("the master is gone".into()),
            }
        }
    }

    /// For the case that the start fails; `None` when there is no descriptor left.
    pub fn last_words(&self) -> Option<LastWords> {
        self.line.try_clone().ok().map(|line| LastWords { line })
    }

    /// Whether some of the sockets are known by a number that they had in a process before.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }

    /// The sockets that the master holds, to be taken by those who ask for them; and the line.
    pub fn into_parts(self) -> (Inherited, Summoned) {
        let mut inherited = Inherited::default();
        let mut given = BTreeSet::new();
        for fd in self.sockets {
            let cookie = SockRef::from(&fd).cookie().ok();
            given.extend(cookie);
            let number = cookie.and_then(|cookie| self.numbers.get(&cookie).copied());
            // What cannot be used is released with the first report.
            let _ = inherited.add_known(fd, None, number);
        }
        (inherited, Summoned { line: self.line, given, begin: self.begin })
    }
}

/// A way to tell the master why a start failed, whatever became of the rest.
#[derive(Debug)]
pub struct LastWords {
    line: Socket,
}

impl LastWords {
    /// Says what was printed.
    pub fn say(self, said: &str) {
        // A master that is gone does not want to know.
        let _ = link::say(&self.line, &said_message(said), &[]);
    }
}

fn content(fds: Vec<OwnedFd>) -> io::Result<Option<Vec<u8>>> {
    fds.into_iter().next().map(|fd| read_whole(fd, TEXT_BYTES_MAX)).transpose()
}

/// A worker that has its sockets and has not begun to serve.
#[derive(Debug)]
pub struct Summoned {
    line: Socket,
    given: BTreeSet<u64>,
    /// How to start.
    pub begin: Begin,
}

impl Summoned {
    /// Goes on within the current runtime.
    ///
    /// # Errors
    /// The reactor's.
    pub fn serve(self) -> io::Result<Servant> {
        let opens = self.begin.opens && !nix::unistd::geteuid().is_root();
        Ok(Servant { link: Link::new(self.line)?, ledger: Ledger::new(self.given), opens, tables: Vec::new() })
    }
}

/// A worker that serves, under a master.
#[derive(Debug)]
pub struct Servant {
    link: Link,
    ledger: Ledger,
    /// The master has rights that we gave up.
    opens: bool,
    /// Stick tables whose memory the master has.
    tables: Vec<Arc<Table>>,
}

impl Servant {
    /// Whether the master can bind and retire for us what we cannot.
    pub fn opens(&self) -> bool {
        self.opens
    }

    /// Begins a conversation as in [`opening`], with the other end of our line.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn open(&self, line: &Socket) -> io::Result<()> {
        self.link.say(&ToMaster::Open, &[line.as_fd()]).await
    }

    /// Has new connections kept from sockets that the master holds for us.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn retire(&self, sockets: &[u64]) -> io::Result<()> {
        for some in sockets.chunks(NUMBERS_PER_MESSAGE) {
            self.link.say(&ToMaster::Retire { sockets: some.to_vec() }, &[]).await?;
        }
        Ok(())
    }

    /// Tells which sockets to hold and which ones are closed. Cheap when nothing changed.
    ///
    /// # Errors
    /// When the master is gone or stuck: then there is none any more.
    pub async fn report(&mut self, listeners: &Listeners) -> io::Result<()> {
        let sockets = listeners.sockets().into_iter();
        let sockets: Vec<_> =
            sockets.map(|socket| Ok((SockRef::from(&socket).cookie()?, socket))).collect::<io::Result<_>>()?;
        let changes = self.ledger.step(sockets.iter().map(|(cookie, _)| *cookie).collect());
        let mut left = changes.hold.clone();
        let new: Vec<_> = sockets.iter().filter(|(cookie, _)| left.remove(cookie)).map(|(_, socket)| *socket).collect();
        self.link.say_sockets(&ToMaster::Hold, &new).await?;
        for (number, socket) in listeners.numbered() {
            if changes.hold.contains(&SockRef::from(&socket).cookie()?) {
                self.link.say(&ToMaster::Number { number }, &[socket]).await?;
            }
        }
        for some in changes.release.chunks(NUMBERS_PER_MESSAGE) {
            self.link.say(&ToMaster::Release { sockets: some.to_vec() }, &[]).await?;
        }
        Ok(())
    }

    /// Keeps a text with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`], or without memory.
    pub async fn keep_text(&self, text: &[u8]) -> io::Result<()> {
        let file = memory_file("baton-text", text)?;
        self.link.say(&ToMaster::Text, &[file.as_fd()]).await
    }

    /// Keeps keys of session tickets with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`], or without memory.
    pub async fn keep_tickets(&self, keys: &[u8]) -> io::Result<()> {
        let file = memory_file("baton-tickets", keys)?;
        self.link.say(&ToMaster::Tickets, &[file.as_fd()]).await
    }

    /// Keeps the memory in which we count with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn keep_counters(&self, memory: BorrowedFd<'_>) -> io::Result<()> {
        self.link.say(&ToMaster::Counters, &[memory]).await
    }

    /// Keeps the health of servers with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`], or without memory.
    pub async fn keep_health(&self, report: &[u8]) -> io::Result<()> {
        let file = memory_file("baton-health", report)?;
        self.link.say(&ToMaster::Health, &[file.as_fd()]).await
    }

    /// Keeps all that operators have set with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`], or without memory.
    pub async fn keep_overrides(&self, all: &[u8]) -> io::Result<()> {
        let file = memory_file("baton-overrides", all)?;
        self.link.say(&ToMaster::Overrides, &[file.as_fd()]).await
    }

    /// Keeps another part of what is to be remembered with the master, for whoever comes after us.
    ///
    /// # Errors
    /// As [`Servant::report`], or without memory.
    pub async fn keep_part(&self, kind: MemoryKind, part: &[u8]) -> io::Result<()> {
        let file = memory_file("baton-part", part)?;
        self.link.say(&ToMaster::Part { kind: kind.word().to_owned() }, &[file.as_fd()]).await
    }

    /// Keeps the memory of stick tables with the master, for whoever comes after us; those that are no more it forgets. Cheap when nothing
    /// changed.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn keep_tables(&mut self, tables: Vec<Arc<Table>>) -> io::Result<()> {
        let part = |table: &Table| ToMaster::Part { kind: format!("{TABLE_PART}{}", table.name()) };
        for gone in self.tables.iter().filter(|old| tables.iter().all(|table| table.name() != old.name())) {
            self.link.say(&part(gone), &[]).await?;
        }
        for new in tables.iter().filter(|table| !self.tables.iter().any(|old| old.is(table))) {
            self.link.say(&part(new), &[new.file()]).await?;
        }
        self.tables = tables;
        Ok(())
    }

    /// Keeps what an operator has set, or forgets it where that is `None`.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn keep_override(&self, of: OverrideKey, set: Option<OverrideRecord>) -> io::Result<()> {
        let message = match set {
            Some(set) => ToMaster::Override { set },
            None => ToMaster::Restored { of },
        };
        self.link.say(&message, &[]).await
    }

    /// Says that no address is left to be emptied.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn settled(&self) -> io::Result<()> {
        self.link.say(&ToMaster::Settled, &[]).await
    }

    /// Says that we serve.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn ready(&self, version: &str, said: &str) -> io::Result<()> {
        self.link.say(&said_message(said), &[]).await?;
        let ready = ToMaster::Ready { version: version.into(), state: link::STATE_VERSION, keeps_file: true };
        self.link.say(&ready, &[]).await
    }

    /// Says that another process took over from us.
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn handed_over(&self, to: u32) -> io::Result<()> {
        self.link.say(&ToMaster::HandedOver { to }, &[]).await
    }

    /// Answers [`ToWorker::Ping`].
    ///
    /// # Errors
    /// As [`Servant::report`].
    pub async fn pong(&self) -> io::Result<()> {
        self.link.say(&ToMaster::Pong, &[]).await
    }

    /// What the master says next. May be abandoned and begun again.
    ///
    /// # Errors
    /// The system's.
    pub async fn hear(&self) -> io::Result<Heard<ToWorker>> {
        self.link.hear().await
    }
}

fn said_message(said: &str) -> ToMaster {
    /// Room for the rest of the message, and for escapes.
    const SAID_BYTES_MAX: usize = link::MESSAGE_BYTES_MAX / 8;
    let end = (0..=SAID_BYTES_MAX.min(said.len())).rev().find(|&at| said.is_char_boundary(at)).unwrap_or_default();
    ToMaster::Said { text: said[..end].to_owned() }
}
