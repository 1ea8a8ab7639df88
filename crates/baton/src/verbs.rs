//! `baton VERB`: what HAProxy has no command line for. Each verb is one module and one row of [`Verb`].

mod certs;
mod convert;
mod flip;
mod generate;
mod hold;
mod keep;
mod load;
mod origin;
mod plan;
mod prove;
mod real_server;
mod reload;
mod status;
mod upgrade;
mod whom;

use std::ffi::OsString;
use std::fmt::Display;
use std::process::ExitCode;

use baton_kernel::output;
use clap::{Parser, Subcommand};

/// A load balancer that never drops a request.
///
/// Without a verb it takes HAProxy's command line: `baton -f haproxy.cfg` serves, `baton -c -f haproxy.cfg` checks,
/// `baton -h` lists the options.
#[derive(Debug, Parser)]
#[command(name = "baton", version, verbatim_doc_comment)]
struct Command {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    Demo(crate::demo::Demo),
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
    Upgrade(upgrade::Upgrade),
    Origin(origin::OriginCommand),
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
    let all = std::iter::once(called).chain(arguments);
    let command = match Command::try_parse_from(all) {
        Ok(command) => command,
        Err(error) => {
            // Help goes to standard output and is no failure.
            let _ = error.print();
            return match error.use_stderr() {
                true if arguments.first().is_some_and(|verb| verb == "load") => ExitCode::from(load::CANNOT_BEGIN),
                true if arguments.first().is_some_and(|verb| verb == "hold") => ExitCode::from(hold::CANNOT_BEGIN),
                true => ExitCode::FAILURE,
                false => ExitCode::SUCCESS,
            };
        }
    };
    let outcome = match command.verb {
        Verb::Certs(command) => certs::run(&command),
        Verb::Convert(command) => convert::run(&command),
        Verb::Demo(command) => crate::demo::run(&command),
        Verb::Flip(command) => flip::run(command),
        Verb::Generate(command) => generate::run(&command),
        Verb::Hold(command) => hold::run(&command),
        Verb::Keep(command) => keep::run(&command),
        Verb::Load(command) => Ok(load::run(&command)),
        Verb::Prove(command) => prove::run(&command),
        Verb::RealServer(command) => real_server::run(&command),
        Verb::Reload(command) => reload::run(&command),
        Verb::Plan(command) => plan::run(&command),
        Verb::Status(command) => status::run(&command),
        Verb::Upgrade(command) => upgrade::run(&command),
        Verb::Origin(command) => origin::run(&command),
    };
    outcome.unwrap_or_else(|text| {
        say_line(format_args!("baton: {text}"));
        ExitCode::FAILURE
    })
}
