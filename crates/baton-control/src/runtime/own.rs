//! Commands that are about their own session only.

use baton_config::values::{self, Unit};
use baton_model::{AccessLevel, SeverityOutput};

use super::answer::Answer;
use super::session::{Call, Session};
use super::{row, table};

/// `help [<command>]`.
pub(super) fn help(_: &mut Session, call: &Call) -> Answer {
    Answer::info(row::help(table::ROWS, call.args()))
}

/// `prompt`: a switch.
pub(super) fn prompt(session: &mut Session, _: &Call) -> Answer {
    session.is_interactive = !session.is_interactive;
    Answer::Done
}

/// `quit`.
pub(super) fn quit(session: &mut Session, _: &Call) -> Answer {
    session.is_over = true;
    Answer::Done
}

/// `operator`.
pub(super) fn operator(session: &mut Session, _: &Call) -> Answer {
    lower(session, AccessLevel::Operator)
}

/// `user`.
pub(super) fn user(session: &mut Session, _: &Call) -> Answer {
    lower(session, AccessLevel::User)
}

fn lower(session: &mut Session, level: AccessLevel) -> Answer {
    if session.level < level {
        return Answer::error("Permission denied");
    }
    session.level = level;
    (session.is_expert, session.is_experimental) = (false, false);
    Answer::Done
}

/// `show cli level`.
pub(super) fn show_level(session: &mut Session, _: &Call) -> Answer {
    Answer::info(session.level.word())
}

/// `set severity-output`.
pub(super) fn severity(session: &mut Session, call: &Call) -> Answer {
    match SeverityOutput::of(call.arg(0)) {
        Some(severity) => {
            session.severity = severity;
            Answer::Done
        }
        None => Answer::error("one of 'none', 'number', 'string' is a required argument"),
    }
}

/// `set timeout cli <delay>`, seconds unless it has a unit.
pub(super) fn timeout(session: &mut Session, call: &Call) -> Answer {
    if call.arg(0) != "cli" {
        return Answer::error("'set timeout' only supports 'cli'.");
    }
    if call.arg(1).is_empty() {
        return Answer::error("Expects an integer value.");
    }
    match values::time(call.arg(1), Unit::Seconds) {
        Ok((time, "")) if !time.is_zero() => {
            session.timeout = time;
            Answer::Done
        }
        _ => Answer::error("Invalid timeout value."),
    }
}

/// `expert-mode [on|off]`.
pub(super) fn expert(session: &mut Session, call: &Call) -> Answer {
    switch("expert-mode", &mut session.is_expert, call)
}

/// `experimental-mode [on|off]`.
pub(super) fn experimental(session: &mut Session, call: &Call) -> Answer {
    switch("experimental-mode", &mut session.is_experimental, call)
}

fn switch(name: &str, value: &mut bool, call: &Call) -> Answer {
    match call.arg(0) {
        "" => return Answer::info(format!("{name} is {}", if *value { "ON" } else { "OFF" })),
        word => *value = word == "on",
    }
    Answer::Done
}
