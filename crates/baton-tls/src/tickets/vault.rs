//! All keys of a process: a ring of its own, and one for each file of `tls-ticket-keys`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::key::{BadKey, TicketKey};
use super::ring::TicketKeys;

/// Keys by where they come from. Shared by whoever changes configurations and whoever answers operators.
#[derive(Debug)]
pub struct TicketVault {
    own: Arc<TicketKeys>,
    /// In the order in which the configuration in use names them: what an operator numbers them by.
    files: Mutex<Vec<(PathBuf, Arc<TicketKeys>)>>,
}

/// Keys of a configuration that may come into use.
#[derive(Debug, Default)]
pub struct UpcomingTickets {
    files: Vec<(PathBuf, Arc<TicketKeys>, Vec<Arc<TicketKey>>)>,
    /// Where each file is among them.
    places: HashMap<PathBuf, usize>,
}

impl TicketVault {
    /// With a new key of its own, at `now` in seconds since 1970.
    ///
    /// # Errors
    /// When the system has no random bytes.
    pub fn new(now: u64) -> Result<TicketVault, BadKey> {
        Ok(TicketVault { own: Arc::new(TicketKeys::own(now)?), files: Mutex::default() })
    }

    /// The keys of binds without `tls-ticket-keys`.
    pub fn own(&self) -> &Arc<TicketKeys> {
        &self.own
    }

    /// What a configuration asks for: the files it names, in its order, and what was read of them. Changes nothing yet.
    pub fn prepare(&self, files: impl IntoIterator<Item = (PathBuf, Vec<Arc<TicketKey>>)>) -> UpcomingTickets {
        let mut upcoming = UpcomingTickets::default();
        let before: HashMap<PathBuf, Arc<TicketKeys>> = self.files().into_iter().collect();
        for (path, keys) in files {
            if upcoming.keys(&path).is_none() {
                let ring = before.get(&path).cloned();
                let ring = ring.unwrap_or_else(|| Arc::new(TicketKeys::of_file(keys.clone())));
                upcoming.places.insert(path.clone(), upcoming.files.len());
                upcoming.files.push((path, ring, keys));
            }
        }
        upcoming
    }

    /// The configuration is in use: so are its files' keys, also where an operator had set others.
    pub fn commit(&self, upcoming: UpcomingTickets) {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.clear();
        for (path, ring, keys) in upcoming.files {
            ring.replace(keys);
            files.push((path, ring));
        }
    }

    /// The keys of a file that the configuration in use names.
    pub fn file(&self, path: &Path) -> Option<Arc<TicketKeys>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.iter().find(|(other, _)| other == path).map(|(_, keys)| keys.clone())
    }

    /// All files, in order: the place of one is its number for operators.
    pub fn files(&self) -> Vec<(PathBuf, Arc<TicketKeys>)> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl UpcomingTickets {
    /// The keys of a file of this configuration, to make a [`Ticketer`](super::Ticketer) with.
    pub fn keys(&self, path: &Path) -> Option<&Arc<TicketKeys>> {
        self.places.get(path).map(|at| &self.files[*at].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_keeps_its_ring_over_configurations() {
        let keys = |byte: u8| (0..3).map(|_| Arc::new(TicketKey::of_bytes(&[byte; 48]).unwrap())).collect::<Vec<_>>();
        let vault = TicketVault::new(0).unwrap();
        let (a, b) = (PathBuf::from("a"), PathBuf::from("b"));
        let first = vault.prepare([(a.clone(), keys(1)), (a.clone(), keys(1))]);
        let ring = first.keys(&a).unwrap().clone();
        assert!(vault.file(&a).is_none(), "nothing is in use before the commit");
        vault.commit(first);
        ring.push(TicketKey::of_bytes(&[9; 48]).unwrap()).unwrap();
        drop(vault.prepare([(a.clone(), keys(2))]));
        assert_eq!(ring.shown()[2], TicketKey::of_bytes(&[9; 48]).unwrap().to_text(), "refused, so nothing changed");
        let second = vault.prepare([(b.clone(), keys(3)), (a.clone(), keys(2))]);
        assert!(Arc::ptr_eq(second.keys(&a).unwrap(), &ring));
        vault.commit(second);
        assert_eq!(ring.shown()[0], TicketKey::of_bytes(&[2; 48]).unwrap().to_text(), "files win");
        assert_eq!(vault.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>(), [b, a]);
    }
}
