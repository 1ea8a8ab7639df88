//! `mode direct`: the model and the states of servers, made so in the kernel.
//!
//! [`lower`] says what shall be there, pure; `keeper` is the thread that does it; `books` enters what the kernel counted. Here is
//! what the change path has of it: the answer of [`Direct::foresight`] may refuse, [`Direct::commit`] gives the thread what is wanted now, and
//! [`Direct::step`] follows the states of servers from then on, tries again what failed, and looks every while whether the kernel
//! is still as it shall be. Nothing is begun before it is decided that this process serves ([`Direct::begin`]), and nothing is
//! touched any more once another one does.

mod addresses;
mod books;
mod charge;
mod ending;
mod foresight;
mod keeper;
pub mod lower;
mod pace;
mod prober;
mod rights;
mod telling;
mod wanted;

use std::collections::HashSet;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_direct::KernelError;
use baton_health::Prober;
use baton_model::Model;
use baton_proxy::{Generation, Refused, Registry};
use tokio::sync::Notify;

use books::Books;
use charge::{Announcement, Charge, GivenUp, Inheritance};
use ending::Ending;
pub use foresight::{Foreseen, Foresight};
use keeper::Planner;
pub use keeper::{DirectorSetup, KeeperReply, Work};
use keeper::{Done, Keeper, KernelFigures};

use pace::{Order, Pace, Purpose};
pub use rights::{judge, missing_rights};
use telling::Telling;
use wanted::{Sections, advice, left_behind, refuse};
pub use wanted::{leaves_something, work};

use crate::messages::Said;

/// How long a reload waits for the kernel before it is told that it is in use.
const COMMIT_WITHIN: Duration = Duration::from_secs(5);

/// What the change path has of it. Three things say what it does: whose it is to change the kernel (`charge.rs`), what the thread is doing
/// (`pace.rs`), and whether anything is wanted (`Demand`, in this file).
#[derive(Default)]
pub struct Direct {
    demand: Demand,
    charge: Charge,
    inheritance: Inheritance,
    given_up: GivenUp,
    keeper: Option<Keeper>,
    pace: Pace<Work>,
    /// What the sections ask for, from one look to the next.
    sections: Sections,
    books: Books,
    /// Settings of the system that are in the way, until it is said.
    advice: Vec<String>,
    /// Addresses that stay though nobody asks for them, as long as something listens on them; as of the last work.
    held: Held,
    /// Told when the state of a server changes.
    changed: Arc<Notify>,
    /// What was said, and is still so.
    telling: Telling,
    /// A soft stop waits for connections that the kernel has.
    ending: Option<Ending>,
}

/// Whether the configuration in use has a section of `mode direct` that takes part: it is asked for after every event.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Demand {
    #[default]
    Nothing,
    Services,
}

/// Whether addresses stay that nobody asks for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Held {
    #[default]
    Nothing,
    Addresses,
}

impl Demand {
    fn of(model: &Model) -> Demand {
        match model.has_direct() {
            true => Demand::Services,
            false => Demand::Nothing,
        }
    }
}

impl Direct {
    /// Opens what has to be open before the process gives up its rights, which it does to become `user`.
    ///
    /// # Errors
    /// As [`Foresight::against`].
    pub fn open(&mut self, model: &Model) -> Result<(), Refused> {
        let user = Some((model.global.uid, model.global.gid)).filter(|_| nix::unistd::geteuid().is_root());
        let user = user.and_then(|(uid, gid)| Some((uid?, gid.unwrap_or_else(|| nix::unistd::getegid().as_raw()))));
        match (model.has_direct(), self.inheritance.is_some()) {
            (true, _) => {}
            (false, true) => self.inheritance = Inheritance::Opened(open_inherited(user)),
            (false, false) => self.advice = left_behind(),
        }
        self.start(model, user).map_err(|fault| refuse(model, "mode direct", &rights::explain(&fault)))?;
        self.given_up = match (&model.global.chroot, user) {
            (Some(_), _) => GivenUp::Root,
            (None, Some(_)) => GivenUp::User,
            (None, None) => GivenUp::Nothing,
        };
        Ok(())
    }

    /// Who adds to a fault what this process lacks. What the keeper's thread has when root was given up, is not to be seen from here.
    fn explainer(&self) -> impl Fn(&KernelError) -> String + use<> {
        let is_unseen = self.given_up.hides_rights(self.keeper.is_some());
        move |fault| rights::explain_unless(is_unseen, fault)
    }

    fn start(&mut self, model: &Model, user: Option<(u32, u32)>) -> Result<(), KernelError> {
        let (asked, settings) = (lower::engine(model), lower::settings(model));
        let fits = self.keeper.as_ref().is_some_and(|keeper| keeper.about().is_by(asked));
        if !model.has_direct() || fits {
            return Ok(());
        }
        let is_succeeding = self.inheritance.is_some() || self.keeper.is_some();
        let keeper = Keeper::start(asked, &settings, user, is_succeeding)?;
        // The one before ends. What it had in another engine, this one removes when its own is in place.
        self.keeper = Some(keeper);
        self.advice = advice(model);
        self.pace.begin_anew();
        Ok(())
    }
}

impl Direct {
    /// Takes up a configuration that is in use. Before [`Direct::begin`] that changes nothing in the kernel.
    pub async fn commit(&mut self, model: &Arc<Model>, generation: &Generation, registry: &Registry) -> Vec<Said> {
        self.demand = Demand::of(model);
        let backends = lower::pairs(model).filter_map(|(_, back)| generation.backends.get(&back.name));
        backends.for_each(|plan| plan.state.tell_changes(&self.changed));
        let mut said = Vec::new();
        if !self.charge.is_serving() {
            return said;
        }
        if let Err(fault) = self.start(model, None) {
            // It could be opened a moment ago, when it was asked for.
            said.extend(self.telling.of_failure(rights::explain(&fault)));
        }
        said.extend(self.advise());
        if self.keeper.is_some() && (model.has_direct() || self.pace.has_work() || self.held == Held::Addresses) {
            let until = tokio::time::Instant::now() + COMMIT_WITHIN;
            // An answer to what was asked before is none to this.
            self.answered(until, model, generation, &mut said).await;
            let wanted = self.sections.work(model, registry);
            self.pace.give(wanted.clone(), Instant::now());
            self.reconcile(wanted);
            if !self.answered(until, model, generation, &mut said).await {
                said.push(Said::Trouble("mode direct: the change is still being applied in the kernel.".into()));
            }
        }
        self.close_unneeded();
        said
    }

    /// Waits for what is asked for now; whether it was answered in time.
    async fn answered(
        &mut self,
        until: tokio::time::Instant,
        model: &Model,
        generation: &Generation,
        said: &mut Vec<Said>,
    ) -> bool {
        while self.pace.is_at_work() {
            match tokio::time::timeout_at(until, self.next()).await {
                Ok(Some(answer)) => said.extend(self.take(answer, model, Some(generation))),
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Nothing is asked for any more, and nothing is there. The thread stays: if the process gave up root, no other one could be
    /// had when something is asked for again.
    fn close_unneeded(&mut self) {
        if self.demand == Demand::Services || self.pace.is_at_work() {
            return;
        }
        if let (Some(keeper), true) = (&self.keeper, self.pace.stop()) {
            keeper.clear();
            match self.held {
                Held::Nothing => self.telling.forget(),
                Held::Addresses => {}
            }
        }
        self.sections = Sections::default();
    }

    /// Whether the process that we take over from had services.
    pub fn recall(&mut self, had_services: bool) {
        if had_services {
            self.inheritance = std::mem::take(&mut self.inheritance).with_services();
        }
    }

    /// An answer came that nobody wants: somebody takes over.
    pub fn let_pass(&mut self) {
        self.pace.let_pass();
    }

    /// It is decided that this process serves: from now on the kernel is made what is asked for. What is there already stays as
    /// it is, and virtual addresses are announced.
    pub async fn begin(&mut self, model: &Arc<Model>, generation: &Generation, registry: &Registry) -> Vec<Said> {
        self.charge = self.charge.begin();
        if model.has_direct() {
            return self.commit(model, generation, registry).await;
        }
        match std::mem::take(&mut self.inheritance) {
            Inheritance::Nothing => self.advise(),
            Inheritance::Services => self.flush_inherited(open_inherited(None), model),
            Inheritance::Opened(opened) => self.flush_inherited(opened, model),
        }
    }

    /// What is to be known of the surroundings, once.
    fn advise(&mut self) -> Vec<Said> {
        self.advice.drain(..).map(|text| Said::Trouble(format!("mode direct: {text}"))).collect()
    }

    /// Removes what the process had that we took over from, since we are asked for nothing.
    fn flush_inherited(&mut self, opened: Result<Keeper, KernelError>, model: &Model) -> Vec<Said> {
        match opened {
            Ok(keeper) => keeper
                .leave(Work { listened: lower::listened(model), ..Work::default() })
                .map(|done| self.conclude(&done))
                .unwrap_or_default(),
            Err(fault) => vec![Said::Trouble(format!(
                "mode direct: kernel state of the previous process is kept: {}",
                rights::explain(&fault)
            ))],
        }
    }

    /// Another process serves, or takes over just now: nothing is touched any more.
    pub fn rest(&mut self) {
        self.charge = self.charge.rest();
        if let Some(keeper) = &self.keeper {
            keeper.rest();
        }
    }

    /// Whether the configuration in use has anything for the kernel.
    pub fn is_asked(&self) -> bool {
        self.demand == Demand::Services
    }

    /// Whether it is ours to change the kernel.
    pub fn is_in_charge(&self) -> bool {
        self.charge.is_serving() && self.keeper.is_some()
    }

    /// The end of who serves, and nobody follows: what the sections say goes.
    pub fn leave(&mut self, model: &Model, registry: &Registry) -> Vec<Said> {
        if !self.is_in_charge() {
            return Vec::new();
        }
        self.charge = self.charge.rest();
        let Some(keeper) = self.keeper.take() else { return Vec::new() };
        if !leaves_something(model) {
            return Vec::new();
        }
        let kept = lower::kept_at_exit(model);
        let mut work = work(model, registry);
        work.listened.clear();
        work.services.retain(|service| kept.contains(&service.key));
        let addresses: HashSet<_> = kept.iter().filter_map(baton_direct::ServiceKey::virtual_address).collect();
        work.managed.retain(|managed| addresses.contains(&managed.address));
        let look = keeper.about().look();
        match keeper.leave(work) {
            Some(done) => self.conclude(&done),
            None => {
                vec![Said::Trouble(format!("mode direct: the kernel did not respond; see what is left with {look}."))]
            }
        }
    }

    /// A soft stop: what goes at the end gets nothing new from now on, and stays as long as it has connections. What is to be said.
    pub fn end_softly(&mut self, model: &Model) -> Vec<Said> {
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.charge.is_serving() && leaves_something(model)) else {
            return Vec::new();
        };
        if !keeper.about().knows_connections() {
            let text = format!("engine {} does not track open connections: not waiting for any", keeper.about().engine);
            return vec![telling::logged(&text)];
        }
        self.ending = Some(Ending::default());
        self.pace.count_soon(Instant::now());
        Vec::new()
    }

    /// Connections of services that go, for a soft stop to wait for.
    pub fn left(&self) -> usize {
        match &self.ending {
            Some(ending) if self.is_in_charge() => ending.left(),
            Some(_) | None => 0,
        }
    }

    /// What happens next: a state that changed, or an answer.
    pub async fn next(&mut self) -> Option<KeeperReply> {
        let Some(keeper) = &mut self.keeper else { return pending().await };
        tokio::select! {
            answer = keeper.answer() => match answer {
                Some(answer) => Some(answer),
                None => {
                    // Its thread has ended, by a fault of ours: the next step starts another one.
                    self.keeper = None;
                    self.pace.begin_anew();
                    None
                }
            },
            () = self.changed.notified(), if !self.pace.is_at_work() => None,
        }
    }

    /// When time alone makes something happen.
    pub fn due(&self) -> Option<Instant> {
        if self.is_in_charge() { self.pace.due() } else { None }
    }

    /// Takes an answer, and gives the thread what is to be done now.
    pub fn step(
        &mut self,
        answer: Option<KeeperReply>,
        model: &Arc<Model>,
        generation: Option<&Generation>,
        registry: &Registry,
        now: Instant,
    ) -> Vec<Said> {
        let mut said = answer.map(|answer| self.take(answer, model, generation)).unwrap_or_default();
        if !self.charge.is_serving() {
            return said;
        }
        if self.demand == Demand::Nothing {
            self.close_unneeded();
            return said;
        }
        if self.keeper.is_none()
            && let Err(fault) = self.start(model, None)
        {
            said.extend(self.telling.of_failure(rights::explain(&fault)));
        }
        if self.keeper.is_none() || self.pace.is_at_work() {
            return said;
        }
        lower::pairs(model)
            .filter_map(|(_, back)| registry.backend_state(&back.name))
            .for_each(|back| back.warm_up(now));
        let mut wanted = self.sections.work(model, registry);
        if self.ending.is_some() {
            ending::quiet(&mut wanted, model);
        }
        match self.pace.step(wanted, now) {
            Order::Nothing => {}
            Order::Reconcile(work) => self.reconcile(work),
            Order::Count => self.keeper.iter().for_each(Keeper::figures),
        }
        said
    }

    fn reconcile(&mut self, work: Work) {
        let Some(keeper) = &self.keeper else { return };
        let (announcement, charge) = self.charge.announce();
        self.charge = charge;
        keeper.reconcile(work, announcement == Announcement::Due);
    }

    fn take(&mut self, answer: KeeperReply, model: &Model, generation: Option<&Generation>) -> Vec<Said> {
        match answer {
            KeeperReply::Counted(counted) => self.note(&counted, model, generation),
            KeeperReply::Reconciled(done) => {
                if let (Some(figures), Some(generation)) = (&done.figures, generation) {
                    self.books.enter(figures, model, generation);
                }
                self.conclude(&done)
            }
            KeeperReply::Left(fault) => self.telling.of_failure(fault.to_string()),
        }
    }

    /// What was counted is entered, and what is in the way is told.
    fn note(&mut self, counted: &KernelFigures, model: &Model, generation: Option<&Generation>) -> Vec<Said> {
        if let Some(keeper) = &mut self.keeper {
            keeper.set_manner(counted.manner.clone());
        }
        self.pace.counted(counted.has_lost);
        if let (Ok(figures), Some(generation)) = (&counted.figures, generation) {
            self.books.enter(figures, model, generation);
        }
        if let Some(ending) = &mut self.ending {
            ending.count(counted.figures.as_deref().unwrap_or_default(), model);
        }
        self.telling.of_surroundings(counted)
    }

    /// What became of work is told, and what failed is tried again later.
    fn conclude(&mut self, done: &Done) -> Vec<Said> {
        let is_repair = self.pace.purpose() == Purpose::Repair;
        let explain = self.explainer();
        let (said, is_well) = self.telling.of_work(done, is_repair, explain);
        self.held = if done.held.is_empty() { Held::Nothing } else { Held::Addresses };
        if let Some(ending) = &mut self.ending {
            ending.is_quiet(is_well);
        }
        self.pace.done(is_well, Instant::now());
        said
    }

    /// Which engine, and why.
    pub fn about(&self) -> Option<&DirectorSetup> {
        self.keeper.as_ref().map(Keeper::about)
    }

    /// What is in the way, as it was said last.
    pub fn complaints(&self) -> impl Iterator<Item = &str> {
        self.telling.complaints()
    }

    /// Who asks servers for the virtual address.
    pub fn prober(&self) -> Option<Prober> {
        self.keeper.as_ref().map(Keeper::prober)
    }

    /// Who can say on another thread what a model would change.
    pub fn foresight(&self, registry: &Arc<Registry>) -> Foresight {
        let running = self.keeper.as_ref();
        let running = running.map(|keeper| (keeper.planner(), keeper.about().clone()));
        let &Direct { given_up, charge, .. } = self;
        Foresight::new(foresight::Process { running, given_up, charge }, registry.clone())
    }
}

/// Who removes what another process had.
fn open_inherited(user: Option<(u32, u32)>) -> Result<Keeper, KernelError> {
    Keeper::start(baton_direct::EngineChoice::Auto, &baton_direct::DirectorSettings::default(), user, true)
}
