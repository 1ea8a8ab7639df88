//! An experiment as text: TOML, judged as a whole before anything is started.
//!
//! Three servers are known by name (`haproxy`, `baton`, `nginx`): what a file does not say of them comes from
//! `built_in/servers.toml`, so that an experiment says only what is its own.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;

use super::variables;
use super::{CERTIFICATES, EVERY_MIN, Expect, Experiment, Held, Network, Server};
use crate::units;

/// What the servers are that are known by name.
const SERVERS: &str = include_str!("built_in/servers.toml");
/// The load of an experiment that says none: ten connections, a new one for each request.
const LOAD: &str = "-c 10 --same-length http://{{web}}/bytes/1000";
/// The longest text that is read, in bytes.
pub(crate) const TEXT_MAX: usize = 1 << 20;
/// The order in which known servers come; others follow.
const ORDER: [&str; 3] = ["haproxy", "baton", "nginx"];

/// An error in an experiment's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
    /// What to do about it; empty when the reason says it.
    pub remedy: String,
}

impl fmt::Display for ExperimentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

/// The text's own names.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Raw {
    title: String,
    #[serde(default)]
    about: String,
    every: Option<Spanned<String>>,
    #[serde(rename = "for")]
    time: Option<Spanned<String>>,
    requests: Option<Spanned<i64>>,
    load: Option<Spanned<String>>,
    network: Option<Spanned<String>>,
    held: Option<RawHeld>,
    event: Option<Spanned<String>>,
    what: Option<String>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    files: BTreeMap<String, Spanned<String>>,
    prepare: Option<Spanned<String>>,
    stop: Option<Spanned<String>>,
    meter: Option<Spanned<String>>,
    metered: Option<String>,
    server: BTreeMap<String, Spanned<RawServer>>,
}

/// The table `[held]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawHeld {
    #[serde(default)]
    websockets: usize,
    #[serde(default)]
    tunnels: usize,
    kept: Option<Spanned<String>>,
    wait: Option<Spanned<String>>,
    certificates: Option<Spanned<i64>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawServer {
    /// Another known server, of which this one is a variety.
    like: Option<Spanned<String>>,
    absent: Option<String>,
    needs: Option<Vec<String>>,
    possible: Option<Spanned<String>>,
    #[serde(default)]
    files: BTreeMap<String, Spanned<String>>,
    version: Option<Spanned<String>>,
    prepare: Option<Spanned<String>>,
    start: Option<Spanned<String>>,
    pid_file: Option<Spanned<String>>,
    what: Option<String>,
    event: Option<Spanned<String>>,
    operate: Option<Spanned<String>>,
    #[serde(default)]
    keeps: BTreeMap<String, Spanned<String>>,
    in_effect: Option<Spanned<String>>,
    tunnels: Option<bool>,
    serve_certificates: Option<Spanned<String>>,
    replace_certificate: Option<Spanned<String>>,
    stop: Option<Spanned<String>>,
    meter: Option<Spanned<String>>,
    metered: Option<String>,
    expect: Option<Spanned<String>>,
}

impl Experiment {
    /// Reads an experiment; `name` is its short name.
    ///
    /// # Errors
    /// The first thing that is wrong, with its line.
    pub fn parse(name: &str, text: &str) -> Result<Experiment, ExperimentError> {
        let reader = Reader { text };
        if text.len() > TEXT_MAX {
            return Err(reader.fault(0..0, format!("the text is longer than {TEXT_MAX} bytes"), ""));
        }
        let raw: Raw = toml::from_str(text).map_err(|error| reader.grammar(&error))?;
        reader.experiment(name, raw)
    }
}

/// Turns what was read into what is meant; the text is there for the lines.
struct Reader<'a> {
    text: &'a str,
}

impl Reader<'_> {
    fn fault(&self, at: Range<usize>, reason: impl Into<String>, remedy: impl Into<String>) -> ExperimentError {
        let before = self.text.as_bytes().get(..at.start).unwrap_or_default();
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        ExperimentError { line, reason: reason.into(), remedy: remedy.into() }
    }

    fn grammar(&self, error: &toml::de::Error) -> ExperimentError {
        let reason = error.message().lines().collect::<Vec<_>>().join(", ");
        let remedy = match reason.contains("missing field `server`") {
            true => "write a table [server.NAME] with the command that starts it",
            false if reason.contains("unknown field") => "correct the name or remove the line",
            false if reason.contains("missing field") => "add it",
            false => "see docs/prove.md for an example",
        };
        self.fault(error.span().unwrap_or_default(), reason, remedy)
    }

    fn experiment(&self, name: &str, raw: Raw) -> Result<Experiment, ExperimentError> {
        let known: BTreeMap<String, RawServer> = toml::from_str(SERVERS).expect("tests read it");
        let every = raw.every.as_ref().map(|every| self.duration(every, EVERY_MIN)).transpose()?;
        let mut servers = Vec::new();
        for (server, side) in &raw.server {
            let span = side.span();
            let base = match &side.get_ref().like {
                None => known.get(server).cloned().unwrap_or_default(),
                Some(like) => known.get(like.get_ref()).cloned().ok_or_else(|| {
                    let reason = format!("unknown server '{}'", like.get_ref());
                    self.fault(like.span(), reason, format!("expected one of {}", ORDER.join(", ")))
                })?,
            };
            let server = self.server(server, &span, side.get_ref(), base, &raw)?;
            if every.is_some() && server.event.is_none() && server.absent.is_none() {
                let reason =
                    format!("no event for {}, which is to happen every {:?}", server.name, every.unwrap_or_default());
                return Err(self.fault(span, reason, "add event = 'COMMAND', or remove 'every'"));
            }
            if every.is_none() && server.event.is_some() {
                return Err(self.fault(span, "an event without an interval", "add every = '200ms' at the top"));
            }
            servers.push(server);
        }
        if servers.is_empty() {
            return Err(self.fault(0..0, "no server", "write a table [server.NAME] with the command that starts it"));
        }
        // A variant, such as 'haproxy-sf', stands with the others of its server.
        let kind = |server: &Server| server.name.split('-').next().map(str::to_owned);
        let place = |server: &Server| {
            ORDER.iter().position(|known| kind(server).as_deref() == Some(known)).unwrap_or(ORDER.len())
        };
        servers.sort_by_key(place);
        let requests = raw.requests.as_ref().map(|requests| match u64::try_from(*requests.get_ref()) {
            Ok(requests @ 1..) => Ok(requests),
            _ => Err(self.fault(requests.span(), "'requests' must be 1 or more", "")),
        });
        Ok(Experiment {
            name: name.to_owned(),
            title: raw.title,
            about: raw.about,
            every,
            time: raw.time.as_ref().map(|time| self.duration(time, EVERY_MIN)).transpose()?,
            requests: requests.transpose()?,
            load: self.command(raw.load.as_ref())?.unwrap_or_else(|| LOAD.to_owned()),
            held: raw.held.as_ref().map(|held| self.held(held)).transpose()?,
            network: raw.network.as_ref().map(|network| self.network(network)).transpose()?.unwrap_or_default(),
            servers,
        })
    }

    fn server(
        &self,
        name: &str,
        span: &Range<usize>,
        own: &RawServer,
        base: RawServer,
        raw: &Raw,
    ) -> Result<Server, ExperimentError> {
        let mut files = BTreeMap::new();
        for (file, text) in base.files.iter().chain(&raw.files).chain(&own.files) {
            let is_plain = !file.is_empty() && !file.contains('/') && file != "." && file != "..";
            if !is_plain {
                return Err(self.fault(text.span(), format!("'{file}' is not a file name"), "use a name without '/'"));
            }
            files.insert(file.clone(), text.get_ref().clone());
        }
        for text in raw.files.values().chain(own.files.values()) {
            self.check(text)?;
        }
        let either = |own: &Option<Spanned<String>>, base: Option<Spanned<String>>| match own {
            Some(_) => self.command(own.as_ref()),
            None => Ok(base.map(Spanned::into_inner)),
        };
        // Of this server, of all servers of the file, of the known one.
        let any = |own: &Option<Spanned<String>>, all: &Option<Spanned<String>>, base| match own {
            Some(_) => self.command(own.as_ref()),
            None => either(all, base),
        };
        let start = either(&own.start, base.start)?;
        let is_machine = raw.network.as_ref().is_some_and(|network| network.get_ref() == "machine");
        if start.as_ref().is_some_and(String::is_empty) && !is_machine {
            let reason = format!("'{name}' runs already, and cannot be reached from the network namespace of the run");
            return Err(self.fault(span.clone(), reason, "add network = 'machine' at the top"));
        }
        let start = match (start, &own.absent) {
            (Some(start), _) => start,
            (None, Some(_)) => String::new(),
            (None, None) => {
                let reason = format!("nothing starts the server '{name}'");
                return Err(self.fault(span.clone(), reason, "add start = 'COMMAND' (empty when it runs already)"));
            }
        };
        let event = match (&own.event, &raw.event) {
            _ if own.absent.is_some() => None,
            (Some(_), _) => self.command(own.event.as_ref())?,
            (None, all) => self.command(all.as_ref())?,
        };
        let needs = own.needs.as_ref().or(base.needs.as_ref()).into_iter().flatten().chain(&raw.needs).cloned();
        Ok(Server {
            name: name.to_owned(),
            absent: own.absent.clone(),
            needs: needs.collect(),
            possible: either(&own.possible, base.possible)?,
            files,
            version: either(&own.version, base.version)?,
            prepare: any(&own.prepare, &raw.prepare, base.prepare)?,
            start,
            pid_file: either(&own.pid_file, base.pid_file)?.filter(|file| !file.is_empty()),
            what: own.what.as_ref().or(raw.what.as_ref()).cloned().unwrap_or_else(|| "event".into()),
            event,
            operate: self.command(own.operate.as_ref())?,
            keeps: self.commands(&own.keeps)?,
            in_effect: self.command(own.in_effect.as_ref())?,
            tunnels: own.tunnels.unwrap_or(true),
            serve_certificates: self.command(own.serve_certificates.as_ref())?,
            replace_certificate: self.command(own.replace_certificate.as_ref())?,
            stop: any(&own.stop, &raw.stop, base.stop)?,
            meter: any(&own.meter, &raw.meter, base.meter)?,
            metered: own.metered.as_ref().or(raw.metered.as_ref()).cloned().unwrap_or_else(|| "the meter".into()),
            expect: own.expect.as_ref().map(|expect| self.expect(expect)).transpose()?.unwrap_or_default(),
        })
    }

    fn command(&self, text: Option<&Spanned<String>>) -> Result<Option<String>, ExperimentError> {
        text.map(|text| self.check(text).map(|()| text.get_ref().clone())).transpose()
    }

    fn commands(&self, texts: &BTreeMap<String, Spanned<String>>) -> Result<BTreeMap<String, String>, ExperimentError> {
        let checked = |(name, text): (&String, &Spanned<String>)| {
            self.check(text).map(|()| (name.clone(), text.get_ref().clone()))
        };
        texts.iter().map(checked).collect()
    }

    fn held(&self, held: &RawHeld) -> Result<Held, ExperimentError> {
        let RawHeld { websockets, tunnels, kept, wait, certificates } = held;
        Ok(Held {
            websockets: *websockets,
            tunnels: *tunnels,
            kept: self.command(kept.as_ref())?,
            wait: wait.as_ref().map(|wait| self.duration(wait, EVERY_MIN)).transpose()?.unwrap_or_default(),
            certificates: certificates.as_ref().map(|count| self.certificates(count)).transpose()?,
        })
    }

    fn certificates(&self, count: &Spanned<i64>) -> Result<usize, ExperimentError> {
        let known = usize::try_from(*count.get_ref()).ok().filter(|count| CERTIFICATES.contains(count));
        known.ok_or_else(|| {
            let reason = format!("'certificates' must be between {} and {}", CERTIFICATES.start(), CERTIFICATES.end());
            self.fault(count.span(), reason, "")
        })
    }

    /// Every variable of a text must be one.
    fn check(&self, text: &Spanned<String>) -> Result<(), ExperimentError> {
        let Some(unknown) = variables::unknown(text.get_ref()) else { return Ok(()) };
        // The place inside of the text: what stands before it is the same in the file, but for escapes.
        let inside = self.text.get(text.span()).and_then(|part| part.find(&unknown)).unwrap_or_default();
        let at = text.span().start + inside;
        let remedy = format!("the variables are {}", variables::NAMES.map(|name| format!("{{{{{name}}}}}")).join(" "));
        Err(self.fault(at..at, format!("unknown variable '{unknown}'"), remedy))
    }

    fn expect(&self, word: &Spanned<String>) -> Result<Expect, ExperimentError> {
        Expect::ALL.into_iter().find(|expect| expect.word() == word.get_ref()).ok_or_else(|| {
            let reason = format!("unknown expectation '{}'", word.get_ref());
            let words = Expect::ALL.map(|expect| format!("'{}'", expect.word())).join(", ");
            self.fault(word.span(), reason, format!("expected one of {words}"))
        })
    }

    fn network(&self, word: &Spanned<String>) -> Result<Network, ExperimentError> {
        match word.get_ref().as_str() {
            "own" => Ok(Network::Own),
            "machine" => Ok(Network::Machine),
            other => Err(self.fault(word.span(), format!("unknown network '{other}'"), "expected 'own' or 'machine'")),
        }
    }

    fn duration(&self, text: &Spanned<String>, min: Duration) -> Result<Duration, ExperimentError> {
        let fault = |reason: String| {
            let reason = format!("'{}' is not a duration: {reason}", text.get_ref());
            self.fault(text.span(), reason, "examples: '200ms', '5s', '2m'")
        };
        let time = units::time(text.get_ref()).map_err(fault)?;
        if time < min { Err(fault(format!("it must be at least {min:?}"))) } else { Ok(time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, line: usize, words: &str) {
        let fault = Experiment::parse("x", text).expect_err(text);
        assert_eq!((fault.line, fault.to_string().contains(words)), (line, true), "{fault}");
    }

    #[test]
    fn a_small_file_is_enough() {
        let text = "title = 'T'\nevery = '200ms'\nevent = 'reload {{n}}'\n[server.own]\nstart = 'serve {{port}}'\n";
        let experiment = Experiment::parse("x", text).expect("it is right");
        assert_eq!((experiment.every, experiment.load.as_str()), (Some(Duration::from_millis(200)), LOAD));
        let own = experiment.server("own").expect("it is there");
        assert_eq!((own.start.as_str(), own.event.as_deref()), ("serve {{port}}", Some("reload {{n}}")));
        assert_eq!((own.expect, own.what.as_str()), (Expect::Anything, "event"));
    }

    #[test]
    fn known_servers_need_little() {
        let text = "title = 'T'\n[server.nginx]\nfiles.'own.conf' = 'x'\n[server.haproxy]\nexpect = 'no-failure'\n";
        let experiment = Experiment::parse("x", text).expect("it is right");
        let names: Vec<&str> = experiment.servers.iter().map(|server| server.name.as_str()).collect();
        assert_eq!(names, ["haproxy", "nginx"]);
        let nginx = experiment.server("nginx").expect("it is there");
        assert!(nginx.files.contains_key("own.conf") && nginx.files.contains_key("nginx.conf"), "{nginx:?}");
        assert!(!nginx.start.is_empty() && nginx.needs == ["nginx"]);
    }

    #[test]
    fn a_server_may_be_a_variety_of_a_known_one() {
        let text = "title = 'T'\nevery = '1s'\n[server.own]\nlike = 'haproxy'\nevent = 'x'\n";
        let experiment = Experiment::parse("x", text).expect("it is right");
        let own = experiment.server("own").expect("it is there");
        assert!(own.start.starts_with("haproxy ") && own.files.contains_key("haproxy.cfg"), "{own:?}");
        check("title = 'T'\n[server.a]\nlike = 'apache'", 3, "unknown server 'apache'; expected one of haproxy");
    }

    #[test]
    fn what_is_said_at_the_top_is_of_all_servers() {
        let text = "title = 'T'\nprepare = 'p'\nstop = 's'\nmeter = 'm'\nmetered = 'a link'\nfiles.all = '1'\nfiles.one = '2'\n\
                    [server.a]\nstart = 'x'\nmeter = 'n'\nfiles.one = '3'\n[server.b]\nlike = 'baton'\n";
        let experiment = Experiment::parse("x", text).expect("it is right");
        let [a, b] = ["a", "b"].map(|name| experiment.server(name).expect("it is there"));
        let told = |server: &Server| {
            [&server.prepare, &server.stop, &server.meter].map(|text| text.clone().unwrap_or_default())
        };
        assert_eq!((told(a), told(b)), (["p", "s", "n"].map(String::from), ["p", "s", "m"].map(String::from)));
        assert_eq!((&*a.files["one"], &*b.files["one"], &*a.files["all"]), ("3", "2", "1"));
        assert!(b.files.contains_key("haproxy.cfg") && a.metered == "a link");
        check("title = 'T'\nmeter = '{{no}}'\n[server.a]\nstart = 'x'", 2, "unknown variable '{{no}}'");
    }

    #[test]
    fn faults_name_line_reason_and_remedy() {
        check("title = 'T'\nevry = '1s'\n[server.a]\nstart = 'x'", 2, "unknown field `evry`");
        check("title = 'T'\nevery = '1 parsec'\n[server.a]\nstart = 'x'", 2, "examples: '200ms'");
        check("title = 'T'\nevery = '1s'\n[server.a]\nstart = 'x'", 3, "add event");
        check("title = 'T'\n[server.a]\nstart = 'x'\nevent = 'y'", 2, "add every");
        check("title = 'T'\n[server.a]\nstop = 'x'", 2, "nothing starts the server 'a'; add start");
        check(
            "title = 'T'\n\n[server.a]\nstart = 'x {{prot}}'",
            4,
            "unknown variable '{{prot}}'; the variables are {{",
        );
        check("title = 'T'\n[server.a]\nstart = 'x'\nexpect = 'luck'", 4, "'no-failure'");
        check("title = 'T'\n[server.a]\nstart = 'x'\nfiles.'../x' = ''", 4, "without '/'");
        check("title = 'T'\nrequests = 0\n[server.a]\nstart = 'x'", 2, "1 or more");
        check("title = 'T'\n", 1, "[server.NAME]");
        check("title = 'T'\n[server.a]\nstart = 'x\n", 3, "docs/prove.md");
        check("title = 'T'\n[server]\n", 1, "no server");
        check(
            "title = 'T'\n[held]\ncertificates = 1\n[server.a]\nstart = 'x'",
            3,
            "'certificates' must be between 2 and 100000",
        );
        check("title = 'T'\nnetwork = 'x'\n[server.a]\nstart = 'x'", 2, "'own' or 'machine'");
        check("title = 'T'\n[server.a]\nstart = ''", 2, "network = 'machine'");
    }
}
