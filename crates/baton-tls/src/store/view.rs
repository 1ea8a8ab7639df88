//! Certificates for those who look at them and may not change what is in use.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::Source;

use super::{Entry, ListLine, Store, Transaction};
use crate::certificate::Chains;

/// The certificates in use. A transaction can be made of it; only who has the [`Store`] can commit one.
#[derive(Clone, Debug)]
pub struct StoreView(Arc<Store>);

impl StoreView {
    /// The certificate under a name: [`Store::entry`].
    pub fn entry(&self, name: &Path) -> Option<Arc<Entry>> {
        self.0.entry(name)
    }

    /// All certificates, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        self.0.entries()
    }

    /// The `crt-list`s and directories that are in use, and whether each is a directory.
    pub fn lists(&self) -> Vec<(PathBuf, bool)> {
        self.0.lists()
    }

    /// The lines of a `crt-list`, or the files of a directory: [`Store::lines`].
    pub fn lines(&self, list: &Path) -> Vec<ListLine> {
        self.0.lines(list)
    }

    /// Whether a `bind` or a server uses a certificate.
    pub fn is_used(&self, entry: &Arc<Entry>) -> bool {
        self.0.is_used(entry)
    }

    /// In how many places a certificate is used.
    pub fn uses(&self, entry: &Arc<Entry>) -> usize {
        self.0.uses(entry)
    }

    /// The `bind` lines that have a certificate as their default.
    pub fn defaults(&self, entry: &Arc<Entry>) -> Vec<Source> {
        self.0.defaults(entry)
    }

    /// Where certificates of issuers are shared: [`Store::chains`].
    pub fn chains(&self) -> &Chains {
        self.0.chains()
    }

    /// Begins a change of single certificates, which somebody else commits.
    pub fn transaction(&self) -> Transaction {
        self.0.transaction()
    }
}

impl Store {
    /// A view for those who only look.
    pub fn view(self: &Arc<Store>) -> StoreView {
        StoreView(self.clone())
    }
}
