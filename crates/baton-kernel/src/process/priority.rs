//! Which threads yield the CPU to others.

use std::io;

/// Added to the nice value of a background thread: it gets about a tenth of a CPU that another thread wants, and all of it otherwise
/// (sched(7)).
const BACKGROUND: i32 = 10;

/// Time slice of a background thread in nanoseconds, the longest that Linux grants. Since Linux 6.12 a thread with a shorter slice that wakes up
/// preempts it at once (`sched_runtime` in sched_setattr(2)); older kernels ignore the value.
const BACKGROUND_SLICE: u64 = 100_000_000;

/// Time slice in nanoseconds of a thread that works beside the cores: longer than the default of any machine (`base_slice_ns` of sched(7),
/// 0.7 ms to 3 ms), so that a core that wakes up preempts it, and short enough to delay it by no more when all CPUs are busy.
const BESIDE_CORES_SLICE: u64 = 10_000_000;

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

/// Gives the calling thread a longer time slice than the cores have: one of them that wakes up preempts it, instead of waiting until its slice
/// ends. Its share of the CPU stays the same. Since Linux 6.12, as [`run_in_the_background`]; threads and programs that it starts have the same
/// slice until they set another.
///
/// # Errors
/// As [`run_in_the_background`]; the thread works as before then.
pub fn let_cores_preempt() -> io::Result<()> {
    set_slice(rustix::process::getpriority_process(None)?, BESIDE_CORES_SLICE)
}

/// Gives the calling thread the default time slice, whatever the thread that started it has.
///
/// # Errors
/// As [`run_in_the_background`].
pub fn use_default_slice() -> io::Result<()> {
    set_slice(rustix::process::getpriority_process(None)?, 0)
}

/// Sets the time slice of the calling thread, in nanoseconds; 0 is the default. The scheduling policy is kept; a real-time policy has no such slice, which is an error.
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

    /// The slice of the calling thread in nanoseconds, as the kernel reports it (sched_getattr(2)).
    fn slice() -> u64 {
        let mut attributes = std::mem::MaybeUninit::<libc::sched_attr>::zeroed();
        let size = size_of::<libc::sched_attr>() as u32;
        // SAFETY: the kernel writes at most `size` bytes; all of them are zero before, which is a valid value.
        let attributes = unsafe {
            assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, attributes.as_mut_ptr(), size, 0), 0);
            attributes.assume_init()
        };
        attributes.sched_runtime
    }

    #[test]
    fn a_thread_beside_the_cores_has_a_longer_slice_than_a_core_that_it_starts() {
        let slices = std::thread::spawn(|| {
            let before = slice();
            let_cores_preempt().unwrap();
            let core = std::thread::spawn(|| {
                let inherited = slice();
                use_default_slice().unwrap();
                (inherited, slice())
            });
            (before, slice(), core.join().unwrap())
        });
        let (before, control, (inherited, core)) = slices.join().unwrap();
        // Before Linux 6.12 there are no slices of threads: all is 0 then.
        if before > 0 {
            assert_eq!((control, inherited), (BESIDE_CORES_SLICE, BESIDE_CORES_SLICE));
            assert!(core == before && core < control, "{before} {core} {control}");
        }
    }

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

    /// Has the kernel refuse sched_setattr(2) with EPERM to the calling thread from now on, as a container's or a unit's seccomp filter does.
    fn refuse_set_slice() {
        const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
        const IS_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
        let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
        let mut steps = [
            // The number of the call, the first field of `seccomp_data`.
            step(LOAD, 0, 0),
            step(IS_EQUAL, 1, libc::SYS_sched_setattr as u32),
            step(RETURN, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
            step(RETURN, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
        // SAFETY: the kernel reads `len` steps from `filter` while the call lasts, which is as long as `steps` lives; both calls are about the
        // calling thread alone.
        let is_set = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
                && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) == 0
        };
        assert!(is_set, "{}", io::Error::last_os_error());
    }

    #[test]
    fn a_thread_that_may_not_set_its_slice_works_as_before() {
        let thread = std::thread::spawn(|| {
            let nice = || rustix::process::getpriority_process(None).unwrap();
            refuse_set_slice();
            let before = (nice(), slice());
            for refused in [let_cores_preempt(), use_default_slice()] {
                assert_eq!(refused.unwrap_err().raw_os_error(), Some(libc::EPERM));
            }
            assert_eq!((nice(), slice()), before);
            // That others preempt it by its nice value alone is better than nothing.
            assert_eq!(run_in_the_background().unwrap_err().raw_os_error(), Some(libc::EPERM));
            assert_eq!((nice(), slice()), ((before.0 + BACKGROUND).min(19), before.1));
        });
        thread.join().unwrap();
        let other = std::thread::spawn(let_cores_preempt);
        assert!(other.join().unwrap().is_ok(), "the filter was that thread's");
    }
}
