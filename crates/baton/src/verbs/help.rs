//! `baton help`: a command, or a keyword of haproxy.cfg as the keyword tables describe it.

use std::process::ExitCode;

use baton_config::keywords::{self, BACK, DEFAULTS, FRONT, NAMED, Sections, Status};
use baton_config::nearest;
use clap::Args;

/// How many entries of a family, such as `timeout`, are described in full.
const FULL_MAX: usize = 4;

/// Describe a command, or a keyword, sample fetch, converter or action of haproxy.cfg.
///
/// The exit code is 1 if nothing of this name is known.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  baton help reload\n  baton help timeout client\n  baton help maxconn\n  baton help req.hdr"
)]
pub struct HelpCommand {
    /// A command (`reload`, `flip init`) or a keyword (`timeout client`, `maxconn`, `req.hdr`, `base64`)
    #[arg(value_name = "COMMAND|KEYWORD")]
    words: Vec<String>,
}

/// Prints what is known of the name.
pub fn run(command: &HelpCommand) -> Result<ExitCode, String> {
    let entries: Vec<Entry> = entries().collect();
    let text = match (of_command(&command.words), of_keyword(&entries, &command.words.join(" "))) {
        (Some(command), Some(keyword)) => format!("{command}\n{keyword}"),
        (Some(text), None) | (None, Some(text)) => text,
        (None, None) => return Err(unknown(&entries, &command.words.join(" "))),
    };
    super::print_text(text);
    Ok(ExitCode::SUCCESS)
}

/// The help of a command; of the whole program without words.
fn of_command(words: &[String]) -> Option<String> {
    let mut command = super::command_line();
    command.build();
    let mut found = &mut command;
    for word in words {
        found = found.find_subcommand_mut(word)?;
    }
    Some(found.render_long_help().to_string())
}

/// A row of one of the tables.
struct Entry {
    name: String,
    aliases: &'static [&'static str],
    /// What it is, and where it may stand.
    place: String,
    arguments: String,
    support: String,
    doc: &'static str,
}

impl Entry {
    fn is_called(&self, name: &str) -> bool {
        let is_prefix =
            self.name.strip_suffix('*').is_some_and(|prefix| name.starts_with(prefix) && name != prefix.trim());
        self.name == name || self.aliases.contains(&name) || is_prefix
    }

    /// Everything that begins with `timeout`, by `timeout`.
    fn is_of_family(&self, name: &str) -> bool {
        self.name.split_once(' ').is_some_and(|(first, _)| first == name)
    }

    /// `option httplog`, by `httplog`.
    fn ends_with(&self, name: &str) -> bool {
        self.name.split_once(' ').is_some_and(|(_, rest)| rest == name)
    }

    fn full(&self) -> String {
        let also = match self.aliases {
            [] => String::new(),
            aliases => format!(" (also {})", aliases.join(", ")),
        };
        let doc = if self.doc.is_empty() { String::new() } else { format!("  {}\n", self.doc) };
        format!("{}{}{also}\n{doc}  {}; {}\n", self.name, self.arguments, self.place, self.support)
    }
}

/// What the tables say of a name.
fn of_keyword(entries: &[Entry], name: &str) -> Option<String> {
    let ways: [fn(&Entry, &str) -> bool; 3] = [Entry::is_called, Entry::is_of_family, Entry::ends_with];
    let found = |is_meant: &fn(&Entry, &str) -> bool| -> Vec<&Entry> {
        entries.iter().filter(|entry| is_meant(entry, name)).collect()
    };
    let found = ways.iter().map(found).find(|found| !found.is_empty())?;
    if found.len() <= FULL_MAX {
        return Some(found.iter().map(|entry| entry.full()).collect::<Vec<_>>().join("\n"));
    }
    let width = found.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
    let doc = |entry: &Entry| if entry.support == SUPPORTED { entry.doc.to_owned() } else { entry.support.clone() };
    let lines = found.iter().map(|entry| format!("{:<width$}  {}\n", entry.name, doc(entry)));
    Some(lines.collect())
}

fn unknown(entries: &[Entry], name: &str) -> String {
    let commands = super::GROUPS.iter().flat_map(|(_, names)| names.iter().copied());
    let names =
        entries.iter().flat_map(|entry| std::iter::once(entry.name.as_str()).chain(entry.aliases.iter().copied()));
    let guess =
        nearest(name, commands.chain(names)).map(|guess| format!("; did you mean '{guess}'?")).unwrap_or_default();
    format!("no command, keyword, sample fetch, converter or action is called '{name}'{guess}")
}

const SUPPORTED: &str = "supported";

fn support(status: Status) -> String {
    match status {
        Status::Done => SUPPORTED.into(),
        Status::NoEffect(why) => format!("accepted without effect: {why}"),
        Status::NotYet => "not supported yet: a configuration with it is rejected".into(),
        Status::Removed(remedy) => format!("rejected, as by HAProxy 2.6: {remedy}"),
    }
}

/// The sections of a proxy's keyword.
fn sections(bits: Sections) -> String {
    const NAMES: [(Sections, &[&str]); 4] = [
        (DEFAULTS, &["defaults"]),
        (NAMED, &["named defaults"]),
        (FRONT, &["frontend", "listen"]),
        (BACK, &["backend", "listen"]),
    ];
    let mut names: Vec<&str> = Vec::new();
    for name in NAMES.iter().filter(|(bit, _)| bits & bit != 0).flat_map(|(_, names)| names.iter()) {
        if !names.contains(name) {
            names.push(name);
        }
    }
    names.join(", ")
}

fn entries() -> impl Iterator<Item = Entry> {
    let sections_of_files = keywords::SECTIONS.iter().map(|row| Entry {
        name: row.name.into(),
        aliases: &[],
        place: "section".into(),
        arguments: String::new(),
        support: support(row.status),
        doc: row.doc,
    });
    let keyword = |place: fn(Sections) -> String| {
        move |row: &'static keywords::Keyword| Entry {
            name: row.name.into(),
            aliases: &[],
            place: format!("keyword of {}", place(row.sections)),
            arguments: if row.args.is_empty() { String::new() } else { format!(" {}", row.args) },
            support: support(row.status),
            doc: row.doc,
        }
    };
    let global = keywords::global_keywords().map(keyword(|_| "global".into()));
    let proxies = keywords::proxy_keywords().map(keyword(sections));
    let parameter = |line: &'static str| {
        move |(name, args, status, doc): (&'static str, usize, Status, &'static str)| Entry {
            name: name.into(),
            aliases: &[],
            place: format!("option of {line} lines"),
            arguments: " VALUE".repeat(args),
            support: support(status),
            doc,
        }
    };
    let binds = keywords::bind_parameters().map(parameter("bind"));
    let servers = keywords::server_parameters().map(parameter("server and default-server"));
    let rules = baton_rules::keywords().map(|word| {
        let sets: Vec<&str> = word.rule_sets().collect();
        let place = match word.gives {
            Some(gives) => format!("{}, {}", word.kind, gives.word()),
            None => format!("{} of {}", word.kind, sets.join(", ")),
        };
        let arguments = word.arguments();
        Entry {
            name: word.name.into(),
            aliases: word.aliases,
            place,
            arguments,
            support: SUPPORTED.into(),
            doc: word.doc,
        }
    });
    sections_of_files.chain(global).chain(proxies).chain(binds).chain(servers).chain(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(name: &str) -> String {
        let entries: Vec<Entry> = entries().collect();
        of_keyword(&entries, name).unwrap_or_else(|| unknown(&entries, name))
    }

    #[track_caller]
    fn check(name: &str, expect: &[&str]) {
        let text = shown(name);
        assert!(expect.iter().all(|part| text.contains(part)), "{name}: {text}");
    }

    #[test]
    fn a_keyword_is_shown_with_sections_arguments_and_support() {
        check("timeout client", &["timeout client TIME\n", "keyword of defaults, frontend, listen", "; supported"]);
        check("maxconn", &["keyword of global", "keyword of defaults", "option of server", "maxconn VALUE\n"]);
        check("peers", &["section; supported"]);
        check("httplog", &["option httplog"]);
        check("req.hdr", &["req.hdr([STRING],[INTEGER])\n", "sample fetch, string"]);
        check("req.fhdr", &["req.fhdr([STRING],[INTEGER]) (also fhdr)"]);
        check("hdr", &["Like 'req.hdr' in rules about requests"]);
        check("set-path", &["action of http-request; supported"]);
    }

    #[test]
    fn a_family_is_listed() {
        let text = shown("timeout");
        assert!(text.lines().count() > FULL_MAX && text.lines().all(|line| line.starts_with("timeout ")), "{text}");
    }

    #[test]
    fn an_unknown_name_gets_a_guess() {
        check("blance", &["is called 'blance'; did you mean 'balance'?"]);
        check("relaod", &["did you mean 'reload'?"]);
        check("zzzzzzzzz", &["is called 'zzzzzzzzz'"]);
        assert!(!shown("zzzzzzzzz").contains("did you mean"));
    }

    #[test]
    fn each_command_and_its_parts_have_help() {
        let of = |words: &[&str]| of_command(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert!(of(&[]).is_some_and(|text| text.contains("Operate:\n")));
        assert!(of(&["flip", "init"]).is_some_and(|text| text.contains("baton flip init [OPTIONS]")));
        assert!(of(&["flip", "nothing"]).is_none());
        for name in super::super::GROUPS.iter().flat_map(|(_, names)| names.iter()) {
            assert!(of(&[name]).is_some_and(|text| text.contains(&format!("Usage: baton {name}"))), "{name}");
        }
    }
}
