//! Both programs with the same file, and `socat` to talk to them.

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::support::Proxy;
use crate::support::haproxy::Haproxy;

/// The two programs with one configuration, in which `SOCKETS` stands for a folder of their own each.
pub struct Both {
    _programs: (Proxy, Haproxy),
    folders: [TempDir; 2],
}

impl Both {
    /// Starts both; `text` gets the folder for its sockets.
    #[track_caller]
    pub fn start(text: impl Fn(&Path) -> String) -> Both {
        Both::start_each(&text, &text)
    }

    /// Starts Baton with the first and haproxy with the second text.
    #[track_caller]
    pub fn start_each(baton: impl Fn(&Path) -> String, haproxy: impl Fn(&Path) -> String) -> Both {
        Both::start_with(&[], baton, haproxy)
    }

    /// Starts both programs with these arguments.
    #[track_caller]
    pub fn start_with(arguments: &[&str], baton: impl Fn(&Path) -> String, haproxy: impl Fn(&Path) -> String) -> Both {
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder for the test"));
        let baton = Proxy::start_with(&baton(folders[0].path()), arguments);
        let words: Vec<&OsStr> = arguments.iter().map(OsStr::new).collect();
        let socket = folders[1].path().join("admin.sock");
        let haproxy = Haproxy::start_with(&haproxy(folders[1].path()), &socket, &words);
        Both { _programs: (baton, haproxy), folders }
    }

    /// Where Baton's socket of that name is.
    pub fn baton(&self, name: &str) -> PathBuf {
        self.folders[0].path().join(name)
    }

    /// Where haproxy's is.
    pub fn haproxy(&self, name: &str) -> PathBuf {
        self.folders[1].path().join(name)
    }
}

/// What `socat` prints when this is typed, after the other side closed.
#[track_caller]
pub fn socat(socket: &Path, input: impl AsRef<[u8]>) -> String {
    socat_at(&format!("UNIX-CONNECT:{}", socket.display()), input)
}

/// Sends the input to any address that socat knows.
#[track_caller]
pub fn socat_at(address: &str, input: impl AsRef<[u8]>) -> String {
    let mut child = Command::new("socat")
        .args(["-t", "30", "-", address])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("socat is installed by scripts/setup test");
    let input = input.as_ref().to_vec();
    let mut stdin = child.stdin.take().expect("it is piped");
    let writer = std::thread::spawn(move || {
        // The other side may have heard enough.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().expect("it is our child");
    writer.join().expect("the writer does not panic");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
