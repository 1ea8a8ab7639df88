//! What outlives `exec`: descriptors that stay open over it, memory files, and signals that wait.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, sigprocmask};
use nix::unistd::dup2_stdin;

use crate::passed;

/// Keeps a descriptor open over `exec`, and gives the number it will have there. Programs that are started meanwhile have
/// it too, so that this belongs right before `exec`.
pub fn keep(fd: &impl AsFd) -> io::Result<RawFd> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(fd.as_fd().as_raw_fd())
}

/// Lets a descriptor end with `exec` again.
pub fn keep_no_more(fd: &impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(())
}

/// Owns a descriptor that was [kept](keep) over `exec`, and lets it end with the next one. Each is taken once.
///
/// # Errors
/// `InvalidInput` for standard input, output and error; EBADF for what was not open when this program began, or was taken: it is
/// nobody's, or a value of this program owns it.
pub fn take(number: RawFd) -> io::Result<OwnedFd> {
    if number <= 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !AT_START.lock().unwrap_or_else(PoisonError::into_inner).remove(&number) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: it was open before this program opened anything, so that no value owned it; it has been open since, for nobody else
    // closes what nobody owns, and its number has therefore been given to nothing else; and it is taken out of the list by this call
    // alone.
    let taken = unsafe { OwnedFd::from_raw_fd(number) };
    fcntl(&taken, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    Ok(taken)
}

/// Descriptors above standard error that were open when the program began, and were not taken yet. No value owns them.
static AT_START: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());

/// Run by the C library before `main`, and so before anything of this program opens a descriptor.
#[used]
#[unsafe(link_section = ".init_array")]
static LOOK_AT_START: extern "C" fn() = look_at_start;

/// Numbers that are tried where `/proc` is not mounted.
const TRIED_MAX: RawFd = 4096;

extern "C" fn look_at_start() {
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok();
    let numbers: Vec<RawFd> = match fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.filter_map(number).collect(),
        Err(_) => (3..TRIED_MAX).collect(),
    };
    // The list itself had a descriptor, which is closed by now.
    let is_open = |number: &RawFd| *number > 2 && passed::flags(*number).is_ok();
    AT_START.lock().unwrap_or_else(PoisonError::into_inner).extend(numbers.into_iter().filter(is_open));
}

/// Takes what standard input is, and leaves `/dev/null` in its place.
pub fn take_standard_input() -> io::Result<OwnedFd> {
    let taken = io::stdin().as_fd().try_clone_to_owned()?;
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(taken)
}

/// A file in memory without a name, at its beginning.
pub fn memory_file(name: &str, content: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(content)?;
    file.rewind()?;
    Ok(file.into())
}

/// The content of a file from its beginning, at most `bytes_max` of it.
///
/// # Errors
/// `FileTooLarge` when there is more.
pub fn read_whole(fd: OwnedFd, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut file = File::from(fd);
    file.seek(SeekFrom::Start(0))?;
    let mut content = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut content)?;
    if content.len() as u64 > bytes_max {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    Ok(content)
}

/// Makes these signals wait, over `exec` too, until [`let_in`]: a program that has just begun would end by them.
pub fn hold_back(signals: &[Signal]) -> io::Result<()> {
    Ok(sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals.iter().copied().collect::<SigSet>()), None)?)
}

/// Starts a program with these signals let in that [wait](hold_back) here: it would inherit that they wait.
///
/// # Errors
/// As `spawn`.
pub fn spawn_letting_in(command: &mut Command, signals: &[Signal]) -> io::Result<Child> {
    let set: SigSet = signals.iter().copied().collect();
    let let_in = move || Ok(sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&set), None)?);
    // SAFETY: between fork and exec only sigprocmask is called, which is async-signal-safe, with a set made before; an error
    // becomes a number, without memory from the heap.
    unsafe { command.pre_exec(let_in) };
    command.spawn()
}

/// Lets signals in that were [held back](hold_back).
pub fn let_in(signals: &[Signal]) -> io::Result<()> {
    Ok(sigprocmask(SigmaskHow::SIG_UNBLOCK, Some(&signals.iter().copied().collect::<SigSet>()), None)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_started_without_the_signals_that_wait_here() {
        // On a thread of its own: signals wait thread by thread.
        let blocked = std::thread::spawn(|| {
            hold_back(&[Signal::SIGUSR1, Signal::SIGUSR2]).unwrap();
            let mut command = Command::new("grep");
            command.args(["SigBlk", "/proc/self/status"]).stdout(std::process::Stdio::piped());
            let child = spawn_letting_in(&mut command, &[Signal::SIGUSR1]).unwrap();
            String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()
        });
        let blocked = blocked.join().unwrap();
        let number = u64::from_str_radix(blocked.split_ascii_whitespace().nth(1).unwrap(), 16).unwrap();
        let bit = |signal: Signal| number & (1 << (signal as u64 - 1)) != 0;
        assert_eq!((bit(Signal::SIGUSR1), bit(Signal::SIGUSR2)), (false, true), "{blocked}");
    }

    #[test]
    fn a_kept_descriptor_is_there_after_exec() {
        let file = memory_file("test", b"from before").unwrap();
        let number = keep(&file).unwrap();
        let script = format!("cat /proc/self/fd/{number}");
        let run = || Command::new("sh").args(["-c", &script]).output().unwrap();
        assert_eq!(run().stdout, b"from before");
        keep_no_more(&file).unwrap();
        assert!(!run().status.success());
        assert_eq!(read_whole(file, 11).unwrap(), b"from before");
        assert!(read_whole(memory_file("test", b"from before").unwrap(), 10).is_err());
    }

    #[test]
    fn what_this_program_opened_is_not_taken() {
        let file = memory_file("test", b"x").unwrap();
        let number = keep(&file).unwrap();
        assert_eq!(take(number).unwrap_err().raw_os_error(), Some(libc::EBADF));
        assert_eq!(read_whole(file, 1).unwrap(), b"x");
        assert!(take(1).is_err() && take(-1).is_err());
    }
}
