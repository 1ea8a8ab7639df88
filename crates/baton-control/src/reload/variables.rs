//! Variables of the process on the change path: what the file and operators set them to, and what other processes and the master learn of them.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use baton_model::Model;
use baton_proxy::ProcessFacts;
use baton_rules::{Alone, CompiledRules, KeptProcessVariable, Sample, VariableLine};

use super::ChangeLine;
use crate::handover::memory::VariableMemory;
use crate::overrides::entries::{bytes, escaped};

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
        self.evaluate_alone(|line, alone| line.registry.variables.settle(rules.variables(), alone));
    }

    /// An operator sets one.
    pub(super) fn set_variable(&mut self, setting: &VariableLine) {
        self.evaluate_alone(|_, alone| setting.run(alone));
    }

    fn evaluate_alone(&self, evaluate: impl FnOnce(&ChangeLine, &Alone<'_>)) {
        let now = SystemTime::now();
        let facts = ProcessFacts::at(now);
        // Each state is keyed anew.
        let random = || RandomState::new().build_hasher().finish() as u32;
        evaluate(self, &Alone { now, log: &facts, random: &random, variables: &self.registry.variables });
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

fn memory(kept: &KeptProcessVariable) -> VariableMemory {
    let (kind, value) = match kept.value.as_deref() {
        None => ("", String::new()),
        Some(Sample::Bool(value)) => ("bool", u8::from(*value).to_string()),
        Some(Sample::Int(value)) => ("sint", value.to_string()),
        Some(Sample::Ip(value)) => ("ip", value.to_string()),
        Some(Sample::Str(text)) => ("str", escaped(text)),
        Some(Sample::Bin(text)) => ("bin", escaped(text)),
        Some(Sample::Method(text)) => ("meth", escaped(text)),
    };
    VariableMemory { name: kept.name.to_string(), kind: kind.into(), value, lines: kept.lines.clone() }
}

/// `None`: it is of a kind that is unknown here, or malformed.
fn kept_variable(memory: &VariableMemory) -> Option<KeptProcessVariable> {
    let VariableMemory { name, kind, value, lines } = memory;
    let text = || bytes(value).into();
    let value = match &**kind {
        "" => None,
        "bool" => Some(Sample::Bool(value == "1")),
        "sint" => Some(Sample::Int(value.parse().ok()?)),
        "ip" => Some(Sample::Ip(value.parse::<IpAddr>().ok()?)),
        "str" => Some(Sample::Str(text())),
        "bin" => Some(Sample::Bin(text())),
        "meth" => Some(Sample::Method(text())),
        _ => return None,
    };
    Some(KeptProcessVariable { name: name.as_str().into(), value: value.map(Arc::new), lines: lines.clone() })
}

#[cfg(test)]
mod tests {
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
