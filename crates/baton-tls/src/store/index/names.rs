//! The certificates of a `bind` and the names each is found by: what an [`Index`](super::Index) keeps under its lock.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use baton_model::TlsOptions;
use rustc_hash::FxHashMap;

use super::super::Entry;
use crate::certificate::{Certificate, KeyKind, Verifies};

/// Longest name of a host (RFC 1035 2.3.4).
const MAX_NAME: usize = 255;

/// One certificate in one place of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct CertificateUse {
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

/// No use.
const NONE: u32 = u32::MAX;

/// Numbers of lines that were added later begin above this.
pub const ADDED: u32 = 1 << 30;

#[derive(Debug, Default)]
pub(super) struct Names {
    uses: Vec<Option<CertificateUse>>,
    free: Vec<u32>,
    exact: HashMap<Box<[u8]>, NameUses>,
    /// Without the `*`.
    wild: HashMap<Box<[u8]>, NameUses>,
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
enum NameUses {
    One(NameUse),
    Many(Vec<NameUse>),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct NameUse {
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

impl NameUses {
    fn all(&self) -> &[NameUse] {
        match self {
            NameUses::One(place) => std::slice::from_ref(place),
            NameUses::Many(places) => places,
        }
    }
}

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
struct NameKey {
    wild: bool,
    not: bool,
    text: Box<[u8]>,
}

impl CertificateUse {
    /// Where it is to be found.
    fn names(&self) -> Vec<NameKey> {
        let mut names = Vec::new();
        let mut add = |text: &[u8], not: bool| {
            if text.is_empty() || text.len() > MAX_NAME {
                return;
            }
            let (wild, text) = match text.strip_prefix(b"*") {
                Some(rest) => (true, rest),
                None => (false, text),
            };
            names.push(NameKey { wild, not, text: text.to_ascii_lowercase().into_boxed_slice() });
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
    pub(super) fn new() -> Names {
        Names { contexts: vec![Arc::default()], ..Names::default() }
    }

    /// How many uses there are.
    pub(super) fn len(&self) -> usize {
        self.uses.len() - self.free.len()
    }

    /// All uses, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &CertificateUse> {
        self.uses.iter().flatten()
    }

    /// The uses that clients without a name may get.
    pub(super) fn defaults(&self) -> impl Iterator<Item = &CertificateUse> {
        let first = self.first.iter().filter(|_| self.defaults.is_empty());
        first.chain(&self.defaults).filter_map(|id| self.get(*id))
    }

    /// Settings by their number.
    pub(super) fn contexts(&self) -> &[Arc<TlsOptions>] {
        &self.contexts
    }

    /// The number of a line that is added behind all others.
    pub(super) fn next_line(&mut self) -> u32 {
        self.added += 1;
        ADDED + self.added
    }

    /// Gives every use of `entry` another certificate.
    pub(super) fn replace(&mut self, entry: &Arc<Entry>, certificate: &Arc<Certificate>) {
        for id in self.uses_of(entry) {
            self.unlink(id);
            if let Some(found) = self.uses[id as usize].as_mut() {
                found.certificate = certificate.clone();
            }
            self.link(id);
        }
    }

    pub(super) fn get(&self, id: u32) -> Option<&CertificateUse> {
        self.uses.get(id as usize)?.as_ref()
    }

    pub(super) fn add(&mut self, new: NewUse) {
        let context = match new.options {
            None => 0,
            Some(options) => self.context(options),
        };
        let key = Arc::as_ptr(&new.entry) as usize;
        let NewUse { entry, certificate, order, filters, is_default, .. } = new;
        let next = self.by_entry.get(&key).copied().unwrap_or(NONE);
        let made = CertificateUse { entry, certificate, order, context, filters, next };
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

    pub(super) fn remove(&mut self, id: u32) {
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

    pub(super) fn uses_of(&self, entry: &Arc<Entry>) -> Vec<u32> {
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
        for NameKey { wild, not, text } in found.names() {
            let place = NameUse { id, class, not };
            let map = if wild { &mut self.wild } else { &mut self.exact };
            let Some(places) = map.get_mut(&text) else {
                map.insert(text, NameUses::One(place));
                continue;
            };
            if let NameUses::One(other) = places {
                *places = NameUses::Many(vec![*other]);
            }
            if let NameUses::Many(all) = places {
                let uses = &self.uses;
                let rank = |place: &NameUse| {
                    (place.class, uses.get(place.id as usize).and_then(Option::as_ref).map(CertificateUse::place))
                };
                all.insert(all.partition_point(|other| rank(other) <= rank(&place)), place);
            }
        }
    }

    fn unlink(&mut self, id: u32) {
        let Some(found) = self.get(id) else { return };
        for NameKey { wild, text, .. } in found.names() {
            let map = if wild { &mut self.wild } else { &mut self.exact };
            let Some(places) = map.get_mut(&text) else { continue };
            let left = match places {
                NameUses::One(_) => 0,
                NameUses::Many(all) => {
                    all.retain(|place| place.id != id);
                    all.len()
                }
            };
            match places {
                _ if left == 0 => drop(map.remove(&text)),
                NameUses::Many(all) if left == 1 => *places = NameUses::One(all[0]),
                NameUses::One(_) | NameUses::Many(_) => {}
            }
        }
    }

    pub(super) fn find(&self, name: &[u8], client: Verifies) -> Option<&CertificateUse> {
        let mut lower = [0; MAX_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let exact = self.exact.get(&*lower).map_or(&[][..], NameUses::all);
        let wild = memchr::memchr(b'.', lower).and_then(|dot| self.wild.get(&lower[dot..]));
        let wild = wild.map_or(&[][..], NameUses::all);
        // `!name` takes a name out of the wildcards of its own line, and out of nothing else.
        let is_taken_out = |id: u32| exact.iter().any(|place| place.not && place.id == id);
        let exactly = exact.iter().filter(|place| !place.not);
        let widely = wild.iter().filter(|place| !place.not && !is_taken_out(place.id));
        let verified = |place: &&NameUse| self.get(place.id).is_some_and(|found| client.can(found.certificate.kind()));
        let best = match (exactly.clone().find(verified), widely.clone().find(verified)) {
            (Some(exact), Some(wild)) if wild.class < exact.class => Some(wild),
            (Some(exact), _) => Some(exact),
            (None, wild) => wild,
        };
        // None of them is of use for the client; it gets one all the same.
        self.get(best.or_else(|| exactly.chain(widely).next())?.id)
    }

    pub(super) fn default_use(&self, client: Verifies) -> Option<&CertificateUse> {
        let mut all = self.defaults.iter().filter_map(|id| self.get(*id));
        let verified = all.clone().filter(|found| client.can(found.certificate.kind()));
        let best = verified.min_by_key(|found| Class::of(found.certificate.kind()));
        best.or_else(|| all.next()).or_else(|| self.get(self.first?))
    }
}

impl CertificateUse {
    pub(super) fn place(&self) -> (Order, &Path) {
        (self.order, self.entry.path())
    }
}
