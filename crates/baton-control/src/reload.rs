//! The change line: files → parse → lower → diff → prepare → commit → retire.
//!
//! [`ChangeLine::change`] is the line itself, and the only way by which live state changes. `prepare` may fail and leaves no
//! trace; `commit` cannot; `retire` lets what is gone end in peace. What did not change is not touched by any of them.

use std::sync::Arc;
use std::time::Instant;

use baton_config::{Loaded, Options, Severity};
use baton_kernel::process::limits::OpenFiles;
use baton_model::{Model, Source};
use baton_proxy::generation::OpenListener;
use baton_proxy::{Command, Generation, ListenerPlan, Refused, Registry, Workers};

use crate::environment::Outside;
use crate::health::{self, Checker};
use crate::listeners::{self, Inherited, Listeners};
use crate::plan::Plan;
use crate::protocol::{Message, Outcome};

/// Descriptors kept back from connections: standard streams, signals, files being read, questions of operators, and
/// connections that cores accept at the same moment.
const DESCRIPTORS_RESERVED: u64 = 64;
/// Descriptors of a core: its event loop and what wakes it, its log sockets.
const DESCRIPTORS_OF_A_CORE: usize = 5;

/// Live state, and how it changes. Belongs to one thread, which runs it within a `LocalSet`.
pub struct ChangeLine {
    /// What is in use.
    pub model: Arc<Model>,
    /// The same, as the cores see it; `None` before the first commit.
    pub generation: Option<Arc<Generation>>,
    /// Listening addresses.
    pub listeners: Listeners,
    /// What outlives configurations.
    pub registry: Arc<Registry>,
    /// Health checks, on this thread.
    pub checker: Checker,
    /// Reloads that were refused.
    pub refused: u64,
}

/// A configuration that can be committed.
#[derive(Debug)]
pub struct Ready {
    model: Arc<Model>,
    generation: Generation,
    listeners: listeners::Prepared,
}

impl Ready {
    /// `tune.bufsize`, which a process has for its whole life.
    pub fn bufsize(&self) -> usize {
        self.model.global.bufsize
    }
}

/// Files → parse → lower. Reads files and may ask the name service, so it belongs on a thread of its own.
pub fn read(options: &Options, outside: &Outside) -> Loaded {
    baton_config::load(options, outside)
}

impl ChangeLine {
    /// A process of `cores` cores that has no configuration yet.
    ///
    /// `log` takes what health checks have to say.
    pub fn new(cores: usize, now: Instant, log: impl Fn(health::Event) + 'static) -> ChangeLine {
        ChangeLine {
            model: Arc::default(),
            generation: None,
            listeners: Listeners::new(cores),
            registry: Arc::new(Registry::new(cores, now)),
            checker: Checker::new(log),
            refused: 0,
        }
    }

    /// Changes to what was read, or refuses it whole. Without a difference it is done all the same: a file of patterns may
    /// have changed.
    pub async fn change(&mut self, loaded: Loaded, outside: &Outside, workers: &Workers) -> Outcome {
        let pid = std::process::id();
        let messages = loaded.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, pid)).collect();
        let Some(model) = loaded.model else { return self.refuse(messages, Vec::new()) };
        if !has_listener(&model) {
            return self.refuse(messages, vec![no_listener()]);
        }
        let plan = Plan::between(&self.model, &model);
        let ready = match self.prepare(Arc::new(model), outside, Instant::now()) {
            Ok(ready) => ready,
            Err(reasons) => return self.refuse(messages, reasons),
        };
        if let Err(reason) = self.commit(ready, workers).await {
            return self.refuse(messages, vec![reason]);
        }
        self.retire(Instant::now());
        self.accept(plan, messages)
    }

    /// Takes listening sockets that somebody gave us, for the next [`ChangeLine::prepare`] to use instead of opening its
    /// own; see [`Listeners::inherit`].
    pub fn inherit(&mut self, inherited: Inherited) {
        self.listeners.inherit(inherited);
    }

    /// Opens, checks and compiles everything the model needs, beside what is in use.
    ///
    /// # Errors
    /// Every reason against it; everything is as before then.
    pub fn prepare(&mut self, model: Arc<Model>, outside: &Outside, now: Instant) -> Result<Ready, Vec<Refused>> {
        let number = self.number() + 1;
        if let (None, Some(wanted)) = (model.global.ulimit_n, descriptors_wanted(&model, self.registry.cores())) {
            // Where the system does not give so many, the shares are smaller.
            let _ = OpenFiles::raise(wanted);
        }
        let Shares { maxconn, idle } = shares(&model, self.registry.cores());
        let generation = Generation::prepare(number, model.clone(), maxconn, Vec::new(), &self.registry, outside, now);
        match (generation, self.listeners.prepare(&model)) {
            (Ok(mut generation), Ok(listeners)) => {
                generation.idle_max = idle;
                Ok(Ready { model, generation, listeners })
            }
            (Ok(_), Err(reasons)) => Err(reasons),
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

    /// Lets clients in to new addresses and hands the configuration to every core.
    ///
    /// # Errors
    /// Only when the system takes back what it granted in `prepare` (see [`Listeners::publish`]); nothing is in use then
    /// that was not before.
    pub async fn commit(&mut self, ready: Ready, workers: &Workers) -> Result<(), Refused> {
        let Ready { model, mut generation, listeners } = ready;
        let open = self.listeners.publish(listeners)?;
        let frontends = &generation.frontends;
        let lead = |open: OpenListener| {
            let frontend = frontends.iter().find(|plan| plan.proxy.name == open.frontend)?.clone();
            Some(Arc::new(ListenerPlan::new(open, frontend, &self.registry)))
        };
        let listeners = open.into_iter().filter_map(lead).collect();
        generation.listeners = listeners;
        let generation = generation.commit(&self.registry, Instant::now());
        workers.command(Command::Apply(generation.clone())).await;
        self.generation = Some(generation);
        self.checker.apply(&model, |name| self.registry.backend_state(name));
        self.model = model;
        Ok(())
    }

    /// Keeps new clients from addresses the configuration in use does not have.
    pub fn retire(&mut self, now: Instant) {
        self.listeners.retire(&self.model, now);
    }

    /// Closes retired addresses that have become empty.
    pub async fn close_empty(&mut self, now: Instant, workers: &Workers) {
        for id in self.listeners.look(now) {
            workers.command(Command::Close(id)).await;
            self.listeners.closed(id);
        }
    }

    /// The number of the configuration in use; 0 before the first.
    pub fn number(&self) -> u64 {
        self.generation.as_ref().map_or(0, |generation| generation.number)
    }

    fn accept(&self, plan: Plan, messages: Vec<Message>) -> Outcome {
        Outcome { accepted: true, generation: self.number(), plan, messages }
    }

    fn refuse(&mut self, mut messages: Vec<Message>, reasons: Vec<Refused>) -> Outcome {
        self.refused += 1;
        messages.extend(reasons.iter().map(|reason| Message::refused(reason, std::process::id())));
        Outcome { accepted: false, generation: self.number(), plan: Plan::default(), messages }
    }
}

/// What a reload with these files would do to a process that works by `model`. Addresses are not tried.
pub fn foresee(loaded: Loaded, model: &Model, generation: u64) -> Outcome {
    let pid = std::process::id();
    let mut messages: Vec<_> = loaded.diagnostics.iter().map(|diagnostic| Message::of(diagnostic, pid)).collect();
    let Some(new) = loaded.model else {
        return Outcome { accepted: false, generation, plan: Plan::default(), messages };
    };
    let accepted = has_listener(&new);
    if !accepted {
        let no_listener = no_listener();
        messages.push(Message::plain(Severity::Alert, "refused", &no_listener.reason, pid));
    }
    Outcome { accepted, generation, plan: Plan::between(model, &new), messages }
}

/// Whether anything would accept connections.
pub fn has_listener(model: &Model) -> bool {
    model.proxies.iter().any(|proxy| !proxy.disabled && !proxy.binds.is_empty())
}

fn no_listener() -> Refused {
    Refused {
        object: "configuration".into(),
        reason: "No enabled listener found (check for 'bind' directives) !".into(),
        source: Source::default(),
    }
}

/// What the process may open besides its listening sockets, checks and files.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shares {
    /// Client connections, each with one connection to a server: as asked, or what the descriptors allow.
    pub maxconn: u32,
    /// Idle connections to servers besides: from what is left, as many as there may be clients.
    pub idle: u32,
}

/// Shares out the descriptors that this process has. An explicit `maxconn` that they do not suffice for is lowered to what
/// they do, so that neither accepting nor connecting ever fails for want of one.
pub fn shares(model: &Model, cores: usize) -> Shares {
    let limit = OpenFiles::now().map_or(1024, |limit| limit.soft);
    share_out(model.global.maxconn, limit.saturating_sub(reserved(model, cores)))
}

/// The limit of open files that lets the configuration have all it may want; `None` where that is as much as there is.
pub fn descriptors_wanted(model: &Model, cores: usize) -> Option<u64> {
    Some(u64::from(model.global.maxconn?) * 3 + reserved(model, cores))
}

/// Descriptors kept back from connections.
fn reserved(model: &Model, cores: usize) -> u64 {
    let proxies = || model.proxies.iter().filter(|proxy| !proxy.disabled);
    let binds: usize = proxies().map(|proxy| proxy.binds.len()).sum();
    let checks = proxies().flat_map(|proxy| &proxy.servers).filter(|server| server.check.enabled).count();
    // An address has one descriptor here and one with the cores, for each of its sockets.
    DESCRIPTORS_RESERVED + (cores * DESCRIPTORS_OF_A_CORE + binds * cores * 2 + checks) as u64
}

fn share_out(maxconn: Option<u32>, left: u64) -> Shares {
    let affordable = u32::try_from(left / 2).unwrap_or(u32::MAX).max(1);
    // Unasked, a ninth is kept for idle connections: one for every four clients.
    let maxconn = maxconn.map_or_else(|| (affordable - affordable / 9).max(1), |asked| asked.min(affordable));
    let idle = left.saturating_sub(2 * u64::from(maxconn)).min(u64::from(maxconn));
    Shares { maxconn, idle: u32::try_from(idle).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_never_need_more_descriptors_than_there_are() {
        let check = |maxconn, left, expect: (u32, u32)| {
            let Shares { maxconn, idle } = share_out(maxconn, left);
            assert_eq!((maxconn, idle), expect);
            assert!(2 * u64::from(maxconn) + u64::from(idle) <= left);
        };
        check(Some(1000), 3000, (1000, 1000));
        check(Some(1000), 100_000, (1000, 1000));
        check(Some(1000), 2100, (1000, 100));
        check(Some(1000), 2000, (1000, 0));
        check(Some(1000), 500, (250, 0));
        check(None, 18_000, (8000, 2000));
        check(None, 2, (1, 0));
    }
}
