//! From what is there and what shall be, the steps. Nothing here changes anything.
//!
//! The order is the point: first everything that keeps an address quiet, then the addresses come and go, then what kept those quiet that
//! went.

use std::fmt;
use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr};

use baton_kernel::KernelError;
use baton_kernel::route::{Link, Routing};

use super::record::{ActiveVip, ArpSuppression, ChangedSysctl, QuietAddress, RealServerRecord, Rules, Tunnels};
use super::unit::{self, UnitState};
use super::{
    ArpMethod, LOOPBACK, RUN, RealServerOptions, arp_announce, arp_ignore, filter, is_asked, is_ignoring,
    is_not_announcing,
};
use crate::sysctl::Sysctl;
use crate::vip::{Vip, Vips};

/// Whose record of addresses ours is.
pub(super) const OWNER: &str = "real-server";
/// The interface of packets out of IP in IP.
pub(super) const TUNNEL: &str = "tunl0";
/// The scope of settings that holds for every interface.
const ALL: &str = "all";

/// What the machine has now.
#[derive(Clone, Debug, Default)]
pub(super) struct ObservedState {
    pub links: Vec<Link>,
    /// Addresses of interfaces, with the interface's name and the prefix.
    pub addresses: Vec<(String, IpAddr, u8)>,
    /// Those on `lo` that are ours.
    pub ours: Vec<Vip>,
    pub has_filter: bool,
    /// Addresses that were asked to go, also those that are not up: a boot takes the record away and leaves units.
    pub gone: Vec<IpAddr>,
    /// Units are not touched.
    pub keeps_units: bool,
}

/// One step. Its text is what is shown of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RealServerStep {
    /// Sets a setting.
    Set {
        /// Which one.
        setting: Sysctl,
        /// What it is.
        before: String,
        /// What it will be.
        value: &'static str,
    },
    /// Makes the filter.
    Filter(#[doc(hidden)] FilterRules),
    /// Sets the tunnel's interface up.
    TunnelUp,
    /// Puts an address on its interface, `lo` or that of a tunnel.
    Add(Vip),
    /// Takes one from there.
    Remove(Vip),
    /// Sets the tunnel's interface down.
    TunnelDown,
    /// Removes the filter.
    RemoveFilter,
    /// Puts a setting back.
    Restore {
        /// Which one.
        setting: Sysctl,
        /// What it was.
        value: String,
    },
    /// Forgets what a setting was: somebody else has set it since, or has put it back.
    Forget(Sysctl),
    /// Writes a unit of systemd.
    WriteUnit(IpAddr),
    /// Removes it.
    RemoveUnit(IpAddr),
}

/// The filter's rules, in short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterRules(pub(super) Rules);

/// The steps, and what an operator should know.
#[derive(Clone, Debug, Default)]
pub(super) struct RealServerPlan {
    pub steps: Vec<RealServerStep>,
    pub remarks: Vec<String>,
}

impl ObservedState {
    pub fn look(routing: &mut Routing, record: &RealServerRecord) -> Result<ObservedState, KernelError> {
        let links = routing.links()?;
        let name = |index| links.iter().find(|link| link.index == index).map(|link| link.name.clone());
        let addresses = routing.addresses()?.into_iter();
        let addresses = addresses.filter_map(|found| Some((name(found.interface)?, found.address, found.prefix)));
        let addresses = addresses.collect();
        let ours = Vips::open_in(RUN, OWNER)?.ours()?;
        // Without a filter of ours nothing is asked of nftables: the kernel may load it for the question.
        let is_filtering = record.filter.is_some();
        let has_filter = is_filtering && filter::is_there().unwrap_or(false);
        Ok(ObservedState { links, addresses, ours, has_filter, gone: Vec::new(), keeps_units: false })
    }

    /// Whether an interface has the address, whoever put it there.
    pub fn has(&self, vip: &Vip) -> bool {
        let is_it = |name: &str, address, prefix| (name, address, prefix) == (&vip.interface, vip.address, vip.prefix);
        self.addresses.iter().any(|(name, address, prefix)| is_it(name, *address, *prefix))
    }

    /// Refuses an address that another interface has: packets for it come to this machine anyway, and keeping quiet about it would take it
    /// from the network. Also one that is there with a network around it, beside which the kernel takes no second one.
    pub fn judge_own(&self, vip: IpAddr) -> Result<(), KernelError> {
        let is_elsewhere = |name: &str| name != LOOPBACK && name != TUNNEL;
        let refuse = |reason, remedy| Err(KernelError::new(format!("virtual address {vip}"), reason, remedy));
        for (name, _, prefix) in self.addresses.iter().filter(|(_, address, _)| *address == vip) {
            let remove = format!("`ip address del {vip}/{prefix} dev {name}` first");
            if is_elsewhere(name) {
                let remedy = format!("use the address of the service, which the director has; if it is that, {remove}");
                return refuse(format!("this machine has it on {name}"), remedy);
            }
            if *prefix != bits(vip) {
                let reason = format!(
                    "it is on {name} with /{prefix} already: the whole network counts as local, and responses to its clients \
                     never leave this machine"
                );
                return refuse(reason, remove);
            }
        }
        Ok(())
    }

    /// How to keep quiet.
    pub fn choose(&self, asked: &RealServerOptions) -> Result<ArpSuppression, KernelError> {
        let by_settings = || ArpSuppression::Settings(asked.interfaces.clone());
        let by_filter = || ArpSuppression::Filter(asked.interfaces.clone());
        match (asked.method, self.obstacle(&asked.interfaces)) {
            (ArpMethod::Filter, _) | (ArpMethod::Auto, Some(_)) => Ok(by_filter()),
            (ArpMethod::Auto | ArpMethod::Sysctl, None) => Ok(by_settings()),
            (ArpMethod::Sysctl, Some(obstacle)) => {
                Err(KernelError::new("method sysctl", obstacle, "use --method filter"))
            }
        }
    }

    /// Why settings cannot do it.
    fn obstacle(&self, interfaces: &[String]) -> Option<String> {
        let names = || self.links.iter().filter(|link| is_asked(link)).map(|link| link.name.as_str());
        let concerned = names().filter(|name| interfaces.is_empty() || interfaces.iter().any(|one| one == name));
        // The kernel takes the larger value of `all` and the interface's own.
        for setting in [ALL].into_iter().chain(concerned).map(arp_ignore) {
            if let Some(value) = setting.number().filter(|value| *value > 2 && !is_ignoring(*value)) {
                return Some(format!(
                    "{setting} is {value}, set by another program, and makes this machine respond to ARP for the address"
                ));
            }
        }
        let settings = needed(&ArpSuppression::Settings(interfaces.to_vec()));
        settings.into_iter().filter(|(setting, _)| !is_satisfied(setting, &[])).find_map(|(setting, _)| {
            let error = OpenOptions::new().write(true).open(setting.path()).err()?;
            Some(format!("{setting} : {error}"))
        })
    }

    /// The rules that keep these addresses quiet.
    fn rules(&self, wish: &[ActiveVip]) -> Option<Rules> {
        let quiet: Vec<QuietAddress> = wish
            .iter()
            .filter_map(|up| match (&up.quiet, up.vip) {
                (ArpSuppression::Filter(only), IpAddr::V4(vip)) => {
                    Some(QuietAddress { vip, only: only.clone(), instead: self.instead(only, wish) })
                }
                _ => None,
            })
            .collect();
        (!quiet.is_empty()).then_some(Rules(quiet))
    }

    /// Under which address neighbours are asked, by interface: the first one that is no virtual address.
    fn instead(&self, only: &[String], wish: &[ActiveVip]) -> Vec<(String, Ipv4Addr)> {
        let links = self.links.iter().filter(|link| is_asked(link));
        let links = links.filter(|link| only.is_empty() || only.contains(&link.name));
        let own = |link: &Link| {
            self.addresses.iter().find_map(|(name, address, _)| match address {
                IpAddr::V4(own) if *name == link.name && wish.iter().all(|up| up.vip != *address) => Some(*own),
                _ => None,
            })
        };
        links.filter_map(|link| Some((link.name.clone(), own(link)?))).collect()
    }
}

/// The settings that a way of keeping quiet needs, with the value to set.
fn needed(quiet: &ArpSuppression) -> Vec<(Sysctl, &'static str)> {
    let ArpSuppression::Settings(interfaces) = quiet else { return Vec::new() };
    let scopes: Vec<&str> = match &interfaces[..] {
        [] => vec![ALL],
        some => some.iter().map(String::as_str).collect(),
    };
    scopes.into_iter().flat_map(|scope| [(arp_ignore(scope), "1"), (arp_announce(scope), "2")]).collect()
}

/// Whether a setting has a value that will do, alone or by that of `all`. Some are going to be what they were (`leaving`).
fn is_satisfied(setting: &Sysctl, leaving: &[&ChangedSysctl]) -> bool {
    let value = |setting: &Sysctl| {
        let goes = leaving.iter().find(|changed| changed.setting == *setting);
        goes.map_or_else(|| setting.number(), |changed| changed.before.parse().ok()).unwrap_or_default()
    };
    let effective = value(setting).max(setting.of_all().map(|all| value(&all)).unwrap_or_default());
    match setting.name() {
        "arp_ignore" => is_ignoring(effective),
        "arp_announce" => is_not_announcing(effective),
        // Strict filtering drops what comes out of a tunnel: the way back is another interface.
        "rp_filter" => effective != 1,
        _ => true,
    }
}

fn bits(vip: IpAddr) -> u8 {
    if vip.is_ipv4() { 32 } else { 128 }
}

/// Where an address goes: on `lo`; and on a tunnel's interface when it is reached by one, for on an interface without an address
/// the kernel's reverse path filter drops all.
pub(super) fn place(up: &ActiveVip) -> Vip {
    let interface = match up.tunnel {
        Some(Tunnels::Ipip) if up.vip.is_ipv4() => TUNNEL,
        Some(Tunnels::Ipip) | None => LOOPBACK,
    };
    Vip { interface: interface.into(), ..on_lo(up.vip) }
}

/// As it is on `lo`.
pub(super) fn on_lo(vip: IpAddr) -> Vip {
    Vip { address: vip, interface: LOOPBACK.into(), prefix: bits(vip) }
}

pub(super) fn plan(
    record: &RealServerRecord,
    seen: &ObservedState,
    wish: &[ActiveVip],
) -> Result<RealServerPlan, KernelError> {
    let mut plan = RealServerPlan::default();
    let tunnel = wish.iter().any(|up| up.tunnel == Some(Tunnels::Ipip));
    let mut needs: Vec<(Sysctl, &'static str)> = wish.iter().flat_map(|up| needed(&up.quiet)).collect();
    if tunnel {
        needs.push((Sysctl::ipv4(TUNNEL, "rp_filter"), "2"));
    }
    needs.sort_unstable();
    needs.dedup();

    let leaving: Vec<&ChangedSysctl> =
        record.changed.iter().filter(|changed| needs.iter().all(|(setting, _)| *setting != changed.setting)).collect();

    // What keeps quiet comes first; what goes stays quiet until it has gone.
    let tunnel_link = seen.links.iter().find(|link| link.name == TUNNEL);
    if tunnel && tunnel_link.is_none_or(|link| !link.is_up) {
        plan.steps.push(RealServerStep::TunnelUp);
    }
    for (setting, value) in needs.iter().filter(|(setting, _)| !is_satisfied(setting, &leaving)) {
        let before = setting.read()?.unwrap_or_else(|| "0".into());
        plan.steps.push(RealServerStep::Set { setting: setting.clone(), before, value });
    }
    let rules = seen.rules(wish);
    let installed = record.filter.as_ref().filter(|_| seen.has_filter);
    let going = record.up.iter().filter(|up| wish.iter().all(|wished| wished.vip != up.vip));
    let meanwhile: Vec<ActiveVip> = wish.iter().chain(going).cloned().collect();
    if rules.as_ref().is_some_and(|rules| installed != Some(rules)) {
        plan.steps.extend(seen.rules(&meanwhile).map(|rules| RealServerStep::Filter(FilterRules(rules))));
    }

    for vip in wish.iter().map(place).filter(|vip| !seen.has(vip)) {
        plan.steps.push(RealServerStep::Add(vip));
    }
    for vip in seen.ours.iter().filter(|vip| wish.iter().all(|up| place(up) != **vip)) {
        plan.steps.push(RealServerStep::Remove(vip.clone()));
    }
    for up in record.up.iter().filter(|up| wish.iter().all(|wished| wished.vip != up.vip)) {
        if seen.has(&on_lo(up.vip)) && seen.ours.iter().all(|vip| vip.address != up.vip) {
            plan.remarks.push(format!(
                "{} was on {LOOPBACK} before: it is kept, and ARP requests for it are answered again",
                up.vip
            ));
        }
    }

    let last = plan
        .steps
        .iter()
        .rev()
        .find_map(|step| if let RealServerStep::Filter(made) = step { Some(&made.0) } else { None });
    let there = last.or(installed).cloned();
    match (&rules, there) {
        (Some(rules), Some(there)) if *rules != there => {
            plan.steps.push(RealServerStep::Filter(FilterRules(rules.clone())))
        }
        (None, Some(_)) => plan.steps.push(RealServerStep::RemoveFilter),
        _ => {}
    }
    for changed in leaving {
        restore(&mut plan, changed)?;
    }
    if record.has_tunnel && !tunnel {
        plan.steps.push(RealServerStep::TunnelDown);
    }
    units(&mut plan, record, seen, wish)?;
    Ok(plan)
}

/// Puts a setting back that is needed no longer, unless somebody else has set it since.
fn restore(plan: &mut RealServerPlan, changed: &ChangedSysctl) -> Result<(), KernelError> {
    let ChangedSysctl { setting, before, set } = changed;
    match setting.read()? {
        Some(now) if now == *set && now != *before => {
            plan.steps.push(RealServerStep::Restore { setting: setting.clone(), value: before.clone() });
        }
        Some(now) if now != *before => {
            plan.remarks.push(format!("{setting} is now {now}, set by another program: it is kept"));
            plan.steps.push(RealServerStep::Forget(setting.clone()));
        }
        // It is what it was, or its interface has gone.
        Some(_) | None => plan.steps.push(RealServerStep::Forget(setting.clone())),
    }
    Ok(())
}

fn units(
    plan: &mut RealServerPlan,
    record: &RealServerRecord,
    seen: &ObservedState,
    wish: &[ActiveVip],
) -> Result<(), KernelError> {
    if seen.keeps_units {
        return Ok(());
    }
    for up in wish.iter().filter(|up| up.is_persistent) {
        match unit::look(up) {
            UnitState::Ours => {}
            UnitState::Nothing | UnitState::OursOtherwise => {
                plan.steps.push(RealServerStep::WriteUnit(up.vip));
                if !unit::is_read() {
                    plan.remarks.push(format!(
                        "systemd does not run here (no {}): nothing starts the unit {}; run this command at boot",
                        unit::BOOTED,
                        unit::name(up.vip)
                    ));
                }
            }
            UnitState::Foreign => {
                let reason = "exists, and was not created by this program";
                return Err(KernelError::new(
                    format!("unit {}", unit::name(up.vip)),
                    reason,
                    "remove it, or omit --persistent",
                ));
            }
        }
    }
    let stays = |vip: IpAddr| wish.iter().any(|up| up.vip == vip && up.is_persistent);
    let mut gone: Vec<IpAddr> = record.up.iter().map(|up| up.vip).chain(seen.gone.iter().copied()).collect();
    gone.sort_unstable();
    gone.dedup();
    let removed = gone.into_iter().filter(|vip| !stays(*vip) && unit::is_ours(*vip));
    plan.steps.extend(removed.map(RealServerStep::RemoveUnit));
    Ok(())
}

impl fmt::Display for RealServerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RealServerStep::Set { setting, before, value } => write!(f, "set {setting} to {value} (it is {before})"),
            RealServerStep::Filter(FilterRules(Rules(quiet))) => {
                let vips: Vec<String> = quiet.iter().map(|quiet| quiet.vip.to_string()).collect();
                write!(f, "create {} of nftables, which suppresses ARP for {}", filter::table(), vips.join(" and "))?;
                match quiet.first().map(|quiet| &quiet.instead[..]) {
                    None | Some([]) => Ok(()),
                    Some(instead) => {
                        let own: Vec<String> =
                            instead.iter().map(|(interface, own)| format!("{own} on {interface}")).collect();
                        write!(f, "; ARP requests are sent with {} as source", own.join(" and "))
                    }
                }
            }
            RealServerStep::TunnelUp => write!(f, "set interface {TUNNEL} up"),
            RealServerStep::Add(vip) => write!(f, "put {vip}"),
            RealServerStep::Remove(vip) => write!(f, "remove {vip}"),
            RealServerStep::TunnelDown => write!(f, "set interface {TUNNEL} down"),
            RealServerStep::RemoveFilter => write!(f, "remove {} of nftables", filter::table()),
            RealServerStep::Restore { setting, value } => write!(f, "restore {setting} to {value}"),
            RealServerStep::Forget(setting) => write!(f, "leave {setting} as it is"),
            RealServerStep::WriteUnit(vip) => write!(f, "write and enable the unit {}", unit::name(*vip)),
            RealServerStep::RemoveUnit(vip) => write!(f, "disable and remove the unit {}", unit::name(*vip)),
        }
    }
}
