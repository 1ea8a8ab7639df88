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

/// Tasks of finished requests that are kept for the next ones.
const TASKS_KEPT_MAX: usize = 256;

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
struct Place {
    request: RefCell<Option<StreamWithRequest>>,
    /// None comes any more.
    is_over: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// Serves one request after the other.
struct StreamTask {
    tasks: Rc<StreamTasks>,
    place: Rc<Place>,
    runner: Runner<(StreamWithRequest, Deadline), Deadline>,
    is_busy: bool,
    /// Its timer, which the request in work has.
    deadline: Deadline,
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
            deadline: Deadline::default(),
        });
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
        let Place { request, is_over, waker } = &*self.0;
        is_over.set(request.borrow().is_none());
        if let Some(waker) = &*waker.borrow() {
            waker.wake_by_ref();
        }
    }
}

impl Future for StreamTask {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let StreamTask { tasks, place, runner, is_busy, deadline } = &mut *self;
        loop {
            if *is_busy {
                *deadline = ready!(runner.poll(cx));
                *is_busy = false;
                tasks.0.give(IdleTask(place.clone()));
            }
            let request = place.request.borrow_mut().take();
            match request {
                Some(request) => runner.begin((request, std::mem::take(deadline))),
                None if place.is_over.get() => return Poll::Ready(()),
                None => {
                    // It is that of the same task for ever.
                    place.waker.borrow_mut().get_or_insert_with(|| cx.waker().clone());
                    return Poll::Pending;
                }
            }
            *is_busy = true;
        }
    }
}
