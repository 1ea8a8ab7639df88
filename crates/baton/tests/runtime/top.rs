//! `baton top` on a real terminal, beside Baton and beside Debian's haproxy.

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};

use baton_prove::{Origin, OriginHandle, OriginOptions};

use crate::peers::socat;
use crate::support::haproxy::Haproxy;
use crate::support::{Proxy, free_address, program, until};
use crate::table::{cell, table};

/// What a terminal shows: it understands what `baton top` sends, and nothing else.
#[derive(Default)]
struct Screen {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// A sequence that is not complete.
    sequence: Option<String>,
}

impl Screen {
    fn take(&mut self, text: &str) {
        for character in text.chars() {
            match (&mut self.sequence, character) {
                (Some(sequence), character) => {
                    sequence.push(character);
                    let is_csi = sequence.starts_with('[');
                    if !is_csi || (sequence.len() > 1 && ('@'..='~').contains(&character)) {
                        let sequence = self.sequence.take().unwrap_or_default();
                        self.obey(&sequence);
                    }
                }
                (None, '\u{1b}') => self.sequence = Some(String::new()),
                (None, '\r') => self.at.1 = 0,
                (None, '\n') => self.at.0 += 1,
                (None, character) => {
                    let (row, column) = self.at;
                    if self.cells.len() <= row {
                        self.cells.resize(row + 1, Vec::new());
                    }
                    let line = &mut self.cells[row];
                    if line.len() <= column {
                        line.resize(column + 1, ' ');
                    }
                    line[column] = character;
                    self.at.1 += 1;
                }
            }
        }
    }

    fn obey(&mut self, sequence: &str) {
        let numbers = |text: &str| text.split(';').map(|one| one.parse::<usize>().unwrap_or(1)).collect::<Vec<_>>();
        match sequence.strip_prefix('[') {
            Some(place) if place.ends_with('H') => {
                let numbers = numbers(&place[..place.len() - 1]);
                self.at = (numbers[0].max(1) - 1, numbers.get(1).copied().unwrap_or(1).max(1) - 1);
            }
            Some("2J") => self.cells.clear(),
            _ => {}
        }
    }

    fn text(&self) -> String {
        self.cells.iter().map(|line| line.iter().collect::<String>() + "\n").collect()
    }
}

/// `baton top` on a terminal that `script` makes for it.
struct Top {
    child: Child,
    keys: ChildStdin,
    screen: Arc<Mutex<Screen>>,
    folder: tempfile::TempDir,
}

impl Top {
    fn start(arguments: &str, rows: u16, columns: u16) -> Top {
        Top::begin("", arguments, (rows, columns))
    }

    /// As the argument of a program that executes it in the end.
    fn start_under(wrapper: &str, arguments: &str) -> Top {
        Top::begin(wrapper, arguments, (20, 100))
    }

    fn begin(wrapper: &str, arguments: &str, (rows, columns): (u16, u16)) -> Top {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let (tty, code) = (folder.path().join("tty"), folder.path().join("code"));
        let run = format!(
            "stty rows {rows} cols {columns}; tty > {}; {wrapper} {} top -n 0.1 {arguments}; echo $? > {}",
            tty.display(),
            program().display(),
            code.display()
        );
        let mut child = Command::new("script")
            .env("TERM", "xterm")
            .args(["-qec", &run, "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("script is installed by scripts/setup test");
        let (mut output, keys) = (child.stdout.take().expect("it is piped"), child.stdin.take().expect("it is piped"));
        let screen = Arc::new(Mutex::new(Screen::default()));
        std::thread::spawn({
            let screen = Arc::clone(&screen);
            move || {
                let mut room = [0; 4096];
                while let Ok(length @ 1..) = output.read(&mut room) {
                    let text = String::from_utf8_lossy(&room[..length]).into_owned();
                    screen.lock().unwrap_or_else(PoisonError::into_inner).take(&text);
                }
            }
        });
        Top { child, keys, screen, folder }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner).text()
    }

    #[track_caller]
    fn shows(&self, part: &str) {
        let end = std::time::Instant::now() + crate::support::PATIENCE;
        while !self.text().contains(part) {
            assert!(std::time::Instant::now() < end, "'{part}' is not shown:\n{}", self.text());
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).and_then(|()| self.keys.flush()).expect("the terminal is there");
    }

    fn resize(&self, rows: u16, columns: u16) {
        let tty = fs::read_to_string(self.folder.path().join("tty")).expect("it has begun");
        let size = ["rows", &rows.to_string(), "cols", &columns.to_string()];
        let done = Command::new("stty").args(["-F", tty.trim()]).args(size).status();
        assert!(done.is_ok_and(|status| status.success()));
    }

    /// Its exit code, once it has ended.
    fn code(&self) -> Option<String> {
        fs::read_to_string(self.folder.path().join("code")).ok().filter(|text| text.ends_with('\n'))
    }

    #[track_caller]
    fn ends(&self, expect: &str) {
        until("it ends", || self.code().is_some());
        assert_eq!(self.code().as_deref().map(str::trim), Some(expect), "{}", self.text());
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(folder: &Path, level: &str, origin: &OriginHandle) -> (String, PathBuf) {
    let socket = folder.join("s.sock");
    let text = format!(
        "global\n stats socket {} level {level}\n stats timeout 20s\ndefaults\n mode http\n timeout connect 5s\n timeout client 5s\n \
         timeout server 5s\nfrontend shopfront\n bind {}\n default_backend kitchen\nbackend kitchen\n server stove {}\n \
         server oven 127.0.0.1:9 check inter 50ms fall 1\n",
        socket.display(),
        free_address(),
        origin.address(),
    );
    (text, socket)
}

fn status(socket: &Path, server: &str) -> String {
    cell(&table(&socat(socket, "show stat\n")), "kitchen", server, "status").to_owned()
}

/// Rows, a filter, a confirmed and an unconfirmed change, another size.
fn watch(name: &str, socket: &Path) {
    let mut top = Top::start(&socket.display().to_string(), 20, 100);
    top.shows("< shopfront     OPEN");
    top.shows(name);
    top.shows("kitchen/stove");
    top.shows("DOWN");
    // The third row is the server.
    top.press("jd");
    top.shows("Drain server kitchen/stove?");
    top.press("n");
    top.shows("nothing changed");
    assert_ne!(status(socket, "stove"), "DRAIN");
    top.press("dy");
    top.shows("done: set server kitchen/stove state drain");
    until("it drains", || status(socket, "stove").starts_with("DRAIN"));
    top.shows("DRAIN");
    top.press("xy");
    until("it is in maintenance", || status(socket, "stove").starts_with("MAINT"));
    top.shows("done: set server kitchen/stove state maint");
    top.press("ey");
    until("it is enabled", || !status(socket, "stove").starts_with("MAINT"));
    top.shows("done: set server kitchen/stove state ready");
    top.press("/oven\r");
    top.shows(", 'oven'");
    until("other rows are gone", || !top.text().contains("kitchen/stove "));
    top.resize(6, 40);
    until("the screen is small", || {
        let text = top.text();
        !text.contains("QUEUE") && text.contains("kitchen/oven")
    });
    top.resize(4, 40);
    top.shows("the terminal is too small");
    top.resize(20, 100);
    top.shows("QUEUE");
    top.press("q");
    top.ends("0");
}

#[test]
fn top_works_on_sockets_of_baton_and_haproxy() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (text, socket) = config(folder.path(), "admin", &origin);
    let proxy = Proxy::start(&text);
    watch("Baton 2.6", &socket);
    // Without a socket it finds the one of the process.
    let mut top = Top::start(&format!("--pid {}", proxy.pid()), 20, 100);
    top.shows("kitchen/stove");
    top.press("\u{3}");
    top.ends("0");
    drop(proxy);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (text, socket) = config(folder.path(), "admin", &origin);
    let _haproxy = Haproxy::start(&text, &socket);
    watch("HAProxy 2.6", &socket);
}

#[test]
fn top_says_what_it_may_not_do_and_waits_for_a_socket_that_vanished() {
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (text, socket) = config(folder.path(), "operator", &origin);
    let proxy = Proxy::start(&text);
    let mut top = Top::start(&socket.display().to_string(), 20, 100);
    top.shows("kitchen/stove");
    top.press("jxy");
    top.shows("Permission denied");
    drop(proxy);
    let _ = fs::remove_file(&socket);
    top.shows("No reply: ");
    top.shows("kitchen/stove");
    let _proxy = Proxy::start(&text);
    until("it is back", || !top.text().contains("No reply: "));
    top.press("q");
    top.ends("0");

    if nix::unistd::geteuid().is_root() {
        // The folder is root's alone.
        let other =
            Top::start_under("setpriv --reuid 65534 --regid 65534 --clear-groups", &socket.display().to_string());
        other.shows("no permission to connect to the socket");
        other.ends("1");
    } else {
        eprintln!("SKIPPED: only root becomes another user");
    }
    let missing = Top::start("/no/such.sock", 20, 100);
    missing.shows("/no/such.sock: no such socket");
    missing.ends("1");
    let plain =
        Command::new(program()).args(["top", "/no/such.sock"]).stdin(Stdio::null()).output().expect("it was built");
    assert_eq!(plain.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&plain.stderr).contains("top needs a terminal"), "{plain:?}");
}
