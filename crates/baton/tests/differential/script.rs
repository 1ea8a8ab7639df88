//! The steps of a case: what a client or an origin does on a connection, one line each.
//!
//! ```text
//! connect L2 [from 127.0.0.2] [on ::1] [deaf]   clients only; `deaf` reads nothing until `hear`
//! connect L2 tls [sni=NAME] [cert=FILE] [1.2] [alpn=ONE,OTHER]   the same over TLS (`secure.rs`)
//! send GET / HTTP/1.1\r\n\r\n          bytes, with escapes
//! expect [N]                           client: wait for N complete final responses (or the end of the connection)
//! read / read head                     origin: wait for one complete request, or for its head
//! reply                                origin: the next `--- response` of this origin, or the default answer
//! echo                                 origin: send back what comes until the peer ends
//! until TEXT                           wait until TEXT has come after what was waited for before
//! hear                                 begin to read
//! wait close                           wait until the peer has ended the connection
//! await O1 2                           wait until origin O1 has had two requests
//! await log 2                          wait until two log lines have come
//! await note TEXT                      wait until the program has logged TEXT about itself, such as a server's state
//! await NAME / open NAME               a gate between the two sides
//! pause 50                             milliseconds; for slow peers, never to win a race
//! shutdown / close / reset             end of our bytes, end of the connection, end by RST
//! ```
//!
//! The client connection `-` is none at all; its steps only wait.

use std::time::Duration;

use crate::secure::Secure;

/// One step.
#[derive(Debug, Clone)]
pub enum Step {
    /// `on` is another host than the place's own.
    Connect {
        to: String,
        from: Option<String>,
        on: Option<String>,
        deaf: bool,
        tls: Option<Secure>,
    },
    /// From here on the connection speaks HTTP/2.
    GreetHttp2,
    /// An origin waits for the next request of HTTP/2, or for its head.
    TakeRequest {
        whole: bool,
    },
    /// What follows is about this request of the connection, counted from 1.
    OnRequest(usize),
    /// Frames for the request's stream.
    SendFrames(Vec<u8>),
    /// Requests of HTTP/2 and their answers, up to the end of the connection.
    Serve,
    Send(Vec<u8>),
    /// The head of a response came on that stream.
    StreamBegan(u32),
    /// The stream has ended.
    StreamDone(u32),
    /// Our PING was answered.
    Ponged,
    Expect(usize),
    Read,
    ReadHead,
    Reply,
    Echo,
    Until(Vec<u8>),
    Hear,
    WaitClose,
    AwaitRequests {
        origin: String,
        count: usize,
    },
    AwaitLogs(usize),
    AwaitNote(String),
    AwaitGate(String),
    Open(String),
    Pause(Duration),
    Shutdown,
    Close,
    Reset,
}

/// Longest pause a case may ask for, in milliseconds.
const PAUSE_MS_MAX: u64 = 1500;

/// The steps of a section's lines.
pub fn steps(text: &str) -> Result<Vec<Step>, String> {
    text.lines()
        .map(str::trim_start)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| step(line).map_err(|fault| format!("`{line}`: {fault}")))
        .collect()
}

fn step(line: &str) -> Result<Step, String> {
    let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
    let words: Vec<&str> = rest.split_whitespace().collect();
    Ok(match (verb, &words[..]) {
        ("send", _) => Step::Send(bytes(rest)?),
        ("until", _) => Step::Until(bytes(rest)?),
        ("connect", [to, more @ ..]) => {
            let after = |word: &str| {
                let at = more.iter().position(|other| *other == word)?;
                more.get(at + 1).map(|value| value.to_string())
            };
            let (from, on, deaf) = (after("from"), after("on"), more.contains(&"deaf"));
            Step::Connect { to: to.to_string(), from, on, deaf, tls: Secure::of(more) }
        }
        ("expect", []) => Step::Expect(1),
        ("expect", [count]) => Step::Expect(count.parse().map_err(|_| "not a number")?),
        ("read", []) => Step::Read,
        ("read", ["head"]) => Step::ReadHead,
        ("reply", []) => Step::Reply,
        ("echo", []) => Step::Echo,
        ("hear", []) => Step::Hear,
        ("wait", ["close"]) => Step::WaitClose,
        ("await", ["log", count]) => Step::AwaitLogs(count.parse().map_err(|_| "not a number")?),
        ("await", ["note", ..]) => Step::AwaitNote(rest["note ".len()..].to_string()),
        ("await", [origin, count]) => {
            Step::AwaitRequests { origin: origin.to_string(), count: count.parse().map_err(|_| "not a number")? }
        }
        ("await", [gate]) => Step::AwaitGate(gate.to_string()),
        ("open", [gate]) => Step::Open(gate.to_string()),
        ("pause", [ms]) => match ms.parse() {
            Ok(ms) if ms <= PAUSE_MS_MAX => Step::Pause(Duration::from_millis(ms)),
            _ => return Err(format!("not a number up to {PAUSE_MS_MAX}")),
        },
        ("shutdown", []) => Step::Shutdown,
        ("close", []) => Step::Close,
        ("reset", []) => Step::Reset,
        _ => return Err("no such step".to_string()),
    })
}

impl Step {
    /// The plain connection to a place, or one over TLS.
    pub fn connect(to: &str, tls: Option<Secure>) -> Step {
        Step::Connect { to: to.to_string(), from: None, on: None, deaf: false, tls }
    }
}

/// Whether a word of a section's head names a client connection: lower case, not one of the flags.
pub fn is_connection(word: &str) -> bool {
    word.starts_with(|first: char| first.is_ascii_lowercase())
        && !["nowait", "tls"].contains(&word)
        && !word.contains('=')
}

/// Whether a word names a place, such as `L1`.
pub fn is_place(word: &str) -> bool {
    word.len() >= 2
        && word.starts_with(['L', 'U', 'O', 'D', 'F'])
        && word[1..].bytes().all(|byte| byte.is_ascii_digit())
}

/// Text with escapes, as bytes.
pub fn bytes(text: &str) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest[at + 1..].chars().next().ok_or("a lone backslash at the end")?;
        rest = &rest[at + 1 + escape.len_utf8()..];
        match escape {
            'r' => out.push(b'\r'),
            'n' => out.push(b'\n'),
            't' => out.push(b'\t'),
            '0' => out.push(0),
            's' => out.push(b' '),
            '\\' => out.push(b'\\'),
            'x' => {
                let digits = rest.get(..2).ok_or("\\x needs two digits")?;
                out.push(u8::from_str_radix(digits, 16).map_err(|_| "\\x needs two hexadecimal digits")?);
                rest = &rest[2..];
            }
            '{' => {
                let (inside, after) = rest.split_once('}').ok_or("\\{ without }")?;
                let (count, text) = inside.split_once(':').ok_or("\\{N:text} needs a colon")?;
                let count: usize = count.parse().map_err(|_| "\\{N:text} needs a number")?;
                out.extend(bytes(text)?.repeat(count));
                rest = after;
            }
            other => return Err(format!("no escape \\{other}")),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    Ok(out)
}
