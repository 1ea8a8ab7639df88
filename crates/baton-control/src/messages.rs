//! What the process says of itself: to standard error in HAProxy's form, and to the global log targets.
//!
//! Log lines of traffic are not written here, but by the cores.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::sync::Arc;

use baton_config::{Diagnostic, Severity};
use baton_kernel::output;
use baton_model::{Level, LogAddress, LogTarget, Logging, Model, Proxy};
use baton_proxy::clock::Clock;
use baton_proxy::{LogWriter, Sinks};
use nix::sys::stat::fstat;

use crate::mail::MailAlerts;

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
    clock: Rc<Clock>,
    writer: LogWriter,
    targets: RefCell<Targets>,
    mail: MailAlerts,
}

/// Bytes of messages of the start that are kept.
const STARTUP_BYTES_MAX: usize = 64 * 1024;

/// Where lines for the log go.
#[derive(Debug, Default)]
struct Targets {
    global: Option<SinksOf>,
    proxies: HashMap<Arc<str>, SinksOf>,
}

/// The targets of one list of `log` lines.
#[derive(Clone, Debug)]
struct SinksOf {
    sinks: Rc<Sinks>,
    /// The levels up to which their lines come out where standard error does; `None`: none does.
    on_stderr: Option<Level>,
}

impl SinksOf {
    fn new(sinks: Rc<Sinks>, targets: &[LogTarget]) -> SinksOf {
        let on_stderr = targets.iter().filter(|target| target.sample.is_none() && is_stderr(&target.address));
        SinksOf { sinks, on_stderr: on_stderr.map(|target| target.max).max() }
    }

    fn is_on_stderr(&self, level: Level) -> bool {
        self.on_stderr.is_some_and(|max| level <= max)
    }
}

/// What a part of the process has to say.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Said {
    /// Something worth knowing.
    News(String),
    /// Something that is probably not as meant.
    Trouble(String),
    /// Something that keeps us from doing what was asked; not for the log.
    Alert(String),
    /// News or trouble, by its level in the log.
    At(Level, String),
    /// What was done; for the log alone.
    Logged(String),
}

impl Messages {
    /// A voice that introduces itself before its first words, as HAProxy does while it starts.
    pub fn new(program: &str, version: &str, is_quiet: bool) -> Messages {
        let clock = Rc::new(Clock::new());
        let executable = std::env::current_exe().map_or_else(|_| program.to_owned(), |path| path.display().to_string());
        Messages {
            program: program.to_owned(),
            version: version.to_owned(),
            executable,
            is_quiet: Cell::new(is_quiet),
            is_introduced: Cell::new(false),
            is_started: Cell::new(false),
            startup: RefCell::default(),
            writer: LogWriter::new(clock.clone()),
            clock,
            targets: RefCell::default(),
            mail: MailAlerts::default(),
        }
    }

    /// `-q`, or `quiet` in the file: nothing more to standard error.
    pub fn be_quiet(&self) {
        self.is_quiet.set(true);
    }

    /// Whether nothing goes to standard error.
    pub fn is_quiet(&self) -> bool {
        self.is_quiet.get()
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
        self.writer.apply(model);
        self.mail.apply(model);
        let global = Logging { targets: model.global.log.clone(), ..Logging::default() };
        let sinks = |logging: &Logging| SinksOf::new(self.writer.sinks(logging), &logging.targets);
        let proxy = |proxy: &Arc<Proxy>| (proxy.name.clone(), sinks(&proxy.logging));
        *self.targets.borrow_mut() =
            Targets { global: Some(sinks(&global)), proxies: model.proxies.iter().map(proxy).collect() };
        self.writer.forget_unused();
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

    /// What a part of the process has to say: to standard error and to the log.
    pub(crate) fn tell(&self, said: Vec<Said>) {
        let say = |level: Level, text: &str| match level {
            Level(..=4) => self.event(Severity::Warning, level, text),
            Level(_) => self.event(Severity::Notice, level, text),
        };
        for said in said {
            match said {
                Said::News(text) => say(Level(5), &text),
                Said::Trouble(text) => say(Level(4), &text),
                Said::At(level, text) => say(level, &text),
                Said::Alert(text) => self.alert(&text),
                Said::Logged(text) => self.log(Level(6), &text),
            }
        }
    }

    /// An event: to standard error and to the global log targets, once where both are the same stream.
    pub fn event(&self, severity: Severity, level: Level, text: &str) {
        let sinks = self.targets.borrow().global.clone();
        self.event_to(sinks, severity, level, None, text);
    }

    /// As [`event`](Self::event), but not to the log target of this name.
    pub fn event_except(&self, severity: Severity, level: Level, not: &str, text: &str) {
        let sinks = self.targets.borrow().global.clone();
        self.event_to(sinks, severity, level, Some(not), text);
    }

    /// Mail about servers.
    pub fn mail(&self) -> &MailAlerts {
        &self.mail
    }

    /// As [`event`](Self::event), to the log targets of a proxy.
    pub fn event_for(&self, proxy: &str, severity: Severity, level: Level, text: &str) {
        let sinks = self.targets.borrow().proxies.get(proxy).cloned();
        self.event_to(sinks, severity, level, None, text);
    }

    /// Whether what is logged at this level comes out where standard error does.
    pub fn is_logged_on_stderr(&self, level: Level) -> bool {
        self.targets.borrow().global.as_ref().is_some_and(|sinks| sinks.is_on_stderr(level))
    }

    fn event_to(&self, sinks: Option<SinksOf>, severity: Severity, level: Level, not: Option<&str>, text: &str) {
        match sinks.as_ref().is_some_and(|sinks| sinks.is_on_stderr(level)) {
            true => self.remember(&labelled(severity, text)),
            false => self.say(severity, text),
        }
        self.line(sinks, level, not, text);
    }

    /// One message to standard error; further lines of a text are set in as HAProxy does.
    pub fn say(&self, severity: Severity, text: &str) {
        self.write(&labelled(severity, text));
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
        let sinks = self.targets.borrow().global.clone();
        self.line(sinks, level, None, text);
    }

    fn line(&self, sinks: Option<SinksOf>, level: Level, not: Option<&str>, text: &str) {
        let Some(SinksOf { sinks, .. }) = sinks.filter(|of| !of.sinks.is_empty()) else { return };
        // Its turns are the process's events, and messages are rare.
        self.clock.refresh();
        self.writer.set_pid(std::process::id());
        self.writer.line_except(&sinks, level, not, |out| escape(text, out));
    }

    fn remember(&self, text: &str) {
        let mut startup = self.startup.borrow_mut();
        if !self.is_started.get() && startup.len() + text.len() <= STARTUP_BYTES_MAX {
            startup.push_str(text);
        }
    }

    fn write(&self, text: &str) {
        self.remember(text);
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
        output::print_error(&out);
    }
}

/// A message in HAProxy's form.
fn labelled(severity: Severity, text: &str) -> String {
    let label = format!("[{}]", severity.word());
    let mut lines = text.lines();
    let mut out = format!("{label:<10} ({}) : {}\n", std::process::id(), lines.next().unwrap_or_default());
    for line in lines {
        out.push_str("   | ");
        out.push_str(line);
        out.push('\n');
    }
    printable(&out).into_owned()
}

/// Whether a log target comes out where standard error does: it is standard error, or standard output and both are the same file, or
/// the journal and systemd has connected standard error to it.
fn is_stderr(target: &LogAddress) -> bool {
    const JOURNAL: &str = "/run/systemd/journal/dev-log";
    const STDERR: i32 = 2;
    const STDOUT: i32 = 1;
    let file = |fd: std::os::fd::BorrowedFd<'_>| fstat(fd).ok().map(|stat| (stat.st_dev, stat.st_ino));
    let stderr = || file(std::io::stderr().as_fd());
    match target {
        LogAddress::Stderr | LogAddress::Fd(STDERR) => true,
        LogAddress::Stdout | LogAddress::Fd(STDOUT) => {
            stderr().is_some_and(|stderr| file(std::io::stdout().as_fd()) == Some(stderr))
        }
        LogAddress::Unix(path) => {
            let journal = stderr().map(|(device, inode)| format!("{device}:{inode}"));
            let is_journal =
                journal.is_some_and(|journal| std::env::var("JOURNAL_STREAM").is_ok_and(|of| of == journal));
            is_journal && path.canonicalize().is_ok_and(|path| path == std::path::Path::new(JOURNAL))
        }
        LogAddress::Udp(_) | LogAddress::Fd(_) | LogAddress::Ring(_) => false,
    }
}

/// Text for a terminal: control characters, which could come from a server's response, are spelled out.
fn printable(text: &str) -> Cow<'_, str> {
    let is_odd = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if !text.contains(is_odd) {
        return Cow::Borrowed(text);
    }
    let spelled = text.chars().flat_map(|letter| match is_odd(letter) {
        true => letter.escape_default().collect::<Vec<_>>(),
        false => vec![letter],
    });
    Cow::Owned(spelled.collect())
}

/// Text for a log: bytes that could begin a line of their own are written as HAProxy writes them in logs, `#XX`.
fn escape(text: &str, out: &mut Vec<u8>) {
    for byte in text.bytes() {
        match byte {
            0..=31 | 127 => out.extend_from_slice(format!("#{byte:02X}").as_bytes()),
            byte => out.push(byte),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use baton_model::{Facility, Global, LogAddress, LogTarget};

    use super::*;

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

    #[test]
    fn an_event_is_reported_once_where_the_log_is_standard_error() {
        let target = |address, max| LogTarget {
            address,
            len: 1024,
            format: "raw".into(),
            facility: Facility(16),
            max: Level(max),
            min: Level(0),
            sample: None,
        };
        let messages = Messages::new("baton", "1", true);
        let check = |log: Vec<LogTarget>, level: u8, expect: bool| {
            messages.apply(&Model { global: Global { log, ..Global::default() }, ..Model::default() });
            assert_eq!(messages.is_logged_on_stderr(Level(level)), expect);
        };
        let udp = || LogAddress::Udp("127.0.0.1:514".parse().unwrap());
        check(vec![], 5, false);
        check(vec![target(udp(), 7)], 5, false);
        check(vec![target(udp(), 7), target(LogAddress::Stderr, 7)], 5, true);
        check(vec![target(LogAddress::Fd(2), 4)], 4, true);
        check(vec![target(LogAddress::Fd(2), 4)], 5, false);
        check(vec![target(LogAddress::Fd(9), 7)], 5, false);
        check(vec![LogTarget { sample: Some("1:2".into()), ..target(LogAddress::Stderr, 7) }], 5, false);
    }

    #[test]
    fn bytes_from_elsewhere_begin_no_line_and_move_no_cursor() {
        let mut out = Vec::new();
        escape("a\nb\r\u{1b}[2J\u{7f} é", &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), "a#0Ab#0D#1B[2J#7F é");
        assert_eq!(printable("a\n\tb\u{1b}[2J\r"), "a\n\tb\\u{1b}[2J\\r");
        assert!(matches!(printable("a\nb"), Cow::Borrowed(_)));
    }
}
