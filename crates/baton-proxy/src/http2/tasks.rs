//! Tasks for streams, which a core lends: one that has served a request waits for the next one, of whatever connection. To wake it costs less
//! than to make another, whose timer would have to be registered as well.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use super::{StreamGuard, exchange};
use crate::deadline::Deadline;
use crate::messages::Messages;
use crate::runner::Runner;
use crate::spare::Spare;

/// Tasks of finished requests that are kept for the next ones, as much as the memory of their messages.
const TASKS_KEPT_MAX: usize = 4096;

/// The tasks that wait for a request.
#[derive(Debug)]
pub struct StreamTasks(Spare<IdleTask>);

/// A stream, and its request.
pub(super) type StreamWithRequest = (StreamGuard, Box<Messages>);

/// A task that waits for a request. It ends when this is dropped.
#[derive(Debug)]
struct IdleTask(Rc<Place>);

/// Where a task is given its next request.
#[derive(Debug, Default)]
pub(super) struct Place {
    request: RefCell<Option<StreamWithRequest>>,
    /// Its timer, while no request is in work.
    deadline: RefCell<Deadline>,
    /// None comes any more.
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Serves one request after the other.
struct StreamTask {
    tasks: Rc<StreamTasks>,
    place: Rc<Place>,
    /// Takes the request from its place by itself: an argument that is more than a pointer would be copied with all the room behind it.
    runner: Runner<Rc<Place>, ()>,
    is_busy: bool,
}

impl StreamTasks {
    /// None yet.
    pub fn new() -> Rc<StreamTasks> {
        Rc::new(StreamTasks(Spare::new(TASKS_KEPT_MAX)))
    }

    /// Ends half of those that were not needed lately.
    pub fn thin(&self) {
        self.0.thin();
    }

    /// Has a request served by a task of its own.
    pub(super) fn begin(self: &Rc<Self>, request: StreamWithRequest) {
        if let Some(task) = self.0.take() {
            return task.begin(request);
        }
        tokio::task::spawn_local(StreamTask {
            tasks: self.clone(),
            place: Rc::new(Place { request: RefCell::new(Some(request)), ..Place::default() }),
            runner: Runner::new(exchange),
            is_busy: false,
        });
    }
}

impl Place {
    /// The next request, and the timer for it, which comes back [behind it](Self::rests).
    pub(super) fn take(&self) -> Option<(StreamWithRequest, Deadline)> {
        Some((self.request.borrow_mut().take()?, self.deadline.take()))
    }

    pub(super) fn rests(&self, deadline: Deadline) {
        self.deadline.replace(deadline);
    }
}

impl IdleTask {
    fn begin(self, request: StreamWithRequest) {
        *self.0.request.borrow_mut() = Some(request);
    }
}

impl Drop for IdleTask {
    /// There is a request, or none comes any more.
    fn drop(&mut self) {
        let Place { request, deadline: _, is_over, waker } = &*self.0;
        is_over.set(request.borrow().is_none());
        if let Some(waker) = &*waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Future for StreamTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let StreamTask { tasks, place, runner, is_busy } = &mut *self;
        loop {
            if *is_busy {
                ready!(runner.poll(cx));
                *is_busy = false;
                tasks.0.give(IdleTask(place.clone()));
            }
            if place.request.borrow().is_none() {
                if place.is_over.get() {
                    return Poll::Ready(());
                }
                // It is that of the same task for ever.
                place.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
                return Poll::Pending;
            }
            runner.begin(place.clone());
            *is_busy = true;
        }
    }
}
