//! By two ipsets that change places: the first rule of iptables sends to blue while the port that clients dial is in blue's set, the
//! second one sends the others to green. A swap is one message to the kernel, for IPv4 and IPv6 alike, and no rule is touched.
//!
//! A connection is decided by one look into one set. With a look into each set, one that came between two rules while the sets
//! changed places was in neither, and refused.
//!
//! Where other sets or rules replace those that are there, new connections go to the instance that is to be active by a plain
//! rule for so long: at no moment anybody finds nothing.

use baton_kernel::ipset::{Ipsets, PortSet};

use super::act::{self, KernelChange};
use super::method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
use super::rules::{Rules, colour_of, sends};
use super::{Colour, Name, Setting};
use crate::KernelError;

/// What the names of our sets begin with; what they end with is the colour.
const PREFIX: &str = "baton-";
/// What follows the name of a set that is to change places with it. No flip's name has it.
const ASIDE: &str = "+";
/// The name under which it is tried whether this kernel has such sets. No flip has it.
const TRIAL: &str = "+";

/// The method `ipset`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ipset;

const RULES: Rules = Rules { prefix: "SWAP-" };

fn set(name: &str, colour: Colour) -> String {
    format!("{PREFIX}{name}-{colour}")
}

fn aside(name: &str, colour: Colour) -> String {
    format!("{}{ASIDE}", set(name, colour))
}

/// What the rule of an instance asks of a connection, besides the port.
fn asks(name: &str, colour: Colour) -> String {
    match colour {
        Colour::Blue => format!("-m set --match-set {} dst ", set(name, colour)),
        Colour::Green => String::new(),
    }
}

fn rules(setting: &Setting, v4: bool, name: &str) -> Vec<String> {
    Colour::BOTH.into_iter().filter_map(|colour| sends(setting, v4, colour, &asks(name, colour))).collect()
}

/// The sets of a flip that are there.
fn sets(name: &str) -> Result<Vec<PortSet>, KernelError> {
    let ours = Colour::BOTH.map(|colour| [set(name, colour), aside(name, colour)]).concat();
    let mut found = Ipsets::open()?.list(&format!("{PREFIX}{name}-"))?;
    found.retain(|set| ours.contains(&set.name));
    Ok(found)
}

fn removal(name: &str) -> Result<Vec<KernelChange>, KernelError> {
    Ok(sets(name)?.into_iter().map(|set| KernelChange::Destroy { set: set.name }).collect())
}

/// Two sets, of which one has the port.
fn created(port: u16, active: Colour, name: impl Fn(Colour) -> String) -> Vec<KernelChange> {
    let mut acts: Vec<KernelChange> =
        Colour::BOTH.map(|colour| KernelChange::Create { set: name(colour), port }).into();
    acts.push(KernelChange::Add { set: name(active), port });
    acts
}

/// What is done in three parts: what a crash left is removed; then what may be refused and undone; then what is not needed any more
/// is removed.
fn install(setting: &Setting, active: Colour) -> Result<[Vec<KernelChange>; 3], KernelError> {
    let (name, port) = (setting.name.as_str(), setting.listen.port);
    let there = sets(name)?;
    let last = |v4| rules(setting, v4, name);
    if there.is_empty() && !RULES.leads(&setting.name)? {
        let mut acts = created(port, active, |colour| set(name, colour));
        acts.extend(RULES.install(setting, last)?);
        return Ok([Vec::new(), acts, Vec::new()]);
    }
    let is_there = |set: &String| there.iter().any(|found| found.name == *set);
    let left = Colour::BOTH.map(|colour| aside(name, colour)).into_iter().filter(is_there);
    let left = left.map(|set| KernelChange::Destroy { set }).collect();
    let missing = Colour::BOTH.map(|colour| set(name, colour)).into_iter().filter(|set| !is_there(set));
    let mut acts: Vec<KernelChange> = missing.map(|set| KernelChange::Create { set, port }).collect();
    acts.extend(created(port, active, |colour| aside(name, colour)));
    let meanwhile = |v4| sends(setting, v4, active, "").into_iter().collect();
    acts.extend(RULES.install(setting, meanwhile)?);
    acts.extend(Colour::BOTH.map(|colour| KernelChange::Swap { one: set(name, colour), other: aside(name, colour) }));
    acts.extend(RULES.refill(setting, meanwhile, last)?);
    let old = Colour::BOTH.map(|colour| KernelChange::Destroy { set: aside(name, colour) });
    Ok([left, acts, old.into()])
}

fn swap(name: &str) -> KernelChange {
    KernelChange::Swap { one: set(name, Colour::Blue), other: set(name, Colour::Green) }
}

impl FlipMethod for Ipset {
    fn kind(&self) -> FlipMethodKind {
        FlipMethodKind::Ipset
    }

    fn check(&self, setting: &Setting) -> Result<(), KernelError> {
        act::each(&removal(TRIAL)?)?;
        let tried = act::all(&created(setting.listen.port, Colour::Blue, |colour| set(TRIAL, colour)))
            .and_then(|()| RULES.check(setting, |v4| rules(setting, v4, TRIAL)));
        tried.and(removal(TRIAL).and_then(|acts| act::each(&acts)))
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, KernelError> {
        let name = setting.name.as_str();
        let found = sets(name)?;
        if found.is_empty() && !RULES.is_there(&setting.name)? {
            return Ok(Observed::Absent);
        }
        for v4 in setting.served() {
            let Some(rules) = RULES.found(setting, v4)? else {
                return Ok(Observed::Broken("some iptables rules are missing".into()));
            };
            // The one that stands in while sets and rules are replaced.
            if let [rule] = rules.as_slice()
                && !rule.contains("--match-set")
                && let Some(colour) = colour_of(setting, v4, rule)
            {
                return Ok(Observed::Halfway(colour));
            }
            let leads = |(rule, colour): (&String, Colour)| {
                let asks = asks(name, colour);
                let is_as_made = if asks.is_empty() { !rule.contains("--match-set") } else { rule.contains(&asks) };
                colour_of(setting, v4, rule) == Some(colour) && is_as_made
            };
            if rules.len() != Colour::BOTH.len() || !rules.iter().zip(Colour::BOTH).all(leads) {
                return Ok(Observed::Broken("the iptables rules were changed".into()));
            }
        }
        let is_in = |colour| found.contains(&PortSet { name: set(name, colour), ports: vec![setting.listen.port] });
        Ok(match (is_in(Colour::Blue), is_in(Colour::Green)) {
            (true, false) => Observed::Active(Colour::Blue),
            (false, true) => Observed::Active(Colour::Green),
            (true, true) | (false, false) => {
                Observed::Broken("the port is not in exactly one of the two ipsets".into())
            }
        })
    }

    fn install(&self, setting: &Setting, active: Colour, _: bool) -> Result<(), KernelError> {
        let [left, acts, old] = install(setting, active)?;
        act::each(&left)?;
        act::all(&acts)?;
        // All is as it should be; what is left of it goes next time.
        let _ = act::each(&old);
        Ok(())
    }

    fn guard(&self, setting: &Setting) -> Result<(), KernelError> {
        act::all(&RULES.guard(setting)?)
    }

    fn has_guard(&self, name: &Name) -> Result<bool, KernelError> {
        RULES.has_guard(name)
    }

    fn unguard(&self, setting: &Setting) -> Result<(), KernelError> {
        act::each(&RULES.remove(&setting.name, true)?)
    }

    fn switch(&self, setting: &Setting, _: Colour) -> Result<(), KernelError> {
        swap(setting.name.as_str()).run()
    }

    fn remove(&self, name: &Name) -> Result<(), KernelError> {
        act::each(&RULES.remove(name, false)?)?;
        act::each(&removal(name.as_str())?)
    }

    fn names(&self) -> Result<Vec<Name>, KernelError> {
        let mut names = RULES.names()?;
        let ends = Colour::BOTH.map(|colour| format!("-{colour}"));
        let found = match Ipsets::open().and_then(|mut sets| sets.list(PREFIX)) {
            Err(refusal) if refusal.fault.is_no_right() => return Err(refusal.into()),
            other => other.unwrap_or_default(),
        };
        for found in found {
            let whole = found.name.trim_end_matches(ASIDE);
            let name = ends.iter().find_map(|end| whole.strip_prefix(PREFIX)?.strip_suffix(end.as_str())?.parse().ok());
            names.extend(name.filter(|name| !names.contains(name)));
        }
        Ok(names)
    }

    fn plan(&self, setting: &Setting, step: PlanStep) -> Result<Vec<String>, KernelError> {
        let acts = match step {
            PlanStep::Install { active, .. } => install(setting, active)?.concat(),
            PlanStep::Switch(_) => vec![swap(setting.name.as_str())],
            PlanStep::Guard => RULES.guard(setting)?,
            PlanStep::Unguard => RULES.remove(&setting.name, true)?,
        };
        Ok(act::typed(&acts))
    }

    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, KernelError> {
        let mut acts = RULES.remove(name, false)?;
        acts.extend(removal(name.as_str())?);
        Ok(act::typed(&acts))
    }
}
