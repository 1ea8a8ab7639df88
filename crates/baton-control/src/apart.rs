//! Work that may never end, on a thread of its own which nobody joins: a file system that does not respond keeps whoever reads it.
//!
//! The blocking threads of tokio are waited for when the runtime ends, so that a process with such a reader could not end. These are
//! abandoned instead; at most [`THREADS_MAX`] exist at a time.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use baton_kernel::process::priority;
use tokio::sync::oneshot;

/// Threads at a time, those that were abandoned and have not ended included.
pub const THREADS_MAX: usize = 32;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// The result of work on another thread. Dropped, it abandons the thread.
#[derive(Debug)]
pub struct Apart<T> {
    result: oneshot::Receiver<T>,
}

/// The thread ended without a result: it panicked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Lost;

impl fmt::Display for Lost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the thread that reads them ended unexpectedly")
    }
}

impl<T: Send + 'static> Apart<T> {
    /// Begins.
    ///
    /// # Errors
    /// When there are [`THREADS_MAX`] threads already, or the system gives none.
    pub fn run(work: impl FnOnce() -> T + Send + 'static) -> io::Result<Apart<T>> {
        let place = ThreadSlot::take()?;
        let (sender, result) = oneshot::channel();
        let work = move || {
            let _place = place;
            // Reading a very large file takes a CPU for a tenth of a second; requests on the same CPU must not wait for it.
            // If the system refuses, requests are slower meanwhile, and nothing else.
            let _ = priority::run_in_the_background();
            // An abandoned result is dropped here.
            drop(sender.send(work()));
        };
        std::thread::Builder::new().name("baton/files".into()).spawn(work)?;
        Ok(Apart { result })
    }
}

impl<T> Apart<T> {
    /// Whether the result is there.
    pub fn is_finished(&self) -> bool {
        !self.result.is_empty()
    }
}

impl<T> Future for Apart<T> {
    type Output = Result<T, Lost>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.result).poll(context).map_err(|_| Lost)
    }
}

/// One of the [`THREADS_MAX`].
#[derive(Debug)]
struct ThreadSlot;

impl ThreadSlot {
    fn take() -> io::Result<ThreadSlot> {
        let more = |count| (count < THREADS_MAX).then_some(count + 1);
        #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
        let taken = THREADS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        match taken {
            Ok(_) => Ok(ThreadSlot),
            Err(_) => Err(io::Error::other(format!(
                "{THREADS_MAX} threads are already waiting for files: a file system may not respond"
            ))),
        }
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_result_comes_back_and_what_never_ends_is_abandoned() {
        assert_eq!(Apart::run(|| 7).unwrap().await, Ok(7));
        assert_eq!(Apart::<()>::run(|| panic!("on purpose")).unwrap().await, Err(Lost));
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let stuck = Apart::run(move || wait.recv().is_ok()).unwrap();
        assert!(!stuck.is_finished());
        drop(stuck);
        drop(release);
    }
}
