//! Commands that are about their own session only.

use baton_config::values::{self, Unit};
use baton_model::{AccessLevel, SeverityOutput};

use super::answer::CommandResponse;
use super::row;
use super::session::{Call, Session};

/// `help [<command>]`.
pub(crate) fn help(session: &mut Session, call: &Call) -> CommandResponse {
    CommandResponse::info(row::help(session.commands.0, call.args()))
}

/// `prompt`: a switch.
pub(crate) fn prompt(session: &mut Session, _: &Call) -> CommandResponse {
    session.is_interactive = !session.is_interactive;
    CommandResponse::Done
}

/// `quit`.
pub(crate) fn quit(session: &mut Session, _: &Call) -> CommandResponse {
    session.is_over = true;
    CommandResponse::Done
}

/// `operator`.
pub(crate) fn operator(session: &mut Session, _: &Call) -> CommandResponse {
    lower(session, AccessLevel::Operator)
}

/// `user`.
pub(crate) fn user(session: &mut Session, _: &Call) -> CommandResponse {
    lower(session, AccessLevel::User)
}

fn lower(session: &mut Session, level: AccessLevel) -> CommandResponse {
    if session.level < level {
        return CommandResponse::error("Permission denied");
    }
    session.level = level;
    (session.is_expert, session.is_experimental) = (false, false);
    CommandResponse::Done
}

/// `show cli level`.
pub(crate) fn show_level(session: &mut Session, _: &Call) -> CommandResponse {
    CommandResponse::info(session.level.word())
}

/// `set severity-output`.
pub(crate) fn severity(session: &mut Session, call: &Call) -> CommandResponse {
    match SeverityOutput::of(call.arg(0)) {
        Some(severity) => {
            session.severity = severity;
            CommandResponse::Done
        }
        None => CommandResponse::error("one of 'none', 'number', 'string' is a required argument"),
    }
}

/// `set timeout cli <delay>`, seconds unless it has a unit.
pub(crate) fn timeout(session: &mut Session, call: &Call) -> CommandResponse {
    if call.arg(0) != "cli" {
        return CommandResponse::error("'set timeout' only supports 'cli'.");
    }
    if call.arg(1).is_empty() {
        return CommandResponse::error("Expects an integer value.");
    }
    match values::time(call.arg(1), Unit::Seconds) {
        Ok((time, "")) if !time.is_zero() => {
            session.timeout = time;
            CommandResponse::Done
        }
        _ => CommandResponse::error("Invalid timeout value."),
    }
}

/// `expert-mode [on|off]`.
pub(crate) fn expert(session: &mut Session, call: &Call) -> CommandResponse {
    switch("expert-mode", &mut session.is_expert, call)
}

/// `experimental-mode [on|off]`.
pub(crate) fn experimental(session: &mut Session, call: &Call) -> CommandResponse {
    switch("experimental-mode", &mut session.is_experimental, call)
}

fn switch(name: &str, value: &mut bool, call: &Call) -> CommandResponse {
    match call.arg(0) {
        "" => return CommandResponse::info(format!("{name} is {}", if *value { "ON" } else { "OFF" })),
        word => *value = word == "on",
    }
    CommandResponse::Done
}
