//! All tables of a process, by name.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLock};

use baton_model::StickTable;

use crate::moving;
use crate::now::Now;
use crate::shared::Table;
use crate::table::TableError;

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
    losses: Vec<String>,
}

impl PreparedTables {
    /// What is lost of tables whose layout or size changes, for messages.
    pub fn losses(&self) -> &[String] {
        &self.losses
    }

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

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// All of them, by name.
    pub fn all(&self) -> Vec<Arc<Table>> {
        let mut all: Vec<_> = self.all.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by(|one, other| one.name().cmp(other.name()));
        all
    }

    /// Goes on with the table of another process, by its memory ([`Table::file`]): the next configuration finds it by its name.
    ///
    /// # Errors
    /// It is none that this version of the program can read; there is no descriptor or address space left.
    pub fn inherit(&self, name: &str, file: OwnedFd) -> io::Result<Arc<Table>> {
        let table = Table::open(name, file)?;
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        all.insert(name.into(), Arc::clone(&table));
        Ok(table)
    }

    /// As [`Table::look_after_processes`], for all of them.
    pub fn look_after_processes(&self) -> bool {
        // Each of them is looked after, whatever the others say.
        self.all().iter().filter(|table| table.look_after_processes()).count() > 0
    }

    /// Removes entries that have expired from all tables, looking at no more than about `most` of each. Gives when to come again; `None`:
    /// nothing will expire until an entry is created.
    pub fn sweep(&self, most: usize, now: Now) -> Option<Now> {
        self.all().iter().filter_map(|table| table.sweep(most, now)).min()
    }

    /// Finds or makes the tables of a configuration, without a trace until they are committed: a table of the same name and layout is the
    /// same, with its contents.
    ///
    /// # Errors
    /// A table that cannot be made.
    pub fn prepare(&self, wanted: &[StickTable]) -> Result<PreparedTables, TableError> {
        let (mut all, mut losses) = (HashMap::new(), Vec::new());
        for settings in wanted {
            let old = self.get(&settings.name);
            if let Some(old) = &old {
                losses.extend(moving::losses(&old.shared, settings));
                losses.extend(moving::surplus(&old.shared, settings));
                if !old.fits(settings) {
                    losses.extend(moving::left_behind(&old.shared, settings));
                }
            }
            let table = match old {
                Some(table) if table.fits(settings) => table,
                _ => Table::new(settings)?,
            };
            all.insert(Arc::clone(&settings.name), table);
        }
        Ok(PreparedTables { all, wanted: wanted.to_vec(), losses })
    }

    /// Puts tables into use: settings that change while a table lives, as its size, are those of the new configuration from now on. Entries
    /// of a table that is replaced by one with another layout are moved, by whoever asks for them and by [`Tables::sweep`].
    pub fn commit(&self, prepared: PreparedTables) {
        for settings in prepared.wanted {
            let Some(table) = prepared.all.get(&settings.name) else { continue };
            match self.get(&settings.name) {
                Some(old) if !old.is(table) && moving::can_move(old.key_type(), table.key_type()) => {
                    // What it has not moved yet itself would be lost.
                    while old.shared.move_some(1000, 0) {}
                    table.shared.before.set(Arc::clone(&old.shared));
                    let _ = old.shared.successor.set(Arc::clone(&table.shared));
                }
                _ => (),
            }
            table.shared.change_settings(settings);
        }
        *self.all.write().unwrap_or_else(PoisonError::into_inner) = prepared.all;
    }
}
