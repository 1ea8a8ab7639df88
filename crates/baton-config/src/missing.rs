//! What HAProxy 2.6 has and Baton lacks, by feature, each with an alternative: one table for the messages about a file that is refused
//! and for `docs/missing.md`.
//!
//! What is missing says "is not supported yet", or "is not supported: " and the reason why it never will be. `mark` recognizes such
//! an error and gives it its feature; `summary` counts the lines of each; `LeftOut` takes them out for a check of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Report, Severity};
use crate::nearest;
use crate::syntax::{Line, Syntax};

/// The id of an error about something that HAProxy has and Baton lacks.
pub const NOT_YET: &str = "not-yet";

/// A feature of HAProxy 2.6 that Baton does not have.
#[derive(Debug, Eq, PartialEq)]
pub struct MissingFeature {
    /// Its short name, in messages and on the command line.
    pub name: &'static str,
    /// Its title in the document.
    pub title: &'static str,
    /// The names by which its lines are known; a `*` stands for anything.
    names: &'static [&'static str],
    /// What to use instead.
    pub instead: &'static str,
    /// Whether it is planned; if not, messages about it give the reason.
    pub is_planned: bool,
}

/// All of them with names of their own. The first one that fits is the one.
pub const FEATURES: &[MissingFeature] = &[
    MissingFeature {
        name: "caches",
        title: "caches",
        names: &["cache", "cache-*", "filter cache", "res.cache_*", "show cache", "total-max-size"],
        instead: "a cache in front, such as Varnish",
        is_planned: true,
    },
    MissingFeature {
        name: "compression",
        title: "compression",
        names: &["compression*", "filter compression", "res.comp*", "comp"],
        instead: "let the servers compress",
        is_planned: true,
    },
    MissingFeature {
        name: "fastcgi",
        title: "FastCGI",
        names: &["fcgi*", "filter fcgi-app", "use-fcgi-app", "proto fcgi"],
        instead: "a web server that speaks FastCGI, such as nginx, as the server",
        is_planned: true,
    },
    MissingFeature {
        name: "filters",
        title: "SPOE and filters",
        names: &["filter*", "spoe*", "send-spoe-group", "ot-group", "opentracing", "trace", "traces", "show trace"],
        instead: "a service behind a backend, or rules",
        is_planned: true,
    },
    MissingFeature {
        name: "lua",
        title: "Lua",
        names: &["lua", "lua-*", "lua.*", "tune.lua*"],
        instead: "the rules of `http-request`, or a service behind a backend",
        is_planned: true,
    },
    MissingFeature {
        name: "resolvers",
        title: "the HTTP client",
        names: &["httpclient*"],
        instead: "a program that asks servers, such as curl",
        is_planned: true,
    },
    MissingFeature {
        name: "http3",
        title: "HTTP/3 and its settings",
        names: &["quic*", "tune.quic*", "show quic*"],
        instead: "HTTP/2",
        is_planned: true,
    },
    MissingFeature {
        name: "tls-secrets",
        title: "secrets of TLS",
        names: &[
            "ssl_*_session_key",
            "ssl_*_client_random",
            "ssl_*_server_random",
            "ssl_*_unique_id",
            "ssl_*_session_id",
            "ssl_fc_*secret*",
            "tune.ssl.keylog",
        ],
        instead: "none: the TLS library keeps them to itself",
        is_planned: false,
    },
    MissingFeature {
        name: "generated-certificates",
        title: "certificates made on demand",
        names: &["generate-certificates", "ca-sign-*"],
        instead: "certificates in files, with `crt DIRECTORY`",
        is_planned: true,
    },
    MissingFeature {
        name: "device-detection",
        title: "device detection",
        names: &["51degrees*", "51d*", "deviceatlas*", "da-*", "wurfl*"],
        instead: "a service behind a backend; a regular expression or a map of `req.hdr(user-agent)` for a few devices",
        is_planned: false,
    },
    MissingFeature {
        name: "connection-options",
        title: "special ways to servers and from clients",
        names: &["namespace", "dispatch"],
        instead: "`server` lines with addresses that are reached directly",
        is_planned: true,
    },
    MissingFeature {
        name: "wt6",
        title: "the hash function wt6",
        names: &["wt6"],
        instead: "`xxh32`, `crc32`, `djb2` or `sdbm`, which have a description outside of HAProxy's source",
        is_planned: false,
    },
    MissingFeature {
        name: "internals",
        title: "inspection of haproxy's own insides",
        names: &[
            "internal.*",
            "cpu_*",
            "lat_*",
            "debug*",
            "mcli-debug-mode",
            "show tasks",
            "expert-mode",
            "experimental-mode",
            "profiling*",
            "tune.fail-alloc",
            "show dev",
        ],
        instead: "`baton status`, `show info`, metrics",
        is_planned: false,
    },
];

/// Everything else.
pub const OTHERS: MissingFeature = MissingFeature {
    name: "others",
    title: "others",
    names: &[],
    instead: "see `baton help KEYWORD`",
    is_planned: true,
};

impl MissingFeature {
    /// The feature that a name belongs to.
    pub fn of(name: &str) -> &'static MissingFeature {
        MissingFeature::known(name).unwrap_or(&OTHERS)
    }

    /// The features of a list of short names with commas between them.
    ///
    /// # Errors
    /// A name is unknown: which one, and those that are known.
    pub fn list(names: &str) -> Result<Vec<&'static MissingFeature>, String> {
        names.split(',').map(MissingFeature::named).collect()
    }

    fn named(name: &str) -> Result<&'static MissingFeature, String> {
        let all = || FEATURES.iter().chain([&OTHERS]);
        all().find(|feature| feature.name == name).ok_or_else(|| {
            let known: Vec<&str> = all().map(|feature| feature.name).collect();
            let guess = nearest(name, known.iter().copied()).map(|near| format!("Did you mean '{near}'? "));
            let guess = guess.unwrap_or_default();
            format!("unknown feature '{name}'. {guess}The features that Baton lacks are: {}.", known.join(", "))
        })
    }

    fn known(name: &str) -> Option<&'static MissingFeature> {
        FEATURES.iter().find(|feature| feature.names.iter().any(|pattern| fits(name, pattern)))
    }
}

fn fits(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => match end.split_once('*') {
            None => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
            Some((middle, _)) => name.strip_prefix(start).is_some_and(|rest| rest.contains(middle)),
        },
    }
}

/// Gives an error about something that is missing its id, its feature and, where it has no remedy of its own, the feature's.
pub(crate) fn mark(diagnostic: &mut Diagnostic) {
    let is_missing = diagnostic.severity == Severity::Alert
        && (diagnostic.id == NOT_YET || missing_name(&diagnostic.message).is_some());
    if !is_missing {
        return;
    }
    let feature = feature_of(diagnostic);
    diagnostic.id = NOT_YET;
    diagnostic.feature = Some(feature);
    if diagnostic.hint.is_none() && *feature != OTHERS {
        diagnostic.hint = Some(match feature.instead.strip_prefix("none: ") {
            Some(why) => format!("there is no alternative: {why}"),
            None => format!("instead: {}", feature.instead),
        });
    }
}

/// The name that a message says is missing.
fn missing_name(message: &str) -> Option<&str> {
    let before = message.split_once(" not supported yet").map(|(before, _)| before);
    let before = before.or_else(|| message.split_once("' is not supported: ").map(|(before, _)| before));
    let before = before?;
    let end = before.trim_end_matches(" is").trim_end_matches('\'');
    end.rsplit('\'').next()
}

/// By the words that the error marks, else by the name in its message.
fn feature_of(diagnostic: &Diagnostic) -> &'static MissingFeature {
    let from = diagnostic.columns.as_ref().map_or(0, |columns| columns.start);
    let marked = diagnostic.text.get(from..).unwrap_or_default();
    let mut words = marked.split_whitespace();
    let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let pair = format!("{first} {second}");
    [pair.as_str(), first, missing_name(&diagnostic.message).unwrap_or_default()]
        .into_iter()
        .find_map(MissingFeature::known)
        .unwrap_or(&OTHERS)
}

/// How many lines use which missing features: `3 lines use 2 features that Baton does not have: compression (2), lua (1)`. A single
/// line has said so already.
pub(crate) fn summary(list: &[Diagnostic]) -> Option<Diagnostic> {
    let (lines, features) = count(list.iter().filter_map(|found| Some((found.feature?, found))));
    if lines < 2 {
        return None;
    }
    let plural = if features.len() == 1 { "" } else { "s" };
    let message =
        format!("{lines} lines use {} feature{plural} that Baton does not have: {}", features.len(), listed(&features));
    let names: Vec<&str> = features.iter().map(|&(name, _)| name).collect();
    Some(Diagnostic {
        hint: Some(format!("'-c --leave-out {}' checks the file without these lines", names.join(","))),
        late: true,
        ..Diagnostic::plain(Severity::Alert, "missing-features", message)
    })
}

/// Lines that a check leaves out, each with its feature.
#[derive(Debug, Default)]
pub(crate) struct LeftOut(Vec<(&'static MissingFeature, Diagnostic)>);

impl LeftOut {
    /// Takes the lines out of `syntax` that a report says use one of `features`, a section with all its lines. Whether there were any:
    /// without them, others may be found.
    pub fn remove(&mut self, features: &[&MissingFeature], report: &Report, syntax: &mut Syntax) -> bool {
        let mut found: BTreeMap<(Arc<str>, u32), (&'static MissingFeature, &Diagnostic)> = BTreeMap::new();
        for diagnostic in report.list() {
            if let Some(feature) = diagnostic.feature.filter(|feature| features.contains(feature)) {
                found.entry((diagnostic.file.clone(), diagnostic.line)).or_insert((feature, diagnostic));
            }
        }
        let before = self.0.len();
        let mut stays = |line: &Line| match found.get(&(line.file.clone(), line.number)) {
            Some(&(feature, error)) => {
                self.0.push((feature, note(error)));
                false
            }
            None => true,
        };
        if !found.is_empty() {
            syntax.sections.retain(|section| stays(&section.head));
            syntax.sections.iter_mut().for_each(|section| section.lines.retain(&mut stays));
        }
        self.0.len() > before
    }

    /// Reports what was left out, if anything was.
    pub fn report(self, report: &mut Report) -> bool {
        let (lines, features) = count(self.0.iter().map(|(feature, line)| (*feature, line)));
        self.0.into_iter().for_each(|(_, line)| report.add(line));
        if lines > 0 {
            let message = format!("left out in this check, which a start would refuse: {}", listed(&features));
            report.add(Diagnostic { late: true, ..Diagnostic::plain(Severity::Notice, LEFT_OUT, message) });
        }
        lines > 0
    }
}

/// The id of what reports that a line was left out.
const LEFT_OUT: &str = "left-out";

/// An error as the remark that its line was left out.
fn note(error: &Diagnostic) -> Diagnostic {
    Diagnostic {
        severity: Severity::Notice,
        id: LEFT_OUT,
        message: format!("left out: {}", error.message),
        hint: None,
        feature: None,
        late: false,
        ..error.clone()
    }
}

/// `compression (2), lua (1)`.
fn listed(features: &[(&'static str, usize)]) -> String {
    let named: Vec<String> = features.iter().map(|(name, lines)| format!("{name} ({lines})")).collect();
    named.join(", ")
}

/// The number of lines that lack something, and the features by how many lines use each, most first.
fn count<'a>(
    list: impl Iterator<Item = (&'static MissingFeature, &'a Diagnostic)>,
) -> (usize, Vec<(&'static str, usize)>) {
    let mut lines = BTreeSet::new();
    let mut uses = BTreeSet::new();
    for (feature, found) in list {
        lines.insert((&found.file, found.line));
        uses.insert((feature.name, &found.file, found.line));
    }
    let mut features: Vec<(&'static str, usize)> = Vec::new();
    for (name, ..) in &uses {
        match features.last_mut() {
            Some((last, count)) if last == name => *count += 1,
            _ => features.push((name, 1)),
        }
    }
    features.sort_by_key(|&(_, count)| std::cmp::Reverse(count));
    (lines.len(), features)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_find_their_feature() {
        let check = |name: &str, expect: &str| assert_eq!(MissingFeature::of(name).name, expect, "{name}");
        check("filter compression", "compression");
        check("filter spoe", "filters");
        check("proto fcgi", "fastcgi");
        check("tune.quic.retry-threshold", "http3");
        check("ssl_fc_client_traffic_secret_0", "tls-secrets");
        check("namespace", "connection-options");
        check("wt6", "wt6");
        check("option checkcache", "others");
    }

    #[test]
    fn names_of_features_are_unique_words() {
        let names: BTreeSet<&str> = FEATURES.iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), FEATURES.len());
        let is_plain = |name: &&str| name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        assert!(names.iter().all(is_plain));
        assert_eq!(MissingFeature::list("lua,others").map(|list| list.len()), Ok(2));
        let error = MissingFeature::list("lua,cashes").expect_err("no such feature");
        assert!(
            error.starts_with(
                "unknown feature 'cashes'. Did you mean 'caches'? The features that Baton lacks are: caches, "
            ),
            "{error}"
        );
        assert!(MissingFeature::list("").is_err());
    }

    #[test]
    fn the_missing_name_is_the_one_that_is_not_supported() {
        let check = |message: &str, expect: Option<&str>| assert_eq!(missing_name(message), expect, "{message}");
        check("'acl' : the sample fetch 'sc0_conn_cur' is not supported yet.", Some("sc0_conn_cur"));
        check("'acl' : the sample fetch 'cpu_calls' is not supported: it has none.", Some("cpu_calls"));
        check("'bind' : 'quic4@' is not supported yet in 'quic4@:2'", Some("quic4@"));
        check("'block' is not supported anymore since HAProxy 2.1.", None);
    }
}
