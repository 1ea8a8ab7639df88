//! The program under test: started in the foreground, ready when it listens, stopped softly.

use std::fs::File;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use baton_kernel::listeners::listening;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::places::{Place, Places};

/// Longest time from the start to listening, and from a soft stop to the end; generous, for a machine that does much else.
const WAIT_MAX: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(2);

/// The running program; killed when dropped.
pub struct Program {
    is_reference: bool,
    child: Child,
    errors: PathBuf,
}

impl Program {
    /// Starts `program -f file -db` and waits until it listens on every listening place in `cfg`.
    pub fn start(program: &Path, file: &Path, cfg: &str, places: &Places, folder: &Path) -> Result<Program, String> {
        let errors = folder.join("stderr");
        let stderr = File::create(&errors).map_err(|error| error.to_string())?;
        let child = Command::new(program)
            .arg("-f")
            .arg(file)
            .arg("-db")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        let mut program = Program { is_reference: program == Path::new(crate::REFERENCE), child, errors };
        let until = Instant::now() + WAIT_MAX;
        for place in bound(cfg, places) {
            while !listens(place) {
                if let Ok(Some(status)) = program.child.try_wait() {
                    return Err(format!("the program ended at once ({status}):\n{}", program.said()));
                }
                if Instant::now() > until {
                    return Err(format!("the program does not listen on {place}:\n{}", program.said()));
                }
                thread::sleep(POLL);
            }
        }
        Ok(program)
    }

    /// Asks it to stop softly and waits for the end; says what was wrong with that.
    pub fn stop(mut self) -> Option<String> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(format!("ended ({status}):\n{}", self.said()));
        }
        let pid = i32::try_from(self.child.id()).ok()?;
        let _ = kill(Pid::from_raw(pid), Signal::SIGUSR1);
        let until = Instant::now() + WAIT_MAX;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.child.try_wait() {
                if self.is_reference && status.signal() == Some(Signal::SIGSEGV as i32) {
                    // Debian's 2.6.12 crashes now and then when it has stopped all proxies, on a busy machine: everything was served by then.
                    return None;
                }
                return (!status.success()).then(|| format!("ended badly ({status}):\n{}", self.said()));
            }
            thread::sleep(POLL);
        }
        Some("did not end after SIGUSR1".to_string())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.errors).unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The listening places of `cfg`, but for those in lines that say `# unbound`.
fn bound<'a>(cfg: &str, places: &'a Places) -> Vec<&'a Place> {
    let lines: String =
        cfg.lines().filter(|line| !line.contains("# unbound")).map(|line| format!("{line}\n")).collect();
    places
        .by_name
        .iter()
        .filter(|(name, _)| name.starts_with(['L', 'U']) && lines.contains(&format!("${{{name}")))
        .map(|(_, place)| place)
        .collect()
}

/// Whether somebody listens at the place. It is asked every other millisecond, and by sock_diag(7), which looks at listening sockets alone:
/// `/proc/net/tcp` walks the table of all connections, which takes a hundred times as long.
fn listens(place: &Place) -> bool {
    match place {
        Place::Unix(path) => path.exists(),
        Place::Inet(address) => listening(address.port())
            .expect("the kernel tells listening sockets to everybody")
            .iter()
            .any(|listener| listener.local.ip().is_loopback() || listener.local.ip().is_unspecified()),
    }
}
