//! Where a request's future lives while it is in work.
//!
//! Serving a request takes some kilobytes of state that an idle connection must not hold, and that must not be allocated for
//! each request either. So a core lends out pinned memory: the future is put into it, driven, and dropped in its place.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

/// Memory for one request in work: for a future that is made of an `A` and gives a `T`.
pub struct Runner<A, T>(Pin<Box<dyn Run<A, T>>>);

trait Run<A, T> {
    fn begin(self: Pin<&mut Self>, argument: A);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T>;
}

pin_project! {
    struct Room<M, F> {
        make: M,
        #[pin]
        future: Option<F>,
    }
}

impl<A, M, F> Run<A, F::Output> for Room<M, F>
where
    M: Fn(A) -> F,
    F: Future,
{
    fn begin(self: Pin<&mut Self>, argument: A) {
        let mut room = self.project();
        // Before there is another: one that would have to be dropped if this panicked is made elsewhere, and all its kilobytes are copied.
        room.future.set(None);
        room.future.set(Some((room.make)(argument)));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let mut room = self.project();
        let Some(future) = room.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let output = std::task::ready!(future.poll(cx));
        room.future.set(None);
        Poll::Ready(output)
    }
}

impl<A, T> Runner<A, T> {
    /// New memory, for futures that `make` makes.
    pub fn new<F: Future<Output = T> + 'static>(make: impl Fn(A) -> F + 'static) -> Runner<A, T>
    where
        A: 'static,
    {
        Runner(Box::pin(Room { make, future: None }))
    }

    /// Begins a future, in the place of whatever was served before.
    pub fn begin(&mut self, argument: A) {
        self.0.as_mut().begin(argument);
    }

    /// Ready, once, with what the future gives.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.0.as_mut().poll(cx)
    }
}

impl<A, T> fmt::Debug for Runner<A, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Runner")
    }
}
