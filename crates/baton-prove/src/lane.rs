//! One thread with its own runtime: what load, sessions and origins run on.

use std::{future::Future, io, thread};

use tokio::{
    runtime::{Builder, LocalOptions},
    sync::{oneshot, watch},
};

/// A running thread whose future gives a `T`.
#[derive(Debug)]
pub(crate) struct WorkerThread<T> {
    done: oneshot::Receiver<T>,
    thread: thread::JoinHandle<()>,
}

/// Told to a lane when it should come to its end.
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    asked: watch::Receiver<bool>,
}

/// Where the end is asked for; dropping it asks as well.
#[derive(Debug)]
pub(crate) struct Stopper {
    ask: watch::Sender<bool>,
}

impl Stopper {
    pub(crate) fn new() -> (Stopper, Stop) {
        let (ask, asked) = watch::channel(false);
        (Stopper { ask }, Stop { asked })
    }

    pub(crate) fn stop(&self) {
        self.ask.send_replace(true);
    }
}

impl Stop {
    /// Returns when the end is asked for.
    pub(crate) async fn asked(&mut self) {
        // An error says that the stopper is gone, which asks for the end too.
        let _ = self.asked.wait_for(|stop| *stop).await;
    }

    pub(crate) fn is_asked(&self) -> bool {
        *self.asked.borrow() || self.asked.has_changed().is_err()
    }
}

impl<T: Send + 'static> WorkerThread<T> {
    /// Runs the future that `work` makes on a new thread. `work` is called on that thread, inside its runtime, where
    /// `tokio::task::spawn_local` works.
    ///
    /// # Errors
    /// When the thread or its runtime cannot be made.
    pub(crate) fn spawn<F>(name: &str, work: impl FnOnce() -> F + Send + 'static) -> io::Result<WorkerThread<T>>
    where
        F: Future<Output = T> + 'static,
    {
        let (tell, done) = oneshot::channel();
        let (made, outcome) = std::sync::mpsc::sync_channel(1);
        let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
            let runtime = match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => runtime,
                Err(error) => {
                    let _ = made.send(Err(error));
                    return;
                }
            };
            let _ = made.send(Ok(()));
            let result = runtime.block_on(async { work().await });
            // Nobody waits for the result when the handle was dropped.
            let _ = tell.send(result);
        })?;
        outcome.recv().map_err(|_| io::Error::other("the thread ended before its runtime was made"))??;
        Ok(WorkerThread { done, thread })
    }

    /// The lane's result, when its future is done. A panic on the thread goes on in the caller.
    pub(crate) async fn join(self) -> T {
        match self.done.await {
            Ok(result) => result,
            Err(_) => match self.thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("a thread that does not panic sends its result"),
            },
        }
    }

    /// Whether the lane's future is done.
    pub(crate) fn is_finished(&self) -> bool {
        self.thread.is_finished()
    }
}
