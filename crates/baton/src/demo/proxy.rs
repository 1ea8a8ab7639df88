//! The proxy as a child process of its own: starts it, writes its file, asks it, ends it.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use baton_control::ask::{self, Whom};
use baton_control::protocol::{Outcome, Reply, Request, Status};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

/// How long the proxy may take from its start to its first answer.
const START_MAX: Duration = Duration::from_secs(20);
/// How often a starting proxy is asked.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How long the proxy may take to end when it is told to.
const STOP_MAX: Duration = Duration::from_secs(5);
/// How much of what the proxy says is kept, in bytes.
const TAIL_MAX: usize = 8 * 1024;

/// Why a proxy did not start.
#[derive(Debug)]
pub enum NotStarted {
    /// Somebody else has one of its addresses.
    InUse,
    /// Anything else, as text for people.
    Failed(String),
}

/// A proxy that serves. Dropping it kills it.
#[derive(Debug)]
pub struct Proxy {
    child: Child,
    files: DemoFiles,
    said: OutputTail,
}

/// The proxy's directory and number, for those who only ask. Clones are about the same proxy.
#[derive(Clone, Debug)]
pub struct DemoFiles {
    pid: u32,
    /// Its configuration.
    pub cfg: PathBuf,
    /// The file with its number.
    pub pid_file: PathBuf,
}

impl Proxy {
    /// Writes the file, starts this very program with it and waits until it serves. The caller keeps the directory.
    ///
    /// # Errors
    /// [`NotStarted`] has the reason.
    pub async fn start(directory: &TempDir, cfg: &str) -> Result<Proxy, NotStarted> {
        let failed = |what: &str, error: io::Error| NotStarted::Failed(format!("{what}: {error}"));
        let mut files =
            DemoFiles { pid: 0, cfg: directory.path().join("haproxy.cfg"), pid_file: directory.path().join("pid") };
        files.write(cfg).map_err(NotStarted::Failed)?;
        let program =
            std::env::current_exe().map_err(|error| failed("cannot find the program file of this process", error))?;
        let mut child = Command::new(program)
            .arg("-f")
            .arg(&files.cfg)
            .arg("-db")
            .arg("-p")
            .arg(&files.pid_file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Ctrl-C is for the demo, which ends the proxy last.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed("cannot start the proxy", error))?;
        files.pid = child.id().unwrap_or_default();
        let said = OutputTail::listen(child.stderr.take());
        let mut proxy = Proxy { child, files, said };
        match proxy.serves().await {
            Ok(()) => Ok(proxy),
            Err(text) => match proxy.said.text().contains("already in use") {
                true => Err(NotStarted::InUse),
                false => Err(NotStarted::Failed(text)),
            },
        }
    }

    /// For those who ask.
    pub fn files(&self) -> DemoFiles {
        self.files.clone()
    }

    /// Returns when the proxy has ended, with what it said last. It must not end by itself, so that is always a failure.
    /// May be dropped while it waits.
    pub async fn died(&mut self) -> String {
        let status = self.child.wait().await;
        self.said.rest().await;
        self.death(status)
    }

    /// Ends it: asks, and insists after a while.
    pub async fn stop(mut self) {
        // It may have ended already; then there is nobody to tell, and its number is still ours until it is waited for.
        if let Some(pid) = self.child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        if timeout(STOP_MAX, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }

    async fn serves(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + START_MAX;
        loop {
            match self.child.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => {
                    self.said.rest().await;
                    return Err(self.death(Ok(status)));
                }
                Err(error) => return Err(format!("cannot wait for the proxy: {error}")),
            }
            let Err(reason) = self.files.status().await else { return Ok(()) };
            if Instant::now() >= deadline {
                return Err(format!("the proxy does not respond: {reason}\n{}", self.said.text()));
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn death(&self, status: io::Result<ExitStatus>) -> String {
        let how = status.map_or_else(|error| error.to_string(), |status| status.to_string());
        format!("the proxy ended ({how}); its last messages:\n{}", self.said.text())
    }
}

impl DemoFiles {
    /// Replaces the configuration, whole at any moment.
    ///
    /// # Errors
    /// A sentence.
    pub fn write(&self, cfg: &str) -> Result<(), String> {
        let new = self.cfg.with_extension("new");
        let written = std::fs::write(&new, cfg).and_then(|()| std::fs::rename(&new, &self.cfg));
        written.map_err(|error| format!("{}: {error}", self.cfg.display()))
    }

    /// Asks for a reload, as `baton reload` does, and waits for what became of it.
    ///
    /// # Errors
    /// A sentence, when there was no answer. A refusal is an answer.
    pub async fn reload(&self) -> Result<Outcome, String> {
        match self.ask(Request::Reload).await? {
            Reply::Reload(outcome) => Ok(outcome),
            other => Err(unexpected(other)),
        }
    }

    /// Asks how the proxy is.
    ///
    /// # Errors
    /// A sentence, when there was no answer.
    pub async fn status(&self) -> Result<Status, String> {
        match self.ask(Request::Status).await? {
            Reply::Status(status) => Ok(*status),
            other => Err(unexpected(other)),
        }
    }

    async fn ask(&self, request: Request) -> Result<Reply, String> {
        let pid = self.pid;
        let asked = tokio::task::spawn_blocking(move || ask::ask(Whom::Pid(pid), request));
        match timeout(ANSWER_MAX, asked).await {
            Ok(Ok(reply)) => reply,
            Ok(Err(error)) => Err(format!("cannot send the request: {error}")),
            Err(_) => Err(format!("no reply within {} s", ANSWER_MAX.as_secs())),
        }
    }
}

fn unexpected(reply: Reply) -> String {
    match reply {
        Reply::Failed { reason } => reason,
        other => format!("unexpected reply: {other:?}"),
    }
}

/// The end of what a process says.
#[derive(Debug)]
struct OutputTail {
    /// Written by the task that listens, read by whoever shows it.
    tail: Arc<Mutex<VecDeque<u8>>>,
    listening: Option<JoinHandle<()>>,
}

impl OutputTail {
    fn listen(from: Option<impl AsyncRead + Unpin + Send + 'static>) -> OutputTail {
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let into = tail.clone();
        let listen = |mut from| async move {
            let mut bytes = [0; 1024];
            while let Ok(length @ 1..) = AsyncReadExt::read(&mut from, &mut bytes).await {
                let mut tail = into.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                tail.extend(&bytes[..length]);
                let surplus = tail.len().saturating_sub(TAIL_MAX);
                tail.drain(..surplus);
            }
        };
        OutputTail { tail, listening: from.map(|from| tokio::spawn(listen(from))) }
    }

    /// Waits for the last words of a process that has ended. Bounded, for a child of its own could still hold the pipe.
    async fn rest(&mut self) {
        if let Some(listening) = &mut self.listening {
            let _ = timeout(Duration::from_secs(1), listening).await;
        }
        self.listening = None;
    }

    fn text(&self) -> String {
        let tail = self.tail.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        String::from_utf8_lossy(&tail.iter().copied().collect::<Vec<u8>>()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_end_of_what_is_said_is_kept() {
        let said = [vec![b'a'; TAIL_MAX], b"the end".to_vec()].concat();
        let mut heard = OutputTail::listen(Some(std::io::Cursor::new(said)));
        heard.rest().await;
        assert_eq!(heard.text().len(), TAIL_MAX);
        assert!(heard.text().ends_with("athe end"));
    }
}
