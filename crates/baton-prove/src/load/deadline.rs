//! One timer per connection that is almost never re-armed.
//!
//! A deadline moves with every request, nearly always later. Re-arming a timer each time costs more than the request's own
//! work, so the timer is left where it is; when it fires early, it is armed again for where the deadline is by then.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};

use tokio::time::{Sleep, sleep_until};

/// A deadline that is moved often and reached rarely.
pub(super) struct Deadline {
    sleep: Pin<Box<Sleep>>,
    at: Instant,
}

impl Deadline {
    /// A deadline far enough away not to matter before the first [`Deadline::set`].
    pub(super) fn new(now: Instant) -> Deadline {
        let at = now + Duration::from_secs(3600);
        Deadline { sleep: Box::pin(sleep_until(at.into())), at }
    }

    pub(super) fn set(&mut self, at: Instant) {
        self.at = at;
        if at < self.sleep.deadline().into_std() {
            self.sleep.as_mut().reset(at.into());
        }
    }

    /// Ready when the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.sleep.as_mut().poll(cx).is_ready() {
            if Instant::now() >= self.at {
                return Poll::Ready(());
            }
            self.sleep.as_mut().reset(self.at.into());
        }
        Poll::Pending
    }
}
