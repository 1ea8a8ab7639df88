//! What is remembered between calls: what is up, and what was there before.

use std::net::{IpAddr, Ipv4Addr};

use baton_kernel::KernelError;
use baton_kernel::state::{NamespaceId, State};
use serde::{Deserialize, Serialize};

use super::{KIND, NAME};

use crate::sysctl::Sysctl;

/// How a virtual address is kept quiet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArpSuppression {
    /// IPv6: nobody asks for an address on `lo`.
    ByItself,
    /// By settings of these interfaces; none is all.
    Settings(Vec<String>),
    /// By a filter on these interfaces; none is all.
    Filter(Vec<String>),
}

impl ArpSuppression {
    /// The interfaces that it is about; none is all.
    pub fn interfaces(&self) -> &[String] {
        match self {
            ArpSuppression::ByItself => &[],
            ArpSuppression::Settings(interfaces) | ArpSuppression::Filter(interfaces) => interfaces,
        }
    }
}

/// Tunnels out of which packets for the virtual address come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tunnels {
    /// IP in IP, by the interface `tunl0`.
    Ipip,
}

/// A virtual address that is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ActiveVip {
    pub vip: IpAddr,
    pub quiet: ArpSuppression,
    pub tunnel: Option<Tunnels>,
    pub is_persistent: bool,
}

/// A setting that we changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChangedSysctl {
    pub setting: Sysctl,
    /// What it was.
    pub before: String,
    /// What we made of it.
    pub set: String,
}

/// What the filter does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Rules(pub Vec<QuietAddress>);

/// An address that the filter keeps quiet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct QuietAddress {
    pub vip: Ipv4Addr,
    /// On these interfaces alone; none is all.
    pub only: Vec<String>,
    /// Under which address neighbours are asked instead, by interface.
    pub instead: Vec<(String, Ipv4Addr)>,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RealServerRecord {
    pub up: Vec<ActiveVip>,
    pub changed: Vec<ChangedSysctl>,
    pub filter: Option<Rules>,
    /// We set the tunnel's interface up.
    #[serde(default)]
    pub has_tunnel: bool,
}

/// The file. One of another boot or of a network namespace that is gone is none.
#[derive(Serialize, Deserialize)]
struct RealServerFile {
    place: NamespaceId,
    record: RealServerRecord,
}

impl RealServerRecord {
    pub fn read(state: &State) -> Result<RealServerRecord, KernelError> {
        let written: Option<RealServerFile> = state.read(KIND, NAME)?;
        Ok(written
            .filter(|written| written.place == NamespaceId::here())
            .map(|written| written.record)
            .unwrap_or_default())
    }

    pub fn write(&self, state: &State) -> Result<(), KernelError> {
        if *self == RealServerRecord::default() {
            return state.remove(KIND, NAME);
        }
        state.write(KIND, NAME, &RealServerFile { place: NamespaceId::here(), record: self.clone() })
    }
}
