//! The queue of a descriptor, and the thread that writes it out.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::descriptor::{AtOnce, Descriptor};
use super::losses::{self, Losses};
use super::{WriteMode, mode};

/// Bytes that wait for the thread at most.
const WAITING_MAX: usize = 1 << 20;
/// Bytes for which the thread does not pause any longer.
const PLENTY: usize = 64 * 1024;
/// How long the thread lets lines gather after it has written some: a busy process wakes it as seldom as that.
const PAUSE: Duration = Duration::from_millis(5);
/// How long after a thread could not be started it is tried again.
const START_AGAIN: Duration = Duration::from_secs(1);
/// How long writing at once waits in [`WriteMode::Brief`], altogether.
const PATIENCE: Duration = Duration::from_secs(1);

/// A descriptor to which whole lines are written.
#[derive(Debug)]
pub struct Output {
    descriptor: Descriptor,
    losses: Arc<Losses>,
    queue: Mutex<Queue>,
    /// For the thread: there is something to do.
    work: Condvar,
    /// For those who wait for the thread: everything is written.
    done: Condvar,
}

#[derive(Debug)]
struct Queue {
    lines: Lines,
    thread: Thread,
    /// Somebody waits for everything to be written.
    is_flushing: bool,
    /// What is left of [`PATIENCE`].
    patience: Duration,
    /// The last thing that was written is the beginning of a line.
    is_torn: bool,
}

/// What the thread is doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Thread {
    /// There is none, and it is not to be started before this.
    Absent(Option<Instant>),
    /// It sleeps until it is told.
    Idle,
    /// It lets lines gather.
    Pausing,
    /// It will look at the queue when it has written what it took.
    Busy,
}

/// Whole lines, one behind the other.
#[derive(Debug, Default)]
struct Lines {
    bytes: Vec<u8>,
    /// Where each ends.
    ends: Vec<usize>,
}

impl Output {
    pub(super) fn new(name: &str, descriptor: Descriptor) -> Output {
        let queue = Queue {
            lines: Lines::default(),
            thread: Thread::Absent(None),
            is_flushing: false,
            patience: PATIENCE,
            is_torn: false,
        };
        let losses = losses::of(name);
        Output { descriptor, losses, queue: Mutex::new(queue), work: Condvar::new(), done: Condvar::new() }
    }

    /// What was lost on the way to it.
    pub fn losses(&self) -> &Arc<Losses> {
        &self.losses
    }

    /// Writes text that is one or more whole lines; it is never mixed with other text. What cannot be written is counted.
    pub fn write(self: &Arc<Self>, text: &[u8]) {
        match mode() {
            WriteMode::Queue => self.enqueue(text),
            at_once => self.write_at_once(text, at_once),
        }
    }

    fn enqueue(self: &Arc<Self>, text: &[u8]) {
        let mut queue = self.lock();
        if queue.lines.bytes.len() + text.len() > WAITING_MAX {
            drop(queue);
            return self.losses.add(1, None);
        }
        queue.lines.push(text);
        match queue.thread {
            Thread::Idle => {
                queue.thread = Thread::Busy;
                drop(queue);
                self.work.notify_one();
            }
            Thread::Pausing if queue.lines.bytes.len() >= PLENTY => {
                queue.thread = Thread::Busy;
                drop(queue);
                self.work.notify_one();
            }
            Thread::Pausing | Thread::Busy => {}
            Thread::Absent(again) => {
                let now = Instant::now();
                if again.is_none_or(|again| now >= again) {
                    queue.thread = self.start(now);
                }
            }
        }
    }

    /// Starts the thread. Where the system does not give one, lines wait for the next attempt.
    fn start(self: &Arc<Self>, now: Instant) -> Thread {
        let output = self.clone();
        let started = thread::Builder::new().name("baton/output".into()).spawn(move || output.work());
        started.map_or(Thread::Absent(Some(now + START_AGAIN)), |_| Thread::Busy)
    }

    /// What the thread does, as long as the process lives.
    fn work(&self) {
        let mut taken = Lines::default();
        let mut queue = self.lock();
        loop {
            while queue.lines.bytes.is_empty() {
                queue.thread = Thread::Idle;
                queue.is_flushing = false;
                self.done.notify_all();
                queue = self.work.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            queue.thread = Thread::Busy;
            std::mem::swap(&mut queue.lines, &mut taken);
            let was_torn = queue.is_torn;
            drop(queue);
            let is_torn = self.write_out(&taken, was_torn);
            taken.clear();
            queue = self.lock();
            queue.is_torn = is_torn;
            queue.thread = Thread::Pausing;
            let gathers = |queue: &mut Queue| !queue.is_flushing && queue.lines.bytes.len() < PLENTY;
            queue = self.work.wait_timeout_while(queue, PAUSE, gathers).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Writes lines; whether the last one was only begun.
    fn write_out(&self, lines: &Lines, mut is_torn: bool) -> bool {
        for (bytes, ends) in lines.pieces(self.descriptor.at_once()) {
            if is_torn {
                // The rest of a line that was begun never comes: what follows begins a line of its own.
                match self.descriptor.write(b"\n") {
                    Ok(()) => is_torn = false,
                    Err((_, error)) => {
                        self.losses.add(ends.len() as u64, Some(&error));
                        continue;
                    }
                }
            }
            if let Err((done, error)) = self.descriptor.write(bytes) {
                is_torn = self.lose(ends, done, &error);
            }
        }
        is_torn
    }

    /// Counts what was not written of lines; whether one was begun.
    fn lose(&self, ends: impl Iterator<Item = usize>, done: usize, error: &io::Error) -> bool {
        let mut is_torn = done > 0;
        let mut lost = 0;
        for end in ends {
            lost += u64::from(end > done);
            is_torn &= end != done;
        }
        self.losses.add(lost, Some(error));
        is_torn
    }

    fn write_at_once(&self, text: &[u8], mode: WriteMode) {
        let mut queue = self.lock();
        let ended = [b"\n", text].concat();
        let (text, extra) = if queue.is_torn { (&*ended, 1) } else { (text, 0) };
        let written = match mode {
            WriteMode::Wait => self.descriptor.write(text),
            WriteMode::Brief | WriteMode::Queue => self.descriptor.write_briefly(text, &mut queue.patience),
        };
        let done = written.as_ref().map_or_else(|(done, _)| *done, |()| text.len());
        if done > 0 {
            queue.is_torn = done > extra && done < text.len();
        }
        drop(queue);
        if let Err((_, error)) = written {
            self.losses.add(1, Some(&error));
        }
    }

    /// Waits until everything is written, at most until then. Lines for which no thread could be started are written here.
    pub(super) fn flush(&self, end: Instant) {
        let mut queue = self.lock();
        if matches!(queue.thread, Thread::Absent(_)) && !queue.lines.bytes.is_empty() {
            let lines = std::mem::take(&mut queue.lines);
            drop(queue);
            let mut patience = end.saturating_duration_since(Instant::now());
            let written = self.descriptor.write_briefly(&lines.bytes, &mut patience);
            queue = self.lock();
            if let Err((done, error)) = written {
                queue.is_torn = self.lose(lines.ends.iter().copied(), done, &error);
            }
        }
        queue.is_flushing = true;
        self.work.notify_one();
        loop {
            let is_done = match queue.thread {
                Thread::Idle => queue.lines.bytes.is_empty(),
                Thread::Absent(_) => true,
                Thread::Pausing | Thread::Busy => false,
            };
            let left = end.saturating_duration_since(Instant::now());
            if is_done || left.is_zero() {
                queue.is_flushing = false;
                return;
            }
            queue = self.done.wait_timeout(queue, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    /// Empties it; memory that a burst needed goes back.
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        self.bytes.shrink_to(PLENTY);
        self.ends.shrink_to(PLENTY / 64);
    }

    /// What goes into one call each: bytes, and where lines end in them.
    fn pieces(&self, at_once: AtOnce) -> impl Iterator<Item = (&[u8], impl ExactSizeIterator<Item = usize>)> {
        let mut first = 0_usize;
        std::iter::from_fn(move || {
            let begin = first.checked_sub(1).map_or(0, |before| self.ends[before]);
            let rest = self.ends.get(first..).filter(|rest| !rest.is_empty())?;
            let lines = match at_once {
                AtOnce::All => rest.len(),
                AtOnce::Bytes(most) => rest.iter().take_while(|end| **end - begin <= most).count().max(1),
                AtOnce::Line => 1,
            };
            first += lines;
            let end = rest[lines - 1];
            Some((&self.bytes[begin..end], rest[..lines].iter().map(move |end| end - begin)))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{BufRead, BufReader, Read};
    use std::os::fd::OwnedFd;

    use super::*;

    fn pipe() -> (BufReader<File>, Descriptor) {
        let (read, write) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap();
        (BufReader::new(File::from(read)), Descriptor::Passed(write))
    }

    fn output(name: &str, descriptor: Descriptor) -> Arc<Output> {
        Arc::new(Output::new(name, descriptor))
    }

    #[test]
    fn lines_go_out_in_pieces_that_stay_together() {
        let check = |at_once, expect: &[&str]| {
            let mut lines = Lines::default();
            for line in ["ab\n", "c\n", "defgh\n", "i\n"] {
                lines.push(line.as_bytes());
            }
            let pieces: Vec<_> = lines.pieces(at_once).map(|(bytes, ends)| (bytes.to_vec(), ends.last())).collect();
            let text: Vec<_> = pieces.iter().map(|(bytes, _)| std::str::from_utf8(bytes).unwrap()).collect();
            assert_eq!(text, expect, "{at_once:?}");
            assert!(pieces.iter().all(|(bytes, end)| *end == Some(bytes.len())));
        };
        check(AtOnce::All, &["ab\nc\ndefgh\ni\n"]);
        check(AtOnce::Line, &["ab\n", "c\n", "defgh\n", "i\n"]);
        check(AtOnce::Bytes(5), &["ab\nc\n", "defgh\n", "i\n"]);
        check(AtOnce::Bytes(8), &["ab\nc\n", "defgh\ni\n"]);
        assert_eq!(Lines::default().pieces(AtOnce::All).count(), 0);
    }

    #[test]
    fn lines_without_a_thread_are_written_at_the_end() {
        let (mut read, write) = pipe();
        let output = output("test: no thread", write);
        let later = Instant::now() + Duration::from_secs(3600);
        output.lock().thread = Thread::Absent(Some(later));
        output.enqueue(b"the last words\n");
        output.flush(later);
        drop(output);
        let mut text = String::new();
        read.read_to_string(&mut text).unwrap();
        assert_eq!(text, "the last words\n");
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_up_nobody_and_its_losses_are_counted() {
        let (mut read, write) = pipe();
        let output = output("test: unread", write);
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let count = (4 * WAITING_MAX / line.len()) as u64;
        (0..count).for_each(|_| output.enqueue(&line));
        let lost = output.losses.lost();
        assert!(lost > 0 && lost < count, "{lost} of {count}");
        assert_eq!(output.losses.reason(), "the reader is too slow");
        // The reader is back: what was in the queue comes, each line whole.
        for _ in 0..count - lost {
            let mut text = Vec::new();
            read.read_until(b'\n', &mut text).unwrap();
            assert_eq!(text, line);
        }
        output.flush(Instant::now() + Duration::from_secs(30));
        output.enqueue(b"after\n");
        let mut text = String::new();
        read.read_line(&mut text).unwrap();
        assert_eq!((text.as_str(), output.losses.lost()), ("after\n", lost));
    }

    #[test]
    fn a_reader_that_is_gone_costs_lines_and_nothing_else() {
        let (read, write) = pipe();
        drop(read);
        let output = output("test: gone", write);
        for _ in 0..3 {
            output.enqueue(b"line\n");
        }
        output.flush(Instant::now() + Duration::from_secs(30));
        assert_eq!((output.losses.lost(), output.losses.reason().as_str()), (3, "Broken pipe"));
        let begun = Instant::now();
        output.write_at_once(b"line\n", WriteMode::Brief);
        output.write_at_once(b"line\n", WriteMode::Wait);
        assert!(output.losses.lost() == 5 && begun.elapsed() < PATIENCE);
    }

    #[test]
    fn a_start_waits_for_a_reader_once() {
        let (mut read, write) = pipe();
        let output = output("test: brief", write);
        let line = [b"y".repeat(4095), b"\n".to_vec()].concat();
        let mut written = 0;
        while output.losses.lost() == 0 {
            output.write_at_once(&line, WriteMode::Brief);
            written += 1;
        }
        // What is left of less than a millisecond, no wait can use.
        assert!(output.lock().patience < Duration::from_millis(1));
        (0..100).for_each(|_| output.write_at_once(&line, WriteMode::Brief));
        assert_eq!(output.losses.lost(), 101);
        let mut text = Vec::new();
        drop(output);
        read.read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), (written - 1) * line.len());
    }

    #[test]
    fn a_line_that_was_only_begun_is_ended_before_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let output = output("test: torn", Descriptor::Passed(OwnedFd::from(File::create(&path).unwrap())));
        let error = io::Error::from_raw_os_error(nix::libc::ENOSPC);
        // Two of four lines are whole, the third one was begun.
        assert!(output.lose([2, 4, 6, 8].into_iter(), 5, &error));
        assert!(!output.lose([2, 4].into_iter(), 2, &error));
        assert!(!output.lose([2, 4].into_iter(), 0, &error));
        assert_eq!((output.losses.lost(), output.losses.reason().as_str()), (5, "No space left on device"));
        let mut lines = Lines::default();
        lines.push(b"next\n");
        assert!(!output.write_out(&lines, true));
        assert_eq!(std::fs::read(&path).unwrap(), b"\nnext\n");
    }

    #[test]
    fn a_descriptor_of_our_own_is_none_that_was_passed() {
        let own = File::open("/dev/null").unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&own);
        let error = Descriptor::passed(number).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::EBADF));
        assert_eq!(Descriptor::passed(-1).unwrap_err().raw_os_error(), Some(nix::libc::EBADF));
        assert_eq!(Descriptor::passed(1_000_000).unwrap_err().raw_os_error(), Some(nix::libc::EBADF));
        nix::fcntl::fcntl(&own, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty())).unwrap();
        assert!(Descriptor::passed(number).is_ok());
    }
}
