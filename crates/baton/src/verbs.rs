//! `baton VERB`: what HAProxy has no command line for. Each verb is one module and one row of [`Verb`].

mod certs;
mod convert;
mod flip;
mod generate;
mod help;
mod hold;
mod keep;
mod load;
mod origin;
mod plan;
mod prove;
mod real_server;
mod reload;
mod status;
mod top;
mod upgrade;
mod whom;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use baton_kernel::output;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

/// A load balancer that reads haproxy.cfg and drops no connection when it changes.
#[derive(Debug, Parser)]
#[command(name = "baton", version, disable_help_subcommand = true, override_usage = USAGE, help_template = TEMPLATE)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

const USAGE: &str = "baton -f FILE [HAPROXY OPTION]...\n       baton COMMAND [ARGUMENT]...";

/// The commands stand in [`GROUPS`], which clap does not know.
const TEMPLATE: &str = "{about-with-newline}\n{usage-heading} {usage}{after-help}";

/// The commands by purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Serve", &["demo", "help"]),
    ("Operate", &["plan", "reload", "status", "top", "certs", "upgrade"]),
    ("Prove (load tests and experiments with any server)", &["load", "origin", "prove"]),
    ("Other servers", &["hold", "flip", "keep"]),
    ("Direct routing", &["convert", "real-server"]),
];

/// What serving takes no command for, at the head of the first group.
const SERVING: [(&str, &str); 2] = [
    ("-f FILE", "Serve with this configuration (-D: as a daemon, -W: under a master)"),
    ("-c -f FILE", "Validate this configuration"),
];

#[derive(Debug, Subcommand)]
enum Verb {
    Demo(crate::demo::Demo),
    Help(help::HelpCommand),
    Certs(certs::CertsCommand),
    Convert(convert::ConvertCommand),
    Flip(flip::FlipCommand),
    #[command(hide = true)]
    Generate(generate::GenerateCommand),
    Hold(Box<hold::HoldCommand>),
    Keep(Box<keep::KeepCommand>),
    Load(Box<load::LoadCommand>),
    Prove(prove::Prove),
    RealServer(Box<real_server::RealServerCommand>),
    Reload(reload::Reload),
    Plan(plan::PlanCommand),
    Status(status::StatusCommand),
    Top(top::TopCommand),
    Upgrade(upgrade::Upgrade),
    Origin(origin::OriginCommand),
}

/// The command line, with its help in groups.
fn command_line() -> clap::Command {
    let after = format!(
        "{}\n`baton -h` lists HAProxy's options. `baton help COMMAND` describes a command, `baton help KEYWORD` a keyword of \
         haproxy.cfg.",
        overview()
    );
    CommandLine::command().after_help(after)
}

/// The commands in their groups, one line each.
pub fn overview() -> String {
    /// Wide enough for the longest name.
    const WIDTH: usize = 12;
    let command = CommandLine::command();
    let about = |name: &str| {
        let about = command.find_subcommand(name).and_then(clap::Command::get_about);
        about.map(|text| text.to_string().trim_end_matches('.').to_owned()).unwrap_or_default()
    };
    let mut out = String::new();
    for (title, names) in GROUPS {
        out.push_str(&format!("{title}:\n"));
        if names.contains(&"demo") {
            SERVING.iter().for_each(|(name, about)| out.push_str(&format!("  {name:<WIDTH$} {about}\n")));
        }
        names.iter().for_each(|name| out.push_str(&format!("  {name:<WIDTH$} {}\n", about(name))));
        out.push('\n');
    }
    out.truncate(out.trim_end().len() + 1);
    out
}

/// Prints a line to standard output. A reader that is gone is no failure.
fn print_line(line: impl Display) {
    output::print(&format!("{line}\n"));
}

/// Prints text with all its ends of lines.
fn print_text(text: impl Display) {
    output::print(&text.to_string());
}

/// Prints a line to standard error. A reader that is gone is no failure: what is under way matters more.
fn say_line(line: impl Display) {
    output::print_error(&format!("{line}\n"));
}

/// Prints text to standard error with all its ends of lines.
fn say_text(text: impl Display) {
    output::print_error(&text.to_string());
}

/// Whether the first argument is meant for us and not for HAProxy's command line.
pub fn is_verb(first: &OsString) -> bool {
    let first = first.to_string_lossy();
    !first.starts_with('-') || first == "--help"
}

/// Runs the verb.
pub fn run(called: &OsString, arguments: &[OsString]) -> ExitCode {
    let arguments = match load::translate(arguments) {
        Ok(arguments) => arguments,
        Err(text) => {
            say_line(format_args!("baton load: {text}"));
            return ExitCode::from(load::CANNOT_BEGIN);
        }
    };
    let all = std::iter::once(called).chain(&arguments);
    let parsed = command_line().try_get_matches_from(all);
    let command = match parsed.and_then(|matches| CommandLine::from_arg_matches(&matches)) {
        Ok(command) => command,
        Err(error) => {
            // Help goes to standard output and is no failure.
            let _ = error.print();
            return match error.use_stderr() {
                true if arguments.first().is_some_and(|verb| verb == "load") => ExitCode::from(load::CANNOT_BEGIN),
                true if arguments.first().is_some_and(|verb| verb == "hold") => ExitCode::from(hold::CANNOT_BEGIN),
                true if arguments.first().is_some_and(|verb| verb == "status") => ExitCode::from(status::UNKNOWN),
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let outcome = match command.verb {
        Verb::Certs(command) => certs::run(&command),
        Verb::Convert(command) => convert::run(&command),
        Verb::Demo(command) => crate::demo::run(&command),
        Verb::Help(command) => help::run(&command),
        Verb::Flip(command) => flip::run(command),
        Verb::Generate(command) => generate::run(&command),
        Verb::Hold(command) => hold::run(&command),
        Verb::Keep(command) => keep::run(&command),
        Verb::Load(command) => Ok(load::run(&command)),
        Verb::Prove(command) => prove::run(&command),
        Verb::RealServer(command) => real_server::run(&command),
        Verb::Reload(command) => reload::run(&command),
        Verb::Plan(command) => plan::run(&command),
        Verb::Status(command) => Ok(status::run(&command)),
        Verb::Top(command) => top::run(&command),
        Verb::Upgrade(command) => upgrade::run(&command),
        Verb::Origin(command) => origin::run(&command),
    };
    outcome.unwrap_or_else(|text| {
        say_line(format_args!("baton: {text}"));
        ExitCode::FAILURE
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_is_in_one_group_and_fits_a_terminal() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        let name = |command: &clap::Command| command.get_name().to_owned();
        let mut known: Vec<String> =
            CommandLine::command().get_subcommands().filter(|command| !command.is_hide_set()).map(name).collect();
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
        let overview = overview();
        for line in overview.lines().filter(|line| line.starts_with(' ')) {
            let is_one_sentence = line.len() > 20 && line.len() <= 110 && !line.contains(". ");
            assert!(is_one_sentence, "{line}");
        }
    }

    #[test]
    fn the_definition_of_the_command_line_is_valid() {
        command_line().debug_assert();
    }
}
