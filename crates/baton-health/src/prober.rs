//! Asks real servers whether they have the virtual address. An answer takes its time, and packets take rights: so questions are
//! answered on threads that whoever made the channel begins.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use baton_direct::{KernelError, probe};
use tokio::sync::oneshot;

/// Takes questions to the threads that answer them.
#[derive(Clone)]
pub struct Prober(Sender<VipQuestion>);

/// Whether a server has a virtual address.
pub struct VipQuestion {
    asked: probe::ProbeTarget,
    within: Duration,
    reply: oneshot::Sender<Result<probe::ProbeResult, KernelError>>,
}

impl Prober {
    /// A prober, and its questions for the threads that answer them.
    pub fn channel() -> (Prober, Receiver<VipQuestion>) {
        let (ask, asked) = mpsc::channel();
        (Prober(ask), asked)
    }

    /// Whether a server has the virtual address.
    ///
    /// # Errors
    /// As [`probe::probe`]; `None` when nobody answers any more.
    pub(crate) async fn ask(
        &self,
        asked: probe::ProbeTarget,
        within: Duration,
    ) -> Option<Result<probe::ProbeResult, KernelError>> {
        let (reply, found) = oneshot::channel();
        self.0.send(VipQuestion { asked, within, reply }).ok()?;
        found.await.ok()
    }
}

impl VipQuestion {
    /// Asks the server. Blocks until it has answered or the time for it is over; a question that nobody waits for any more is not asked.
    pub fn answer(self) {
        if !self.reply.is_closed() {
            // Who does not wait any more does not want to know.
            let _ = self.reply.send(probe::probe(&self.asked, self.within));
        }
    }
}
