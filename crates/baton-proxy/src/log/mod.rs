//! Composing log lines for each of their targets; [`LogRoute`] sends them.

mod alone;
mod date;
mod route;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use baton_kernel::output::{self, ring};
use baton_model::{Facility, Level, LogAddress, LogFormat, LogTarget, Logging, Model, Ring};
use baton_rules::{Context, Format, ProxyRules};

use crate::clock::Clock;
use crate::ended::Ended;
use crate::facts::LogFacts;
pub use crate::log::alone::ProcessFacts;
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
    scratch: RefCell<Scratch>,
    /// The `ring` sections.
    rings: RefCell<Vec<Arc<Ring>>>,
    /// The ring that is there without a section, once it was written to: a ring that nobody has is forgotten.
    built_in: OnceCell<Arc<ring::Ring>>,
}

/// Memory for a line.
#[derive(Debug, Default)]
struct Scratch {
    message: Vec<u8>,
    /// Structured data (RFC 5424 6.3), empty when there is none.
    data: Vec<u8>,
    packet: Vec<u8>,
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
    ways: Vec<TargetRoute>,
}

/// What a core has of a target besides its configuration.
#[derive(Debug)]
struct TargetRoute {
    way: Rc<LogRoute>,
    head: LineHead,
    sample: Option<Sample>,
}

/// What a line begins with: `format` of a `log` line.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum LineHead {
    Raw,
    Short,
    Priority,
    Timed,
    Iso,
    Rfc5424,
    Local,
    Rfc3164,
    /// None is written: like `local`, with the host if `log-send-hostname` names it.
    Usual,
}

/// `sample 1,3-4:5`: of every five lines of a core the first, third and fourth.
#[derive(Debug)]
struct Sample {
    ranges: Vec<(u64, u64)>,
    size: u64,
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

    /// Whether a target has room for structured data.
    fn takes_structured_data(&self) -> bool {
        self.ways.iter().any(|route| route.head == LineHead::Rfc5424)
    }

    /// Whether this end is to be logged.
    pub fn wants(&self, facts: &LogFacts, ended: Ended) -> bool {
        if self.logging.format == LogFormat::Default {
            return false;
        }
        !(self.logging.dont_log_normal && facts.is_normal(ended))
    }

    /// The level of a line: `info`, or `err` for what is not normal with `option log-separate-errors`.
    pub fn level(&self, is_normal: bool) -> Level {
        if self.logging.separate_errors && !is_normal { ERROR } else { INFO }
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
            rings: RefCell::default(),
            built_in: OnceCell::new(),
        }
    }

    /// Takes over tag, host name and rings of a configuration.
    pub fn apply(&self, model: &Model) {
        let global = &model.global;
        self.rings.borrow_mut().clone_from(&model.rings);
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

    /// The process that lines name.
    pub fn pid(&self) -> u32 {
        self.identity.borrow().pid
    }

    /// The targets of one proxy's `log` lines.
    pub fn sinks(&self, logging: &Logging) -> Rc<Sinks> {
        let mut ways = self.ways.borrow_mut();
        let mut way = |target: &LogTarget| {
            let new = || Rc::new(LogRoute::new(&target.address));
            let way = ways.entry(target.address.clone()).or_insert_with(new).clone();
            TargetRoute {
                way,
                head: LineHead::of(&target.format),
                sample: target.sample.as_deref().and_then(Sample::of),
            }
        };
        Rc::new(Sinks { ways: logging.targets.iter().map(&mut way).collect(), logging: logging.clone() })
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
        self.compose(sinks, level, not, |message, _| write(message));
    }

    /// Sends the line of an exchange in the format of its frontend, of which these are the rules.
    pub fn traffic_line(&self, sinks: &Sinks, level: Level, rules: &ProxyRules, cx: &Context<'_>) {
        let format = Format::built_in(sinks.logging.format).or_else(|| rules.log_format());
        let Some(format) = format else { return };
        self.format_line(sinks, level, (format, rules.log_format_sd()), cx);
    }

    /// Sends a line in a format, and structured data in another one.
    pub fn format_line(
        &self,
        sinks: &Sinks,
        level: Level,
        (format, structured): (&Format, Option<&Format>),
        cx: &Context<'_>,
    ) {
        self.compose(sinks, level, None, |message, data| {
            format.write(cx, message);
            if let Some(structured) = structured.filter(|_| sinks.takes_structured_data()) {
                structured.write(cx, data);
            }
        });
    }

    /// Writes a line of the converter `debug` to `stdout`, `stderr` or a ring, in the format of the ring.
    pub fn debug_line(&self, sink: &str, line: &[u8]) {
        let stream = match sink {
            "stdout" => Some(output::stdout()),
            "stderr" => Some(output::stderr()),
            _ => None,
        };
        if let Some(stream) = stream {
            return stream.write(&[line, b"\n"].concat());
        }
        let section = self.rings.borrow().iter().find(|ring| *ring.name == *sink).cloned();
        let (format, len) = match &section {
            Some(ring) => (&*ring.format, ring.line_len),
            None => (Ring::BUILT_IN_FORMAT, Ring::SIZE),
        };
        let mut event = Vec::new();
        let head = Head { level: Level(0), facility: Facility(0), tag: None, data: &[] };
        self.head(LineHead::of(format), &head, self.clock.wall(), &mut event);
        event.extend_from_slice(line);
        event.truncate(len);
        match section {
            Some(_) => ring::of(sink).push(&event),
            None => self.built_in.get_or_init(|| ring::of(Ring::BUILT_IN)).push(&event),
        }
    }

    fn compose(&self, sinks: &Sinks, level: Level, not: Option<&str>, write: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>)) {
        // A line that is written while another one is (a rule's `do-log`, never while a format is evaluated) has memory of its own.
        let mut scratch = self.scratch.take();
        let Scratch { message, data, packet } = &mut scratch;
        message.clear();
        data.clear();
        write(message, data);
        let now = self.clock.wall();
        for (target, route) in sinks.logging.targets.iter().zip(&sinks.ways) {
            if level > target.max || not.is_some_and(|not| route.way.is(not)) {
                continue;
            }
            if route.sample.as_ref().is_some_and(|sample| !sample.takes_next()) {
                continue;
            }
            packet.clear();
            let tag = sinks.logging.tag.as_deref();
            let head = Head { level: level.max(target.min), facility: target.facility, tag, data };
            self.head(route.head, &head, now, packet);
            packet.extend_from_slice(message);
            packet.truncate(target.len.saturating_sub(1));
            packet.push(b'\n');
            route.way.send(packet, self.clock.now());
        }
        *self.scratch.borrow_mut() = scratch;
    }

    /// The head of a line in the target's format (configuration manual, `log`).
    fn head(&self, format: LineHead, head: &Head<'_>, now: SystemTime, out: &mut Vec<u8>) {
        let identity = self.identity.borrow();
        let tag = head.tag.unwrap_or(&identity.tag).as_bytes();
        let priority = u64::from(head.facility.0) * 8 + u64::from(head.level.0);
        let between = |number: u64, out: &mut Vec<u8>| {
            out.push(b'<');
            number_in(number, out);
            out.push(b'>');
        };
        match format {
            LineHead::Raw => {}
            LineHead::Short => between(head.level.0.into(), out),
            LineHead::Priority => between(priority, out),
            LineHead::Timed => {
                between(head.level.0.into(), out);
                self.dates.iso(now, out);
                out.push(b' ');
            }
            LineHead::Iso => {
                self.dates.iso(now, out);
                out.push(b' ');
            }
            LineHead::Rfc5424 => {
                between(priority, out);
                out.extend_from_slice(b"1 ");
                self.dates.iso(now, out);
                let host = identity.hostname.trim_end();
                out.push(b' ');
                out.extend_from_slice(if host.is_empty() { b"-" } else { host.as_bytes() });
                out.push(b' ');
                out.extend_from_slice(tag);
                out.push(b' ');
                number_in(identity.pid.into(), out);
                out.extend_from_slice(b" - ");
                out.extend_from_slice(if head.data.is_empty() { b"-" } else { head.data });
                out.push(b' ');
            }
            LineHead::Local | LineHead::Rfc3164 | LineHead::Usual => {
                let host = match (identity.hostname.as_str(), format) {
                    (_, LineHead::Local) => "",
                    // As in HAProxy, which has to name some host.
                    ("", LineHead::Rfc3164) => "localhost ",
                    (host, _) => host,
                };
                between(priority, out);
                self.dates.syslog(now, out);
                out.push(b' ');
                out.extend_from_slice(host.as_bytes());
                out.extend_from_slice(tag);
                out.push(b'[');
                number_in(identity.pid.into(), out);
                out.extend_from_slice(b"]: ");
            }
        }
    }
}

/// What the head of a line says besides date and host.
struct Head<'a> {
    level: Level,
    facility: Facility,
    tag: Option<&'a str>,
    data: &'a [u8],
}

fn number_in(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

impl LineHead {
    fn of(format: &str) -> LineHead {
        match format {
            "raw" => LineHead::Raw,
            "short" => LineHead::Short,
            "priority" => LineHead::Priority,
            "timed" => LineHead::Timed,
            "iso" => LineHead::Iso,
            "rfc5424" => LineHead::Rfc5424,
            "local" => LineHead::Local,
            "rfc3164" => LineHead::Rfc3164,
            _ => LineHead::Usual,
        }
    }
}

impl Sample {
    /// Ranges and size as they are written; `None` where that is invalid, which was refused when it was read.
    fn of(text: &str) -> Option<Sample> {
        let (ranges, size) = text.rsplit_once(':')?;
        let size = size.parse().ok().filter(|size| *size > 0)?;
        let range = |range: &str| {
            let (low, high) = range.split_once('-').unwrap_or((range, range));
            Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
        };
        let ranges = ranges.split(',').map(range).collect::<Option<Vec<_>>>()?;
        Some(Sample { ranges, size, turn: Cell::new(0) })
    }

    /// Whether the next line is one of the sample.
    fn takes_next(&self) -> bool {
        let at = self.turn.get() % self.size + 1;
        self.turn.set(at);
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_repeats_after_its_size() {
        let takes = |text: &str| {
            let sample = Sample::of(text).expect("valid");
            (0..7).map(|_| if sample.takes_next() { '+' } else { '-' }).collect::<String>()
        };
        assert_eq!(takes("1:3"), "+--+--+");
        assert_eq!(takes("2-3,5:5"), "-++-+-+");
        assert_eq!(takes("1:1"), "+++++++");
        assert!(Sample::of("1:0").is_none());
    }
}
