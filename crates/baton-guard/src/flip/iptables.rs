//! By a rule of iptables: the new one is put before the old one, which is then deleted. There is no moment without a rule.
//!
//! For hosts that live with iptables and have no ipset. With IPv4 and IPv6, the one flips an instant before the other.

use super::method::{Kind, Method, Observed, Step};
use super::rules::{Rules, colour_of, sends};
use super::{Colour, Name, Setting};
use crate::Fault;
use crate::iptables::Change;

/// See the head of this module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iptables;

const RULES: Rules = Rules { prefix: "FLIP-" };

fn rule(setting: &Setting, v4: bool, colour: Colour) -> Vec<String> {
    sends(setting, v4, colour, "").into_iter().collect()
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
            // The first rule decides; a second one is what a crash in the middle left.
            let Some(colour) = rules.first().and_then(|rule| colour_of(setting, v4, rule)) else {
                return Ok(Observed::Broken("the rule of iptables leads to neither of the two".into()));
            };
            if active.is_some_and(|active| active != colour) {
                return Ok(Observed::Broken("IPv4 and IPv6 lead to different instances".into()));
            }
            active = Some(colour);
        }
        Ok(active.map_or(Observed::Absent, Observed::Active))
    }

    fn install(&self, setting: &Setting, active: Colour) -> Result<(), Fault> {
        RULES.install(setting, |v4| rule(setting, v4, active))
    }

    fn switch(&self, setting: &Setting, to: Colour) -> Result<(), Fault> {
        for v4 in setting.served() {
            let old = RULES.found(setting, v4)?.unwrap_or_default();
            for rule in rule(setting, v4, to) {
                RULES.change(setting, v4, |chain| Change::Insert(chain, rule.clone()))?;
            }
            for rule in old {
                // A rule with the same words as the new one is deleted by its first place; the one that is left is the same.
                RULES.change(setting, v4, |chain| Change::Delete(chain, rule.clone()))?;
            }
        }
        Ok(())
    }

    fn remove(&self, name: &Name) -> Result<(), Fault> {
        RULES.remove(name)
    }

    fn names(&self) -> Result<Vec<Name>, Fault> {
        RULES.names()
    }

    fn plan(&self, setting: &Setting, step: Step) -> Vec<String> {
        match step {
            Step::Install(active) => RULES.plan_install(setting, |v4| rule(setting, v4, active)),
            Step::Switch(to) => {
                let mut lines = Vec::new();
                for v4 in setting.served() {
                    let new = sends(setting, v4, to, "").unwrap_or_default();
                    let old = sends(setting, v4, to.other(), "").unwrap_or_default();
                    lines.extend(RULES.plan_change(setting, v4, |chain| Change::Insert(chain, new.clone())));
                    lines.extend(RULES.plan_change(setting, v4, |chain| Change::Delete(chain, old.clone())));
                }
                lines
            }
            Step::Remove => vec![RULES.plan_remove(setting)],
        }
    }
}
