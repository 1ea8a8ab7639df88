//! Which certificate answers a name: the choice of HAProxy 2.6 over the certificates of one `bind`.
//!
//! A name is looked for as it is, and with its first label replaced by `*`. Among all certificates found one with an ECDSA key
//! is taken if the client can verify it, else one with RSA, else one with Ed25519; of the same kind one that has the name itself
//! goes before one that has the wildcard, and then the order of the configuration decides. If the client can verify none of
//! them, the first is shown all the same, and the handshake fails. For a name that nobody has, and where none is asked for, the
//! default certificate answers.

mod names;

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use baton_model::{Source, TlsOptions};
use rustls::sign::CertifiedKey;

use super::Entry;
use super::signers::Signers;
use crate::certificate::{Certificate, CertificateError, Verifies};
use names::{CertificateUse, Names};

pub use names::ADDED;
pub(crate) use names::{NewUse, Order};

/// The certificates of a `bind`, by name. Cores ask it in each handshake while others change it.
#[derive(Debug)]
pub struct Index {
    names: RwLock<Names>,
    lists: Box<[ListPlace]>,
    binds: Box<[Source]>,
    signers: Arc<Signers>,
}

/// Where a `crt-list` or a directory stands among the words of a `bind`.
#[derive(Clone, Debug)]
pub(crate) struct ListPlace {
    pub(crate) path: PathBuf,
    pub(crate) source: u32,
    /// Its certificates have the order of their names.
    pub(crate) is_directory: bool,
}

/// A line of a `crt-list`, or a file of a directory.
#[derive(Clone, Debug)]
pub struct ListLine {
    /// Whose certificate it is.
    pub entry: Arc<Entry>,
    /// Its number in its list: from 1, and for lines that were added later above those of the file; 0 in a directory.
    pub number: u32,
    /// Its settings.
    pub options: Arc<TlsOptions>,
    /// Its filters; `None`: the certificate's own names.
    pub filters: Option<Arc<[String]>>,
    /// It is what clients without a name get.
    pub is_default: bool,
}

/// The certificate for a client.
#[derive(Clone, Debug)]
pub struct Choice {
    /// What is shown.
    pub certificate: Arc<Certificate>,
    /// Its number among [`Index::contexts`]: the settings that a `crt-list` line gave it.
    pub context: u32,
    /// No certificate has the name: this is the default. With `strict-sni` such a client is refused.
    pub by_default: bool,
    signers: Arc<Signers>,
}

impl Choice {
    /// What signs for it.
    ///
    /// # Errors
    /// When its key turns out to be of no use.
    pub fn signer(&self) -> Result<Arc<CertifiedKey>, CertificateError> {
        self.signers.of(&self.certificate)
    }
}

impl Index {
    pub(crate) fn new(signers: Arc<Signers>, lists: Vec<ListPlace>, binds: Vec<Source>) -> Index {
        Index { names: RwLock::new(Names::new()), lists: lists.into(), binds: binds.into(), signers }
    }

    /// The certificate for a client that asks for `name` and can verify what `client` says. `None`: there is none at all.
    pub fn find(&self, name: Option<&str>, client: Verifies) -> Option<Choice> {
        let names = self.read();
        let named = name.and_then(|name| names.find(name.as_bytes(), client));
        let by_default = named.is_none();
        let found = named.or_else(|| names.default_use(client))?;
        Some(Choice {
            certificate: found.certificate.clone(),
            context: found.context,
            by_default,
            signers: self.signers.clone(),
        })
    }

    /// Different settings that lines of a `crt-list` give, as written there: number 0 are those of the `bind` itself. There may
    /// be more later, but a number stays what it is.
    pub fn contexts(&self) -> Vec<Arc<TlsOptions>> {
        self.read().contexts().to_vec()
    }

    /// How many certificates there are, each as often as it is used.
    pub fn len(&self) -> usize {
        self.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a `crt-list` or a directory of this name belongs to it.
    pub(crate) fn has_list(&self, list: &Path) -> bool {
        self.sources(list).next().is_some()
    }

    /// The `crt-list`s and directories that belong to it.
    pub(crate) fn lists(&self) -> &[ListPlace] {
        &self.lists
    }

    /// The `bind` lines that it answers for.
    pub(crate) fn binds(&self) -> &[Source] {
        &self.binds
    }

    /// Whether a certificate is what clients without a name get.
    pub(crate) fn is_default(&self, entry: &Arc<Entry>) -> bool {
        self.read().defaults().any(|found| Arc::ptr_eq(&found.entry, entry))
    }

    fn sources(&self, list: &Path) -> impl Iterator<Item = &ListPlace> {
        self.lists.iter().filter(move |place| place.path == list)
    }

    /// The lines of a `crt-list`, or the files of a directory, in order. Costs a walk over all certificates.
    pub fn lines(&self, list: &Path) -> Vec<ListLine> {
        let names = self.read();
        let is_there = |found: &&CertificateUse| self.sources(list).any(|place| place.source == found.order.source);
        let mut all: Vec<&CertificateUse> = names.all().filter(is_there).collect();
        all.sort_unstable_by_key(|found| found.place());
        let defaults: Vec<_> = names.defaults().map(CertificateUse::place).collect();
        let line = |found: &CertificateUse| ListLine {
            entry: found.entry.clone(),
            number: found.order.line,
            options: names.contexts().get(found.context as usize).cloned().unwrap_or_default(),
            filters: found.filters.clone(),
            is_default: defaults.contains(&found.place()),
        };
        all.into_iter().map(line).collect()
    }

    /// Whether a certificate is used by the list.
    pub(crate) fn uses(&self, entry: &Arc<Entry>, list: &Path) -> bool {
        let names = self.read();
        let mut sources = names.uses_of(entry).into_iter().filter_map(|id| Some(names.get(id)?.order.source));
        sources.any(|source| self.sources(list).any(|place| place.source == source))
    }

    /// In how many places a certificate is used.
    pub(crate) fn count(&self, entry: &Arc<Entry>) -> usize {
        self.read().uses_of(entry).len()
    }

    /// Whether a certificate is used at all.
    pub(crate) fn is_used(&self, entry: &Arc<Entry>) -> bool {
        !self.read().uses_of(entry).is_empty()
    }

    /// Handshakes wait until the change is dropped.
    pub(crate) fn change(&self) -> Change<'_> {
        Change { index: self, names: self.write() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Names> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Names> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Several changes that are seen together.
pub(crate) struct Change<'a> {
    index: &'a Index,
    names: RwLockWriteGuard<'a, Names>,
}

impl Change<'_> {
    /// Adds a use.
    pub(crate) fn add(&mut self, new: NewUse) {
        self.names.add(new);
    }

    /// Adds a use to every list of this name: behind all lines, or by its name in a directory.
    pub(crate) fn add_to(
        &mut self,
        list: &Path,
        entry: &Arc<Entry>,
        options: Option<Arc<TlsOptions>>,
        filters: Option<Arc<[String]>>,
    ) {
        for place in self.index.sources(list) {
            let line =
                if place.is_directory && filters.is_none() && options.is_none() { 0 } else { self.names.next_line() };
            self.names.add(NewUse {
                entry: entry.clone(),
                certificate: entry.certificate(),
                order: Order { source: place.source, line },
                options: options.clone(),
                filters: filters.clone(),
                is_default: false,
            });
        }
    }

    /// Gives every use of `entry` another certificate.
    pub(crate) fn replace(&mut self, entry: &Arc<Entry>, certificate: &Arc<Certificate>) {
        self.names.replace(entry, certificate);
    }

    /// Removes the uses of `entry` by a list that `which` says.
    pub(crate) fn remove(&mut self, entry: &Arc<Entry>, list: &Path, which: impl Fn(Order) -> bool) {
        for id in self.names.uses_of(entry) {
            let Some(order) = self.names.get(id).map(|found| found.order) else { continue };
            if which(order) && self.index.sources(list).any(|place| place.source == order.source) {
                self.names.remove(id);
            }
        }
    }
}
