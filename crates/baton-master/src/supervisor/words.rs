//! What is said of a worker that has ended, in HAProxy's words.

use super::{Effect, Ended, SIGINT, SIGKILL, SIGTERM, SIGUSR1, Tone, Worker};

/// HAProxy's sentence about the end of a worker.
pub(super) fn say_ended(which: &str, worker: &Worker, ended: Ended, tone: Tone) -> Effect {
    let word = match ended {
        Ended::Exited(_) => "Exit",
        Ended::Signaled(number) => signal_word(number),
    };
    Effect::Say(tone, format!("{which} worker ({}) exited with code {} ({word})", worker.pid, ended.code()))
}

/// As `strsignal(3)` words it.
fn signal_word(number: i32) -> &'static str {
    match number {
        nix::libc::SIGHUP => "Hangup",
        SIGINT => "Interrupt",
        nix::libc::SIGQUIT => "Quit",
        nix::libc::SIGILL => "Illegal instruction",
        nix::libc::SIGTRAP => "Trace/breakpoint trap",
        nix::libc::SIGABRT => "Aborted",
        nix::libc::SIGBUS => "Bus error",
        nix::libc::SIGFPE => "Floating point exception",
        SIGKILL => "Killed",
        SIGUSR1 => "User defined signal 1",
        nix::libc::SIGSEGV => "Segmentation fault",
        nix::libc::SIGUSR2 => "User defined signal 2",
        nix::libc::SIGPIPE => "Broken pipe",
        nix::libc::SIGALRM => "Alarm clock",
        SIGTERM => "Terminated",
        nix::libc::SIGSYS => "Bad system call",
        _ => "Unknown signal",
    }
}
