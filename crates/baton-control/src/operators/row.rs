//! A command of a runtime API, as a row of a table: what is understood, the help, and the answer to what is not understood come
//! from these rows. There are two such tables, of a process and of a master.

use std::fmt::Write as _;

use baton_model::AccessLevel;
use baton_rules::nearest;

/// A command; `A` is what is done when it is given.
#[derive(Debug)]
pub struct Row<A: 'static> {
    /// Its name, word by word.
    pub words: &'static [&'static str],
    /// Its arguments, as the help shows them.
    pub args: &'static str,
    /// What it does, in a few words; empty when it is not in the help.
    pub help: &'static str,
    /// Who may use it.
    pub level: AccessLevel,
    /// What is done.
    pub act: A,
}

/// A command of the help.
pub const fn row<A: Copy>(
    words: &'static [&'static str],
    args: &'static str,
    help: &'static str,
    level: AccessLevel,
    act: A,
) -> Row<A> {
    Row { words, args, help, level, act }
}

/// One that is not in the help.
pub const fn hidden<A: Copy>(words: &'static [&'static str], level: AccessLevel, act: A) -> Row<A> {
    Row { words, args: "", help: "", level, act }
}

/// The command that words begin with, and its place in the table: the one with the longest name.
pub fn find<A>(rows: &'static [Row<A>], words: &[String]) -> Option<(usize, &'static Row<A>)> {
    let is_named = |(_, row): &(usize, &Row<A>)| {
        row.words.len() <= words.len() && row.words.iter().zip(words).all(|(own, word)| own == word)
    };
    rows.iter().enumerate().filter(is_named).max_by_key(|(_, row)| row.words.len())
}

/// What is said to words that are no command.
pub fn unknown<A>(rows: &[Row<A>], words: &[String]) -> String {
    match alike(rows, words) {
        alike if alike.is_empty() => {
            list("Unknown command. Please enter one of the following commands only:", &shown(rows))
        }
        alike => list("Unknown command, but maybe one of the following ones is a better match:", &alike),
    }
}

/// `help`, with the beginning of a command or without.
pub fn help<A>(rows: &[Row<A>], words: &[String]) -> String {
    let alike = alike(rows, words);
    list("The following commands are valid at this level:", &if alike.is_empty() { shown(rows) } else { alike })
}

fn shown<A>(rows: &[Row<A>]) -> Vec<&Row<A>> {
    rows.iter().filter(|row| !row.help.is_empty()).collect()
}

fn alike<'r, A>(rows: &'r [Row<A>], words: &[String]) -> Vec<&'r Row<A>> {
    let rows = shown(rows);
    let names: Vec<_> = rows.iter().map(|row| row.words).collect();
    names_alike(words, &names).into_iter().map(|at| rows[at]).collect()
}

/// Words of a command that are compared with those of all commands; none has more.
const WORDS_COMPARED: usize = 4;

/// The places of names that are most like these words, and of those that are always of use. Empty when there is no likeness.
fn names_alike(words: &[String], names: &[&[&str]]) -> Vec<usize> {
    let known = || names.iter().flat_map(|name| name.iter().copied());
    // A misspelt word stands for the nearest one of a command.
    let meant = |word: &String| match known().any(|own| is_alike(word, own)) {
        true => word.clone(),
        false => nearest(word, known()).unwrap_or(word).to_owned(),
    };
    let words: Vec<String> = words.iter().take(WORDS_COMPARED).map(meant).collect();
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

fn list<A>(title: &str, rows: &[&Row<A>]) -> String {
    let mut out = format!("{title}\n");
    for row in rows {
        let usage = format!("{} {}", row.words.join(" "), row.args);
        // Writing to a string cannot fail.
        let _ = writeln!(out, "  {:<40}: {}", usage.trim_end(), row.help);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_meant_is_found_by_beginnings_and_by_misspelt_words() {
        let names: [&[&str]; 7] = [
            &["set", "map"],
            &["set", "server"],
            &["show", "sess"],
            &["show", "stat"],
            &["clear", "counters"],
            &["shutdown", "session"],
            &["quit"],
        ];
        let check = |text: &str, expect: &[&str]| {
            let words: Vec<String> = text.split(' ').map(String::from).collect();
            let found: Vec<String> = names_alike(&words, &names).into_iter().map(|at| names[at].join(" ")).collect();
            assert_eq!(found, expect, "{text}");
        };
        check("set servr", &["set server", "quit"]);
        check("shutdwn session", &["shutdown session", "quit"]);
        check("clear conters all", &["clear counters", "quit"]);
        check("show s", &["show sess", "show stat", "quit"]);
        check("SET MAP x y", &["set map", "quit"]);
        check("zzz", &[]);
    }
}
