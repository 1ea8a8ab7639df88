//! What Debian's haproxy lists by `-dKall` and Baton does not have, by feature: `docs/missing.md`. This test compares the document with what the
//! installed haproxy says and with Baton's tables; with `BATON_UPDATE=1` it writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use baton_config::keywords::{self, Keyword, Status};

const HAPROXY: &str = "/usr/sbin/haproxy";

/// A feature, the words by which its keywords are known (a `*` at an end stands for anything), and what to do without it. The first
/// feature that fits is the one.
const FEATURES: &[(&str, &[&str], &str)] = &[
    (
        "stick tables and peers",
        &[
            "sc_*",
            "sc0_*",
            "sc1_*",
            "sc2_*",
            "src_*",
            "table_*",
            "in_table",
            "sc-*",
            "track-sc*",
            "stick*",
            "peers",
            "clear table",
            "set table",
            "show table",
            "show peers",
            "server_id",
            "table",
            "peer",
            "shards",
        ],
        "`balance source` or a cookie keeps a client at its server; nftables limits rates by address",
    ),
    ("caches", &["cache*", "res.cache_*", "show cache", "total-max-size"], "a cache in front, such as Varnish"),
    ("compression", &["compression*", "res.comp*", "comp"], "let the servers compress"),
    ("Lua", &["lua*", "lua.*", "tune.lua*"], "the rules of `http-request`, or a service behind a backend"),
    (
        "SPOE and filters",
        &["filter*", "spoe*", "send-spoe-group", "ot-group", "opentracing", "trace", "traces", "show trace"],
        "a service behind a backend, or rules",
    ),
    ("FastCGI", &["fcgi*", "use-fcgi-app", "proto"], "a web server that speaks FastCGI, such as nginx, as the server"),
    (
        "resolvers and the HTTP client",
        &["do-resolve", "resolvers", "httpclient*", "resolve-*", "resolv*", "show resolvers", "agent-addr"],
        "names are resolved at the start and by a reload",
    ),
    (
        "HTTP/2, HTTP/3 and their settings",
        &["tune.h2*", "h2-*", "h1-case-adjust*", "quic*", "tune.quic*", "show quic*"],
        "HTTP/1.1",
    ),
    (
        "secrets of TLS",
        &[
            "ssl_*_session_key",
            "ssl_*_client_random",
            "ssl_*_server_random",
            "ssl_*_unique_id",
            "ssl_*_session_id",
            "ssl_fc_*secret*",
            "tune.ssl.keylog",
        ],
        "none: the TLS library keeps them to itself",
    ),
    (
        "checks and agents beyond HTTP and TCP",
        &[
            "http-check*",
            "tcp-check*",
            "agent*",
            "option *-check",
            "external-check*",
            "set server agent",
            "enable agent",
            "disable agent",
        ],
        "`option httpchk` with one request, or `check` alone",
    ),
    (
        "inspection of haproxy's own insides",
        &[
            "internal.*",
            "debug*",
            "show fd",
            "show sched*",
            "show profiling",
            "set profiling",
            "show pools",
            "show activity",
            "show tasks",
            "show threads",
            "show libs",
            "show env",
            "show events",
            "expert-mode",
            "experimental-mode",
            "profiling*",
            "tune.fail-alloc",
            "show dev",
        ],
        "`baton status`, `show info`, metrics",
    ),
];

/// What a list of Baton has of one kind.
fn has(list: &BTreeSet<String>, name: &str) -> bool {
    list.contains(name) || list.iter().any(|known| known.strip_suffix('*').is_some_and(|start| name.starts_with(start)))
}

fn names(rows: impl Iterator<Item = &'static Keyword>) -> BTreeSet<String> {
    let here = |status: &Status| !matches!(status, Status::NotYet);
    rows.filter(|row| here(&row.status)).map(|row| row.name.to_owned()).collect()
}

fn parameters(rows: impl Iterator<Item = (&'static str, usize, Status, &'static str)>) -> BTreeSet<String> {
    rows.filter(|(_, _, status, _)| !matches!(status, Status::NotYet)).map(|(name, ..)| name.to_owned()).collect()
}

/// The words of the rules' tables of a kind; of actions those that a rule set has.
fn of_rules(kind: &str, rule_set: Option<&str>) -> BTreeSet<String> {
    baton_rules::keywords()
        .filter(|row| row.kind == kind && rule_set.is_none_or(|set| row.rule_sets().any(|known| known == set)))
        .flat_map(|row| std::iter::once(row.name).chain(row.aliases.iter().copied()))
        .map(str::to_owned)
        .collect()
}

/// The commands of the runtime API, read from their table: this crate cannot use the one that has it.
fn commands(table: &str) -> BTreeSet<String> {
    let rows = table.split("row(").skip(1).filter_map(|row| row.trim_start().strip_prefix("&["));
    let words = |row: &str| {
        row.split(']').next().unwrap_or_default().split('"').skip(1).step_by(2).map(str::to_owned).collect::<Vec<_>>()
    };
    rows.map(|row| words(row).join(" ")).collect()
}

/// The class and the name of everything that haproxy lists.
fn listed(output: &str) -> BTreeSet<(&'static str, String)> {
    let mut found = BTreeSet::new();
    let (mut list, mut section) = ("", "");
    for line in output.lines() {
        if let Some(title) = line.strip_prefix("# List of registered ") {
            list = title.trim_end_matches(':');
            continue;
        }
        if line.starts_with('#') || line.trim().is_empty() {
            continue;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_indented = line.starts_with('\t');
        let plain = |word: &str| word.split('(').next().unwrap_or_default().trim_end_matches([':', '*']).to_owned();
        match (list, &words[..]) {
            ("configuration keywords", [name]) if !is_indented => section = name,
            ("configuration keywords", ["server", _, _, name, ..]) => {
                _ = found.insert(("words of `server`", plain(name)))
            }
            ("configuration keywords", ["bind", _, name, ..]) => _ = found.insert(("words of `bind`", plain(name))),
            ("configuration keywords", ["http-request", name, ..]) => {
                _ = found.insert(("actions of `http-request`", plain(name)))
            }
            ("configuration keywords", ["http-response", name, ..]) => {
                _ = found.insert(("actions of `http-response`", plain(name)))
            }
            ("configuration keywords", ["http-after-response", name, ..]) => {
                found.insert(("actions of `http-after-response`", plain(name)));
            }
            ("configuration keywords", ["tcp-request" | "tcp-response", ..]) => {}
            ("configuration keywords", ["option", name, ..]) => {
                _ = found.insert(("keywords of proxies", format!("option {name}")))
            }
            ("configuration keywords", [name, ..]) if section == "crt-list" => {
                _ = found.insert(("words of `bind`", plain(name)))
            }
            ("configuration keywords", [name, ..]) if section == "global" => {
                _ = found.insert(("keywords of `global`", plain(name)))
            }
            ("configuration keywords", [name, ..]) => _ = found.insert(("keywords of proxies", plain(name))),
            ("CLI keywords", words) => {
                let end = words.iter().position(|word| word.starts_with('[')).unwrap_or(words.len());
                let name = words[..end].join(" ");
                if !name.starts_with(['@', '_']) {
                    found.insert(("commands of the runtime API", name));
                }
            }
            ("sample converter functions", [name, ..]) => _ = found.insert(("converters", plain(name))),
            ("filter names", [name, ..]) => _ = found.insert(("filters", plain(name))),
            ("sample fetch functions", _) => {
                let name = line.split_once("] ").map_or(line, |(_, name)| name);
                found.insert(("sample fetches", plain(name).split(':').next().unwrap_or_default().to_owned()));
            }
            ("service names", [name, ..]) => _ = found.insert(("services", plain(name))),
            _ => {}
        }
    }
    found
}

fn missing(output: &str, runtime_table: &str) -> Vec<(&'static str, String)> {
    let commands = commands(runtime_table);
    let proxies = names(keywords::proxy_keywords());
    let global = names(keywords::global_keywords());
    let own = |class: &str, name: &str| match class {
        "keywords of `global`" => {
            has(&global, name) || global.iter().any(|known| known.split(' ').next() == Some(name))
        }
        "keywords of proxies" => {
            has(&proxies, name) || proxies.iter().any(|known| known.split(' ').next() == Some(name))
        }
        "words of `bind`" => has(&parameters(keywords::bind_parameters()), name),
        "words of `server`" => has(&parameters(keywords::server_parameters()), name),
        "actions of `http-request`" => has(&of_rules("action", Some("http-request")), name),
        "actions of `http-response`" => has(&of_rules("action", Some("http-response")), name),
        "actions of `http-after-response`" => has(&of_rules("action", Some("http-after-response")), name),
        "converters" => has(&of_rules("converter", None), name),
        "sample fetches" => has(&of_rules("sample fetch", None), name),
        "services" => name == "prometheus-exporter",
        "commands of the runtime API" => {
            commands.iter().any(|known| known == name || name.starts_with(&format!("{known} ")))
        }
        _ => false,
    };
    listed(output).into_iter().filter(|(class, name)| !own(class, name)).collect()
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

fn document(missing: &[(&'static str, String)]) -> String {
    let mut by_feature: BTreeMap<usize, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (class, name) in missing {
        let feature = FEATURES.iter().position(|(_, patterns, _)| patterns.iter().any(|pattern| fits(name, pattern)));
        by_feature.entry(feature.unwrap_or(FEATURES.len())).or_default().entry(class).or_default().push(name);
    }
    let mut text = String::from(
        "# What HAProxy 2.6 has and Baton lacks\n\nMade from what Debian's `haproxy -dKall` lists and from Baton's own tables \
         (`BATON_UPDATE=1 cargo test -p baton-config --test missing`), grouped by the feature that is missing. Using one of these is \
         refused with file and line; nothing is ignored silently.\n",
    );
    for (feature, classes) in by_feature {
        let (title, instead) =
            FEATURES.get(feature).map_or(("Others", "see `baton help KEYWORD`"), |row| (row.0, row.2));
        text.push_str(&format!("\n## {}\n\nInstead: {instead}.\n\n| what | names |\n|---|---|\n", capital(title)));
        for (class, names) in classes {
            let names: Vec<String> = names.iter().map(|name| format!("`{}`", name.replace('|', "\\|"))).collect();
            text.push_str(&format!("| {class} | {} |\n", names.join(", ")));
        }
    }
    text
}

fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_uppercase().collect::<String>() + chars.as_str())
}

#[test]
fn the_list_of_what_is_missing_is_up_to_date() {
    let output = Command::new(HAPROXY).args(["-dKall", "-q", "-c", "-f", "/dev/null"]).output();
    let output = output.expect("Debian's haproxy is installed, as scripts/setup does");
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let table = docs.join("../crates/baton-control/src/runtime/table.rs");
    let table = std::fs::read_to_string(table).expect("the table of the runtime API");
    let missing = missing(&String::from_utf8_lossy(&output.stdout), &table);
    let wanted = document(&missing);
    let file = docs.join("missing.md");
    if std::env::var_os("BATON_UPDATE").is_some() {
        std::fs::write(&file, &wanted).expect("the document can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/missing.md is out of date: run with BATON_UPDATE=1\n{}",
        difference(&found, &wanted)
    );
}

fn difference(found: &str, wanted: &str) -> String {
    let lines = |text: &str, other: &str, sign: char| -> String {
        let other: BTreeSet<&str> = other.lines().collect();
        text.lines().filter(|line| !other.contains(line)).map(|line| format!("{sign} {line}\n")).collect()
    };
    lines(found, wanted, '-') + &lines(wanted, found, '+')
}
