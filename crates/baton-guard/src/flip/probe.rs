//! Does an instance answer?

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::{Colour, Setting};

/// How long one answer may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are looked at: its status line.
const ANSWER_MAX: usize = 1024;
/// Time from one try to the next, while an instance is waited for.
const PAUSE: Duration = Duration::from_millis(50);
/// Answers that mean that it serves.
const GOOD: std::ops::Range<u16> = 200..400;

/// How to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
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

impl std::str::FromStr for Check {
    type Err = String;

    /// A path begins with `/` and has no spaces, a URL with `http://`; all else is a command.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_one_word = !text.contains(|sign: char| sign.is_whitespace() || sign.is_control());
        if text.starts_with("https://") {
            return Err(format!(
                "'{text}': this asks by http:// alone; a command can do it: --check 'curl -fsS {text}'"
            ));
        }
        if let Some(rest) = text.strip_prefix("http://") {
            if !is_one_word {
                return Err(format!("'{text}' is no URL: it has spaces"));
            }
            let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if authority.is_empty() {
                return Err(format!("'{text}' names no host"));
            }
            let path = if path.is_empty() { "/" } else { path };
            return Ok(Check::Url(Url { authority: authority.into(), path: path.into() }));
        }
        // A program's path is usually longer than a word, or is there.
        if text.starts_with('/') && is_one_word && !std::path::Path::new(text).is_file() {
            return Ok(Check::Path(text.into()));
        }
        if text.trim().is_empty() { Err("nothing to check by".into()) } else { Ok(Check::Command(text.into())) }
    }
}

impl Check {
    /// Asks the instance once.
    ///
    /// # Errors
    /// Why it is not ready, in words.
    pub fn ask(&self, setting: &Setting, colour: Colour) -> Result<(), String> {
        let doors = setting.doors(colour);
        match self {
            Check::Connect => {
                for door in &doors {
                    connect(*door).map_err(|error| format!("{colour} ({door}) does not answer: {error}"))?;
                }
                Ok(())
            }
            Check::Path(path) => {
                for door in &doors {
                    let told = get(*door, &door.to_string(), path);
                    told.map_err(|why| format!("{colour} (http://{door}{path}) does not answer as it should: {why}"))?;
                }
                Ok(())
            }
            Check::Url(Url { authority, path }) => {
                let with_port = if authority.parse::<SocketAddr>().is_ok() || has_port(authority) {
                    authority.clone()
                } else {
                    format!("{authority}:80")
                };
                let said =
                    |why: String| format!("{colour} (http://{authority}{path}) does not answer as it should: {why}");
                let mut addresses = with_port.to_socket_addrs().map_err(|error| said(error.to_string()))?;
                let address = addresses.next().ok_or_else(|| said("the name has no address".into()))?;
                get(address, authority, path).map_err(said)
            }
            Check::Command(words) => {
                let address = doors.first().map(SocketAddr::to_string).unwrap_or_default();
                let status = shell(words, colour, &address).stdin(Stdio::null()).status();
                match status {
                    Ok(status) if status.success() => Ok(()),
                    Ok(status) => Err(format!("{colour} is not ready: '{words}' ended with {status}")),
                    Err(error) => Err(format!("{colour} cannot be checked: sh: {error}")),
                }
            }
        }
    }

    /// Asks again and again until it is ready, for so long at most.
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

/// A command of an operator, with what it may want to know.
pub(super) fn shell(words: &str, colour: Colour, address: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", words]).env("BATON_FLIP_COLOUR", colour.word()).env("BATON_FLIP_ADDRESS", address);
    command
}

fn has_port(authority: &str) -> bool {
    authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && !host.ends_with(':') && port.parse::<u16>().is_ok())
}

fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, PATIENCE)
}

/// Asks for a path by HTTP/1.1 (RFC 9112) and looks at the status.
fn get(address: SocketAddr, host: &str, path: &str) -> Result<(), String> {
    let begin = Instant::now();
    let words = |error: io::Error| error.to_string();
    let mut stream = connect(address).map_err(words)?;
    let asked = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: baton-flip\r\nConnection: close\r\n\r\n");
    stream.set_write_timeout(Some(PATIENCE)).map_err(words)?;
    stream.write_all(asked.as_bytes()).map_err(words)?;
    let mut answer = Vec::with_capacity(ANSWER_MAX);
    while !answer.contains(&b'\n') && answer.len() < ANSWER_MAX {
        let left = PATIENCE.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()).ok_or("no answer in time")?;
        stream.set_read_timeout(Some(left)).map_err(words)?;
        let mut piece = [0; ANSWER_MAX];
        match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(length) => answer.extend_from_slice(&piece[..length]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                return Err("no answer in time".into());
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
        None if answer.is_empty() => Err("it closed the connection without an answer".into()),
        None => Err("no HTTP".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_a_path_a_url_or_a_command() {
        assert_eq!("/health".parse(), Ok(Check::Path("/health".into())));
        let url = |authority: &str, path: &str| Ok(Check::Url(Url { authority: authority.into(), path: path.into() }));
        assert_eq!("http://127.0.0.1:8000/x?y".parse(), url("127.0.0.1:8000", "/x?y"));
        assert_eq!("http://host".parse(), url("host", "/"));
        assert_eq!("/bin/sh".parse(), Ok(Check::Command("/bin/sh".into())));
        assert_eq!("curl -f x".parse(), Ok(Check::Command("curl -f x".into())));
        assert!("https://host/".parse::<Check>().unwrap_err().contains("curl"));
        assert!("http:///x".parse::<Check>().is_err());
        assert!(" ".parse::<Check>().is_err());
    }

    #[test]
    fn only_good_statuses_are_good() {
        assert!(judge(b"HTTP/1.1 200 OK\r\n").is_ok());
        assert!(judge(b"HTTP/1.0 302 Found\r\n").is_ok());
        assert_eq!(judge(b"HTTP/1.1 503 No\r\n"), Err("status 503".into()));
        assert_eq!(judge(b"SSH-2.0-x\r\n"), Err("no HTTP".into()));
        assert!(judge(b"").is_err());
    }

    #[test]
    fn ports_are_told_from_addresses() {
        assert!(has_port("host:80"));
        assert!(!has_port("host"));
        assert!(!has_port("[::1]"));
        assert!(has_port("[::1]:80"));
    }
}
