//! What a keyword's function sees of its line, and how it complains.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use baton_model::{Family, Global, HttpErrors, Mailers, Resolvers, UserList};
use baton_rules::{BufferLimits, CompiledRules, suggestion};

use super::TableIndex;
use crate::Options;
use crate::diagnostic::{Report, Severity};
use crate::environment::Environment;
use crate::keywords::peers::PeersDraft;
use crate::keywords::resolvers::NameServerWords;
use crate::keywords::ring::Rings;
use crate::keywords::tls::{self, FilePaths};
use crate::keywords::userlist::UserListDraft;
use crate::syntax::Line;
use crate::values::{self, TimeError, Unit};

/// What all lines share.
pub(crate) struct Context<'a> {
    pub env: &'a dyn Environment,
    pub options: &'a Options,
    pub report: Report,
    /// `default-path`: what relative file names start from.
    pub base: DefaultPath,
    /// Lines of rules by number and file, with the index of their first word after the keyword, for later complaints.
    pub rule_lines: BTreeMap<(u32, Arc<str>), (Line, usize)>,
    /// Names that were resolved, so that a thousand servers of one name cost one question.
    pub resolved: BTreeMap<(String, u8), Option<IpAddr>>,
    /// What `setenv` and its relatives did.
    pub variables: &'a BTreeMap<String, Option<String>>,
    /// Rules of the proxies so far.
    pub compiled: CompiledRules,
    /// Faults of rules that were told already: place and message.
    pub told: BTreeSet<((u32, Arc<str>), String)>,
    /// What `global` and `crt-store` sections say about TLS, for the lines below them.
    pub tls: tls::Defaults,
    /// `ring` sections so far, and where `log` lines name them.
    pub rings: Rings,
    /// `peers` sections so far.
    pub peers: Vec<PeersDraft>,
    /// A `peers` section is being read.
    pub in_peers: bool,
    /// `localpeer`.
    pub localpeer: Option<String>,
    /// `resolvers` sections so far.
    pub resolvers: Vec<Resolvers>,
    /// Name servers of them that are asked over TLS.
    pub name_servers: Vec<NameServerWords>,
    /// `mailers` sections, with the line of each.
    pub mailers: Vec<(Line, Mailers)>,
    /// `userlist` sections so far.
    pub userlists: Vec<UserListDraft>,
    /// The whole `userlist` sections, for the rules that name them.
    pub users: Vec<Arc<UserList>>,
    /// `http-errors` sections so far, with their first lines.
    pub http_errors: Vec<(Arc<HttpErrors>, Line)>,
    /// Stick tables, for the rules that name them.
    pub tables: TableIndex,
    /// `tune.stick-counters`, for the lines below it.
    pub stick_counters: u8,
    /// `tune.bufsize` and `tune.maxrewrite`, for the lines below them.
    pub buffer: BufferLimits,
    /// Servers and listening addresses so far, see `MAX_OBJECTS`.
    pub objects: usize,
}

/// Most servers and listening addresses of one configuration, templates and port ranges expanded.
pub(crate) const MAX_OBJECTS: usize = 200_000;

/// `default-path`.
#[derive(Clone, Debug, Default)]
pub(crate) enum DefaultPath {
    #[default]
    Current,
    Config,
    Parent,
    Origin(PathBuf),
}

impl<'a> Context<'a> {
    /// Before the first line of a configuration.
    pub fn new(
        env: &'a dyn Environment,
        options: &'a Options,
        variables: &'a BTreeMap<String, Option<String>>,
    ) -> Context<'a> {
        Context {
            env,
            options,
            report: Report::default(),
            base: DefaultPath::default(),
            rule_lines: BTreeMap::new(),
            resolved: BTreeMap::new(),
            variables,
            compiled: CompiledRules::default(),
            told: BTreeSet::new(),
            tls: tls::Defaults::default(),
            rings: Rings::default(),
            peers: Vec::new(),
            in_peers: false,
            localpeer: None,
            resolvers: Vec::new(),
            name_servers: Vec::new(),
            mailers: Vec::new(),
            userlists: Vec::new(),
            users: Vec::new(),
            http_errors: Vec::new(),
            tables: TableIndex::default(),
            stick_counters: Global::STICK_COUNTERS,
            buffer: BufferLimits::default(),
            objects: 0,
        }
    }
}

impl Context<'_> {
    /// Complains about words behind the first `args` arguments of a section's head.
    pub fn limit_arguments(&mut self, line: &Line, args: usize) -> bool {
        if line.words.len() <= args + 1 {
            return true;
        }
        let message = format!("'{}' cannot handle unexpected argument '{}'.", line.word(0), line.word(args + 1));
        self.report.add(line.diagnostic(Severity::Alert, "extra-argument", args + 1, message));
        false
    }

    /// This process's name in `peers` sections: `-L`, else `localpeer`, else the name of the host.
    pub fn local_peer(&self) -> String {
        let given = self.options.local_peer.as_ref().or(self.localpeer.as_ref());
        given.cloned().unwrap_or_else(|| self.env.hostname())
    }

    /// A name's first address.
    pub fn resolve(&mut self, host: &str, family: Family) -> Option<IpAddr> {
        let env = self.env;
        let key = (host.to_string(), family as u8);
        *self.resolved.entry(key).or_insert_with(|| crate::address::host(host, family, env).ok())
    }

    /// Where a file named in a configuration is.
    pub fn path(&self, config: &str, name: impl AsRef<Path>) -> PathBuf {
        self.base.path(config, name)
    }

    /// Where files of TLS are, which have bases of their own.
    pub fn places<'c>(&'c self, config: &'c str) -> FilePaths<'c> {
        FilePaths { bases: &self.tls.bases, base: &self.base, config }
    }
}

impl DefaultPath {
    /// Where a file named in a configuration is.
    pub fn path(&self, config: &str, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        let config = Path::new(config).parent().unwrap_or(Path::new(""));
        match self {
            DefaultPath::Current => name.into(),
            DefaultPath::Config => config.join(name),
            DefaultPath::Parent => config.join("..").join(name),
            DefaultPath::Origin(origin) => origin.join(name),
        }
    }
}

/// `no` or `default` before a keyword.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Prefix {
    None,
    No,
    Default,
}

/// What a complaint begins with. Its text is made when there is something to complain about.
#[derive(Clone, Debug, Default)]
pub(crate) enum Subject {
    #[default]
    Nothing,
    Text(String),
    /// A server of a backend.
    Server(Arc<str>, Arc<str>),
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Nothing => Ok(()),
            Subject::Text(text) => out.write_str(text),
            Subject::Server(backend, server) => write!(out, "'server {backend}/{server}' : "),
        }
    }
}

/// One keyword with its arguments. A missing argument reads as an empty word.
pub(crate) struct Call<'l, 'a> {
    pub line: &'l Line,
    /// The index of the first argument in the line.
    pub first: usize,
    pub prefix: Prefix,
    /// The keyword's words.
    pub name: &'static str,
    /// What every complaint begins with, such as `'server app/s1' : `.
    pub about: Subject,
    pub context: &'l mut Context<'a>,
}

impl<'l, 'a> Call<'l, 'a> {
    pub fn new(
        line: &'l Line,
        first: usize,
        prefix: Prefix,
        name: &'static str,
        context: &'l mut Context<'a>,
    ) -> Call<'l, 'a> {
        Call { line, first, prefix, name, about: Subject::Nothing, context }
    }

    /// The argument at an index from 0.
    pub fn arg(&self, index: usize) -> &'l str {
        self.line.word(self.first + index)
    }

    /// How many arguments there are.
    pub fn args(&self) -> usize {
        self.line.words.len().saturating_sub(self.first)
    }

    /// The arguments as texts.
    pub fn rest(&self) -> Vec<String> {
        self.line.texts().skip(self.first).map(str::to_string).collect()
    }

    /// Complains about a word of the line (its index, not the argument's).
    pub fn error(&mut self, word: usize, id: &'static str, message: String) {
        self.say(Severity::Alert, word, id, message);
    }

    /// Reports an error at a word of the line, with a hint.
    pub fn error_with(&mut self, word: usize, id: &'static str, message: String, hint: Option<String>) {
        let message = format!("{}{message}", self.about);
        let mut diagnostic = self.line.diagnostic(Severity::Alert, id, word, message);
        diagnostic.hint = hint;
        self.context.report.add(diagnostic);
    }

    pub fn warn(&mut self, word: usize, id: &'static str, message: String) {
        self.say(Severity::Warning, word, id, message);
    }

    /// A remark about the line; the words are not marked, since nothing is wrong with them.
    pub fn notice(&mut self, id: &'static str, message: String) {
        let message = format!("{}{message}", self.about);
        let mut diagnostic = self.line.diagnostic(Severity::Notice, id, 0, message);
        diagnostic.columns = None;
        self.context.report.add(diagnostic);
    }

    fn say(&mut self, severity: Severity, word: usize, id: &'static str, message: String) {
        let message = format!("{}{message}", self.about);
        self.context.report.add(self.line.diagnostic(severity, id, word, message));
    }

    /// An argument that is missing: `'chroot' expects a directory as an argument.`
    pub fn expects(&mut self, index: usize, what: &str) {
        let message = format!("'{}' expects {what}.", self.name);
        self.error(self.first + index, "missing-argument", message);
    }

    /// An argument that is none of a closed set: the hint names the nearest one.
    pub fn not_one_of<'w>(&mut self, index: usize, message: String, known: impl IntoIterator<Item = &'w str>) {
        let hint = suggestion(self.arg(index), known);
        self.error_with(self.first + index, "bad-value", message, hint);
    }

    /// A value that is wrong, whatever is wrong with it.
    pub fn wrong(&mut self, index: usize, message: String) {
        self.error(self.first + index, "bad-value", message);
    }

    /// Whether there are no more than `args` arguments; complains about the first one too many.
    pub fn at_most(&mut self, args: usize) -> bool {
        if self.args() <= args {
            return true;
        }
        let message = format!("'{}' cannot handle unexpected argument '{}'.", self.name, self.arg(args));
        self.error(self.first + args, "extra-argument", message);
        false
    }

    /// The single argument; complains when it is missing or not alone.
    pub fn only(&mut self, what: &str) -> Option<&'l str> {
        if self.arg(0).is_empty() {
            self.expects(0, what);
            return None;
        }
        self.at_most(1).then(|| self.arg(0))
    }

    /// A number at a word's index, within bounds.
    pub fn number_at(&mut self, word: usize, name: &str, low: i64, high: i64) -> Option<i64> {
        let text = self.line.word(word);
        if text.is_empty() {
            self.error(word, "missing-argument", format!("'{name}' expects an integer argument."));
            return None;
        }
        match text.parse::<i64>() {
            Ok(value) if (low..=high).contains(&value) => Some(value),
            Ok(value) => {
                let message = format!("'{name}' value must be between {low} and {high} (was {value}).");
                self.error(word, "out-of-range", message);
                None
            }
            Err(_) => {
                self.error(word, "bad-number", format!("'{name}' expects an integer argument, found '{text}'."));
                None
            }
        }
    }

    /// The single argument as a number.
    pub fn number(&mut self, low: i64, high: i64) -> Option<i64> {
        let value = self.number_at(self.first, self.name, low, high)?;
        self.at_most(1).then_some(value)
    }

    /// A time at a word's index.
    pub fn time_at(&mut self, word: usize, name: &str, unit: Unit) -> Option<Duration> {
        let text = self.line.word(word);
        match values::time(text, unit) {
            Ok((value, "")) => Some(value),
            Ok((value, rest)) => {
                let odd = rest.chars().next().unwrap_or_default();
                let message = format!(
                    "unexpected character '{odd}' after the timer value '{text}' of '{name}', only (us=microseconds,\
                     ms=milliseconds,s=seconds,m=minutes,h=hours,d=days) are supported."
                );
                self.warn(word, "odd-time", message);
                Some(value)
            }
            Err(TimeError::Empty) => {
                self.error(word, "missing-argument", format!("'{name}' expects a time such as 500 (ms) or 10s."));
                None
            }
            Err(TimeError::Character(odd)) => {
                self.error(word, "bad-time", format!("unexpected character '{odd}' in '{name}'"));
                None
            }
            Err(TimeError::Overflow) => {
                let message = format!(
                    "timer overflow in argument '{text}' to '{name}' (maximum value is {} ms or ~24.8 days)",
                    values::MAX_TIME.as_millis()
                );
                self.error(word, "time-overflow", message);
                None
            }
        }
    }

    /// The single argument as a time, milliseconds without a unit.
    pub fn time(&mut self) -> Option<Duration> {
        let value = self.time_at(self.first, self.name, Unit::Ms)?;
        if self.args() > 1 {
            let message =
                format!("'{}' : unexpected extra argument '{}' after value '{}'.", self.name, self.arg(1), self.arg(0));
            self.error(self.first + 1, "extra-argument", message);
            return None;
        }
        Some(value)
    }

    /// One word out of a list; complains with the list and the nearest.
    pub fn choose<T: Copy>(&mut self, word: usize, name: &str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.line.word(word);
        if let Some((_, value)) = choices.iter().find(|(choice, _)| *choice == text) {
            return Some(*value);
        }
        let names = choices.iter().map(|(choice, _)| format!("'{choice}'")).collect::<Vec<_>>().join(", ");
        let message = format!("'{name}' only supports {names} (got '{text}').");
        let hint = suggestion(text, choices.iter().map(|(choice, _)| *choice));
        self.error_with(word, "bad-value", message, hint);
        None
    }
}
