//! Changes of single certificates while everything runs. Each file is judged alone; what is good is put in use together, by
//! [`Store::commit`], which cannot fail and costs the same however many certificates there are.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use baton_model::{CrtLine, Source, TlsOptions};

use super::files::{Digest, FileKind, Files};
use super::index::{Change, Index, ListLine, Order};
use super::load::Loader;
use super::meanwhile::Touched;
use super::wanted::{CertificateFiles, Listings, Recipe, is_certificate, is_reserved};
use super::{CertificateProblem, Entry, Origin, Settings, Store};
use crate::certificate::{Certificate, CertificateError};

/// Changes that are not in use yet: [`Store::commit`] puts them in use.
#[derive(Debug)]
pub struct Transaction {
    store: Arc<Store>,
    steps: Vec<StoreChange>,
    /// What came to directories and left them.
    touched: Vec<Touched>,
    report: Report,
}

#[derive(Debug)]
enum StoreChange {
    /// A certificate for an entry that may be new.
    Put { entry: Arc<Entry>, certificate: Arc<Certificate>, digest: Option<Digest> },
    /// A certificate is used in one more place.
    Add { entry: Arc<Entry>, list: PathBuf, options: Option<Arc<TlsOptions>>, filters: Option<Arc<[String]>> },
    /// It is not used there any more; `None`: in no line of the list.
    Drop { entry: Arc<Entry>, list: PathBuf, line: Option<u32> },
    /// It is forgotten, if nobody uses it.
    Forget { entry: Arc<Entry> },
}

/// What a transaction did, or is about to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Certificates that are new.
    pub added: Vec<PathBuf>,
    /// Those in place of which there is another now.
    pub replaced: Vec<PathBuf>,
    /// Those that are gone.
    pub removed: Vec<PathBuf>,
    /// Those that could not be used: what was in use before serves on.
    pub refused: Vec<Arc<CertificateProblem>>,
}

/// Why a step is not possible. Nothing of it was done.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// No `bind` has a `crt-list` or directory of this name.
    NoList(PathBuf),
    /// There is no certificate of this name.
    NoCertificate(PathBuf),
    /// The list does not have it, or not on this line.
    NotInList(PathBuf),
    /// A `bind` uses it.
    InUse(PathBuf),
    /// It is the default of a `bind`: clients without a name get it.
    Default(PathBuf),
}

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::NoList(path) => write!(out, "no bind uses a crt-list or directory '{}'", path.display()),
            Refused::NoCertificate(path) => write!(out, "no certificate '{}'", path.display()),
            Refused::NotInList(path) => write!(out, "certificate '{}' is not in the list", path.display()),
            Refused::InUse(path) => write!(out, "certificate '{}' is in use", path.display()),
            Refused::Default(path) => write!(out, "certificate '{}' is the default of a bind", path.display()),
        }
    }
}

impl std::error::Error for Refused {}

impl Store {
    /// Begins a change of single certificates.
    pub fn transaction(self: &Arc<Store>) -> Transaction {
        Transaction { store: self.clone(), steps: Vec::new(), touched: Vec::new(), report: Report::default() }
    }

    /// The certificates of the files of `name`, judged, and not put in use.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn judge(&self, name: &Path, files: &dyn Files) -> Result<Certificate, CertificateProblem> {
        let places = self.entry(name).map_or(CertificateFiles::Beside, |entry| entry.origin.places.clone());
        let recipe = Recipe { name: name.to_owned(), places, source: Source::default(), is_wanted: false };
        self.read(&recipe, files).map(|(certificate, _)| certificate)
    }

    fn read(&self, recipe: &Recipe, files: &dyn Files) -> Result<(Certificate, Digest), CertificateProblem> {
        let settings = self.settings();
        let listings = Listings::default();
        let loader = Loader::new(files, &self.chains, &settings, &listings);
        let judged = loader.judge(recipe).and_then(|(certificate, digest, _)| {
            certificate.check_signer()?;
            Ok((certificate, digest))
        });
        judged.map_err(|fault| CertificateProblem::new(None, recipe.name.clone(), fault))
    }

    fn settings(&self) -> Settings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The indexes that are in use.
    pub(super) fn live_indexes(&self) -> Vec<Arc<Index>> {
        let indexes = self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        indexes.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    /// The `crt-list`s and directories that are in use, and whether each is a directory.
    pub fn lists(&self) -> Vec<(PathBuf, bool)> {
        let indexes = self.live_indexes();
        let lists = indexes.iter().flat_map(|index| index.lists());
        let lists: BTreeSet<_> = lists.map(|list| (list.path.clone(), list.is_directory)).collect();
        lists.into_iter().collect()
    }

    /// The lines of a `crt-list`, or the files of a directory, in order. Costs a walk over all certificates.
    pub fn lines(&self, list: &Path) -> Vec<ListLine> {
        let index = self.live_indexes().into_iter().find(|index| index.has_list(list));
        index.map(|index| index.lines(list)).unwrap_or_default()
    }

    /// Whether a `bind` or a server uses a certificate.
    pub fn is_used(&self, entry: &Arc<Entry>) -> bool {
        entry.origin.is_wanted || self.live_indexes().iter().any(|index| index.is_used(entry))
    }

    /// In how many places a certificate is used.
    pub fn uses(&self, entry: &Arc<Entry>) -> usize {
        self.live_indexes().iter().map(|index| index.count(entry)).sum()
    }

    /// The `bind` lines that have a certificate as their default.
    pub fn defaults(&self, entry: &Arc<Entry>) -> Vec<Source> {
        let indexes = self.live_indexes();
        let having = indexes.iter().filter(|index| index.is_default(entry));
        having.flat_map(|index| index.binds().iter().cloned()).collect()
    }

    /// Puts a transaction in use, all of it at once: each `bind` responds with all of it or with nothing of it.
    pub fn commit(&self, transaction: Transaction) -> Report {
        let Transaction { store: _, steps, touched, report } = transaction;
        let _one_at_a_time = self.change.lock().unwrap_or_else(PoisonError::into_inner);
        self.readings.note(&touched);
        for step in &steps {
            if let StoreChange::Put { entry, certificate, digest } = step {
                entry.put(certificate.clone(), *digest);
                self.entries
                    .write()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(entry.origin.path.clone(), entry.clone());
            }
        }
        for index in self.live_indexes() {
            let mut change = index.change();
            for step in &steps {
                step.apply(&mut change);
            }
        }
        let forgotten = steps.iter().filter_map(|step| match step {
            StoreChange::Forget { entry } => Some(entry),
            StoreChange::Put { .. } | StoreChange::Add { .. } | StoreChange::Drop { .. } => None,
        });
        for entry in forgotten {
            if !self.is_used(entry) {
                self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(entry.path());
            }
        }
        drop(steps);
        self.chains.tidy_some();
        report
    }
}

impl Transaction {
    /// Puts a certificate under a name: in place of the one that has it, or as a new one that nobody uses yet.
    pub fn set(&mut self, name: &Path, certificate: Certificate) {
        self.put(name, Arc::new(certificate), None);
    }

    fn put(&mut self, name: &Path, certificate: Arc<Certificate>, digest: Option<Digest>) -> Arc<Entry> {
        let known = self.find(name);
        let list = if known.is_some() { &mut self.report.replaced } else { &mut self.report.added };
        list.push(name.to_owned());
        let entry = known.unwrap_or_else(|| {
            Arc::new(Entry::new(Origin { path: name.into(), ..Origin::default() }, certificate.clone(), digest))
        });
        self.steps.push(StoreChange::Put { entry: entry.clone(), certificate, digest });
        entry
    }

    /// The entry of a name, also one that this transaction makes.
    fn find(&self, name: &Path) -> Option<Arc<Entry>> {
        let made = self.steps.iter().rev().find_map(|step| match step {
            StoreChange::Put { entry, .. } if entry.path() == name => Some(Some(entry.clone())),
            StoreChange::Forget { entry } if entry.path() == name => Some(None),
            _ => None,
        });
        made.unwrap_or_else(|| self.store.entry(name))
    }

    fn known(&self, name: &Path) -> Result<Arc<Entry>, Refused> {
        self.find(name).ok_or_else(|| Refused::NoCertificate(name.to_owned()))
    }

    /// Reads the files of a certificate again, whatever their stamps say. `Ok(false)`: they say what is in use.
    ///
    /// # Errors
    /// What is wrong with them: it is told with the certificate from now on, and the old one serves on.
    pub fn refresh(&mut self, name: &Path, files: &dyn Files) -> Result<bool, Arc<CertificateProblem>> {
        let known = self.find(name);
        let places = known.as_ref().map_or(CertificateFiles::Beside, |entry| entry.origin.places.clone());
        let recipe = Recipe { name: name.to_owned(), places, source: Source::default(), is_wanted: false };
        match self.store.read(&recipe, files) {
            Ok((certificate, digest)) => Ok(self.offer(name, known, certificate, digest)),
            Err(problem) => Err(self.refuse(known, problem)),
        }
    }

    /// A certificate that was read: put in use unless it is the one in use.
    fn offer(&mut self, name: &Path, known: Option<Arc<Entry>>, certificate: Certificate, digest: Digest) -> bool {
        if let Some(entry) = known {
            let mut state = entry.lock();
            if state.certificate.is_same(&certificate) {
                state.digest = Some(digest);
                state.problem = None;
                return false;
            }
        }
        self.put(name, Arc::new(certificate), Some(digest));
        true
    }

    fn refuse(&mut self, known: Option<Arc<Entry>>, problem: CertificateProblem) -> Arc<CertificateProblem> {
        let problem = Arc::new(problem);
        if let Some(entry) = known {
            entry.lock().problem = Some(problem.clone());
        }
        self.report.refused.push(problem.clone());
        problem
    }

    /// Brings a directory named by `crt` in line with what is in it now: files that are new, changed or gone. `names` are those
    /// to look at, with or without the suffixes of parts; `None`: all. Files that cannot be used are in the report, and
    /// change nothing.
    ///
    /// # Errors
    /// When the directory cannot be read, or no `bind` uses it; nothing changes then.
    pub fn refresh_directory(
        &mut self,
        directory: &Path,
        names: Option<&[OsString]>,
        files: &dyn Files,
    ) -> Result<(), Arc<CertificateProblem>> {
        let indexes = self.store.live_indexes();
        let fail = |fault| Arc::new(CertificateProblem::new(None, directory.to_owned(), fault));
        if !indexes.iter().any(|index| index.has_list(directory)) {
            return Err(fail(CertificateError::Unknown));
        }
        let names: BTreeSet<PathBuf> = match names {
            Some(names) => names.iter().flat_map(|name| self.bases(name)).map(|name| directory.join(name)).collect(),
            None => {
                let listed = files.list(directory).map_err(|error| fail(CertificateError::file(None, &error)))?;
                let listed = listed.into_iter().map(|listed| listed.name).filter(|name| is_certificate(name));
                let used =
                    indexes.iter().flat_map(|index| index.lines(directory)).map(|line| line.entry.path().to_owned());
                listed.map(|name| directory.join(name)).chain(used).collect()
            }
        };
        let settings = self.store.settings();
        let listings = Listings::default();
        let store = self.store.clone();
        let loader = Loader::new(files, &store.chains, &settings, &listings);
        let (mut recipes, mut gone) = (Vec::new(), Vec::new());
        for name in names {
            match files.find(&name) {
                Ok(FileKind::File(_)) => {
                    recipes.push(Recipe {
                        name,
                        places: CertificateFiles::Beside,
                        source: Source::default(),
                        is_wanted: false,
                    });
                }
                Ok(FileKind::Directory | FileKind::Other) => gone.push(name),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => gone.push(name),
                Err(error) => {
                    let problem = CertificateProblem::new(None, name.clone(), CertificateError::file(None, &error));
                    self.refuse(self.find(&name), problem);
                }
            }
        }
        let known = |name: &Path| {
            let entry = store.entry(name)?;
            let state = entry.lock();
            Some((state.certificate.clone(), state.digest?))
        };
        for (recipe, loaded) in recipes.iter().zip(loader.load_all(&recipes, &known)) {
            let name = &recipe.name;
            let known = self.find(name);
            let is_used = known.as_ref().is_some_and(|entry| indexes.iter().any(|index| index.uses(entry, directory)));
            let judged = loaded.and_then(|(certificate, digest, _)| {
                let is_new = known.as_ref().is_none_or(|entry| !Arc::ptr_eq(&entry.certificate(), &certificate));
                if is_new {
                    certificate.check_signer()?;
                }
                Ok((certificate, digest, is_new))
            });
            match judged {
                Ok((certificate, digest, is_new)) => {
                    let is_same = known.as_ref().is_some_and(|entry| entry.certificate().is_same(&certificate));
                    if let Some(entry) = known.as_ref().filter(|_| is_same) {
                        let mut state = entry.lock();
                        state.problem = None;
                        state.digest = Some(digest);
                    } else if is_new {
                        self.put(name, certificate, Some(digest));
                    }
                    if !is_used && let Some(entry) = self.find(name) {
                        let list = directory.to_owned();
                        self.touched.push(Touched { directory: list.clone(), name: name.clone() });
                        self.steps.push(StoreChange::Add { entry, list, options: None, filters: None });
                    }
                }
                Err(fault) => drop(self.refuse(known, CertificateProblem::new(None, name.clone(), fault))),
            }
        }
        for name in gone {
            self.leave(directory, &name, &indexes);
        }
        Ok(())
    }

    /// The file of a certificate of `directory` is gone. The default certificate of a `bind` is kept all the same.
    fn leave(&mut self, directory: &Path, name: &Path, indexes: &[Arc<Index>]) {
        let Some(entry) = self.find(name) else { return };
        let using: Vec<_> = indexes.iter().filter(|index| index.uses(&entry, directory)).collect();
        if using.is_empty() {
            return;
        }
        if using.iter().any(|index| index.is_default(&entry)) {
            self.refuse(Some(entry), CertificateProblem::new(None, name.to_owned(), CertificateError::Default));
            return;
        }
        self.report.removed.push(name.to_owned());
        self.touched.push(Touched { directory: directory.to_owned(), name: name.to_owned() });
        self.steps.push(StoreChange::Drop { entry: entry.clone(), list: directory.to_owned(), line: None });
        self.steps.push(StoreChange::Forget { entry });
    }

    /// The certificates that a file of this name may be a part of.
    fn bases(&self, name: &OsStr) -> Vec<OsString> {
        if !is_reserved(name) {
            return if is_certificate(name) { vec![name.to_owned()] } else { Vec::new() };
        }
        let stem = Path::new(name).with_extension("");
        match self.store.settings().extra.replace_extension {
            true => vec![stem.with_extension("crt").into(), stem.into()],
            false => vec![stem.into()],
        }
    }

    /// Uses a certificate in one more line of a `crt-list`, or in a directory, behind all others (`add ssl crt-list`).
    ///
    /// # Errors
    /// When there is no such list or certificate.
    pub fn add(&mut self, list: &Path, line: &CrtLine) -> Result<(), Refused> {
        if !self.store.live_indexes().iter().any(|index| index.has_list(list)) {
            return Err(Refused::NoList(list.to_owned()));
        }
        let entry = self.known(&line.crt)?;
        let options = (line.options != TlsOptions::default()).then(|| Arc::new(line.options.clone()));
        let filters = (!line.filters.is_empty()).then(|| line.filters.as_slice().into());
        self.steps.push(StoreChange::Add { entry, list: list.to_owned(), options, filters });
        Ok(())
    }

    /// Uses a certificate in a list no more (`del ssl crt-list`): in the line of this number ([`ListLine::number`]), or in all.
    ///
    /// # Errors
    /// When the list does not have it, or it is the default of a `bind`.
    ///
    /// [`ListLine::number`]: super::ListLine::number
    pub fn del(&mut self, list: &Path, name: &Path, line: Option<u32>) -> Result<(), Refused> {
        let indexes = self.store.live_indexes();
        if !indexes.iter().any(|index| index.has_list(list)) {
            return Err(Refused::NoList(list.to_owned()));
        }
        let entry = self.known(name)?;
        let lines =
            |index: &Arc<Index>| index.lines(list).into_iter().filter(|found| Arc::ptr_eq(&found.entry, &entry));
        let mut lines = indexes.iter().flat_map(lines).filter(|found| line.is_none_or(|line| line == found.number));
        let Some(first) = lines.next() else { return Err(Refused::NotInList(name.to_owned())) };
        if first.is_default || lines.any(|found| found.is_default) {
            return Err(Refused::Default(name.to_owned()));
        }
        self.steps.push(StoreChange::Drop { entry, list: list.to_owned(), line });
        Ok(())
    }

    /// Forgets a certificate (`del ssl cert`).
    ///
    /// # Errors
    /// When somebody uses it, or there is none.
    pub fn remove(&mut self, name: &Path) -> Result<(), Refused> {
        let entry = self.known(name)?;
        if self.store.is_used(&entry) {
            return Err(Refused::InUse(name.to_owned()));
        }
        self.report.removed.push(name.to_owned());
        self.steps.push(StoreChange::Forget { entry });
        Ok(())
    }

    /// What it would do, and what was refused so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

impl StoreChange {
    fn apply(&self, change: &mut Change<'_>) {
        match self {
            StoreChange::Put { entry, certificate, .. } => change.replace(entry, certificate),
            StoreChange::Add { entry, list, options, filters } => {
                change.add_to(list, entry, options.clone(), filters.clone())
            }
            StoreChange::Drop { entry, list, line } => {
                change.remove(entry, list, |order: Order| line.is_none_or(|line| line == order.line));
            }
            StoreChange::Forget { .. } => {}
        }
    }
}
