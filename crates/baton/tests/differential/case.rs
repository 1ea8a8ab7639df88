//! The language of the case files.
//!
//! ```text
//! === name-of-the-case
//! # What it is about, in words.
//! with: raw no-logs                 options, see `Case::has`
//! shows: 408 Request Time-out       text that haproxy's record must contain, so that the case proves what it says
//! --- cfg                           the configuration, after a standard `global` and `defaults`
//! --- request                       one request on the connection `a`; waits for the response
//! GET / HTTP/1.1
//! Host: example.com
//! --- response                      what origin O1 answers to its first request (default: 200 and a body that names it)
//! HTTP/1.1 204 No Content
//! ```
//!
//! Sections, in the order of the file:
//! - `cfg`: the prelude (`http` by default, `cfg tcp`, or `cfg whole` for none) and this text. Without a section: one `listen`
//!   from `${L1}` to `${O1}`.
//! - `file NAME [http]`: a file `${DIR}/NAME`, as it stands or as a message like those of requests.
//! - `certificates`: files with certificates, which are made for the run (`secure.rs`).
//! - `request [CONNECTION] [LISTENER] [nowait] [tls ..]`: lines joined by CRLF up to and with the empty line, then the body as it stands.
//! - `gets [LISTENER] [keep] [tls ..]`: a line is `[METHOD] /target [xN] [| Header: value]..` (for `Host: example.com` unless it says another), each on a connection of its own that asks
//!   to be closed (`keep`: all on one that stays).
//! - `client [CONNECTION]`: steps (`script.rs`).
//! - `h2`, `h2-each`: clients that speak HTTP/2 (`http2.rs`); `h2-response`, `h2-origin`: origins that do (`http2_origin.rs`).
//! - `commands [SOCKET]`: a line is a command of the runtime API, on a connection of its own to `${U1}`, a `stats socket` of the `cfg`.
//! - `expressions`, `inputs KIND xN`: many expressions, evaluated for many generated inputs (`generate/mod.rs`).
//! - `response [ORIGIN] [close | reset]`: the answer to the origin's next request; the last one is repeated.
//! - `origin ORIGIN`: steps for the origin's next connection; the last such section serves all later ones too.
//!
//! Places (`places.rs`): `${L1}` an address to listen on, `${U1}` a unix socket to listen on, `${O1}` an origin, `${D1}` an
//! address where nobody listens, `${F1}` one whose queue is full, `${LOG}` the syslog receiver, `${DIR}` a folder; `${L1.port}`.
//! Escapes in bytes: `\r \n \t \0 \\ \xHH`, and `\{N:text}` for N times a text.

use std::path::Path;

use crate::generate;
use crate::http2;
use crate::http2_origin;
use crate::script::{self, Step};
use crate::secure::{self, Secure};

/// One case, as written.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    /// The words after `with:`.
    options: Vec<String>,
    /// Texts that the reference's record must contain.
    pub shows: Vec<String>,
    about: String,
    /// The whole configuration, with places still in it.
    pub cfg: String,
    /// Name and content.
    pub files: Vec<(String, Vec<u8>)>,
    /// What the clients do: connection, step.
    pub script: Vec<(String, Step)>,
    /// Answers of an origin, in the order of its requests.
    pub responses: Vec<(String, Response)>,
    /// Steps of an origin's connections, in the order of its connections.
    pub origins: Vec<(String, Vec<Step>)>,
    /// Answers of an origin that speaks HTTP/2, in the order of its requests.
    pub http2_answers: Vec<(String, http2_origin::Answer)>,
}

/// A scripted answer and what becomes of the connection afterwards.
#[derive(Debug, Clone)]
pub struct Response {
    pub bytes: Vec<u8>,
    pub then: Then,
}

/// What an origin does with the connection after its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    Keep,
    Close,
    Reset,
}

const OPTIONS: &[&str] = &[
    "raw",
    "no-logs",
    "no-counters",
    "checked",
    "loose-ends",
    "upstream-ends",
    "unordered",
    "notes",
    "ipv6",
    "injection",
    "own-bytes",
    "tables",
    "h2-counters",
];

const HTTP: &str = "global
    nbthread 1
    log ${LOG} local0
defaults
    mode http
    log global
    option httplog
    timeout connect 4s
    timeout client 4s
    timeout server 4s
";

const TCP: &str = "global
    nbthread 1
    log ${LOG} local0
defaults
    mode tcp
    log global
    option tcplog
    timeout connect 4s
    timeout client 4s
    timeout server 4s
";

const LISTEN: &str = "listen l
    bind ${L1}
    server s1 ${O1}
";

impl Case {
    /// Whether the case asks for:
    /// `raw` (do not join chunks), `no-logs`, `no-counters` (the five connection counters of a log line), `checked` (origins also
    /// see health checks: connections without bytes and requests for `/check` or `/health` are left out), `loose-ends` (do not compare how
    /// client connections ended), `upstream-ends` (do compare it for origin connections), `unordered` (compare the connections of
    /// an origin as a set), `notes` (also compare what is logged about servers and backends), `ipv6`
    /// (needs ::1, is skipped without), `tables` (clients receive entries of stick tables: compared without their addresses in memory, by
    /// their keys, and the time they have left roughly), `h2-counters` (of `show stat` those of HTTP/2 of frontends and backends), `own-bytes` (what clients received has no port or folder in it that differs by run).
    pub fn has(&self, option: &str) -> bool {
        debug_assert!(OPTIONS.contains(&option), "{option} is not an option");
        self.options.iter().any(|word| word == option)
    }

    /// What the case says about itself, for a failure's report.
    pub fn head(&self) -> String {
        self.about.lines().map(|line| format!("# {line}\n")).collect()
    }
}

/// All cases: of the files `*.case` in these folders, and of other texts; names must be unique.
pub fn load(folders: &[&Path], texts: &[String]) -> Result<Vec<Case>, String> {
    let mut named: Vec<(String, String)> = Vec::new();
    for folder in folders {
        let listing = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let mut files: Vec<_> = listing.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
        files.retain(|path| path.extension().is_some_and(|extension| extension == "case"));
        files.sort();
        for file in files {
            let text = std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
            named.push((file.display().to_string(), text));
        }
    }
    named.extend(texts.iter().map(|text| ("a generated case".to_string(), text.clone())));
    let mut cases: Vec<Case> = Vec::new();
    for (source, text) in named {
        for case in parse(&text).map_err(|fault| format!("{source}: {fault}"))? {
            if cases.iter().any(|other| other.name == case.name) {
                return Err(format!("{source}: the name {} is taken", case.name));
            }
            cases.push(case);
        }
    }
    Ok(cases)
}

/// The cases of one file's text.
fn parse(text: &str) -> Result<Vec<Case>, String> {
    let mut cases = Vec::new();
    // What stands before the first case is prose.
    for part in format!("\n{text}").split("\n=== ").skip(1) {
        let name = part.lines().next().unwrap_or_default().trim().to_string();
        cases.push(one(&name, part).map_err(|fault| format!("{name}: {fault}"))?);
    }
    Ok(cases)
}

fn one(name: &str, text: &str) -> Result<Case, String> {
    let mut case = Case {
        name: name.to_string(),
        options: Vec::new(),
        shows: Vec::new(),
        about: String::new(),
        cfg: format!("{HTTP}{LISTEN}"),
        files: Vec::new(),
        script: Vec::new(),
        responses: Vec::new(),
        origins: Vec::new(),
        http2_answers: Vec::new(),
    };
    let mut sections = text.split("\n--- ");
    for line in sections.next().unwrap_or_default().lines().skip(1).filter(|line| !line.trim().is_empty()) {
        if let Some(words) = line.strip_prefix("with:") {
            case.options.extend(words.split_whitespace().map(str::to_string));
        } else if let Some(text) = line.strip_prefix("shows:") {
            case.shows.push(text.trim().to_string());
        } else if let Some(text) = line.strip_prefix('#') {
            case.about.push_str(text.trim());
            case.about.push('\n');
        } else {
            return Err(format!("what is `{line}`?"));
        }
    }
    if let Some(unknown) = case.options.iter().find(|word| !OPTIONS.contains(&word.as_str())) {
        return Err(format!("unknown option `{unknown}`"));
    }
    let sections: Vec<&str> = sections.collect();
    if sections.iter().any(|section| section.starts_with("expressions")) {
        case.options.extend(["no-logs", "own-bytes", "loose-ends"].map(str::to_string));
        case.cfg = generate::CFG.to_string();
    }
    for section in sections {
        let (head, body) = section.split_once('\n').unwrap_or((section, ""));
        case.section(head, body).map_err(|fault| format!("--- {head}: {fault}"))?;
    }
    if case.script.is_empty() {
        return Err("no client does anything".to_string());
    }
    Ok(case)
}

impl Case {
    fn section(&mut self, head: &str, body: &str) -> Result<(), String> {
        let words: Vec<&str> = head.split_whitespace().collect();
        let (kind, words) = words.split_first().ok_or("a section without a name")?;
        match *kind {
            "cfg" => {
                let prelude = match words.first() {
                    None | Some(&"http") => HTTP,
                    Some(&"tcp") => TCP,
                    Some(&"whole") => "",
                    Some(other) => return Err(format!("no prelude `{other}`")),
                };
                self.cfg = format!("{prelude}{}\n", body.trim_end());
            }
            "file" => {
                let name = words.first().ok_or("a name is missing")?;
                let content = match words.contains(&"http") {
                    true => message(body)?,
                    false => script::bytes(&format!("{}\n", body.trim_end_matches('\n')))?,
                };
                self.files.push((name.to_string(), content));
            }
            "certificates" => self.files.extend(secure::files(body)?),
            "request" => {
                let bytes = message(body)?;
                let connection = words.iter().find(|word| script::is_connection(word)).copied().unwrap_or("a");
                let (tls, listener) = (Secure::of(words), words.iter().find(|word| script::is_place(word)));
                if tls.is_some() || listener.is_some() {
                    self.script.push((connection.to_string(), Step::connect(listener.unwrap_or(&"L1"), tls)));
                }
                self.script.push((connection.to_string(), Step::Send(bytes)));
                if !words.contains(&"nowait") {
                    self.script.push((connection.to_string(), Step::Expect(1)));
                }
            }
            "gets" => {
                let listener = words.iter().find(|word| script::is_place(word)).copied().unwrap_or("L1");
                self.gets(body, listener, words.contains(&"keep"), Secure::of(words))?;
            }
            "commands" => {
                let socket = words.first().copied().unwrap_or("U1");
                let start = self.script.iter().filter(|(_, step)| matches!(step, Step::Connect { .. })).count();
                for (number, line) in body.lines().filter(|line| !line.trim().is_empty()).enumerate() {
                    let name = format!("c{}", start + number);
                    let bytes = format!("{line}\n").into_bytes();
                    let steps = [Step::connect(socket, None), Step::Send(bytes), Step::WaitClose];
                    self.script.extend(steps.map(|step| (name.clone(), step)));
                }
            }
            "expressions" => self.cfg.push_str(&generate::rule(&self.name, body)?),
            "inputs" => {
                let (kind, count) = match words {
                    [kind, count] => (*kind, count.strip_prefix('x').and_then(|count| count.parse().ok())),
                    _ => return Err("a kind and a number are expected, `text x200`".to_string()),
                };
                let count = count.ok_or("how many? `x200`")?;
                let start = self.script.iter().filter(|(_, step)| matches!(step, Step::Connect { .. })).count();
                self.script.extend(generate::requests(&self.name, kind, count, start)?);
            }
            "client" => {
                let connection = words.first().copied().unwrap_or("a");
                let steps = script::steps(body)?;
                self.script.extend(steps.into_iter().map(|step| (connection.to_string(), step)));
            }
            "h2" => {
                let name = words.iter().find(|word| script::is_connection(word)).copied().unwrap_or("a");
                let is_new = !self.script.iter().any(|(other, _)| other == name);
                if is_new {
                    self.greet_http2(name, words);
                }
                let steps = http2::steps(body)?;
                self.script.extend(steps.into_iter().map(|step| (name.to_string(), step)));
            }
            "h2-each" => {
                for (name, steps) in http2::each(body)? {
                    self.greet_http2(&name, words);
                    self.script.extend(steps.into_iter().map(|step| (name.clone(), step)));
                }
            }
            "response" => {
                let origin = words.iter().find(|word| script::is_place(word)).copied().unwrap_or("O1");
                let then = match words {
                    words if words.contains(&"close") => Then::Close,
                    words if words.contains(&"reset") => Then::Reset,
                    _ => Then::Keep,
                };
                self.responses.push((origin.to_string(), Response { bytes: message(body)?, then }));
            }
            "h2-response" => {
                let origin = words.iter().find(|word| script::is_place(word)).copied().unwrap_or("O1");
                let (waits, steps) = (!words.contains(&"head"), http2_origin::steps(body)?);
                self.http2_answers.push((origin.to_string(), http2_origin::Answer { waits, steps }));
            }
            "h2-origin" => {
                let origin = words.first().copied().unwrap_or("O1");
                let mut steps = vec![Step::GreetHttp2];
                steps.extend(http2_origin::steps(body)?);
                self.origins.push((origin.to_string(), steps));
            }
            "origin" => {
                let origin = words.first().copied().unwrap_or("O1");
                self.origins.push((origin.to_string(), script::steps(body)?));
            }
            other => return Err(format!("no section is called `{other}`")),
        }
        Ok(())
    }

    fn greet_http2(&mut self, name: &str, words: &[&str]) {
        let listener = words.iter().find(|word| script::is_place(word)).copied().unwrap_or("L1");
        self.script.push((name.to_string(), Step::connect(listener, Secure::of(words))));
        self.script.push((name.to_string(), Step::GreetHttp2));
    }

    fn gets(&mut self, body: &str, listener: &str, keep: bool, tls: Option<Secure>) -> Result<(), String> {
        let connect = || Step::connect(listener, tls.clone());
        let start = self.script.iter().filter(|(_, step)| matches!(step, Step::Connect { .. })).count();
        let mut number = start;
        if keep {
            self.script.push((format!("g{start}"), connect()));
        }
        for line in body.lines().filter(|line| !line.trim().is_empty()) {
            let mut parts = line.split(" | ");
            let mut words: Vec<&str> = parts.next().unwrap_or_default().split_whitespace().collect();
            let mut times = 1;
            if let Some(count) = words.last().and_then(|word| word.strip_prefix('x')).and_then(|n| n.parse().ok()) {
                times = count;
                words.pop();
            }
            let (method, target) = match words[..] {
                [target] => ("GET", target),
                [method, target] => (method, target),
                _ => return Err(format!("what is `{line}`?")),
            };
            let parts: Vec<&str> = parts.collect();
            let names_host = parts.iter().any(|header| header.trim().to_ascii_lowercase().starts_with("host:"));
            let host = if names_host { "" } else { "Host: example.com\r\n" };
            let mut head = format!("{method} {target} HTTP/1.1\r\n{host}");
            for header in parts {
                head.push_str(&format!("{}\r\n", header.trim()));
            }
            head.push_str(if keep { "\r\n" } else { "Connection: close\r\n\r\n" });
            for _ in 0..times {
                let name = if keep { format!("g{start}") } else { format!("g{number}") };
                if !keep {
                    self.script.push((name.clone(), connect()));
                }
                self.script.push((name.clone(), Step::Send(script::bytes(&head)?)));
                self.script.push((name.clone(), Step::Expect(1)));
                if !keep {
                    self.script.push((name, Step::WaitClose));
                }
                number += 1;
            }
        }
        Ok(())
    }
}

/// A message as lines: those of the head are joined by CRLF, what follows the empty line is the body as it stands, without the
/// last newline of the section.
fn message(body: &str) -> Result<Vec<u8>, String> {
    let (head, rest) = match body.split_once("\n\n") {
        Some((head, rest)) => (head, rest),
        None => (body.trim_end_matches('\n'), ""),
    };
    // A blank line before the next section is layout; a body says where it ends by its last line.
    let rest = rest.strip_suffix('\n').unwrap_or(rest);
    script::bytes(&format!("{}\r\n\r\n{rest}", head.replace('\n', "\r\n")))
}
