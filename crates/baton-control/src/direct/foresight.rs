//! What a model would change in the kernel, for `baton plan`. Nothing is changed.

use std::sync::Arc;
use std::time::Instant;

use baton_direct::Director;
use baton_direct::vip::Vips;
use baton_model::Model;
use baton_proxy::{Refused, Registry};

use super::keeper::about;
use super::{About, Planner, addresses, lower, refuse, rights, work};

/// Looks ahead, with the eyes of the process or, without one, with its own.
pub struct Foresight {
    running: Option<(Planner, About)>,
    /// See `Direct`.
    has_given_up: bool,
    registry: Arc<Registry>,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// The engine and why, then a sentence for each step.
    pub steps: Vec<String>,
    /// What cannot be done.
    pub refused: Vec<Refused>,
    /// What could not be seen, or should be known.
    pub warnings: Vec<String>,
}

impl Default for Foresight {
    /// Without a process.
    fn default() -> Foresight {
        Foresight::new(None, false, Arc::new(Registry::new(1, Instant::now())))
    }
}

impl Foresight {
    pub(super) fn new(running: Option<(Planner, About)>, has_given_up: bool, registry: Arc<Registry>) -> Foresight {
        Foresight { running, has_given_up, registry }
    }

    /// What this model would change now.
    pub fn of(&self, model: &Model) -> Foreseen {
        let asked = lower::engine(model);
        let work = work(model, &self.registry);
        if !model.has_direct() && self.running.is_none() {
            return Foreseen::default();
        }
        let (plan, about) = match &self.running {
            Some((planner, about)) if about.is_by(asked) || !model.has_direct() => {
                (planner.plan(work), Some(about.clone()))
            }
            Some((_, about)) if self.has_given_up => {
                let no = refuse(model, "mode direct", &about.no_other().to_string());
                return Foreseen { refused: vec![no], ..Foreseen::default() };
            }
            Some(_) | None => match Director::open(asked, &work.settings) {
                Ok(mut director) => {
                    let plan = director.plan(&work.services_for(&director)).map(|mut plan| {
                        let vips = Vips::open(&work.settings.owner);
                        plan.remarks.extend(vips.map_or(Vec::new(), |mut vips| addresses::foresee(&mut vips, &work)));
                        plan
                    });
                    (plan, Some(about(&director)))
                }
                Err(fault) => (Err(fault), None),
            },
        };
        let mut plan = match plan {
            Ok(plan) => plan,
            // Who asks need not have the rights that the process has.
            Err(fault) => {
                let unseen = format!(
                    "mode direct: what would be done in the kernel cannot be seen: {}",
                    rights::explain(&fault)
                );
                return Foreseen { warnings: vec![unseen], ..Foreseen::default() };
            }
        };
        let engine = about.map(|about| format!("in the kernel, by engine {} ({}):", about.engine, about.reason));
        let mut steps: Vec<String> = engine.into_iter().collect();
        let warnings = std::mem::take(&mut plan.warnings);
        let warnings = warnings.into_iter().map(|text| format!("mode direct: {text}")).collect();
        steps.extend(plan.to_string().lines().map(str::to_owned));
        let refused = plan.refused.iter().map(|no| refuse(model, &no.what, &no.why)).collect();
        Foreseen { steps, refused, warnings }
    }
}
