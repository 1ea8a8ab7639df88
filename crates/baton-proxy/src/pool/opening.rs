//! Connections that are being opened to servers that may speak HTTP/2: others wait for one instead of opening their own each, because it will
//! carry them all.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use super::Sharing;

/// A connection that is being opened.
#[derive(Debug)]
pub struct OpeningConnection {
    /// The name that is asked for (SNI).
    name: Option<Box<str>>,
    /// The session that has it for itself; `None`: any may use it.
    session: Option<usize>,
    /// Exchanges that will use it.
    expected: Cell<usize>,
    is_done: Cell<bool>,
    waiting: RefCell<Vec<Waker>>,
}

/// The connection is being opened until this is dropped.
#[derive(Debug)]
pub struct OpeningGuard(Rc<OpeningConnection>);

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.is_done.set(true);
        self.0.waiting.take().into_iter().for_each(Waker::wake);
    }
}

impl OpeningConnection {
    pub(super) fn begin(name: Option<&str>, session: Option<usize>) -> (Rc<OpeningConnection>, OpeningGuard) {
        let opening = Rc::new(OpeningConnection {
            name: name.map(Into::into),
            session,
            expected: Cell::new(1),
            is_done: Cell::new(false),
            waiting: RefCell::default(),
        });
        (opening.clone(), OpeningGuard(opening))
    }

    /// Whether it is opened, or cannot be.
    pub fn is_done(&self) -> bool {
        self.is_done.get()
    }

    /// Expects it for one more exchange, if that may use it. `most`: streams of one connection.
    pub(super) fn expect(&self, name: Option<&str>, sharing: Sharing, most: usize) -> bool {
        let is_allowed = match (sharing, self.session) {
            (Sharing::All, None) => true,
            (Sharing::Session(session), Some(owner)) => session == owner,
            // It has proven nothing.
            (Sharing::Proven, _) | (Sharing::All, Some(_)) | (Sharing::Session(_), None) => false,
        };
        let fits = !self.is_done() && is_allowed && self.name.as_deref() == name && self.expected.get() < most;
        if fits {
            self.expected.set(self.expected.get() + 1);
        }
        fits
    }

    /// Ready when it is opened, or cannot be.
    pub fn poll_done(&self, cx: &Context<'_>) -> Poll<()> {
        if self.is_done() {
            return Poll::Ready(());
        }
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_connection_that_is_being_opened() {
        let check = |session, name, sharing, expect: [bool; 3]| {
            let (opening, guard) = OpeningConnection::begin(Some("a"), session);
            let mut found = [(); 2].map(|()| opening.expect(name, sharing, 2)).to_vec();
            drop(guard);
            found.push(opening.expect(name, sharing, 9));
            assert_eq!(found, expect, "{session:?} {name:?} {sharing:?}");
        };
        check(None, Some("a"), Sharing::All, [true, false, false]);
        check(None, Some("b"), Sharing::All, [false; 3]);
        check(None, None, Sharing::All, [false; 3]);
        check(None, Some("a"), Sharing::Proven, [false; 3]);
        check(Some(1), Some("a"), Sharing::Session(1), [true, false, false]);
        check(Some(1), Some("a"), Sharing::Session(2), [false; 3]);
        check(Some(1), Some("a"), Sharing::All, [false; 3]);
    }
}
