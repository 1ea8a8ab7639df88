//! `mode direct`: the model and the states of servers, made so in the kernel.
//!
//! [`lower`] says what shall be there, pure; `keeper` is the thread that does it; `books` enters what the kernel counted. Here is
//! what the change line has of it: the answer of [`Direct::foresight`] may refuse, [`Direct::commit`] gives the thread what is wanted now, and
//! [`Direct::step`] follows the states of servers from then on, tries again what failed, and looks every while whether the kernel
//! is still as it shall be. Nothing is begun before it is decided that this process serves ([`Direct::begin`]), and nothing is
//! touched any more once another one does.

mod addresses;
mod books;
mod ending;
mod foresight;
mod keeper;
pub mod lower;
mod prober;
mod rights;
mod telling;
mod wanted;

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_direct::Fault;
use baton_model::Model;
use baton_proxy::{Generation, Refused, Registry};
use tokio::sync::Notify;

use books::Books;
use ending::Ending;
pub use foresight::{Foreseen, Foresight};
use keeper::Planner;
pub use keeper::{About, Answer, Work};
use keeper::{Counted, Done, Keeper};
pub use prober::Prober;
pub use rights::{judge, missing_rights};
use telling::Telling;
pub use telling::Word;
use wanted::{advice, left_behind, refuse};
pub use wanted::{leaves_something, work};

/// How often counters are read.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Every so many times it is looked whether somebody else changed what is ours; what was removed is missing when counters are read.
const REPAIR_EVERY: u32 = 10;
/// After a failure it is tried again this much later, then later and later ...
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// ... up to this.
const RETRY_MAX: Duration = Duration::from_secs(30);
/// How long a reload waits for the kernel before it is told that it is in use.
const COMMIT_WITHIN: Duration = Duration::from_secs(5);

/// What the change line has of it.
#[derive(Default)]
pub struct Direct {
    /// The configuration in use has a section of `mode direct` that takes part: it is asked for after every event.
    is_asked: bool,
    keeper: Option<Keeper>,
    /// The process has become another user or has another root since it began: no other engine can be opened.
    has_given_up: bool,
    /// It has another root.
    is_jailed: bool,
    /// We are the ones who serve.
    has_begun: bool,
    /// The process that we took over from had services.
    has_inherited: bool,
    /// Opened to remove them, while we had the rights to.
    inherited: Option<Result<Keeper, Fault>>,
    /// What the thread was last given.
    given: Option<Work>,
    /// It has not answered yet.
    is_at_work: bool,
    /// The last time it failed so often in a row, and when it is tried again.
    failures: u32,
    retry_at: Option<Instant>,
    count_at: Option<Instant>,
    counts: u32,
    books: Books,
    /// Settings of the system that are in the way, until it is said.
    advice: Vec<String>,
    /// An address stays that nobody asks for, as long as something listens on it.
    is_holding: bool,
    /// What is given is what was given before, and was done.
    is_repair: bool,
    /// Somebody else has removed what is ours, as it was seen when counters were read.
    has_lost: bool,
    /// Addresses that are here are announced with the next work.
    announces: bool,
    /// Told when the state of a server changes.
    changed: Arc<Notify>,
    /// What was said, and is still so.
    telling: Telling,
    /// A soft stop waits for connections that the kernel has.
    ending: Option<Ending>,
}

impl Direct {
    /// Opens what has to be open before the process gives up its rights, which it does to become `user`.
    ///
    /// # Errors
    /// As [`Foresight::against`].
    pub fn open(&mut self, model: &Model) -> Result<(), Refused> {
        let user = Some((model.global.uid, model.global.gid)).filter(|_| nix::unistd::geteuid().is_root());
        let user = user.and_then(|(uid, gid)| Some((uid?, gid.unwrap_or_else(|| nix::unistd::getegid().as_raw()))));
        match (model.has_direct(), self.has_inherited) {
            (true, _) => {}
            (false, true) => self.inherited = Some(open_inherited(user)),
            (false, false) => self.advice = left_behind(),
        }
        self.start(model, user).map_err(|fault| refuse(model, "mode direct", &rights::explain(&fault)))?;
        self.is_jailed = model.global.chroot.is_some();
        self.has_given_up = user.is_some() || self.is_jailed;
        Ok(())
    }

    /// Who adds to a fault what this process lacks. What the keeper's thread has when root was given up, is not to be seen from here.
    fn explainer(&self) -> impl Fn(&Fault) -> String + use<> {
        let is_unseen = self.has_given_up && (self.keeper.is_some() || self.is_jailed);
        move |fault| rights::explain_unless(is_unseen, fault)
    }

    fn start(&mut self, model: &Model, user: Option<(u32, u32)>) -> Result<(), Fault> {
        let (asked, settings) = (lower::engine(model), lower::settings(model));
        let fits = self.keeper.as_ref().is_some_and(|keeper| keeper.about().is_by(asked));
        if !model.has_direct() || fits {
            return Ok(());
        }
        let is_succeeding = self.has_inherited || self.keeper.is_some();
        let keeper = Keeper::start(asked, &settings, user, is_succeeding)?;
        // The one before ends. What it had in another engine, this one removes when its own is in place.
        self.keeper = Some(keeper);
        self.advice = advice(model);
        self.given = None;
        self.is_at_work = false;
        Ok(())
    }
}

impl Direct {
    /// Takes up a configuration that is in use. Before [`Direct::begin`] that changes nothing in the kernel.
    pub async fn commit(&mut self, model: &Arc<Model>, generation: &Generation, registry: &Registry) -> Vec<Word> {
        self.is_asked = model.has_direct();
        let backends = lower::pairs(model).filter_map(|(_, back)| generation.backends.get(&back.name));
        backends.for_each(|plan| plan.state.tell_changes(&self.changed));
        let mut words = Vec::new();
        if !self.has_begun {
            return words;
        }
        if let Err(fault) = self.start(model, None) {
            // It could be opened a moment ago, when it was asked for.
            words.extend(self.telling.of_failure(rights::explain(&fault)));
        }
        words.extend(self.advise());
        if self.keeper.is_some() && (model.has_direct() || self.given.is_some() || self.is_holding) {
            let until = tokio::time::Instant::now() + COMMIT_WITHIN;
            // An answer to what was asked before is none to this.
            self.answered(until, model, generation, &mut words).await;
            self.give(work(model, registry));
            if !self.answered(until, model, generation, &mut words).await {
                words.push(Word::Warning("mode direct: the kernel is still at work on the change.".into()));
            }
        }
        self.close_unneeded();
        words
    }

    /// Waits for what is asked for now; whether it was answered in time.
    async fn answered(
        &mut self,
        until: tokio::time::Instant,
        model: &Model,
        generation: &Generation,
        words: &mut Vec<Word>,
    ) -> bool {
        while self.is_at_work {
            match tokio::time::timeout_at(until, self.next()).await {
                Ok(Some(answer)) => words.extend(self.take(answer, model, Some(generation))),
                Ok(None) => {}
                Err(_) => return false,
            }
        }
        true
    }

    /// Nothing is asked for any more, and nothing is there. The thread stays: if the process gave up root, no other one could be
    /// had when something is asked for again.
    fn close_unneeded(&mut self) {
        if self.is_asked || self.is_at_work {
            return;
        }
        if let (Some(keeper), Some(_)) = (&self.keeper, self.given.take()) {
            keeper.clear();
            if !self.is_holding {
                self.telling.forget();
            }
        }
        (self.count_at, self.retry_at) = (None, None);
    }

    /// Whether the process that we take over from had services.
    pub fn recall(&mut self, had_services: bool) {
        self.has_inherited |= had_services;
    }

    /// An answer came that nobody wants: somebody takes over.
    pub fn let_pass(&mut self) {
        self.is_at_work = false;
    }

    /// It is decided that this process serves: from now on the kernel is made what is asked for. What is there already stays as
    /// it is, and virtual addresses are announced.
    pub async fn begin(&mut self, model: &Arc<Model>, generation: &Generation, registry: &Registry) -> Vec<Word> {
        (self.has_begun, self.announces) = (true, true);
        if model.has_direct() {
            return self.commit(model, generation, registry).await;
        }
        match std::mem::take(&mut self.has_inherited) {
            true => self.flush_inherited(model),
            false => self.advise(),
        }
    }

    /// What is to be known of the surroundings, once.
    fn advise(&mut self) -> Vec<Word> {
        self.advice.drain(..).map(|text| Word::Warning(format!("mode direct: {text}"))).collect()
    }

    /// Removes what the process had that we took over from, since we are asked for nothing.
    fn flush_inherited(&mut self, model: &Model) -> Vec<Word> {
        let opened = self.inherited.take().unwrap_or_else(|| open_inherited(None));
        match opened {
            Ok(keeper) => keeper
                .leave(Work { listened: lower::listened(model), ..Work::default() })
                .map(|done| self.conclude(&done))
                .unwrap_or_default(),
            Err(fault) => vec![Word::Warning(format!(
                "mode direct: what the process before had in the kernel stays there: {}",
                rights::explain(&fault)
            ))],
        }
    }

    /// Another process serves, or takes over just now: nothing is touched any more.
    pub fn rest(&mut self) {
        self.has_begun = false;
        if let Some(keeper) = &self.keeper {
            keeper.rest();
        }
    }

    /// Whether the configuration in use has anything for the kernel.
    pub fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Whether it is ours to change the kernel.
    pub fn is_in_charge(&self) -> bool {
        self.has_begun && self.keeper.is_some()
    }

    /// The end of who serves, and nobody follows: what the sections say goes.
    pub fn leave(&mut self, model: &Model, registry: &Registry) -> Vec<Word> {
        if !self.is_in_charge() {
            return Vec::new();
        }
        self.has_begun = false;
        let Some(keeper) = self.keeper.take() else { return Vec::new() };
        if !leaves_something(model) {
            return Vec::new();
        }
        let kept = lower::kept_at_exit(model);
        let mut work = work(model, registry);
        work.listened.clear();
        work.services.retain(|service| kept.contains(&service.key));
        let addresses: Vec<_> = kept.iter().filter_map(baton_direct::Key::virtual_address).collect();
        work.managed.retain(|managed| addresses.contains(&managed.address));
        let look = keeper.about().look();
        match keeper.leave(work) {
            Some(done) => self.conclude(&done),
            None => {
                vec![Word::Warning(format!("mode direct: the kernel did not answer; what is left there shows {look}."))]
            }
        }
    }

    /// A soft stop: what goes at the end gets nothing new from now on, and stays as long as it has connections. What is to be said.
    pub fn end_softly(&mut self, model: &Model) -> Vec<Word> {
        let Some(keeper) = self.keeper.as_ref().filter(|_| self.has_begun && leaves_something(model)) else {
            return Vec::new();
        };
        if !keeper.about().knows_connections() {
            let text = format!(
                "engine {} does not know which connections are open: none is waited for",
                keeper.about().engine
            );
            return vec![Word::Done(text)];
        }
        self.ending = Some(Ending::default());
        self.count_at = Some(Instant::now());
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
    pub async fn next(&mut self) -> Option<Answer> {
        let Some(keeper) = &mut self.keeper else { return pending().await };
        tokio::select! {
            answer = keeper.answer() => match answer {
                Some(answer) => Some(answer),
                None => {
                    // Its thread has ended, by a fault of ours: the next step starts another one.
                    self.keeper = None;
                    self.is_at_work = false;
                    None
                }
            },
            () = self.changed.notified(), if !self.is_at_work => None,
        }
    }

    /// When time alone makes something happen.
    pub fn due(&self) -> Option<Instant> {
        if !self.is_in_charge() || self.is_at_work {
            return None;
        }
        self.count_at.into_iter().chain(self.retry_at).min()
    }

    /// Takes an answer, and gives the thread what is to be done now.
    pub fn step(
        &mut self,
        answer: Option<Answer>,
        model: &Model,
        generation: Option<&Generation>,
        registry: &Registry,
        now: Instant,
    ) -> Vec<Word> {
        let mut words = answer.map(|answer| self.take(answer, model, generation)).unwrap_or_default();
        if !self.has_begun {
            return words;
        }
        if !self.is_asked {
            self.close_unneeded();
            return words;
        }
        if self.keeper.is_none()
            && let Err(fault) = self.start(model, None)
        {
            words.extend(self.telling.of_failure(rights::explain(&fault)));
        }
        if self.keeper.is_none() || self.is_at_work {
            return words;
        }
        lower::pairs(model)
            .filter_map(|(_, back)| registry.backend_state(&back.name))
            .for_each(|back| back.warm_up(now));
        let mut wanted = work(model, registry);
        if self.ending.is_some() {
            ending::quiet(&mut wanted, model);
        }
        let is_retried = self.retry_at.is_some_and(|at| at <= now);
        if self.given.as_ref() != Some(&wanted) || is_retried {
            self.give(wanted);
        } else if std::mem::take(&mut self.has_lost) {
            self.give(wanted);
            self.is_repair = self.failures == 0;
        } else if self.count_at.is_none_or(|at| at <= now) {
            self.counts = self.counts.wrapping_add(1);
            if self.counts.is_multiple_of(REPAIR_EVERY) {
                self.give(wanted);
                self.is_repair = self.failures == 0;
            } else if let Some(keeper) = &self.keeper {
                keeper.figures();
                self.is_at_work = true;
            }
            self.count_at = Some(now + COUNT_EVERY);
        }
        words
    }

    fn give(&mut self, work: Work) {
        let Some(keeper) = &self.keeper else { return };
        keeper.reconcile(work.clone(), std::mem::take(&mut self.announces));
        (self.given, self.is_at_work, self.retry_at) = (Some(work), true, None);
        (self.is_repair, self.has_lost) = (false, false);
        self.count_at.get_or_insert_with(|| Instant::now() + COUNT_EVERY);
    }

    fn take(&mut self, answer: Answer, model: &Model, generation: Option<&Generation>) -> Vec<Word> {
        self.is_at_work &= matches!(answer, Answer::Left(_));
        match answer {
            Answer::Counted(counted) => self.note(&counted, model, generation),
            Answer::Reconciled(done) => {
                if let (Some(figures), Some(generation)) = (&done.figures, generation) {
                    self.books.enter(figures, model, generation);
                }
                self.conclude(&done)
            }
            Answer::Left(fault) => self.telling.of_failure(fault.to_string()),
        }
    }

    /// What was counted is entered, and what is in the way is told.
    fn note(&mut self, counted: &Counted, model: &Model, generation: Option<&Generation>) -> Vec<Word> {
        if let Some(keeper) = &mut self.keeper {
            keeper.set_manner(counted.manner.clone());
        }
        self.has_lost = counted.has_lost;
        if let (Ok(figures), Some(generation)) = (&counted.figures, generation) {
            self.books.enter(figures, model, generation);
        }
        if let Some(ending) = &mut self.ending {
            ending.count(counted.figures.as_deref().unwrap_or_default(), model);
        }
        self.telling.of_surroundings(counted)
    }

    /// What became of work is told, and what failed is tried again later.
    fn conclude(&mut self, done: &Done) -> Vec<Word> {
        let is_repair = std::mem::take(&mut self.is_repair);
        let explain = self.explainer();
        let (words, is_well) = self.telling.of_work(done, is_repair, explain);
        self.is_holding = !done.held.is_empty();
        if let Some(ending) = &mut self.ending {
            ending.is_quiet(is_well);
        }
        if is_well {
            self.failures = 0;
        } else {
            let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(8)).min(RETRY_MAX);
            self.failures += 1;
            self.retry_at = Some(Instant::now() + pause);
        }
        words
    }

    /// Which engine, and why.
    pub fn about(&self) -> Option<&About> {
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
        let &Direct { has_given_up, is_jailed, has_begun, .. } = self;
        Foresight::new(foresight::Process { running, has_given_up, is_jailed, has_begun }, registry.clone())
    }
}

/// Who removes what another process had.
fn open_inherited(user: Option<(u32, u32)>) -> Result<Keeper, Fault> {
    Keeper::start(baton_direct::Asked::Auto, &baton_direct::Settings::default(), user, true)
}
