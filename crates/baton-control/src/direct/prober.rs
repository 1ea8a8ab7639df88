//! Asks real servers whether they have the virtual address, on threads of their own: an answer takes its time.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use baton_direct::{Fault, probe};
use tokio::sync::oneshot;

use super::keeper::{raise_rights, spawn};

/// Threads that ask servers for the virtual address: so many are asked at once.
const PROBERS: usize = 8;

/// Asks real servers for the virtual address, on threads that have the right to.
#[derive(Clone)]
pub struct Prober(Sender<Question>);

struct Question {
    asked: probe::Asked,
    within: Duration,
    reply: oneshot::Sender<Result<probe::Found, Fault>>,
}

impl Prober {
    pub(super) fn start() -> Result<Prober, Fault> {
        let (ask, asked) = mpsc::channel::<Question>();
        let asked = std::sync::Arc::new(std::sync::Mutex::new(asked));
        for number in 0..PROBERS {
            let asked = asked.clone();
            spawn(&format!("baton/probe{number}"), move || {
                let mut is_raised = false;
                loop {
                    let next = asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).recv();
                    let Ok(Question { asked, within, reply }) = next else { return };
                    raise_rights(&mut is_raised);
                    // Who does not wait any more does not want to know.
                    if !reply.is_closed() {
                        let _ = reply.send(probe::probe(&asked, within));
                    }
                }
            })?;
        }
        Ok(Prober(ask))
    }

    /// Whether a server has the virtual address.
    ///
    /// # Errors
    /// As [`probe::probe`]; `None` when nobody answers any more.
    pub async fn ask(&self, asked: probe::Asked, within: Duration) -> Option<Result<probe::Found, Fault>> {
        let (reply, found) = oneshot::channel();
        self.0.send(Question { asked, within, reply }).ok()?;
        found.await.ok()
    }
}
