//! Health checks of a real server: `HTTP_GET` and its like, their times, and which of them Baton makes.

use std::time::Duration;

use super::tree::Statement;
use crate::convert::service::{self, Check, Protocol, quoted, time};
use crate::convert::{ConvertNote, shown};

/// Longest time of a configuration (configuration manual, 2.5), in milliseconds.
const MILLIS_MAX: u64 = 2_147_483_647;
/// How often a check may fail before it counts.
const RETRY_MAX: u32 = 1000;

/// Kinds of checks, and whether a connection is worth making instead.
const CHECKERS: [&str; 10] = [
    "HTTP_GET",
    "SSL_GET",
    "TCP_CHECK",
    "SMTP_CHECK",
    "DNS_CHECK",
    "MISC_CHECK",
    "BFD_CHECK",
    "UDP_CHECK",
    "PING_CHECK",
    "FILE_CHECK",
];

pub(super) fn is_checker(word: &str) -> bool {
    CHECKERS.contains(&word)
}

fn checker(word: &str) -> &'static str {
    CHECKERS.into_iter().find(|checker| *checker == word).unwrap_or("a check")
}

/// When checks are made and what they mean, as far as something is said; in milliseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    delay: Option<u64>,
    retry: Option<u32>,
    before_retry: Option<u64>,
    timeout: Option<u64>,
    alpha: bool,
}

impl Times {
    pub fn is_word(&self, word: &str) -> bool {
        matches!(word, "delay_loop" | "retry" | "nb_get_retry" | "delay_before_retry" | "connect_timeout" | "alpha")
    }

    /// Takes one of the words above.
    pub fn read(&mut self, statement: &Statement) -> Result<(), String> {
        let value = statement.word(1);
        match statement.word(0) {
            "delay_loop" => self.delay = Some(timer(value)?),
            "delay_before_retry" => self.before_retry = Some(timer(value)?),
            "connect_timeout" => self.timeout = Some(timer(value)?),
            "alpha" => {
                self.alpha = match value {
                    "" | "on" | "true" | "yes" => true,
                    "off" | "false" | "no" => false,
                    _ => return Err("left out: expects on or off".into()),
                }
            }
            _ => match value.parse() {
                Ok(retry) if retry < RETRY_MAX => self.retry = Some(retry),
                _ => return Err(format!("left out: expects a number below {RETRY_MAX}")),
            },
        }
        Ok(())
    }

    /// As words of a server's line, for a checker whose own defaults these are.
    fn words(&self, retry: u32, before_retry: u64) -> String {
        let inter = self.delay.unwrap_or(60_000);
        let fast = self.before_retry.unwrap_or(before_retry).min(inter);
        let fall = self.retry.unwrap_or(retry) + 1;
        let fastinter = if fall > 1 { format!(" fastinter {}", time(fast)) } else { String::new() };
        let down = if self.alpha { " init-state down" } else { "" };
        format!("inter {}{fastinter} fall {fall} rise 1{down}", time(inter))
    }
}

/// A time in seconds with fractions, as milliseconds.
fn timer(text: &str) -> Result<u64, String> {
    let seconds: f64 = text.parse().map_err(|_| "left out: expects seconds".to_owned())?;
    let time = Duration::try_from_secs_f64(seconds).map_err(|_| "left out: expects seconds, 0 or more".to_owned())?;
    match u64::try_from(time.as_millis()) {
        Ok(millis @ 1..=MILLIS_MAX) => Ok(millis),
        _ => Err(format!("left out: expects a time between 1 ms and {} days", MILLIS_MAX / 86_400_000)),
    }
}

/// The check of a server: of several, the first that says most.
pub(super) fn read(
    checks: &[&Statement],
    times: &Times,
    host: Option<&str>,
    protocol: Protocol,
    remarks: &mut Vec<ConvertNote>,
) -> Option<Check> {
    let by_http = |check: &&&Statement| matches!(check.word(0), "HTTP_GET" | "SSL_GET");
    let by_tcp = |check: &&&Statement| check.word(0) == "TCP_CHECK";
    let chosen = checks.iter().find(by_http).or_else(|| checks.iter().find(by_tcp)).or(checks.first())?;
    for other in checks.iter().filter(|other| !std::ptr::eq(**other, *chosen)) {
        let why = "left out: a server has only one health check";
        remarks.push(ConvertNote::new(other.line, other.word(0), why));
    }
    let mut reading = Reading { times: times.clone(), host: host.map(str::to_owned), ..Reading::default() };
    for statement in chosen.inside() {
        if let Err(why) = reading.statement(statement, chosen.word(0)) {
            remarks.push(ConvertNote::new(statement.line, &statement.text(), why));
        }
    }
    let title = checker(chosen.word(0));
    let is_http = by_http(&chosen);
    if !is_http && !by_tcp(&chosen) {
        let Protocol::Tcp = protocol else {
            let why = "left out: this health check is not supported, so the server is always up; `check port N` checks \
                       a TCP port";
            remarks.push(ConvertNote::new(chosen.line, title, why));
            return None;
        };
        remarks.push(ConvertNote::new(
            chosen.line,
            title,
            "this health check is not supported: a TCP connect check replaces it",
        ));
    }
    let (lines, words) = if is_http { reading.http(chosen, remarks) } else { (Vec::new(), Vec::new()) };
    let (retry, before_retry) = match title {
        "HTTP_GET" | "SSL_GET" => (1, 3000),
        "MISC_CHECK" => (0, 1000),
        "DNS_CHECK" => (3, times.delay.unwrap_or(60_000)),
        _ => (1, 1000),
    };
    let words = reading
        .address
        .iter()
        .map(|address| format!("addr {}", service::host(*address)))
        .chain(words)
        .collect::<Vec<_>>();
    Some(Check {
        line: chosen.line,
        title,
        lines,
        times: reading.times.words(retry, before_retry),
        words: words.join(" "),
        port: reading.port,
        timeout: time(reading.times.timeout.unwrap_or(5000)),
    })
}

/// What a check says.
#[derive(Default)]
struct Reading<'a> {
    times: Times,
    host: Option<String>,
    address: Option<std::net::IpAddr>,
    port: Option<u16>,
    version: Option<&'static str>,
    sni: bool,
    urls: Vec<&'a Statement>,
}

impl<'a> Reading<'a> {
    fn statement(&mut self, statement: &'a Statement, kind: &str) -> Result<(), String> {
        let value = statement.word(1);
        let is_http = matches!(kind, "HTTP_GET" | "SSL_GET");
        match statement.word(0) {
            "connect_ip" => self.address = Some(value.parse().map_err(|_| "left out: expects an address")?),
            "connect_port" => match value.parse() {
                Ok(port @ 1..) => self.port = Some(port),
                _ => return Err("left out: expects a port".into()),
            },
            "virtualhost" if is_http => self.host = Some(host(value)?),
            "http_protocol" if is_http => match value {
                "1.0" | "1.0C" | "1.0c" => self.version = Some("HTTP/1.0"),
                "1.1" => self.version = Some("HTTP/1.1"),
                _ => return Err("left out: expects the version 1.0, 1.0C or 1.1".into()),
            },
            "enable_sni" if kind == "SSL_GET" => self.sni = true,
            "url" if is_http => self.urls.push(statement),
            "fast_recovery" => return Err("left out: a server is always up again after one successful check".into()),
            "bindto" | "bind_if" | "bind_port" => return Err("left out: use `source` on the server line".into()),
            "fwmark" => return Err("left out: firewall marks are not supported on health checks".into()),
            "log_all_failures" => return Err("left out: every change of a check's result is logged".into()),
            "warmup" => return Err("left out: health checks are always spread over their interval".into()),
            word if self.times.is_word(word) => self.times.read(statement)?,
            _ => return Err(format!("left out: not supported in {kind}")),
        }
        Ok(())
    }

    /// Lines of the section and words of the server.
    fn http(&self, check: &Statement, remarks: &mut Vec<ConvertNote>) -> (Vec<String>, Vec<String>) {
        let mut lines = vec!["option httpchk".to_owned()];
        let urls: Vec<Url> = match &self.urls[..] {
            [] => vec![Url::default()],
            urls => urls.iter().map(|url| Url::read(url, remarks)).collect(),
        };
        for url in &urls {
            // Each is asked for over a connection of its own.
            if urls.len() > 1 {
                lines.push("http-check connect default".into());
            }
            let path = url.path.as_deref().unwrap_or("/");
            let version = self.version.unwrap_or("HTTP/1.0");
            let host = url.host.as_ref().or(self.host.as_ref());
            let host = host.map(|host| format!(" hdr Host {host}")).unwrap_or_default();
            lines.push(format!("http-check send meth GET uri {path} ver {version}{host}"));
            lines.push(format!("http-check expect status {}", url.status.as_deref().unwrap_or("200-299")));
            lines.extend(url.expect.iter().map(|expect| format!("http-check expect {expect}")));
        }
        let mut words = Vec::new();
        if check.word(0) == "SSL_GET" {
            words.push("check-ssl verify none".to_owned());
            let name = urls.iter().find_map(|url| url.host.as_ref()).or(self.host.as_ref());
            match (self.sni, name) {
                (true, Some(name)) => words.push(format!("check-sni {name}")),
                (true, None) => {
                    remarks.push(ConvertNote::new(check.line, "enable_sni", "left out: it requires a virtualhost"));
                }
                (false, _) => {}
            }
        }
        (lines, words)
    }
}

/// What is asked for, and what the answer must be; each as the configuration has it.
#[derive(Default)]
struct Url {
    path: Option<String>,
    host: Option<String>,
    status: Option<String>,
    expect: Option<String>,
}

impl Url {
    fn read(statement: &Statement, remarks: &mut Vec<ConvertNote>) -> Url {
        let mut url = Url::default();
        let mut regex: Option<(&Statement, String)> = None;
        let mut is_reversed = false;
        for inner in statement.inside() {
            let read = match inner.word(0) {
                "path" => path(inner.word(1)).map(|path| url.path = Some(path)),
                "virtualhost" => host(inner.word(1)).map(|host| url.host = Some(host)),
                "status_code" => status(inner.rest(1)).map(|status| url.status = Some(status)),
                "regex" => expression(&inner.value()).map(|expression| regex = Some((inner, expression))),
                "regex_no_match" => {
                    is_reversed = true;
                    Ok(())
                }
                "digest" => Err("left out: response digests are not supported; use `http-check expect rstring`".into()),
                "regex_options" => Err("left out: put the flags into the expression, such as (?i)".into()),
                "regex_stack" => Err("left out: regular expressions need no stack".into()),
                "" => Err(super::UNFINISHED.to_owned()),
                _ => Err("not read: unknown keyword here".to_owned()),
            };
            if let Err(why) = read {
                remarks.push(ConvertNote::new(inner.line, &inner.text(), why));
            }
        }
        if let (None, true) = (&regex, is_reversed)
            && let Some(line) = statement.inside().iter().find(|inner| inner.word(0) == "regex_no_match")
        {
            remarks.push(ConvertNote::new(line.line, &line.text(), "left out: it requires a regex"));
        }
        url.expect = regex.map(|(_, expression)| match is_reversed {
            true => format!("! rstring {expression}"),
            false => format!("rstring {expression}"),
        });
        url
    }
}

fn path(text: &str) -> Result<String, String> {
    let is_target = text.starts_with('/') && text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
    match quoted(text).filter(|_| is_target) {
        Some(path) => Ok(path),
        None => Err(format!("left out: {} is not a valid path; / is requested instead", shown(text))),
    }
}

/// A name for `Host`, which nothing in a configuration reads otherwise.
pub(super) fn host(text: &str) -> Result<String, String> {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-._:[]".contains(char);
    match !text.is_empty() && text.chars().all(is_name) {
        true => Ok(text.to_owned()),
        false => Err("left out: not a valid host name".into()),
    }
}

/// `200-299 400 503` as `200-299,400,503`.
fn status(words: &[String]) -> Result<String, String> {
    let is_code = |text: &str| text.parse().is_ok_and(|code: u16| (100..=599).contains(&code));
    let is_fine = |word: &String| match word.split_once('-') {
        Some((low, high)) => is_code(low) && is_code(high) && low <= high,
        None => is_code(word),
    };
    match !words.is_empty() && words.iter().all(is_fine) {
        true => Ok(words.join(",")),
        false => Err("left out: expects status codes or ranges from 100 to 599".into()),
    }
}

fn expression(text: &str) -> Result<String, String> {
    if let Err(error) = regex::bytes::RegexBuilder::new(text).unicode(false).build() {
        let error = error.to_string();
        let reason = error.lines().last().unwrap_or_default();
        return Err(format!("left out: unsupported regular expression ({})", shown(reason)));
    }
    quoted(text).filter(|_| !text.is_empty()).ok_or_else(|| "left out: the expression is empty or not printable".into())
}
