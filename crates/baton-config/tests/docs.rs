//! `docs/configuration.md` ends with tables made from the keyword tables. This test compares them; with `BATON_UPDATE=1` it writes
//! them anew.

use std::fmt::Write as _;
use std::path::Path;

use baton_config::keywords::{self, BACK, DEFAULTS, FRONT, Keyword, NAMED, Status};

const MARK: &str = "<!-- keywords -->\n";

/// The letters of the sections a keyword may stand in.
fn sections(row: &Keyword) -> String {
    let mut letters = String::new();
    for (bit, letter) in [(DEFAULTS, 'D'), (NAMED, 'd'), (FRONT, 'F'), (BACK, 'B')] {
        if row.sections & bit != 0 {
            letters.push(letter);
        }
    }
    letters
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|")
}

/// Names as code, in lines of a list.
fn names<'a>(list: impl Iterator<Item = &'a str>) -> String {
    list.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

fn tables() -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\n## Sections\n\n| section | |\n|---|---|");
    for kind in keywords::SECTIONS {
        let status = if kind.status == Status::Done { "" } else { " *Not supported yet.*" };
        let _ = writeln!(out, "| `{}` | {}{status} |", kind.name, kind.doc);
    }
    let _ = writeln!(out, "\n## Keywords of `global`\n\n| keyword | arguments | |\n|---|---|---|");
    for row in keywords::global_keywords().filter(|row| row.status == Status::Done) {
        let args = if row.args.is_empty() { String::new() } else { format!("`{}`", escaped(row.args)) };
        let _ = writeln!(out, "| `{}` | {args} | {} |", row.name, row.doc);
    }
    rest(&mut out, &keywords::global_keywords().collect::<Vec<_>>());
    let _ = writeln!(
        out,
        "\n## Keywords of proxies\n\nD: `defaults`, d: `defaults` with a name, F: `frontend` and `listen`, B: `backend` and \
         `listen`.\n\n| keyword | where | arguments | |\n|---|---|---|---|"
    );
    for row in keywords::proxy_keywords().filter(|row| row.status == Status::Done) {
        let args = if row.args.is_empty() { String::new() } else { format!("`{}`", escaped(row.args)) };
        let _ = writeln!(out, "| `{}` | {} | {args} | {} |", row.name, sections(row), row.doc);
    }
    rest(&mut out, &keywords::proxy_keywords().collect::<Vec<_>>());
    parameters(&mut out, "bind", keywords::bind_parameters().collect());
    parameters(&mut out, "server", keywords::server_parameters().collect());
    out
}

/// The keywords that are not done.
fn rest(out: &mut String, rows: &[&Keyword]) {
    let _ = writeln!(out, "\nRead without an effect:\n\n| keyword | why this is harmless |\n|---|---|");
    for row in rows {
        if let Status::NoEffect(why) = row.status {
            let _ = writeln!(out, "| `{}` | {why} |", row.name);
        }
    }
    let later = rows.iter().filter(|row| row.status == Status::NotYet).map(|row| row.name);
    let gone = rows.iter().filter(|row| matches!(row.status, Status::Removed(_))).map(|row| row.name);
    let _ = writeln!(out, "\nKeywords of HAProxy 2.6 that are not supported yet, and refused: {}.", names(later));
    let _ = writeln!(out, "\nRemoved in HAProxy 2.6, and refused with its advice: {}.", names(gone));
}

fn parameters(out: &mut String, line: &str, rows: Vec<(&str, usize, Status, &str)>) {
    let _ = writeln!(out, "\n## Options of `{line}` lines\n\n| option | |\n|---|---|");
    for (name, args, _, doc) in rows.iter().filter(|row| row.2 == Status::Done) {
        let value = if *args > 0 { " VALUE" } else { "" };
        let _ = writeln!(out, "| `{name}{value}` | {doc} |");
    }
    let _ = writeln!(out, "\nRead without an effect:\n\n| option | why this is harmless |\n|---|---|");
    for (name, _, status, _) in &rows {
        if let Status::NoEffect(why) = status {
            let _ = writeln!(out, "| `{name}` | {why} |");
        }
    }
    let later = rows.iter().filter(|row| row.2 == Status::NotYet).map(|row| row.0);
    let _ = writeln!(out, "\nNot supported yet, and refused: {}.", names(later));
}

#[test]
fn the_documentation_lists_the_keyword_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let text = std::fs::read_to_string(&path).expect("the page is there");
    let (prose, found) = text.split_once(MARK).expect("the page has its mark");
    let expect = tables();
    if std::env::var_os("BATON_UPDATE").is_some() {
        std::fs::write(&path, format!("{prose}{MARK}{expect}")).expect("the page can be written");
        return;
    }
    assert!(found == expect, "docs/configuration.md is old: BATON_UPDATE=1 cargo test -p baton-config --test docs");
}

#[test]
fn every_row_is_named_once_and_explained() {
    let mut seen = std::collections::BTreeSet::new();
    for row in keywords::global_keywords() {
        assert!(seen.insert(("global", row.name)), "{} is there twice", row.name);
    }
    for row in keywords::proxy_keywords() {
        assert!(seen.insert(("proxy", row.name)), "{} is there twice", row.name);
        assert!(row.status != Status::Done || row.doc.ends_with('.'), "{} has no documentation", row.name);
    }
    for (name, ..) in keywords::bind_parameters() {
        assert!(seen.insert(("bind", name)), "{name} is there twice");
    }
    for (name, ..) in keywords::server_parameters() {
        assert!(seen.insert(("server", name)), "{name} is there twice");
    }
}

/// Words of the manual's lists (3 and 4.1): each must be in the tables.
#[test]
fn the_tables_know_every_keyword_of_the_manual() {
    let proxy = include_str!("manual/proxy.txt");
    let known: Vec<&str> = keywords::proxy_keywords().map(|row| row.name).collect();
    for line in proxy.lines().filter(|line| !line.is_empty()) {
        let covered = known.iter().any(|name| *name == line || line.starts_with(&format!("{name} ")))
            || known.iter().any(|name| name.ends_with('*') && line.starts_with(name.trim_end_matches('*')));
        assert!(covered, "'{line}' of the manual is in no table");
    }
    let known: Vec<&str> = keywords::global_keywords().map(|row| row.name).collect();
    for line in include_str!("manual/global.txt").lines().filter(|line| !line.is_empty()) {
        let covered = known.iter().any(|name| *name == line || name.starts_with(&format!("{line} ")));
        assert!(covered, "'{line}' of the manual is in no table");
    }
}
