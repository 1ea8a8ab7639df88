//! The links that tie the program to interfaces, each pinned under the interface's number and how it is tied.

use std::fmt;
use std::os::fd::AsFd;

use aya::programs::ProgramError;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;

use super::{Direct, fault, refused, syscall};
use crate::Fault;

/// How a program is tied to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver, before the kernel makes anything of a packet.
    Native,
    /// In the network stack, for drivers that have nothing of it.
    Generic,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Native => "native",
            Mode::Generic => "generic",
        })
    }
}

impl Direct {
    /// Ties the program to an interface, in the driver where that can do it and `may_native` says so.
    ///
    /// # Errors
    /// When another program is there, which is left alone, or the kernel refuses it.
    pub fn attach(&mut self, interface: u32, name: &str, may_native: bool) -> Result<Mode, Fault> {
        if let Some((_, mode)) = self.attached()?.into_iter().find(|(there, _)| *there == interface) {
            return Ok(mode);
        }
        let place = || format!("interface {name}");
        let mut in_driver = String::new();
        let ways = [(Mode::Native, syscall::NATIVE), (Mode::Generic, syscall::GENERIC)];
        for (mode, flags) in ways.into_iter().filter(|(mode, _)| may_native || *mode == Mode::Generic) {
            let program = self.program()?.fd().map_err(refused("the BPF program")).map_err(fault)?.as_fd();
            match syscall::link(program, interface, flags) {
                Ok(link) => {
                    let pinned = syscall::pin(
                        link.as_fd(),
                        self.folder.as_fd(),
                        self.folder.path(),
                        &link_name(interface, mode),
                    );
                    // Without a pin, the link ends here.
                    return pinned.map(|()| mode).map_err(|error| {
                        let reason = format!("pinning the link of the BPF program: {error}");
                        match self.folder.is_removed() {
                            true => Fault::new(
                                place(),
                                format!("{reason}, because {} was removed by somebody else", self.folder.path().display()),
                                "let a new process of Baton take over (baton -sf PID), which makes it anew",
                            ),
                            false => Fault::new(
                                place(),
                                reason,
                                "before Linux 6.5 that cannot be done after chroot: let a new process of Baton take over (baton -sf PID)",
                            ),
                        }
                    });
                }
                Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                    return Err(Fault::new(
                        place(),
                        "another XDP program is there, and it is left alone",
                        format!(
                            "`ip link show dev {name}` shows it; end it (ip link set dev {name} xdp off), or name another interface"
                        ),
                    ));
                }
                Err(error) if mode == Mode::Native => in_driver = format!("; in the driver: {error}"),
                Err(error) => {
                    let (said, remedy) = refused("tying the BPF program to it")(error).parts();
                    return Err(Fault::new(place(), format!("{said}{in_driver}"), remedy));
                }
            }
        }
        Err(Fault::new(place(), "no way to tie the BPF program to it", ""))
    }

    /// Takes the program from an interface.
    ///
    /// # Errors
    /// Without the right.
    pub fn detach(&mut self, interface: u32) -> Result<(), Fault> {
        for mode in [Mode::Native, Mode::Generic] {
            self.folder.unpin(&link_name(interface, mode))?;
        }
        Ok(())
    }

    /// The interfaces that it is tied to, by number.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn attached(&self) -> Result<Vec<(u32, Mode)>, Fault> {
        let mut found: Vec<(u32, Mode)> = self.folder.names()?.iter().filter_map(|name| link_of(name)).collect();
        found.sort_unstable_by_key(|(interface, _)| *interface);
        Ok(found)
    }

    /// Puts this process's program into the links that are there, without a packet passing beside it. Gives the interfaces
    /// whose links had nothing to be tied to any more; those links are removed.
    ///
    /// # Errors
    /// What the kernel refuses; then the program that was there goes on.
    pub fn renew(&mut self) -> Result<Vec<u32>, Fault> {
        let mut lost = Vec::new();
        for (interface, mode) in self.attached()? {
            let name = link_name(interface, mode);
            let path = self.folder.path().join(&name);
            let link: FdLink =
                PinnedLink::from_pin(&path).map_err(refused("the link of the BPF program")).map_err(fault)?.into();
            let link: XdpLink = link.try_into().map_err(refused("the link of the BPF program")).map_err(fault)?;
            let program = self.program()?;
            match program.attach_to_link(link) {
                // The file holds the link; what this process has of it is closed.
                Ok(link) => {
                    drop(program.take_link(link).map_err(refused("the link of the BPF program")).map_err(fault)?);
                }
                Err(error) if os_error(&error) == Some(libc::ENOLINK) => {
                    self.folder.unpin(&name)?;
                    lost.push(interface);
                }
                Err(error) => return Err(fault(refused("replacing the BPF program")(error))),
            }
        }
        Ok(lost)
    }
}

fn link_name(interface: u32, mode: Mode) -> String {
    format!("link-{interface}-{mode}")
}

pub(super) fn link_of(name: &str) -> Option<(u32, Mode)> {
    let (interface, mode) = name.strip_prefix("link-")?.split_once('-')?;
    let mode = match mode {
        "native" => Mode::Native,
        "generic" => Mode::Generic,
        _ => return None,
    };
    Some((interface.parse().ok()?, mode))
}

fn os_error(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        _ => None,
    }
}
