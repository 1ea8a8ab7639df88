//! `-sf PID…` and `-st PID…`: another process is asked for what it has before anything of ours is opened.

use std::time::{Duration, Instant};

use baton_control::Messages;
use baton_control::handover::taker::{self, Taken};
use baton_model::Model;

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
    let may_give: Vec<u32> = model.global.uid.into_iter().collect();
    let taken =
        taker::take(&run.take_over, VERSION, &may_give).map_err(|reason| format!("[haproxy.main()] {reason}"))?;
    taken.notices.iter().for_each(|notice| messages.notice(notice));
    Ok(Some(taken))
}

/// Tries again for as long as a process that is ending may still hold an address.
pub(super) fn patiently<T, E>(taken: Option<&Taken>, mut attempt: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let end = Instant::now() + FREE_WITHIN;
    loop {
        let outcome = attempt();
        let may_wait = taken.is_some_and(|taken| taken.is_somebody_ending) && Instant::now() < end;
        if outcome.is_ok() || !may_wait {
            return outcome;
        }
        std::thread::sleep(FREE_EVERY);
    }
}
