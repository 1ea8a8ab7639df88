//! Where a request's future lives while it is in work.
//!
//! Serving a request takes some kilobytes of state that an idle connection must not hold, and that must not be allocated for
//! each request either. So a core lends out pinned memory: the future is put into it, driven, and dropped in its place.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use crate::client::Client;
use crate::core::Core;
use crate::request::{self, Next};

/// Memory for one request in work.
pub struct Runner(Pin<Box<dyn Run>>);

/// What a request's future takes and gives back: it owns its client meanwhile.
pub type Served = (Box<Client>, Next);

trait Run {
    fn begin(self: Pin<&mut Self>, core: Rc<Core>, client: Box<Client>);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Served>;
}

pin_project! {
    struct Place<M, F> {
        make: M,
        #[pin]
        future: Option<F>,
    }
}

impl<M, F> Run for Place<M, F>
where
    M: Fn(Rc<Core>, Box<Client>) -> F,
    F: Future<Output = Served>,
{
    fn begin(self: Pin<&mut Self>, core: Rc<Core>, client: Box<Client>) {
        let mut place = self.project();
        let future = (place.make)(core, client);
        place.future.set(Some(future));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Served> {
        let mut place = self.project();
        let Some(future) = place.future.as_mut().as_pin_mut() else { return Poll::Pending };
        let served = std::task::ready!(future.poll(cx));
        place.future.set(None);
        Poll::Ready(served)
    }
}

impl Runner {
    /// New memory.
    pub fn new() -> Runner {
        Runner(Box::pin(Place { make: request::serve, future: None }))
    }

    /// Begins to serve one request of the client, in the place of whatever was served before.
    pub fn begin(&mut self, core: Rc<Core>, client: Box<Client>) {
        self.0.as_mut().begin(core, client);
    }

    /// Ready, once, with the client when its request is served.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Served> {
        self.0.as_mut().poll(cx)
    }
}

impl std::fmt::Debug for Runner {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Runner")
    }
}
