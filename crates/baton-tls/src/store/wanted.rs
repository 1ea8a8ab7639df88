//! What a configuration wants of the store: the certificates of each `bind`, in order, under the names that runtime commands
//! use.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_model::{BindTls, CrtLine, CrtLoad, CrtSource, CrtStore, ExtraFiles, GlobalTls, Model, Source, TlsOptions};
use rustc_hash::{FxHashMap, FxHashSet};

use super::CertificateProblem;
use super::files::{FileKind, Files};
use super::index::{ListPlace, Order};
use crate::certificate::CertificateError;

/// What a configuration says about certificates.
#[derive(Clone, Debug, Default)]
pub struct Wanted<'a> {
    /// Every `bind … ssl`, and its line.
    pub binds: Vec<(&'a Arc<BindTls>, &'a Source)>,
    /// Certificates that are named by path elsewhere, as `server … crt`.
    pub others: Vec<(&'a Path, &'a Source)>,
    /// `crt-store` sections.
    pub stores: &'a [Arc<CrtStore>],
    /// Which files are read beside a certificate's.
    pub extra: ExtraFiles,
    /// `issuers-chain-path`.
    pub issuers_chain_path: Option<&'a Path>,
    /// `ssl-skip-self-issued-ca`.
    pub skips_self_issued: bool,
}

impl<'a> Wanted<'a> {
    /// All that a model says, in its order.
    pub fn of(model: &'a Model) -> Wanted<'a> {
        let binds = model.with_peers().flat_map(|proxy| &proxy.binds);
        let servers = model.with_name_servers();
        let others = servers.filter_map(|server| Some((server.any_tls()?.crt.as_deref()?, &server.line)));
        let GlobalTls { extra, issuers_chain_path, skip_self_issued_ca, .. } = &model.global.tls;
        Wanted {
            binds: binds.filter_map(|bind| Some((bind.options.tls.as_ref()?, &bind.source))).collect(),
            others: others.collect(),
            stores: &model.crt_stores,
            extra: *extra,
            issuers_chain_path: issuers_chain_path.as_deref(),
            skips_self_issued: *skip_self_issued_ca,
        }
    }
}

/// How to come by one certificate.
#[derive(Debug)]
pub(crate) struct Recipe {
    /// The name it has in the store.
    pub(crate) name: PathBuf,
    /// Where its files are.
    pub(crate) places: CertificateFiles,
    /// Where it is first asked for.
    pub(crate) source: Source,
    /// Somebody else than a `bind` asks for it.
    pub(crate) is_wanted: bool,
}

/// Where the files of a certificate are.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum CertificateFiles {
    /// In one file, and what stands beside it.
    #[default]
    Beside,
    /// Where a `crt-store` says.
    Load(Box<CrtLoad>),
}

/// One use of a recipe.
#[derive(Debug)]
pub(crate) struct RecipeUse {
    /// Its number.
    pub(crate) recipe: usize,
    pub(crate) order: Order,
    pub(crate) options: Option<Arc<TlsOptions>>,
    pub(crate) filters: Option<Arc<[String]>>,
    pub(crate) is_default: bool,
}

/// The certificates of one `bind`.
#[derive(Debug, Default)]
pub(crate) struct Set {
    pub(crate) asked: Vec<RecipeUse>,
    pub(crate) lists: Vec<ListPlace>,
    /// Whose they are.
    pub(crate) binds: Vec<Source>,
}

/// All of it, in the order of the configuration.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) recipes: Vec<Recipe>,
    by_name: FxHashMap<PathBuf, usize>,
    /// For each different set of certificates.
    pub(crate) sets: Vec<Set>,
    /// The set of each `bind`.
    pub(crate) binds: Vec<usize>,
    pub(crate) problems: Vec<CertificateProblem>,
    pub(crate) listings: Listings,
    /// Those that `crt` names.
    directories: FxHashSet<PathBuf>,
    loads: Loads,
}

/// Directories that were read: whether a file is beside another is known without asking for it.
#[derive(Debug, Default)]
pub(crate) struct Listings {
    directories: HashMap<PathBuf, FxHashMap<OsString, Option<bool>>>,
}

/// A directory is listed, instead of asked for single files, when so many of its files are wanted.
const LIST_FROM: usize = 16;

impl Listings {
    /// Whether a file may exist.
    pub(crate) fn may_have(&self, path: &Path) -> bool {
        let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else { return true };
        self.directories.get(directory).is_none_or(|names| names.contains_key(name))
    }
}

/// The path that a source of certificates names.
fn path_of(source: &CrtSource) -> &Path {
    match source {
        CrtSource::Crt { path, .. } | CrtSource::List { path, .. } => path,
        CrtSource::Line(line) => &line.crt,
    }
}

/// The suffixes of a bundle, in the order in which they are looked for.
const BUNDLE: [&str; 3] = ["ecdsa", "rsa", "dsa"];

/// Files of a directory that are no certificates of their own.
const RESERVED: [&[u8]; 4] = [b".key", b".issuer", b".ocsp", b".sctl"];

/// `path` with `.suffix` appended.
pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut whole = path.as_os_str().to_owned();
    whole.push(".");
    whole.push(suffix);
    whole.into()
}

impl Plan {
    /// Finds out what is wanted. Directories are listed here, files are not read.
    pub(crate) fn new(wanted: &Wanted<'_>, files: &dyn Files) -> Plan {
        let mut plan = Plan { loads: Loads::new(wanted.stores), ..Plan::default() };
        plan.list_directories(wanted, files);
        // Only sets that begin with the same path are compared.
        let mut known: FxHashMap<Option<&Path>, Vec<(&[CrtSource], usize)>> = FxHashMap::default();
        for (tls, source) in &wanted.binds {
            let near = known.entry(tls.certificates.first().map(path_of)).or_default();
            let same = near.iter().find(|(known, _)| *known == tls.certificates).map(|(_, set)| *set);
            let set = same.unwrap_or_else(|| {
                near.push((&tls.certificates, plan.sets.len()));
                let set = plan.set(&tls.certificates, source, wanted, files);
                plan.sets.push(set);
                plan.sets.len() - 1
            });
            plan.sets[set].binds.push((*source).clone());
            plan.binds.push(set);
        }
        for (path, source) in &wanted.others {
            if let Some(number) = plan.recipe(path, source, wanted) {
                plan.recipes[number].is_wanted = true;
            }
        }
        plan
    }

    fn set(&mut self, sources: &[CrtSource], bind: &Source, wanted: &Wanted<'_>, files: &dyn Files) -> Set {
        let mut set = Set::default();
        for (number, source) in sources.iter().enumerate() {
            let order = |line: usize| Order { source: number as u32, line: line as u32 };
            match source {
                CrtSource::Crt { path, default } => {
                    let recipes = self.crt(path, bind, wanted, files);
                    if self.directories.contains(path) {
                        set.lists.push(ListPlace { path: path.clone(), source: number as u32, is_directory: true });
                    }
                    for recipe in recipes {
                        let is_default = *default;
                        set.asked.push(RecipeUse { recipe, order: order(0), options: None, filters: None, is_default });
                    }
                }
                CrtSource::List { path, lines } => {
                    set.lists.push(ListPlace { path: path.clone(), source: number as u32, is_directory: false });
                    for (at, line) in lines.iter().enumerate() {
                        // Without a place it was not read from a file.
                        let number = if line.source.line > 0 { line.source.line as usize } else { at + 1 };
                        self.line(line, order(number), wanted, files, &mut set);
                    }
                }
                CrtSource::Line(line) => self.line(line, order(1), wanted, files, &mut set),
            }
        }
        set
    }

    fn line(&mut self, line: &CrtLine, order: Order, wanted: &Wanted<'_>, files: &dyn Files, set: &mut Set) {
        let options = (line.options != TlsOptions::default()).then(|| Arc::new(line.options.clone()));
        let filters: Option<Arc<[String]>> = (!line.filters.is_empty()).then(|| line.filters.as_slice().into());
        for recipe in self.file(&line.crt, &line.source, wanted, files) {
            set.asked.push(RecipeUse {
                recipe,
                order,
                options: options.clone(),
                filters: filters.clone(),
                is_default: false,
            });
        }
    }

    /// `crt PATH`: a file, the files of a directory, or a name of a `crt-store`.
    fn crt(&mut self, path: &Path, source: &Source, wanted: &Wanted<'_>, files: &dyn Files) -> Vec<usize> {
        if is_store_name(path) || self.loads.find(path, wanted.stores).is_some() {
            return self.recipe(path, source, wanted).into_iter().collect();
        }
        if !matches!(files.find(path), Ok(FileKind::Directory)) {
            return self.file(path, source, wanted, files);
        }
        if !self.list(path, files) {
            let error = files.list(path).err().unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
            self.problems.push(CertificateProblem::new(
                Some(source.clone()),
                path.to_owned(),
                CertificateError::file(None, &error),
            ));
            return Vec::new();
        }
        self.directories.insert(path.to_owned());
        // Links are followed; one that leads nowhere is refused when it is read.
        let is_file = |name: &OsString, is_file: Option<bool>| {
            is_file
                .unwrap_or_else(|| !matches!(files.find(&path.join(name)), Ok(FileKind::Directory | FileKind::Other)))
        };
        let names = self.listings.directories[path].iter().filter(|(name, _)| is_certificate(name));
        let names = names.filter(|(name, kind)| is_file(name, **kind));
        let mut names: Vec<OsString> = names.map(|(name, _)| name.clone()).collect();
        names.sort_unstable();
        names.into_iter().filter_map(|name| self.recipe(&path.join(name), source, wanted)).collect()
    }

    /// One file, or the bundle of files that have its name and a suffix.
    fn file(&mut self, path: &Path, source: &Source, wanted: &Wanted<'_>, files: &dyn Files) -> Vec<usize> {
        let is_there = |plan: &Plan, path: &Path| match path.parent() {
            Some(parent) if plan.listings.directories.contains_key(parent) => plan.listings.may_have(path),
            _ => files.find(path).is_ok(),
        };
        let plain = is_store_name(path) || self.loads.find(path, wanted.stores).is_some() || !wanted.extra.bundle;
        if !plain && !is_there(self, path) {
            let bundle = BUNDLE.map(|suffix| with_suffix(path, suffix));
            let there: Vec<_> = bundle.iter().filter(|path| is_there(self, path)).collect();
            if !there.is_empty() {
                return there.into_iter().filter_map(|path| self.recipe(path, source, wanted)).collect();
            }
        }
        self.recipe(path, source, wanted).into_iter().collect()
    }

    /// The number of the recipe for `path`.
    fn recipe(&mut self, path: &Path, source: &Source, wanted: &Wanted<'_>) -> Option<usize> {
        if let Some(known) = self.by_name.get(path) {
            return Some(*known);
        }
        let load = self.loads.find(path, wanted.stores);
        if load.is_none() && is_store_name(path) {
            self.problems.push(CertificateProblem::new(
                Some(source.clone()),
                path.to_owned(),
                CertificateError::Unknown,
            ));
            return None;
        }
        let places = load.map_or(CertificateFiles::Beside, |load| CertificateFiles::Load(Box::new(load.clone())));
        let number = self.recipes.len();
        self.recipes.push(Recipe { name: path.to_owned(), places, source: source.clone(), is_wanted: false });
        self.by_name.insert(path.to_owned(), number);
        Some(number)
    }

    /// Lists a directory once.
    fn list(&mut self, directory: &Path, files: &dyn Files) -> bool {
        if self.listings.directories.contains_key(directory) {
            return true;
        }
        let Ok(names) = files.list(directory) else { return false };
        let names = names.into_iter().map(|listed| (listed.name, listed.is_file));
        self.listings.directories.insert(directory.to_owned(), names.collect());
        true
    }

    /// Lists the directories of which a list names many files.
    fn list_directories(&mut self, wanted: &Wanted<'_>, files: &dyn Files) {
        let mut counts: FxHashMap<&Path, usize> = FxHashMap::default();
        let sources = wanted.binds.iter().flat_map(|(tls, _)| &tls.certificates);
        for source in sources {
            let paths: &mut dyn Iterator<Item = &Path> = match source {
                CrtSource::Crt { path, .. } => &mut std::iter::once(path.as_path()),
                CrtSource::List { lines, .. } => &mut lines.iter().map(|line| line.crt.as_path()),
                CrtSource::Line(line) => &mut std::iter::once(line.crt.as_path()),
            };
            for parent in paths.filter_map(Path::parent) {
                *counts.entry(parent).or_default() += 1;
            }
        }
        for (directory, count) in counts {
            if count >= LIST_FROM {
                self.list(directory, files);
            }
        }
    }
}

/// Whether a file is a part of a certificate, by its name.
pub(crate) fn is_reserved(name: &OsStr) -> bool {
    RESERVED.iter().any(|reserved| name.as_bytes().ends_with(reserved))
}

/// Whether a file of a directory is a certificate of its own, by its name (configuration manual, 5.1 `crt`).
pub fn is_certificate(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b".") && !is_reserved(name)
}

fn is_store_name(path: &Path) -> bool {
    path.as_os_str().as_bytes().starts_with(b"@")
}

/// The `load` lines by what they may be called: `@STORE/ALIAS`, `@STORE/CRT` with as much of the path as one likes, or the `crt`
/// of a section without a name. The first one of a name has it.
#[derive(Debug, Default)]
struct Loads {
    by_name: FxHashMap<PathBuf, (usize, usize)>,
}

impl Loads {
    fn new(stores: &[Arc<CrtStore>]) -> Loads {
        let mut by_name = FxHashMap::default();
        for (at, store) in stores.iter().enumerate() {
            for (line, load) in store.loads.iter().enumerate() {
                let mut call = |name: PathBuf| {
                    by_name.entry(name).or_insert((at, line));
                };
                let section = PathBuf::from(format!("@{}", store.name));
                match &load.alias {
                    Some(alias) => call(PathBuf::from(format!("@{}/{alias}", store.name))),
                    None => {
                        let parts: Vec<_> = load.crt.iter().filter(|part| *part != "/").collect();
                        (0..parts.len()).for_each(|from| call(section.join(parts[from..].iter().collect::<PathBuf>())));
                    }
                }
                if store.name.is_empty() {
                    call(load.crt.clone());
                }
            }
        }
        Loads { by_name }
    }

    fn find<'a>(&self, path: &Path, stores: &'a [Arc<CrtStore>]) -> Option<&'a CrtLoad> {
        let (store, line) = *self.by_name.get(path)?;
        stores.get(store)?.loads.get(line)
    }
}
