//! Which certificate answers a name: the choice of HAProxy 2.6 over the certificates of one `bind`.
//!
//! A name is looked for as it is, and with its first label replaced by `*`. Among all certificates found one with an ECDSA key
//! is taken if the client can verify it, else one with RSA, else one with Ed25519; of the same kind one that has the name itself
//! goes before one that has the wildcard, and then the order of the configuration decides. If the client can verify none of
//! them, the first is shown all the same, and the handshake fails. For a name that nobody has, and where none is asked for, the
//! default certificate answers.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use baton_model::{Source, TlsOptions};
use rustc_hash::FxHashMap;
use rustls::sign::CertifiedKey;

use super::Entry;
use super::signers::Signers;
use crate::certificate::{Certificate, Fault, KeyKind, Verifies};

/// Longest name of a host (RFC 1035 2.3.4).
const MAX_NAME: usize = 255;

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
pub struct Line {
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
    pub fn signer(&self) -> Result<Arc<CertifiedKey>, Fault> {
        self.signers.of(&self.certificate)
    }
}

/// One certificate in one place of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    /// Whose.
    pub(crate) entry: Arc<Entry>,
    /// What it is now.
    pub(crate) certificate: Arc<Certificate>,
    /// Where it stands.
    pub(crate) order: Order,
    /// Its settings.
    pub(crate) context: u32,
    /// For which names; `None`: its own.
    pub(crate) filters: Option<Arc<[String]>>,
    /// The next use of the same entry.
    next: u32,
}

/// A place in a configuration: the number of a word, then of a line in its list. Certificates of a directory stand at the same
/// place, in the order of their names.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct Order {
    pub(crate) source: u32,
    pub(crate) line: u32,
}

const NONE: u32 = u32::MAX;

#[derive(Debug, Default)]
struct Names {
    uses: Vec<Option<Use>>,
    free: Vec<u32>,
    exact: HashMap<Box<[u8]>, Places>,
    /// Without the `*`.
    wild: HashMap<Box<[u8]>, Places>,
    /// The first use of each entry, by its address.
    by_entry: FxHashMap<usize, u32>,
    /// The first use of all, and every `default-crt`.
    first: Option<u32>,
    defaults: Vec<u32>,
    contexts: Vec<Arc<TlsOptions>>,
    /// How many lines were added since.
    added: u32,
}

/// Uses that have a name: by kind of key, the one that is shown first before the others, then in their order.
#[derive(Debug)]
enum Places {
    One(Place),
    Many(Vec<Place>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Place {
    id: u32,
    class: Class,
    /// `!name`: it takes the use out of its wildcards.
    not: bool,
}

/// Kinds of key in the order in which clients get them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Class {
    Ecdsa,
    Rsa,
    Ed25519,
}

impl Class {
    fn of(kind: KeyKind) -> Class {
        match kind {
            KeyKind::EcdsaP256 | KeyKind::EcdsaP384 | KeyKind::EcdsaP521 => Class::Ecdsa,
            KeyKind::Rsa(_) => Class::Rsa,
            KeyKind::Ed25519 => Class::Ed25519,
        }
    }
}

impl Places {
    fn all(&self) -> &[Place] {
        match self {
            Places::One(place) => std::slice::from_ref(place),
            Places::Many(places) => places,
        }
    }
}

impl Index {
    pub(crate) fn new(signers: Arc<Signers>, lists: Vec<ListPlace>, binds: Vec<Source>) -> Index {
        let names = Names { contexts: vec![Arc::default()], ..Names::default() };
        Index { names: RwLock::new(names), lists: lists.into(), binds: binds.into(), signers }
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
        self.read().contexts.clone()
    }

    /// How many certificates there are, each as often as it is used.
    pub fn len(&self) -> usize {
        let names = self.read();
        names.uses.len() - names.free.len()
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
        let names = self.read();
        let mut defaults = names.first.iter().filter(|_| names.defaults.is_empty()).chain(&names.defaults);
        defaults.any(|id| names.get(*id).is_some_and(|found| Arc::ptr_eq(&found.entry, entry)))
    }

    fn sources(&self, list: &Path) -> impl Iterator<Item = &ListPlace> {
        self.lists.iter().filter(move |place| place.path == list)
    }

    /// The lines of a `crt-list`, or the files of a directory, in order. Costs a walk over all certificates.
    pub fn lines(&self, list: &Path) -> Vec<Line> {
        let names = self.read();
        let is_there = |found: &&Use| self.sources(list).any(|place| place.source == found.order.source);
        let mut all: Vec<&Use> = names.uses.iter().flatten().filter(is_there).collect();
        all.sort_unstable_by_key(|found| found.place());
        let defaults = names.first.iter().filter(|_| names.defaults.is_empty()).chain(&names.defaults);
        let defaults: Vec<_> = defaults.filter_map(|id| names.get(*id)).map(Use::place).collect();
        let line = |found: &Use| Line {
            entry: found.entry.clone(),
            number: found.order.line,
            options: names.contexts.get(found.context as usize).cloned().unwrap_or_default(),
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
            let line = if place.is_directory && filters.is_none() && options.is_none() {
                0
            } else {
                self.names.added += 1;
                ADDED + self.names.added
            };
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
        let names = &mut *self.names;
        for id in names.uses_of(entry) {
            names.unlink(id);
            if let Some(found) = names.uses[id as usize].as_mut() {
                found.certificate = certificate.clone();
            }
            names.link(id);
        }
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

/// Numbers of lines that were added later begin above this.
const ADDED: u32 = 1 << 30;

/// A use to be added.
#[derive(Clone, Debug)]
pub(crate) struct NewUse {
    pub(crate) entry: Arc<Entry>,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) order: Order,
    pub(crate) options: Option<Arc<TlsOptions>>,
    pub(crate) filters: Option<Arc<[String]>>,
    pub(crate) is_default: bool,
}

/// A name in which one use is found.
#[derive(Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Name {
    wild: bool,
    not: bool,
    text: Box<[u8]>,
}

impl Use {
    /// Where it is to be found.
    fn names(&self) -> Vec<Name> {
        let mut names = Vec::new();
        let mut add = |text: &[u8], not: bool| {
            if text.is_empty() || text.len() > MAX_NAME {
                return;
            }
            let (wild, text) = match text.strip_prefix(b"*") {
                Some(rest) => (true, rest),
                None => (false, text),
            };
            names.push(Name { wild, not, text: text.to_ascii_lowercase().into_boxed_slice() });
        };
        match &self.filters {
            None => self.certificate.names().into_iter().for_each(|name| add(name, false)),
            Some(filters) => {
                for filter in filters.iter() {
                    match filter.strip_prefix('!') {
                        Some(filter) => add(filter.as_bytes(), true),
                        None => add(filter.as_bytes(), false),
                    }
                }
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

impl Names {
    fn get(&self, id: u32) -> Option<&Use> {
        self.uses.get(id as usize)?.as_ref()
    }

    fn add(&mut self, new: NewUse) {
        let context = match new.options {
            None => 0,
            Some(options) => self.context(options),
        };
        let key = Arc::as_ptr(&new.entry) as usize;
        let NewUse { entry, certificate, order, filters, is_default, .. } = new;
        let next = self.by_entry.get(&key).copied().unwrap_or(NONE);
        let made = Use { entry, certificate, order, context, filters, next };
        let id = match self.free.pop() {
            Some(id) => {
                self.uses[id as usize] = Some(made);
                id
            }
            None => {
                self.uses.push(Some(made));
                (self.uses.len() - 1) as u32
            }
        };
        self.by_entry.insert(key, id);
        if self.first.is_none_or(|first| self.is_before(id, first)) {
            self.first = Some(id);
        }
        if is_default {
            let at = self.defaults.partition_point(|other| self.is_before(*other, id));
            self.defaults.insert(at, id);
        }
        self.link(id);
    }

    fn remove(&mut self, id: u32) {
        self.unlink(id);
        let Some(gone) = self.uses[id as usize].take() else { return };
        let key = Arc::as_ptr(&gone.entry) as usize;
        self.free.push(id);
        self.defaults.retain(|other| *other != id);
        if self.by_entry.get(&key) == Some(&id) {
            if gone.next == NONE {
                self.by_entry.remove(&key)
            } else {
                self.by_entry.insert(key, gone.next)
            };
        } else {
            let mut at = self.by_entry.get(&key).copied().unwrap_or(NONE);
            while let Some(other) = self.uses.get_mut(at as usize).and_then(Option::as_mut) {
                at = other.next;
                if other.next == id {
                    other.next = gone.next;
                }
            }
        }
        if self.first == Some(id) {
            let ids = (0..self.uses.len() as u32).filter(|id| self.uses[*id as usize].is_some());
            self.first = ids.reduce(|first, id| if self.is_before(id, first) { id } else { first });
        }
    }

    /// The number of settings, a new one if nobody has them yet.
    fn context(&mut self, options: Arc<TlsOptions>) -> u32 {
        let known = self.contexts.iter().position(|known| Arc::ptr_eq(known, &options) || **known == *options);
        let at = known.unwrap_or_else(|| {
            self.contexts.push(options);
            self.contexts.len() - 1
        });
        at as u32
    }

    fn uses_of(&self, entry: &Arc<Entry>) -> Vec<u32> {
        let mut ids = Vec::new();
        let mut at = self.by_entry.get(&(Arc::as_ptr(entry) as usize)).copied().unwrap_or(NONE);
        while let Some(found) = self.get(at) {
            ids.push(at);
            at = found.next;
        }
        ids
    }

    fn is_before(&self, one: u32, other: u32) -> bool {
        let place = |id: u32| self.get(id).map(|found| found.place());
        place(one) < place(other)
    }

    fn link(&mut self, id: u32) {
        let Some(found) = self.get(id) else { return };
        let class = Class::of(found.certificate.kind());
        for Name { wild, not, text } in found.names() {
            let place = Place { id, class, not };
            let map = if wild { &mut self.wild } else { &mut self.exact };
            let Some(places) = map.get_mut(&text) else {
                map.insert(text, Places::One(place));
                continue;
            };
            if let Places::One(other) = places {
                *places = Places::Many(vec![*other]);
            }
            if let Places::Many(all) = places {
                let uses = &self.uses;
                let rank =
                    |place: &Place| (place.class, uses.get(place.id as usize).and_then(Option::as_ref).map(Use::place));
                all.insert(all.partition_point(|other| rank(other) <= rank(&place)), place);
            }
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(found) = self.get(id) else { return };
        for Name { wild, text, .. } in found.names() {
            let map = if wild { &mut self.wild } else { &mut self.exact };
            let Some(places) = map.get_mut(&text) else { continue };
            let left = match places {
                Places::One(_) => 0,
                Places::Many(all) => {
                    all.retain(|place| place.id != id);
                    all.len()
                }
            };
            match places {
                _ if left == 0 => drop(map.remove(&text)),
                Places::Many(all) if left == 1 => *places = Places::One(all[0]),
                Places::One(_) | Places::Many(_) => {}
            }
        }
    }

    fn find(&self, name: &[u8], client: Verifies) -> Option<&Use> {
        let mut lower = [0; MAX_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let exact = self.exact.get(&*lower).map_or(&[][..], Places::all);
        let wild = memchr::memchr(b'.', lower).and_then(|dot| self.wild.get(&lower[dot..]));
        let wild = wild.map_or(&[][..], Places::all);
        // `!name` takes a name out of the wildcards of its own line, and out of nothing else.
        let is_taken_out = |id: u32| exact.iter().any(|place| place.not && place.id == id);
        let exactly = exact.iter().filter(|place| !place.not);
        let widely = wild.iter().filter(|place| !place.not && !is_taken_out(place.id));
        let verified = |place: &&Place| self.get(place.id).is_some_and(|found| client.can(found.certificate.kind()));
        let best = match (exactly.clone().find(verified), widely.clone().find(verified)) {
            (Some(exact), Some(wild)) if wild.class < exact.class => Some(wild),
            (Some(exact), _) => Some(exact),
            (None, wild) => wild,
        };
        // None of them is of use for the client; it gets one all the same.
        self.get(best.or_else(|| exactly.chain(widely).next())?.id)
    }

    fn default_use(&self, client: Verifies) -> Option<&Use> {
        let mut all = self.defaults.iter().filter_map(|id| self.get(*id));
        let verified = all.clone().filter(|found| client.can(found.certificate.kind()));
        let best = verified.min_by_key(|found| Class::of(found.certificate.kind()));
        best.or_else(|| all.next()).or_else(|| self.get(self.first?))
    }
}

impl Use {
    fn place(&self) -> (Order, &Path) {
        (self.order, self.entry.path())
    }
}
