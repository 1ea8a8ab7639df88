//! Commands about clients' sessions: `show sess`, `shutdown session`, `shutdown sessions server`. HAProxy's words and answers.

use baton_config::values::{self, Unit};

use super::altering::{Altering, Staging};
use super::servers::find;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::operators::sessions::SessionFilter;
use crate::reload::Change;

/// `show sess [all|older <age>|<id>]`; any other word lists all, as in HAProxy.
pub(super) fn show(call: &Call) -> Result<SessionFilter, CommandResponse> {
    Ok(match call.arg(0) {
        "all" => SessionFilter::Detailed,
        "older" => match values::time(call.arg(1), Unit::Seconds) {
            Ok((age, "")) => SessionFilter::Older(age),
            _ => return Err(CommandResponse::error("Expects an age: show sess older <delay>.")),
        },
        id if id.starts_with("0x") => match id.parse() {
            Ok(id) => SessionFilter::One(id),
            Err(_) => return Err(CommandResponse::error("Session not found.")),
        },
        _ => SessionFilter::Every,
    })
}

/// `shutdown session <id>`.
pub(super) fn shut_down(_: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    let id =
        call.arg(0).strip_prefix("0x").filter(|digits| digits.starts_with(|digit: char| digit.is_ascii_hexdigit()));
    if id.is_none() {
        return Err(CommandResponse::error("Session pointer expected (use 'show sess')."));
    }
    match call.arg(0).parse() {
        Ok(id) => Ok(Change::SessionEnded(id).into()),
        Err(_) => Err(CommandResponse::error("No such session (use 'show sess').")),
    }
}

/// `shutdown sessions server <backend>/<server>`.
pub(super) fn shut_down_of_server(staging: &mut Staging<'_>, call: &Call) -> Result<Altering, CommandResponse> {
    Ok(Change::ServerSessionsEnded(find(staging.line, call.arg(0))?).into())
}
