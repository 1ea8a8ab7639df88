//! The links that tie the program to interfaces, each pinned under the interface's number and how it is tied.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::programs::ProgramError;
use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::xdp::XdpLink;

use super::{Direct, fault, refused};
use crate::Fault;
use crate::bpf::syscall;

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
    /// Ties the program to an interface, in the first of these modes that works there; one that it is tied to already stays as it is.
    ///
    /// # Errors
    /// When another program is there, which is left alone, or the kernel refuses it.
    pub fn attach(&mut self, interface: u32, name: &str, modes: &[Mode]) -> Result<Mode, Fault> {
        if let Some((_, mode)) = self.attached()?.into_iter().find(|(there, _)| *there == interface) {
            return Ok(mode);
        }
        let mut before = String::new();
        for (at, mode) in modes.iter().enumerate() {
            match self.link(interface, *mode)? {
                Ok(link) => return self.pin(&link, interface, name, *mode).map(|()| *mode),
                Err(error) if is_taken(&error) => return Err(taken(name)),
                Err(error) if at + 1 < modes.len() => before = format!("; {mode}: {error}"),
                Err(error) => return Err(refusal(name, *mode, error, &before)),
            }
        }
        Err(Fault::new(place(name), "no way to tie the BPF program to it", ""))
    }

    /// Moves the program on an interface from the driver to the stack or back. The kernel lets it be in one of them at a time, so
    /// for a moment it is in neither: whoever calls this keeps packets back meanwhile.
    ///
    /// # Errors
    /// What the kernel refuses; then the program is where it was, unless the words say otherwise.
    pub fn move_to(&mut self, interface: u32, name: &str, mode: Mode) -> Result<(), Fault> {
        let there = self.attached()?.into_iter().find(|(there, _)| *there == interface);
        let Some((_, before)) = there.filter(|(_, before)| *before != mode) else { return Ok(()) };
        // What can fail while the program is where it was, fails now.
        self.program()?;
        let old = self.pinned(interface, name, before)?;
        syscall::detach(old.as_fd())
            .map_err(|error| Fault::new(place(name), format!("taking the BPF program from it: {error}"), ""))?;
        drop(old);
        self.folder.unpin(&link_name(interface, before))?;
        match self.link(interface, mode)? {
            Ok(link) => self.pin(&link, interface, name, mode),
            Err(error) => {
                let link = self.link(interface, before)?.map_err(|again| {
                    let lost = format!("; and it could not be put back ({before}): {again}");
                    refusal(name, mode, io::Error::other(error.to_string()), &lost)
                })?;
                self.pin(&link, interface, name, before)?;
                Err(refusal(name, mode, error, ""))
            }
        }
    }

    /// Whether [`move_to`](Self::move_to) has what it needs of the file system.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_move(&self, interface: u32, name: &str) -> Result<(), Fault> {
        let there = self.attached()?.into_iter().find(|(there, _)| *there == interface);
        there.map_or(Ok(()), |(_, mode)| self.pinned(interface, name, mode).map(drop))
    }

    fn pinned(&self, interface: u32, name: &str, mode: Mode) -> Result<OwnedFd, Fault> {
        let opened = self.folder.object(&link_name(interface, mode));
        opened.map_err(|error| self.out_of_reach(name, "opening", &error))
    }

    fn link(&mut self, interface: u32, mode: Mode) -> Result<io::Result<OwnedFd>, Fault> {
        let program = self.program()?.fd().map_err(refused("the BPF program")).map_err(fault)?.as_fd();
        let flags = match mode {
            Mode::Native => syscall::NATIVE,
            Mode::Generic => syscall::GENERIC,
        };
        Ok(syscall::link(program, interface, flags))
    }

    /// Without a pin, the link ends with its descriptor.
    fn pin(&self, link: &OwnedFd, interface: u32, name: &str, mode: Mode) -> Result<(), Fault> {
        let pinned = self.folder.pin(link.as_fd(), &link_name(interface, mode));
        pinned.map_err(|error| self.out_of_reach(name, "pinning", &error))
    }

    fn out_of_reach(&self, name: &str, doing: &str, error: &io::Error) -> Fault {
        let reason = format!("{doing} the link of the BPF program: {error}");
        match self.folder.is_removed() {
            true => Fault::new(
                place(name),
                format!("{reason}, because {} was removed by somebody else", self.folder.path().display()),
                "let a new process of Baton take over (baton -sf PID), which makes it anew",
            ),
            false => Fault::new(place(name), reason, "let a new process of Baton take over (baton -sf PID)"),
        }
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
            let way = self.folder.way_to(&name).map_err(refused("the link of the BPF program")).map_err(fault)?;
            let link: FdLink =
                PinnedLink::from_pin(way.path()).map_err(refused("the link of the BPF program")).map_err(fault)?.into();
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

fn place(name: &str) -> String {
    format!("interface {name}")
}

/// Whether a program is there already.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

fn taken(name: &str) -> Fault {
    Fault::new(
        place(name),
        "another XDP program is there, and it is left alone",
        format!(
            "`ip link show dev {name}` shows it; end it (ip link set dev {name} xdp off), or name another interface"
        ),
    )
}

/// That the program cannot be there in this mode; `besides` is said behind the reason.
fn refusal(name: &str, mode: Mode, error: io::Error, besides: &str) -> Fault {
    let doing = match mode {
        Mode::Native => "tying the BPF program to its driver",
        Mode::Generic => "tying the BPF program to it",
    };
    let refused = refused(doing)(error);
    let (said, remedy) = refused.parts();
    Fault::new(place(name), format!("{said}{besides}"), remedy)
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
