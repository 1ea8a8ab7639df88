//! The ways to send new connections to one of two instances.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Colour, Name, Setting};
use crate::Fault;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One nftables table with a map, changed in one transaction.
    Nft,
    /// Two ipsets that change places, and rules of iptables.
    Ipset,
    /// A rule of iptables: the new one is put before the old one, which is then deleted.
    Iptables,
    /// A BPF program that chooses the listening socket.
    SkLookup,
}

impl Kind {
    /// All, in the order in which `auto` tries them; [`Kind::SkLookup`] is never chosen unasked.
    pub const ALL: [Kind; 4] = [Kind::Nft, Kind::Ipset, Kind::Iptables, Kind::SkLookup];

    /// As an operator calls it.
    pub fn word(self) -> &'static str {
        match self {
            Kind::Nft => "nft",
            Kind::Ipset => "ipset",
            Kind::Iptables => "iptables",
            Kind::SkLookup => "sk_lookup",
        }
    }

    /// Whether it needs the first packet of a connection to be translated, and thus what the kernel tracks of connections.
    pub fn translates(self) -> bool {
        match self {
            Kind::Nft | Kind::Ipset | Kind::Iptables => true,
            Kind::SkLookup => false,
        }
    }

    /// Whether connections from elsewhere reach the instances of this setting only with `net.ipv4.conf.all.route_localnet`.
    pub fn needs_localnet(self, setting: &Setting) -> bool {
        self.translates() && setting.needs_localnet()
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Kind::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| {
            let words = Kind::ALL.map(Kind::word).join(", ");
            format!("'{text}' is no method; write auto, {words}")
        })
    }
}

/// What is in the kernel under a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// Nothing of ours.
    Absent,
    /// All that belongs there, and new connections go to this instance.
    Active(Colour),
    /// Something else than was set up; the text says what. Setting it up again mends it.
    Broken(String),
}

/// What is to be done, for a plan that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Set up, with this instance active.
    Install(Colour),
    /// New connections go to this instance.
    Switch(Colour),
    /// Everything is removed.
    Remove,
}

/// One way. It works in the network namespace of the thread that calls it, and keeps nothing in memory: the kernel is asked.
///
/// The caller holds the lock of the name, and sees to `net.ipv4.conf.all.route_localnet`.
pub trait Method: fmt::Debug {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// Whether it can work here, for this setting. It changes nothing.
    ///
    /// # Errors
    /// What is missing, and what helps.
    fn check(&self, setting: &Setting) -> Result<(), Fault>;

    /// What the kernel has. Takes the rights that changing it does.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn observe(&self, setting: &Setting) -> Result<Observed, Fault>;

    /// Sets everything up with this instance active. What is there under this name, whole or broken or of another setting, is
    /// replaced: by nft at one moment, by iptables with a moment between. Connections that are open stay where they are.
    ///
    /// # Errors
    /// What was refused. The methods nft and sk_lookup then have left what was there before; those by iptables, which take several
    /// steps, have left nothing.
    fn install(&self, setting: &Setting, active: Colour) -> Result<(), Fault>;

    /// Sends new connections to this instance, from one moment to the next; asked for only when [`observe`](Self::observe) said
    /// [`Observed::Active`].
    ///
    /// # Errors
    /// What was refused; then new connections go where they went.
    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), Fault>;

    /// Removes everything of this name; it is no error when nothing is there.
    ///
    /// # Errors
    /// What was refused.
    fn remove(&self, name: &Name) -> Result<(), Fault>;

    /// Names under which something is there, set up by this method, also such as nobody remembers.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn names(&self) -> Result<Vec<Name>, Fault>;

    /// What it would do, a line for each thing, as an operator would type it where there is a program for it.
    fn plan(&self, setting: &Setting, step: Step) -> Vec<String>;
}
