//! The keyword tables: one row a keyword, with the sections it belongs to, its arguments, what Baton does about it and a line
//! of documentation. The reader, the help (`-dK`) and `docs/configuration.md` all come from these rows.

mod balance;
pub(crate) mod bind;
pub(crate) mod check;
mod cookie;
pub(crate) mod direct;
pub(crate) mod failure;
pub(crate) mod global;
mod header_cases;
mod http2;
mod limits;
mod log;
pub(crate) mod mail;
pub(crate) mod option;
pub(crate) mod peers;
mod process;
pub(crate) mod proxy;
pub(crate) mod resolvers;
pub(crate) mod ring;
mod rows;
mod rule;
pub(crate) mod server;
mod source;
pub(crate) mod statistics;
mod stats;
pub(crate) mod table;
pub(crate) mod tls;
pub(crate) mod userlist;
mod variables;

use std::sync::LazyLock;

use rustc_hash::FxHashMap;

use crate::lower::{Call, Draft, GlobalDraft};

/// Where a keyword may stand, as a set of bits.
pub type Sections = u8;
/// `global`.
pub const GLOBAL: Sections = 1;
/// Any `defaults` section.
pub const DEFAULTS: Sections = 2;
/// `defaults` sections with a name only.
pub const NAMED: Sections = 4;
/// `frontend` and `listen`.
pub const FRONT: Sections = 8;
/// `backend` and `listen`.
pub const BACK: Sections = 16;
/// In a proxy of the wrong kind the keyword is an error; without this bit it is ignored with a warning, as HAProxy does.
pub const STRICT: Sections = 32;

/// What Baton does about a keyword that HAProxy 2.6 knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Status {
    /// It works.
    Done,
    /// Read and remembered, without an effect that traffic could notice; the text says why that is harmless.
    NoEffect(&'static str),
    /// Refused: it would change what happens to traffic and Baton cannot do it yet.
    NotYet,
    /// Refused by HAProxy 2.6 as well; the text says what to write instead.
    Removed(&'static str),
}

/// One keyword.
#[derive(Clone, Copy)]
pub struct Keyword {
    /// The words it is made of: `mode`, `option httplog`, `timeout client`.
    pub name: &'static str,
    /// Where it may stand.
    pub sections: Sections,
    /// The shape of its arguments, for people.
    pub args: &'static str,
    /// What Baton does.
    pub status: Status,
    /// One line about it.
    pub doc: &'static str,
    pub(crate) apply: Apply,
}

/// What reading a row does.
#[derive(Clone, Copy)]
pub(crate) enum Apply {
    /// Nothing: the status says it all.
    Nothing,
    Global(fn(&mut GlobalDraft, &mut Call<'_, '_>)),
    /// A setting of the kernel's IPVS in `global`.
    Ipvs(fn(&mut baton_model::IpvsTuning, &mut Call<'_, '_>)),
    Proxy(fn(&mut Draft, &mut Call<'_, '_>)),
    /// An option that is on, off (`no`) or back at its default (`default`).
    Flag(fn(&mut Draft) -> &mut bool),
    /// An option of `mode http` only: on, off (`no`) or back at its default (`default`).
    HttpFlag(fn(&mut Draft) -> &mut bool),
}

/// A word behind the address of a `bind` or `server` line.
#[derive(Clone, Copy)]
pub struct Parameter<T> {
    /// The word.
    pub name: &'static str,
    /// How many words follow it.
    pub args: usize,
    /// What Baton does.
    pub status: Status,
    /// One line about it.
    pub doc: &'static str,
    /// Applies it: the index is that of the word itself. Gives back how many words after it were used.
    pub(crate) apply: fn(&mut T, &mut Call<'_, '_>, usize) -> usize,
}

/// A kind of section.
#[derive(Clone, Copy, Debug)]
pub struct SectionKind {
    /// Its keyword.
    pub name: &'static str,
    /// What Baton does.
    pub status: Status,
    /// One line about it.
    pub doc: &'static str,
}

const fn section(name: &'static str, status: Status, doc: &'static str) -> SectionKind {
    SectionKind { name, status, doc }
}

/// All sections HAProxy 2.6 knows.
pub const SECTIONS: &[SectionKind] = &[
    section("global", Status::Done, "Settings of the whole process."),
    section("defaults", Status::Done, "Default settings of the proxies below it, or of those that name it."),
    section("frontend", Status::Done, "Where clients connect."),
    section("backend", Status::Done, "Servers, and how one of them is chosen."),
    section("listen", Status::Done, "A frontend and a backend in one."),
    section("crt-store", Status::Done, "Certificate files, under names for 'crt' (as in HAProxy 3.0)."),
    section("userlist", Status::Done, "Users and passwords, for 'http-request auth' and 'http_auth'."),
    section("cache", Status::NotYet, "A cache of responses."),
    section("fcgi-app", Status::NotYet, "An application that speaks FastCGI."),
    section("http-errors", Status::Done, "A group of error pages."),
    section("healthcheck", Status::NotYet, "Health checks that several backends share (HAProxy 3.x)."),
    section("log-forward", Status::NotYet, "Receives and forwards syslog messages."),
    section("mailers", Status::Done, "Mail servers that get mail about servers."),
    section("namespace_list", Status::NotYet, "Network namespaces."),
    section("peers", Status::Done, "Other processes to share stick tables with."),
    section("program", Status::NotYet, "A program started with the master."),
    section("resolvers", Status::Done, "Name servers for resolution at run time."),
    section("ring", Status::Done, "A buffer of log lines, which are sent to syslog servers by TCP."),
];

/// The rows of `global`.
pub fn global_keywords() -> impl Iterator<Item = &'static Keyword> {
    global::KEYWORDS.iter().chain(variables::KEYWORDS).chain(direct::GLOBAL_ROWS).chain(tls::GLOBAL_ROWS)
}

/// The rows of the proxy sections.
pub fn proxy_keywords() -> impl Iterator<Item = &'static Keyword> {
    proxy::KEYWORDS
        .iter()
        .chain(statistics::KEYWORDS)
        .chain(direct::ROWS)
        .chain(option::KEYWORDS)
        .chain(check::KEYWORDS)
}

/// The words of `bind` lines: name, number of arguments, status, documentation.
pub fn bind_parameters() -> impl Iterator<Item = (&'static str, usize, Status, &'static str)> {
    bind::rows().map(|row| (row.name, row.args, row.status, row.doc))
}

/// The words of `server` lines: name, number of arguments, status, documentation.
pub fn server_parameters() -> impl Iterator<Item = (&'static str, usize, Status, &'static str)> {
    server::all().map(|row| (row.name, row.args, row.status, row.doc))
}

/// Rows by their first word; of several, the one with more words comes first.
type Index = FxHashMap<&'static str, Vec<&'static Keyword>>;

fn index(rows: impl Iterator<Item = &'static Keyword>) -> Index {
    let mut index = Index::default();
    for row in rows {
        index.entry(row.name.split(' ').next().unwrap_or_default()).or_default().push(row);
    }
    for rows in index.values_mut() {
        rows.sort_by_key(|row| std::cmp::Reverse(row.name.split(' ').count()));
    }
    index
}

static GLOBAL_INDEX: LazyLock<Index> = LazyLock::new(|| index(global_keywords()));
static PROXY_INDEX: LazyLock<Index> = LazyLock::new(|| index(proxy_keywords()));

/// What keyword a line begins with.
pub(crate) enum KeywordMatch {
    /// A row, and how many words it takes.
    Row(&'static Keyword, usize),
    /// The first word begins several keywords, the second is none of theirs: `option nosuch`.
    Family(Vec<&'static str>),
    /// Nothing known.
    Nothing,
}

/// Looks up the first words of a line in a section's table.
pub(crate) fn find(in_global: bool, first: &str, second: &str) -> KeywordMatch {
    let index = if in_global { &*GLOBAL_INDEX } else { &*PROXY_INDEX };
    let Some(rows) = index.get(first) else { return KeywordMatch::Nothing };
    for row in rows {
        match row.name.split_once(' ') {
            None => return KeywordMatch::Row(row, 1),
            Some((_, word)) if word == second => return KeywordMatch::Row(row, 2),
            Some((_, word)) if word.ends_with('*') && second.starts_with(word.trim_end_matches('*')) => {
                return KeywordMatch::Row(row, 2);
            }
            Some(_) => {}
        }
    }
    let members = rows.iter().filter(|row| !matches!(row.status, Status::Removed(_)));
    KeywordMatch::Family(members.filter_map(|row| row.name.split_once(' ')).map(|(_, word)| word).collect())
}

/// First words of all rows of a table, for guesses.
pub(crate) fn first_words(in_global: bool) -> impl Iterator<Item = &'static str> {
    let index = if in_global { &*GLOBAL_INDEX } else { &*PROXY_INDEX };
    index.keys().copied()
}
