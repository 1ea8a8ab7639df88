//! The commands: one row each. What is understood, the help, and the answer to what is not understood come from these rows.

use std::fmt::Write as _;

use baton_model::AccessLevel;
use socket2::Socket;

use super::answer::Answer;
use super::session::{Call, Session};
use super::{clear, give, info, own, process, servers, stat};
use crate::control::Control;

/// A command.
#[derive(Debug)]
pub struct Row {
    /// Its name, word by word.
    pub words: &'static [&'static str],
    /// Its arguments, as the help shows them.
    pub args: &'static str,
    /// What it does, in a few words.
    pub help: &'static str,
    /// Who may use it.
    pub level: AccessLevel,
    /// Who gets to see it.
    pub shown: Shown,
    pub(super) act: Act,
}

/// Which sessions know a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shown {
    /// All.
    Always,
    /// All, but it is not in the help.
    Hidden,
}

/// What a command needs to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) enum Act {
    /// Only its session.
    Own(fn(&mut Session, &Call) -> Answer),
    /// Live state: answered on the change line.
    Ask(fn(&mut Control, &Call) -> Answer),
    /// The connection itself, on which something else is spoken from then on.
    Take(fn(&mut Control, Socket)),
}

const fn row(
    words: &'static [&'static str],
    args: &'static str,
    help: &'static str,
    level: AccessLevel,
    act: Act,
) -> Row {
    Row { words, args, help, level, shown: Shown::Always, act }
}

const fn hidden(words: &'static [&'static str], level: AccessLevel, act: Act) -> Row {
    Row { words, args: "", help: "", level, shown: Shown::Hidden, act }
}

use AccessLevel::{Admin, Operator, User};
use Act::{Ask, Own, Take};

/// All commands, in the order of the help.
pub static ROWS: &[Row] = &[
    row(
        &["clear", "counters"],
        "[all]",
        "forget the maxima, or everything that was counted",
        Operator,
        Ask(clear::counters),
    ),
    row(&["get", "weight"], "<bk>/<srv>", "the weight of a server, now and as configured", User, Ask(servers::weight)),
    row(&["operator"], "", "give up the rights of an admin in this session", User, Own(own::operator)),
    row(
        &["set", "severity-output"],
        "[none|number|string]",
        "put a severity before messages",
        User,
        Own(own::severity),
    ),
    row(&["set", "timeout"], "[cli] <delay>", "how long this session may be silent (s)", User, Own(own::timeout)),
    row(&["show", "backend"], "", "the names of all backends", User, Ask(process::backends)),
    row(&["show", "cli", "level"], "", "what this session may do", User, Own(own::show_level)),
    row(&["show", "cli", "sockets"], "", "the sockets of the runtime API", User, Ask(process::sockets)),
    row(&["show", "env"], "[var]", "the environment of the process", Operator, Ask(process::environment)),
    row(
        &["show", "errors"],
        "[<px>] [request|response]",
        "messages that were refused (none is kept)",
        Operator,
        Ask(process::errors),
    ),
    row(&["show", "info"], "[desc|json|typed|float]*", "how the process is", User, Ask(info::show)),
    row(&["show", "servers", "conn"], "[<backend>]", "connections of servers", User, Ask(servers::connections)),
    row(
        &["show", "servers", "state"],
        "[<backend>]",
        "states of servers, as a state file has them",
        User,
        Ask(servers::state),
    ),
    row(&["show", "startup-logs"], "", "what was said during the start", Operator, Ask(process::startup_logs)),
    row(&["show", "stat"], "[desc|json|no-maint|typed|up]*", "figures of proxies and servers", User, Ask(stat::show)),
    row(&["show", "version"], "", "the version of the process", User, Ask(info::version)),
    row(&["user"], "", "give up all but the rights of a user in this session", User, Own(own::user)),
    row(&["help"], "[<command>]", "the commands, or those that look like it", User, Own(own::help)),
    row(&["prompt"], "", "go on after each line, with a prompt; or stop that", User, Own(own::prompt)),
    row(&["quit"], "", "end this session", User, Own(own::quit)),
    hidden(&["_getsocks"], User, Take(give::sockets)),
    hidden(&["expert-mode"], Admin, Own(own::expert)),
    hidden(&["experimental-mode"], Admin, Own(own::experimental)),
];

/// The command that words begin with: the one with the longest name.
pub(super) fn find(words: &[String], _: &Session) -> Option<&'static Row> {
    let is_named =
        |row: &&Row| row.words.len() <= words.len() && row.words.iter().zip(words).all(|(own, word)| own == word);
    ROWS.iter().filter(is_named).max_by_key(|row| row.words.len())
}

/// What is said to words that are no command.
pub(super) fn unknown(words: &[String], _: &Session) -> String {
    match alike(words) {
        rows if rows.is_empty() => list("Unknown command. Please enter one of the following commands only:", &all()),
        rows => list("Unknown command, but maybe one of the following ones is a better match:", &rows),
    }
}

/// `help`, with the beginning of a command or without.
pub(super) fn help(words: &[String], _: &Session) -> String {
    let rows = alike(words);
    list("The following commands are valid at this level:", if rows.is_empty() { all() } else { rows }.as_slice())
}

fn all() -> Vec<&'static Row> {
    ROWS.iter().filter(|row| row.shown == Shown::Always).collect()
}

fn alike(words: &[String]) -> Vec<&'static Row> {
    let rows = all();
    let names: Vec<_> = rows.iter().map(|row| row.words).collect();
    names_alike(words, &names).into_iter().map(|at| rows[at]).collect()
}

/// The places of names that are most like these words, and of those that are always of use. Empty when there is no likeness.
pub(crate) fn names_alike(words: &[String], names: &[&[&str]]) -> Vec<usize> {
    let likeness = |name: &[&str]| {
        let pairs = words.iter().zip(name).take_while(|(word, own)| is_alike(word, own));
        let in_place = pairs.count();
        let anywhere = words.iter().filter(|word| name.iter().any(|own| is_alike(word, own))).count();
        in_place.max(anywhere)
    };
    let best = names.iter().map(|name| likeness(name)).max().unwrap_or_default();
    if best == 0 {
        return Vec::new();
    }
    let is_general = |name: &[&str]| ["help", "prompt", "quit"].contains(&name[0]);
    (0..names.len()).filter(|&at| likeness(names[at]) == best || is_general(names[at])).collect()
}

/// Whether one of two words begins with the other, whatever their case.
fn is_alike(word: &str, own: &str) -> bool {
    let length = word.len().min(own.len());
    length > 0 && word.as_bytes()[..length].eq_ignore_ascii_case(&own.as_bytes()[..length])
}

fn list(title: &str, rows: &[&Row]) -> String {
    let mut out = format!("{title}\n");
    for row in rows {
        let usage = format!("{} {}", row.words.join(" "), row.args);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {:<40}: {}", usage.trim_end(), row.help);
    }
    out
}
