//! Standard output, standard error and descriptors that were passed to us, written to without holding up the writer.
//!
//! The reader of our output may stop reading it, and a disk may be full or slow. `O_NONBLOCK` is no remedy: it belongs to the
//! open file description, which other processes share. So once a process serves ([`WriteMode::Queue`]), a line goes into a bounded
//! queue, and one thread for each descriptor writes the queue out: only this thread ever waits. What has no room in the queue
//! or cannot be written is counted as lost (`losses`), in whole lines.

mod descriptor;
pub mod losses;
mod queue;
pub mod ring;

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use descriptor::Descriptor;
pub use queue::Output;

/// Descriptors that can be written to by their number, besides standard output and error.
const DESCRIPTORS_MAX: usize = 64;

/// How long a process that ends waits for what is queued, see [`flush`].
pub const FLUSHED_WITHIN: Duration = Duration::from_secs(1);

/// How lines are written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum WriteMode {
    /// At once, and the caller waits for the reader: a command that ends when everything is printed.
    Wait,
    /// At once, and the caller waits a second at most in the whole life of the process: a process that starts, which must
    /// not have a second thread before it forks or gives up its rights.
    Brief,
    /// By a thread, and the caller never waits.
    Queue,
}

static MODE: AtomicU8 = AtomicU8::new(WriteMode::Wait as u8);

/// Changes how lines are written from now on, in the whole process.
pub fn set_mode(mode: WriteMode) {
    MODE.store(mode as u8, Ordering::Relaxed);
}

fn mode() -> WriteMode {
    match MODE.load(Ordering::Relaxed) {
        mode if mode == WriteMode::Queue as u8 => WriteMode::Queue,
        mode if mode == WriteMode::Brief as u8 => WriteMode::Brief,
        _ => WriteMode::Wait,
    }
}

/// Standard output.
pub fn stdout() -> &'static Arc<Output> {
    static STDOUT: OnceLock<Arc<Output>> = OnceLock::new();
    STDOUT.get_or_init(|| Arc::new(Output::new("stdout", Descriptor::Stdout)))
}

/// Standard error.
pub fn stderr() -> &'static Arc<Output> {
    static STDERR: OnceLock<Arc<Output>> = OnceLock::new();
    STDERR.get_or_init(|| Arc::new(Output::new("stderr", Descriptor::Stderr)))
}

/// The descriptor of this number, which was passed to this process when it was started.
///
/// # Errors
/// `EBADF`: there is none, or it is one of our own. `EMFILE`, or too many such descriptors.
pub fn descriptor(number: RawFd) -> io::Result<Arc<Output>> {
    match number {
        1 => return Ok(stdout().clone()),
        2 => return Ok(stderr().clone()),
        _ => {}
    }
    let mut known = OTHERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, output)) = known.iter().find(|(known, _)| *known == number) {
        return Ok(output.clone());
    }
    if known.len() >= DESCRIPTORS_MAX {
        return Err(io::Error::other(format!("more than {DESCRIPTORS_MAX} descriptors are written to")));
    }
    let output = Arc::new(Output::new(&format!("fd@{number}"), Descriptor::passed(number)?));
    known.push((number, output.clone()));
    Ok(output)
}

/// By number. They stay for the life of the process, as the descriptors do.
static OTHERS: Mutex<Vec<(RawFd, Arc<Output>)>> = Mutex::new(Vec::new());

/// Waits until everything is written, but no longer than this.
pub fn flush(within: Duration) {
    let end = Instant::now() + within;
    let others = OTHERS.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let others = others.iter().map(|(_, output)| output);
    [stdout(), stderr()].into_iter().chain(others).for_each(|output| output.flush(end));
}

/// An [`Output`] for code that writes to any [`io::Write`]. Lines that are written in pieces go out when they are whole, or by
/// `flush`.
#[derive(Debug)]
pub struct LineWriter {
    output: Arc<Output>,
    line: Vec<u8>,
}

impl LineWriter {
    /// One for standard output.
    pub fn stdout() -> LineWriter {
        LineWriter { output: stdout().clone(), line: Vec::new() }
    }
}

impl io::Write for LineWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        if let Some(end) = self.line.iter().rposition(|byte| *byte == b'\n') {
            self.output.write(&self.line[..=end]);
            self.line.drain(..=end);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.line.is_empty() {
            self.output.write(&self.line);
            self.line.clear();
        }
        Ok(())
    }
}

/// Prints text to standard output. A reader that is gone is no failure.
pub fn print(text: &str) {
    stdout().write(text.as_bytes());
}

/// Prints text to standard error.
pub fn print_error(text: &str) {
    stderr().write(text.as_bytes());
}
