//! A core's pipes for splice(2), and a direction's use of one.
//!
//! A pipe is lent for as long as bulk data passes, and comes back empty. There are at most `maxpipes` of them in the
//! process; a direction that gets none copies.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use baton_kernel::splice::Pipe;

use crate::stream::Stream;
use crate::sums::{ProcessSum, ProcessSums};

/// Empty pipes a core keeps.
const SPARE_MAX: usize = 32;
/// A smaller pipe, which the system gives when its own limit for a user is reached, is slower than copying. Bytes.
const CAPACITY_MIN: usize = 64 * 1024;

/// A splice that moves less than this says that copying would be as good: the next bytes are copied. Bytes.
pub const SPLICED_MIN: usize = 16 * 1024;

/// The pipes of a core.
#[derive(Debug)]
pub struct Pipes {
    spare: RefCell<Vec<Pipe>>,
    /// How many the process may have.
    max: Cell<usize>,
    /// How many it has; shared by all cores.
    open: Arc<AtomicUsize>,
    /// Where bytes that went through pipes are counted, of the whole process.
    sums: Arc<ProcessSums>,
}

impl Pipes {
    /// None yet, and none allowed.
    pub fn new(open: Arc<AtomicUsize>, sums: Arc<ProcessSums>) -> Pipes {
        Pipes { spare: RefCell::default(), max: Cell::new(0), open, sums }
    }

    /// How many the process may have from now on. Those in use stay until they are given back.
    pub fn allow(&self, max: usize) {
        self.max.set(max);
        if self.open.load(Ordering::Relaxed) > max {
            self.forget(self.spare.take().len());
        }
    }

    fn take(&self) -> Option<Pipe> {
        if let Some(pipe) = self.spare.borrow_mut().pop() {
            return Some(pipe);
        }
        let one_more = |open: usize| (open < self.max.get()).then_some(open + 1);
        #[allow(deprecated, reason = "its new name, try_update, is younger than Rust 1.88")]
        let is_permitted = self.open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok();
        if !is_permitted {
            return None;
        }
        match Pipe::new() {
            Ok(pipe) if pipe.capacity() >= CAPACITY_MIN => Some(pipe),
            // The system gives no more: not asked again before the next change of the configuration.
            Ok(_) | Err(_) => {
                self.forget(1);
                self.max.set(self.open.load(Ordering::Relaxed));
                None
            }
        }
    }

    fn give(&self, pipe: Pipe) {
        let mut spare = self.spare.borrow_mut();
        let fits = spare.len() < SPARE_MAX && self.open.load(Ordering::Relaxed) <= self.max.get();
        if fits && pipe.held() == 0 {
            spare.push(pipe);
        } else {
            self.forget(1);
        }
    }

    fn forget(&self, count: usize) {
        self.open.fetch_sub(count, Ordering::Relaxed);
    }
}

impl Drop for Pipes {
    fn drop(&mut self) {
        self.forget(self.spare.borrow().len());
    }
}

/// One direction's leave to splice. It holds a pipe only while there is something to move.
#[derive(Debug)]
pub struct Splicer {
    pipes: Rc<Pipes>,
    pipe: Option<Pipe>,
}

/// Each is like no other.
impl PartialEq for Splicer {
    fn eq(&self, other: &Splicer) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Splicer {
    /// Leave to take pipes from `pipes`.
    pub fn new(pipes: &Rc<Pipes>) -> Splicer {
        Splicer { pipes: pipes.clone(), pipe: None }
    }

    /// Bytes that were taken from the one socket and not yet by the other one.
    pub fn held(&self) -> usize {
        self.pipe.as_ref().map_or(0, Pipe::held)
    }

    /// Whether there is a pipe to use; takes one if it can.
    pub fn is_ready(&mut self) -> bool {
        if self.pipe.is_none() {
            self.pipe = self.pipes.take();
        }
        self.pipe.is_some()
    }

    /// Takes at most `most` bytes from a socket; 0 is the end of the stream. Only when nothing is held, so that waiting means
    /// waiting for the socket. The pipe is given back before a wait. A socket that cannot be spliced says
    /// [`InvalidInput`](io::ErrorKind::InvalidInput).
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, from: &Stream, most: usize) -> Poll<io::Result<usize>> {
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Err(io::ErrorKind::InvalidInput.into())) };
        debug_assert!(pipe.held() == 0);
        let filled = from.poll_splice_in(cx, pipe, most);
        if filled.is_pending() {
            self.rest();
        }
        filled
    }

    /// Moves what is held into a socket: how much of it went.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, to: &Stream) -> Poll<io::Result<usize>> {
        match &mut self.pipe {
            Some(pipe) => {
                let drained = to.poll_splice_out(cx, pipe);
                if let Poll::Ready(Ok(count)) = drained {
                    self.pipes.sums.add(ProcessSum::Spliced, count as u64);
                }
                drained
            }
            None => Poll::Ready(Ok(0)),
        }
    }

    /// Takes out what is held, behind these bytes.
    ///
    /// # Errors
    /// The pipe does not give it back.
    pub fn unload(&mut self, out: &mut Vec<u8>) -> io::Result<()> {
        match &mut self.pipe {
            Some(pipe) => pipe.unload(out),
            None => Ok(()),
        }
    }

    /// Gives the pipe back.
    pub fn rest(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pipes.give(pipe);
        }
    }
}

impl Drop for Splicer {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use baton_kernel::cells::CellMemory;

    use super::*;

    fn sums() -> Arc<ProcessSums> {
        Arc::new(ProcessSums::new(&Arc::new(CellMemory::private()), ""))
    }

    fn pipes(max: usize) -> Rc<Pipes> {
        let pipes = Rc::new(Pipes::new(Arc::default(), sums()));
        pipes.allow(max);
        pipes
    }

    #[test]
    fn there_are_never_more_pipes_than_allowed() {
        let pipes = pipes(2);
        let mut three: Vec<Splicer> = (0..3).map(|_| Splicer::new(&pipes)).collect();
        let ready: Vec<bool> = three.iter_mut().map(Splicer::is_ready).collect();
        assert_eq!(ready, [true, true, false]);
        three[0].rest();
        assert!(three[2].is_ready(), "one came back");
        drop(three);
        assert_eq!(pipes.open.load(Ordering::Relaxed), 2, "spare ones stay open");
        pipes.allow(1);
        assert_eq!(pipes.open.load(Ordering::Relaxed), 0, "spare ones beyond what is allowed go");
        assert!(!Splicer::new(&self::pipes(0)).is_ready());
    }

    #[test]
    fn cores_share_what_is_allowed() {
        let open = Arc::new(AtomicUsize::new(0));
        let [one, other] = [0, 1].map(|_| Rc::new(Pipes::new(open.clone(), sums())));
        one.allow(1);
        other.allow(1);
        let mut first = Splicer::new(&one);
        assert!(first.is_ready());
        assert!(!Splicer::new(&other).is_ready());
        drop(first);
        drop(one);
        assert!(Splicer::new(&other).is_ready());
    }
}
