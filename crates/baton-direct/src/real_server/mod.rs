//! A real server of direct routing: it has the virtual address and keeps quiet about it.
//!
//! The address goes on `lo`. For IPv4 that alone is half of it: Linux answers ARP for every address of the machine on every
//! interface, and clients would find the real server instead of the director. Two ways make it quiet, and [`ArpMethod`] is the
//! choice: settings (`arp_ignore`, `arp_announce`) or a filter for ARP (a table of nftables). For IPv6 nothing more is needed:
//! neighbour discovery answers only for addresses of the interface that is asked, and asks under none but those.
//!
//! What is up is a wish, and each call makes the machine fit the wishes of all that is up: `plan.rs` says the steps, in an
//! order in which the address is never there without being quiet. A record in `/run/baton-real-server` keeps what was there before;
//! [`down`] puts that back, and leaves what somebody else changed since. When a step fails, those before it are undone.

pub mod check;
mod filter;
mod plan;
mod record;
mod take;
mod unit;

pub use plan::RealServerStep;
pub use record::{ArpSuppression, Tunnels};

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::time::Duration;

use baton_kernel::KernelError;
use baton_kernel::route::{Link, Routing};
use baton_kernel::state::State;

use crate::sysctl::Sysctl;
use plan::{ObservedState, RealServerPlan};
use record::{ActiveVip, RealServerRecord};

/// Where the record is, and what it is called. It is root's alone: what it says was there before is put back. A director's may be
/// another user's.
const RUN: &str = "/run/baton-real-server";
const KIND: &str = "real-server";
const NAME: &str = "this";
/// How long another process may have the record; the slowest step is to have systemd read its units.
const PATIENCE: Duration = Duration::from_secs(30);
/// Virtual addresses of a real server at most.
const VIPS_MAX: usize = 256;
/// The interface that has them.
const LOOPBACK: &str = "lo";

/// How a real server is kept from answering ARP for the virtual address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ArpMethod {
    /// Settings, unless they cannot be written or somebody else needs other values; else the filter.
    #[default]
    Auto,
    /// `arp_ignore` and `arp_announce`.
    Sysctl,
    /// A table of nftables for ARP.
    Filter,
}

impl FromStr for ArpMethod {
    type Err = String;

    fn from_str(text: &str) -> Result<ArpMethod, String> {
        match text {
            "auto" => Ok(ArpMethod::Auto),
            "sysctl" => Ok(ArpMethod::Sysctl),
            "filter" => Ok(ArpMethod::Filter),
            other => Err(format!("unknown method '{other}'; expected sysctl, filter or auto")),
        }
    }
}

/// What is to be set up.
#[derive(Clone, Debug, Default)]
pub struct RealServerOptions {
    /// The virtual addresses.
    pub vips: Vec<IpAddr>,
    /// The interfaces on which to keep quiet; none is all.
    pub interfaces: Vec<String>,
    /// How to keep quiet.
    pub method: ArpMethod,
    /// Take packets out of tunnels too.
    pub tunnel: Option<Tunnels>,
    /// Set it up at each boot, by a unit of systemd.
    pub is_persistent: bool,
}

/// What was done, or would be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RealServerReport {
    /// Steps, one sentence each. None: all was as it shall be.
    pub steps: Vec<String>,
    /// What an operator should know.
    pub remarks: Vec<String>,
}

/// Sets virtual addresses up, or says the steps only (`is_dry`). What is up already stays; the same address with another method is changed.
///
/// # Errors
/// The step that failed; those before it were undone.
pub fn up(asked: &RealServerOptions, is_dry: bool) -> Result<RealServerReport, KernelError> {
    judge(asked)?;
    let mut routing = Routing::open()?;
    for interface in &asked.interfaces {
        routing.link(interface)?;
    }
    change(&mut routing, is_dry, |seen, record| {
        asked.vips.iter().try_for_each(|vip| seen.judge_own(*vip))?;
        let mut wish: Vec<ActiveVip> = record.up.iter().filter(|up| !asked.vips.contains(&up.vip)).cloned().collect();
        for vip in &asked.vips {
            let known = record.up.iter().find(|up| up.vip == *vip);
            let quiet = match known.map(|up| &up.quiet) {
                _ if vip.is_ipv6() => ArpSuppression::ByItself,
                // What was chosen stays, as long as it is about the same interfaces.
                Some(quiet) if asked.method == ArpMethod::Auto && quiet.interfaces() == asked.interfaces => {
                    quiet.clone()
                }
                Some(_) | None => seen.choose(asked)?,
            };
            // Only `down` takes the unit away.
            let is_persistent = asked.is_persistent || known.is_some_and(|up| up.is_persistent);
            wish.push(ActiveVip { vip: *vip, quiet, tunnel: asked.tunnel, is_persistent });
        }
        Ok((wish, Vec::new()))
    })
}

/// Takes virtual addresses down and puts back what was there before; none given are all that are up. `keeps_units`: what sets them up
/// at the next boot stays.
///
/// # Errors
/// The step that failed; those before it were undone.
pub fn down(vips: &[IpAddr], keeps_units: bool, is_dry: bool) -> Result<RealServerReport, KernelError> {
    let mut routing = Routing::open()?;
    change(&mut routing, is_dry, |seen, record| {
        let goes = |vip: &IpAddr| vips.is_empty() || vips.contains(vip);
        let unknown = vips.iter().filter(|vip| record.up.iter().all(|up| up.vip != **vip));
        let remarks = unknown.map(|vip| match seen.has(&plan::on_lo(*vip)) {
            true => format!("{vip} is on {LOOPBACK} but was not added by this program: it is kept"),
            false => format!("{vip} was not set up"),
        });
        let remarks = remarks.collect();
        seen.keeps_units = keeps_units;
        seen.gone = vips.to_vec();
        Ok((record.up.iter().filter(|up| !goes(&up.vip)).cloned().collect(), remarks))
    })
}

/// Makes the machine fit a wish that is made of what is there and of what is remembered.
fn change(
    routing: &mut Routing,
    is_dry: bool,
    wish: impl FnOnce(&mut ObservedState, &RealServerRecord) -> Result<(Vec<ActiveVip>, Vec<String>), KernelError>,
) -> Result<RealServerReport, KernelError> {
    // Another folder would not help: the rest takes rights too.
    let as_root = |fault: KernelError| match fault.remedy.is_empty() {
        true => fault,
        false => KernelError { remedy: "run it as root".into(), ..fault },
    };
    let state = State::open(RUN).map_err(as_root)?;
    let lock = state.lock_within(KIND, NAME, PATIENCE)?;
    let record = RealServerRecord::read(&state)?;
    let mut seen = ObservedState::look(routing, &record)?;
    let (wish, mut remarks) = wish(&mut seen, &record)?;
    let RealServerPlan { steps, remarks: others } = plan::plan(&record, &seen, &wish)?;
    remarks.extend(others);
    let report = RealServerReport { steps: steps.iter().map(RealServerStep::to_string).collect(), remarks };
    if !is_dry {
        take::take(&state, &record, wish, &steps).inspect_err(|_| {
            // Back to what was wished before. What cannot be undone is in the record, for the next call.
            let mut undo = || -> Result<(), KernelError> {
                let now = RealServerRecord::read(&state)?;
                let mut seen = ObservedState::look(routing, &now)?;
                seen.keeps_units = false;
                let back = plan::plan(&now, &seen, &record.up)?;
                take::take(&state, &now, record.up.clone(), &back.steps)
            };
            let _ = undo();
        })?;
    }
    drop(lock);
    Ok(report)
}

fn judge(asked: &RealServerOptions) -> Result<(), KernelError> {
    let wrong = |vip: &IpAddr, reason| {
        KernelError::new(format!("virtual address {vip}"), reason, "use the address of the service")
    };
    if asked.vips.len() > VIPS_MAX {
        return Err(KernelError::new("virtual addresses", format!("more than {VIPS_MAX}"), "use fewer"));
    }
    for vip in &asked.vips {
        let is_link_local = match vip {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        if vip.is_unspecified() || vip.is_multicast() || vip.is_loopback() || is_link_local {
            return Err(wrong(vip, "is not an address that clients can use"));
        }
        if matches!(vip, IpAddr::V4(address) if address.is_broadcast()) {
            return Err(wrong(vip, "is the unspecified address"));
        }
        if let Some(address) = mapped(vip) {
            let place = format!("virtual address {vip}");
            return Err(KernelError::new(place, "is an IPv4-mapped IPv6 address", format!("write {address}")));
        }
        if asked.tunnel == Some(Tunnels::Ipip) && vip.is_ipv6() {
            let place = format!("virtual address {vip}");
            return Err(KernelError::new(
                place,
                "the tunnel ipip carries IPv4 only",
                "set it up separately, without --tunnel",
            ));
        }
    }
    Ok(())
}

/// The IPv4 address in an IPv6 one (RFC 4291 section 2.5.5.2).
fn mapped(vip: &IpAddr) -> Option<Ipv4Addr> {
    match vip {
        IpAddr::V4(_) => None,
        IpAddr::V6(address) => address.to_ipv4_mapped(),
    }
}

/// Whether somebody could ask for hardware addresses on an interface.
fn is_asked(link: &Link) -> bool {
    !link.is_loopback && link.has_neighbours && link.kind.as_deref() != Some("dummy")
}

/// `arp_ignore` of an interface, or of `all`.
fn arp_ignore(interface: &str) -> Sysctl {
    Sysctl::ipv4(interface, "arp_ignore")
}

/// `arp_announce` of an interface, or of `all`.
fn arp_announce(interface: &str) -> Sysctl {
    Sysctl::ipv4(interface, "arp_announce")
}

/// Values of `arp_ignore` under which an address on `lo` gets no answer: only addresses of the interface do (1, 2), or none (8).
/// With 3, all do but those of scope host; the kernel takes 4 to 7 as 0.
fn is_ignoring(value: i64) -> bool {
    matches!(value, 1 | 2 | 8)
}

/// The value of `arp_announce` under which an address on `lo` is never the sender of a question.
fn is_not_announcing(value: i64) -> bool {
    value == 2
}

impl fmt::Display for ArpMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ArpMethod::Auto => "auto",
            ArpMethod::Sysctl => "sysctl",
            ArpMethod::Filter => "filter",
        })
    }
}
