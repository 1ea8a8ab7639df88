//! Telling systemd how we are (sd_notify(3)). Nothing waits for it, and without it nothing is told.

use std::env;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// The way to the service manager.
#[derive(Debug)]
pub struct Manager {
    socket: Option<UnixDatagram>,
}

impl Manager {
    /// Connects to what `NOTIFY_SOCKET` names, if anything.
    ///
    /// # Errors
    /// When it is not there.
    pub fn connect() -> io::Result<Manager> {
        let Some(name) = env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Ok(Manager { socket: None });
        };
        let address = match name.as_bytes().strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(&name)?,
        };
        let socket = UnixDatagram::unbound()?;
        socket.connect_addr(&address)?;
        socket.set_nonblocking(true)?;
        Ok(Manager { socket: Some(socket) })
    }

    /// Somebody serves.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", status.replace('\n', " ")));
    }

    /// A restart has begun; [`Manager::ready`] follows, whatever becomes of it.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(Duration::ZERO, Duration::from);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.as_micros()));
    }

    /// The end has begun.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    fn tell(&self, text: &str) {
        if let Some(socket) = &self.socket {
            // A manager that does not listen has nothing to act on.
            let _ = socket.send(text.as_bytes());
        }
    }
}
