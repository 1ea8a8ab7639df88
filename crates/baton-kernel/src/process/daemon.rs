//! Leaving the terminal: fork, a session of its own, and an exit code that is true.
//!
//! The parent stays until its child says that it serves (or has died), so that whoever started us learns from
//! the exit code whether there is a service now.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;

use nix::fcntl::OFlag;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, dup2_stderr, dup2_stdin, dup2_stdout, fork, pipe2, setsid};

/// Which of the two processes we are after [`daemonize`].
#[derive(Debug)]
pub enum Daemonized {
    /// The one that was started: wait and exit with the answer.
    Parent(ParentEnd),
    /// The daemon, leader of its own session.
    Child(ChildEnd),
}

/// Forks.
///
/// # Errors
/// `Unsupported` when this process has more than one thread: the child would have only ours, and the locks of
/// the others would stay shut. Fork first, then start threads.
pub fn daemonize() -> io::Result<Daemonized> {
    if threads()? != 1 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "a process with several threads cannot fork safely"));
    }
    let nowhere = Nowhere::open()?;
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // SAFETY: this is the only thread (checked above, and only this thread could start another), so the child
    // is a complete copy: no lock is held by a thread that does not exist there.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => {
            drop(write);
            Ok(Daemonized::Parent(ParentEnd { child, pipe: File::from(read) }))
        }
        ForkResult::Child => {
            drop(read);
            setsid()?;
            Ok(Daemonized::Child(ChildEnd { pipe: write, nowhere }))
        }
    }
}

/// The end of the process that was started.
#[derive(Debug)]
pub struct ParentEnd {
    child: Pid,
    pipe: File,
}

impl ParentEnd {
    /// The daemon's process id.
    pub fn child(&self) -> i32 {
        self.child.as_raw()
    }

    /// Waits for the daemon and gives the exit code: 0 when it says that it is ready, otherwise its own exit
    /// code, or 128 and the number of the signal that ended it.
    pub fn wait(mut self) -> i32 {
        let mut said = [0; 1];
        if self.pipe.read_exact(&mut said).is_ok() {
            return 0;
        }
        match waitpid(self.child, None) {
            Ok(WaitStatus::Exited(_, code)) => code.max(1),
            Ok(WaitStatus::Signaled(_, signal, _)) => 128 + signal as i32,
            Ok(_) | Err(_) => 1,
        }
    }
}

/// The daemon's end. Dropped without [`ready`](Self::ready), it lets the parent wait for our exit code.
#[derive(Debug)]
pub struct ChildEnd {
    pipe: OwnedFd,
    nowhere: Nowhere,
}

impl ChildEnd {
    /// Tells the parent that we serve, and points standard input, output and error to `/dev/null` if
    /// `close_terminal` (HAProxy does, once it has nothing more to say). A parent that is gone is no error.
    pub fn ready(self, close_terminal: bool) -> io::Result<()> {
        if close_terminal {
            self.nowhere.replace_terminal()?;
        }
        match File::from(self.pipe).write_all(&[0]) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

/// `/dev/null`, opened while it can be: a process that has another root directory since has none.
#[derive(Debug)]
pub struct Nowhere {
    null: File,
}

impl Nowhere {
    /// Opens it.
    pub fn open() -> io::Result<Nowhere> {
        Ok(Nowhere { null: OpenOptions::new().read(true).write(true).open("/dev/null")? })
    }

    /// Points standard input, output and error there.
    pub fn replace_terminal(&self) -> io::Result<()> {
        dup2_stdin(&self.null)?;
        dup2_stdout(&self.null)?;
        dup2_stderr(&self.null)?;
        Ok(())
    }
}

/// Threads of this process.
fn threads() -> io::Result<usize> {
    Ok(fs::read_dir("/proc/self/task")?.count())
}
