//! What this process uses.

use std::io;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::unistd::{SysconfVar, sysconf};

use super::procfs;

/// Memory of this process that is in RAM, bytes (`/proc/self/statm`).
pub fn resident_bytes() -> io::Result<u64> {
    let text = procfs::read("self/statm")?;
    let pages: Option<u64> = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm"))?;
    let page = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096);
    Ok(pages.saturating_mul(page))
}

/// Processor time that this process has used, in all its threads.
pub fn processor_time() -> io::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let time = |value: TimeVal| Duration::from_micros(u64::try_from(value.num_microseconds()).unwrap_or_default());
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// Open descriptors of this process (`/proc/self/fd`); the one that reads them is not counted.
pub fn open_descriptors() -> io::Result<usize> {
    // Since Linux 6.2 the folder's size is the number, without walking it.
    // Less the one by which the folder itself is looked at.
    let seen = match procfs::stat("self/fd")?.st_size {
        0 => procfs::count("self/fd")?,
        count => usize::try_from(count).unwrap_or_default(),
    };
    Ok(seen.saturating_sub(1))
}

/// Open descriptors of this process, by number; that by which they are listed may be among them.
pub fn descriptors() -> io::Result<Vec<i32>> {
    Ok(procfs::names("self/fd")?.iter().filter_map(|name| name.parse().ok()).collect())
}

/// What a descriptor leads to: a path, `socket:[…]`; `None`: it is not open.
pub fn descriptor_target(number: i32) -> Option<String> {
    Some(procfs::link(&format!("self/fd/{number}")).ok()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_seen() {
        assert!(resident_bytes().unwrap() > 100_000);
        let many: Vec<_> = (0..500).map(|_| std::fs::File::open("/dev/null").unwrap()).collect();
        assert!(open_descriptors().unwrap() >= many.len(), "other tests open and close some as well");
        let number = std::os::fd::AsRawFd::as_raw_fd(&many[0]);
        assert!(descriptors().unwrap().contains(&number));
        assert_eq!(descriptor_target(number).as_deref(), Some("/dev/null"));
        assert_eq!(descriptor_target(-1), None);
    }
}
