//! SYNs wait in a `plug` queueing discipline, and are released in their order.
//!
//! At the root of an interface stands a `prio` with one lane more than packets choose among by their priority, and at the end of that
//! lane a plug. Filters lead there what begins a connection to a target; everything else never sees the plug. It works where
//! packets leave: on loopback for clients of this machine, on another interface for those that this machine sends through it.
//!
//! Packets are known by filters of our own, not by marks: marks are one set of bits for the whole machine, and a firewall's
//! use of them would be ours to break. So no rule of netfilter is needed, and one removal undoes everything.
//!
//! Exchanging the root discipline of a busy interface loses what is on its way at that moment, in every Linux: TCP sends it again, a
//! SYN after a second. So a lane may stand for longer ([`setup`], [`teardown`]), and a run only closes and opens its plug.
//! Where somebody has put a root discipline of his own, nothing is done.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::thread::sleep;
use std::time::{Duration, Instant};

use baton_kernel::netns;
use baton_kernel::qdisc::{self, Handle, Match, Plug, Qdisc, Traffic};
use nix::net::if_::if_nameindex;

use super::method::{Delay, HoldCounts, HoldMethod, HoldOrder, Journal, UndoNotes};
use super::plan::Plan;
use super::target::{Target, Targets};
use crate::KernelError;

/// Where lanes are unless an order says otherwise.
const LOOPBACK: &str = "lo";
/// The root of a lane that stands until it is taken down ...
const STANDING: Handle = Handle::qdisc(0xba70);
/// ... and of one that is there for one run. By these numbers they are found again.
const OF_RUN: Handle = Handle::qdisc(0xba71);
/// The plug at the end of either's last lane.
const PLUG: Handle = Handle::qdisc(0xba7f);
/// Lanes of the root; no packet gets into the last one by its priority.
const LANES: u16 = 4;
/// A plug counts bytes: so many for a SYN, with all its options and the header of its link.
const SYN_BYTES: u32 = 128;
/// How long an opened plug may take to empty. The kernel does it at once unless the interface itself stands still.
const EMPTY_MAX: Duration = Duration::from_secs(2);
/// How often it is looked at meanwhile.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Whether the connections of these targets can be taken to come by, for one who did not ask for this method.
pub(super) fn suits(order: &HoldOrder) -> Result<(), String> {
    let far = order.targets.iter().find(|target| !is_loopback(target)).filter(|_| order.interfaces.is_empty());
    far.map_or(Ok(()), |far| Err(format!("remote connections to {far} do not pass the interface {LOOPBACK}")))
}

/// Whether the kernel has what is needed, and nothing of somebody else is in the way.
pub(super) fn usable(order: &HoldOrder) -> Result<(), KernelError> {
    let lanes = lanes(order)?;
    if lanes.iter().all(|lane| lane.root == STANDING) {
        return Ok(());
    }
    trial(order.limit)
}

/// Prepares it.
pub(super) fn prepare(order: &HoldOrder) -> Result<Box<dyn HoldMethod>, KernelError> {
    Ok(Box::new(Plugged { order: order.clone(), lanes: lanes(order)?, since: None }))
}

/// Undoes what a dead process left.
pub(super) fn undo(order: &HoldOrder, _notes: &UndoNotes) -> Result<(), KernelError> {
    interfaces(order).try_for_each(forget)
}

/// Opens the plug of an interface, and takes the lane of a run down.
pub(super) fn forget(interface: &str) -> Result<(), KernelError> {
    match Traffic::of(interface) {
        Ok(mut traffic) => open(&mut traffic).and_then(|()| remove(&mut traffic, OF_RUN).map(drop)),
        // With an interface goes all that was on it.
        Err(qdisc::QdiscError::NoInterface(_)) => Ok(()),
        Err(fault) => Err(fault.into()),
    }
}

/// Puts up a lane for these targets that stands until [`teardown`], with its plug open. One that stands gets the targets that
/// it has not. Gives a sentence for each interface.
///
/// # Errors
/// Without the right or the modules, and where somebody else's discipline is; then nothing is changed on that interface.
pub fn setup(order: &HoldOrder) -> Result<Vec<String>, KernelError> {
    let wanted = matches(&order.targets);
    let each = interfaces(order).map(|name| {
        let mut traffic = Traffic::of(name)?;
        if root(&mut traffic)?.is_some_and(|found| found.handle == STANDING) {
            let present = led(&mut traffic, STANDING)?;
            let missing: Vec<Match> = wanted.iter().filter(|one| !present.contains(one)).copied().collect();
            missing.iter().try_for_each(|one| traffic.lead(*one, STANDING.lane(LANES)))?;
            return Ok(format!(
                "{name}: the plug is already set up; {} of {} filters are new",
                missing.len(),
                wanted.len()
            ));
        }
        build(&mut traffic, STANDING, &wanted, order.limit)?;
        Ok(format!("{name}: plug set up, open, for {}", order.targets))
    });
    each.collect()
}

/// Takes standing lanes down again, whatever their targets are. Gives a sentence for each interface.
///
/// # Errors
/// Of the kernel.
pub fn teardown(chosen: &[String]) -> Result<Vec<String>, KernelError> {
    let each = or_loopback(chosen).map(|name| {
        let mut traffic = Traffic::of(name)?;
        open(&mut traffic)?;
        let was_there = remove(&mut traffic, STANDING)?;
        Ok(format!("{name}: {}", if was_there { "the plug is removed" } else { "no plug is set up here" }))
    });
    each.collect()
}

/// A lane of ours that is there, whoever put it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Where.
    pub interface: String,
    /// What is led to it.
    pub targets: Vec<Match>,
    /// SYNs that wait in it now.
    pub waiting: u32,
    /// Whether it stays until it is taken down, or belongs to one run.
    pub stays: bool,
}

/// All lanes of ours in this network namespace.
///
/// # Errors
/// Of the kernel.
pub fn standing() -> Result<Vec<Standing>, KernelError> {
    let all =
        if_nameindex().map_err(|errno| KernelError::io("the interfaces of this network namespace", &errno.into()))?;
    let mut found = Vec::new();
    for interface in all.iter().filter_map(|interface| interface.name().to_str().ok()) {
        let mut traffic = match Traffic::of(interface) {
            Err(qdisc::QdiscError::NoInterface(_)) => continue, // it has gone meanwhile
            traffic => traffic?,
        };
        let Some(at) = root(&mut traffic)?.map(|root| root.handle).filter(|handle| is_ours(*handle)) else { continue };
        let waiting = plug(&mut traffic)?.map_or(0, |plug| plug.waiting);
        let (interface, targets) = (interface.to_owned(), led(&mut traffic, at)?);
        found.push(Standing { interface, targets, waiting, stays: at == STANDING });
    }
    Ok(found)
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let targets: Vec<String> = self.targets.iter().map(Match::to_string).collect();
        write!(f, "on {} for {}, {} waiting", self.interface, targets.join(", "), self.waiting)
    }
}

/// What a run of this method needs for itself on these interfaces.
pub fn claims(chosen: &[String]) -> Vec<String> {
    or_loopback(chosen).map(|name| format!("qdisc {name}")).collect()
}

/// The lane of one interface, as a run finds it.
#[derive(Debug)]
struct InterfaceLane {
    traffic: Traffic,
    /// The root of a lane that stands, or of the run's own that is still to be built.
    root: Handle,
    wanted: Vec<Match>,
    /// What the plug had dropped when it was closed; `None` while it is open.
    closed: Option<u32>,
}

impl InterfaceLane {
    /// Looks whether there may be one. Changes nothing.
    fn find(interface: &str, targets: &Targets) -> Result<InterfaceLane, KernelError> {
        let mut traffic = Traffic::of(interface)?;
        let wanted = matches(targets);
        let place = format!("method plug, interface {interface}");
        let root = match root(&mut traffic)? {
            Some(found) if found.handle == STANDING => {
                let present = led(&mut traffic, STANDING)?;
                if let Some(missing) = wanted.iter().find(|one| !present.contains(one)) {
                    let reason = format!("the plug there is not set up for {missing}");
                    let remedy = "add it with `baton hold setup --method plug --to …`, or remove the plug with `baton hold \
                        teardown`";
                    return Err(KernelError::new(place, reason, remedy));
                }
                STANDING
            }
            // What is left of a run is removed when this one begins.
            Some(found) if found.handle == OF_RUN => OF_RUN,
            Some(found) if !found.is_default() => {
                let reason = format!(
                    "the root queueing discipline is '{} {}', set by another program",
                    found.kind, found.handle
                );
                let remedy = "a plug would replace it: choose another method, or remove it first";
                return Err(KernelError::new(place, reason, remedy));
            }
            _ => OF_RUN,
        };
        Ok(InterfaceLane { traffic, root, wanted, closed: None })
    }

    /// From here on it holds.
    fn close(&mut self, limit: u32) -> Result<(), KernelError> {
        let traffic = &mut self.traffic;
        if self.root == OF_RUN {
            open(traffic)?;
            remove(traffic, OF_RUN)?;
            build(traffic, OF_RUN, &self.wanted, limit)?;
        } else {
            tell(traffic, self.root, Plug::Limit(bytes(limit)))?;
        }
        let before = plug(traffic)?.map_or(0, |plug| plug.dropped);
        self.closed = Some(before);
        tell(traffic, self.root, Plug::Buffer)
    }

    /// Lets go; gives how many waited and how many were dropped. Then the run's own lane goes.
    fn release(&mut self) -> Result<(u32, u32), KernelError> {
        let mut held = (0, 0);
        if let Some(before) = self.closed {
            if let Some(plug) = plug(&mut self.traffic)? {
                held = (plug.waiting, plug.dropped.wrapping_sub(before));
            }
            open(&mut self.traffic)?;
            self.closed = None;
        }
        remove(&mut self.traffic, OF_RUN)?;
        Ok(held)
    }
}

struct Plugged {
    order: HoldOrder,
    lanes: Vec<InterfaceLane>,
    /// When the first plug was closed.
    since: Option<Instant>,
}

impl HoldMethod for Plugged {
    fn plan(&self) -> Plan {
        let (mut begin, mut end) = (Vec::new(), Vec::new());
        for InterfaceLane { traffic, root, wanted, .. } in &self.lanes {
            let (name, lane) = (traffic.interface(), root.lane(LANES));
            if *root == OF_RUN {
                begin.push(format!(
                    "{name}: root discipline 'prio {root}' with {LANES} lanes, at {lane} 'plug {PLUG}', open"
                ));
                begin.extend(wanted.iter().map(|one| format!("{name}: SYNs to {one} go to lane {lane}")));
            }
            let limit = self.order.limit;
            begin.push(format!(
                "{name}: plug {PLUG} of {lane} is closed; at most {limit} SYNs wait, the rest are dropped"
            ));
            end.push(format!("{name}: plug {PLUG} of {lane} is opened; the waiting SYNs pass in order"));
            if *root == OF_RUN {
                end.push(format!("{name}: 'prio {root}' is removed; the kernel's default is restored"));
            }
        }
        let safety = "the plug stays closed until `baton hold release` or the next run of this method; SYNs above the limit \
            are dropped, and clients retransmit them";
        Plan { begin, end, safety: safety.into() }
    }

    fn claims(&self) -> Vec<String> {
        claims(&self.order.interfaces)
    }

    fn begin(&mut self, _journal: &mut dyn Journal) -> Result<(), KernelError> {
        let limit = self.order.limit;
        self.since = Some(Instant::now());
        let closed = self.lanes.iter_mut().try_for_each(|lane| lane.close(limit));
        if closed.is_err() {
            // Whatever is left of it, the reason for the failure is what matters.
            let _ = self.end();
        }
        closed
    }

    fn end(&mut self) -> Result<HoldCounts, KernelError> {
        let mut held = HoldCounts::default();
        let mut left = Ok(());
        for lane in &mut self.lanes {
            match lane.release() {
                Ok((waited, dropped)) => {
                    held.connections += u64::from(waited);
                    held.over_limit += u64::from(dropped);
                }
                Err(fault) => left = Err(fault),
            }
        }
        left?;
        let longest = self.since.take().map(|since| since.elapsed());
        held.delay = longest.filter(|_| held.connections > 0).map(|longest| Delay { median: None, longest });
        if held.over_limit > 0 {
            held.remarks.push("SYNs above the limit were dropped; clients retransmit them after a second".into());
        }
        if longest.is_some() && self.lanes.iter().any(|lane| lane.root == OF_RUN) {
            let remark = "setting the plug up and removing it may each have lost queued packets of a busy interface, which TCP \
                retransmits; set it up once for many runs with `baton hold setup --method plug`";
            held.remarks.push(remark.into());
        }
        Ok(held)
    }
}

fn interfaces(order: &HoldOrder) -> impl Iterator<Item = &str> {
    or_loopback(&order.interfaces)
}

fn or_loopback(chosen: &[String]) -> impl Iterator<Item = &str> {
    let default = chosen.is_empty().then_some(LOOPBACK);
    default.into_iter().chain(chosen.iter().map(String::as_str))
}

fn lanes(order: &HoldOrder) -> Result<Vec<InterfaceLane>, KernelError> {
    interfaces(order).map(|name| InterfaceLane::find(name, &order.targets)).collect()
}

fn is_loopback(target: &Target) -> bool {
    target.address.is_some_and(|address| address.is_loopback())
}

/// What filters have to recognize.
fn matches(targets: &Targets) -> Vec<Match> {
    let every = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    let of_ports = targets.ports().flat_map(|port| every.map(|address| Match { address, port }));
    let of_addresses = targets.addresses().map(|local| Match { address: local.ip(), port: local.port() });
    of_ports.chain(of_addresses).collect()
}

fn bytes(limit: u32) -> u32 {
    limit.saturating_mul(SYN_BYTES)
}

fn is_ours(handle: Handle) -> bool {
    handle == STANDING || handle == OF_RUN
}

fn root(traffic: &mut Traffic) -> Result<Option<Qdisc>, KernelError> {
    Ok(traffic.root()?)
}

/// The targets of a lane.
fn led(traffic: &mut Traffic, root: Handle) -> Result<Vec<Match>, KernelError> {
    Ok(traffic.filters(root)?.into_iter().filter_map(|filter| filter.matches).collect())
}

/// Our plug, if it is where we put it.
fn plug(traffic: &mut Traffic) -> Result<Option<Qdisc>, KernelError> {
    let ours =
        |qdisc: &Qdisc| qdisc.handle == PLUG && qdisc.kind == "plug" && is_ours(Handle::qdisc(qdisc.parent.major()));
    Ok(traffic.qdiscs()?.into_iter().find(ours))
}

fn tell(traffic: &mut Traffic, root: Handle, what: Plug) -> Result<(), KernelError> {
    Ok(traffic.tell_plug(root.lane(LANES), PLUG, what)?)
}

/// All of a lane, with its plug open, or nothing.
fn build(traffic: &mut Traffic, root: Handle, wanted: &[Match], limit: u32) -> Result<(), KernelError> {
    traffic.add_prio(root, LANES)?;
    let lane = root.lane(LANES);
    let rest = (|| {
        traffic.add_plug(lane, PLUG, bytes(limit))?;
        // A new plug is closed: it is opened before anything is led to it.
        traffic.tell_plug(lane, PLUG, Plug::ReleaseIndefinite)?;
        wanted.iter().try_for_each(|one| traffic.lead(*one, lane))
    })();
    if rest.is_err() {
        let _ = traffic.delete_root(root);
    }
    Ok(rest?)
}

/// Opens our plug, if there is one, and waits until it is empty.
fn open(traffic: &mut Traffic) -> Result<(), KernelError> {
    let Some(found) = plug(traffic)? else { return Ok(()) };
    traffic.tell_plug(found.parent, PLUG, Plug::ReleaseIndefinite)?;
    let end = Instant::now() + EMPTY_MAX;
    while plug(traffic)?.is_some_and(|plug| plug.waiting > 0) {
        if Instant::now() > end {
            let place = format!("method plug, interface {}", traffic.interface());
            let reason = format!("the plug is open, and SYNs still wait in it after {} s", EMPTY_MAX.as_secs());
            return Err(KernelError::new(place, reason, "see whether the interface is up, then `baton hold release`"));
        }
        sleep(LOOK_EVERY);
    }
    Ok(())
}

/// Removes one of our roots, if it is there. What is in it was let go before.
fn remove(traffic: &mut Traffic, which: Handle) -> Result<bool, KernelError> {
    let is_there = root(traffic)?.is_some_and(|found| found.handle == which);
    Ok(is_there && traffic.delete_root(which)?)
}

/// Builds a lane out of sight, in a network namespace that goes with it: the only way to know whether the kernel can.
fn trial(limit: u32) -> Result<(), KernelError> {
    let some = [Match { address: IpAddr::V4(Ipv4Addr::LOCALHOST), port: 1 }];
    let tried = netns::in_new(|| build(&mut Traffic::of(LOOPBACK)?, OF_RUN, &some, limit));
    // Without the right to a namespace it is seen when the lane is put up.
    tried.unwrap_or(Ok(()))
}
