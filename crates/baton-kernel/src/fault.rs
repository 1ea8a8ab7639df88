//! Why something could not be done: where, what was in the way, and what helps.

use std::fmt;
use std::io;

use nix::errno::Errno;
use serde::{Deserialize, Serialize};

use crate::ipset;
use crate::netlink;
use crate::nftables::Refusal;
use crate::qdisc;

/// A failure that an operator is told of. It travels between processes, so that it is text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What was tried, such as `nftables table baton-hold-7`.
    pub place: String,
    /// What was in the way.
    pub reason: String,
    /// What helps; empty when the reason says it.
    pub remedy: String,
}

impl Fault {
    /// A fault from its three parts.
    pub fn new(place: impl Into<String>, reason: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { place: place.into(), reason: reason.into(), remedy: remedy.into() }
    }

    /// What the kernel refused over netlink. A missing right is named.
    pub fn netlink(place: impl Into<String>, fault: &netlink::Fault) -> Fault {
        let remedy = match fault.errno() {
            Some(Errno::EPERM | Errno::EACCES) => netlink::NO_RIGHT,
            _ => "",
        };
        Fault::new(place, fault.to_string(), remedy)
    }

    /// What a system call refused. A missing right is named.
    pub fn io(place: impl Into<String>, error: &io::Error) -> Fault {
        let remedy = if error.kind() == io::ErrorKind::PermissionDenied { netlink::NO_RIGHT } else { "" };
        Fault::new(place, error.to_string(), remedy)
    }
}

impl From<Refusal> for Fault {
    fn from(refusal: Refusal) -> Fault {
        let remedy = refusal.remedy().unwrap_or_default();
        Fault::new(format!("nftables: {}", refusal.what), refusal.fault.to_string(), remedy)
    }
}

impl From<ipset::Refusal> for Fault {
    fn from(refusal: ipset::Refusal) -> Fault {
        let remedy = refusal.remedy().unwrap_or_default();
        Fault::new(format!("ipset: {}", refusal.what), refusal.fault.to_string(), remedy)
    }
}

impl From<qdisc::Fault> for Fault {
    fn from(fault: qdisc::Fault) -> Fault {
        Fault::new("queueing discipline", fault.to_string(), fault.remedy().unwrap_or_default())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.reason)?;
        if !self.remedy.is_empty() {
            write!(f, "; {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Fault {}
