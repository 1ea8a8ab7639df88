//! What a model would change in the kernel, for `baton plan`, and what refuses a reload. Nothing is changed.

use std::sync::Arc;
use std::time::Instant;

use baton_direct::vip::Vips;
use baton_direct::{Director, KernelError, Plan};
use baton_model::Model;
use baton_proxy::{Refused, Registry};

use super::charge::{Charge, GivenUp};
use super::keeper::about;
use super::{DirectorSetup, Planner, Work, addresses, lower, refuse, rights, work};

/// Looks ahead, with the eyes of the process or, without one, with its own.
pub struct Foresight {
    process: Option<Process>,
    registry: Arc<Registry>,
}

/// The process that a reload would change.
pub(super) struct Process {
    pub running: Option<(Planner, DirectorSetup)>,
    pub given_up: GivenUp,
    pub charge: Charge,
}

/// What was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// The engine, then a sentence for each step; nothing when nothing is to be done.
    pub steps: Vec<String>,
    /// What cannot be done.
    pub refused: Vec<Refused>,
    /// What could not be seen, or should be known.
    pub warnings: Vec<String>,
}

impl Default for Foresight {
    /// Without a process.
    fn default() -> Foresight {
        Foresight { process: None, registry: Arc::new(Registry::new(1, Instant::now())) }
    }
}

impl Foresight {
    pub(super) fn new(process: Process, registry: Arc<Registry>) -> Foresight {
        Foresight { process: Some(process), registry }
    }

    /// What cannot be done of what this model asks for, which refuses a reload. Blocks for as long as the kernel, and whoever changes it, takes:
    /// not for the thread of the change path, on which health checks and the runtime API are.
    ///
    /// # Errors
    /// With the reasons.
    pub fn against(&self, model: &Model) -> Result<(), Vec<Refused>> {
        // What is there goes when nothing is asked for; that needs no looking ahead.
        let refused = if model.has_direct() { self.of(model).refused } else { Vec::new() };
        if refused.is_empty() { Ok(()) } else { Err(refused) }
    }

    /// What this model would change now, and what a reload would refuse.
    pub fn of(&self, model: &Model) -> Foreseen {
        let running = self.process.as_ref().and_then(|process| process.running.as_ref());
        if !model.has_direct() && running.is_none() {
            return Foreseen::default();
        }
        let work = work(model, &self.registry);
        let services = work.services();
        let (plan, about) = match (running, &self.process) {
            (Some((planner, about)), _) if about.is_by(lower::engine(model)) || !model.has_direct() => {
                (planner.plan(work), Some(about.clone()))
            }
            (Some((_, about)), Some(process)) if process.given_up != GivenUp::Nothing => (Err(about.no_other()), None),
            (None, Some(process)) if process.given_up == GivenUp::Root => (Err(rights::jailed()), None),
            _ => match self.open(model, &work) {
                Ok((plan, about)) => (Ok(plan), Some(about)),
                Err(fault) => (Err(fault), None),
            },
        };
        let mut plan = match plan {
            Ok(plan) => plan,
            Err(fault) if self.process.is_some() && model.has_direct() => {
                let why = self.explain(&fault);
                return Foreseen { refused: vec![refuse(model, "mode direct", &why)], ..Foreseen::default() };
            }
            // Who asks need not have the rights that a process would have.
            Err(fault) => {
                let unseen = format!("mode direct: cannot show the kernel changes: {}", self.explain(&fault));
                let (refused, mut warnings) = rights::unseen(model, &services);
                warnings.insert(0, unseen);
                return Foreseen { refused, warnings, steps: Vec::new() };
            }
        };
        let warnings = std::mem::take(&mut plan.warnings);
        let warnings = warnings.into_iter().map(|text| format!("mode direct: {text}")).collect();
        let refused = plan.refused.iter().map(|no| refuse(model, &no.what, &no.why)).collect();
        let mut steps: Vec<String> = plan.to_string().lines().map(str::to_owned).collect();
        if let (Some(about), false) = (about, steps.is_empty()) {
            steps.insert(0, format!("in the kernel, engine {}:", about.engine));
        }
        Foreseen { steps, refused, warnings }
    }

    /// With what this process lacks.
    fn explain(&self, fault: &KernelError) -> String {
        let is_unseen = |process: &Process| process.given_up.hides_rights(process.running.is_some());
        rights::explain_unless(self.process.as_ref().is_some_and(is_unseen), fault)
    }

    /// As nobody does who runs here, by a director of its own.
    fn open(&self, model: &Model, work: &Work) -> Result<(Plan, DirectorSetup), KernelError> {
        let mut director = Director::open(lower::engine(model), &work.settings)?;
        if self.process.as_ref().is_some_and(|process| process.charge.is_serving() && process.running.is_none()) {
            director.look_around()?;
        }
        let mut plan = director.plan(&work.services_for(&director))?;
        if let Ok(mut vips) = Vips::open(&work.settings.owner) {
            plan.remarks.extend(addresses::foresee(&mut vips, work));
        }
        Ok((plan, about(&director)))
    }
}

#[cfg(test)]
mod tests {
    use baton_config::{FixedEnvironment, Options, load};

    use super::*;

    #[test]
    fn what_a_process_cannot_open_is_refused_as_its_reload_does() {
        let text = "listen web\n mode direct\n bind 192.0.2.1:80\n server s1 192.0.2.11\n";
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
        let model = loaded.model.expect("the text is right");
        let process = Process { running: None, given_up: GivenUp::Root, charge: Charge::Undecided.begin() };
        let foreseen = Foresight::new(process, Arc::new(Registry::new(1, Instant::now()))).of(&model);
        assert!(foreseen.steps.is_empty() && foreseen.warnings.is_empty(), "{foreseen:?}");
        assert!(foreseen.refused[0].reason.contains("changed its root"), "{foreseen:?}");
    }
}
