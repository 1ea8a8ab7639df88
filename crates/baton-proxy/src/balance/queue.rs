//! Who waits for a slot: first come, first served, unless rules give them priorities.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use baton_rules::QueuePriority;

use super::{Affinity, BackendState, ServerState, Slot};

/// The most requests that wait in one queue; reaching it is answered with [`Picked::Full`](super::Picked::Full).
pub const QUEUE_MAX: usize = 1 << 20;

/// A queue in its order.
#[derive(Debug, Default)]
pub(super) struct Queue(BTreeMap<QueueTicket, Arc<Waiter>>);

/// A place in the order of queues: by class, then by the time of arrival and its offset, then by arrival. Numbers are given through the
/// backend, so that the heads of two queues can be compared.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct QueueTicket {
    class: i16,
    /// Milliseconds since any moment.
    due_ms: i64,
    number: u64,
}

impl QueueTicket {
    pub(super) fn new(priority: QueuePriority, arrival_ms: i64, number: u64) -> QueueTicket {
        let QueuePriority { class, offset_ms } = priority;
        QueueTicket { class, due_ms: arrival_ms.saturating_add(offset_ms.into()), number }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, waiter: Arc<Waiter>) {
        self.0.insert(waiter.ticket, waiter);
    }

    pub(super) fn head(&self) -> Option<QueueTicket> {
        self.0.keys().next().copied()
    }

    pub(super) fn pop(&mut self) -> Option<Arc<Waiter>> {
        self.0.pop_first().map(|(_, waiter)| waiter)
    }

    pub(super) fn remove(&mut self, ticket: QueueTicket) -> bool {
        self.0.remove(&ticket).is_some()
    }

    pub(super) fn take(&mut self) -> Queue {
        std::mem::take(self)
    }

    pub(super) fn append(&mut self, mut other: Queue) {
        self.0.append(&mut other.0);
    }
}

/// One who waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) ticket: QueueTicket,
    pub(super) found: Affinity,
    turn: Mutex<QueueTurn>,
}

#[derive(Debug, Default)]
struct QueueTurn {
    waker: Option<Waker>,
    granted: Option<Granted>,
}

impl Waiter {
    pub(super) fn new(ticket: QueueTicket, found: Affinity) -> Arc<Waiter> {
        Arc::new(Waiter { ticket, found, turn: Mutex::default() })
    }

    /// It is this one's turn. The waker is called by the caller when no lock is held any more.
    pub(super) fn grant(&self, granted: Granted) -> Option<Waker> {
        let mut turn = self.turn();
        turn.granted = Some(granted);
        turn.waker.take()
    }

    fn turn(&self) -> MutexGuard<'_, QueueTurn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What waiting came to.
#[derive(Debug)]
pub enum Granted {
    /// A slot.
    Slot(Slot),
    /// The server waited for is gone or down: ask again.
    Again,
}

/// A place in a queue: a future for any runtime and thread. Dropping it leaves the queue; it has no timeout of its own.
pub struct QueueWait {
    pub(super) backend: Arc<BackendState>,
    /// The server whose queue was joined; `None`: the backend's. A reload or a failure may have moved it since.
    pub(super) server: Option<Arc<ServerState>>,
    pub(super) waiter: Arc<Waiter>,
    /// How many were waiting in front when it joined, in this queue (`srv_queue`/`backend_queue` of the log).
    pub(super) position: usize,
    pub(super) done: bool,
}

impl QueueWait {
    /// The server whose queue was joined; `None` is the backend's queue.
    pub fn server(&self) -> Option<&Arc<ServerState>> {
        self.server.as_ref()
    }

    /// How many were waiting in front when it joined the queue: the log's `srv_queue` or `backend_queue`.
    pub fn position(&self) -> usize {
        self.position
    }

    /// What became of the server that was wanted.
    pub fn affinity(&self) -> Affinity {
        self.waiter.found
    }
}

impl Future for QueueWait {
    type Output = Granted;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Granted> {
        let granted = {
            let mut turn = self.waiter.turn();
            let granted = turn.granted.take();
            if granted.is_none() && !turn.waker.as_ref().is_some_and(|old| old.will_wake(context.waker())) {
                turn.waker = Some(context.waker().clone());
            }
            granted
        };
        match granted {
            Some(granted) => {
                self.done = true;
                Poll::Ready(granted)
            }
            None => Poll::Pending,
        }
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        self.backend.leave(self.server.as_ref(), self.waiter.ticket);
        // A slot that was granted in the last moment goes on to the next one; dropped without a lock held.
        let granted = self.waiter.turn().granted.take();
        drop(granted);
    }
}

impl fmt::Debug for QueueWait {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "QueueWait({}, {})", self.backend.name(), self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Arrivals in milliseconds with class and offset, and in which order they are served.
    fn check(arrivals: &[(i64, i16, i32)], expect: &[u64]) {
        let mut queue = Queue::default();
        for (number, &(arrival_ms, class, offset_ms)) in (1..).zip(arrivals) {
            let ticket = QueueTicket::new(QueuePriority { class, offset_ms }, arrival_ms, number);
            queue.push(Waiter::new(ticket, Affinity::Nothing));
        }
        let served: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|waiter| waiter.ticket.number).collect();
        assert_eq!(served, expect, "{arrivals:?}");
    }

    #[test]
    fn queues_are_served_by_class_then_by_time_and_offset_then_by_arrival() {
        check(&[(0, 0, 0), (0, 0, 0), (1, 0, 0)], &[1, 2, 3]);
        check(&[(0, 1, 0), (5, 0, 0), (9, -1, 0)], &[3, 2, 1]);
        check(&[(0, 0, 100), (5, 0, 0), (105, 0, -101), (100, 0, 0)], &[3, 2, 1, 4]);
        check(&[(0, 2, -524_287), (0, -2, 524_287)], &[2, 1]);
    }
}
