//! Panics of this process: counted, and reported without waiting for whoever reads standard error.

use std::any::Any;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::output::{self, losses};

/// How long a panic waits for its report to be written: the process may be about to abort.
const WRITTEN_WITHIN: Duration = Duration::from_millis(10);
/// Panics that wait so. A mistake that can be set off again and again must not hold up anything.
const WAITING_MAX: u64 = 20;
/// The most of a panic's message that is reported, in characters.
const MESSAGE_MAX: usize = 1000;

static COUNT: AtomicU64 = AtomicU64::new(0);

/// Panics since the start.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Reports panics from now on to standard error, by [`output`]. The panic hook of the standard library would wait for a
/// reader that does not read.
pub fn report() {
    std::panic::set_hook(Box::new(|panic| {
        let earlier = COUNT.fetch_add(1, Ordering::Relaxed);
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = thread::current();
        let text = line(thread.name().unwrap_or("unnamed"), &location, &message(panic));
        output::print_error(&text);
        if std::env::var_os("RUST_BACKTRACE").is_some_and(|wanted| wanted != "0") {
            output::print_error(&format!("{}\n", std::backtrace::Backtrace::force_capture()));
        }
        if earlier < WAITING_MAX {
            output::flush(WRITTEN_WITHIN);
        }
        losses::tell();
    }));
}

fn line(thread: &str, location: &str, message: &str) -> String {
    format!("[ALERT]    ({}) : internal error in thread {thread} at {location}: {message}\n", std::process::id())
}

fn message(panic: &PanicHookInfo<'_>) -> String {
    let payload: &dyn Any = panic.payload();
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    // Bytes of a peer may be part of it.
    text.unwrap_or("no message").chars().take(MESSAGE_MAX).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line() {
        let text = line("baton/1", "src/x.rs:1:2", "a");
        assert!(text.ends_with("internal error in thread baton/1 at src/x.rs:1:2: a\n"), "{text}");
    }
}
