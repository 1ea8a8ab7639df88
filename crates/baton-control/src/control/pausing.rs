//! SIGTTOU and SIGTTIN: another program needs our addresses for itself, and then it does not after all.
//!
//! ```text
//!              SIGTTIN                 refused
//!   Settled ────────────▶ Resuming ─────────────▶ Resuming, told ──┐ tried until it succeeds: who asks may still
//!      ▲  ◀── listening ──┘  ◀── listening ─────────┘    ▲─────────┘ listen for a moment
//!      └── SIGTTOU, or a soft stop
//! ```

use std::time::Instant;

use baton_proxy::Command;

use super::Control;
use crate::listeners::PAUSE_LOOK_EVERY;

/// Whether to listen again.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Pausing {
    /// Nobody has asked for it since the last pause.
    #[default]
    Settled,
    /// It was asked for.
    Resuming {
        /// Whether it was said that somebody else listens.
        is_told: bool,
    },
}

/// What happens to it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum PauseEvent {
    /// SIGTTOU, or a soft stop: there is nothing to resume.
    Stop,
    /// SIGTTIN, while there is a pause.
    Resume,
    /// It was tried to listen again: who else listens.
    Tried(Result<(), Vec<String>>),
}

impl Pausing {
    /// What is to be said of it.
    fn step(self, event: PauseEvent) -> (Pausing, Option<String>) {
        match (self, event) {
            (_, PauseEvent::Stop) => (Pausing::Settled, None),
            (_, PauseEvent::Resume) => (Pausing::Resuming { is_told: false }, None),
            (_, PauseEvent::Tried(Ok(()))) => {
                (Pausing::Settled, Some("SIGTTIN received: TCP listeners resumed.".into()))
            }
            (Pausing::Resuming { is_told: false }, PauseEvent::Tried(Err(others))) => {
                let list = others.join(", ");
                let text = format!("SIGTTIN received, but another process listens: {list}. Retrying.");
                (Pausing::Resuming { is_told: true }, Some(text))
            }
            (pausing @ (Pausing::Resuming { is_told: true } | Pausing::Settled), PauseEvent::Tried(Err(_))) => {
                (pausing, None)
            }
        }
    }

    /// Whether it is to be tried to listen again.
    fn is_resuming(self) -> bool {
        match self {
            Pausing::Resuming { .. } => true,
            Pausing::Settled => false,
        }
    }
}

impl Control {
    /// Gives the addresses up for now. HAProxy asks again every 10 ms until it has them.
    pub(crate) fn pause(&mut self) {
        self.resume_no_more();
        if self.drain.is_none() && self.line.pause(Instant::now()) {
            self.messages.warning("SIGTTOU received: TCP listeners paused until SIGTTIN.");
        }
    }

    /// Listens again, as if nothing had been.
    pub(crate) async fn resume(&mut self) {
        if self.drain.is_none() && self.line.listeners().is_paused() {
            self.step_pausing(PauseEvent::Resume);
            self.try_to_resume().await;
        }
    }

    /// There is nothing to resume any more.
    pub(crate) fn resume_no_more(&mut self) {
        self.step_pausing(PauseEvent::Stop);
    }

    /// When a pause has to be looked at.
    pub(crate) fn look_at_pause(&self) -> Option<Instant> {
        let is_due = self.line.listeners().is_falling_silent() || self.pausing.is_resuming();
        is_due.then(|| Instant::now() + PAUSE_LOOK_EVERY)
    }

    /// Takes a pause, or its end, one step further.
    pub(crate) async fn step_pause(&mut self) {
        for id in self.line.fall_silent(Instant::now()) {
            self.workers.command(Command::Close(id)).await;
        }
        if self.pausing.is_resuming() {
            self.try_to_resume().await;
        }
    }

    async fn try_to_resume(&mut self) {
        let outcome = self.line.unpause();
        if let Some(generation) = self.line.generation().cloned() {
            self.workers.command(Command::Apply(generation)).await;
        }
        self.step_pausing(PauseEvent::Tried(outcome));
    }

    fn step_pausing(&mut self, event: PauseEvent) {
        let (pausing, said) = self.pausing.step(event);
        self.pausing = pausing;
        said.into_iter().for_each(|text| self.messages.warning(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_else_listens_is_said_once_and_it_is_tried_until_it_succeeds() {
        let refused = || PauseEvent::Tried(Err(vec!["192.0.2.1:80".into()]));
        let events = [PauseEvent::Resume, refused(), refused(), PauseEvent::Tried(Ok(())), refused()];
        let mut pausing = Pausing::default();
        let mut said = Vec::new();
        for event in events {
            let (next, text) = pausing.step(event);
            pausing = next;
            said.push((text.unwrap_or_default(), pausing.is_resuming()));
        }
        let expect = [
            ("", true),
            ("SIGTTIN received, but another process listens: 192.0.2.1:80. Retrying.", true),
            ("", true),
            ("SIGTTIN received: TCP listeners resumed.", false),
            ("", false),
        ];
        assert_eq!(said, expect.map(|(text, is_resuming)| (text.to_owned(), is_resuming)));
        let (again, _) = pausing.step(PauseEvent::Resume);
        assert_eq!(again.step(PauseEvent::Stop), (Pausing::Settled, None));
    }
}
