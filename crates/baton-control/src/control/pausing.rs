//! SIGTTOU and SIGTTIN: another program needs our addresses for itself, and then it does not after all.

use std::time::Instant;

use baton_proxy::Command;

use super::Control;
use crate::listeners::PAUSE_LOOK_EVERY;

/// Whether to listen again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) enum Resuming {
    /// Nobody has asked for it since the last pause.
    #[default]
    No,
    /// It was asked for, and is tried until it succeeds: who asks may still listen for a moment.
    Asked,
}

impl Control {
    /// Gives the addresses up for now. HAProxy asks again every 10 ms until it has them.
    pub(super) fn pause(&mut self) {
        self.resuming = Resuming::No;
        if self.drain.is_none() && self.line.listeners.pause(Instant::now()) {
            self.messages.warning("SIGTTOU received: not listening at TCP addresses until SIGTTIN.");
        }
    }

    /// Listens again, as if nothing had been.
    pub(super) async fn resume(&mut self) {
        if self.drain.is_none() && self.line.listeners.is_paused() {
            self.resuming = Resuming::Asked;
            if let Err(refused) = self.try_to_resume().await {
                let list = refused.join(", ");
                self.messages.warning(&format!("SIGTTIN received, but somebody else listens: {list}. Trying on."));
            }
        }
    }

    /// When a pause has to be looked at.
    pub(super) fn look_at_pause(&self) -> Option<Instant> {
        let is_due = self.line.listeners.is_falling_silent() || self.resuming == Resuming::Asked;
        is_due.then(|| Instant::now() + PAUSE_LOOK_EVERY)
    }

    /// Takes a pause, or its end, one step further.
    pub(super) async fn step_pause(&mut self) {
        for id in self.line.listeners.fall_silent(Instant::now()) {
            self.workers.command(Command::Close(id)).await;
        }
        if self.resuming == Resuming::Asked {
            // Said when it was tried first.
            let _ = self.try_to_resume().await;
        }
    }

    async fn try_to_resume(&mut self) -> Result<(), Vec<String>> {
        let outcome = self.line.listeners.unpause();
        if let Some(generation) = self.line.generation() {
            self.workers.command(Command::Apply(generation)).await;
        }
        if outcome.is_ok() {
            self.resuming = Resuming::No;
            self.messages.warning("SIGTTIN received: listening again.");
        }
        outcome
    }
}
