//! All certificates of the process, each under the name that runtime commands use: its path, or `@STORE/ALIAS`.
//!
//! [`Store::prepare`] reads what a configuration wants beside what is in use, and may fail; [`Prepared::commit`] puts it in
//! use, and cannot. A file that did not change since it was read is not read again. Each `bind` has an [`Index`] over its
//! certificates, which handshakes ask. Whoever calls prepares and commits one change at a time.

mod files;
mod index;
mod issuers;
mod load;
mod meanwhile;
mod problem;
mod signers;
mod transaction;
mod view;
mod wanted;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use baton_model::ExtraFiles;
use files::Digest;
use index::NewUse;
use issuers::Issuers;
use load::Loader;
use meanwhile::{Meanwhile, Readings};
use signers::Signers;
use wanted::{CertificateFiles, Plan, Recipe, RecipeUse};

pub use files::{DirectoryEntry, FileKind, Files, MAX_FILE_BYTES, Stamp, SystemFiles, read_file};
pub use index::{ADDED, Choice, Index, ListLine};
pub use problem::{CertificateProblem, Note};
pub use signers::MAX_SIGNERS;
pub use transaction::{Refused, Report, Transaction};
pub use view::StoreView;
pub use wanted::{Wanted, is_certificate};

use crate::certificate::{Certificate, CertificateError, Chains, OcspResponse};

/// The certificates of the process. One for all configurations that come after each other.
#[derive(Debug)]
pub struct Store {
    entries: RwLock<Entries>,
    indexes: Mutex<Vec<Weak<Index>>>,
    chains: Chains,
    signers: Arc<Signers>,
    /// Of the configuration in use.
    settings: Mutex<Settings>,
    /// Held while something is put in use.
    change: Mutex<()>,
    readings: Readings,
}

/// What a configuration says about all certificates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    extra: ExtraFiles,
    issuers: Arc<Issuers>,
    skips_roots: bool,
}

type Entries = HashMap<Arc<Path>, Arc<Entry>>;

/// The place of a certificate: it stays while certificates in it come and go.
#[derive(Debug)]
pub struct Entry {
    origin: Origin,
    state: Mutex<State>,
    /// Counted up with every other certificate, behind it.
    edition: AtomicU64,
}

/// Where a certificate comes from.
#[derive(Clone, Debug)]
struct Origin {
    path: Arc<Path>,
    places: CertificateFiles,
    /// Somebody else than a `bind` asked for it by name: a server.
    is_wanted: bool,
}

impl Default for Origin {
    fn default() -> Origin {
        Origin { path: Path::new("").into(), places: CertificateFiles::Beside, is_wanted: false }
    }
}

#[derive(Debug)]
struct State {
    certificate: Arc<Certificate>,
    /// The files it was read from; `None`: it came from elsewhere.
    digest: Option<Digest>,
    problem: Option<Arc<CertificateProblem>>,
}

/// What a configuration wants, read and judged.
#[derive(Debug)]
pub struct Prepared {
    store: Arc<Store>,
    entries: Entries,
    kept: Vec<PresentCertificate>,
    meanwhile: Arc<Meanwhile>,
    indexes: Vec<Arc<Index>>,
    binds: Vec<usize>,
    settings: Settings,
    notes: Vec<Note>,
}

/// A certificate that is in the store already, read for a configuration.
#[derive(Debug)]
struct PresentCertificate {
    entry: Arc<Entry>,
    /// What was in use when reading began. Where it is not any more at the commit, somebody brought a newer one meanwhile.
    before: Arc<Certificate>,
    /// What the files hold.
    certificate: Arc<Certificate>,
    digest: Digest,
}

/// What the store holds.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Figures {
    /// Certificates.
    pub certificates: usize,
    /// Bytes they and their keys take, without what is shared.
    pub bytes: usize,
    /// Different certificates of issuers.
    pub issuers: usize,
    /// Bytes those take.
    pub issuer_bytes: usize,
    /// Signers made and kept.
    pub signers: usize,
}

impl Store {
    /// An empty one that keeps up to [`MAX_SIGNERS`] signers.
    pub fn new() -> Arc<Store> {
        Store::with_signers(MAX_SIGNERS)
    }

    /// An empty one that keeps up to so many signers.
    pub fn with_signers(most: usize) -> Arc<Store> {
        Arc::new(Store {
            entries: RwLock::default(),
            indexes: Mutex::default(),
            chains: Chains::default(),
            signers: Arc::new(Signers::new(most.max(1))),
            settings: Mutex::default(),
            change: Mutex::default(),
            readings: Readings::default(),
        })
    }

    /// Reads what a configuration wants, by a thread for each CPU. Nothing is in use before [`Prepared::commit`].
    ///
    /// # Errors
    /// Every certificate that cannot be used, in the order of the configuration.
    pub fn prepare(
        self: &Arc<Store>,
        wanted: &Wanted<'_>,
        files: &dyn Files,
    ) -> Result<Prepared, Vec<CertificateProblem>> {
        match self.prepare_usable(wanted, files) {
            (prepared, problems) if problems.is_empty() => Ok(prepared),
            (prepared, problems) => {
                drop(prepared);
                self.chains.tidy();
                Err(problems)
            }
        }
    }

    /// Prepares what can be used, and returns the problems beside it: for a process that must serve with what there is.
    pub fn prepare_usable(
        self: &Arc<Store>,
        wanted: &Wanted<'_>,
        files: &dyn Files,
    ) -> (Prepared, Vec<CertificateProblem>) {
        let meanwhile = self.readings.begin();
        let mut plan = Plan::new(wanted, files);
        let (mut problems, mut notes) = (std::mem::take(&mut plan.problems), Vec::new());
        let mut issuers = Issuers::default();
        if let Some(directory) = wanted.issuers_chain_path {
            match Issuers::read(directory, files, &self.chains, &mut notes) {
                Ok(read) => issuers = read,
                Err(error) => problems.push(CertificateProblem::new(
                    None,
                    directory.to_owned(),
                    CertificateError::file(None, &error),
                )),
            }
        }
        let settings =
            Settings { extra: wanted.extra, issuers: Arc::new(issuers), skips_roots: wanted.skips_self_issued };
        let loader = Loader::new(files, &self.chains, &settings, &plan.listings);
        let old = self.entries.read().unwrap_or_else(PoisonError::into_inner).clone();
        let known = |name: &Path| {
            let state = old.get(name)?.lock();
            Some((state.certificate.clone(), state.digest?))
        };
        let before = |recipe: &Recipe| Some(old.get(&*recipe.name)?.certificate());
        let before: Vec<_> = plan.recipes.iter().map(before).collect();
        let loaded = loader.load_all(&plan.recipes, &known);
        let mut entries = Entries::with_capacity(loaded.len());
        let mut kept = Vec::new();
        let mut found: Vec<Option<(Arc<Entry>, Arc<Certificate>)>> = Vec::with_capacity(loaded.len());
        for ((recipe, loaded), before) in plan.recipes.iter().zip(loaded).zip(before) {
            let (certificate, digest) = match loaded {
                Ok((certificate, digest, note)) => {
                    notes.extend(note);
                    (certificate, digest)
                }
                Err(fault) => {
                    problems.push(CertificateProblem::new(Some(recipe.source.clone()), recipe.name.clone(), fault));
                    found.push(None);
                    continue;
                }
            };
            let entry = match old.get(&*recipe.name).zip(before) {
                // What its place says else is that of the new configuration.
                Some((entry, before)) if entry.is_as(recipe) => {
                    kept.push(PresentCertificate {
                        entry: entry.clone(),
                        before,
                        certificate: certificate.clone(),
                        digest,
                    });
                    entry.clone()
                }
                Some(_) | None => {
                    let Recipe { name, places, is_wanted, .. } = recipe;
                    let origin = Origin { path: name.as_path().into(), places: places.clone(), is_wanted: *is_wanted };
                    Arc::new(Entry::new(origin, certificate.clone(), Some(digest)))
                }
            };
            entries.insert(entry.origin.path.clone(), entry.clone());
            found.push(Some((entry, certificate)));
        }
        let indexes = plan.sets.into_iter().map(|set| {
            let index = Index::new(self.signers.clone(), set.lists, set.binds);
            let mut change = index.change();
            for asked in set.asked {
                let RecipeUse { recipe, order, options, filters, is_default } = asked;
                let Some((entry, certificate)) = found[recipe].clone() else { continue };
                change.add(NewUse { entry, certificate, order, options, filters, is_default });
            }
            drop(change);
            Arc::new(index)
        });
        let indexes = indexes.collect();
        let (store, binds) = (self.clone(), plan.binds);
        (Prepared { store, entries, kept, meanwhile, indexes, binds, settings, notes }, problems)
    }

    /// Where certificates of issuers are shared, for [`Parts`](crate::Parts) that are read elsewhere.
    pub fn chains(&self) -> &Chains {
        &self.chains
    }

    /// The certificate under a name: a path as the configuration names it, or `@STORE/ALIAS`.
    pub fn entry(&self, name: &Path) -> Option<Arc<Entry>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    /// All certificates, by name.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let mut all: Vec<_> = self.entries.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_unstable_by(|one, other| one.origin.path.cmp(&other.origin.path));
        all
    }

    /// Staples a response, `der`, to the certificates that it is about, from the next handshake on.
    pub fn staple(&self, response: &OcspResponse, der: &[u8]) {
        let certificates = self.entries().into_iter().map(|entry| entry.certificate());
        let about = certificates.filter(|certificate| response.is_about(certificate));
        about.for_each(|certificate| certificate.set_ocsp(Some(der.to_vec())));
    }

    /// What it holds now. Costs a walk over all certificates.
    pub fn figures(&self) -> Figures {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let (issuers, issuer_bytes) = self.chains.figures();
        let bytes = entries.values().map(|entry| entry.memory()).sum();
        Figures { certificates: entries.len(), bytes, issuers, issuer_bytes, signers: self.signers.count() }
    }
}

impl Prepared {
    /// The certificates of each `bind`, in the order of [`Wanted::binds`]. Those that want the same share theirs.
    pub fn indexes(&self) -> Vec<Arc<Index>> {
        self.binds.iter().map(|set| self.indexes[*set].clone()).collect()
    }

    /// What is left out, for the log.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Certificates that are in use under the same name, and whose files hold something else now.
    pub fn replaced(&self) -> Vec<PathBuf> {
        let replaced = self.kept.iter().filter(|PresentCertificate { before, certificate, .. }| {
            !Arc::ptr_eq(before, certificate)
                && (before.der() != certificate.der() || before.chain() != certificate.chain())
        });
        replaced.map(|kept| kept.entry.path().to_path_buf()).collect()
    }

    /// The place of a certificate that was wanted by name, as `server … crt`. What it holds before the commit may be older.
    pub fn entry(&self, name: &Path) -> Option<&Arc<Entry>> {
        self.entries.get(name)
    }

    /// The certificate that will be in use under a name.
    pub fn certificate(&self, name: &Path) -> Option<Arc<Certificate>> {
        let entry = self.entries.get(name)?;
        let kept = self.kept.iter().find(|kept| Arc::ptr_eq(&kept.entry, entry));
        Some(kept.map_or_else(|| entry.certificate(), |kept| kept.certificate.clone()))
    }

    /// Puts it in use. What is no longer wanted is forgotten when its last handshake is over. A certificate that was replaced
    /// since reading began stays: it is newer than what was read; one that came to a directory stays, too, and one that left it
    /// is gone.
    pub fn commit(self) {
        let Prepared { store, mut entries, kept, meanwhile, indexes, settings, .. } = self;
        let _one_at_a_time = store.change.lock().unwrap_or_else(PoisonError::into_inner);
        let sends_otherwise = store.chains.skip_roots(settings.skips_roots);
        *store.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
        let mut newer = Vec::new();
        for PresentCertificate { entry, before, certificate, digest } in kept {
            let current = entry.certificate();
            if !Arc::ptr_eq(&current, &before) {
                newer.push((entry, current));
            } else if current.is_same(&certificate) {
                // Read anew, and nothing else: no edition.
                *entry.lock() = State { certificate, digest: Some(digest), problem: None };
            } else {
                entry.put(certificate, Some(digest));
            }
        }
        if !newer.is_empty() {
            for index in &indexes {
                let mut change = index.change();
                newer.iter().for_each(|(entry, certificate)| change.replace(entry, certificate));
            }
        }
        meanwhile.carry_over(&store, &mut entries, &indexes);
        if sends_otherwise {
            entries.values().for_each(|entry| entry.chain_changed());
        }
        let old = std::mem::replace(&mut *store.entries.write().unwrap_or_else(PoisonError::into_inner), entries);
        *store.indexes.lock().unwrap_or_else(PoisonError::into_inner) = indexes.iter().map(Arc::downgrade).collect();
        drop(old);
        store.chains.tidy();
    }
}

impl Entry {
    fn new(origin: Origin, certificate: Arc<Certificate>, digest: Option<Digest>) -> Entry {
        Entry { origin, state: Mutex::new(State { certificate, digest, problem: None }), edition: AtomicU64::default() }
    }

    /// Uses another certificate.
    fn put(&self, certificate: Arc<Certificate>, digest: Option<Digest>) {
        *self.lock() = State { certificate, digest, problem: None };
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// The certificate's chain became longer or shorter: what is kept of the message that sends it is built again.
    fn chain_changed(&self) {
        self.certificate().chain_changed();
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// The number of the certificate: another one has a higher number. Who reads it first and the certificate after it never
    /// takes an old certificate for a new one.
    pub(crate) fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its place is where `recipe` says.
    fn is_as(&self, recipe: &Recipe) -> bool {
        self.origin.is_wanted == recipe.is_wanted && self.origin.places == recipe.places
    }

    /// The name it has in the store.
    pub fn path(&self) -> &Path {
        &self.origin.path
    }

    /// What is in use.
    pub fn certificate(&self) -> Arc<Certificate> {
        self.lock().certificate.clone()
    }

    /// Whether it was read from its files; else an operator brought it.
    pub fn is_from_files(&self) -> bool {
        self.lock().digest.is_some()
    }

    /// Why a newer state of its files is not in use.
    pub fn problem(&self) -> Option<Arc<CertificateProblem>> {
        self.lock().problem.clone()
    }

    fn memory(&self) -> usize {
        size_of::<Entry>() + self.origin.path.as_os_str().len() + self.certificate().memory()
    }
}
