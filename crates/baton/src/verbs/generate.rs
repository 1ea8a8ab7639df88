//! `baton generate`: completions for shells and manual pages, made from the definitions that parse the command line, so that they
//! show what this very program understands.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, ArgAction, Args, Command, CommandFactory, Subcommand, ValueHint};
use clap_complete::Shell;
use clap_mangen::Man;

/// The page of the whole program, without its verbs.
const PROGRAM_PAGE: &str = include_str!("../../../../packaging/baton.8");
/// Where in it they go.
const VERBS_PLACE: &str = ".\\\" The verbs: baton generate\n";
/// The section of all pages.
const SECTION: &str = "8";
/// Marks HAProxy's options of several letters, which have one dash; clap knows only long options with two.
const ONE_DASH: &str = "one-dash-";

/// What a line of fish's completions is about. Those that clap writes read HAProxy's options as if letters behind one dash could be
/// written together, and offer commands behind options.
const FISH_FUNCTIONS: &str = r#"# The first word decides: a command, or an option of HAProxy's command line, which has no commands.
function __fish_baton_needs_command
    test (count (commandline -opc)) -eq 1
end

function __fish_baton_needs_option
    set -l words (commandline -opc)
    not set -q words[2]
    or string match --quiet -- '-*' $words[2]
end

function __fish_baton_using_subcommand
    set -l words (commandline -opc)
    set -q words[2]
    and contains -- $words[2] $argv
end

# HAProxy's command line has no arguments besides those of options, and the files behind two dashes.
complete -c baton -n "__fish_baton_needs_option; and not contains -- -- (commandline -opc)" -f

"#;

/// Write shell completions or man pages
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  source <(baton generate completions bash)\n  baton generate manual /tmp/man && man /tmp/man/baton.8"
)]
pub struct GenerateCommand {
    #[command(subcommand)]
    what: Generated,
}

#[derive(Debug, Subcommand)]
enum Generated {
    /// Print the completions for a shell
    Completions {
        /// Shell
        shell: Shell,
    },
    /// Write the man pages of the program and of its commands
    Manual {
        /// Output directory; created if missing
        #[arg(value_hint = ValueHint::DirPath)]
        directory: PathBuf,
    },
}

/// Writes it.
pub fn run(command: &GenerateCommand) -> Result<ExitCode, String> {
    match &command.what {
        Generated::Completions { shell } => super::print_text(completions(*shell)),
        Generated::Manual { directory } => {
            write_manual(directory).map_err(|error| format!("cannot write into {}: {error}", directory.display()))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Name, argument and where that is completed from, help. All are HAProxy's but `--leave-out`.
type OptionRow = (&'static str, Option<(&'static str, ValueHint)>, &'static str);

/// HAProxy's options, as `arguments` parses them, each by its letter, or by [`ONE_DASH`] and its letters.
const OPTIONS: [OptionRow; 27] = [
    ("f", Some(("FILE", ValueHint::AnyPath)), "configuration file or directory"),
    ("c", None, "check the configuration and exit"),
    ("leave-out", Some(("FEATURE", ValueHint::Other)), "with -c: leave out lines that use a feature that Baton lacks"),
    ("one-dash-cc", Some(("CONDITION", ValueHint::Other)), "evaluate a condition and exit"),
    ("D", None, "become a daemon"),
    ("W", None, "master and worker"),
    ("one-dash-Ws", None, "master and worker, and notify systemd"),
    ("S", Some(("ADDRESS", ValueHint::Other)), "the socket of the master"),
    ("p", Some(("FILE", ValueHint::FilePath)), "write the PID to this file"),
    ("x", Some(("SOCKET", ValueHint::FilePath)), "take listening sockets over this stats socket"),
    ("one-dash-sf", Some(("PID", ValueHint::Other)), "take over; the old processes stop gracefully"),
    ("one-dash-st", Some(("PID", ValueHint::Other)), "take over; the old processes stop immediately"),
    ("C", Some(("DIR", ValueHint::DirPath)), "change to this directory first"),
    ("n", Some(("N", ValueHint::Other)), "maxconn of the process"),
    ("N", Some(("N", ValueHint::Other)), "default maxconn of frontends"),
    ("L", Some(("NAME", ValueHint::Other)), "local peer name"),
    ("d", None, "stay in the foreground, verbose"),
    ("one-dash-db", None, "stay in the foreground"),
    ("one-dash-dD", None, "diagnostic remarks"),
    ("one-dash-dr", None, "ignore unresolved server names"),
    ("one-dash-dS", None, "no splicing"),
    ("one-dash-dV", None, "do not verify server certificates"),
    ("one-dash-dW", None, "fail on warnings"),
    ("q", None, "quiet"),
    ("V", None, "verbose"),
    ("v", None, "show the version"),
    ("one-dash-vv", None, "show the version and build options"),
];

/// The whole command line: HAProxy's options and the verbs.
fn command_line() -> Command {
    let mut command = super::CommandLine::command().disable_version_flag(true);
    for (name, argument, help) in OPTIONS {
        let mut arg = Arg::new(name).help(help).action(ArgAction::Append);
        let mut characters = name.chars();
        arg = match (characters.next(), characters.next()) {
            (Some(letter), None) => arg.short(letter),
            _ => arg.long(name),
        };
        arg = match argument {
            Some((name, hint)) => arg.value_name(name).value_hint(hint),
            None => arg.action(ArgAction::Count),
        };
        command = command.arg(arg);
    }
    command
}

fn completions(shell: Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command_line(), "baton", &mut text);
    let text = String::from_utf8(text).expect("the definitions are text");
    with_one_dash(&text, shell)
}

/// HAProxy's options as they are written.
fn with_one_dash(text: &str, shell: Shell) -> String {
    match shell {
        // `-o` is an option with one dash; those of `-s` could be written as one word.
        Shell::Fish => {
            let begin = text.find("\ncomplete ").expect("a line for each completion") + 1;
            let completions = text[begin..]
                .replace(&format!("-l {ONE_DASH}"), "-o ")
                .replace("__fish_baton_needs_command\" -s ", "__fish_baton_needs_option\" -o ")
                .replace("__fish_baton_needs_command\" -o ", "__fish_baton_needs_option\" -o ");
            FISH_FUNCTIONS.to_owned() + &completions
        }
        // `--sf=[` takes `--sf=N`; `-sf[` takes `-sf N`.
        // And options are not written as one word, as `-s` would have it.
        Shell::Zsh => {
            text.replace("_arguments_options=(-s ", "_arguments_options=(").lines().fold(String::new(), |text, line| {
                let line = match line.contains(&format!("--{ONE_DASH}")) {
                    true => line.replacen("=[", "[", 1),
                    false => line.to_owned(),
                };
                text + &line.replace(&format!("--{ONE_DASH}"), "-") + "\n"
            })
        }
        _ => text.replace(&format!("--{ONE_DASH}"), "-"),
    }
}

/// Writes a page for the program, each verb, and each verb of a verb.
fn write_manual(directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut command = super::CommandLine::command().disable_help_subcommand(true);
    command.build();
    let mut verbs = Vec::new();
    man(&command).render_subcommands_section(&mut verbs)?;
    let verbs = String::from_utf8_lossy(&verbs);
    fs::write(directory.join(format!("baton.{SECTION}")), PROGRAM_PAGE.replace(VERBS_PLACE, &verbs))?;
    write_pages(&command, directory)
}

fn write_pages(command: &Command, directory: &Path) -> io::Result<()> {
    for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
        let mut page = Vec::new();
        man(verb).render(&mut page)?;
        let mut page = String::from_utf8_lossy(&page).into_owned();
        for heading in ["EXTRA\nExamples:\n", "EXTRA\nExample:\n", "EXTRA\n"] {
            page = page.replace(&format!("\n.SH {heading}"), "\n.SH EXAMPLES\n");
        }
        fs::write(directory.join(man(verb).get_filename()), page)?;
        write_pages(verb, directory)?;
    }
    Ok(())
}

fn man(command: &Command) -> Man {
    Man::new(command.clone().subcommand_help_heading("COMMANDS"))
        .section(SECTION)
        .source("Baton")
        .manual("System administration")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::arguments::{self, Invocation};

    /// What stands behind the first dash.
    fn letters(name: &str) -> String {
        match name.strip_prefix(ONE_DASH) {
            Some(letters) => letters.to_owned(),
            None if name.len() == 1 => name.to_owned(),
            None => format!("-{name}"),
        }
    }

    /// Each option is one that HAProxy's command line has, with an argument if it takes one.
    #[test]
    fn the_options_are_those_that_are_parsed() {
        for (name, argument, _) in OPTIONS {
            let letters = letters(name);
            let mut words: Vec<OsString> = vec!["-c".into(), format!("-{letters}").into()];
            // A number is good for everything but a name from a list.
            let value = if name == "leave-out" { "others" } else { "7" };
            words.extend(argument.map(|_| value.into()));
            words.extend(["-f".into(), "x.cfg".into()]);
            match arguments::parse(&words) {
                Ok(Invocation::Run(run)) => {
                    assert!(run.without_effect.is_empty(), "-{letters}");
                    assert!(run.options.files.contains(&"x.cfg".into()), "-{letters} has no argument");
                }
                Ok(Invocation::Version { .. } | Invocation::Condition(_)) => {}
                Err(wrong) => panic!("-{letters}: {wrong:?}"),
            }
        }
    }

    /// And all of them are there that the usage shows, but for those without effect.
    #[test]
    fn no_option_is_missing() {
        let usage = crate::texts::usage("baton");
        let documented = usage.lines().filter_map(|line| line.trim_start().strip_prefix('-'));
        let mut count = 0;
        for line in documented.filter(|line| !line.contains("without effect")) {
            let letters = line.split([' ', ',', '/']).next().unwrap_or_default();
            assert!(OPTIONS.iter().any(|(name, ..)| self::letters(name) == letters), "-{letters}");
            count += 1;
        }
        assert!(count > 15, "{usage}");
    }

    #[test]
    fn the_page_of_the_program_has_a_place_for_the_verbs() {
        assert_eq!(PROGRAM_PAGE.matches(VERBS_PLACE).count(), 1);
    }
}
