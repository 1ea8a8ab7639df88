//! Sending log lines: UDP and unix syslog, and the standard streams. A line that cannot be sent at once is counted and
//! lost, never waited for.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::SystemTime;

use baton_model::{Global, Level, LogAddress, LogFormat, LogTarget, Logging};

use crate::clock::Clock;
use crate::ended::{Cause, Ended};
use crate::record::Entry;
use crate::record::date::Dates;

/// `err`.
const ERROR: Level = Level(3);
/// `info`.
pub(super) const INFO: Level = Level(6);

/// A core's way to its log targets.
#[derive(Debug)]
pub struct LogWriter {
    clock: Rc<Clock>,
    /// Spells dates.
    pub dates: Dates,
    /// Lines that could not be sent.
    pub lost: Cell<u64>,
    identity: RefCell<Identity>,
    udp: RefCell<[Option<UdpSocket>; 2]>,
    unix: RefCell<HashMap<PathBuf, Option<UnixDatagram>>>,
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
    pub(super) fn wants(&self, entry: &Entry, ended: Ended) -> bool {
        if self.logging.format == LogFormat::Default {
            return false;
        }
        let normal = ended.cause == Cause::None && entry.retries == 0 && !entry.redispatched && entry.status < 500;
        !(self.logging.dont_log_normal && normal)
    }

    /// The level of a line: `info`, or `err` for what went wrong with `option log-separate-errors`.
    pub(super) fn level(&self, ended: Ended) -> Level {
        if self.logging.separate_errors && ended.cause != Cause::None { ERROR } else { INFO }
    }
}

impl LogWriter {
    /// A writer that dates its lines by this clock.
    pub fn new(clock: Rc<Clock>) -> LogWriter {
        LogWriter {
            clock,
            dates: Dates::default(),
            lost: Cell::default(),
            identity: RefCell::default(),
            udp: RefCell::default(),
            unix: RefCell::default(),
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

    /// The targets of one proxy's `log` lines.
    pub fn sinks(&self, logging: &Logging) -> Rc<Sinks> {
        Rc::new(Sinks { logging: logging.clone(), turn: Cell::new(0) })
    }

    /// Something an operator should know about this process.
    pub fn trouble(&self, text: &str) {
        eprintln!("[WARNING]  ({}) : {text}", self.identity.borrow().pid);
    }

    /// Sends one line to every target that takes its level. `write` composes the message.
    pub fn line(&self, sinks: &Sinks, level: Level, write: impl FnOnce(&mut Vec<u8>)) {
        let mut scratch = self.scratch.borrow_mut();
        let (message, packet) = &mut *scratch;
        message.clear();
        write(message);
        let turn = sinks.turn.replace(sinks.turn.get() + 1);
        let now = self.clock.wall();
        for target in &sinks.logging.targets {
            if level > target.max || !is_sampled(target, turn) {
                continue;
            }
            packet.clear();
            let tag = sinks.logging.tag.as_deref();
            self.head(target, level.max(target.min), tag, now, packet);
            packet.extend_from_slice(message);
            packet.truncate(target.len.saturating_sub(1));
            packet.push(b'\n');
            if !self.send(&target.address, packet) {
                self.lost.set(self.lost.get() + 1);
            }
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

    fn send(&self, address: &LogAddress, packet: &[u8]) -> bool {
        match address {
            LogAddress::Udp(to) => {
                let mut sockets = self.udp.borrow_mut();
                let socket = &mut sockets[usize::from(to.is_ipv6())];
                if socket.is_none() {
                    *socket = udp_socket(to.is_ipv6()).ok();
                }
                // An earlier datagram's ICMP answer is reported here; the line itself was not sent then.
                socket
                    .as_ref()
                    .is_some_and(|socket| socket.send_to(packet, to).or_else(|_| socket.send_to(packet, to)).is_ok())
            }
            LogAddress::Unix(path) => {
                let mut sockets = self.unix.borrow_mut();
                let socket = sockets.entry(path.clone()).or_insert_with(|| unix_socket().ok());
                socket.as_ref().is_some_and(|socket| socket.send_to(packet, path).is_ok())
            }
            LogAddress::Stdout => std::io::stdout().lock().write_all(packet).is_ok(),
            LogAddress::Stderr => std::io::stderr().lock().write_all(packet).is_ok(),
            LogAddress::Fd(_) | LogAddress::Ring(_) => false,
        }
    }
}

fn udp_socket(v6: bool) -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind(if v6 { "[::]:0" } else { "0.0.0.0:0" })?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn unix_socket() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok(socket)
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
