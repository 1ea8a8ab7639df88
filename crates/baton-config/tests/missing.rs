//! What Debian's haproxy lists by `-dKall` and Baton does not have, by feature: `docs/missing.md`. This test compares the document with what the
//! installed haproxy says and with Baton's tables; with `BATON_UPDATE=1` it writes it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use baton_config::keywords::{self, Keyword, Status};
use baton_config::missing::{FEATURES, MissingFeature, OTHERS};

const HAPROXY: &str = "/usr/sbin/haproxy";

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
            // Those of the master's socket (docs/master.md).
            let of_master = ["reload", "show proc"];
            let is_known = |known: &str| known == name || name.starts_with(&format!("{known} "));
            commands.iter().map(String::as_str).chain(of_master).any(is_known)
        }
        _ => false,
    };
    listed(output).into_iter().filter(|(class, name)| !own(class, name)).collect()
}

/// A name as it stands in a file.
fn shape(class: &str, name: &str) -> String {
    if class == "filters" { format!("filter {name}") } else { name.to_owned() }
}

fn document(missing: &[(&'static str, String)]) -> String {
    let mut by_feature: BTreeMap<usize, BTreeMap<&str, Vec<&str>>> = BTreeMap::new();
    for (class, name) in missing {
        let feature = MissingFeature::of(&shape(class, name));
        let at = FEATURES.iter().position(|known| known.name == feature.name).unwrap_or(FEATURES.len());
        by_feature.entry(at).or_default().entry(class).or_default().push(name);
    }
    let mut text = String::from(
        "# What HAProxy 2.6 has and Baton lacks\n\nMade from what Debian's `haproxy -dKall` lists and from Baton's own tables \
         (`BATON_UPDATE=1 cargo test -p baton-config --test missing`), grouped by the feature that is missing. Using one of these is \
         refused with file and line; nothing is ignored silently.\n",
    );
    for (feature, classes) in by_feature {
        let MissingFeature { name, title, instead, is_planned, .. } = FEATURES.get(feature).unwrap_or(&OTHERS);
        let state = if *is_planned { "Planned" } else { "Not planned" };
        text.push_str(&format!(
            "\n## {}\n\n{state}. Name in messages: `{name}`. Instead: {instead}.\n\n| what | names |\n|---|---|\n",
            capital(title)
        ));
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
