//! Which threads yield the CPU to others.

use std::io;

/// Added to the nice value of a background thread: it gets about a tenth of a CPU that another thread wants, and all of it otherwise
/// (sched(7)).
const BACKGROUND: i32 = 10;

/// Time slice of a background thread in nanoseconds, the longest that Linux grants. Since Linux 6.12 a thread with a shorter slice that wakes up
/// preempts it at once (`sched_runtime` in sched_setattr(2)); older kernels ignore the value.
const BACKGROUND_SLICE: u64 = 100_000_000;

/// Makes the calling thread a background thread: the other threads of the process preempt it. Its nice value is that of the process plus 10, at most
/// 19. Without privileges it cannot be lowered again.
///
/// # Errors
/// If the system refuses, for example because of a seccomp filter, or because the process has a real-time policy. The thread works as before then.
pub fn run_in_the_background() -> io::Result<()> {
    // On Linux a nice value belongs to one thread (setpriority(2), "C library/kernel differences").
    let nice = rustix::process::nice(BACKGROUND)?;
    set_slice(nice, BACKGROUND_SLICE)
}

/// Sets the time slice of the calling thread, in nanoseconds. The scheduling policy is kept; a real-time policy has no such slice, which is an error.
fn set_slice(nice: i32, slice: u64) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: 0,
        sched_flags: libc::SCHED_FLAG_KEEP_POLICY as u64,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: the kernel reads `size` bytes of `attributes`, which lives until it returns; 0 is the calling thread, and there are no flags.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Yields the CPU to a thread that is ready to run on it; without one it returns at once (sched_yield(2)). Otherwise a core that wakes up beside a
/// busy thread of the same priority waits until the time slice of that thread ends, up to 4 ms at 250 Hz.
pub fn yield_cpu() {
    std::thread::yield_now();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_background_thread_is_nicer_than_the_others() {
        let nice = || rustix::process::getpriority_process(None).unwrap();
        let before = nice();
        let background = std::thread::spawn(move || {
            run_in_the_background().unwrap();
            nice()
        });
        assert_eq!(background.join().unwrap(), (before + BACKGROUND).min(19));
        assert_eq!(nice(), before);
    }
}
