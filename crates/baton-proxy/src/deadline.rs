//! One timer for each connection, moved seldom.
//!
//! A request passes through several waits with a timeout each. Setting a [`Deadline`] only stores the instant; the timer
//! behind it is armed when it would otherwise fire too late, and when it fires early it is armed again for what is due
//! then. A busy connection touches its timer about once per timeout instead of several times per request.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use tokio::time::Sleep;

/// The instant at which a connection's current wait ends.
#[derive(Debug, Default)]
pub struct Deadline {
    due: Option<Instant>,
    /// The timer; its waker is always that of the connection's task.
    timer: Option<Pin<Box<Sleep>>>,
    registered: bool,
}

impl Deadline {
    /// The wait ends at `due`; `None` never.
    pub fn set(&mut self, due: Option<Instant>) {
        self.due = due;
    }

    /// The instant set.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the timer has fired: `now` may be read anew before it is compared with what is due.
    pub fn has_fired(&self) -> bool {
        self.timer.as_ref().is_some_and(|timer| timer.is_elapsed())
    }

    /// Ready once `now` has reached the instant set. Must always be polled by the same task.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<()> {
        let Some(due) = self.due else { return Poll::Pending };
        if now >= due {
            return Poll::Ready(());
        }
        match &mut self.timer {
            Some(timer) if timer.deadline() > due.into() || timer.is_elapsed() => {
                timer.as_mut().reset(due.into());
                self.registered = false;
            }
            Some(_) => {}
            None => self.timer = Some(Box::pin(tokio::time::sleep_until(due.into()))),
        }
        if !self.registered
            && let Some(timer) = &mut self.timer
        {
            if timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            self.registered = true;
        }
        Poll::Pending
    }
}

use std::future::Future;

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::time::Duration;

    /// Waits for the deadline with the paused clock; gives the milliseconds that passed.
    async fn wait(deadline: &mut Deadline) -> u128 {
        let before = tokio::time::Instant::now();
        poll_fn(|cx| deadline.poll_expired(cx, tokio::time::Instant::now().into_std())).await;
        before.elapsed().as_millis()
    }

    fn after(ms: u64) -> Option<Instant> {
        Some((tokio::time::Instant::now() + Duration::from_millis(ms)).into_std())
    }

    #[tokio::test(start_paused = true)]
    async fn fires_when_due_whatever_was_armed_before() {
        let mut deadline = Deadline::default();
        deadline.set(after(100));
        assert_eq!(wait(&mut deadline).await, 100);
        deadline.set(after(1000));
        let _ = futures_poll_once(&mut deadline).await;
        deadline.set(after(10));
        assert_eq!(wait(&mut deadline).await, 10);
        deadline.set(after(5000));
        assert_eq!(wait(&mut deadline).await, 5000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_instant_does_not_move_the_timer_until_it_fires() {
        let mut deadline = Deadline::default();
        deadline.set(after(50));
        assert!(futures_poll_once(&mut deadline).await.is_pending());
        deadline.set(after(200));
        assert_eq!(deadline.timer.as_ref().map(|timer| Some(timer.deadline().into_std())), Some(after(50)));
        assert_eq!(wait(&mut deadline).await, 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_timer_that_fires_by_a_clock_ahead_of_ours_is_armed_again() {
        let mut deadline = Deadline::default();
        deadline.set(after(50));
        let behind = tokio::time::Instant::now().into_std();
        assert!(futures_poll_once(&mut deadline).await.is_pending());
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(deadline.has_fired());
        // Our clock has not seen these 60 ms yet.
        let seen = poll_fn(|cx| Poll::Ready(deadline.poll_expired(cx, behind))).await;
        let woken = seen.is_ready() || wait(&mut deadline).await == 0;
        assert!(woken, "the deadline was lost");
        deadline.set(after(100));
        assert_eq!(wait(&mut deadline).await, 100);
    }

    async fn futures_poll_once(deadline: &mut Deadline) -> Poll<()> {
        let now = tokio::time::Instant::now().into_std();
        poll_fn(|cx| Poll::Ready(deadline.poll_expired(cx, now))).await
    }
}
