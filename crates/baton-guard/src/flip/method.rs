//! The ways to send new connections to one of two instances.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{Colour, Name, Setting};
use crate::KernelError;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlipMethodKind {
    /// One nftables table with a map, changed in one transaction.
    Nft,
    /// Two ipsets that change places, and rules of iptables.
    Ipset,
    /// A rule of iptables, which is replaced by another one.
    Iptables,
    /// A BPF program that chooses the listening socket.
    SkLookup,
}

impl FlipMethodKind {
    /// All, in the order in which `auto` tries them; [`FlipMethodKind::SkLookup`] is never chosen unasked.
    pub const ALL: [FlipMethodKind; 4] =
        [FlipMethodKind::Nft, FlipMethodKind::Ipset, FlipMethodKind::Iptables, FlipMethodKind::SkLookup];

    /// As an operator calls it.
    pub fn word(self) -> &'static str {
        match self {
            FlipMethodKind::Nft => "nft",
            FlipMethodKind::Ipset => "ipset",
            FlipMethodKind::Iptables => "iptables",
            FlipMethodKind::SkLookup => "sk_lookup",
        }
    }

    /// Whether it needs the first packet of a connection to be translated, and thus what the kernel tracks of connections.
    pub fn translates(self) -> bool {
        match self {
            FlipMethodKind::Nft | FlipMethodKind::Ipset | FlipMethodKind::Iptables => true,
            FlipMethodKind::SkLookup => false,
        }
    }

    /// Whether connections from elsewhere reach the instances of this setting only with `net.ipv4.conf.all.route_localnet`.
    pub fn needs_localnet(self, setting: &Setting) -> bool {
        self.translates() && setting.needs_localnet()
    }
}

impl fmt::Display for FlipMethodKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for FlipMethodKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        FlipMethodKind::ALL.into_iter().find(|kind| kind.word() == text).ok_or_else(|| {
            let words = FlipMethodKind::ALL.map(FlipMethodKind::word).join(", ");
            format!("unknown method '{text}'; expected auto, {words}")
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
    /// A change that was broken off: new connections go to this instance by what stands in for the rest meanwhile. Setting it up
    /// again ends it.
    Halfway(Colour),
    /// Something else than was set up; the text says what. Setting it up again mends it.
    Broken(String),
}

/// What is to be done, for a plan that is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanStep {
    /// Set up.
    Install {
        /// With this instance active.
        active: Colour,
        /// With the loopback's guard, where the method translates.
        is_guarded: bool,
    },
    /// New connections go to this instance.
    Switch(Colour),
    /// The loopback's guard is made, where it is not there.
    Guard,
    /// The loopback's guard is removed.
    Unguard,
}

/// One way. It works in the network namespace of the thread that calls it, and keeps nothing in memory: the kernel is asked.
///
/// The caller holds the lock of the name, and sees to `net.ipv4.conf.all.route_localnet`.
pub trait FlipMethod: fmt::Debug {
    /// Which one it is.
    fn kind(&self) -> FlipMethodKind;

    /// Whether it can work here, for this setting. It tries with objects of its own, which are gone afterwards; only one process
    /// at a time may do so.
    ///
    /// # Errors
    /// What is missing, and what helps.
    fn check(&self, setting: &Setting) -> Result<(), KernelError>;

    /// What the kernel has. Takes the rights that changing it does.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn observe(&self, setting: &Setting) -> Result<Observed, KernelError>;

    /// Sets everything up with this instance active. What is there under this name, whole or broken or of another setting, is
    /// replaced, with no moment between at which a connection finds nothing; by iptables IPv4 an instant before IPv6. Connections
    /// that are open stay where they are. The loopback's guard stays when it is asked for ([`guard`](Self::guard) has made it); one
    /// that is not asked for may stay, see [`unguard`](Self::unguard).
    ///
    /// # Errors
    /// What was refused; then what was there before is there, or nothing when nothing was.
    fn install(&self, setting: &Setting, active: Colour, is_guarded: bool) -> Result<(), KernelError>;

    /// Makes the loopback's guard, where it is not there as it should be: what drops packets of other machines to and from
    /// loopback addresses, which nothing of ours leads to yet. It may be all that there is of the name.
    ///
    /// # Errors
    /// What was refused.
    fn guard(&self, _: &Setting) -> Result<(), KernelError> {
        Ok(())
    }

    /// Removes the loopback's guard, which this setting does not need.
    ///
    /// # Errors
    /// What was refused.
    fn unguard(&self, _: &Setting) -> Result<(), KernelError> {
        Ok(())
    }

    /// Whether anything of a loopback's guard of this name is there.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn has_guard(&self, _: &Name) -> Result<bool, KernelError> {
        Ok(false)
    }

    /// Sends new connections to this instance, atomically; asked for only when [`observe`](Self::observe) said
    /// [`Observed::Active`].
    ///
    /// # Errors
    /// What was refused; then new connections go where they went.
    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), KernelError>;

    /// Removes everything of this name; it is no error when nothing is there.
    ///
    /// # Errors
    /// What was refused.
    fn remove(&self, name: &Name) -> Result<(), KernelError>;

    /// Names under which something is there, set up by this method, also such as nobody remembers. None where the kernel or the
    /// host does not know such things.
    ///
    /// # Errors
    /// Without the right to look.
    fn names(&self) -> Result<Vec<Name>, KernelError>;

    /// How many new connections were sent to an instance since it was set up; `None` where the method does not count them.
    fn taken(&self, _: &Setting, _: Colour) -> Option<u64> {
        None
    }

    /// What it would do at this moment, as an operator would type it in a shell; what no program does is a comment (`# …`).
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn plan(&self, setting: &Setting, step: PlanStep) -> Result<Vec<String>, KernelError>;

    /// What [`remove`](Self::remove) would do at this moment, in the same way.
    ///
    /// # Errors
    /// When the kernel cannot be asked.
    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, KernelError>;
}
