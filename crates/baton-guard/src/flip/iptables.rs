//! By a rule of iptables, which a flip replaces by another one, in one step of its table. There is no moment without a rule.
//!
//! For hosts that live with iptables and have no ipset. With IPv4 and IPv6, the one flips an instant before the other.

use super::act::{self, KernelChange};
use super::method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
use super::rules::{Rules, colour_of, sends};
use super::{Colour, Name, Setting};
use crate::KernelError;

/// The method `iptables`.
#[derive(Clone, Copy, Debug)]
pub(super) struct IptablesMethod;

const RULES: Rules = Rules { prefix: "FLIP-" };

fn rule(setting: &Setting, v4: bool, colour: Colour) -> Vec<String> {
    sends(setting, v4, colour, "").into_iter().collect()
}

fn acts(setting: &Setting, step: PlanStep) -> Result<Vec<KernelChange>, KernelError> {
    match step {
        PlanStep::Install { active, .. } => RULES.install(setting, |v4| rule(setting, v4, active)),
        PlanStep::Switch(to) => RULES.refill(setting, |v4| rule(setting, v4, to.other()), |v4| rule(setting, v4, to)),
        PlanStep::Guard => RULES.guard(setting),
        PlanStep::Unguard => RULES.remove(&setting.name, true),
    }
}

impl FlipMethod for IptablesMethod {
    fn kind(&self) -> FlipMethodKind {
        FlipMethodKind::Iptables
    }

    fn check(&self, setting: &Setting) -> Result<(), KernelError> {
        RULES.check(setting, |v4| rule(setting, v4, Colour::Blue))
    }

    fn observe(&self, setting: &Setting) -> Result<Observed, KernelError> {
        if !RULES.is_there(&setting.name)? {
            return Ok(Observed::Absent);
        }
        let mut active = None;
        for v4 in setting.served() {
            let Some(rules) = RULES.found(setting, v4)? else {
                return Ok(Observed::Broken("some iptables rules are missing".into()));
            };
            let [rule] = rules.as_slice() else {
                return Ok(Observed::Broken(format!("there are {} iptables rules instead of one", rules.len())));
            };
            let Some(colour) = colour_of(setting, v4, rule) else {
                return Ok(Observed::Broken("the iptables rule leads to neither instance".into()));
            };
            if active.is_some_and(|active| active != colour) {
                return Ok(Observed::Broken("IPv4 and IPv6 lead to different instances".into()));
            }
            active = Some(colour);
        }
        Ok(active.map_or(Observed::Absent, Observed::Active))
    }

    fn install(&self, setting: &Setting, active: Colour, is_guarded: bool) -> Result<(), KernelError> {
        act::all(&acts(setting, PlanStep::Install { active, is_guarded })?)
    }

    fn guard(&self, setting: &Setting) -> Result<(), KernelError> {
        act::all(&acts(setting, PlanStep::Guard)?)
    }

    fn has_guard(&self, name: &Name) -> Result<bool, KernelError> {
        RULES.has_guard(name)
    }

    fn unguard(&self, setting: &Setting) -> Result<(), KernelError> {
        act::each(&acts(setting, PlanStep::Unguard)?)
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), KernelError> {
        act::all(&acts(setting, PlanStep::Switch(to))?)
    }

    fn remove(&self, name: &Name) -> Result<(), KernelError> {
        act::each(&RULES.remove(name, false)?)
    }

    fn names(&self) -> Result<Vec<Name>, KernelError> {
        RULES.names()
    }

    fn plan(&self, setting: &Setting, step: PlanStep) -> Result<Vec<String>, KernelError> {
        Ok(act::typed(&acts(setting, step)?))
    }

    fn plan_removal(&self, name: &Name) -> Result<Vec<String>, KernelError> {
        Ok(act::typed(&RULES.remove(name, false)?))
    }
}
