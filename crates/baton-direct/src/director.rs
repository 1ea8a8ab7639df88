//! The director: makes the kernel what is asked for, step by step, and knows what is its own.
//!
//! It holds nothing that connections need. When it ends, however it ends, the kernel goes on; the next one finds the record and
//! what is in the kernel, and does only what differs.
//!
//! One program at a time directs by a record: two that both make the kernel what they are asked for would undo each other's work.
//!
//! Where the one before had another engine, its services are removed from there when all of this engine's are in place. Connections
//! are an engine's own: they do not change from one to the other.

use std::collections::BTreeSet;
use std::time::Duration;

use baton_kernel::state::Lock;

use crate::plan::ExistingServices;
use crate::record::{EngineRecord, Opened};
use crate::settings::{SyncRole, Tune};
use crate::{
    DirectorSettings, Engine, EngineChoice, Figures, KernelChange, KernelError, Plan, Refused, Service, ServiceKey,
    choose,
};

/// How long the one before may take to give up the charge once it was told to.
const CHARGE_WITHIN: Duration = Duration::from_secs(2);

/// What stays in the kernel when the program ends for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExit {
    /// Everything: connections go on, and new ones are balanced as it was last.
    #[default]
    Keep,
    /// Nothing that is ours.
    Flush,
}

/// An engine with the record of what is ours.
pub struct Director {
    engine: Box<dyn Engine>,
    reason: String,
    settings: DirectorSettings,
    record: EngineRecord,
    /// What was ours last: whose figures are shown.
    ours: BTreeSet<ServiceKey>,
    /// Of these what was in the kernel after the last reconciliation.
    there: ExistingServices,
    /// The other engine, as long as our record says that we have services in it; or why it cannot be looked at.
    former: Option<Result<Box<Director>, KernelError>>,
    /// That nobody else directs by this record, from the first reconciliation on.
    charge: Option<Lock>,
}

/// What became of a plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorReport {
    /// What was done, one sentence each, in its order.
    pub done: Vec<String>,
    /// Services that somebody else had put there and that are ours now.
    pub taken_over: Vec<ServiceKey>,
    /// What was left out, because it cannot be done.
    pub refused: Vec<Refused>,
    /// What the kernel refused. What depended on it was left out; the next reconciliation tries it again.
    pub failed: Vec<KernelError>,
    /// What else the operator should know, one sentence each.
    pub remarks: Vec<String>,
}

impl DirectorReport {
    /// Whether nothing was done and nothing is to be said.
    pub fn is_empty(&self) -> bool {
        *self == DirectorReport::default()
    }
}

impl Director {
    /// Chooses the engine and opens it, in the calling thread's network namespace. Nothing is changed.
    ///
    /// # Errors
    /// Without a kernel that can do it, or without the right; it says which and what helps.
    pub fn open(asked: EngineChoice, settings: &DirectorSettings) -> Result<Director, KernelError> {
        let holder = if asked == EngineChoice::Auto { holder(settings) } else { None };
        let (engine, reason) = choose::engine(asked, holder, settings)?;
        let record = EngineRecord::open(engine.name(), settings)?;
        let mut director = Director::with(engine, reason, settings, record)?;
        director.former = director.former_engine()?;
        Ok(director)
    }

    fn former_engine(&self) -> Result<Option<Result<Box<Director>, KernelError>>, KernelError> {
        for name in choose::NAMES.into_iter().filter(|name| *name != self.engine.name()) {
            let record = EngineRecord::open(name, &self.settings)?;
            let opened = record.read()?;
            let has_some = !opened.owners.ours.is_empty() || !opened.sync.is_empty();
            drop(opened);
            if has_some {
                let engine = name.parse().map_err(|reason| KernelError::new("engine", reason, ""));
                let engine = engine.and_then(|asked| choose::engine(asked, None, &self.settings));
                return Ok(Some(engine.and_then(|(engine, reason)| {
                    Director::with(engine, reason, &self.settings, record).map(Box::new)
                })));
            }
        }
        Ok(None)
    }

    /// With an engine that was chosen already.
    fn with(
        engine: Box<dyn Engine>,
        reason: String,
        settings: &DirectorSettings,
        record: EngineRecord,
    ) -> Result<Director, KernelError> {
        let ours = record.read()?.owners.ours;
        Ok(Director {
            engine,
            reason,
            settings: settings.clone(),
            record,
            ours,
            there: ExistingServices::default(),
            former: None,
            charge: None,
        })
    }

    /// Gives the record, and what is the engine's, to a user and a group; what is left in another engine too, which is to be removed
    /// later. To be called by a program that gives up root, before it does so; it keeps CAP_NET_ADMIN.
    ///
    /// # Errors
    /// Without the right to.
    pub fn give_to(&mut self, user: u32, group: u32) -> Result<(), KernelError> {
        if let Some(Ok(former)) = &mut self.former {
            former.give_to(user, group)?;
        }
        self.engine.give_to(user, group)?;
        self.record.give_to(user, group)
    }

    /// `ipvs` or `xdp`.
    pub fn engine_name(&self) -> &'static str {
        self.engine.name()
    }

    /// Why this engine, a sentence.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// What happens to the connections of a server or a service that is removed, a sentence.
    pub fn removal(&self) -> &'static str {
        self.engine.removal()
    }

    /// How the engine is set up here, a sentence; empty when there is nothing to say.
    pub fn manner(&self) -> String {
        self.engine.manner()
    }

    /// Other settings from now on: they are set with the next reconciliation. The owner stays as it was.
    pub fn set(&mut self, settings: &DirectorSettings) {
        let owner = std::mem::take(&mut self.settings).owner;
        self.settings = DirectorSettings { owner, ..settings.clone() };
    }

    /// Whether nobody else directs here.
    ///
    /// # Errors
    /// When another program does; the words name it.
    pub fn look_around(&self) -> Result<(), KernelError> {
        match &self.charge {
            Some(_) => Ok(()),
            None => self.record.charge(Duration::ZERO).map(drop),
        }
    }

    /// Lets another program direct here. The next reconciliation takes the charge again, if it is free then.
    pub fn rest(&mut self) {
        self.charge = None;
    }

    /// Takes the charge, which [`reconcile`](Self::reconcile) does automatically.
    ///
    /// # Errors
    /// When another program keeps it.
    pub fn take_charge(&mut self) -> Result<(), KernelError> {
        if self.charge.is_none() {
            self.charge = Some(self.record.charge(CHARGE_WITHIN)?);
        }
        Ok(())
    }

    /// Services that are ours and in the kernel, as of the last reconciliation.
    pub fn ours(&self) -> impl Iterator<Item = &ServiceKey> {
        self.ours.iter()
    }

    /// What the engine cannot do of what is asked for. It asks the kernel nothing.
    pub fn judge(&self, desired: &[Service]) -> Vec<Refused> {
        let reasons = |service: &Service| {
            let what = format!("service {}", service.key);
            self.engine.judge(service).into_iter().map(move |why| Refused { what: what.clone(), why })
        };
        desired.iter().flat_map(reasons).collect()
    }

    /// What an operator should know of these settings and services, one sentence each. It asks the kernel nothing.
    pub fn advise(&self, settings: &DirectorSettings, desired: &[Service]) -> Vec<String> {
        self.engine.advise(settings, desired)
    }

    /// Whether weight 0 keeps away also clients that stick to a destination, by these settings once they are in force: see
    /// [`Engine::keeps_away`].
    pub fn keeps_away(&self, settings: &DirectorSettings) -> bool {
        self.engine.keeps_away(settings)
    }

    /// What is here that is against these settings and services. Nothing is changed.
    ///
    /// # Errors
    /// What cannot be read of the kernel.
    pub fn look(&mut self, settings: &DirectorSettings, desired: &[Service]) -> Result<Vec<Refused>, KernelError> {
        self.engine.look(settings, desired)
    }

    /// What [`reconcile`](Self::reconcile) would do now. Nothing is changed.
    ///
    /// # Errors
    /// What cannot be read of the kernel or of the records.
    pub fn plan(&mut self, desired: &[Service]) -> Result<Plan, KernelError> {
        let opened = self.record.read()?;
        let mut plan = plan(&mut *self.engine, &self.settings, &opened, desired)?;
        plan.refused.extend(self.engine.look(&self.settings, desired)?);
        plan.remarks.extend(self.engine.foresee(&self.settings, desired)?);
        match &mut self.former {
            None => {}
            Some(Err(fault)) => plan.warnings.push(unreachable(fault)),
            Some(Ok(former)) => {
                plan.warnings.extend(change_of_engine(&*self.engine, former, desired));
                former.set(&DirectorSettings::default());
                let steps = former.plan(&[])?.to_string();
                let name = former.engine_name();
                plan.remarks.extend(steps.lines().map(|step| format!("engine {name}, afterwards: {step}")));
            }
        }
        Ok(plan)
    }

    /// What would be done with these settings in place of the current ones, which are kept.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_by(&mut self, settings: &DirectorSettings, desired: &[Service]) -> Result<Plan, KernelError> {
        let own = self.settings.clone();
        self.set(settings);
        let plan = self.plan(desired);
        self.settings = own;
        plan
    }

    /// Makes the kernel what is asked for. What did not change is not touched, what is not ours is left alone, and what is there
    /// under a key that is asked for becomes ours. A second time there is nothing left to do.
    ///
    /// # Errors
    /// What cannot be read of the kernel, or cannot be written to the record: then nothing was done, or what was done is in the
    /// record; and when another program directs here. A step that the kernel refuses is in the report instead.
    pub fn reconcile(&mut self, desired: &[Service]) -> Result<DirectorReport, KernelError> {
        self.take_charge()?;
        self.make(desired)
    }

    /// Reconciles the kernel with the services, for a director that is in charge.
    fn make(&mut self, desired: &[Service]) -> Result<DirectorReport, KernelError> {
        let mut opened = self.record.read()?;
        let plan = plan(&mut *self.engine, &self.settings, &opened, desired)?;
        // Without services it works by nothing.
        let is_set = if desired.is_empty() { Ok(()) } else { self.engine.set(&self.settings) };
        let made = carry_out(&mut *self.engine, &mut opened, &plan);
        self.ours.clone_from(&opened.owners.ours);
        drop(opened);
        let (mut report, there) = made?;
        self.there = there;
        report.failed.extend(is_set.err());
        if let Some(Ok(former)) = &self.former {
            report.remarks.extend(change_of_engine(&*self.engine, former, desired));
        }
        // Not before this engine has all of it.
        let is_complete = report.failed.is_empty();
        match &mut self.former {
            None => {}
            Some(Err(fault)) => report.remarks.push(unreachable(fault)),
            Some(Ok(_)) if !is_complete => {}
            Some(Ok(former)) => {
                let name = former.engine_name();
                match former.flush() {
                    Ok(left) => {
                        report.done.extend(left.done.into_iter().map(|step| format!("engine {name}: {step}")));
                        report.failed.extend(left.failed);
                    }
                    Err(fault) => report.failed.push(fault),
                }
                if report.failed.is_empty() {
                    self.former = None;
                }
            }
        }
        Ok(report)
    }

    /// What the kernel counted of the services that are ours.
    ///
    /// # Errors
    /// What cannot be read of the kernel.
    pub fn figures(&mut self) -> Result<Vec<Figures>, KernelError> {
        let mut figures = self.engine.figures()?;
        figures.retain(|service| self.ours.contains(&service.key));
        Ok(figures)
    }

    /// Whether somebody else has removed a service of ours or a server of one, by what was counted just now.
    pub fn has_lost(&self, figures: &[Figures]) -> bool {
        self.there.lacks(figures)
    }

    /// Looks again at what others change and the engine depends on; to be called every few seconds. Gives what is in the way now,
    /// a sentence each; empty is well.
    ///
    /// # Errors
    /// What cannot be read of the kernel.
    pub fn refresh(&mut self) -> Result<Vec<String>, KernelError> {
        self.engine.refresh()
    }

    /// The end. What was kept is still in the record: the next director goes on with it.
    ///
    /// # Errors
    /// As [`reconcile`](Self::reconcile).
    pub fn leave(&mut self, on_exit: OnExit) -> Result<DirectorReport, KernelError> {
        match on_exit {
            OnExit::Keep => {
                self.rest();
                Ok(DirectorReport::default())
            }
            OnExit::Flush => {
                self.take_charge()?;
                let report = self.flush();
                self.rest();
                report
            }
        }
    }

    /// Nothing is asked for, for now: as [`leave`](Self::leave) with [`OnExit::Flush`], but what this program could not make again it
    /// keeps for itself.
    ///
    /// # Errors
    /// As [`reconcile`](Self::reconcile).
    pub fn pause(&mut self) -> Result<DirectorReport, KernelError> {
        self.take_charge()?;
        let report = self.empty(|engine| engine.pause());
        self.rest();
        report
    }

    fn flush(&mut self) -> Result<DirectorReport, KernelError> {
        self.empty(|engine| engine.leave())
    }

    /// Removes what is ours in either engine, and then what the engine has besides.
    fn empty(
        &mut self,
        besides: impl FnOnce(&mut dyn Engine) -> Result<(), KernelError>,
    ) -> Result<DirectorReport, KernelError> {
        if let Some(Err(_)) = self.former {
            // What was in the way then need not be now.
            self.former = self.former_engine()?;
        }
        self.set(&DirectorSettings::default());
        let report = self.make(&[])?;
        // Others of our kind may have services in this engine.
        if report.failed.is_empty() && self.record.read()?.owners.others.is_empty() {
            besides(&mut *self.engine)?;
        }
        Ok(report)
    }
}

/// The engine that has services of ours here, by the records; of two the one that would be chosen anyway. What cannot be read says
/// whoever needs it.
fn holder(settings: &DirectorSettings) -> Option<&'static str> {
    let has_some = |name: &&'static str| {
        let record = EngineRecord::open(name, settings);
        record.is_ok_and(|record| record.read().is_ok_and(|opened| !opened.owners.ours.is_empty()))
    };
    choose::NAMES.into_iter().find(has_some)
}

/// What becomes of connections when one engine takes over from another.
fn change_of_engine(engine: &dyn Engine, former: &Director, desired: &[Service]) -> Option<String> {
    let (new, old) = (engine.name(), former.engine_name());
    let changes = !desired.is_empty() && !former.ours.is_empty();
    changes.then(|| {
        format!(
            "the engine changes from {old} to {new}, which does not know the open connections: they end, unless they reach the \
             same server by chance; `engine {old}` keeps them"
        )
    })
}

fn unreachable(fault: &KernelError) -> String {
    format!("services of Baton remain in another engine: {fault}")
}

fn plan(
    engine: &mut dyn Engine,
    settings: &DirectorSettings,
    opened: &Opened,
    desired: &[Service],
) -> Result<Plan, KernelError> {
    let observed = engine.observe()?;
    let started: Vec<SyncRole> = opened.sync.iter().copied().collect();
    let tuning = engine.tuning(settings, &started)?;
    let mut plan = Plan::new(&observed, desired, &opened.owners, |service| engine.judge(service), engine.removal());
    plan.tunes = tuning.tunes;
    plan.remarks.extend(engine.advise(settings, desired));
    let refused = |why| Refused { what: "global".into(), why };
    plan.refused.extend(tuning.refused.into_iter().map(refused));
    if let Some(fault) = &opened.unreadable {
        let asked: BTreeSet<ServiceKey> = desired.iter().map(|service| service.key).collect();
        let left: Vec<String> = observed
            .iter()
            .map(|found| found.service.key)
            .filter(|key| !asked.contains(key))
            .map(|key| key.to_string())
            .collect();
        let left = if left.is_empty() { "nothing".to_owned() } else { left.join(", ") };
        plan.remarks.push(format!(
            "the record of Baton's services is lost: {fault}; services outside the configuration are not removed: {left}"
        ));
    }
    Ok(plan)
}

/// Takes the steps of a plan, and says what is there then. The record comes first: whoever finds it finds at least what we put there.
fn carry_out(
    engine: &mut dyn Engine,
    opened: &mut Opened,
    plan: &Plan,
) -> Result<(DirectorReport, ExistingServices), KernelError> {
    let mut report = DirectorReport {
        taken_over: plan.taken_over.clone(),
        refused: plan.refused.clone(),
        remarks: plan.remarks.clone(),
        ..DirectorReport::default()
    };
    let (mut ours, mut sync) = (opened.owners.ours.clone(), opened.sync.clone());
    ours.extend(&plan.taken_over);
    ours.extend(plan.steps.iter().filter_map(|planned| match &planned.step {
        KernelChange::AddService(service) => Some(service.key),
        _ => None,
    }));
    sync.extend(plan.tunes.iter().filter_map(|tune| match tune {
        Tune::StartSync(role, _) => Some(*role),
        _ => None,
    }));
    opened.write(ours.clone(), sync.clone())?;

    for tune in &plan.tunes {
        let is_done = match engine.tune(tune) {
            Ok(()) => {
                report.done.push(tune.to_string());
                true
            }
            Err(fault) => {
                report.failed.push(fault);
                false
            }
        };
        match tune {
            Tune::StopSync(role) if is_done => drop(sync.remove(role)),
            Tune::StartSync(role, _) if !is_done => drop(sync.remove(role)),
            // Stopped to be started with other settings.
            Tune::StartSync(role, _) => drop(sync.insert(*role)),
            _ => {}
        }
    }
    let mut there = plan.there.clone();
    let missing = take_steps(engine, plan, &mut report, &mut ours, &mut there);
    ours.retain(|key| !missing.contains(key) && !plan.gone.contains(key));
    opened.write(ours, sync)?;
    Ok((report, there))
}

/// Takes the steps themselves; `ours` and `there` follow what is removed and added. Gives the services that could not be added.
fn take_steps(
    engine: &mut dyn Engine,
    plan: &Plan,
    report: &mut DirectorReport,
    ours: &mut BTreeSet<ServiceKey>,
    there: &mut ExistingServices,
) -> BTreeSet<ServiceKey> {
    let steps: Vec<&KernelChange> = plan.steps.iter().map(|planned| &planned.step).collect();
    let mut missing = BTreeSet::new();
    if steps.is_empty() {
        return missing;
    }
    let is_begun = engine.begin(&steps);
    for planned in &plan.steps {
        let key = planned.step.key();
        if missing.contains(&key) {
            continue; // a destination of a service that could not be added
        }
        match is_begun.clone().and_then(|()| engine.take(&planned.step)) {
            Ok(()) => report.done.push(planned.sentence.clone()),
            Err(fault) => {
                // What stands in the way of many is said once.
                if !report.failed.contains(&fault) {
                    report.failed.push(fault);
                }
                if let KernelChange::AddService(_) = planned.step {
                    missing.insert(key);
                }
                continue;
            }
        }
        there.take(&planned.step);
        if let KernelChange::RemoveService(_) = planned.step {
            ours.remove(&key);
        }
    }
    report.failed.extend(engine.finish().err());
    missing
}

#[cfg(test)]
mod tests;
