//! By a rule of iptables, which a flip replaces by another one, in one step of its table. There is no moment without a rule.
//!
//! For hosts that live with iptables and have no ipset. With IPv4 and IPv6, the one flips an instant before the other.

use super::act::{self, Act};
use super::method::{Kind, Method, Observed, Step};
use super::rules::{Rules, colour_of, sends};
use super::{Colour, Name, Setting};
use crate::Fault;

/// The method `iptables`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iptables;

const RULES: Rules = Rules { prefix: "FLIP-" };

fn rule(setting: &Setting, v4: bool, colour: Colour) -> Vec<String> {
    sends(setting, v4, colour, "").into_iter().collect()
}

fn acts(setting: &Setting, step: Step) -> Result<Vec<Act>, Fault> {
    match step {
        Step::Install { active, .. } => RULES.install(setting, |v4| rule(setting, v4, active)),
        Step::Switch(to) => RULES.refill(setting, |v4| rule(setting, v4, to.other()), |v4| rule(setting, v4, to)),
        Step::Guard => RULES.guard(setting),
        Step::Unguard => RULES.remove(&setting.name, true),
    }
}

impl Method for Iptables {
    fn kind(&self) -> Kind {
        Kind::Iptables
    }

    fn check(&self, setting: &Setting) -> Result<(), Fault> {
        RULES.check(setting, |v4| rule(setting, v4, Colour::Blue))
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, Fault> {
        if !RULES.is_there(&setting.name)? {
            return Ok(Observed::Absent);
        }
        let mut active = None;
        for v4 in setting.served() {
            let Some(rules) = RULES.found(setting, v4)? else {
                return Ok(Observed::Broken("the rules of iptables are not all there".into()));
            };
            let [rule] = rules.as_slice() else {
                return Ok(Observed::Broken(format!("there are {} rules of iptables where one was made", rules.len())));
            };
            let Some(colour) = colour_of(setting, v4, rule) else {
                return Ok(Observed::Broken("the rule of iptables leads to neither of the two".into()));
            };
            if active.is_some_and(|active| active != colour) {
                return Ok(Observed::Broken("IPv4 and IPv6 lead to different instances".into()));
            }
            active = Some(colour);
        }
        Ok(active.map_or(Observed::Absent, Observed::Active))
    }

    fn install(&self, setting: &Setting, active: Colour, is_guarded: bool) -> Result<(), Fault> {
        act::all(&acts(setting, Step::Install { active, is_guarded })?)
    }

    fn guard(&self, setting: &Setting) -> Result<(), Fault> {
        act::all(&acts(setting, Step::Guard)?)
    }

    fn has_guard(&self, name: &Name) -> Result<bool, Fault> {
        RULES.has_guard(name)
    }

    fn unguard(&self, setting: &Setting) -> Result<(), Fault> {
        act::each(&acts(setting, Step::Unguard)?)
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), Fault> {
        act::all(&acts(setting, Step::Switch(to))?)
    }

    fn remove(&self, name: &Name) -> Result<(), Fault> {
        act::each(&RULES.remove(name, false)?)
    }

    fn names(&self) -> Result<Vec<Name>, Fault> {
        RULES.names()
    }

    fn plan(&self, setting: &Setting, step: Step) -> Result<Vec<String>, Fault> {
        Ok(act::typed(&acts(setting, step)?))
    }

    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, Fault> {
        Ok(act::typed(&RULES.remove(name, false)?))
    }
}
