//! The settings of IPVS that are no messages: `net.ipv4.vs` of sysctl(8).
//!
//! The folder of this network namespace stays open: later it may be out of reach, by chroot(2) or because the thread is elsewhere.

use std::fs::File;
use std::io::{self, Read, Write};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::KernelError;

/// Where they are, and their name.
const FOLDER: &str = "/proc/sys/net/ipv4/vs";
const NAME: &str = "net.ipv4.vs";
/// Bytes of a number that is read.
const NUMBER_BYTES: u64 = 32;

/// The settings of the network namespace in which they were opened.
#[derive(Debug)]
pub struct Sysctls(Option<File>);

impl Sysctls {
    /// Those of the calling thread's network namespace; to be opened when IPVS was found, which makes them.
    pub fn open() -> Sysctls {
        Sysctls(File::open(FOLDER).ok())
    }

    /// Whether a setting such as `sloppy_tcp` is on.
    ///
    /// # Errors
    /// Where there is no such setting, or no `/proc/sys`.
    pub fn is_on(&self, name: &str) -> Result<bool, KernelError> {
        let read = |file: File| {
            let mut text = String::new();
            file.take(NUMBER_BYTES).read_to_string(&mut text).map(|_| text.trim() != "0")
        };
        self.file(name, OFlag::O_RDONLY).and_then(read).map_err(|error| fault(name, &error))
    }

    /// Whether one could be changed. Nothing is.
    ///
    /// # Errors
    /// Why not: there is no such setting, it is read-only in this container, or the right is missing.
    pub fn is_settable(&self, name: &str) -> Result<(), KernelError> {
        self.file(name, OFlag::O_WRONLY).map(drop).map_err(|error| fault(name, &error))
    }

    /// Turns one on or off.
    ///
    /// # Errors
    /// Where there is no such setting, and without CAP_NET_ADMIN.
    pub fn set(&self, name: &str, is_on: bool) -> Result<(), KernelError> {
        let write = |mut file: File| file.write_all(if is_on { b"1" } else { b"0" });
        self.file(name, OFlag::O_WRONLY).and_then(write).map_err(|error| fault(name, &error))
    }

    fn file(&self, name: &str, flags: OFlag) -> io::Result<File> {
        let folder = self.0.as_ref().ok_or(Errno::ENOENT)?;
        Ok(openat(folder, name, flags | OFlag::O_CLOEXEC, Mode::empty())?.into())
    }
}

fn fault(name: &str, error: &io::Error) -> KernelError {
    let place = format!("{NAME}.{name}");
    match error.kind() {
        io::ErrorKind::NotFound => KernelError::new(place, "there is no such setting", "omit it, or mount /proc/sys"),
        _ => KernelError::io(place, error),
    }
}
