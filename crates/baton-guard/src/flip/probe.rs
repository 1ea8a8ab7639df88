//! Does an instance answer?

use std::io::{self, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use super::command::{self, Ended};
use super::{Colour, Setting};

/// How long one answer may take, when nobody says.
pub const LIMIT: Duration = Duration::from_secs(5);
/// How long an address is waited for all the same, when others have taken the time: no wait at all is an error.
const LEAST: Duration = Duration::from_millis(1);
/// Bytes of an answer that are looked at: its status line.
const ANSWER_MAX: usize = 1024;
/// Time from one try to the next, while an instance is waited for.
const PAUSE: Duration = Duration::from_millis(50);
/// Answers that mean that it serves.
const GOOD: std::ops::Range<u16> = 200..400;

/// How to see whether an instance is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// How an instance is probed.
    pub how: ProbeKind,
    /// Timeout of one check; a command that takes longer is killed, with its children.
    pub limit: Duration,
}

/// How an instance is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProbeKind {
    /// Each of its addresses takes a TCP connection.
    Connect,
    /// This path, asked at each of its addresses by HTTP, is answered with a status from 200 to 399.
    Path(String),
    /// This URL (`http://HOST[:PORT]/PATH`) is.
    Url(Url),
    /// This command of `sh` ends with 0. The environment has `BATON_FLIP_COLOUR` and `BATON_FLIP_ADDRESS`.
    Command(String),
}

/// A URL, in its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    /// Host and port, as asked for.
    authority: String,
    path: String,
}

impl Default for Check {
    /// By a TCP connection.
    fn default() -> Check {
        ProbeKind::Connect.into()
    }
}

impl From<ProbeKind> for Check {
    fn from(how: ProbeKind) -> Check {
        Check { how, limit: LIMIT }
    }
}

impl std::str::FromStr for ProbeKind {
    type Err = String;

    /// A path begins with `/` and has no spaces, a URL with `http://`; all else is a command.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_one_word = !text.contains(|sign: char| sign.is_whitespace() || sign.is_control());
        if let Some((scheme, rest)) = text.split_once("://").filter(|(scheme, _)| is_scheme(scheme)) {
            if !scheme.eq_ignore_ascii_case("http") {
                return Err(format!("'{text}': only http:// is supported here; use a command: 'curl -fsS {text}'"));
            }
            if !is_one_word {
                return Err(format!("'{text}' is not a URL: it contains spaces"));
            }
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            judge_authority(authority).map_err(|why| {
                format!("'{text}' {why}; write such as http://127.0.0.1:8080/health or http://[::1]:8080/health")
            })?;
            let path = if path.is_empty() { "/" } else { path };
            return Ok(ProbeKind::Url(Url { authority: authority.into(), path: path.into() }));
        }
        // A program's path is usually longer than a word, or is there.
        if text.starts_with('/') && is_one_word && !std::path::Path::new(text).is_file() {
            return Ok(ProbeKind::Path(text.into()));
        }
        if text.trim().is_empty() { Err("the check is empty".into()) } else { Ok(ProbeKind::Command(text.into())) }
    }
}

impl Check {
    /// Asks the instance once.
    ///
    /// # Errors
    /// Why it is not ready, in words.
    pub fn ask(&self, setting: &Setting, colour: Colour) -> Result<(), String> {
        let doors = setting.doors(colour);
        self.how.ask_at(colour.word(), &doors, &variables(colour, &doors), self.limit)
    }

    /// What [`ask`](Self::ask) does, as a comment in a plan.
    pub fn plan(&self, setting: &Setting, colour: Colour) -> String {
        let doors = setting.doors(colour).iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(" and ");
        match &self.how {
            ProbeKind::Connect => format!("# check {colour} ({doors}) with a TCP connection"),
            ProbeKind::Path(path) => format!("# check {colour} ({doors}) with an HTTP request for {path}"),
            ProbeKind::Url(Url { authority, path }) => format!("# check {colour} with http://{authority}{path}"),
            ProbeKind::Command(words) => format!("# check {colour} ({doors}) with '{words}'"),
        }
    }

    /// Asks again and again until it is ready, for so long at most and the time of one answer.
    ///
    /// # Errors
    /// Why it was not ready at the end.
    pub fn wait(&self, setting: &Setting, colour: Colour, patience: Duration) -> Result<(), String> {
        let begin = Instant::now();
        loop {
            match self.ask(setting, colour) {
                Ok(()) => return Ok(()),
                Err(why) if begin.elapsed() >= patience => {
                    return Err(format!("{why} (waited for {} s)", patience.as_secs_f64()));
                }
                Err(_) => thread::sleep(PAUSE),
            }
        }
    }
}

impl ProbeKind {
    /// Asks once whether `who` is ready, who listens at these addresses. A command has these variables in its environment. All of
    /// it takes as long as `within` at most; a command that takes longer is killed with what it started.
    ///
    /// # Errors
    /// Why it is not ready, in words.
    pub fn ask_at(
        &self,
        who: &str,
        doors: &[SocketAddr],
        variables: &[(&str, String)],
        within: Duration,
    ) -> Result<(), String> {
        let begin = Instant::now();
        let left = || within.saturating_sub(begin.elapsed()).max(LEAST);
        match self {
            ProbeKind::Connect => {
                for door in doors {
                    connect(*door, left()).map_err(|error| format!("{who} ({door}) does not respond: {error}"))?;
                }
                Ok(())
            }
            ProbeKind::Path(path) => {
                for door in doors {
                    let told = get(*door, &door.to_string(), path, left());
                    told.map_err(|why| format!("{who} (http://{door}{path}) does not respond as expected: {why}"))?;
                }
                Ok(())
            }
            ProbeKind::Url(Url { authority, path }) => {
                let with_port = if authority.parse::<SocketAddr>().is_ok() || has_port(authority) {
                    authority.clone()
                } else {
                    format!("{authority}:80")
                };
                let said =
                    |why: String| format!("{who} (http://{authority}{path}) does not respond as expected: {why}");
                let mut addresses = with_port.to_socket_addrs().map_err(|error| said(error.to_string()))?;
                let address = addresses.next().ok_or_else(|| said("the name has no address".into()))?;
                get(address, authority, path, left()).map_err(said)
            }
            ProbeKind::Command(words) => match command::run(words, variables, within) {
                Ok(Ended::By(status)) if status.success() => Ok(()),
                Ok(Ended::By(status)) => Err(format!("{who} is not ready: '{words}' ended with {status}")),
                Ok(Ended::Late) => {
                    let within = within.as_secs_f64();
                    Err(format!("{who} is not ready: '{words}' took longer than {within} s and was killed"))
                }
                Err(error) => Err(format!("{who} cannot be checked: sh: {error}")),
            },
        }
    }
}

/// What commands are told of an instance.
pub(super) fn variables(colour: Colour, doors: &[SocketAddr]) -> [(&'static str, String); 2] {
    let address = doors.first().map(SocketAddr::to_string).unwrap_or_default();
    [("BATON_FLIP_COLOUR", colour.word().to_owned()), ("BATON_FLIP_ADDRESS", address)]
}

/// RFC 3986, 3.1.
fn is_scheme(text: &str) -> bool {
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.starts_with(|first: char| first.is_ascii_alphabetic()) && text.bytes().all(is_sign)
}

/// Whether it is a host, or a host and a port; else what it is.
fn judge_authority(text: &str) -> Result<(), &'static str> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(rest) => {
            let (six, rest) = rest.split_once(']').ok_or("has an IPv6 address without a closing bracket")?;
            six.parse::<Ipv6Addr>().map_err(|_| "has no IPv6 address in its brackets")?;
            (six, rest)
        }
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_sign = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    match rest.strip_prefix(':') {
        _ if host.is_empty() => Err("names no host"),
        _ if !host.bytes().all(is_sign) => Err("has an invalid host"),
        Some(port) if !port.parse::<u16>().is_ok_and(|port| port > 0) => Err("has an invalid port (1 to 65535)"),
        Some(_) => Ok(()),
        None if rest.is_empty() => Ok(()),
        None => Err("has an invalid host"),
    }
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.ends_with(':') && port.parse::<u16>().is_ok())
}

fn connect(address: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, limit)
}

/// Asks for a path by HTTP/1.1 (RFC 9112) and looks at the status.
fn get(address: SocketAddr, host: &str, path: &str, limit: Duration) -> Result<(), String> {
    let begin = Instant::now();
    let words = |error: io::Error| error.to_string();
    let mut stream = connect(address, limit).map_err(words)?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: baton-flip\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(limit)).map_err(words)?;
    stream.write_all(asked.as_bytes()).map_err(words)?;
    let mut answer = Vec::with_capacity(ANSWER_MAX);
    while !answer.contains(&b'\n') && answer.len() < ANSWER_MAX {
        let left = limit.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()).ok_or("no response in time")?;
        stream.set_read_timeout(Some(left)).map_err(words)?;
        let mut piece = [0; ANSWER_MAX];
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err("no response in time".into());
            }
            Err(error) => return Err(error.to_string()),
        }
    }
    judge(&answer)
}

fn judge(answer: &[u8]) -> Result<(), String> {
    let line = answer.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let status = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split_whitespace().nth(1));
    match status.and_then(|status| status.parse::<u16>().ok()) {
        Some(status) if GOOD.contains(&status) => Ok(()),
        Some(status) => Err(format!("status {status}")),
        None if answer.is_empty() => Err("it closed the connection without a response".into()),
        None => Err("not HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_path_a_url_or_a_command() {
        assert_eq!("/health".parse(), Ok(ProbeKind::Path("/health".into())));
        let url =
            |authority: &str, path: &str| Ok(ProbeKind::Url(Url { authority: authority.into(), path: path.into() }));
        assert_eq!("http://127.0.0.1:8000/x?y".parse(), url("127.0.0.1:8000", "/x?y"));
        assert_eq!("http://host".parse(), url("host", "/"));
        assert_eq!("/bin/sh".parse(), Ok(ProbeKind::Command("/bin/sh".into())));
        assert_eq!("curl -f x".parse(), Ok(ProbeKind::Command("curl -f x".into())));
        assert!("https://host/".parse::<ProbeKind>().unwrap_err().contains("curl"));
        assert!("http:///x".parse::<ProbeKind>().is_err());
        assert!(" ".parse::<ProbeKind>().is_err());
    }

    #[test]
    fn only_good_statuses_are_good() {
        assert!(judge(b"HTTP/1.1 200 OK\r\n").is_ok());
        assert!(judge(b"HTTP/1.0 302 Found\r\n").is_ok());
        assert_eq!(judge(b"HTTP/1.1 503 No\r\n"), Err("status 503".into()));
        assert_eq!(judge(b"SSH-2.0-x\r\n"), Err("not HTTP".into()));
        assert!(judge(b"").is_err());
    }

    #[test]
    fn urls_that_cannot_be_asked_are_refused() {
        for good in ["http://[::1]", "http://[::1]:80/x", "HTTP://localhost:8080/", "http://a_b.example/?q=[1]"] {
            assert!(matches!(good.parse(), Ok(ProbeKind::Url(_))), "{good}");
        }
        for (wrong, why) in [
            ("http://[bad", "without a closing bracket"),
            ("http://[bad]/", "no IPv6 address"),
            ("http://[::1]80/", "an invalid host"),
            ("http://127.0.0.1:99999/", "1 to 65535"),
            ("http://127.0.0.1:0/", "1 to 65535"),
            ("http://host:/", "1 to 65535"),
            ("http:///x", "names no host"),
            ("http://::1/", "names no host"),
            ("http://user@host/", "an invalid host"),
            ("ftp://x", "'curl -fsS ftp://x'"),
            ("HTTPS://x", "'curl -fsS HTTPS://x'"),
        ] {
            let said = wrong.parse::<ProbeKind>().unwrap_err();
            assert!(said.contains(why), "{wrong}: {said}");
        }
        assert!(matches!("curl http://x".parse(), Ok(ProbeKind::Command(_))));
    }

    #[test]
    fn ports_are_told_from_addresses() {
        assert!(has_port("host:80"));
        assert!(!has_port("host"));
        assert!(!has_port("[::1]"));
        assert!(has_port("[::1]:80"));
    }
}
