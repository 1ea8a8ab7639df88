//! Why something could not be done: where, what was in the way, and what helps.

use std::fmt;
use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::ipset;
use crate::netlink;
use crate::nftables::NftablesError;
use crate::qdisc;

/// An error that is reported to an operator. It passes between processes, so that it is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelError {
    /// What was tried, such as `nftables table baton-hold-7`.
    pub place: String,
    /// What was in the way.
    pub reason: String,
    /// What helps; empty when the reason says it.
    pub remedy: String,
}

impl KernelError {
    /// A fault from its three parts.
    pub fn new(place: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> KernelError {
        KernelError { place: place.into(), reason: reason.into(), remedy: remedy.into() }
    }

    /// What the kernel refused over netlink. A missing right is named.
    pub fn netlink(place: impl Into<String>, fault: &netlink::NetlinkError) -> KernelError {
        let remedy = match fault.errno() {
            Some(Errno::EPERM | Errno::EACCES) => netlink::NO_RIGHT,
            _ => "",
        };
        KernelError::new(place, fault.to_string(), remedy)
    }

    /// What a system call refused. A missing right is named.
    pub fn io(place: impl Into<String>, error: &io::Error) -> KernelError {
        let remedy = if error.kind() == io::ErrorKind::PermissionDenied { netlink::NO_RIGHT } else { "" };
        KernelError::new(place, error.to_string(), remedy)
    }
}

impl From<NftablesError> for KernelError {
    fn from(refusal: NftablesError) -> KernelError {
        let remedy = refusal.remedy().unwrap_or_default();
        KernelError::new(format!("nftables: {}", refusal.what), refusal.fault.to_string(), remedy)
    }
}

impl From<ipset::IpsetError> for KernelError {
    fn from(refusal: ipset::IpsetError) -> KernelError {
        let remedy = refusal.remedy().unwrap_or_default();
        KernelError::new(format!("ipset: {}", refusal.what), refusal.fault.to_string(), remedy)
    }
}

impl From<qdisc::QdiscError> for KernelError {
    fn from(fault: qdisc::QdiscError) -> KernelError {
        KernelError::new("queueing discipline", fault.to_string(), fault.remedy().unwrap_or_default())
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for KernelError {}
