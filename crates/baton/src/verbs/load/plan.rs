//! From the command line to what the library does: one load over all URLs that are asked, and a group of sessions for each
//! URL that is held open.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use baton_prove::load::{BodyCheck, CONCURRENCY_MAX, StatusCheck, Timeouts};
use baton_prove::sessions::{SESSIONS_MAX, SessionKind};
use baton_prove::stream::{ClientCertificate, Verify};
use baton_prove::{LoadOptions, Request, ServerEndpoint, SessionOptions, Tls, TlsOptions};
use clap::Parser;

use super::arguments::{Interval, LoadCommand, RequestArguments};
use super::foreign;
use super::url::{Scheme, Url};

/// How long it goes on when neither a number nor a time was asked for.
const TIME: Duration = Duration::from_secs(10);

/// Connections that share a fixed rate: enough for answers of 20 ms at 5000 a second.
const CONNECTIONS_AT_RATE: u64 = 100;

/// The largest body that is sent or expected, in bytes.
const BODY_MAX: u64 = 256 * 1024 * 1024;

/// What is to be done, with everything looked up and read.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The requests; `None` when all URLs are held open.
    pub load: Option<LoadOptions>,
    /// The URLs of `load`'s requests, in their order.
    pub asked: Vec<String>,
    /// What is held open, each with its URL.
    pub sessions: Vec<(String, SessionOptions)>,
    /// How long sessions are held open when there are no requests.
    pub time: Duration,
}

impl Plan {
    /// From the words after `baton load`, as one text; quotes hold words together as in a shell.
    ///
    /// # Errors
    /// A sentence, when they cannot be followed.
    pub fn parse(words: &str) -> Result<Plan, String> {
        #[derive(Parser)]
        #[command(name = "load", no_binary_name = true, disable_help_flag = true)]
        struct Words {
            #[command(flatten)]
            command: LoadCommand,
        }
        let words = foreign::translated(split(words)?.into_iter().map(OsString::from))?;
        let words = Words::try_parse_from(words).map_err(|error| error.to_string().trim_end().to_owned())?;
        Plan::new(&words.command)
    }

    /// # Errors
    /// A sentence, when a file cannot be read, a name has no address, or options contradict each other.
    pub fn new(command: &LoadCommand) -> Result<Plan, String> {
        command.foreign.refuse()?;
        if command.amount.time.is_some() && command.amount.duration.is_some() {
            return Err(
                "-t and -d both set the duration (-t as in ab); for wrk's -t N use --threads N, for hey's -t N \
                        use --timeout N"
                    .into(),
            );
        }
        let time = command.amount.time.or(command.amount.duration);
        let (held, asked): (Vec<&Url>, Vec<&Url>) = command.urls.iter().partition(|url| url.scheme.is_session());
        if asked.is_empty() && (command.amount.requests.is_some() || command.amount.rate.is_some()) {
            return Err(
                "-n and --rate apply to http:// and https:// URLs, and there are none; set a duration with -t".into()
            );
        }
        let sessions = held.iter().map(|url| Ok((url.text.clone(), session(command, url)?)));
        Ok(Plan {
            load: if asked.is_empty() { None } else { Some(load(command, &asked, time)?) },
            asked: asked.iter().map(|url| url.text.clone()).collect(),
            sessions: sessions.collect::<Result<_, String>>()?,
            time: time.unwrap_or(TIME),
        })
    }

    /// Connections that are open at the same time.
    pub fn connections(&self) -> usize {
        let sessions: usize = self.sessions.iter().map(|(_, options)| options.count).sum();
        // Each place keeps a connection to every server.
        let places = |load: &LoadOptions| match load.streams {
            Some(streams) => load.concurrency / streams * load.servers.len(),
            None => load.concurrency * if load.keep_alive { load.servers.len() } else { 1 },
        };
        self.load.as_ref().map_or(0, places) + sessions
    }
}

fn load(command: &LoadCommand, urls: &[&Url], time: Option<Duration>) -> Result<LoadOptions, String> {
    let amount = &command.amount;
    let connections = match (amount.connections, amount.rate) {
        (Some(connections), _) => connections,
        (None, Some(_)) => CONNECTIONS_AT_RATE,
        (None, None) => 1,
    };
    // No more than there are requests.
    let streams = amount.streams.unwrap_or(1).max(1);
    let most = amount.requests.unwrap_or(u64::MAX);
    let (connections, streams) = match amount.http2 {
        true => (connections.min(most.div_ceil(streams)), streams.min(most)),
        false => (connections.min(most), 1),
    };
    let template = request(command)?;
    let mut known: Vec<&Url> = Vec::new();
    let mut servers = Vec::new();
    let mut requests = Vec::new();
    for url in urls {
        let place = known.iter().position(|other| other.is_same_server(url));
        if place.is_none() {
            servers.push(server(command, url)?);
            known.push(url);
        }
        let server = place.unwrap_or(servers.len() - 1);
        requests.push(Request { server, path: url.path.clone(), ..template.clone() });
    }
    Ok(LoadOptions {
        servers,
        requests,
        keep_alive: amount.keep_alive || amount.http2,
        streams: if amount.http2 { Some(bounded(streams, CONCURRENCY_MAX, "--streams")?) } else { None },
        concurrency: match amount.http2 {
            true => bounded(connections.saturating_mul(streams), CONCURRENCY_MAX, "-c times --streams")?,
            false => bounded(connections, CONCURRENCY_MAX, "-c")?,
        },
        threads: amount.threads,
        rate: amount.rate,
        count: amount.requests,
        duration: time.or(amount.requests.is_none().then_some(TIME)),
        sources: amount.sources.clone(),
        timeouts: Timeouts {
            connect: amount.timeout_connect,
            first_byte: amount.timeout_first_byte,
            whole: amount.timeout,
        },
        ..LoadOptions::new(PathBuf::new())
    })
}

fn server(command: &LoadCommand, url: &Url) -> Result<ServerEndpoint, String> {
    let host = command.request.host.clone().unwrap_or_else(|| url.authority.clone());
    let tls = if url.scheme.is_secure() { Some(tls(command, url)?) } else { None };
    Ok(ServerEndpoint { target: url.look_up()?, host: Some(host), tls })
}

fn tls(command: &LoadCommand, url: &Url) -> Result<Tls, String> {
    let secure = &command.secure;
    let name = secure.sni.clone().or_else(|| url.server_name().map(str::to_owned));
    let (oldest, newest) = secure.tls;
    let options = TlsOptions {
        name,
        sni: !secure.no_sni,
        oldest,
        newest,
        verify: match (&secure.ca_file, secure.insecure) {
            (_, true) => Verify::Nothing,
            (Some(file), _) => Verify::File(file.clone()),
            (None, _) => Verify::System,
        },
        certificate: secure.certificate.clone().map(|file| ClientCertificate { chain: file.clone(), key: file }),
        resumption: !secure.full_handshakes,
        // A WebSocket is of HTTP/1.
        alpn: if command.amount.http2 && !url.scheme.is_session() {
            vec!["h2".into()]
        } else {
            vec!["http/1.1".into()]
        },
    };
    options.build().map_err(|error| format!("TLS for {}: {error}", url.text))
}

/// What all URLs are asked, but for the path.
fn request(command: &LoadCommand) -> Result<Request, String> {
    let asking = &command.request;
    let (method, file) = match (&asking.post, &asking.put, asking.head) {
        (Some(file), _, _) => ("POST", Some(file)),
        (_, Some(file), _) => ("PUT", Some(file)),
        (_, _, true) => ("HEAD", None),
        _ => ("GET", None),
    };
    let mut headers = headers(asking);
    match (file, &asking.content_type) {
        (Some(_), Some(kind)) => headers.push(("Content-Type".into(), kind.clone())),
        (Some(_), None) if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) => {
            headers.push(("Content-Type".into(), "text/plain".into()));
        }
        (None, Some(_)) => return Err("-T is the type of a body, and there is no body; set one with -p or -u".into()),
        _ => {}
    }
    let right = &command.expect;
    let expect = match &right.expect_body {
        Some(file) => BodyCheck::Exactly(read("--expect-body", file)?.into()),
        None if right.same_length => BodyCheck::SameLength,
        None => BodyCheck::Any,
    };
    Ok(Request {
        method: asking.method.clone().unwrap_or_else(|| method.into()),
        server: 0,
        path: String::new(),
        headers,
        body: file.map(|file| read("the body", file)).transpose()?.unwrap_or_default(),
        status: right.expect_status.unwrap_or(StatusCheck::Success),
        expect,
    })
}

/// The headers that requests and handshakes have.
fn headers(asking: &RequestArguments) -> Vec<(String, String)> {
    let mut headers = asking.headers.clone();
    if !asking.cookies.is_empty() {
        headers.push(("Cookie".into(), asking.cookies.join("; ")));
    }
    if let Some(user) = &asking.user {
        headers.push(("Authorization".into(), format!("Basic {}", STANDARD.encode(user))));
    }
    headers
}

fn session(command: &LoadCommand, url: &Url) -> Result<SessionOptions, String> {
    let open = &command.open;
    let kind = match url.scheme {
        Scheme::Tcp => SessionKind::Tunnel,
        _ => SessionKind::WebSocket { path: url.path.clone() },
    };
    let mut options = SessionOptions::new(server(command, url)?, kind);
    options.headers = headers(&command.request);
    options.count = bounded(open.sessions, SESSIONS_MAX, "--sessions")?;
    options.interval = match open.interval {
        Interval::Every(time) => Some(time),
        Interval::Never => None,
    };
    options.message_bytes = usize::try_from(open.message_bytes).unwrap_or(usize::MAX);
    options.timeout = command.amount.timeout;
    Ok(options)
}

fn bounded(number: u64, max: usize, what: &str) -> Result<usize, String> {
    let number = usize::try_from(number).ok().filter(|number| *number <= max);
    number.ok_or_else(|| format!("{what}: the maximum is {max}"))
}

/// A file that is sent or expected.
fn read(what: &str, file: &Path) -> Result<Vec<u8>, String> {
    let told = |error: std::io::Error| format!("{what}: cannot read {}: {error}", file.display());
    let length = fs::metadata(file).map_err(told)?.len();
    if length > BODY_MAX {
        return Err(format!("{what}: {} has {length} bytes; the maximum is {BODY_MAX}", file.display()));
    }
    fs::read(file).map_err(told)
}

/// The words of a text, as a shell makes them of it: a pair of quotes of either kind holds them together.
fn split(text: &str) -> Result<Vec<String>, String> {
    let mut words: Vec<String> = Vec::new();
    let (mut quote, mut inside) = (None, false);
    for letter in text.chars() {
        if quote.is_none() && letter.is_whitespace() {
            inside = false;
            continue;
        }
        // Quotes begin a word, even with nothing between them.
        if !inside {
            words.push(String::new());
            inside = true;
        }
        match quote {
            Some(open) if open == letter => quote = None,
            None if letter == '\'' || letter == '"' => quote = Some(letter),
            _ => words.last_mut().expect("pushed just above").push(letter),
        }
    }
    match quote {
        None => Ok(words),
        Some(open) => Err(format!("the closing {open} is missing: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_in_a_shell() {
        let check = |text: &str, expect: &[&str]| assert_eq!(split(text).expect(text), expect, "{text}");
        check(" -n 5\t-k ", &["-n", "5", "-k"]);
        check("-H 'A: b  \"c\"' d\"e f\"g '' \"\"", &["-H", "A: b  \"c\"", "de fg", "", ""]);
        check("", &[]);
        assert!(split("-H 'A: b").is_err_and(|error| error.contains("closing '")));
    }

    #[test]
    fn a_load_in_one_text() {
        let plan = Plan::parse(
            "-c 5 -n 10 --rate 100 -k -H 'A: b' http://127.0.0.1:1/x http://127.0.0.1:1/y tcp://127.0.0.1:2",
        );
        let plan = plan.expect("it is right");
        let load = plan.load.as_ref().expect("two URLs are asked");
        assert_eq!((load.concurrency, load.count, load.rate, load.keep_alive), (5, Some(10), Some(100.0), true));
        assert_eq!((load.servers.len(), load.requests.len(), load.duration), (1, 2, None));
        assert_eq!(
            (load.requests[1].path.as_str(), &load.requests[1].headers),
            ("/y", &vec![("A".into(), "b".into())])
        );
        assert_eq!((plan.sessions.len(), plan.connections()), (1, 6));
        assert!(Plan::parse("-n").is_err() && Plan::parse("").is_err() && Plan::parse("--nix http://h/").is_err());
        let check = |words: &str, expect: &str| {
            let error = Plan::parse(words).expect_err(words);
            assert!(error.contains(expect), "{words}: {error}");
        };
        check("-t4 -c10 -d30s http://127.0.0.1:1/", "--threads N");
        check("-x http://proxy http://127.0.0.1:1/", "--json");
        check("--streams 5 http://127.0.0.1:1/", "--http2");
        check("-c 65536 --http2 --streams 2 http://127.0.0.1:1/", "-c times --streams");
        let multiplexed = |words: &str| {
            let plan = Plan::parse(words).expect(words);
            let load = plan.load.as_ref().expect(words);
            (load.streams, load.concurrency, load.keep_alive, plan.connections())
        };
        assert_eq!(multiplexed("-c 3 --http2 --streams 32 http://127.0.0.1:1/"), (Some(32), 96, true, 3));
        assert_eq!(multiplexed("-c 3 -n 40 --http2 --streams 32 http://127.0.0.1:1/"), (Some(32), 64, true, 2));
        assert_eq!(multiplexed("-c 3 -n 4 --http2 --streams 32 http://127.0.0.1:1/"), (Some(4), 4, true, 1));
        assert_eq!(multiplexed("--http2 http://127.0.0.1:1/"), (Some(1), 1, true, 1));
        let same = |words: &str| Plan::parse(words).expect(words).load.expect(words).requests[0].expect.clone();
        assert_eq!(same("http://127.0.0.1:1/"), BodyCheck::Any);
        assert_eq!(same("-l http://127.0.0.1:1/"), BodyCheck::Any);
        assert_eq!(same("--same-length http://127.0.0.1:1/"), BodyCheck::SameLength);
        // What users of wrk, wrk2 and hey type.
        let plan = |words: &str| Plan::parse(words).expect(words).load.expect(words);
        let wrk = plan("-c 10 -d 30s --latency -R 2000 --timeout 2s -H 'A: b' http://127.0.0.1:1/");
        assert_eq!((wrk.concurrency, wrk.duration, wrk.rate), (10, Some(Duration::from_secs(30)), Some(2000.0)));
        let hey = plan("-z 5s -c 20 -host a.example -disable-keepalive -cpus 2 -a u:p -m POST http://127.0.0.1:1/");
        assert_eq!((hey.concurrency, hey.duration, hey.threads), (20, Some(Duration::from_secs(5)), 2));
        assert_eq!(hey.servers[0].host.as_deref(), Some("a.example"));
        let defaults = Plan::parse("http://127.0.0.1:1/").expect("it is right").load.expect("one URL is asked");
        assert_eq!((defaults.duration, defaults.count, defaults.concurrency), (Some(TIME), None, 1));
    }
}
