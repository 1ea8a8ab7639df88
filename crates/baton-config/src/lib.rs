#![cfg_attr(
    not(test),
    deny(clippy::print_stdout, clippy::print_stderr, reason = "a reader that is gone or slow: baton_kernel::output")
)]
#![forbid(unsafe_code)]
//! haproxy.cfg: text to syntax to model, with every fault named.
//!
//! [`load`] reads all files ([`Syntax`]: sections of lines of words, conditional blocks resolved), looks every keyword up in the
//! tables of [`keywords`], and gives back a [`baton_model::Model`] or, when something is wrong, none, always with
//! [`Diagnostic`]s. Everything is read before it is judged, so that all faults are told at once. The crate opens no sockets;
//! files, variables, users and names come in through an [`Environment`].

mod address;
pub mod condition;
pub mod convert;
mod diagnostic;
mod dynamic_server;
mod environment;
pub mod keywords;
mod lower;
pub mod missing;
mod own;
mod server_line;
mod syntax;
mod unquoted;
pub mod values;
mod words;

use std::collections::BTreeMap;
use std::path::PathBuf;

use baton_model::Model;
use baton_rules::CompiledRules;

pub use baton_rules::nearest;
pub use diagnostic::{Diagnostic, MAX_DIAGNOSTICS, Severity, is_unprintable};
pub use dynamic_server::{DynamicServers, ServerIds, is_checked_by, is_dynamic, quoted, takes_dynamic_servers};
pub use environment::{Environment, FixedEnvironment, MAX_FILE_BYTES, SystemEnvironment};
pub use keywords::tls::crt_list::{CrtListError, CrtListLine, MAX_LIST_WORDS, crt_list_line};
pub use server_line::ServerLine;
pub use syntax::{Line, MAX_BLOCKS, MAX_FILES, Section, Syntax};
pub use words::{MAX_LINE_BYTES, MAX_WORDS, Token};

use diagnostic::Report;
use environment::PROXIES_PER_PAUSE;
use lower::Context;
use missing::{LeftOut, MissingFeature};
use syntax::Reader;

/// What the command line says about the configuration (management manual, 3).
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `-f`: files or directories, in order; `-` is standard input.
    pub files: Vec<PathBuf>,
    /// `-n`: overrides the global `maxconn`.
    pub maxconn: Option<u32>,
    /// `-N`: `maxconn` of frontends that have none.
    pub proxy_maxconn: Option<u32>,
    /// `-dS`: nothing is spliced.
    pub no_splice: bool,
    /// `-L`: the local peer's name, the host name by default.
    pub local_peer: Option<String>,
    /// `-dD`: diagnostic remarks are shown.
    pub diag: bool,
    /// `-dW`: a warning is an error.
    pub zero_warning: bool,
    /// `-dV`: certificates of servers are not verified unless their line asks for it.
    pub no_server_verify: bool,
    /// `-dr`: servers whose names do not resolve are no error.
    pub ignore_unresolved: bool,
    /// `--leave-out`: lines that use these features, which Baton lacks, are judged as if they were not there. For a check alone.
    pub leave_out: Vec<&'static MissingFeature>,
}

impl Options {
    /// The options of `-f FILE` alone.
    pub fn file(path: impl Into<PathBuf>) -> Options {
        Options { files: vec![path.into()], ..Options::default() }
    }
}

/// The outcome of [`load`].
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// The model; `None` when an alert was raised.
    pub model: Option<Model>,
    /// Its rules, compiled.
    pub rules: CompiledRules,
    /// Everything there is to say, in the order of the files and lines; what concerns no single line comes last.
    pub diagnostics: Vec<Diagnostic>,
    /// Variables that `setenv` and its relatives changed: new values, or `None` for those removed.
    pub variables: BTreeMap<String, Option<String>>,
    /// The files that were read.
    pub files: Vec<PathBuf>,
    /// Whether lines were left out as [`Options::leave_out`] says; what the files describe is then not what the model describes.
    pub is_partial: bool,
}

impl Loaded {
    /// Whether anything would accept connections. Without a listener HAProxy calls a file valid and exits with status 2.
    pub fn has_listener(&self) -> bool {
        self.model.as_ref().is_some_and(|model| model.has_listener())
    }

    /// The diagnostics of one severity.
    pub fn of(&self, severity: Severity) -> impl Iterator<Item = &Diagnostic> {
        self.diagnostics.iter().filter(move |diagnostic| diagnostic.severity == severity)
    }
}

/// Reads, judges and lowers a configuration.
pub fn load(options: &Options, env: &dyn Environment) -> Loaded {
    let mut report = Report::default();
    let mut syntax = read(options, env, &mut report);
    let mut judged = judge(options, env, &syntax, report.clone());
    let mut left_out = LeftOut::default();
    while left_out.remove(&options.leave_out, &judged.report, &mut syntax) {
        judged = judge(options, env, &syntax, report.clone());
    }
    let Judged { model, rules, mut report } = judged;
    report.sum_up();
    let is_partial = left_out.report(&mut report);
    let Syntax { files, sections, variables } = syntax;
    free(sections, env);
    Loaded {
        model: (!report.has_alert()).then_some(model),
        rules,
        diagnostics: report.sorted(&files),
        files: files.iter().map(|file| PathBuf::from(&**file)).collect(),
        variables,
        is_partial,
    }
}

/// What sections come to.
struct Judged {
    /// Whole even when alerts were reported.
    model: Model,
    rules: CompiledRules,
    report: Report,
}

fn judge(options: &Options, env: &dyn Environment, syntax: &Syntax, report: Report) -> Judged {
    let mut context = Context::new(env, options, &syntax.variables);
    context.report = report;
    let model = lower::lower(syntax, &mut context);
    let (mut report, rules) = (context.report, context.compiled);
    if (options.zero_warning || says_zero_warning(syntax)) && report.has_warning() {
        let message = "Some warnings were found and 'zero-warning' is set. Aborting.";
        let mut diagnostic = Diagnostic::plain(Severity::Alert, "zero-warning", message);
        diagnostic.late = true;
        report.add(diagnostic);
    }
    Judged { model, rules, report }
}

/// Frees sections or proxies, of which there may be very many, and pauses as often as the reading does.
fn free<T>(things: Vec<T>, env: &dyn Environment) {
    for (count, thing) in things.into_iter().enumerate() {
        if count % PROXIES_PER_PAUSE == PROXIES_PER_PAUSE - 1 {
            env.pause();
        }
        drop(thing);
    }
}

/// Reads files to sections, without a look at what the keywords mean.
pub fn parse(options: &Options, env: &dyn Environment) -> (Syntax, Vec<Diagnostic>) {
    let mut report = Report::default();
    let syntax = read(options, env, &mut report);
    let diagnostics = report.sorted(&syntax.files);
    (syntax, diagnostics)
}

fn read(options: &Options, env: &dyn Environment, report: &mut Report) -> Syntax {
    let local_peer = options.local_peer.clone().unwrap_or_else(|| env.hostname());
    let mut reader = Reader {
        env,
        report,
        diag: options.diag,
        local_peer,
        has_local_peer: options.local_peer.is_some(),
        syntax: Syntax::default(),
        kept: None,
        file_list: String::new(),
    };
    reader.read(&options.files);
    reader.syntax
}

/// Whether a `global` section says `zero-warning`.
fn says_zero_warning(syntax: &Syntax) -> bool {
    let globals = syntax.sections.iter().filter(|section| section.head.word(0) == "global");
    globals.flat_map(|section| &section.lines).any(|line| line.word(0) == "zero-warning")
}

/// Evaluates a condition as `-cc` does.
#[expect(clippy::result_large_err, reason = "called once, and a diagnostic is what the caller prints")]
pub fn condition(text: &str, env: &dyn Environment) -> Result<bool, Diagnostic> {
    condition::evaluate(text, &|name| env.var(name).is_some()).map_err(|message| {
        Diagnostic::plain(Severity::Alert, "bad-condition", format!("Failed to evaluate condition: {message}"))
    })
}
