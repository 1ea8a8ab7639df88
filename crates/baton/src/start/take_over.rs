//! `-sf PID…` and `-st PID…`: another process is asked for what it has before anything of ours is opened.

use std::time::{Duration, Instant};

use baton_control::handover::taker::{self, Taken};
use baton_control::reload::Ready;
use baton_control::{ChangeLine, Messages};
use baton_model::{Global, Model};
use baton_proxy::Refused;

use super::Stop;
use crate::arguments::Run;
use crate::texts::VERSION;

/// How long the addresses of a process that is ending may take to become free.
const FREE_WITHIN: Duration = Duration::from_secs(3);
/// How often to try.
const FREE_EVERY: Duration = Duration::from_millis(10);

/// Takes what the processes of the command line have; `None` when it names none. They go on until we serve.
pub(super) fn take(run: &Run, model: &Model, messages: &Messages) -> Result<Option<Taken>, Stop> {
    if run.take_over.pids.is_empty() {
        return Ok(None);
    }
    let taken = taker::take(&run.take_over, VERSION, model.global.uid)
        .map_err(|reason| format!("[haproxy.main()] {reason}"))?;
    taken.notices.iter().for_each(|notice| messages.notice(notice));
    Ok(Some(taken))
}

/// Opens what the configuration names, and tries again while others may still hold an address: a process that is ending,
/// or one that knows signals only. Such a one lets us listen beside it, or is told to stop listening until we serve or give
/// up.
pub(super) fn prepare(
    line: &mut ChangeLine,
    mut taken: Option<&mut Taken>,
    mut attempt: impl FnMut(&mut ChangeLine) -> Result<Ready, Vec<Refused>>,
) -> Result<Ready, Vec<Refused>> {
    let end = Instant::now() + FREE_WITHIN;
    line.open_beside_others(taken.as_ref().is_some_and(|taken| !taken.strangers.is_empty()));
    let outcome = loop {
        let outcome = attempt(line);
        let Err(reasons) = &outcome else { break outcome };
        let Some(taken) = &mut taken else { break outcome };
        let in_use = line.listeners().in_use();
        let is_theirs = || in_use.iter().all(|address| taken.strangers.may_hold(address));
        if !taken.strangers.is_empty() && (taken.strangers.is_paused() || in_use.len() == reasons.len() && is_theirs())
        {
            taken.strangers.pause();
        } else if !taken.is_somebody_ending {
            break outcome;
        }
        if Instant::now() >= end {
            break outcome;
        }
        std::thread::sleep(FREE_EVERY);
    };
    line.open_beside_others(false);
    outcome
}

/// Before the process becomes another user: those who know signals only are to be told to end once we serve.
pub(super) fn keep_right(taken: Option<&mut Taken>, global: &Global, messages: &Messages) {
    let becomes_user = nix::unistd::geteuid().is_root() && global.uid.is_some_and(|uid| uid != 0);
    let Some(taken) = taken.filter(|taken| becomes_user && !taken.strangers.is_empty()) else { return };
    if let Err(error) = taken.strangers.keep_right() {
        messages.warning(&format!(
            "the old process will be signalled by another user, which may not be permitted: {error}"
        ));
    }
}
