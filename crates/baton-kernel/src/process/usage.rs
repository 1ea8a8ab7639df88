//! What this process uses.

use std::fs;
use std::io;

use nix::unistd::{SysconfVar, sysconf};

/// Memory of this process that is in RAM, bytes (`/proc/self/statm`).
pub fn resident_bytes() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/self/statm"))?;
    let page = sysconf(SysconfVar::PAGE_SIZE)?.and_then(|size| u64::try_from(size).ok()).unwrap_or(4096);
    Ok(pages.saturating_mul(page))
}

/// Open descriptors of this process (`/proc/self/fd`); the one that reads them is not counted.
pub fn open_descriptors() -> io::Result<usize> {
    // Since Linux 6.2 the folder's size is the number, without walking it.
    match fs::metadata("/proc/self/fd")?.len() {
        0 => Ok(fs::read_dir("/proc/self/fd")?.count().saturating_sub(1)),
        count => Ok(count as usize),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_is_seen() {
        assert!(resident_bytes().unwrap() > 100_000);
        let many: Vec<_> = (0..500).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        assert!(open_descriptors().unwrap() >= many.len(), "other tests open and close some as well");
    }
}
