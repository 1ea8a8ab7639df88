//! The links that tie the program to interfaces, each pinned under the interface's number and how it is tied.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

/// Where in a driver or in the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver.
    Driver,
    /// At the ingress of the stack (TCX, Linux 6.6).
    Ingress,
    /// In the stack as a program for drivers.
    Generic,
}

impl Hook {
    const ALL: [Hook; 3] = [Hook::Driver, Hook::Ingress, Hook::Generic];

    /// Those of a mode, the better one first.
    fn of(mode: Mode) -> &'static [Hook] {
        match mode {
            Mode::Native => &[Hook::Driver],
            Mode::Generic => &[Hook::Ingress, Hook::Generic],
        }
    }

    fn mode(self) -> Mode {
        match self {
            Hook::Driver => Mode::Native,
            Hook::Ingress | Hook::Generic => Mode::Generic,
        }
    }

    /// In the names of links.
    fn word(self) -> &'static str {
        match self {
            Hook::Driver => "native",
            Hook::Ingress => "ingress",
            Hook::Generic => "generic",
        }
    }
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
                Ok((link, hook)) => return self.pin(&link, interface, name, hook).map(|()| *mode),
                Err(error) if is_taken(&error) => return Err(taken(name)),
                Err(error) if at + 1 < modes.len() => before = format!("; {mode}: {error}"),
                Err(error) => return Err(refusal(name, *mode, error, &before)),
            }
        }
        Err(Fault::new(place(name), "no way to tie the BPF program to it", ""))
    }

    /// Moves the program on an interface from the driver to the stack or back. If the kernel lets it be in one of them at a time only, it is
    /// in neither for a moment: whoever calls this keeps packets back meanwhile.
    ///
    /// # Errors
    /// What the kernel refuses; then the program is where it was, unless the words say otherwise.
    pub fn move_to(&mut self, interface: u32, name: &str, mode: Mode) -> Result<(), Fault> {
        let Some(before) = self.hook(interface)?.filter(|before| before.mode() != mode) else { return Ok(()) };
        // What can fail while the program is where it was, fails now.
        self.program()?;
        let old = self.pinned(interface, name, before)?;
        // At the ingress it is beside what is in the driver.
        if before == Hook::Ingress || mode == Mode::Generic {
            let hooks = if before == Hook::Ingress { Hook::of(mode) } else { &[Hook::Ingress] };
            match self.link_at(interface, hooks)? {
                Ok((link, hook)) => {
                    self.pin(&link, interface, name, hook)?;
                    return self.untie(&old, interface, name, before);
                }
                Err(error) if before == Hook::Ingress => return Err(refusal(name, mode, error, "")),
                // A kernel that has no such place.
                Err(_) => {}
            }
        }
        self.untie(&old, interface, name, before)?;
        drop(old);
        match self.link(interface, mode)? {
            Ok((link, hook)) => self.pin(&link, interface, name, hook),
            Err(error) => {
                let (link, hook) = self.link_at(interface, &[before])?.map_err(|again| {
                    let lost = format!("; and it could not be put back ({}): {again}", before.mode());
                    refusal(name, mode, io::Error::other(error.to_string()), &lost)
                })?;
                self.pin(&link, interface, name, hook)?;
                Err(refusal(name, mode, error, ""))
            }
        }
    }

    fn untie(&self, link: &OwnedFd, interface: u32, name: &str, hook: Hook) -> Result<(), Fault> {
        syscall::detach(link.as_fd())
            .map_err(|error| Fault::new(place(name), format!("taking the BPF program from it: {error}"), ""))?;
        self.folder.unpin(&link_name(interface, hook))
    }

    /// Whether [`move_to`](Self::move_to) has what it needs of the file system.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_move(&self, interface: u32, name: &str) -> Result<(), Fault> {
        self.hook(interface)?.map_or(Ok(()), |hook| self.pinned(interface, name, hook).map(drop))
    }

    fn pinned(&self, interface: u32, name: &str, hook: Hook) -> Result<OwnedFd, Fault> {
        let opened = self.folder.object(&link_name(interface, hook));
        opened.map_err(|error| self.out_of_reach(name, "opening", &error))
    }

    fn link(&mut self, interface: u32, mode: Mode) -> Result<io::Result<(OwnedFd, Hook)>, Fault> {
        self.link_at(interface, Hook::of(mode))
    }

    /// At the first of these places that the kernel has.
    fn link_at(&mut self, interface: u32, hooks: &[Hook]) -> Result<io::Result<(OwnedFd, Hook)>, Fault> {
        let mut tried = Err(io::Error::from_raw_os_error(libc::EINVAL));
        for (at, hook) in hooks.iter().enumerate() {
            let program = match self.program_at(*hook) {
                // An older kernel may refuse it.
                Err(_) if *hook == Hook::Ingress && at + 1 < hooks.len() => continue,
                program => program?,
            };
            let made = match hook {
                Hook::Driver => syscall::link(program, interface, syscall::NATIVE),
                Hook::Ingress => syscall::link_in_stack(program, interface),
                Hook::Generic => syscall::link(program, interface, syscall::GENERIC),
            };
            tried = made.map(|link| (link, *hook));
            // Before Linux 6.6 there is no such kind of link.
            let is_unknown = tried.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
            if *hook != Hook::Ingress || !is_unknown {
                break;
            }
        }
        Ok(tried)
    }

    fn program_at(&mut self, hook: Hook) -> Result<BorrowedFd<'_>, Fault> {
        let program = match hook {
            Hook::Driver | Hook::Generic => self.program()?.fd(),
            Hook::Ingress => self.program_in_stack()?.fd(),
        };
        program.map(AsFd::as_fd).map_err(refused("the BPF program")).map_err(fault)
    }

    /// Without a pin, the link ends with its descriptor.
    fn pin(&self, link: &OwnedFd, interface: u32, name: &str, hook: Hook) -> Result<(), Fault> {
        let pinned = self.folder.pin(link.as_fd(), &link_name(interface, hook));
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
        Hook::ALL.into_iter().try_for_each(|hook| self.folder.unpin(&link_name(interface, hook)))
    }

    /// The interfaces that it is tied to, by number.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn attached(&self) -> Result<Vec<(u32, Mode)>, Fault> {
        Ok(self.links()?.into_iter().map(|(interface, hook)| (interface, hook.mode())).collect())
    }

    /// Whether large packets that the stack made of several leave by other interfaces too, cut again. As a program for drivers in the stack
    /// (before Linux 6.6) it gives them to another interface in vain.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn sends_joined(&self) -> Result<bool, Fault> {
        Ok(self.links()?.iter().all(|(_, hook)| *hook != Hook::Generic))
    }

    /// One for each interface: whoever was killed in the middle of a move has left two, of which that in the driver takes all.
    fn links(&self) -> Result<Vec<(u32, Hook)>, Fault> {
        let mut found: Vec<(u32, Hook)> = self.folder.names()?.iter().filter_map(|name| link_of(name)).collect();
        found.sort_unstable_by_key(|(interface, hook)| (*interface, *hook != Hook::Driver));
        found.dedup_by_key(|(interface, _)| *interface);
        Ok(found)
    }

    fn hook(&self, interface: u32) -> Result<Option<Hook>, Fault> {
        Ok(self.links()?.into_iter().find(|(there, _)| *there == interface).map(|(_, hook)| hook))
    }

    /// Puts this process's program into the links that are there, without a packet passing beside it. Gives the interfaces
    /// whose links had nothing to be tied to any more; those links are removed.
    ///
    /// # Errors
    /// What the kernel refuses; then the program that was there goes on.
    pub fn renew(&mut self) -> Result<Vec<u32>, Fault> {
        let mut lost = Vec::new();
        let links = self.links()?;
        for (interface, hook) in self.folder.names()?.iter().filter_map(|name| link_of(name)) {
            if !links.contains(&(interface, hook)) {
                self.folder.unpin(&link_name(interface, hook))?;
            }
        }
        for (interface, hook) in links {
            let name = link_name(interface, hook);
            let link = self.folder.object(&name).map_err(refused("the link of the BPF program")).map_err(fault)?;
            match syscall::renew(link.as_fd(), self.program_at(hook)?) {
                Ok(()) => {}
                Err(error) if error.raw_os_error() == Some(libc::ENOLINK) => {
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

fn link_name(interface: u32, hook: Hook) -> String {
    format!("link-{interface}-{}", hook.word())
}

pub(super) fn link_of(name: &str) -> Option<(u32, Hook)> {
    let (interface, word) = name.strip_prefix("link-")?.split_once('-')?;
    let hook = Hook::ALL.into_iter().find(|hook| hook.word() == word)?;
    Some((interface.parse().ok()?, hook))
}
