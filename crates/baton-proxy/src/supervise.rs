//! What goes on although a part of it panicked: a mistake of ours in one connection must not end service for the others.
//!
//! The runtime catches the panic of a task: a connection's ends that connection, whose guards give back what it held. A task
//! that serves others has to be started again; [`for_ever`] does that for tasks that accept, and [`caught`] tells a core's
//! thread when its core has to be made anew (`workers.rs`). Panics are counted and reported by the hook of
//! `baton_kernel::panics`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// How long after a panic the same thing is tried again: a mistake that happens at once does not take the processor.
pub const AGAIN: Duration = Duration::from_millis(100);

/// Something panicked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Panicked;

/// Calls it; a panic is an error. What it leaves half done must be dropped by the caller.
///
/// # Errors
/// It panicked.
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(drop).map_err(|()| Panicked)
}

/// Runs what `begin` gives, and again after each panic, until it ends by itself. Nothing of a future that panicked is used
/// again: `begin` makes a new one.
pub async fn for_ever<F: Future<Output = ()>>(mut begin: impl FnMut() -> F) {
    loop {
        let Ok(mut future) = caught(|| Box::pin(begin())) else {
            tokio::time::sleep(AGAIN).await;
            continue;
        };
        let ended = std::future::poll_fn(|cx| match caught(|| future.as_mut().poll(cx)) {
            Ok(poll) => poll.map(Ok),
            Err(panicked) => std::task::Poll::Ready(Err(panicked)),
        });
        match ended.await {
            Ok(()) => return,
            Err(Panicked) => {
                drop(future);
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

/// Panics when this place is passed for the n-th time, if the environment says so (`BATON_TEST_PANICS=accept:3,request:5`).
/// Only builds for tests look.
#[cfg(debug_assertions)]
pub fn may_panic(place: &str) {
    use std::sync::atomic::{AtomicU64, Ordering};
    static PLACES: std::sync::OnceLock<Vec<(String, u64, AtomicU64)>> = std::sync::OnceLock::new();
    let places = PLACES.get_or_init(|| {
        let text = std::env::var("BATON_TEST_PANICS").unwrap_or_default();
        let place = |part: &str| {
            let (name, time) = part.split_once(':')?;
            Some((name.to_owned(), time.parse().ok()?, AtomicU64::new(0)))
        };
        text.split(',').filter_map(place).collect()
    });
    for (name, time, passed) in places {
        assert!(name != place || passed.fetch_add(1, Ordering::Relaxed) + 1 != *time, "a test wants it at {place}");
    }
}

/// Nothing.
#[cfg(not(debug_assertions))]
#[inline(always)]
pub fn may_panic(_: &str) {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_panics_begins_again_until_it_ends_by_itself() {
        let begun = Cell::new(0);
        let start = tokio::time::Instant::now();
        for_ever(|| {
            begun.set(begun.get() + 1);
            assert_ne!(begun.get(), 3, "the third time before it is a future");
            let turn = begun.get();
            async move {
                tokio::task::yield_now().await;
                assert!(turn > 3, "the first times");
            }
        })
        .await;
        assert_eq!((begun.get(), start.elapsed()), (4, 3 * AGAIN));
    }
}
