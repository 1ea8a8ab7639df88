//! Telling systemd how we are (`sd_notify(3)`), as HAProxy does under `-Ws`.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

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

    /// We serve; also the end of a reload.
    pub fn ready(&self) {
        self.tell(&format!("READY=1\nMAINPID={}", std::process::id()));
    }

    /// The files are being read again.
    pub fn reloading(&self) {
        self.tell("RELOADING=1");
    }

    /// A soft stop has begun.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manager_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let check = |expect: &str| {
            let mut buffer = [0; 100];
            let length = manager.recv(&mut buffer).unwrap();
            assert_eq!(String::from_utf8_lossy(&buffer[..length]), expect);
        };
        let ours = ServiceManager::connect(Some(path.as_os_str())).unwrap();
        ours.reloading();
        check("RELOADING=1");
        ours.ready();
        check(&format!("READY=1\nMAINPID={}", std::process::id()));
        assert!(ServiceManager::connect(Some(OsStr::new("/no/such/socket"))).is_err());
        ServiceManager::connect(None).unwrap().stopping();
    }
}
