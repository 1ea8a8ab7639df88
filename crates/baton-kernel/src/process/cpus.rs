//! Processors this process may use.

use std::io;

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The processors the calling thread may run on, by number, in order (its affinity: `taskset`, cpusets). Never
/// empty.
pub fn usable() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0))?;
    Ok((0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect())
}

/// Binds the calling thread to those of these processors that this process may use. Threads it starts inherit that.
///
/// # Errors
/// `EINVAL` when it may use none of them, or a number is beyond what the system can count; nothing has changed then.
pub fn bind_thread_to(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        set.set(cpu)?;
    }
    sched_setaffinity(Pid::from_raw(0), &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_and_the_others_are_not() {
        let before = usable().unwrap();
        assert!(!before.is_empty());
        let last = *before.last().unwrap();
        let bound = std::thread::spawn(move || bind_thread_to(&[last]).and_then(|()| usable())).join().unwrap();
        assert_eq!(bound.unwrap(), vec![last]);
        assert_eq!(usable().unwrap(), before);
        assert!(bind_thread_to(&[CpuSet::count()]).is_err());
    }
}
