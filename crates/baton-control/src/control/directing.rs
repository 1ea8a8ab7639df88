//! `mode direct` in the running process: which events reach it. Whose it is to change the kernel, and when that is done, it decides itself.

use std::time::Instant;

use super::Control;
use crate::direct::KeeperReply;

impl Control {
    /// We serve: the kernel is made what the configuration in use asks for.
    pub(crate) async fn begin_direct(&mut self) {
        let said = self.line.begin_direct().await;
        self.messages.tell(said);
    }

    /// Follows the states of servers, and says what is to be said.
    pub(crate) fn step_direct(&mut self, answer: Option<KeeperReply>) {
        // Who takes over counts from where we were when we told it.
        if !self.succession.is_undisputed() {
            if answer.is_some() {
                self.line.let_direct_pass();
            }
            return;
        }
        let said = self.line.step_direct(answer, Instant::now());
        self.messages.tell(said);
    }

    /// A soft stop takes nothing new from now on, and waits for who is there.
    pub(crate) fn end_direct_softly(&mut self) {
        let said = self.line.end_direct_softly();
        self.messages.tell(said);
        self.step_direct(None);
    }

    /// The end: without a successor, `on-exit flush` is done.
    pub(crate) fn leave_direct(&mut self) {
        if self.succession.successor().is_none() {
            let said = self.line.leave_direct();
            self.messages.tell(said);
        }
    }

    /// Says what a commit left to say.
    pub(crate) fn say_direct_commit(&mut self) {
        let said = self.line.take_direct_said();
        self.messages.tell(said);
    }
}
