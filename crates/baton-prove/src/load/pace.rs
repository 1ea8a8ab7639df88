//! The open model's clock: hands out intended starts and wakes who waits for one.
//!
//! The runtime's own timers have a grain of a millisecond, which is more than a request takes; a `timerfd` has nanoseconds.
//! One timer serves all connections of a thread, because intended starts are handed out in order.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    future::poll_fn,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd},
    task::{Poll, Waker},
    time::{Duration, Instant},
};

use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use tokio::io::unix::AsyncFd;

/// Intended starts at `first + n * interval`.
pub(super) struct Pace {
    first: Instant,
    /// Seconds between two starts.
    interval: f64,
    next: Cell<u64>,
    /// Whether nobody waits any more, because the load ends.
    ended: Cell<bool>,
    /// Who waits for which start, earliest first. One entry per connection, and for a moment one that is due already.
    waiting: RefCell<VecDeque<(Instant, Waker)>>,
    /// Wakes the timer task when the first entry changed.
    armed: RefCell<Option<Waker>>,
    timer: AsyncFd<Timer>,
}

impl Pace {
    /// # Errors
    /// When the timer cannot be made.
    pub(super) fn new(first: Instant, interval: f64) -> io::Result<Pace> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = Timer(TimerFd::new(ClockId::CLOCK_MONOTONIC, flags)?);
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may swap their descriptor; Timer keeps its own"
        )]
        let timer = AsyncFd::new(timer)?;
        Ok(Pace {
            first,
            interval,
            next: Cell::new(0),
            ended: Cell::new(false),
            waiting: RefCell::default(),
            armed: RefCell::new(None),
            timer,
        })
    }

    /// The next intended start.
    pub(super) fn take(&self) -> Instant {
        let number = self.next.replace(self.next.get() + 1);
        self.start_of(number)
    }

    /// How many starts before `end` were handed to nobody.
    pub(super) fn untaken(&self, end: Instant) -> u64 {
        let due = (end.saturating_duration_since(self.first).as_secs_f64() / self.interval).ceil() as u64;
        due.saturating_sub(self.next.get())
    }

    fn start_of(&self, number: u64) -> Instant {
        self.first + Duration::from_secs_f64(self.interval * number as f64)
    }

    /// Waits until `start`, which [`Pace::take`] gave, or until [`Pace::wake_all`].
    pub(super) async fn wait(&self, start: Instant) {
        let mut queued = false;
        poll_fn(|cx| {
            if self.ended.get() || Instant::now() >= start {
                return Poll::Ready(());
            }
            // A task is also woken by what it waited for before, such as its connection's deadline.
            if !queued {
                queued = true;
                self.queue(start, cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }

    fn queue(&self, start: Instant, waker: Waker) {
        let mut waiting = self.waiting.borrow_mut();
        let place = waiting.iter().rposition(|(other, _)| *other <= start).map_or(0, |place| place + 1);
        waiting.insert(place, (start, waker));
        if place == 0
            && let Some(timer) = self.armed.borrow_mut().take()
        {
            timer.wake();
        }
    }

    /// Ends all waiting, because the load ends.
    pub(super) fn wake_all(&self) {
        self.ended.set(true);
        for (_, waker) in self.waiting.borrow_mut().drain(..) {
            waker.wake();
        }
    }

    /// The timer task: wakes each waiting connection on time. Never returns unless the timer breaks.
    pub(super) async fn run(&self) -> io::Result<()> {
        poll_fn(|cx| self.poll_run(cx)).await
    }

    fn poll_run(&self, cx: &mut std::task::Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let now = Instant::now();
            let mut waiting = self.waiting.borrow_mut();
            while waiting.front().is_some_and(|(start, _)| *start <= now) {
                if let Some((_, waker)) = waiting.pop_front() {
                    waker.wake();
                }
            }
            *self.armed.borrow_mut() = Some(cx.waker().clone());
            let Some((start, _)) = waiting.front() else { return Poll::Pending };
            self.timer.get_ref().arm(*start - now)?;
            match self.timer.poll_read_ready(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // Arming anew has taken back an earlier expiry, so that reading it is not needed.
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
            }
        }
    }
}

/// A `TimerFd` that an `AsyncFd` can hold.
struct Timer(TimerFd);

impl Timer {
    fn arm(&self, after: Duration) -> io::Result<()> {
        // Zero would disarm it.
        let after = TimeSpec::from_duration(after.max(Duration::from_nanos(1)));
        Ok(self.0.set(Expiration::OneShot(after), TimerSetTimeFlags::empty())?)
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
