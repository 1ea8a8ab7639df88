//! `mode direct` in the running process: when the kernel is changed, and who hears of it.

use std::io;
use std::time::Instant;

use baton_model::Level;

use super::Control;
use super::signals::Signals;
use crate::direct::{Answer, Word, leaves_something};

impl Control {
    /// We serve: the kernel is made what the configuration in use asks for.
    pub(super) async fn begin_direct(&mut self) {
        let line = &mut self.line;
        if let Some(generation) = line.generation.clone() {
            let words = line.direct.begin(&line.model, &generation, &line.registry).await;
            line.checker.probe_by(line.direct.prober());
            self.say_direct(words);
        }
    }

    /// Follows the states of servers, and says what is to be said.
    pub(super) fn step_direct(&mut self, answer: Option<Answer>) {
        // Who takes over counts from where we were when we told it.
        if self.succession.is_giving() || self.succession.successor().is_some() {
            if answer.is_some() {
                self.line.direct.let_pass();
            }
            return;
        }
        let line = &mut self.line;
        let words = line.direct.step(answer, &line.model, line.generation.as_deref(), &line.registry, Instant::now());
        line.checker.probe_by(line.direct.prober());
        self.say_direct(words);
    }

    /// A soft stop takes nothing new from now on, and waits for who is there.
    pub(super) fn end_direct_softly(&mut self) {
        let words = self.line.direct.end_softly(&self.line.model);
        self.say_direct(words);
        self.step_direct(None);
    }

    /// The end: without a successor, `on-exit flush` is done.
    pub(super) fn leave_direct(&mut self) {
        if self.succession.successor().is_some() {
            return;
        }
        let line = &mut self.line;
        let words = line.direct.leave(&line.model, &line.registry);
        self.say_direct(words);
    }

    /// Says what a commit left to say.
    pub(super) fn say_direct_commit(&mut self) {
        let words = std::mem::take(&mut self.line.direct_said);
        self.say_direct(words);
    }

    /// SIGTERM and SIGINT are listened to once something is to be done at the end.
    pub(super) fn listen_for_the_end(&mut self, signals: &mut Signals) -> io::Result<()> {
        match self.line.direct.is_asked() && leaves_something(&self.line.model) {
            true => signals.listen_for_the_end(),
            false => Ok(()),
        }
    }

    fn say_direct(&self, words: Vec<Word>) {
        for word in words {
            match word {
                Word::Done(text) => self.messages.log(Level(6), &format!("mode direct: {text}")),
                Word::Warning(text) => {
                    self.messages.warning(&text);
                    self.messages.log(Level(4), &text);
                }
                Word::Over(text) => {
                    self.messages.notice(&text);
                    self.messages.log(Level(5), &text);
                }
            }
        }
    }
}
