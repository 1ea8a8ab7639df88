//! The change path: files → parse → lower → diff → prepare → commit → retire.
//!
//! [`ChangeLine::change`] is the line itself, and the only way by which live state changes. `prepare` may fail and leaves no
//! trace; `commit` cannot; `retire` lets what is gone end in peace. What did not change is not touched by any of them. Between two passes
//! over all objects, of which there may be very many, the thread yields its CPU to a core that is ready to run (`yield_cpu`).

mod access;
mod change;
mod clearing;
mod cookies;
mod counters;
mod discovering;
pub(crate) mod figures;
mod limits;
mod overriding;
mod patterns;
mod servers;
mod variables;

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::{Environment, Loaded, Options, Severity};
use baton_health::{ChangedBackend, Checker};
use baton_kernel::cells::CellMemory;
use baton_kernel::process::limits::OpenFiles;
use baton_kernel::process::priority;
use baton_model::{CpuMap, Discovered, EndedOverride, Field, Model, Object, Overrides, Source};
use baton_proxy::{Command, Generation, ListenerId, Refused, Registry, Workers};
use baton_rules::{CompiledRules, Files};
use baton_tls::store::Store;
use baton_tls::tickets::TicketVault;
use baton_tls::{Acceptor, Acceptors};

use crate::apart::Apart;
use crate::capacity::Capacity;
use crate::certificates::Upcoming;
use crate::direct::{Direct, Foreseen, Foresight};
use crate::discovery::{NameResolver, SecureNameServers};
use crate::encryption::{self, TlsShared};
use crate::environment::Outside;
use crate::handover;
use crate::handover::memory::{Counters, Named, ProcessMemory};
use crate::listeners::{self, Inherited, Listeners, OpenPeers};
use crate::messages::Said;
use crate::operators::{Commands, Runtime};
use crate::overrides;
use crate::peers::{Peers, PreparedPeers};
use crate::plan::{self, PendingSetting, Plan};
use crate::protocol::{ChangeRecord, Message, Outcome};
use crate::tickets;
use crate::tidy::Tidy;

pub(crate) use self::change::{Change, Changed};
pub(crate) use self::cookies::DynamicCookie;
pub(crate) use self::discovering::DiscoveredChange;
use self::figures::LastReload;
pub(crate) use self::patterns::EntryNews;

/// How long a reload waits for addresses that a process before us has still: those of one without clients are closed within a second.
const FREE_WITHIN: Duration = Duration::from_secs(3);
/// How often it tries.
const FREE_EVERY: Duration = Duration::from_millis(20);

/// Live state, and how it changes. Belongs to one thread, which runs it within a `LocalSet`.
pub struct ChangeLine {
    /// What the files say.
    asked: Arc<Model>,
    /// What is in use: that, with servers that were added and deleted at run time.
    model: Arc<Model>,
    /// Its rules.
    rules: Arc<CompiledRules>,
    /// The configuration in use as the cores see it; `None` before the first commit.
    generation: Option<Arc<Generation>>,
    /// Listening addresses.
    listeners: Listeners,
    /// What outlives configurations.
    registry: Arc<Registry>,
    /// Health checks, on this thread.
    checker: Checker,
    /// The sockets of operators, on this thread.
    runtime: Runtime,
    /// What the kernel balances, `mode direct`.
    direct: Direct,
    /// Other processes with which stick tables are shared.
    peers: Peers,
    /// Stick tables whose contents are those of the process before.
    continued: HashSet<String>,
    /// What `mode direct` had to say of the last commit.
    direct_said: Vec<Said>,
    /// Certificates.
    store: Arc<Store>,
    /// Who answers clients that speak TLS.
    acceptors: Arc<Acceptors>,
    /// Keys of session tickets.
    tickets: Arc<TicketVault>,
    /// Read for a model that could not be prepared, which may be tried again.
    read: Option<(Arc<Model>, encryption::PreparedTls)>,
    /// What is watched for the configuration in use, until somebody listens.
    watched: Option<Upcoming>,
    /// What the process was started with; `None` before the first commit.
    started: Option<Arc<Model>>,
    /// Overrides that changed, of which the master does not know yet.
    untold: Vec<(Object, Field)>,
    /// Servers of which something else is known by DNS than the master was told.
    untold_discovered: Vec<(Arc<str>, Arc<str>)>,
    /// Reloads that were refused.
    refused: u64,
    /// Why the last one was, if it was.
    last_refused: Option<String>,
    /// What became of all of them.
    last_reload: Option<LastReload>,
    /// Lost log lines of which the master knows.
    told_losses: u64,
    /// What sockets counted in the process before this one, until they are open.
    counted_sockets: Named<Counters>,
    /// A process that we took over from has not ended yet.
    is_somebody_ending: bool,
    /// Of backends whose servers come and go at run time.
    server_ids: servers::CountedIds,
    /// Keys of dynamic cookies that were in use or set, by backend.
    cookie_keys: HashMap<Arc<str>, String>,
    tidy: Tidy,
    entries: patterns::Entries,
    told_variables: variables::ToldVariables,
    /// The last changes of processes before this one, until somebody takes them.
    history_before: Vec<ChangeRecord>,
    /// What DNS says of servers.
    discovered: Arc<Discovered>,
    /// Name servers that are asked, on this thread.
    names: NameResolver,
}

/// A configuration.
#[derive(Clone, Debug, Default)]
pub struct Configuration {
    /// What the files say.
    pub asked: Arc<Model>,
    /// What is to be in use: that, with servers that were added and deleted at run time.
    pub model: Arc<Model>,
    /// Its rules, compiled by who read the files.
    pub rules: Arc<CompiledRules>,
}

impl Configuration {
    /// What files say, with its rules.
    pub fn asked(model: Arc<Model>, rules: Arc<CompiledRules>) -> Configuration {
        Configuration { asked: model.clone(), model, rules }
    }
}

/// A configuration that is prepared. What is left that may fail is [`ChangeLine::open`].
#[derive(Debug)]
pub struct Ready {
    configuration: Configuration,
    generation: Generation,
    listeners: listeners::PreparedListeners,
    encryption: encryption::PreparedTls,
    peers: PreparedPeers,
    name_servers: SecureNameServers,
    /// Servers that were added at run time and cannot be used with it.
    pub left_out: Vec<String>,
}

/// A configuration that can be committed, which cannot fail: clients reach its addresses already, and wait.
#[derive(Debug)]
pub struct Open {
    configuration: Configuration,
    generation: Generation,
    open: listeners::Published,
    encryption: encryption::PreparedTls,
    peers: PreparedPeers,
    name_servers: SecureNameServers,
}

impl Ready {
    /// What is lost of stick tables whose layout or size it changes.
    pub fn table_losses(&self) -> &[String] {
        self.generation.table_losses()
    }

    /// What there is to say about certificates that are taken.
    pub fn notes(&self) -> &[(Severity, String)] {
        &self.encryption.notes
    }
}

impl Open {
    /// `tune.bufsize`, which a process has for its whole life.
    pub fn bufsize(&self) -> usize {
        self.configuration.model.global.bufsize
    }

    /// `cpu-map`, which a process has for its whole life.
    pub fn cpu_map(&self) -> &CpuMap {
        &self.configuration.model.global.process.cpu_map
    }
}

/// What files say, and what they name for TLS.
#[derive(Debug)]
pub struct Read {
    /// The files.
    pub loaded: Loaded,
    /// What the files say; `loaded` has the model that is to be in use.
    asked: Arc<Model>,
    /// By which servers that model differs from the files.
    overrides: Arc<Overrides>,
    /// By which addresses of DNS besides.
    discovered: Arc<Discovered>,
    /// Servers that were added and cannot be used with these files.
    left_out: Vec<String>,
    /// Certificates and keys, beside those in use; `None` when the files are no good anyway.
    encryption: Option<Result<encryption::PreparedTls, Vec<Refused>>>,
    /// What cannot be done in the kernel.
    direct: Result<(), Vec<Refused>>,
}

/// Files → parse → lower. Reads files and may ask the name service, so it belongs on a thread of its own.
pub fn read(options: &Options, outside: &Outside) -> Loaded {
    baton_config::load(options, outside)
}

/// Reads the files on a thread that is abandoned after a time; `None` then.
pub fn read_within(options: &Options, outside: &Outside, limit: Duration) -> Option<Loaded> {
    let (options, outside) = (options.clone(), outside.view());
    let (sender, loaded) = std::sync::mpsc::channel();
    let read = Apart::run(move || drop(sender.send(read(&options, &outside))));
    read.ok().and_then(|_| loaded.recv_timeout(limit).ok())
}

/// Reads the files, with what they name for TLS, which may take longer than all else, and with what it asks of the kernel, which may be busy.
///
/// What is the same as in the configuration in use becomes the same objects: the change path sees by the pointer what it need not touch,
/// and nothing is compared, compiled or freed on its thread.
pub fn read_all(
    options: &Options,
    outside: &Outside,
    (encryption, direct): (&TlsShared, &Foresight),
    (used, overrides, discovered): (&Configuration, Arc<Overrides>, Arc<Discovered>),
) -> Read {
    let mut loaded = read(options, outside);
    // Without servers that were added or deleted, and without DNS, what is to be in use is what the files say.
    let is_other = servers::changes_lines(&overrides) || !discovered.is_empty();
    let asked = loaded.model.clone().filter(|_| is_other);
    let in_force = loaded.model.as_mut().map(|model| servers::put_in_force(model, (&overrides, &discovered), outside));
    let left_out = in_force.unwrap_or_default();
    let model = loaded.model.as_ref().filter(|model| has_listener(model));
    let encryption = model.map(|model| encryption.prepare(model, outside));
    let direct = model.map_or(Ok(()), |model| direct.against(model));
    // Whoever complains above names lines of the new files.
    loaded.rules.share(&used.rules, || outside.pause());
    loaded.model.iter_mut().for_each(|model| model.share(&used.model, || outside.pause()));
    let asked = match asked {
        None => loaded.model.clone().unwrap_or_default(),
        Some(mut asked) => {
            asked.share(&used.asked, || outside.pause());
            asked
        }
    };
    let asked = Arc::new(asked);
    Read { loaded, asked, overrides, discovered, left_out, encryption, direct }
}

impl ChangeLine {
    /// A process of `cores` cores that has no configuration yet, and counts in `memory`.
    ///
    /// `commands` are what operators may say ([`runtime::commands`](crate::runtime::commands)); `log` takes what health checks have to say.
    pub fn new(
        cores: usize,
        memory: Arc<CellMemory>,
        tickets: TicketVault,
        commands: Commands,
        now: Instant,
        log: impl Fn(baton_health::Event) + 'static,
    ) -> ChangeLine {
        let registry = Arc::new(Registry::counting_in(memory, cores, now));
        ChangeLine {
            asked: Arc::default(),
            model: Arc::default(),
            rules: Arc::default(),
            generation: None,
            listeners: Listeners::new(cores),
            checker: Checker::new(Arc::clone(&registry), log),
            runtime: Runtime::new(commands, registry.sums.clone()),
            discovered: Arc::default(),
            names: NameResolver::new(&registry),
            registry,
            direct: Direct::default(),
            peers: Peers::default(),
            continued: HashSet::new(),
            direct_said: Vec::new(),
            store: Store::new(),
            acceptors: Arc::default(),
            read: None,
            watched: None,
            started: None,
            tickets: Arc::new(tickets),
            untold: Vec::new(),
            untold_discovered: Vec::new(),
            refused: 0,
            last_refused: None,
            last_reload: None,
            told_losses: 0,
            counted_sockets: Named::default(),
            is_somebody_ending: false,
            server_ids: servers::CountedIds::default(),
            cookie_keys: HashMap::new(),
            tidy: Tidy::default(),
            entries: patterns::Entries::default(),
            told_variables: variables::ToldVariables::default(),
            history_before: Vec::new(),
        }
    }

    /// Changes to what was read, or refuses it whole. Without a difference it is done all the same: a file of patterns may
    /// have changed.
    pub async fn change(&mut self, read: Read, outside: &Outside, workers: &Workers) -> Outcome {
        let (ready, plan, messages) = match self.judge(read, outside).await {
            Ok(ready) => ready,
            Err((messages, reasons)) => return self.refuse(messages, reasons),
        };
        match self.let_in(ready) {
            Ok(open) => self.commit(open, workers).await,
            Err(reason) => return self.refuse(messages, vec![reason]),
        }
        self.retire(Instant::now());
        self.tidy.later();
        self.last_refused = None;
        self.accept(plan, messages)
    }

    /// What [`ChangeLine::change`] would do: all of it up to the commit, and back. `foreseen` is what the kernel would be made.
    pub async fn foresee(&mut self, read: Read, foreseen: Foreseen, outside: &Outside) -> Outcome {
        let Foreseen { steps, refused: _, warnings } = foreseen;
        match self.judge(read, outside).await {
            Ok((ready, mut plan, mut messages)) => {
                let pid = std::process::id();
                messages.extend(warnings.iter().map(|text| Message::plain(Severity::Warning, "direct", text, pid)));
                plan.kernel = steps;
                let pending = self.pending_with(&ready.configuration.model);
                self.give_back(ready);
                Outcome { accepted: true, generation: self.number(), plan, messages, pending }
            }
            Err((messages, reasons)) => self.refusal(messages, &reasons),
        }
    }

    /// Everything that can refuse a reload.
    async fn judge(
        &mut self,
        read: Read,
        outside: &Outside,
    ) -> Result<(Ready, Plan, Vec<Message>), (Vec<Message>, Vec<Refused>)> {
        let Read { loaded, asked, overrides, discovered, mut left_out, encryption, direct } = read;
        let pid = std::process::id();
        let mut messages: Vec<_> = loaded.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, pid)).collect();
        let Some(mut model) = loaded.model else { return Err((messages, Vec::new())) };
        let now = self.registry.overrides();
        let is_same = servers::are_lines_same(&overrides, &now) && *discovered == *self.discovered;
        let encryption = match is_same {
            true => encryption,
            // Servers were added or deleted, or DNS has moved some, while the files were read.
            false => {
                model = Model::clone(&asked);
                left_out = servers::put_in_force(&mut model, (&now, &self.discovered), outside);
                model.share(&self.model, priority::yield_cpu);
                Some(self.encryption().prepare(&model, outside))
            }
        };
        messages.extend(left_out.iter().map(|text| Message::plain(Severity::Warning, "added-server", text, pid)));
        let encryption = match encryption {
            Some(Ok(encryption)) => encryption,
            Some(Err(reasons)) => return Err((messages, reasons)),
            None => return Err((messages, vec![no_listener()])),
        };
        let notes = encryption.notes.iter();
        messages.extend(notes.map(|(severity, text)| Message::plain(*severity, "certificate", text, pid)));
        if let Err(reasons) = direct {
            return Err((messages, reasons));
        }
        let mut plan = Plan::between(&self.model, &model);
        priority::yield_cpu();
        plan.replace_certificates(&encryption.replaced);
        plan.overrides = overrides::planned(&now, &asked);
        let (lines, ended) = patterns::planned(loaded.rules.references());
        plan.change_patterns(lines);
        plan.overrides.extend(ended);
        let configuration = Configuration { asked, model: Arc::new(model), rules: Arc::new(loaded.rules) };
        match self.prepare_in_time(configuration, encryption, outside).await {
            Ok(ready) => {
                let losses = ready.table_losses().iter();
                messages.extend(losses.map(|text| Message::plain(Severity::Warning, "stick-table", text, pid)));
                Ok((ready, plan, messages))
            }
            Err(reasons) => Err((messages, reasons)),
        }
    }

    /// Undoes what was prepared: it leaves no trace.
    fn give_back(&mut self, ready: Ready) {
        self.read = None;
        self.listeners.give_up(ready.listeners);
    }

    /// Takes listening sockets that somebody gave us, for the next [`ChangeLine::prepare`] to use instead of opening its
    /// own; see [`Listeners::inherit`].
    pub fn inherit(&mut self, inherited: Inherited) {
        self.listeners.inherit(inherited);
    }

    /// Goes on with stick tables of a process before this one, by their memory; gives what there is to say of those that cannot be used.
    pub fn inherit_tables(&mut self, tables: Vec<(String, OwnedFd)>) -> Vec<String> {
        let lost = |(name, file): (String, OwnedFd)| {
            let Err(error) = self.registry.tables.inherit(&name, file) else {
                self.continued.insert(name);
                return None;
            };
            let reason = match error.kind() {
                io::ErrorKind::InvalidData => "they are damaged, or of another version of the program".to_owned(),
                _ => error.to_string(),
            };
            Some(format!("stick-table '{}': its entries are lost: {reason}", crate::printable::line(&name)))
        };
        tables.into_iter().filter_map(lost).collect()
    }

    /// What is in use, with its rules.
    pub fn configuration(&self) -> Configuration {
        Configuration { asked: self.asked.clone(), model: self.model.clone(), rules: self.rules.clone() }
    }

    /// What handshakes share.
    pub fn encryption(&self) -> TlsShared {
        TlsShared::new(self.store.clone(), self.acceptors.clone(), self.tickets.clone())
    }

    /// Opens, reads, checks and compiles everything the model needs, beside what is in use.
    ///
    /// # Errors
    /// Every reason against it; everything is as before then.
    pub fn prepare(
        &mut self,
        configuration: Configuration,
        outside: &Outside,
        now: Instant,
    ) -> Result<Ready, Vec<Refused>> {
        self.direct.foresight(&self.registry).against(&configuration.model)?;
        let overrides = self.registry.overrides();
        if !servers::changes_lines(&overrides) && self.discovered.is_empty() {
            return self.prepare_again(configuration, outside, now);
        }
        let Configuration { asked, rules, .. } = configuration;
        let mut model = Model::clone(&asked);
        let left_out = servers::put_in_force(&mut model, (&overrides, &self.discovered), outside);
        let ready = self.prepare_again(Configuration { asked, model: Arc::new(model), rules }, outside, now)?;
        Ok(Ready { left_out, ..ready })
    }

    /// Prepares a model that the kernel did not refuse a moment ago.
    fn prepare_again(
        &mut self,
        configuration: Configuration,
        outside: &Outside,
        now: Instant,
    ) -> Result<Ready, Vec<Refused>> {
        let encryption = match self.read.take() {
            Some((of, encryption)) if Arc::ptr_eq(&of, &configuration.model) => encryption,
            Some(_) | None => self.encryption().prepare(&configuration.model, outside)?,
        };
        self.prepare_with(configuration, encryption, outside, now)
    }

    /// Prepares a model whose certificates were read already.
    fn prepare_with(
        &mut self,
        Configuration { asked, model, rules }: Configuration,
        encryption: encryption::PreparedTls,
        outside: &Outside,
        now: Instant,
    ) -> Result<Ready, Vec<Refused>> {
        // Where it was read for a reload, that is done.
        rules.references().settle(None, priority::yield_cpu);
        let Capacity { maxconn, idle, .. } = afford(&model, self.registry.cores()).map_err(|refused| vec![refused])?;
        priority::yield_cpu();
        let (used, files) = (self.generation.as_deref(), (outside as &dyn Files, encryption.connectors()));
        let peers = self.peers.prepare(&model, encryption.connectors(), outside);
        let name_servers = self.names.prepare(&model, encryption.connectors(), outside);
        let generation = Generation::prepare(used, (model.clone(), &rules), maxconn, &self.registry, files, now);
        let prepared = both(generation, both(peers, name_servers));
        match (prepared, self.listeners.prepare(&model)) {
            (Ok((mut generation, (peers, name_servers))), Ok(listeners)) => {
                generation.idle_max = idle;
                let configuration = Configuration { asked, model, rules };
                Ok(Ready {
                    configuration,
                    generation,
                    listeners,
                    encryption,
                    peers,
                    name_servers,
                    left_out: Vec::new(),
                })
            }
            (Ok(_), Err(reasons)) => {
                self.read = Some((model, encryption));
                Err(reasons)
            }
            (Err(reasons), Ok(listeners)) => {
                self.listeners.give_up(listeners);
                Err(reasons)
            }
            (Err(mut reasons), Err(more)) => {
                reasons.extend(more);
                Err(reasons)
            }
        }
    }

    /// Prepares a model, and tries again for a moment while a process before us may still have an address that we had no use for when it
    /// gave us the others.
    async fn prepare_in_time(
        &mut self,
        configuration: Configuration,
        encryption: encryption::PreparedTls,
        outside: &Outside,
    ) -> Result<Ready, Vec<Refused>> {
        let end = Instant::now() + FREE_WITHIN;
        let mut outcome = self.prepare_with(configuration.clone(), encryption, outside, Instant::now());
        while let Err(reasons) = &outcome
            && self.is_somebody_ending
            && self.listeners.in_use().len() == reasons.len()
            && Instant::now() < end
        {
            tokio::time::sleep(FREE_EVERY).await;
            outcome = self.prepare_again(configuration.clone(), outside, Instant::now());
        }
        outcome
    }

    /// Goes on from what another process remembers; for the first configuration, before its commit. Gives the overrides that it ends.
    pub fn recall(&mut self, ready: &Ready, state: &ProcessMemory, now: Instant) -> Vec<EndedOverride> {
        // Positions in the row depend on weights.
        let ended = self.recall_overrides(ready);
        handover::state::recall(state, &ready.generation, &mut self.checker, now);
        tickets::recall(&self.tickets, &state.tickets);
        self.direct.recall(state.direct);
        self.recall_totals(&state.totals);
        self.recall_variables(&state.variables);
        self.history_before.extend_from_slice(&state.history);
        self.counted_sockets.0.extend_from_slice(&state.sockets.0);
        ended
    }

    /// Lets clients in to new addresses already, who wait until the commit: for the first configuration, as long as the
    /// process may still do so. A unix socket is renamed into place by it, which takes rights in its directory, and the way
    /// there, that `user` and `chroot` take away.
    ///
    /// # Errors
    /// What `mode direct` cannot have, an address that cannot be served, or a unix socket that cannot be renamed into place.
    pub fn open(&mut self, ready: Ready) -> Result<Open, Refused> {
        self.direct.open(&ready.configuration.model)?;
        self.let_in(ready)
    }

    /// The last step of preparing: lets clients in to new addresses, where they wait for the commit.
    ///
    /// # Errors
    /// Only when the system takes back what it granted a moment ago (see [`Listeners::publish`]); everything is as before then.
    pub(crate) fn let_in(&mut self, ready: Ready) -> Result<Open, Refused> {
        let Ready { configuration, generation, listeners, encryption, peers, name_servers, left_out: _ } = ready;
        let open = self.listeners.publish(listeners)?;
        Ok(Open { configuration, generation, open, encryption, peers, name_servers })
    }

    /// Hands the configuration to every core. It cannot fail.
    pub async fn commit(&mut self, open: Open, workers: &Workers) {
        let Open { configuration, mut generation, mut open, encryption, peers, name_servers } = open;
        let Configuration { asked, model, rules } = configuration;
        open.frontends.iter_mut().for_each(|open| encryption.arm(open));
        let of_peers = open.peers.iter().map(|open| (open.id, encryption.acceptor(&open.section, &open.bind)));
        let of_peers: HashMap<ListenerId, Option<Arc<Acceptor>>> = of_peers.collect();
        self.watched = Some(encryption.commit(&self.acceptors, &self.tickets));
        self.read = None;
        // The plan has said which.
        let ended = self.registry.change_overrides(|overrides| overrides.settle(&asked));
        self.untold.extend(ended.into_iter().map(|ended| (ended.object, ended.value.field())));
        generation.listen(open.frontends, &self.registry);
        let before = self.generation.clone();
        priority::yield_cpu();
        let generation = generation.commit(before.as_deref(), &self.registry, Instant::now());
        priority::yield_cpu();
        self.commit_patterns(rules.references());
        self.commit_variables(&model, &rules);
        workers.command(Command::Apply(generation.clone())).await;
        self.direct_said = self.direct.commit(&model, &generation, &self.registry).await;
        priority::yield_cpu();
        self.checker.probe_by(self.direct.prober());
        let (changed, gone) = changed_backends(&model, &generation, before.as_deref());
        self.checker.apply(&model, |name| self.registry.backend_state(name), changed, gone);
        priority::yield_cpu();
        let measures = generation.measures;
        self.generation = Some(generation);
        self.recall_sockets();
        self.runtime.apply(&model, measures, open.stats);
        let acceptor = |open: &OpenPeers| of_peers.get(&open.id).cloned().flatten();
        let is_continued = |name: &str| self.continued.contains(name);
        self.peers.apply(&model, peers, open.peers, acceptor, &self.registry.tables, is_continued);
        self.continued.clear();
        self.started.get_or_insert_with(|| Arc::new(Model { global: model.global.clone(), ..Model::default() }));
        (self.asked, self.model, self.rules) = (asked, model, rules);
        self.server_ids.forget();
        self.names.secure(name_servers);
        self.settle_names(Instant::now());
        self.settle_limits();
        self.settle_frontends();
    }

    /// Keeps new clients from addresses the configuration in use does not have.
    pub fn retire(&mut self, now: Instant) {
        self.listeners.retire(&self.model, now);
    }

    /// Closes retired addresses that have become empty; gives how many.
    pub async fn close_empty(&mut self, now: Instant, workers: &Workers) -> usize {
        for (id, place) in self.listeners.left_to_others() {
            workers.command(Command::Leave(id, place)).await;
            // A socket of the runtime API is the only one of its address.
            self.runtime.close(id);
            self.peers.close(id);
        }
        let empty = self.listeners.look(now);
        let count = empty.len();
        for id in empty {
            workers.command(Command::Close(id)).await;
            self.runtime.close(id);
            self.peers.close(id);
            self.listeners.closed(id);
        }
        count
    }

    /// The number of the configuration in use; 0 before the first.
    pub fn number(&self) -> u64 {
        self.generation.as_ref().map_or(0, |generation| generation.number)
    }

    /// Start-up settings that differ from those this process was started with, and wait for the next one.
    pub fn pending(&self) -> Vec<PendingSetting> {
        self.pending_with(&self.model)
    }

    fn pending_with(&self, model: &Model) -> Vec<PendingSetting> {
        self.started.as_ref().map(|started| plan::pending(started, model)).unwrap_or_default()
    }

    fn accept(&self, plan: Plan, messages: Vec<Message>) -> Outcome {
        Outcome { accepted: true, generation: self.number(), plan, messages, pending: self.pending() }
    }

    /// Refuses a reload of which nothing was read in time.
    pub(crate) fn give_up(&mut self, reason: &str) -> Outcome {
        let refused = Refused { object: "files".into(), reason: reason.into(), source: Source::default() };
        self.refuse(Vec::new(), vec![refused])
    }

    fn refuse(&mut self, messages: Vec<Message>, reasons: Vec<Refused>) -> Outcome {
        self.refused += 1;
        let outcome = self.refusal(messages, &reasons);
        let alert = outcome.messages.iter().find(|message| message.severity == "alert");
        self.last_refused = Some(alert.map_or_else(|| "no reason is known".into(), Message::place_and_text));
        outcome
    }

    fn refusal(&self, mut messages: Vec<Message>, reasons: &[Refused]) -> Outcome {
        messages.extend(reasons.iter().map(|reason| Message::refused(reason, std::process::id())));
        let (generation, pending) = (self.number(), self.pending());
        Outcome { accepted: false, generation, plan: Plan::default(), messages, pending }
    }
}

/// Backends that are not what they were, in the order of the configuration, and the names of those that are gone.
fn changed_backends(
    model: &Model,
    generation: &Generation,
    before: Option<&Generation>,
) -> (Vec<ChangedBackend>, Vec<Arc<str>>) {
    let backends = model.proxies.iter().filter(|proxy| proxy.role.is_backend());
    let plans = backends.filter_map(|proxy| generation.backends.get(&proxy.name));
    let changed = plans.filter(|plan| !generation.has_same_backend(before, &plan.proxy.name));
    let changed =
        changed.map(|plan| ChangedBackend { proxy: Arc::clone(&plan.proxy), state: Arc::clone(&plan.state) }).collect();
    let names = before.iter().flat_map(|before| before.backends.keys());
    (changed, names.filter(|name| !generation.backends.contains_key(&***name)).cloned().collect())
}

/// What a reload with these files would do to a process that works by `model`, as far as it can be seen without that process: addresses
/// are not tried. `certificates` reads
/// those of the new model, beside the ones in use if there is a process; `foresight` looks at what the kernel would be made.
pub fn foresee(
    loaded: Loaded,
    model: &Model,
    generation: u64,
    certificates: impl FnOnce(&Model) -> Result<Vec<PathBuf>, Vec<Refused>>,
    foresight: &Foresight,
) -> Outcome {
    let pid = std::process::id();
    let mut messages: Vec<_> = loaded.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, pid)).collect();
    let Some(new) = loaded.model else {
        return Outcome { generation, messages, ..Outcome::default() };
    };
    let mut accepted = has_listener(&new);
    if !accepted {
        let no_listener = no_listener();
        messages.push(Message::plain(Severity::Alert, "refused", &no_listener.reason, pid));
    }
    let mut plan = Plan::between(model, &new);
    match certificates(&new) {
        Ok(replaced) => plan.replace_certificates(&replaced),
        Err(reasons) => {
            accepted = false;
            messages.extend(reasons.iter().map(|reason| Message::refused(reason, pid)));
        }
    }
    let foreseen = foresight.of(&new);
    plan.kernel = foreseen.steps;
    accepted &= foreseen.refused.is_empty();
    messages.extend(foreseen.refused.iter().map(|reason| Message::refused(reason, pid)));
    messages.extend(foreseen.warnings.iter().map(|text| Message::plain(Severity::Warning, "direct", text, pid)));
    Outcome { accepted, generation, plan, messages, pending: Vec::new() }
}

/// Whether anything would accept connections.
pub fn has_listener(model: &Model) -> bool {
    model.has_listener()
}

/// Raises the limit of open files to what the connections need. Where the system does not give it, there are fewer of them,
/// if `no strict-limits` allows that.
fn afford(model: &Model, cores: usize) -> Result<Capacity, Refused> {
    let wanted = Capacity::now(model, cores);
    let given = OpenFiles::raise(wanted.wanted).map_or(wanted.wanted, |limit| limit.soft);
    if given >= wanted.descriptors || !model.global.process.strict_limits {
        return Ok(wanted.within(given));
    }
    Err(Refused {
        object: "global".into(),
        reason: format!(
            "{wanted}, but the limit is {given}: lower 'maxconn', raise the limit of open files (`ulimit -n`, LimitNOFILE= in \
             systemd), or accept fewer connections with 'no strict-limits'"
        ),
        source: Source::default(),
    })
}

/// What two steps have prepared, or all reasons against either.
fn both<A, B>(one: Result<A, Vec<Refused>>, other: Result<B, Vec<Refused>>) -> Result<(A, B), Vec<Refused>> {
    match (one, other) {
        (Ok(one), Ok(other)) => Ok((one, other)),
        (Ok(_), Err(reasons)) | (Err(reasons), Ok(_)) => Err(reasons),
        (Err(mut reasons), Err(more)) => {
            reasons.extend(more);
            Err(reasons)
        }
    }
}

fn no_listener() -> Refused {
    Refused {
        object: "configuration".into(),
        reason: "No enabled listener found (check for 'bind' directives) !".into(),
        source: Source::default(),
    }
}

#[cfg(test)]
mod tests;
