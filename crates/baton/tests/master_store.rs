//! Listening sockets in systemd's descriptor store: what systemd is given while the service runs, and that a service of which
//! every process was killed goes on with them. Systemd is played by this test, by its own protocol: descriptors come by
//! `FDSTORE=1` with their names, and go back by `LISTEN_FDS` and `LISTEN_FDNAMES`.

mod support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use baton_kernel::{Endpoint, inherit};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use support::{PATIENCE, Proxy, free_address, until};
use tempfile::TempDir;

/// Who waits while there is no service.
const WAITING: usize = 20;

fn config(addresses: &[SocketAddr]) -> String {
    let binds: String = addresses.iter().map(|address| format!(" bind {address}\n")).collect();
    format!(
        "global\n nbthread 2\n maxconn 500\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n \
         timeout server 30s\nfrontend web\n{binds} http-request return status 200\n"
    )
}

/// Systemd's part: a socket to be told at, and the store.
struct Manager {
    folder: TempDir,
    socket: UnixDatagram,
    store: BTreeMap<String, OwnedFd>,
    told: Vec<String>,
}

impl Manager {
    fn new() -> Manager {
        let folder = tempfile::tempdir().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_nonblocking(true).unwrap();
        Manager { folder, socket, store: BTreeMap::new(), told: Vec::new() }
    }

    fn variable(&self) -> String {
        format!("NOTIFY_SOCKET={}", self.folder.path().join("notify").display())
    }

    /// Does what the service said until now.
    fn listen(&mut self) {
        let mut text = [0; 4096];
        while let Ok(received) = inherit::receive(&self.socket, &mut text) {
            let text = String::from_utf8_lossy(&text[..received.length]).into_owned();
            let name = text.lines().find_map(|line| line.strip_prefix("FDNAME=")).unwrap_or_default().to_owned();
            if text.starts_with("FDSTOREREMOVE=1") {
                self.store.remove(&name);
            } else if text.starts_with("FDSTORE=1") {
                assert!(!name.contains(':') && received.fds.len() == 1, "{text}");
                self.store.extend(received.fds.into_iter().map(|fd| (name.clone(), fd)));
            }
            self.told.push(text);
        }
    }

    /// How many sockets of an address are in the store.
    fn stored(&mut self, address: SocketAddr) -> usize {
        self.listen();
        let is_at =
            |fd: &&OwnedFd| matches!(Endpoint::local_of(fd), Ok(Some(Endpoint::Inet(local))) if local == address);
        self.store.values().filter(is_at).count()
    }

    /// What starts the service with what is in the store.
    fn starts_it_again(&mut self) -> Vec<String> {
        self.listen();
        let mut script = String::from("import os, sys; ");
        for (number, fd) in (3..).zip(self.store.values()) {
            fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty())).unwrap();
            // First out of the way: the place of one may be the number of another.
            script += &format!("os.dup2({}, {number} + 500); ", fd.as_raw_fd());
        }
        for number in 3..3 + self.store.len() {
            script += &format!("os.dup2({number} + 500, {number}); os.close({number} + 500); ");
        }
        // What else this test has open is not the service's.
        script += &format!("os.closerange({}, 400); ", 3 + self.store.len());
        let names: Vec<&str> = self.store.keys().map(String::as_str).collect();
        script += &format!(
            "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='{}', LISTEN_FDNAMES='{}'); \
             os.execv(sys.argv[1], sys.argv[1:])",
            names.len(),
            names.join(":")
        );
        ["env", &self.variable(), "python3", "-c", &script].map(str::to_owned).to_vec()
    }
}

/// Ends every process of the service at once, as systemd does when the main one has died.
fn kill_all(proxy: Proxy) {
    let worker = proxy.status().pid;
    proxy.signal(Signal::SIGKILL);
    kill(Pid::from_raw(worker as i32), Signal::SIGKILL).unwrap();
    proxy.wait();
    until("the worker has ended", || !std::path::Path::new(&format!("/proc/{worker}/fd/0")).exists());
}

fn answer(mut stream: TcpStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answer = String::new();
    let _ = write!(stream, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn is_refused(address: SocketAddr) -> bool {
    let connected = TcpStream::connect_timeout(&address, Duration::from_millis(100));
    connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
}

#[test]
fn a_service_that_died_whole_goes_on_with_its_sockets() {
    let mut manager = Manager::new();
    let (web, other, gone) = (free_address(), free_address(), free_address());
    let proxy = Proxy::start_under(&["env", &manager.variable()], &config(&[web]), &["-Ws"]);
    until("its sockets are stored", || manager.stored(web) == 2);
    assert!(manager.told[0].starts_with("READY=1"), "the first word: {:?}", manager.told);

    // A reload stores what is new and takes out what is gone.
    proxy.change(&config(&[web, other, gone]));
    until("new ones are stored", || manager.stored(other) == 2 && manager.stored(gone) == 2);
    proxy.change(&config(&[web, gone]));
    until("closed ones are taken out", || manager.stored(other) == 0);
    assert_eq!((manager.stored(web), manager.stored(gone)), (2, 2));
    assert!(is_refused(other));

    kill_all(proxy);
    let waiting: Vec<_> = (0..WAITING).map(|_| TcpStream::connect(web).expect("nobody is refused")).collect();
    // The files were changed meanwhile: one address goes, one is new.
    let wrapper = manager.starts_it_again();
    let words: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let proxy = Proxy::start_under(&words, &config(&[web, other]), &["-Ws"]);
    for stream in waiting {
        assert!(answer(stream).contains(" 200 "), "who waited is served");
    }
    until("it stores the new one, and takes out what it does not want", || {
        manager.stored(gone) == 0 && manager.stored(other) == 2 && manager.stored(web) == 2
    });
    until("that one is closed", || is_refused(gone));

    // And again, with what was stored by two services; and what came from the store can be removed.
    kill_all(proxy);
    let waiting = TcpStream::connect(web).expect("nobody is refused");
    let wrapper = manager.starts_it_again();
    let words: Vec<&str> = wrapper.iter().map(String::as_str).collect();
    let proxy = Proxy::start_under(&words, &config(&[web, other]), &["-Ws"]);
    assert!(answer(waiting).contains(" 200 "));
    proxy.change(&config(&[other]));
    until("it is taken out", || manager.stored(web) == 0);
    until("it is closed", || is_refused(web));
    proxy.signal(Signal::SIGTERM);
    assert_eq!(proxy.wait().0.code(), Some(0));
}
