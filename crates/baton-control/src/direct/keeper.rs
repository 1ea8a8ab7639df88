//! The thread that owns the director: what it is asked blocks for as long as the kernel takes, and the change path must not.
//!
//! It has one job at a time, in order. When the process gives up root, this thread alone keeps the rights that balancing takes
//! (capabilities(7)); all others lose them.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use baton_direct::vip::{self, Vip, Vips};
use baton_direct::who_has::others;
use baton_direct::{
    Director, DirectorReport, DirectorSettings, EngineChoice, Figures, KernelError, Plan, Service, ServiceKey,
};
use baton_health::Prober;
use baton_kernel::process::capabilities::{self, Capability};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::addresses::{foresee, held, places};
use super::lower::Managed;
use super::prober;

/// How long the change path waits for an answer that it cannot do without.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How often it is asked who else answers for the virtual addresses.
const WHO_HAS_EVERY: Duration = Duration::from_secs(60);
/// How long it waits for others who answer.
const WHO_HAS_WITHIN: Duration = Duration::from_millis(300);

/// What the thread needs: services and addresses, probes and announcements, and for the engine xdp its programs.
const RIGHTS: [Capability; 4] =
    [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW, Capability::CAP_BPF, Capability::CAP_PERFMON];

/// What shall be in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Services. Those that did not change are the same objects as in the work before, which is what comparing begins with.
    pub services: Vec<Arc<Service>>,
    /// Servers of those that have to go where weight 0 does not keep away clients that stick to them.
    pub down: BTreeSet<(ServiceKey, SocketAddr)>,
    /// What is asked besides.
    pub settings: DirectorSettings,
    /// Virtual addresses of this machine.
    pub managed: Vec<Managed>,
    /// Addresses that something listens on: of ours, such a one stays.
    pub listened: BTreeSet<IpAddr>,
}

impl Work {
    /// Services as they are asked for.
    pub fn services(&self) -> Vec<Service> {
        self.services.iter().map(|service| Service::clone(service)).collect()
    }

    /// Services as this director's engine takes them.
    pub fn services_for(&self, director: &Director) -> Vec<Service> {
        let mut services = self.services();
        if !self.down.is_empty() && !director.keeps_away(&self.settings) {
            for service in services.iter_mut().filter(|service| service.persistence.is_some()) {
                service.destinations.retain(|server| !self.down.contains(&(service.key, server.address)));
            }
        }
        services
    }
}

/// What the thread says.
#[derive(Debug)]
pub enum KeeperReply {
    /// Of `Keeper::reconcile`.
    Reconciled(Done),
    /// Of `Keeper::figures`.
    Counted(KernelFigures),
    /// Of `Keeper::clear`, where something was left.
    Left(KernelError),
}

/// What is so now.
#[derive(Debug)]
pub struct KernelFigures {
    /// What the kernel counted.
    pub figures: Result<Vec<Figures>, KernelError>,
    /// A service of ours or a server of one is not among it: somebody else has removed it.
    pub has_lost: bool,
    /// What is in the engine's way, a sentence each.
    pub in_the_way: Result<Vec<String>, KernelError>,
    /// Who else answers for virtual addresses, a sentence each.
    pub others: Vec<String>,
    /// How the engine works here.
    pub manner: String,
}

/// What became of work.
#[derive(Debug)]
pub struct Done {
    /// Counted before anything was changed.
    pub figures: Option<Vec<Figures>>,
    /// Services.
    pub services: Result<DirectorReport, KernelError>,
    /// Virtual addresses; `None` when there was nothing to do about them.
    pub vips: Option<Result<vip::VipReport, KernelError>>,
    /// Of these, those that nobody asks for and that stay because something listens on them.
    pub held: Vec<Vip>,
}

/// How the director is set up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirectorSetup {
    /// `ipvs` or `xdp`.
    pub engine: &'static str,
    /// Why this one, a sentence.
    pub reason: String,
    /// How it works here, a sentence or nothing.
    pub manner: String,
}

impl DirectorSetup {
    /// Whether the engine in use is what is asked for.
    pub fn is_by(&self, asked: EngineChoice) -> bool {
        match asked {
            EngineChoice::Auto => true,
            EngineChoice::Ipvs => self.engine == "ipvs",
            EngineChoice::Xdp => self.engine == "xdp",
        }
    }

    /// Whether the engine knows which connections are open.
    pub fn knows_connections(&self) -> bool {
        self.engine == "ipvs"
    }

    /// What shows an operator what the engine has in the kernel.
    pub fn look(&self) -> &'static str {
        match self.engine {
            "ipvs" => "`ipvsadm -Ln`",
            _ => "`ip link` (xdp) and `ls /sys/fs/bpf/baton-direct`",
        }
    }

    /// Why there is no other engine in this process.
    pub fn no_other(&self) -> KernelError {
        KernelError::new(
            format!("another engine than {}, which is in use", self.engine),
            "it needs rights and files that the process gave up at its start ('user', 'chroot')",
            "start a new process that takes over (baton -sf PID)",
        )
    }
}

enum Job {
    Plan(Box<Work>, SyncSender<Result<Plan, KernelError>>),
    Reconcile {
        work: Box<Work>,
        announce: bool,
    },
    Figures,
    /// Nothing is asked for, and nothing is there: what the engine needs besides goes.
    Clear,
    /// Another process directs now.
    Rest,
    /// The end: this is what stays.
    Leave(Box<Work>, SyncSender<Done>),
}

/// The thread, and how it is spoken with.
pub struct Keeper {
    jobs: Sender<Job>,
    answers: UnboundedReceiver<KeeperReply>,
    probes: Prober,
    about: DirectorSetup,
}

impl Keeper {
    /// Opens the director for the network namespace of this thread, and starts the one that keeps it. `user` is whom the process
    /// will become; nobody else may direct here, unless it is known that the one who does will cease (`is_succeeding`).
    ///
    /// # Errors
    /// As [`Director::open`], and when another program directs here.
    pub fn start(
        asked: EngineChoice,
        settings: &DirectorSettings,
        user: Option<(u32, u32)>,
        is_succeeding: bool,
    ) -> Result<Keeper, KernelError> {
        let mut director = Director::open(asked, settings)?;
        if !is_succeeding {
            director.look_around()?;
        }
        if let Some((user, group)) = user {
            director.give_to(user, group)?;
        }
        let about = about(&director);
        let mut vips = Vips::open(&settings.owner);
        if let (Ok(vips), Some((user, group))) = (&mut vips, user) {
            vips.give_to(user, group)?;
        }
        let (jobs, todo) = mpsc::channel();
        let (say, answers) = unbounded_channel();
        let desk = KeeperState {
            director,
            vips,
            todo,
            say,
            rounds: Vec::new(),
            rounds_left: 0,
            managed: Vec::new(),
            has_put: false,
            others: None,
        };
        spawn("baton/direct", move || desk.run())?;
        Ok(Keeper { jobs, answers, probes: prober::start()?, about })
    }

    /// How it is set up.
    pub fn about(&self) -> &DirectorSetup {
        &self.about
    }

    /// How it works here changed.
    pub fn set_manner(&mut self, manner: String) {
        self.about.manner = manner;
    }

    /// Who asks servers for the virtual address.
    pub fn prober(&self) -> Prober {
        self.probes.clone()
    }

    /// Who can ask for plans on another thread.
    pub fn planner(&self) -> Planner {
        Planner(self.jobs.clone())
    }

    /// Makes the kernel so. `announce`: addresses that are there already are announced too.
    pub fn reconcile(&self, work: Work, announce: bool) {
        // A thread that has ended is noticed by its answers.
        let _ = self.jobs.send(Job::Reconcile { work: Box::new(work), announce });
    }

    /// Asks what was counted; the engine looks at its surroundings too.
    pub fn figures(&self) {
        let _ = self.jobs.send(Job::Figures);
    }

    /// The next answer; `None` when the thread has ended, which it does by a fault of ours alone.
    pub async fn answer(&mut self) -> Option<KeeperReply> {
        self.answers.recv().await
    }

    /// Nothing is asked for any more, for now.
    pub fn clear(&self) {
        let _ = self.jobs.send(Job::Clear);
    }

    /// Another process directs from now on, and nothing is touched any more.
    pub fn rest(&self) {
        let _ = self.jobs.send(Job::Rest);
    }

    /// The end: makes the kernel so and ends the thread. Waits for it, not for ever.
    pub fn leave(self, work: Work) -> Option<Done> {
        let (reply, done) = mpsc::sync_channel(1);
        self.jobs.send(Job::Leave(Box::new(work), reply)).ok()?;
        done.recv_timeout(ANSWER_WITHIN).ok()
    }
}

/// Asks for plans.
#[derive(Clone)]
pub struct Planner(Sender<Job>);

impl Planner {
    /// What work would change. Blocks until the thread has time for it.
    ///
    /// # Errors
    /// As [`Director::plan`], and when it takes too long.
    pub fn plan(&self, work: Work) -> Result<Plan, KernelError> {
        let late = || {
            let reason = "the previous change is still being applied in the kernel";
            KernelError::new("mode direct", reason, "try again in a moment; see Direct_problems in `show info`")
        };
        let (reply, plan) = mpsc::sync_channel(1);
        self.0.send(Job::Plan(Box::new(work), reply)).map_err(|_| late())?;
        plan.recv_timeout(ANSWER_WITHIN).map_err(|_| late())?
    }
}

/// How a director is set up.
pub fn about(director: &Director) -> DirectorSetup {
    DirectorSetup { engine: director.engine_name(), reason: director.reason().into(), manner: director.manner() }
}

/// Starts a thread that keeps its rights when the process becomes another user.
pub(super) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), KernelError> {
    let (ready, is_ready) = mpsc::sync_channel(1);
    let start = move || {
        let kept = capabilities::keep_over_user_change();
        // Who waits for this is the one who spawned.
        let _ = ready.send(kept);
        body();
    };
    let failed = |error: &std::io::Error| KernelError::io(format!("thread {name}"), error);
    thread::Builder::new().name(name.into()).spawn(start).map_err(|error| failed(&error))?;
    match is_ready.recv() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(&error)),
        Err(_) => Err(KernelError::new(format!("thread {name}"), "it ended immediately", "")),
    }
}

/// Puts the rights in force that were kept when the process became another user.
pub(super) fn raise_rights(is_raised: &mut bool) {
    if !*is_raised && !nix::unistd::geteuid().is_root() {
        *is_raised = true;
        // What is missing then, the kernel says at what needs it.
        let _ = capabilities::reduce_to(&RIGHTS);
    }
}

/// What the thread has.
struct KeeperState {
    director: Director,
    vips: Result<Vips, KernelError>,
    todo: Receiver<Job>,
    say: UnboundedSender<KeeperReply>,
    /// Addresses that are announced again, and how often.
    rounds: Vec<Vip>,
    rounds_left: u32,
    /// Addresses that are here.
    managed: Vec<Vip>,
    /// The record was looked at.
    has_put: bool,
    /// When it was last asked who else has virtual addresses that are here, and what was found.
    others: Option<(Instant, Vec<String>)>,
}

impl KeeperState {
    fn run(mut self) {
        let mut is_raised = false;
        loop {
            let job = match self.rounds_left {
                0 => self.todo.recv().map_err(|_| RecvTimeoutError::Disconnected),
                _ => self.todo.recv_timeout(vip::ANNOUNCEMENT_INTERVAL),
            };
            raise_rights(&mut is_raised);
            match job {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => self.announce(),
                Ok(Job::Plan(work, reply)) => {
                    let services = work.services_for(&self.director);
                    let plan = self.director.plan_by(&work.settings, &services).map(|mut plan| {
                        plan.remarks.extend(self.vips.as_mut().map_or(Vec::new(), |vips| foresee(vips, &work)));
                        plan
                    });
                    let _ = reply.send(plan);
                }
                Ok(Job::Reconcile { work, announce }) => {
                    let done = self.reconcile(*work, announce);
                    let _ = self.say.send(KeeperReply::Reconciled(done));
                }
                Ok(Job::Figures) => {
                    let figures = self.director.figures();
                    let has_lost = figures.as_ref().is_ok_and(|figures| self.director.has_lost(figures));
                    let in_the_way = self.director.refresh();
                    let others = self.ask_for_others(figures.as_deref().unwrap_or_default());
                    let manner = self.director.manner();
                    let _ = self.say.send(KeeperReply::Counted(KernelFigures {
                        figures,
                        has_lost,
                        in_the_way,
                        others,
                        manner,
                    }));
                }
                Ok(Job::Clear) => {
                    // What could not be removed is in the record, for the next one.
                    let left = self.director.pause().map_or_else(Some, |report| report.failed.into_iter().next());
                    self.director.rest();
                    if let Some(fault) = left {
                        let _ = self.say.send(KeeperReply::Left(fault));
                    }
                }
                Ok(Job::Rest) => self.director.rest(),
                Ok(Job::Leave(work, reply)) => {
                    let is_all = work.services.is_empty();
                    let mut done = self.reconcile(*work, false);
                    if is_all && done.services.is_ok() {
                        let left = self.director.leave(baton_direct::OnExit::Flush);
                        done.services = done.services.and_then(|report| left.map(|_| report));
                    }
                    let _ = reply.send(done);
                    return;
                }
            }
        }
    }

    /// Services first, so that no packet finds an address without them; addresses that go, go before.
    fn reconcile(&mut self, work: Work, announce: bool) -> Done {
        if let Err(fault) = self.director.take_charge() {
            return Done { figures: None, services: Err(fault), vips: None, held: Vec::new() };
        }
        let figures = self.director.figures().ok();
        let (mut wanted, lost) = places(&work.managed);
        let held = self.vips.as_mut().map_or(Vec::new(), |vips| held(vips, &wanted, &work));
        wanted.extend(held.iter().cloned());
        let gone = self.managed.iter().any(|vip| !wanted.contains(vip));
        let mut vips = None;
        if gone {
            let kept: Vec<Vip> = self.managed.iter().filter(|vip| wanted.contains(vip)).cloned().collect();
            vips = Some(self.put(&kept));
        }
        self.director.set(&work.settings);
        let services = self.director.reconcile(&work.services_for(&self.director));
        // What the record has from a process before goes too.
        let is_first = !self.has_put && self.vips.is_ok();
        // One that is not here is not called here before its service is.
        let ours: Vec<IpAddr> = self.director.ours().filter_map(|key| key.virtual_address()).collect();
        let has_it = |vip: &Vip| ours.contains(&vip.address) || held.contains(vip) || self.managed.contains(vip);
        wanted.retain(has_it);
        if services.is_ok() && (!wanted.is_empty() || !lost.is_empty() || is_first) {
            vips = Some(self.put(&wanted).map(|mut report| {
                report.faults.extend(lost);
                let mut fresh = report.added.clone();
                if announce {
                    fresh.extend(report.kept.clone());
                }
                if !fresh.is_empty() {
                    (self.rounds, self.rounds_left) = (fresh, vip::ANNOUNCEMENTS);
                    self.announce();
                }
                report
            }));
        }
        Done { figures, services, vips, held }
    }

    fn put(&mut self, wanted: &[Vip]) -> Result<vip::VipReport, KernelError> {
        let vips = self.vips.as_mut().map_err(|fault| fault.clone())?;
        let report = vips.reconcile(wanted)?;
        (self.managed, self.has_put) = (wanted.to_vec(), true);
        Ok(report)
    }

    fn announce(&mut self) {
        // What cannot be told now is tried in the next round; the last failure is not worth ending anything.
        let _ = vip::announce(&self.rounds);
        self.rounds_left = self.rounds_left.saturating_sub(1);
    }

    /// Other machines that answer for a virtual address that is here, such as a real server that is not set up right.
    fn ask_for_others(&mut self, figures: &[Figures]) -> Vec<String> {
        let mut vips: Vec<IpAddr> = figures.iter().filter_map(|service| service.key.virtual_address()).collect();
        vips.sort_unstable();
        vips.dedup();
        match &self.others {
            Some((last, found)) if last.elapsed() < WHO_HAS_EVERY => return found.clone(),
            Some(_) | None if vips.is_empty() => return Vec::new(),
            Some(_) | None => {}
        }
        // Without the right, nobody is heard.
        let found = others(&vips, WHO_HAS_WITHIN).unwrap_or_default();
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        self.others = Some((Instant::now(), found.clone()));
        found
    }
}
