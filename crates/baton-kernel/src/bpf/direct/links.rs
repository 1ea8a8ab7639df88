//! The links that tie the program to interfaces, each pinned under the interface's number and how it is tied.

use std::fmt;

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;
use aya::programs::{ProgramError, XdpMode};

use super::{Direct, fault, refused};
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
    /// Ties the program to an interface, in the driver where that can do it.
    ///
    /// # Errors
    /// When another program is there, which is left alone, or the kernel refuses it.
    pub fn attach(&mut self, interface: u32, name: &str) -> Result<Mode, Fault> {
        if let Some((_, mode)) = self.attached()?.into_iter().find(|(there, _)| *there == interface) {
            return Ok(mode);
        }
        let place = || format!("interface {name}");
        if !self.folder.is_in_reach() {
            return Err(Fault::new(
                place(),
                format!(
                    "the BPF program cannot be tied to it: {} is out of reach after chroot",
                    self.folder.path().display()
                ),
                "start Baton anew",
            ));
        }
        let mut native = None;
        for (mode, asked) in [(Mode::Native, XdpMode::Driver), (Mode::Generic, XdpMode::Skb)] {
            let folder = self.folder.path().to_owned();
            let program = self.program()?;
            match program.attach_to_if_index(interface, asked) {
                Ok(link) => {
                    let link =
                        program.take_link(link).map_err(refused("the link of the BPF program")).map_err(fault)?;
                    let link: FdLink =
                        link.try_into().map_err(refused("the link of the BPF program")).map_err(fault)?;
                    link.pin(folder.join(link_name(interface, mode)))
                        .map_err(refused("pinning the link of the BPF program"))
                        .map_err(fault)?;
                    return Ok(mode);
                }
                Err(error) if is_occupied(&error) => {
                    return Err(Fault::new(
                        place(),
                        "another XDP program is there, and it is left alone",
                        format!(
                            "`ip link show dev {name}` shows it; end it (ip link set dev {name} xdp off), or name another interface"
                        ),
                    ));
                }
                Err(error) => {
                    let refusal = refused("tying the BPF program to it")(error);
                    if mode == Mode::Generic {
                        let (said, remedy) = refusal.parts();
                        let native: String = native.map(|said| format!("; in the driver: {said}")).unwrap_or_default();
                        return Err(Fault::new(place(), format!("{said}{native}"), remedy));
                    }
                    native = Some(refusal.parts().0);
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

/// Whether another program is on the interface.
fn is_occupied(error: &ProgramError) -> bool {
    matches!(os_error(error), Some(libc::EBUSY | libc::EEXIST))
}
