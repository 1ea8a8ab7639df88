//! Commands of an operator: words for `sh`, with a limit of time, that end at the latest when this process does, however that
//! ends.
//!
//! A command runs in a process group that is led by a guardian, a shell that waits for a word from us. When the word does not come,
//! because we were killed, it kills the group and itself. A process that leaves the group, as a daemon does, lives on; so
//! does what a command that has ended left in the background.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// What the guardian does: 0 is its own group.
const GUARDIAN: &str = "read -r done || kill -KILL 0";
/// Time from one look at a command to the next.
const PAUSE: Duration = Duration::from_millis(5);

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// By itself.
    By(ExitStatus),
    /// Not in time: it was killed with all it had started and not made independent.
    Late,
}

/// Runs a command to its end, with these variables in its environment. It reads nothing; what it prints goes where ours goes.
///
/// # Errors
/// When it cannot be started.
pub(super) fn run(words: &str, variables: &[(&str, String)], limit: Duration) -> io::Result<Ended> {
    let end = Instant::now() + limit;
    let guardian = GroupGuardian::start()?;
    let mut child = Command::new("sh")
        .args(["-c", words])
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .process_group(guardian.group().as_raw())
        .spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            guardian.dismiss();
            return Ok(Ended::By(status));
        }
        if Instant::now() >= end {
            drop(guardian);
            child.wait()?;
            return Ok(Ended::Late);
        }
        thread::sleep(PAUSE);
    }
}

/// As an operator would type it.
pub(super) fn typed(words: &str, variables: &[(&str, String)]) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\'', "'\\''"));
    let variables: String = variables.iter().map(|(name, value)| format!("{name}={} ", quoted(value))).collect();
    format!("{variables}sh -c {}", quoted(words))
}

/// The leader of a command's process group. Dropped, it takes the group with it.
#[derive(Debug)]
struct GroupGuardian {
    shell: Child,
    is_dismissed: bool,
}

impl GroupGuardian {
    fn start() -> io::Result<GroupGuardian> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(GroupGuardian { shell: command.process_group(0).spawn()?, is_dismissed: false })
    }

    fn group(&self) -> Pid {
        Pid::from_raw(self.shell.id().cast_signed())
    }

    /// Nobody is to be killed any more.
    fn dismiss(mut self) {
        self.is_dismissed = self.shell.stdin.take().is_some_and(|mut pipe| pipe.write_all(b"\n").is_ok());
    }
}

impl Drop for GroupGuardian {
    fn drop(&mut self) {
        if !self.is_dismissed {
            let _ = killpg(self.group(), Signal::SIGKILL);
        }
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(30);

    #[test]
    fn a_command_that_ends_in_time_leaves_what_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let gate = folder.path().join("gate");
        let made = folder.path().join("made");
        // What is left in the background waits until the command has ended for us.
        let words = format!(
            "mkfifo {gate}; (read line <{gate}; echo $WHO >{made}.new; mv {made}.new {made}) & exit 3",
            gate = gate.display(),
            made = made.display()
        );
        let ended = run(&words, &[("WHO", "blue".into())], PATIENCE).unwrap();
        assert!(matches!(ended, Ended::By(status) if status.code() == Some(3)), "{ended:?}");
        fs::write(&gate, "go\n").unwrap();
        let end = Instant::now() + PATIENCE;
        while !made.exists() {
            assert!(Instant::now() < end, "it was killed");
            thread::sleep(PAUSE);
        }
        assert_eq!(fs::read_to_string(&made).unwrap(), "blue\n");
    }

    #[test]
    fn a_late_command_is_killed_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let pids = folder.path().join("pids");
        let words = format!("sleep 300 & echo $! >{}; sleep 300", pids.display());
        assert_eq!(run(&words, &[], Duration::from_secs(2)).unwrap(), Ended::Late);
        let pid: i32 = fs::read_to_string(&pids).unwrap().trim().parse().unwrap();
        // Nobody of ours takes leave of it; one that is dead has no command line any more.
        let is_dead = || fs::read(format!("/proc/{pid}/cmdline")).map_or(true, |line| line.is_empty());
        let end = Instant::now() + PATIENCE;
        while !is_dead() {
            assert!(Instant::now() < end, "it lives");
            thread::sleep(PAUSE);
        }
    }

    #[test]
    fn a_plan_can_be_typed() {
        let line = typed("echo 'it' is $WHO", &[("WHO", "blue at 127.0.0.1:1".into())]);
        let output = Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "it is blue at 127.0.0.1:1\n");
    }
}
