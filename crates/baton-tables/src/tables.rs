//! All tables of a process, by name.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use baton_model::StickTable;

use crate::table::{Table, TableError};

/// All tables of a process. Those who look up a table for a core keep it, see [`Table::own`].
#[derive(Debug, Default)]
pub struct Tables {
    all: RwLock<HashMap<Arc<str>, Arc<Table>>>,
}

/// Tables of a configuration that is not in use yet.
#[derive(Debug)]
pub struct PreparedTables {
    all: HashMap<Arc<str>, Arc<Table>>,
    wanted: Vec<StickTable>,
}

impl PreparedTables {
    /// A table of it.
    pub fn get(&self, name: &str) -> Option<Arc<Table>> {
        self.all.get(name).cloned()
    }
}

impl Tables {
    /// None.
    pub fn new() -> Tables {
        Tables::default()
    }

    /// A table of the configuration in use.
    pub fn get(&self, name: &str) -> Option<Arc<Table>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    /// Finds or makes the tables of a configuration, without a trace until they are committed: a table of the same name and layout is the
    /// same, with its contents.
    ///
    /// # Errors
    /// A table that cannot be made.
    pub fn prepare(&self, wanted: &[StickTable]) -> Result<PreparedTables, TableError> {
        let mut all = HashMap::new();
        for settings in wanted {
            let table = match self.get(&settings.name) {
                Some(table) if table.fits(settings) => table,
                _ => Table::new(settings)?,
            };
            all.insert(Arc::clone(&settings.name), table);
        }
        Ok(PreparedTables { all, wanted: wanted.to_vec() })
    }

    /// Puts tables into use: settings that change while a table lives, as its size, are those of the new configuration from now on.
    pub fn commit(&self, prepared: PreparedTables) {
        for settings in prepared.wanted {
            if let Some(table) = prepared.all.get(&settings.name) {
                table.change_settings(settings);
            }
        }
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = prepared.all;
    }
}
