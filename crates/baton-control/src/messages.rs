//! What the process says of itself: to standard error in HAProxy's form, and to the global log targets.
//!
//! Log lines of traffic are not written here, but by the cores.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use baton_config::{Diagnostic, Severity};
use baton_model::{Level, LogAddress, LogTarget, Model, Proxy};

/// The process's voice. Belongs to one thread.
#[derive(Debug)]
pub struct Messages {
    program: String,
    version: String,
    executable: String,
    is_quiet: Cell<bool>,
    is_introduced: Cell<bool>,
    is_started: Cell<bool>,
    /// What was said before the start was over; no more than [`STARTUP_BYTES_MAX`].
    startup: RefCell<String>,
    log: RefCell<Log>,
}

/// Bytes of messages of the start that are kept.
const STARTUP_BYTES_MAX: usize = 64 * 1024;

/// Where lines for the log go.
#[derive(Debug, Default)]
struct Log {
    targets: Vec<LogTarget>,
    tag: String,
    /// By name; what differs from the above in tag only has its own tag.
    proxies: HashMap<Arc<str>, (Vec<LogTarget>, Option<String>)>,
    /// With a trailing blank, or empty.
    hostname: String,
}

impl Messages {
    /// A voice that introduces itself before its first words, as HAProxy does while it starts.
    pub fn new(program: &str, version: &str, is_quiet: bool) -> Messages {
        let executable = std::env::current_exe().map_or_else(|_| program.to_owned(), |path| path.display().to_string());
        Messages {
            program: program.to_owned(),
            version: version.to_owned(),
            executable,
            is_quiet: Cell::new(is_quiet),
            is_introduced: Cell::new(false),
            is_started: Cell::new(false),
            startup: RefCell::default(),
            log: RefCell::default(),
        }
    }

    /// `-q`, or `quiet` in the file: nothing more to standard error.
    pub fn be_quiet(&self) {
        self.is_quiet.set(true);
    }

    /// The start is over: what is said from now on needs no introduction.
    pub fn is_serving(&self) {
        self.is_introduced.set(true);
        self.is_started.set(true);
    }

    /// What was said before the start was over.
    pub fn startup(&self) -> String {
        self.startup.borrow().clone()
    }

    /// Takes over the log targets of a configuration.
    pub fn apply(&self, model: &Model) {
        let global = &model.global;
        let logging =
            |proxy: &Arc<Proxy>| (proxy.name.clone(), (proxy.logging.targets.clone(), proxy.logging.tag.clone()));
        let hostname = match global.log_hostname.as_deref() {
            None => String::new(),
            Some("") => baton_kernel::process::hostname(),
            Some(name) => name.to_owned(),
        };
        *self.log.borrow_mut() = Log {
            targets: global.log.clone(),
            tag: global.log_tag.clone().unwrap_or_else(|| "haproxy".into()),
            hostname: if hostname.is_empty() { hostname } else { hostname + " " },
            proxies: model.proxies.iter().map(logging).collect(),
        };
    }

    /// Something about what was read.
    pub fn note(&self, (severity, text): &(Severity, String)) {
        self.say(*severity, text);
    }

    /// Something worth knowing.
    pub fn notice(&self, text: &str) {
        self.say(Severity::Notice, text);
    }

    /// Something that is probably not as meant.
    pub fn warning(&self, text: &str) {
        self.say(Severity::Warning, text);
    }

    /// Something that keeps us from doing what was asked.
    pub fn alert(&self, text: &str) {
        self.say(Severity::Alert, text);
    }

    /// One message to standard error; further lines of a text are set in as HAProxy does.
    pub fn say(&self, severity: Severity, text: &str) {
        let label = format!("[{}]", severity.word());
        let mut lines = text.lines();
        let mut out = format!("{label:<10} ({}) : {}\n", std::process::id(), lines.next().unwrap_or_default());
        for line in lines {
            out.push_str("   | ");
            out.push_str(line);
            out.push('\n');
        }
        self.write(&out);
    }

    /// What the reader of the configuration has to say.
    pub fn diagnostics(&self, diagnostics: &[Diagnostic]) {
        for diagnostic in diagnostics {
            self.write(&diagnostic.render(std::process::id()));
        }
    }

    /// Text that is complete already, with label and end of line.
    pub fn rendered(&self, text: &str) {
        self.write(text);
    }

    /// One line to the global log targets.
    pub fn log(&self, level: Level, text: &str) {
        let log = self.log.borrow();
        log.line(&log.targets, &log.tag, level, text);
    }

    /// One line to the log targets of a proxy.
    pub fn log_for(&self, proxy: &str, level: Level, text: &str) {
        let log = self.log.borrow();
        if let Some((targets, tag)) = log.proxies.get(proxy) {
            log.line(targets, tag.as_deref().unwrap_or(&log.tag), level, text);
        }
    }

    fn write(&self, text: &str) {
        let mut startup = self.startup.borrow_mut();
        if !self.is_started.get() && startup.len() + text.len() <= STARTUP_BYTES_MAX {
            startup.push_str(text);
        }
        drop(startup);
        if self.is_quiet.get() {
            return;
        }
        let mut out = String::new();
        if !self.is_introduced.replace(true) {
            let pid = std::process::id();
            out.push_str(&format!("[NOTICE]   ({pid}) : {} version is {}\n", self.program, self.version));
            out.push_str(&format!("[NOTICE]   ({pid}) : path to executable is {}\n", self.executable));
        }
        out.push_str(text);
        // There is nobody left to tell when standard error is gone.
        let _ = std::io::stderr().lock().write_all(out.as_bytes());
    }
}

impl Log {
    fn line(&self, targets: &[LogTarget], tag: &str, level: Level, text: &str) {
        for target in targets {
            if level > target.max {
                continue;
            }
            let mut packet = self.head(target, tag, level.max(target.min));
            packet.push_str(text);
            let mut packet = packet.into_bytes();
            packet.truncate(target.len.saturating_sub(1));
            packet.push(b'\n');
            // A message that cannot be logged was also said to standard error.
            let _ = send(&target.address, &packet);
        }
    }

    /// The head of a line in the target's format (configuration manual, `log`).
    fn head(&self, target: &LogTarget, tag: &str, level: Level) -> String {
        let priority = u16::from(target.facility.0) * 8 + u16::from(level.0);
        let pid = std::process::id();
        let now = jiff::Zoned::now();
        let short = || now.strftime("%b %e %H:%M:%S").to_string();
        let iso = || now.strftime("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string();
        match target.format.as_str() {
            "raw" => String::new(),
            "short" => format!("<{}>", level.0),
            "priority" => format!("<{priority}>"),
            "timed" => format!("<{}>{} ", level.0, iso()),
            "iso" => format!("{} ", iso()),
            "rfc5424" => {
                let host = if self.hostname.is_empty() { "-" } else { self.hostname.trim_end() };
                format!("<{priority}>1 {} {host} {tag} {pid} - - ", iso())
            }
            "local" => format!("<{priority}>{} {tag}[{pid}]: ", short()),
            _ => format!("<{priority}>{} {}{tag}[{pid}]: ", short(), self.hostname),
        }
    }
}

/// Messages of the process are rare: each has a socket of its own.
fn send(address: &LogAddress, packet: &[u8]) -> std::io::Result<()> {
    match address {
        LogAddress::Udp(to) => {
            let socket = UdpSocket::bind(if to.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" })?;
            socket.set_nonblocking(true)?;
            socket.send_to(packet, to).map(|_| ())
        }
        LogAddress::Unix(path) => {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            socket.send_to(packet, path).map(|_| ())
        }
        LogAddress::Stdout => std::io::stdout().lock().write_all(packet),
        LogAddress::Stderr => std::io::stderr().lock().write_all(packet),
        LogAddress::Fd(_) | LogAddress::Ring(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use baton_model::{Facility, Global};

    #[test]
    fn a_line_reaches_the_log_in_its_format() {
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        let target = |format: &str, max| LogTarget {
            address: LogAddress::Udp(collector.local_addr().unwrap()),
            len: 1024,
            format: format.into(),
            facility: Facility(16),
            max: Level(max),
            min: Level(0),
            sample: None,
        };
        let messages = Messages::new("baton", "1", true);
        let check = |format: &str, expect: &str| {
            let log = vec![target(format, 3), target(format, 7)];
            let global = Global { log, log_tag: Some("x".into()), ..Global::default() };
            messages.apply(&Model { global, ..Model::default() });
            messages.log(Level(5), "hello");
            let mut packet = [0; 200];
            let length = collector.recv(&mut packet).unwrap();
            assert_eq!(String::from_utf8_lossy(&packet[..length]), expect);
        };
        check("raw", "hello\n");
        check("short", "<5>hello\n");
        check("priority", "<133>hello\n");
    }
}
