//! Compiling the rules of a proxy where the whole configuration did not.

use std::io;
use std::sync::Arc;

use baton_model::{Model, Proxy, StickTable, UserList};
use baton_rules::{Files, ProxyRules};

use super::Refused;

/// What rules are compiled from that were not compiled with their model.
pub(super) struct RuleSources<'a> {
    pub model: &'a Model,
    pub files: &'a dyn Files,
}

impl Files for RuleSources<'_> {
    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.files.read(path)
    }

    fn environment(&self, name: &str) -> Option<String> {
        self.files.environment(name)
    }

    fn users(&self, list: &str) -> Option<Arc<UserList>> {
        self.model.userlists.iter().find(|users| *users.name == *list).cloned()
    }

    fn table(&self, name: &str) -> Option<Arc<StickTable>> {
        self.model.tables().find(|table| *table.name == *name).cloned()
    }

    fn stick_counters(&self) -> u8 {
        self.model.global.stick_counters
    }

    fn hostname(&self) -> String {
        self.files.hostname()
    }
}

pub(super) fn compile(proxy: &Proxy, files: &dyn Files, refused: &mut Vec<Refused>) -> Option<Arc<ProxyRules>> {
    match baton_rules::compile(proxy, files) {
        Ok(rules) => Some(Arc::new(rules)),
        Err(problems) => {
            let object = format!("{} {}", proxy.role.word(), proxy.name);
            refused.extend(problems.into_iter().map(|problem| Refused {
                object: object.clone(),
                reason: problem.message,
                source: problem.source,
            }));
            None
        }
    }
}
