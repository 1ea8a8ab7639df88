//! Telling systemd how we are (`sd_notify(3)`), as HAProxy does under `-Ws`; and more than HAProxy: a status line, the start
//! of a reload with its time (`Type=notify-reload`), a watchdog, and sockets left in systemd's keeping.
//!
//! What is told is one datagram, and nothing waits for it: a service manager that does not listen has nothing to act on.
//! Sockets that are put into its keeping, or taken out again, wait a little for a manager that is busy.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use baton_kernel::inherit;
use nix::time::{ClockId, clock_gettime};

/// Descriptors that one datagram hands to the descriptor store.
const STORE_FDS_MAX: usize = 128;

/// How long a manager may be too busy to take them. Its queue holds some hundred datagrams.
const STORE_WITHIN: Duration = Duration::from_secs(1);

/// Bytes of a status line; `systemctl status` shows one line.
const STATUS_BYTES_MAX: usize = 512;

/// The way to the service manager; without one, telling does nothing.
#[derive(Debug, Default)]
pub struct ServiceManager {
    socket: Option<UnixDatagram>,
}

impl ServiceManager {
    /// Connects to the socket that `NOTIFY_SOCKET` names: a path, or an abstract name after `@`. To be called before `chroot`.
    ///
    /// # Errors
    /// When the named socket is not there.
    pub fn connect(name: Option<&OsStr>) -> io::Result<ServiceManager> {
        let Some(name) = name.filter(|name| !name.is_empty()) else { return Ok(ServiceManager::default()) };
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(ServiceManager { socket: Some(socket) })
    }

    /// Whether there is somebody to tell.
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// We serve; also the end of a reload. `status` is a sentence for whoever asks systemd.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nMAINPID={}{}", std::process::id(), status_line(status)));
    }

    /// The files are being read again. The time lets systemd tell this reload from one before (`Type=notify-reload`).
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// A stop has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// How we are, in a sentence.
    pub fn status(&self, status: &str) {
        self.tell(status_line(status).trim_start());
    }

    /// Somebody who could notice a stand-still has found none.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1");
    }

    /// Leaves sockets in the descriptor store under one name (letters, digits and `-`), where they outlive a crash of the
    /// whole service (`FileDescriptorStoreMax=`); the next start finds them in `LISTEN_FDS`.
    ///
    /// # Errors
    /// When systemd did not take them.
    pub fn store(&self, name: &str, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        let text = format!("FDSTORE=1\nFDNAME={name}");
        sockets.chunks(STORE_FDS_MAX).try_for_each(|some| send_when_it_listens(socket, &text, some))
    }

    /// Takes what was stored under this name out of the store. A name that is not there is no error.
    ///
    /// # Errors
    /// When systemd did not listen: the sockets stay open.
    pub fn unstore(&self, name: &str) -> io::Result<()> {
        let Some(socket) = &self.socket else { return Ok(()) };
        send_when_it_listens(socket, &format!("FDSTOREREMOVE=1\nFDNAME={name}"), &[])
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A manager that does not listen has nothing to act on.
            let _ = socket.send(text.as_bytes());
        }
    }
}

/// Sends as soon as there is room in the manager's queue.
fn send_when_it_listens(socket: &UnixDatagram, text: &str, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    socket.set_write_timeout(Some(STORE_WITHIN))?;
    socket.set_nonblocking(false)?;
    let sent = inherit::send(&socket.as_fd(), text.as_bytes(), fds);
    socket.set_nonblocking(true)?;
    sent.map(|_| ())
}

/// `\nSTATUS=…`, without what would begin another assignment; empty without a status.
fn status_line(status: &str) -> String {
    if status.is_empty() {
        return String::new();
    }
    let mut line: String = status.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let end = (0..=STATUS_BYTES_MAX.min(line.len())).rev().find(|&at| line.is_char_boundary(at)).unwrap_or_default();
    line.truncate(end);
    format!("\nSTATUS={line}")
}

/// How often systemd wants to hear of us: half of what `WATCHDOG_USEC` says, if `WATCHDOG_PID` means this process.
pub fn watchdog_interval(var: impl Fn(&str) -> Option<String>, pid: u32) -> Option<Duration> {
    if var("WATCHDOG_PID").is_some_and(|wanted| wanted.trim() != pid.to_string()) {
        return None;
    }
    let micros: u64 = var("WATCHDOG_USEC")?.trim().parse().ok()?;
    (micros > 1).then(|| Duration::from_micros(micros / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let next = || {
            let mut buffer = [0; 1000];
            let length = manager.recv(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..length]).into_owned()
        };
        let ours = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        ours.reloading();
        let text = next();
        let micros = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").expect(&text);
        assert!(micros.parse::<u64>().unwrap() > 0);
        ours.ready("");
        assert_eq!(next(), format!("READY=1\nMAINPID={}", std::process::id()));
        ours.ready("two\nlines");
        assert_eq!(next(), format!("READY=1\nMAINPID={}\nSTATUS=two lines", std::process::id()));
        ours.status(&"é".repeat(400));
        assert_eq!(next(), format!("STATUS={}", "é".repeat(STATUS_BYTES_MAX / 2)));
        ours.alive();
        assert_eq!(next(), "WATCHDOG=1");
        ours.unstore("baton").unwrap();
        assert_eq!(next(), "FDSTOREREMOVE=1\nFDNAME=baton");
        assert!(ServiceManager::connect(Some(OsStr::new("/no/such/socket"))).is_err());
        ServiceManager::connect(None).unwrap().stopping();
    }

    #[test]
    fn sockets_are_left_with_the_manager() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let ours = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        ours.store("baton", &[socket.as_fd(); STORE_FDS_MAX + 1]).unwrap();
        let mut counts = Vec::new();
        for _ in 0..2 {
            let mut buffer = [0; 100];
            let received = inherit::receive(&manager, &mut buffer).unwrap();
            assert_eq!(&buffer[..received.length], b"FDSTORE=1\nFDNAME=baton");
            counts.push(received.fds.len());
        }
        assert_eq!(counts, [STORE_FDS_MAX, 1]);
    }

    #[test]
    fn a_busy_manager_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let ours = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        // More than any queue holds.
        const COUNT: usize = 2000;
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let count = |_| usize::from(inherit::receive(&manager, &mut [0; 100]).unwrap().fds.len() == 1);
                (0..COUNT).map(count).sum::<usize>()
            });
            for number in 0..COUNT {
                ours.store(&format!("baton-{number}"), &[socket.as_fd()]).unwrap();
            }
            assert_eq!(reader.join().unwrap(), COUNT);
        });
        // One that never listens is given up.
        let error = (0..COUNT).find_map(|_| ours.unstore("baton-0").err()).unwrap();
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn the_watchdog_is_fed_twice_as_often_as_asked() {
        let check = |usec: Option<&str>, pid: Option<&str>, expect: Option<u64>| {
            let var = |name: &str| match name {
                "WATCHDOG_USEC" => usec.map(str::to_owned),
                "WATCHDOG_PID" => pid.map(str::to_owned),
                _ => None,
            };
            assert_eq!(watchdog_interval(var, 7), expect.map(Duration::from_micros), "{usec:?} {pid:?}");
        };
        check(Some("3000000"), None, Some(1_500_000));
        check(Some("3000000"), Some("7"), Some(1_500_000));
        check(Some("3000000"), Some("8"), None);
        check(Some("0"), None, None);
        check(Some("soon"), None, None);
        check(None, Some("7"), None);
    }
}
