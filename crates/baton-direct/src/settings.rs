//! What is asked of the whole network namespace, beside its services.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::xdp;

/// What a director is opened with. What is `None` or empty is left as it is in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorSettings {
    /// Whose services these are: the name of the record. Two programs that balance in one network namespace need two names; one
    /// that takes another one's place has the same. Empty is `baton`.
    pub owner: String,
    /// The engine xdp's own.
    pub xdp: xdp::XdpSettings,
    /// IPVS's timeouts of connections.
    pub timeouts: Timeouts,
    /// `net.ipv4.vs.expire_nodest_conn`: connections of a removed destination end at their next packet.
    pub expire_nodest_conn: Option<bool>,
    /// `net.ipv4.vs.sloppy_tcp`: connections that began elsewhere are taken in by any packet of theirs.
    pub sloppy_tcp: Option<bool>,
    /// `net.ipv4.vs.expire_quiescent_template`: clients that stick to a destination of weight 0 get another one for what they begin
    /// anew.
    pub expire_quiescent_template: Option<bool>,
    /// Some service is persistent: where nothing is said of the setting above, it is turned on if that can be done.
    pub is_persistent: bool,
    /// Tells other directors of connections.
    pub sync_master: Option<SyncDaemon>,
    /// Learns of other directors' connections.
    pub sync_backup: Option<SyncDaemon>,
}

/// How long IPVS remembers a connection after its last packet; whole seconds, at least one (ipvsadm(8), `--set`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timeouts {
    /// Of TCP.
    pub tcp: Option<Duration>,
    /// Of TCP after a FIN.
    pub tcp_fin: Option<Duration>,
    /// Of UDP.
    pub udp: Option<Duration>,
}

/// A connection sync daemon of the kernel (ipvsadm(8), `--start-daemon`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncDaemon {
    /// The interface by which it sends or hears.
    pub interface: String,
    /// Only directors with the same number hear each other; 0 to 255.
    pub id: u8,
}

/// Which of the two daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncRole {
    /// The one that tells.
    Master,
    /// The one that learns.
    Backup,
}

/// One change to the settings of the whole network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tune {
    /// Other timeouts; those that are `None` stay.
    Timeouts(Timeouts),
    /// A value of sysctl(8), by its name in `net.ipv4.vs`.
    Sysctl(&'static str, bool),
    /// A daemon starts.
    StartSync(SyncRole, SyncDaemon),
    /// A daemon of ours ends.
    StopSync(SyncRole),
}

impl DirectorSettings {
    /// The daemon asked for in a role.
    pub fn sync(&self, role: SyncRole) -> Option<&SyncDaemon> {
        match role {
            SyncRole::Master => self.sync_master.as_ref(),
            SyncRole::Backup => self.sync_backup.as_ref(),
        }
    }
}

impl Timeouts {
    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        *self == Timeouts::default()
    }
}

impl SyncRole {
    /// Both.
    pub const ALL: [SyncRole; 2] = [SyncRole::Master, SyncRole::Backup];
}

impl fmt::Display for SyncRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SyncRole::Master => "master",
            SyncRole::Backup => "backup",
        })
    }
}

impl fmt::Display for Timeouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, timeout) in [("tcp", self.tcp), ("tcp after FIN", self.tcp_fin), ("udp", self.udp)] {
            if let Some(timeout) = timeout {
                write!(f, "{between}{name} {}s", timeout.as_secs())?;
                between = ", ";
            }
        }
        Ok(())
    }
}

impl fmt::Display for Tune {
    /// A sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Tune::Timeouts(timeouts) => write!(f, "set the timeouts of connections: {timeouts}"),
            Tune::Sysctl(name, value) => write!(f, "set net.ipv4.vs.{name} = {}", u8::from(*value)),
            Tune::StartSync(role, daemon) => {
                write!(f, "start the connection sync daemon {role} on {} with id {}", daemon.interface, daemon.id)
            }
            Tune::StopSync(role) => write!(f, "stop the connection sync daemon {role}"),
        }
    }
}
