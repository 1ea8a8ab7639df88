//! Mail about servers (`email-alert`): one mail to each mail server of a `mailers` section, in HAProxy's words. Nothing waits for it: a mail is
//! put into the queue of a mail server, whose task delivers one after the other. What cannot be delivered in time, or finds no place,
//! is lost, which is counted and reported.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::process;
use baton_model::{EmailAlert, Level, Mailers, Model};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout_at;

/// Mails that wait for a mail server.
const MAILS_MAX: usize = 128;
/// How often lost mails are reported at most.
const REPORTED_EVERY: Duration = Duration::from_secs(60);
/// A longer line of a mail server is none.
const LINE_BYTES_MAX: u64 = 2048;
/// Lines of one response.
const LINES_MAX: usize = 64;

/// Who gets mail about which proxy. Belongs to one thread, and to a `LocalSet` of it.
#[derive(Debug, Default)]
pub struct MailAlerts {
    proxies: RefCell<HashMap<Arc<str>, Alerted>>,
    /// Of each section, by its name.
    sections: RefCell<HashMap<Arc<str>, Vec<Rc<Queue>>>>,
    lost: Rc<LostMail>,
}

/// Mails that were not delivered.
#[derive(Debug, Default)]
struct LostMail {
    count: Cell<u64>,
    /// Of them those that were reported.
    reported: Cell<u64>,
    /// The next report is not before this; `None`: nothing was reported lately.
    next: Cell<Option<Instant>>,
    /// Of the last one.
    reason: RefCell<String>,
    news: Notify,
}

/// What is mailed about a proxy.
#[derive(Debug)]
struct Alerted {
    settings: Arc<EmailAlert>,
    queues: Vec<Rc<Queue>>,
}

/// A mail server, and what waits for it.
#[derive(Debug)]
struct Queue {
    name: Arc<str>,
    address: SocketAddr,
    timeout: Duration,
    waiting: RefCell<VecDeque<Mail>>,
    is_busy: Cell<bool>,
}

/// A mail, ready to be delivered.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Mail {
    hello: String,
    from: String,
    to: String,
    text: String,
}

impl LostMail {
    fn add(&self, count: usize, reason: String) {
        self.count.set(self.count.get() + count as u64);
        self.reason.replace(reason);
        self.news.notify_one();
    }
}

impl MailAlerts {
    /// Takes over what a configuration says. Mails that wait for a server that it has, too, go on.
    pub fn apply(&self, model: &Model) {
        let before = self.sections.take();
        let section = |section: &Arc<Mailers>| {
            let known = before.get(&section.name).map(Vec::as_slice).unwrap_or_default();
            let queue = |mailer: &baton_model::Mailer| {
                let same = known.iter().find(|queue| {
                    (&queue.name, queue.address, queue.timeout) == (&mailer.name, mailer.address, section.timeout)
                });
                same.cloned().unwrap_or_else(|| Rc::new(Queue::new(&mailer.name, mailer.address, section.timeout)))
            };
            (Arc::clone(&section.name), section.mailers.iter().map(queue).collect())
        };
        let sections: HashMap<Arc<str>, Vec<Rc<Queue>>> = model.mailers.iter().map(section).collect();
        let proxies = model.proxies.iter().filter_map(|proxy| {
            let settings = proxy.email_alert.clone()?;
            let queues = sections.get(&settings.mailers)?.clone();
            Some((Arc::clone(&proxy.name), Alerted { settings, queues }))
        });
        self.proxies.replace(proxies.collect());
        self.sections.replace(sections);
    }

    /// Mails a line about a proxy, if it is urgent enough.
    pub fn alert(&self, proxy: &str, level: Level, line: &str) {
        let proxies = self.proxies.borrow();
        let Some(Alerted { settings, queues }) = proxies.get(proxy) else { return };
        if level > settings.level {
            return;
        }
        let mail = Mail {
            hello: settings.myhostname.clone().unwrap_or_else(process::hostname),
            from: settings.from.clone(),
            to: settings.to.clone(),
            text: line.trim_end_matches(|end: char| end == '.' || end.is_whitespace()).to_owned(),
        };
        queues.iter().for_each(|queue| queue.put(mail.clone(), &self.lost));
    }

    /// Ready when mails were lost. For one waiter.
    pub fn lost(&self) -> impl Future<Output = ()> + use<> {
        let lost = Rc::clone(&self.lost);
        async move { lost.news.notified().await }
    }

    /// Mails that were lost and not reported yet, and why the last one was; at most once a minute.
    pub fn take_lost(&self, now: Instant) -> Option<(u64, String)> {
        if self.lost.next.get().is_some_and(|next| now < next) {
            return None;
        }
        let lost = self.lost.count.get() - self.lost.reported.replace(self.lost.count.get());
        self.lost.next.set((lost > 0).then(|| now + REPORTED_EVERY));
        (lost > 0).then(|| (lost, self.lost.reason.borrow().clone()))
    }

    /// When to look again without being woken.
    pub fn due(&self) -> Option<Instant> {
        self.lost.next.get()
    }
}

impl Queue {
    fn new(name: &Arc<str>, address: SocketAddr, timeout: Duration) -> Queue {
        Queue { name: Arc::clone(name), address, timeout, waiting: RefCell::default(), is_busy: Cell::new(false) }
    }

    fn put(self: &Rc<Queue>, mail: Mail, lost: &Rc<LostMail>) {
        if self.waiting.borrow().len() >= MAILS_MAX {
            return lost.add(1, format!("mailer {}: {MAILS_MAX} mails wait for it", self.name));
        }
        self.waiting.borrow_mut().push_back(mail);
        if !self.is_busy.replace(true) {
            tokio::task::spawn_local(deliver_all(Rc::clone(self), Rc::clone(lost)));
        }
    }

    /// The next mail. Without one, the task ends.
    fn next(&self) -> Option<Mail> {
        let next = self.waiting.borrow_mut().pop_front();
        self.is_busy.set(next.is_some());
        next
    }
}

async fn deliver_all(queue: Rc<Queue>, lost: Rc<LostMail>) {
    while let Some(mail) = queue.next() {
        let date = date(Timestamp::now(), TimeZone::system());
        let until = tokio::time::Instant::now() + queue.timeout;
        let delivered = timeout_at(until, deliver(queue.address, &mail, &date)).await;
        let reason = match delivered {
            Ok(Ok(stream)) => {
                // It has the mail, whatever it says now.
                let _ = timeout_at(until, quit(stream)).await;
                continue;
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not take the mail within {} s", queue.timeout.as_secs_f32()),
        };
        lost.add(1, format!("mailer {} ({}): {reason}", queue.name, queue.address));
    }
}

/// `Fri, 27 Nov 2026 14:51:54 +0000 (UTC)`.
fn date(at: Timestamp, zone: TimeZone) -> String {
    at.to_zoned(zone).strftime("%a, %d %b %Y %H:%M:%S %z (%Z)").to_string()
}

/// Delivers a mail by SMTP (RFC 5321).
async fn deliver(address: SocketAddr, mail: &Mail, date: &str) -> io::Result<BufReader<TcpStream>> {
    let mut stream = BufReader::new(TcpStream::connect(address).await?);
    expect(&mut stream, '2').await?;
    for (command, class) in mail.commands(date) {
        stream.get_mut().write_all(command.as_bytes()).await?;
        expect(&mut stream, class).await?;
    }
    Ok(stream)
}

async fn quit(mut stream: BufReader<TcpStream>) -> io::Result<()> {
    stream.get_mut().write_all(b"QUIT\r\n").await?;
    expect(&mut stream, '2').await
}

impl Mail {
    /// What is sent after the greeting, each with the class of the response that it has to get.
    fn commands(&self, date: &str) -> [(String, char); 5] {
        let Mail { hello, from, to, text } = self;
        [
            (format!("HELO {hello}\r\n"), '2'),
            (format!("MAIL FROM:<{from}>\r\n"), '2'),
            (format!("RCPT TO:<{to}>\r\n"), '2'),
            ("DATA\r\n".into(), '3'),
            (
                format!(
                    "From: {from}\r\nTo: {to}\r\nDate: {date}\r\nSubject: [HAProxy Alert] {text}\r\n\r\n{text}\r\n\r\n.\r\n"
                ),
                '2',
            ),
        ]
    }
}

/// Reads a response, which may have several lines; its code has to begin with this digit.
async fn expect(stream: &mut BufReader<TcpStream>, class: char) -> io::Result<()> {
    for _ in 0..LINES_MAX {
        let mut line = Vec::new();
        stream.take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await?;
        if line.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection"));
        }
        if line.get(3) == Some(&b'-') {
            continue;
        }
        let text = String::from_utf8_lossy(&line);
        return match text.starts_with(class) {
            true => Ok(()),
            false => Err(io::Error::other(format!("it refused: {}", text.trim_end().escape_debug()))),
        };
    }
    Err(io::Error::other("its response does not end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_at_once_and_then_once_a_minute() {
        let (mail, now) = (MailAlerts::default(), Instant::now());
        assert_eq!((mail.take_lost(now), mail.due()), (None, None));
        mail.lost.add(1, "one".into());
        assert_eq!(mail.take_lost(now), Some((1, "one".into())));
        mail.lost.add(2, "two".into());
        assert_eq!((mail.take_lost(now), mail.due()), (None, Some(now + REPORTED_EVERY)));
        let later = now + REPORTED_EVERY;
        assert_eq!(mail.take_lost(later), Some((2, "two".into())));
        assert_eq!((mail.take_lost(later + REPORTED_EVERY), mail.due()), (None, None));
    }

    #[test]
    fn a_mail_is_haproxys() {
        let at = Timestamp::from_second(1_795_791_114).unwrap();
        let mail = Mail { hello: "vm".into(), from: "f@x".into(), to: "t@x".into(), text: "Server b/s is DOWN".into() };
        let sent: String = mail.commands(&date(at, TimeZone::UTC)).map(|(command, _)| command).concat();
        assert_eq!(
            sent,
            "HELO vm\r\nMAIL FROM:<f@x>\r\nRCPT TO:<t@x>\r\nDATA\r\nFrom: f@x\r\nTo: t@x\r\nDate: Fri, 27 Nov 2026 14:51:54 \
             +0000 (UTC)\r\nSubject: [HAProxy Alert] Server b/s is DOWN\r\n\r\nServer b/s is DOWN\r\n\r\n.\r\n"
        );
    }
}
