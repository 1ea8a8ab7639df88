//! Giving up rights for good, and `chroot`.

use std::fmt;
use std::io;
use std::path::Path;

use nix::sys::prctl;
use nix::unistd::{Gid, Uid, chdir, chroot, getgroups, getresgid, getresuid, setgroups, setresgid, setresuid};

use super::capabilities::{self, Capability};
use super::procfs;

/// The user and groups to run as. What is `None` is kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// User number.
    pub uid: Option<u32>,
    /// Group number.
    pub gid: Option<u32>,
    /// Supplementary groups. `None`: all are given up when `gid` or `uid` changes and we are root.
    pub groups: Option<Vec<u32>>,
    /// Capabilities to have afterwards, those of them that we have now. `None`: what the system leaves, which is none when
    /// root becomes somebody else, and all of them otherwise.
    pub capabilities: Option<Vec<Capability>>,
}

/// The step at which rights could not be given up. The process is in a state in between: end it.
#[derive(Debug)]
pub struct DropError {
    /// `setgroups`, `setgid`, `setuid`, `capset`, or `verify`: the kernel agreed, yet the rights are still there.
    pub step: &'static str,
    /// The system's words.
    pub source: io::Error,
}

impl fmt::Display for DropError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot drop privileges at {}: {}", self.step, self.source)
    }
}

impl std::error::Error for DropError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Becomes `identity`: supplementary groups first, then the group, then the user (real, effective and saved), for all
/// threads, then the capabilities, for the calling one; checks that there is no way back.
pub fn drop_to(identity: &Credentials) -> Result<(), DropError> {
    let at = |step| move |error: nix::errno::Errno| DropError { step, source: error.into() };
    let still = |what: &str| DropError { step: "verify", source: io::Error::other(what.to_owned()) };
    let changes = identity.uid.is_some() || identity.gid.is_some();
    let groups = match &identity.groups {
        Some(groups) => Some(groups.iter().copied().map(Gid::from_raw).collect::<Vec<_>>()),
        None if changes && Uid::effective().is_root() => Some(identity.gid.map(Gid::from_raw).into_iter().collect()),
        None => None,
    };
    if let Some(groups) = &groups {
        setgroups(groups).map_err(at("setgroups"))?;
    }
    if let Some(gid) = identity.gid.map(Gid::from_raw) {
        setresgid(gid, gid, gid).map_err(at("setgid"))?;
        let now = getresgid().map_err(at("verify"))?;
        if [now.real, now.effective, now.saved] != [gid; 3] {
            return Err(still("the group did not change"));
        }
    }
    let keeps = identity.capabilities.as_ref().is_some_and(|capabilities| !capabilities.is_empty());
    if keeps {
        prctl::set_keepcaps(true).map_err(at("capset"))?;
    }
    if let Some(uid) = identity.uid.map(Uid::from_raw) {
        setresuid(uid, uid, uid).map_err(at("setuid"))?;
        let now = getresuid().map_err(at("verify"))?;
        if [now.real, now.effective, now.saved] != [uid; 3] {
            return Err(still("the user did not change"));
        }
        if !uid.is_root() && nix::unistd::setuid(Uid::from_raw(0)).is_ok() {
            return Err(still("root can be regained"));
        }
    }
    if keeps {
        prctl::set_keepcaps(false).map_err(at("capset"))?;
    }
    if let Some(kept) = &identity.capabilities {
        capabilities::reduce_to(kept).map_err(|source| DropError { step: "capset", source })?;
    }
    if let Some(wanted) = groups {
        let now = getgroups().map_err(at("verify"))?;
        if now.iter().any(|group| !wanted.contains(group)) {
            return Err(still("supplementary groups remain"));
        }
    }
    Ok(())
}

/// Makes `directory` the root of the file system for this process, and goes there. `/proc` stays in reach for
/// [`super::procfs`].
///
/// # Errors
/// `PermissionDenied` without CAP_SYS_CHROOT, `NotFound` without the directory; then nothing has changed.
pub fn change_root(directory: &Path) -> io::Result<()> {
    procfs::keep();
    chroot(directory)?;
    chdir("/")?;
    Ok(())
}

/// Supplementary groups of this process.
pub fn supplementary_groups() -> io::Result<Vec<u32>> {
    Ok(getgroups()?.into_iter().map(Gid::as_raw).collect())
}
