//! The options of `baton load`. Where `ab` has a short option that means the same, it is that one.

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
  baton load -n 1000 -p order.json -T application/json --expect-status 201 http://unix:/run/app.sock:/orders
  baton load -t 10 --rate 1000 --json --series=latency.csv http://localhost:8080/ | jq .failures

Exit code: 0 if nothing failed, 1 if something did, 2 if the load could not begin.";

/// Ask a server as fast or as often as wanted, and say what each failure was.
///
/// Requests (http://, https://) are asked until their number or the time is over; WebSockets (ws://, wss://) and plain
/// connections (tcp://) to a server that echoes are held open meanwhile, and every byte that comes back is compared. A failure
/// never ends the load, and nothing is tried again in silence. Ctrl-C ends it with what was measured; once more ends it at once.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct LoadCommand {
    /// What to ask; several are asked in turn. A unix socket: http://unix:/run/app.sock:/path
    #[arg(value_name = "URL", required = true)]
    pub urls: Vec<Url>,

    #[command(flatten)]
    pub amount: Amount,
    #[command(flatten)]
    pub asking: RequestArguments,
    #[command(flatten)]
    pub right: ExpectArguments,
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
#[command(next_help_heading = "How much")]
pub struct Amount {
    /// Requests in all (500, 10k, 1M)
    #[arg(short = 'n', long, value_name = "N", value_parser = units::count)]
    pub requests: Option<u64>,
    /// Begin no request after this time (30, 500ms, 2m); 10 s if there is no -n either
    #[arg(short = 't', long = "for", value_name = "TIME", value_parser = units::time)]
    pub time: Option<Duration>,
    /// Connections that ask at the same time [default: 1, or 100 with --rate]
    #[arg(short = 'c', long, value_name = "N", value_parser = units::count)]
    pub connections: Option<u64>,
    /// Keep connections open; otherwise each request has its own
    #[arg(short = 'k', long)]
    pub keep_alive: bool,
    /// Requests a second, each begun on time whatever the server does; latency counts from when it was due
    #[arg(long, value_name = "N", value_parser = units::rate)]
    pub rate: Option<f64>,
    /// Threads of the client
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: usize,
    /// Give a request up when its answer is not whole after this time
    #[arg(short = 's', long, value_name = "TIME", default_value = "60", value_parser = units::time)]
    pub timeout: Duration,
    /// … when it has no connection after this time
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = units::time)]
    pub timeout_connect: Duration,
    /// … when not a byte of the answer came after this time
    #[arg(long, value_name = "TIME", default_value = "30", value_parser = units::time)]
    pub timeout_first_byte: Duration,
    /// One of the machine's own addresses to connect from; several are used in turn (repeatable)
    #[arg(short = 'B', long = "source", value_name = "ADDRESS")]
    pub sources: Vec<IpAddr>,
    /// As in ab: go on after errors. Always so here
    #[arg(short = 'r')]
    pub go_on: bool,
}

/// What is sent.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is sent")]
pub struct RequestArguments {
    /// The method [default: GET; POST with -p, PUT with -u]
    #[arg(short = 'm', long, value_name = "METHOD", conflicts_with = "head")]
    pub method: Option<String>,
    /// Ask with HEAD
    #[arg(short = 'i', long, conflicts_with_all = ["post", "put"])]
    pub head: bool,
    /// Send this file with POST
    #[arg(short = 'p', long, value_name = "FILE", conflicts_with = "put")]
    pub post: Option<PathBuf>,
    /// Send this file with PUT
    #[arg(short = 'u', long, value_name = "FILE")]
    pub put: Option<PathBuf>,
    /// The Content-Type of what is sent [default: text/plain]
    #[arg(short = 'T', long, value_name = "TYPE")]
    pub content_type: Option<String>,
    /// One more header line, also instead of Host (repeatable)
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Send this cookie (repeatable)
    #[arg(short = 'C', long = "cookie", value_name = "NAME=VALUE")]
    pub cookies: Vec<String>,
    /// Name and password for basic authentication
    #[arg(short = 'A', long, value_name = "NAME:PASSWORD")]
    pub user: Option<String>,
    /// The Host header [default: what the URL says]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
}

/// Which answers are right.
#[derive(Args, Debug)]
#[command(next_help_heading = "Which answers are right")]
pub struct ExpectArguments {
    /// Answers may differ in length; otherwise the first right one of a URL sets it for all
    #[arg(short = 'l', long)]
    pub any_length: bool,
    /// The right status, or 'any' [default: 200 to 299]
    #[arg(long, value_name = "STATUS", value_parser = status)]
    pub expect_status: Option<StatusCheck>,
    /// The right body, byte for byte
    #[arg(long, value_name = "FILE", conflicts_with = "any_length")]
    pub expect_body: Option<PathBuf>,
}

/// TLS.
#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
pub struct TlsArguments {
    /// The version: TLS1.2, TLS1.3 or ALL
    #[arg(short = 'f', long, value_name = "VERSION", default_value = "ALL", value_parser = tls)]
    pub tls: (TlsVersion, TlsVersion),
    /// The name asked for (SNI), and expected in the certificate [default: what the URL says]
    #[arg(long, value_name = "NAME")]
    pub sni: Option<String>,
    /// Tell the server no name
    #[arg(short = 'I', long, conflicts_with = "sni")]
    pub no_sni: bool,
    /// Trust the certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    pub ca_file: Option<PathBuf>,
    /// Take any certificate
    #[arg(long)]
    pub insecure: bool,
    /// The client's own certificates and key (PEM)
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
    /// Sessions of each such URL
    #[arg(long, value_name = "N", default_value = "1", value_parser = units::count)]
    pub sessions: u64,
    /// The time from one message of a session to its next; 'never': only when it ends
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = interval)]
    pub interval: Interval,
    /// Bytes of a message
    #[arg(long, value_name = "N", default_value = "64", value_parser = units::count)]
    pub message_bytes: u64,
}

/// What is shown.
#[derive(Args, Debug)]
#[command(next_help_heading = "What is shown")]
pub struct Output {
    /// Print the result as JSON instead of text, or also write it to FILE
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub json: Option<Option<PathBuf>>,
    /// Write what was measured in each 10 ms: JSON if FILE ends in .json, else CSV
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

/// The oldest and the newest version.
fn tls(text: &str) -> Result<(TlsVersion, TlsVersion), String> {
    match text.to_ascii_uppercase().as_str() {
        "ALL" => Ok((TlsVersion::V1_2, TlsVersion::V1_3)),
        upper => match upper.strip_prefix("TLS").map(|version| version.trim_start_matches('V')) {
            Some(version) => version.parse().map(|version| (version, version)),
            None => Err("there are TLS1.2, TLS1.3 and ALL".into()),
        },
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("a header is written as 'Name: value'")?;
    if name.is_empty() || name.contains(|letter: char| letter.is_whitespace() || letter.is_control()) {
        return Err("the name of a header is neither empty nor has it spaces".into());
    }
    Ok((name.to_owned(), value.trim().to_owned()))
}

fn status(text: &str) -> Result<StatusCheck, String> {
    match text.parse() {
        Ok(status @ 200..=599) => Ok(StatusCheck::Exactly(status)),
        _ if text == "any" => Ok(StatusCheck::Any),
        _ => Err("a status between 200 and 599 is wanted, or 'any'".into()),
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
        assert_eq!(interval("never"), Ok(Interval::Never));
        assert_eq!(interval("1s"), Ok(Interval::Every(Duration::from_secs(1))));
    }
}
