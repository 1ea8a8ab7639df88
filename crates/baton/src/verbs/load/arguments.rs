//! The options of `baton load`. Where `ab` has a short option that means the same, it is that one; those of wrk and hey are understood
//! where they do not contradict it ([`foreign`](super::foreign)).

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use baton_prove::load::StatusCheck;
use baton_prove::stream::TlsVersion;
use baton_prove::units;
use clap::Args;

use super::url::Url;

const EXAMPLES: &str = "\
Examples:
  baton load -n 100k -c 100 -k http://localhost:8080/
  baton load -t 30 --rate 5000 -k http://localhost:8080/a http://localhost:8080/b
  baton load -t 1m -k https://www.example.com/ wss://www.example.com/chat tcp://db.example.com:5000
  baton load -n 100k -c 10 --http2 --streams 32 https://www.example.com/
  baton load -n 1000 -p order.json -T application/json --expect-status 201 http://unix:/run/app.sock:/orders
  baton load -t 10 --rate 1000 --json --series=latency.csv http://localhost:8080/ | jq .failures

Exit code: 0 if nothing failed, 1 if something failed, 2 if the load could not start.";

/// Generate load at full speed or at a constant rate, and report each kind of failure.
///
/// Sends requests (http://, https://) until their number or the time is reached. Meanwhile WebSockets (ws://, wss://) and plain TCP
/// connections (tcp://) to an echo server are held open, and every byte that comes back is compared. A failure never ends the load,
/// and no request is retried silently. Ctrl-C ends the load and prints the results; a second Ctrl-C ends it immediately.
///
/// Options of ab, wrk and hey are understood where they do not contradict each other (docs/load.md).
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadCommand {
    /// Where to send requests; several URLs take turns. A unix socket: http://unix:/run/app.sock:/path
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<Url>,

    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub request: RequestArguments,
    #[command(flatten)]
    pub expect: ExpectArguments,
    #[command(flatten)]
    pub secure: TlsArguments,
    #[command(flatten)]
    pub open: Open,
    #[command(flatten)]
    pub output: Output,
    #[command(flatten)]
    pub foreign: super::foreign::ForeignOptions,
}

/// How much, and how fast.
#[derive(Args, Debug)]
#[command(next_help_heading = "Load")]
pub struct Amount {
    /// Total number of requests (500, 10k, 1M)
    #[arg(short = 'n', long, value_name = "N", value_parser = units::count)]
    pub requests: Option<u64>,
    /// Duration: no request starts after it (30, 500ms, 2m) [default: 10 s without -n]
    #[arg(short = 't', long = "for", value_name = "TIME", value_parser = units::time)]
    pub time: Option<Duration>,
    /// Synonym of -t, as in wrk (-d) and hey (-z)
    #[arg(short = 'd', short_alias = 'z', long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// Concurrent connections [default: 1, or 100 with --rate]
    #[arg(short = 'c', long, value_name = "N", value_parser = units::count)]
    pub connections: Option<u64>,
    /// Keep connections open; without it each request uses a new connection
    #[arg(short = 'k', long)]
    pub keep_alive: bool,
    /// HTTP/2, connections kept open: by prior knowledge on http://, by ALPN on https://
    #[arg(long)]
    pub http2: bool,
    /// Concurrent requests on each connection (with --http2) [default: 1]
    #[arg(long, value_name = "N", value_parser = units::count, requires = "http2")]
    pub streams: Option<u64>,
    /// Constant rate in requests per second; latency counts from the scheduled send time
    #[arg(short = 'R', long, value_name = "N", value_parser = units::rate)]
    pub rate: Option<f64>,
    /// Threads of the load generator
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Timeout of a complete response
    #[arg(short = 's', long, value_name = "TIME", default_value = "60", value_parser = timeout)]
    pub timeout: Duration,
    /// Timeout of the connection, including TLS
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = units::time)]
    pub timeout_connect: Duration,
    /// Timeout of the first byte of a response
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = units::time)]
    pub timeout_first_byte: Duration,
    /// Local source address; several take turns (repeatable)
    #[arg(short = 'B', long = "source", value_name = "ADDRESS")]
    pub sources: Vec<IpAddr>,
    /// Go on after errors, as in ab (always on)
    #[arg(short = 'r', hide = true)]
    pub go_on: bool,
}

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "Requests")]
pub struct RequestArguments {
    /// Method [default: GET; POST with -p, PUT with -u]
    #[arg(short = 'm', long, value_name = "METHOD", conflicts_with = "head")]
    pub method: Option<String>,
    /// Send HEAD requests
    #[arg(short = 'i', long, conflicts_with_all = ["post", "put"])]
    pub head: bool,
    /// Send this file with POST
    #[arg(short = 'p', long, value_name = "FILE", conflicts_with = "put")]
    pub post: Option<PathBuf>,
    /// Send this file with PUT
    #[arg(short = 'u', long, value_name = "FILE")]
    pub put: Option<PathBuf>,
    /// Content-Type of the body [default: text/plain]
    #[arg(short = 'T', long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// Add a header line, or replace Host (repeatable)
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Send this cookie (repeatable)
    #[arg(short = 'C', long = "cookie", value_name = "NAME=VALUE")]
    pub cookies: Vec<String>,
    /// Basic authentication
    #[arg(short = 'A', short_alias = 'a', long, value_name = "NAME:PASSWORD", value_parser = user)]
    pub user: Option<String>,
    /// Host header [default: from the URL]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

/// Which responses are correct.
#[derive(Args, Debug)]
#[command(next_help_heading = "Checks")]
pub struct ExpectArguments {
    /// Count a response as failed if its length differs from the first one of its URL, as ab does
    #[arg(long, conflicts_with_all = ["any_length", "expect_body"])]
    pub same_length: bool,
    /// Responses may vary in length, as in ab (the default)
    #[arg(short = 'l', long, hide = true)]
    pub any_length: bool,
    /// Expected status code, or 'any' [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_parser = status)]
    pub expect_status: Option<StatusCheck>,
    /// Expected body, byte for byte
    #[arg(long, value_name = "FILE", conflicts_with = "any_length")]
    pub expect_body: Option<PathBuf>,
}

/// TLS.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArguments {
    /// TLS version: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', long, value_name = "VERSION", default_value = "ALL", value_parser = tls)]
    pub tls: (TlsVersion, TlsVersion),
    /// Server name to send (SNI) and to expect in the certificate [default: from the URL]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Send no server name (SNI)
    #[arg(short = 'I', long, conflicts_with = "sni")]
    pub no_sni: bool,
    /// Trust the CA certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_file: Option<PathBuf>,
    /// Accept any certificate
    #[arg(long)]
    pub insecure: bool,
    /// Client certificates and key (PEM)
    #[arg(short = 'E', long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
    /// Never resume a TLS session
    #[arg(long)]
    pub full_handshakes: bool,
}

/// What is held open.
#[derive(Args, Debug)]
#[command(next_help_heading = "Sessions (ws://, wss://, tcp://)")]
pub struct Open {
    /// Sessions per URL
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    pub sessions: u64,
    /// Time between two messages of a session; 'never': only at its end
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub interval: Interval,
    /// Message size in bytes
    #[arg(long, value_name = "N", default_value = "64", value_parser = units::count)]
    pub message_bytes: u64,
}

/// What is shown.
#[derive(Args, Debug)]
#[command(next_help_heading = "Output")]
pub struct Output {
    /// Print the results as JSON instead of text, or write them to FILE in addition
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
    /// Write a time series, one entry per 10 ms: JSON if FILE ends in .json, else CSV
    #[arg(long, value_name = "FILE")]
    pub series: Option<PathBuf>,
    /// Show no progress
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

/// The time between two messages of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interval {
    /// So long.
    Every(Duration),
    /// A session is silent until its end.
    Never,
}

fn interval(text: &str) -> Result<Interval, String> {
    match text {
        "never" => Ok(Interval::Never),
        _ => units::time(text).map(Interval::Every),
    }
}

/// The time of `-d` and `-z`, which mean something else in ab and hey.
fn duration(text: &str) -> Result<Duration, String> {
    units::time(text).map_err(|error| {
        format!(
            "{error}; -d and -z are the duration here, as in wrk and hey. ab's -d and -z: use --json; hey's -d BODY: use -p FILE"
        )
    })
}

/// The time of `-s`, which is a script in wrk.
fn timeout(text: &str) -> Result<Duration, String> {
    units::time(text).map_err(|error| match text.ends_with(".lua") {
        true => "wrk's scripts are not supported; use several URLs, -m, -H and -p. -s is the timeout, as in ab".into(),
        false => error,
    })
}

/// The user of `-A`, which is a header in hey.
fn user(text: &str) -> Result<String, String> {
    match text.contains(':') {
        true => Ok(text.to_owned()),
        false => Err("expected NAME:PASSWORD, as in ab; for hey's -A TYPE use -H 'Accept: TYPE'".into()),
    }
}

/// The oldest and the newest version.
fn tls(text: &str) -> Result<(TlsVersion, TlsVersion), String> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" => Ok((TlsVersion::V1_2, TlsVersion::V1_3)),
        upper => match upper.strip_prefix("TLS").map(|version| version.trim_start_matches('V')) {
            Some(version) => version.parse().map(|version| (version, version)),
            None => Err("expected TLS1.2, TLS1.3 or ALL".into()),
        },
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("expected 'Name: value'")?;
    if name.is_empty() || name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err("a header name must not be empty or contain spaces".into());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn status(text: &str) -> Result<StatusCheck, String> {
    match text.parse() {
        Ok(status @ 200..=599) => Ok(StatusCheck::Exactly(status)),
        _ if text == "any" => Ok(StatusCheck::Any),
        _ => Err("expected a status from 200 to 599, or 'any'".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_statuses() {
        assert_eq!(header("A:  b: c "), Ok(("A".to_owned(), "b: c".to_owned())));
        assert_eq!(header("A:"), Ok(("A".to_owned(), String::new())));
        assert!(header("A b: c").is_err() && header(": c").is_err() && header("A").is_err());
        assert_eq!(status("404"), Ok(StatusCheck::Exactly(404)));
        assert_eq!(status("any"), Ok(StatusCheck::Any));
        assert!(status("100").is_err() && status("600").is_err() && status("ok").is_err());
        assert_eq!(tls("all"), Ok((TlsVersion::V1_2, TlsVersion::V1_3)));
        assert_eq!(tls("TLS1.2"), Ok((TlsVersion::V1_2, TlsVersion::V1_2)));
        assert_eq!(tls("TLSv1.3"), Ok((TlsVersion::V1_3, TlsVersion::V1_3)));
        assert!(tls("SSL3").is_err() && tls("TLS1").is_err() && tls("TLS1.1").is_err());
        assert!(duration("30s").is_ok() && duration("{}").is_err_and(|error| error.contains("-p FILE")));
        assert!(timeout("5").is_ok() && timeout("post.lua").is_err_and(|error| error.contains("scripts")));
        assert!(user("a:b").is_ok() && user("text/html").is_err_and(|error| error.contains("Accept")));
        assert_eq!(interval("never"), Ok(Interval::Never));
        assert_eq!(interval("1s"), Ok(Interval::Every(Duration::from_secs(1))));
    }
}
