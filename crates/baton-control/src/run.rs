//! The loop of the running process: signals, questions, answers of other threads and time come in, each goes to the part of [`Control`] that
//! it is about, and what is due is looked at. Nothing is decided here.

mod signals;

use std::future::pending;
use std::io;
use std::time::Instant;

use baton_config::Severity;
use baton_kernel::output::{self, losses};
use baton_kernel::process::{end_by, priority, reap_orphans};
use baton_model::Level;
use baton_peers::Start;
use baton_proxy::Command;
use baton_proxy::desk::ServiceCall;
use tokio::sync::mpsc;

use self::signals::{Signals, a_child_ended, the_end};
use crate::apart::Lost;
use crate::certificates::{self, Certificates};
use crate::control::Control;
use crate::control::reloading::{Planning, Waiting};
use crate::control::service::Found;
use crate::direct::{self, leaves_something};
use crate::discovery::NameEvent;
use crate::drain::Drain;
use crate::endpoint::{self, Desk, PendingRequest};
use crate::handover::giver;
use crate::handover::succession;
use crate::operators::Question;
use crate::protocol::{Reply, Request};
use crate::rights::Places;
use crate::servant::link::{Heard, ToWorker};
use crate::services::Services;
use crate::table_care::TableCare;
use crate::{early_signals, retirement, runtime, sayings, status};

/// Addresses that are named when the process begins to serve.
const ADDRESSES_NAMED: usize = 8;
/// Questions that wait for the change path; further askers wait themselves.
const ASKED_MAX: usize = 64;

/// What can happen to the process.
#[derive(Debug)]
enum Event {
    Reload,
    SoftStop,
    Dump,
    /// A signal that ends the process at once, when something is left to do then.
    HardStop(i32),
    Pause,
    Resume,
    Asked(PendingRequest),
    Command(Question),
    /// A request that Baton answers itself.
    Service(ServiceCall),
    Certificates(certificates::CertificateEvent),
    Conversation(giver::GiverEvent),
    /// `mode direct`: a server's state changed, or the kernel was asked and answered.
    Direct(Option<direct::KeeperReply>),
    /// A name server responded, or a rule asks for an address.
    Name(NameEvent),
    /// Log lines or mails were lost, or something panicked.
    LinesLost,
    HealthNews,
    /// The agent of a server wants it otherwise.
    AgentOrder,
    /// A check could not connect to a server that is found by DNS.
    ServerUnreached,
    /// An orphan that the kernel gave to this process has ended.
    OrphanEnded,
    Loaded(Result<Found, Lost>),
    Master(io::Result<Heard<ToWorker>>),
    Time,
}

impl Control {
    /// Serves until a soft stop is complete; gives the exit code. `announce` is called once signals are listened to and it is
    /// decided that we are the ones to serve.
    ///
    /// # Errors
    /// When signals cannot be listened to.
    pub async fn run(mut self, announce: impl FnOnce()) -> io::Result<u8> {
        // A refusal costs requests some time during a reload, and nothing else.
        let _ = priority::let_cores_preempt();
        let mut signals = Signals::listen()?;
        if std::process::id() == 1 {
            // To the first process of a container the kernel gives only signals that it listens to.
            signals.listen_for_the_end()?;
        }
        early_signals::come()?;
        let (asked, mut questions) = mpsc::channel(ASKED_MAX);
        let (events, mut conversations) = mpsc::channel(succession::EVENTS_MAX);
        let rights = self.settings.rights.clone();
        let lineage = self.succession.lineage().clone();
        let desk = Desk { rights, places: Places::default(), lineage, asked, events };
        for listener in self.socket.listeners()? {
            tokio::spawn(endpoint::serve(listener, desk.clone()));
        }
        let mut services = Services::new(&self);
        let mut code = 0;
        self.listen_for_the_end(&mut signals)?;
        let is_successor = self.taking_over.is_some();
        match self.take_over(&desk.events).await {
            Ok(()) => {
                self.line.peers().begin(if is_successor { Start::AfterOther } else { Start::Fresh });
                self.begin_direct().await;
                self.begin_service().await;
                self.losses.check(&self.messages, self.line.model());
                // No introduction before it, and none of the start's messages.
                self.messages.is_serving();
                self.say_where_it_serves();
                announce();
                self.settings.manager.ready("");
                self.watch_certificates();
            }
            Err(reason) => {
                // Whoever started us learns it from our end.
                drop(announce);
                self.messages.alert(&format!("[haproxy.main()] {reason}. Ending."));
                code = 1;
                let now = Instant::now();
                self.stop_listening().await;
                self.drain = Some((Drain::draining(&self.line.model().global, now), now));
            }
        }
        // Those that told other processes to end were our own children; none is left now.
        if std::process::id() == 1 {
            signals.listen_for_children()?;
            reap_orphans();
        }
        self.tables.step(self.line.registry(), Instant::now());
        loop {
            let event = self.next(&mut signals, &mut questions, &mut conversations, &mut services).await;
            match event {
                Event::Reload => self.reload(Waiting::Signal),
                Event::Loaded(loaded) => self.change(loaded).await,
                Event::Asked(asked) => self.answer(asked),
                Event::Command(question) => {
                    TableCare::before_command(self.line.registry(), Instant::now());
                    runtime::answer(&mut self, question).await;
                }
                Event::Service(call) => services.answer(&mut self, call).await,
                Event::Conversation(event) => self.converse(event).await,
                Event::Certificates(event) => self.step_certificates(event).await,
                Event::SoftStop => self.soft_stop(),
                Event::Dump => self.dump(),
                Event::Pause => self.pause(),
                Event::Resume => self.resume().await,
                Event::Master(heard) => self.obey(heard, &desk).await,
                Event::Direct(answer) => self.step_direct(answer),
                Event::Name(event) => self.hear_of_name(event),
                Event::LinesLost | Event::HealthNews | Event::AgentOrder => {}
                Event::ServerUnreached => self.look_for_unreached(),
                Event::OrphanEnded => reap_orphans(),
                Event::HardStop(number) => {
                    self.leave_direct();
                    self.socket.remove_file();
                    output::flush(output::FLUSHED_WITHIN);
                    end_by(number);
                }
                Event::Time => self.step_direct(None),
            }
            self.listen_for_the_end(&mut signals)?;
            runtime::answer_postponed(&mut self).await;
            services.step(&mut self).await;
            self.step_readings();
            self.step_pause().await;
            self.step_names().await;
            self.obey_agents().await;
            self.rotate_tickets().await;
            self.look_at_certificates();
            self.losses.report(&self.messages);
            self.report_lost_mail();
            self.report_health().await;
            if self.line.read_rates(Instant::now()) {
                self.workers.measure(Instant::now());
            }
            self.tables.step(self.line.registry(), Instant::now());
            self.report_entries_in_time().await;
            self.report_parts_in_time().await;
            if self.line.close_empty(Instant::now(), &self.workers).await > 0 {
                self.report_closed().await;
            }
            self.report();
            if self.succession.is_cut() || self.drained().await {
                self.workers.command(Command::Abort).await;
                self.workers.join();
                self.report_last(&mut conversations).await;
                self.leave_direct();
                self.rings.flush(output::FLUSHED_WITHIN).await;
                return Ok(code);
            }
        }
    }

    /// Lets go of sockets that were given to us and that the configuration does not ask for.
    fn drop_left(&mut self) {
        let left: Vec<String> = self.line.listeners().left().known().map(ToString::to_string).collect();
        if !left.is_empty() {
            let list = left.join(", ");
            self.messages.notice(&format!("Inherited sockets that the configuration does not use: {list}."));
        }
        self.line.drop_left();
    }

    /// Tells those we take over from, if there is anybody.
    async fn take_over(&mut self, events: &mpsc::Sender<giver::GiverEvent>) -> Result<(), String> {
        match self.taking_over.take() {
            Some(taken) => self.conclude(taken, events).await,
            None => {
                self.drop_left();
                Ok(())
            }
        }
    }

    async fn next(
        &mut self,
        signals: &mut Signals,
        questions: &mut mpsc::Receiver<PendingRequest>,
        conversations: &mut mpsc::Receiver<giver::GiverEvent>,
        services: &mut Services,
    ) -> Event {
        let look = self.look_again().into_iter().chain(services.due()).min();
        let time = async {
            match look {
                Some(at) => tokio::time::sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        let (reading, servant) = (self.readings.task(), &self.servant);
        let checker = self.line.checker();
        let (news, ordered, unreached) = (checker.news(), checker.ordered(), checker.unreached());
        let lost_mail = self.messages.mail().lost();
        let (runtime, direct, names) = self.line.sources();
        let certificates = &mut self.certificates;
        let is_looking = certificates.is_looking();
        let loaded = async {
            match reading {
                Some(reading) if !is_looking => (&mut reading.loaded).await,
                Some(_) | None => pending().await,
            }
        };
        let health = async {
            match servant {
                Some(_) => news.await,
                None => pending().await,
            }
        };
        let master = async {
            match servant {
                Some(servant) => servant.hear().await,
                None => pending().await,
            }
        };
        tokio::select! {
            heard = master => Event::Master(heard),
            loaded = loaded => Event::Loaded(loaded),
            _ = signals.usr2.recv() => Event::Reload,
            _ = signals.usr1.recv() => Event::SoftStop,
            _ = signals.hup.recv() => Event::Dump,
            _ = signals.ttou.recv() => Event::Pause,
            _ = signals.ttin.recv() => Event::Resume,
            Some(asked) = questions.recv() => Event::Asked(asked),
            Some(question) = runtime.next() => Event::Command(question),
            Some(call) = services.next() => Event::Service(call),
            Some(event) = conversations.recv() => Event::Conversation(event),
            answer = direct.next() => Event::Direct(answer),
            event = names.next() => Event::Name(event),
            number = the_end(&mut signals.end) => Event::HardStop(number),
            () = a_child_ended(&mut signals.child) => Event::OrphanEnded,
            event = certificates.next() => Event::Certificates(event),
            () = losses::happened() => Event::LinesLost,
            () = health => Event::HealthNews,
            () = ordered => Event::AgentOrder,
            () = unreached => Event::ServerUnreached,
            () = lost_mail => Event::LinesLost,
            () = time => Event::Time,
        }
    }

    /// When time alone makes something happen.
    fn look_again(&self) -> Option<Instant> {
        let leaving = (self.line.listeners().leaving_count() > 0).then(|| Instant::now() + retirement::LOOK_EVERY);
        let draining = self.drain.as_ref().map(|(_, at)| *at);
        leaving
            .into_iter()
            .chain(self.look_at_pause())
            .chain(self.look_at_readings())
            .chain(draining)
            .chain(self.line.runtime().due())
            .chain(self.line.tickets().due())
            .chain(self.losses.due())
            .chain(self.messages.mail().due())
            .chain(self.health.due())
            .chain(self.names_due())
            .chain(self.line.entries_due())
            .chain(self.entries.due())
            .chain(self.line.variables_due())
            .chain(self.parts.due())
            .chain(self.tables.due())
            .chain(self.line.direct().due().filter(|_| self.succession.is_undisputed()))
            // Nothing is looked at any more by who stops.
            .chain(self.certificates.due().filter(|_| self.drain.is_none()))
            .min()
    }

    fn answer(&mut self, asked: PendingRequest) {
        match asked.request {
            Request::Reload => self.reload(Waiting::Asker(asked.reply)),
            Request::Status => {
                let status = status::status(self);
                self.line.operators().asked(Instant::now());
                let _ = asked.reply.send(Reply::Status(Box::new(status)));
            }
            Request::SyncCertificates => self.certificates.sync(asked.reply, self.drain.is_some()),
            Request::Certificates => Certificates::list(self.line.store(), asked.reply),
            // The endpoint leaves these to the handover.
            Request::Handover => {}
            Request::Upgrade => {
                let command = self.settings.started_by.successor(std::process::id());
                let reason = format!(
                    "process {} has no master (-W) that could replace it; start the program on disk, which takes over from it:\n  \
                     {command}",
                    std::process::id()
                );
                let _ = asked.reply.send(Reply::Failed { reason });
            }
            Request::Plan { files } => self.plan(Planning { files, reply: asked.reply }),
        }
    }

    /// Once in the life of the process: the addresses, and how to go on from here.
    fn say_where_it_serves(&self) {
        let mut addresses: Vec<String> =
            self.line.listeners().addresses().into_iter().map(|(address, _)| address).collect();
        if let Some(more @ 1..) = addresses.len().checked_sub(ADDRESSES_NAMED) {
            addresses.truncate(ADDRESSES_NAMED);
            addresses.push(format!("{more} more"));
        }
        let text = match self.servant.is_some() || self.begun.is_some() {
            // The master says how it is reloaded and stopped: by its own PID.
            true => format!("Serving on {}.", addresses.join(", ")),
            false => {
                let pid = std::process::id();
                format!(
                    "Serving on {}. To apply changed files: `baton reload --pid {pid}` or SIGUSR2; to stop gracefully: SIGUSR1.",
                    addresses.join(", ")
                )
            }
        };
        if !self.messages.is_quiet() {
            self.messages.event(Severity::Notice, Level(5), &text);
        }
    }

    fn dump(&self) {
        self.messages.warning("SIGHUP received, dumping servers states.");
        for (proxy, text) in sayings::dump(&self.line) {
            self.messages.event_for(&proxy, Severity::Warning, Level(5), &text);
        }
    }

    /// SIGTERM and SIGINT are listened to once something is to be done at the end.
    fn listen_for_the_end(&mut self, signals: &mut Signals) -> io::Result<()> {
        match self.line.direct().is_asked() && leaves_something(self.line.model()) {
            true => signals.listen_for_the_end(),
            false => Ok(()),
        }
    }
}
