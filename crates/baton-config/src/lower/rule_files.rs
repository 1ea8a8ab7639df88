//! The world that rules and expressions are compiled in.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use baton_model::{Family, HttpErrors, StickTable, UserList};
use baton_rules::BufferLimits;

use super::Context;

/// What rules ask for while they are compiled.
pub(crate) struct RuleFiles<'a, 'c> {
    context: &'a Context<'c>,
    /// The file the proxy stands in, for `default-path`.
    config: Arc<str>,
}

impl<'a, 'c> RuleFiles<'a, 'c> {
    /// For an expression that stands in the file `config`.
    pub fn new(context: &'a Context<'c>, config: Arc<str>) -> RuleFiles<'a, 'c> {
        RuleFiles { context, config }
    }
}

impl baton_rules::Files for RuleFiles<'_, '_> {
    fn read(&self, path: &str) -> std::io::Result<Vec<u8>> {
        self.context.env.read(&self.context.path(&self.config, path))
    }

    fn pattern_references(&self) -> Option<&baton_rules::References> {
        Some(self.context.compiled.references())
    }

    fn environment(&self, name: &str) -> Option<String> {
        match self.context.variables.get(name) {
            Some(value) => value.clone(),
            None => self.context.env.var(name),
        }
    }

    fn resolve(&self, host: &str) -> Option<Ipv4Addr> {
        let addresses = self.context.env.resolve(host, Family::V4).ok()?;
        addresses.into_iter().find_map(|address| match address {
            IpAddr::V4(address) => Some(address),
            IpAddr::V6(_) => None,
        })
    }

    fn users(&self, list: &str) -> Option<Arc<UserList>> {
        self.context.users.iter().find(|users| *users.name == *list).cloned()
    }

    fn http_errors(&self, section: &str) -> Option<Arc<HttpErrors>> {
        let mut sections = self.context.http_errors.iter();
        sections.find(|(errors, _)| *errors.name == *section).map(|(errors, _)| Arc::clone(errors))
    }

    fn table(&self, name: &str) -> Option<Arc<StickTable>> {
        self.context.tables.get(name).cloned()
    }

    fn stick_counters(&self) -> u8 {
        self.context.stick_counters
    }

    fn buffer(&self) -> BufferLimits {
        self.context.buffer
    }

    fn hostname(&self) -> String {
        self.context.env.hostname()
    }
}
