//! Composing log lines for each of their targets; [`LogRoute`] sends them.

mod date;
mod route;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::SystemTime;

use baton_kernel::output;
use baton_model::{Global, Level, LogAddress, LogFormat, LogTarget, Logging};

use crate::clock::Clock;
use crate::ended::{Cause, Ended};
use crate::facts::LogFacts;
use crate::log::date::Dates;
use crate::log::route::LogRoute;
pub use crate::log::route::log_target_is_there;

/// `err`.
const ERROR: Level = Level(3);
/// `info`.
pub const INFO: Level = Level(6);

/// What a thread logs by.
#[derive(Debug)]
pub struct LogWriter {
    /// Spells dates.
    pub dates: Dates,
    clock: Rc<Clock>,
    identity: RefCell<Identity>,
    /// Every address has one, however many `log` lines name it.
    ways: RefCell<HashMap<LogAddress, Rc<LogRoute>>>,
    scratch: RefCell<(Vec<u8>, Vec<u8>)>,
}

/// What stands in front of a line.
#[derive(Debug, Default)]
struct Identity {
    tag: String,
    /// With a trailing blank, or empty.
    hostname: String,
    pid: u32,
}

/// The targets of one proxy.
#[derive(Debug)]
pub struct Sinks {
    logging: Logging,
    /// Of each target.
    ways: Vec<Rc<LogRoute>>,
    turn: Cell<u64>,
}

impl Sinks {
    /// Whether nothing is logged.
    pub fn is_empty(&self) -> bool {
        self.logging.targets.is_empty()
    }

    /// Whether a line is due when a connection is accepted: the default format.
    pub fn at_accept(&self) -> bool {
        !self.is_empty() && self.logging.format == LogFormat::Default
    }

    /// Whether this end is to be logged.
    pub fn wants(&self, facts: &LogFacts, ended: Ended) -> bool {
        if self.logging.format == LogFormat::Default {
            return false;
        }
        let normal = ended.cause == Cause::None && facts.retries == 0 && !facts.redispatched && facts.status < 500;
        !(self.logging.dont_log_normal && normal)
    }

    /// The level of a line: `info`, or `err` for what went wrong with `option log-separate-errors`.
    pub fn level(&self, ended: Ended) -> Level {
        if self.logging.separate_errors && ended.cause != Cause::None { ERROR } else { INFO }
    }
}

impl LogWriter {
    /// A writer that dates its lines by this clock, without identity, which [`LogWriter::apply`] gives it.
    pub fn new(clock: Rc<Clock>) -> LogWriter {
        LogWriter {
            dates: Dates::default(),
            clock,
            identity: RefCell::default(),
            ways: RefCell::default(),
            scratch: RefCell::default(),
        }
    }

    /// Takes over tag and host name of a configuration.
    pub fn apply(&self, global: &Global) {
        let hostname = match global.log_hostname.as_deref() {
            None => String::new(),
            Some("") => baton_kernel::process::hostname(),
            Some(name) => name.to_owned(),
        };
        *self.identity.borrow_mut() = Identity {
            tag: global.log_tag.clone().unwrap_or_else(|| "haproxy".into()),
            hostname: if hostname.is_empty() { hostname } else { hostname + " " },
            pid: std::process::id(),
        };
    }

    /// The process that lines name, when it is another one than at [`LogWriter::apply`]: a daemon forks in between.
    pub fn set_pid(&self, pid: u32) {
        self.identity.borrow_mut().pid = pid;
    }

    /// The targets of one proxy's `log` lines.
    pub fn sinks(&self, logging: &Logging) -> Rc<Sinks> {
        let mut ways = self.ways.borrow_mut();
        let mut way = |target: &LogTarget| {
            let new = || Rc::new(LogRoute::new(&target.address));
            ways.entry(target.address.clone()).or_insert_with(new).clone()
        };
        Rc::new(Sinks {
            ways: logging.targets.iter().map(&mut way).collect(),
            logging: logging.clone(),
            turn: Cell::new(0),
        })
    }

    /// Closes the sockets of targets that no [`Sinks`] names any more.
    pub fn forget_unused(&self) {
        self.ways.borrow_mut().retain(|_, way| Rc::strong_count(way) > 1);
    }

    /// Something an operator should know about this process.
    pub fn trouble(&self, text: &str) {
        output::print_error(&format!("[WARNING]  ({}) : {text}\n", self.identity.borrow().pid));
    }

    /// Sends one line to every target that takes its level. `write` composes the message.
    pub fn line(&self, sinks: &Sinks, level: Level, write: impl FnOnce(&mut Vec<u8>)) {
        self.line_except(sinks, level, None, write);
    }

    /// Sends one line to every target that takes its level, except the one of this name.
    pub fn line_except(&self, sinks: &Sinks, level: Level, not: Option<&str>, write: impl FnOnce(&mut Vec<u8>)) {
        let mut scratch = self.scratch.borrow_mut();
        let (message, packet) = &mut *scratch;
        message.clear();
        write(message);
        let turn = sinks.turn.replace(sinks.turn.get() + 1);
        let now = self.clock.wall();
        for (target, way) in sinks.logging.targets.iter().zip(&sinks.ways) {
            if level > target.max || !is_sampled(target, turn) || not.is_some_and(|not| way.is(not)) {
                continue;
            }
            packet.clear();
            let tag = sinks.logging.tag.as_deref();
            self.head(target, level.max(target.min), tag, now, packet);
            packet.extend_from_slice(message);
            packet.truncate(target.len.saturating_sub(1));
            packet.push(b'\n');
            way.send(packet, self.clock.now());
        }
    }

    /// The head of a line in the target's format (configuration manual, `log`).
    fn head(&self, target: &LogTarget, level: Level, tag: Option<&str>, now: SystemTime, out: &mut Vec<u8>) {
        let identity = self.identity.borrow();
        let tag = tag.unwrap_or(&identity.tag);
        let priority = u16::from(target.facility.0) * 8 + u16::from(level.0);
        match target.format.as_str() {
            "raw" => {}
            "short" => out.extend_from_slice(format!("<{}>", level.0).as_bytes()),
            "priority" => out.extend_from_slice(format!("<{priority}>").as_bytes()),
            "timed" => {
                out.extend_from_slice(format!("<{}>", level.0).as_bytes());
                self.dates.iso(now, out);
                out.push(b' ');
            }
            "iso" => {
                self.dates.iso(now, out);
                out.push(b' ');
            }
            "rfc5424" => {
                out.extend_from_slice(format!("<{priority}>1 ").as_bytes());
                self.dates.iso(now, out);
                let host = identity.hostname.trim_end();
                let host = if host.is_empty() { "-" } else { host };
                out.extend_from_slice(format!(" {host} {tag} {} - - ", identity.pid).as_bytes());
            }
            "local" => {
                out.extend_from_slice(format!("<{priority}>").as_bytes());
                self.dates.syslog(now, out);
                out.extend_from_slice(format!(" {tag}[{}]: ", identity.pid).as_bytes());
            }
            written => {
                let host = match (identity.hostname.as_str(), written) {
                    // As in HAProxy, which has to name some host.
                    ("", "rfc3164") => "localhost ",
                    (host, _) => host,
                };
                out.extend_from_slice(format!("<{priority}>").as_bytes());
                self.dates.syslog(now, out);
                out.extend_from_slice(format!(" {host}{tag}[{}]: ", identity.pid).as_bytes());
            }
        }
    }
}

/// `sample 1,3-4:5`: of every five lines the first, third and fourth.
fn is_sampled(target: &LogTarget, turn: u64) -> bool {
    let Some((ranges, size)) = target.sample.as_deref().and_then(|sample| sample.rsplit_once(':')) else { return true };
    let Some(size) = size.parse::<u64>().ok().filter(|size| *size > 0) else { return true };
    let at = turn % size + 1;
    ranges.split(',').any(|range| {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let bound = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        (bound(low)..=bound(high)).contains(&at)
    })
}
