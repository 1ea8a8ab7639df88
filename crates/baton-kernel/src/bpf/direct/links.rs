//! The links that tie the program to interfaces, each pinned under the interface's number and how it is tied.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::{Direct, fault, refused};
use crate::KernelError;
use crate::bpf::syscall;

/// How a program is attached to an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver, before the kernel makes anything of a packet.
    Native,
    /// In the network stack, for drivers that have nothing of it.
    Generic,
}

/// Where in a driver or in the network stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttachPoint {
    /// In the driver.
    Driver,
    /// At the ingress of the stack (TCX, Linux 6.6).
    Ingress,
    /// In the stack as a program for drivers.
    Generic,
}

impl AttachPoint {
    const ALL: [AttachPoint; 3] = [AttachPoint::Driver, AttachPoint::Ingress, AttachPoint::Generic];

    /// Those of a mode, the better one first.
    fn of(mode: XdpMode) -> &'static [AttachPoint] {
        match mode {
            XdpMode::Native => &[AttachPoint::Driver],
            XdpMode::Generic => &[AttachPoint::Ingress, AttachPoint::Generic],
        }
    }

    fn mode(self) -> XdpMode {
        match self {
            AttachPoint::Driver => XdpMode::Native,
            AttachPoint::Ingress | AttachPoint::Generic => XdpMode::Generic,
        }
    }

    /// In the names of links.
    fn word(self) -> &'static str {
        match self {
            AttachPoint::Driver => "native",
            AttachPoint::Ingress => "ingress",
            AttachPoint::Generic => "generic",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            XdpMode::Native => "native",
            XdpMode::Generic => "generic",
        })
    }
}

impl Direct {
    /// Ties the program to an interface, in the first of these modes that works there; one that it is tied to already stays as it is.
    ///
    /// # Errors
    /// When another program is there, which is left alone, or the kernel refuses it.
    pub fn attach(&mut self, interface: u32, name: &str, modes: &[XdpMode]) -> Result<XdpMode, KernelError> {
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
        Err(KernelError::new(place(name), "the BPF program cannot be attached to it", ""))
    }

    /// Moves the program on an interface from the driver to the stack or back. If the kernel lets it be in one of them at a time only, it is
    /// in neither for a moment: whoever calls this keeps packets back meanwhile.
    ///
    /// # Errors
    /// What the kernel refuses; then the program is where it was, unless the words say otherwise.
    pub fn move_to(&mut self, interface: u32, name: &str, mode: XdpMode) -> Result<(), KernelError> {
        let Some(before) = self.hook(interface)?.filter(|before| before.mode() != mode) else { return Ok(()) };
        // What can fail while the program is where it was, fails now.
        self.program()?;
        let old = self.pinned(interface, name, before)?;
        // At the ingress it is beside what is in the driver.
        if before == AttachPoint::Ingress || mode == XdpMode::Generic {
            let hooks = if before == AttachPoint::Ingress { AttachPoint::of(mode) } else { &[AttachPoint::Ingress] };
            match self.link_at(interface, hooks)? {
                Ok((link, hook)) => {
                    self.pin(&link, interface, name, hook)?;
                    return self.untie(&old, interface, name, before);
                }
                Err(error) if before == AttachPoint::Ingress => return Err(refusal(name, mode, error, "")),
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

    fn untie(&self, link: &OwnedFd, interface: u32, name: &str, hook: AttachPoint) -> Result<(), KernelError> {
        syscall::detach(link.as_fd()).map_err(|error| {
            KernelError::new(place(name), format!("detaching the BPF program from it: {error}"), "")
        })?;
        self.folder.unpin(&link_name(interface, hook))
    }

    /// Whether [`move_to`](Self::move_to) has what it needs of the file system.
    ///
    /// # Errors
    /// What is missing.
    pub fn may_move(&self, interface: u32, name: &str) -> Result<(), KernelError> {
        self.hook(interface)?.map_or(Ok(()), |hook| self.pinned(interface, name, hook).map(drop))
    }

    fn pinned(&self, interface: u32, name: &str, hook: AttachPoint) -> Result<OwnedFd, KernelError> {
        let opened = self.folder.object(&link_name(interface, hook));
        opened.map_err(|error| self.out_of_reach(name, "opening", &error))
    }

    fn link(&mut self, interface: u32, mode: XdpMode) -> Result<io::Result<(OwnedFd, AttachPoint)>, KernelError> {
        self.link_at(interface, AttachPoint::of(mode))
    }

    /// At the first of these places that the kernel has.
    fn link_at(
        &mut self,
        interface: u32,
        hooks: &[AttachPoint],
    ) -> Result<io::Result<(OwnedFd, AttachPoint)>, KernelError> {
        let mut tried = Err(io::Error::from_raw_os_error(libc::EINVAL));
        for (at, hook) in hooks.iter().enumerate() {
            let program = match self.program_at(*hook) {
                // An older kernel may refuse it.
                Err(_) if *hook == AttachPoint::Ingress && at + 1 < hooks.len() => continue,
                program => program?,
            };
            let made = match hook {
                AttachPoint::Driver => syscall::link(program, interface, syscall::NATIVE),
                AttachPoint::Ingress => syscall::link_in_stack(program, interface),
                AttachPoint::Generic => syscall::link(program, interface, syscall::GENERIC),
            };
            tried = made.map(|link| (link, *hook));
            // Before Linux 6.6 there is no such kind of link.
            let is_unknown = tried.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EINVAL));
            if *hook != AttachPoint::Ingress || !is_unknown {
                break;
            }
        }
        Ok(tried)
    }

    fn program_at(&mut self, hook: AttachPoint) -> Result<BorrowedFd<'_>, KernelError> {
        let program = match hook {
            AttachPoint::Driver | AttachPoint::Generic => self.program()?.fd(),
            AttachPoint::Ingress => self.program_in_stack()?.fd(),
        };
        program.map(AsFd::as_fd).map_err(refused("the BPF program")).map_err(fault)
    }

    /// Without a pin, the link ends with its descriptor.
    fn pin(&self, link: &OwnedFd, interface: u32, name: &str, hook: AttachPoint) -> Result<(), KernelError> {
        let pinned = self.folder.pin(link.as_fd(), &link_name(interface, hook));
        pinned.map_err(|error| self.out_of_reach(name, "pinning", &error))
    }

    fn out_of_reach(&self, name: &str, doing: &str, error: &io::Error) -> KernelError {
        let reason = format!("{doing} the link of the BPF program: {error}");
        match self.folder.is_removed() {
            true => KernelError::new(
                place(name),
                format!("{reason}, because another program removed {}", self.folder.path().display()),
                "start a new process that takes over (baton -sf PID) and creates it again",
            ),
            false => KernelError::new(place(name), reason, "start a new process that takes over (baton -sf PID)"),
        }
    }

    /// Takes the program from an interface.
    ///
    /// # Errors
    /// Without the right.
    pub fn detach(&mut self, interface: u32) -> Result<(), KernelError> {
        AttachPoint::ALL.into_iter().try_for_each(|hook| self.folder.unpin(&link_name(interface, hook)))
    }

    /// The interfaces that it is tied to, by number.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn attached(&self) -> Result<Vec<(u32, XdpMode)>, KernelError> {
        Ok(self.links()?.into_iter().map(|(interface, hook)| (interface, hook.mode())).collect())
    }

    /// Whether large packets that the stack made of several leave by other interfaces too, cut again. As a program for drivers in the stack
    /// (before Linux 6.6) it gives them to another interface in vain.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn sends_joined(&self) -> Result<bool, KernelError> {
        Ok(self.links()?.iter().all(|(_, hook)| *hook != AttachPoint::Generic))
    }

    /// One for each interface: whoever was killed in the middle of a move has left two, of which that in the driver takes all.
    fn links(&self) -> Result<Vec<(u32, AttachPoint)>, KernelError> {
        let mut found: Vec<(u32, AttachPoint)> = self.folder.names()?.iter().filter_map(|name| link_of(name)).collect();
        found.sort_unstable_by_key(|(interface, hook)| (*interface, *hook != AttachPoint::Driver));
        found.dedup_by_key(|(interface, _)| *interface);
        Ok(found)
    }

    fn hook(&self, interface: u32) -> Result<Option<AttachPoint>, KernelError> {
        Ok(self.links()?.into_iter().find(|(there, _)| *there == interface).map(|(_, hook)| hook))
    }

    /// Puts this process's program into the links that are there, without a packet passing beside it. Gives the interfaces
    /// whose links had nothing to be tied to any more; those links are removed.
    ///
    /// # Errors
    /// What the kernel refuses; then the program that was there goes on.
    pub fn renew(&mut self) -> Result<Vec<u32>, KernelError> {
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

fn taken(name: &str) -> KernelError {
    KernelError::new(
        place(name),
        "it has another XDP program, which is not replaced",
        format!("see `ip link show dev {name}`; remove it (ip link set dev {name} xdp off), or use another interface"),
    )
}

/// That the program cannot be there in this mode; `besides` is said behind the reason.
fn refusal(name: &str, mode: XdpMode, error: io::Error, besides: &str) -> KernelError {
    let doing = match mode {
        XdpMode::Native => "attaching the BPF program to its driver",
        XdpMode::Generic => "attaching the BPF program to it",
    };
    let refused = refused(doing)(error);
    let (said, remedy) = refused.parts();
    KernelError::new(place(name), format!("{said}{besides}"), remedy)
}

fn link_name(interface: u32, hook: AttachPoint) -> String {
    format!("link-{interface}-{}", hook.word())
}

pub(super) fn link_of(name: &str) -> Option<(u32, AttachPoint)> {
    let (interface, word) = name.strip_prefix("link-")?.split_once('-')?;
    let hook = AttachPoint::ALL.into_iter().find(|hook| hook.word() == word)?;
    Some((interface.parse().ok()?, hook))
}
