//! Variables of the process on the change path: what the file and operators set them to, and what other processes and the master learn of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use baton_model::Model;
use baton_proxy::{BackendPlan, FrontendPlan, Generation, PlanFigures, ProcessFacts, Registry};
use baton_rules::{
    Alone, BackendFigure, CompiledRules, Figure, FrontendFigure, KeptProcessVariable, LiveState, ProcessFigure,
    ServerFigure, VariableLine,
};
use baton_tables::{Now, Table};

use super::ChangeLine;
use crate::handover::memory::VariableMemory;
use crate::operators::figures::{self, ObjectKey, ObjectSample};
use crate::operators::rates::{Counted, Rates};

/// How often it is looked whether requests have set one, for the master.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the master knows of them.
#[derive(Debug, Default)]
pub(super) struct ToldVariables {
    /// As of which edition; `None`: there is no master.
    edition: Option<u64>,
    due: Option<Instant>,
}

impl ChangeLine {
    /// The lines of the configuration that comes into use, and its limits.
    pub(super) fn commit_variables(&mut self, model: &Model, rules: &CompiledRules) {
        self.registry.variables.limit(&model.global.variable_limits);
        self.evaluate_alone(None, |line, alone| line.registry.variables.settle(rules.variables(), alone));
    }

    /// An operator sets one.
    pub(super) fn set_variable(&mut self, setting: &VariableLine, is_stopping: bool) {
        let now = Instant::now();
        let (generation, registry, rates) = (self.generation.as_deref(), &*self.registry, &self.runtime.rates);
        let live = LiveProcess { generation, registry, rates, now, is_stopping };
        self.evaluate_alone(Some(&live), |_, alone| setting.run(alone));
    }

    fn evaluate_alone(&self, live: Option<&dyn LiveState>, evaluate: impl FnOnce(&ChangeLine, &Alone<'_>)) {
        let now = SystemTime::now();
        let facts = ProcessFacts::at(now);
        // Each state is keyed anew.
        let random = || RandomState::new().build_hasher().finish() as u32;
        evaluate(self, &Alone { now, log: &facts, random: &random, variables: &self.registry.variables, live });
    }

    /// Those of another process, for the first commit.
    pub(super) fn recall_variables(&self, kept: &[VariableMemory]) {
        self.registry.variables.recall(kept.iter().filter_map(kept_variable));
    }

    /// All of them, for another process or the master.
    pub(crate) fn remember_variables(&self) -> Vec<VariableMemory> {
        self.registry.variables.list().iter().map(memory).collect()
    }

    /// There is a master, which knows them as they are now.
    pub(crate) fn tell_variables(&mut self, now: Instant) {
        self.told_variables = ToldVariables { edition: Some(self.registry.variables.edition()), due: None };
        self.look_at_variables(now);
    }

    /// Whether some changed since the master was told; it is told then.
    pub(crate) fn take_variable_news(&mut self, now: Instant) -> bool {
        let edition = self.registry.variables.edition();
        let has_news = self.told_variables.edition.is_some_and(|told| told != edition);
        if self.told_variables.edition.is_some() {
            self.told_variables.edition = Some(edition);
            self.look_at_variables(now);
        }
        has_news
    }

    /// When requests may have set one that the master does not know.
    pub(crate) fn variables_due(&self) -> Option<Instant> {
        self.told_variables.due
    }

    fn look_at_variables(&mut self, now: Instant) {
        self.told_variables.due = self.rules.sets_variables().then_some(now + LOOK_EVERY);
    }
}

/// What an expression of a command sees of the process.
struct LiveProcess<'a> {
    generation: Option<&'a Generation>,
    registry: &'a Registry,
    /// They are measured for sockets of operators, whether rules ask for them or not.
    rates: &'a Rates<ObjectKey>,
    now: Instant,
    is_stopping: bool,
}

impl LiveProcess<'_> {
    fn sample(&self, key: ObjectKey, counted: Counted) -> ObjectSample {
        ObjectSample::of(self.rates, &key, counted, self.now)
    }

    fn of_frontend(&self, plan: &FrontendPlan, figure: FrontendFigure) -> i64 {
        let figures = PlanFigures { registry: self.registry, now: self.now };
        let counters = &plan.state.counters;
        let sample = || self.sample(ObjectKey::Frontend(plan.proxy.name.clone()), figures::of_frontend(counters));
        match figure {
            FrontendFigure::RequestRate => integer(sample().requests().0),
            FrontendFigure::SessionRate => integer(sample().sessions().0),
            FrontendFigure::Connections | FrontendFigure::ClientTimeout => figures.of_frontend(plan, figure),
        }
    }

    fn of_backend(&self, plan: &BackendPlan, figure: BackendFigure) -> i64 {
        if figure == BackendFigure::SessionRate {
            let key = ObjectKey::Backend(plan.proxy.name.clone());
            return integer(self.sample(key, figures::of_backend(&plan.figures.counters)).sessions().0);
        }
        PlanFigures { registry: self.registry, now: self.now }.of_backend(plan, figure, 0)
    }

    fn of_server(&self, plan: &BackendPlan, name: &str, figure: ServerFigure) -> Option<i64> {
        if figure == ServerFigure::SessionRate {
            let server = plan.servers.get(name)?;
            let key = ObjectKey::Server(plan.proxy.name.clone(), server.server.name.clone());
            return Some(integer(self.sample(key, figures::of_backend(&server.counters)).sessions().0));
        }
        PlanFigures { registry: self.registry, now: self.now }.of_server(plan, name, figure)
    }
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl LiveState for LiveProcess<'_> {
    fn figure(&self, figure: Figure<'_>) -> Option<i64> {
        let generation = self.generation?;
        match figure {
            Figure::Frontend(name, figure) => Some(self.of_frontend(generation.frontend(name)?, figure)),
            Figure::Backend(name, figure) => Some(self.of_backend(generation.backends.get(name)?, figure)),
            Figure::Server(backend, name, figure) => self.of_server(generation.backends.get(backend)?, name, figure),
            Figure::Process(ProcessFigure::IsStopping) => Some(i64::from(self.is_stopping)),
            Figure::Process(ProcessFigure::Thread) => Some(0),
            Figure::Process(ProcessFigure::Threads) => i64::try_from(self.registry.cores()).ok(),
            Figure::Process(ProcessFigure::Connections) => Some(self.registry.open.load(Ordering::Relaxed)),
            // There is none.
            Figure::Exchange(_) | Figure::Tcp(..) | Figure::Connection(..) => None,
        }
    }

    fn is_local(&self, address: IpAddr) -> bool {
        baton_kernel::stream::is_local(address)
    }

    fn table(&self, name: &str) -> Option<Arc<Table>> {
        self.registry.tables.get(name)
    }

    fn table_now(&self) -> Now {
        self.registry.timeline.at(self.now)
    }
}

fn memory(kept: &KeptProcessVariable) -> VariableMemory {
    VariableMemory { lines: kept.lines.clone(), ..VariableMemory::of(&kept.name, kept.value.as_deref()) }
}

/// `None`: it is of a kind that is unknown here, or malformed.
fn kept_variable(memory: &VariableMemory) -> Option<KeptProcessVariable> {
    let value = memory.sample()?.map(Arc::new);
    Some(KeptProcessVariable { name: memory.name.as_str().into(), value, lines: memory.lines.clone() })
}

#[cfg(test)]
mod tests {
    use baton_rules::Sample;

    use super::*;

    #[test]
    fn each_kind_of_value_is_kept() {
        let check = |value: Option<Sample<'static>>| {
            let kept = KeptProcessVariable { name: "proc.a".into(), value: value.map(Arc::new), lines: "x".into() };
            assert_eq!(kept_variable(&memory(&kept)), Some(kept));
        };
        check(None);
        check(Some(Sample::Bool(true)));
        check(Some(Sample::Int(-7)));
        check(Some(Sample::Ip("2001:db8::1".parse().unwrap())));
        check(Some(Sample::Str(b"a\\b\"\n\xff\0".to_vec().into())));
        check(Some(Sample::Bin(vec![0, 255, 1].into())));
        check(Some(Sample::Method(b"GET".to_vec().into())));
        let unknown = VariableMemory { name: "proc.a".into(), kind: "later".into(), ..VariableMemory::default() };
        assert_eq!(kept_variable(&unknown), None);
    }
}
