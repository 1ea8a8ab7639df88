//! Pattern references: the patterns of an ACL, a file of patterns, a map. All rules that name one file share one reference, and the runtime
//! API lists and changes it.
//!
//! [`References`] are those of one configuration, which rules are compiled with; [`Live`] are the contents, which outlive configurations.
//! [`References::settle`] joins the two: a reference of the name of one in use goes on with its contents, and what its file has changed
//! becomes an update, which [`References::commit`] applies.

mod address;
mod entry;
mod file;
mod index;
mod live;
mod names;
mod search;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::ArcSwapOption;
use baton_model::{Role, Source};

pub(crate) use address::AddressPattern;
pub use entry::Entry;
use index::Index;
pub(crate) use index::{MatchSpec, Output, address};
pub use live::{ChangedKey, FileEdits, Live, PatternChange, PatternRefusal, Values};
pub(crate) use names::resolved;

use crate::outside::Files;
use crate::pattern::Method;
use crate::problem::RuleError;
use crate::sample::{Sample, Type};
use live::Update;

/// The most bytes a file of patterns may have.
const PATTERN_FILE_MAX: usize = 1 << 30;

/// All pattern references of one configuration.
#[derive(Debug, Default)]
pub struct References(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// The line that is compiled.
    source: Source,
    /// Configuration files in the order in which they were met.
    files: Vec<Arc<str>>,
    list: Vec<Arc<Reference>>,
    by_file: HashMap<String, Arc<Reference>>,
    /// How many lines of one proxy have the same words.
    lines: HashMap<String, usize>,
    /// Files that actions change.
    named: Vec<Weak<NamedReference>>,
    updates: Vec<(Arc<Reference>, Update)>,
    is_settled: bool,
}

/// A file of patterns or a map, or what a line has of patterns.
#[derive(Debug)]
pub struct Reference {
    /// The file; else the proxy and the line that has the patterns, and how many such lines the proxy has before it. Proxies keep their
    /// rules, and what those look at, whatever other proxies do.
    name: String,
    is_file: bool,
    /// Of a line: the fetch.
    criterion: String,
    wanted_id: Option<u32>,
    id: OnceLock<u32>,
    about: Mutex<About>,
    live: OnceLock<Arc<Live>>,
}

#[derive(Debug, Default)]
struct About {
    /// Until it is settled.
    content: Vec<u8>,
    digest: u64,
    /// Of a line.
    patterns: Vec<String>,
    users: Vec<(bool, Source)>,
    is_map: bool,
    is_acl: bool,
    slots: Vec<Arc<Slot>>,
}

/// One way in which rules match a reference.
#[derive(Debug)]
struct Slot {
    spec: MatchSpec,
    place: OnceLock<Place>,
}

#[derive(Debug)]
struct Place {
    live: Arc<Live>,
    slot: usize,
    _user: Arc<()>,
}

/// A reference as a rule uses it.
#[derive(Clone, Debug)]
pub(crate) struct PatternUse {
    reference: Arc<Reference>,
    slot: Arc<Slot>,
}

/// How a rule uses a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileUse {
    /// Its lines have values.
    pub is_map: bool,
    /// An ACL looks at it.
    pub by_acl: bool,
    /// Where addresses are looked up first, names of hosts may stand for them.
    pub resolves: bool,
}

/// A file that an action changes. Without a rule that looks something up in it there is nothing to change, as in HAProxy.
#[derive(Debug)]
pub(crate) struct NamedReference {
    name: String,
    live: ArcSwapOption<Live>,
}

/// How the runtime API describes a match.
#[derive(Clone, Debug)]
pub struct FoundPattern {
    /// `str`, `beg` and so on.
    pub method: &'static str,
    /// `-i`.
    pub ignore_case: bool,
    /// What a map gives, in HAProxy's word.
    pub output: Option<&'static str>,
    /// Whether HAProxy has it in a tree; else it is in a list.
    pub in_tree: bool,
    /// The entry.
    pub entry: Option<Arc<Entry>>,
}

/// What a reload does with the entries of one file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlannedPatterns {
    /// The file.
    pub name: String,
    /// By what it differs from what it was.
    pub edits: FileEdits,
    /// Entries that were changed at run time and are as in the file from now on.
    pub ended: Vec<ChangedKey>,
}

impl NamedReference {
    pub fn new(name: &str, files: &dyn Files) -> Arc<NamedReference> {
        let named = Arc::new(NamedReference { name: name.to_owned(), live: ArcSwapOption::default() });
        if let Some(references) = files.pattern_references() {
            references.inner().named.push(Arc::downgrade(&named));
        }
        named
    }

    pub fn live(&self) -> Option<Arc<Live>> {
        self.live.load_full()
    }
}

impl References {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is compiled from now on stands in this line.
    pub(crate) fn at(&self, source: &Source) {
        let mut inner = self.inner();
        if !inner.files.contains(&source.file) {
            inner.files.push(Arc::clone(&source.file));
        }
        inner.source = source.clone();
    }

    /// The file of a rule or a converter, read once.
    pub(crate) fn file(
        &self,
        path: &str,
        use_: FileUse,
        spec: MatchSpec,
        files: &dyn Files,
    ) -> Result<PatternUse, RuleError> {
        let FileUse { is_map, by_acl, resolves } = use_;
        let known = self.inner().by_file.get(path).cloned();
        let reference = match known {
            Some(reference) => reference,
            None => {
                let mut content = read(path, files)?;
                if spec.method == Method::Ip && resolves {
                    content = names::resolved_file(content, is_map, files);
                }
                let mut digest = DefaultHasher::new();
                content.hash(&mut digest);
                let about = About { content, digest: digest.finish(), is_map, ..About::default() };
                self.push(path.to_owned(), true, String::new(), None, about)?
            }
        };
        let source = self.inner().source.clone();
        let slot = {
            let mut about = reference.about();
            if about.is_map != is_map {
                let message = match is_map {
                    true => format!("'{path}' is already used as a file of patterns by an ACL, which has no values"),
                    false => format!("'{path}' is already used as a map"),
                };
                return Err(RuleError::new(message).hint("an ACL uses the keys of a map with '-M -f'"));
            }
            about.users.push((is_map, source));
            about.is_acl |= by_acl;
            about.slot(spec, path)?
        };
        Ok(PatternUse { reference, slot })
    }

    /// The patterns of a line of the proxy `within`.
    pub(crate) fn line(
        &self,
        within: Option<(&str, Role)>,
        words: &[String],
        patterns: Vec<String>,
        id: Option<u32>,
        spec: MatchSpec,
    ) -> Result<PatternUse, RuleError> {
        let name = self.name_line(within, words);
        let source = self.inner().source.clone();
        let criterion = words[0].split(['(', ',']).next().unwrap_or_default().to_owned();
        let about = About { patterns, users: vec![(false, source)], is_acl: true, ..About::default() };
        let reference = self.push(name, false, criterion, id, about)?;
        let slot = Arc::new(Slot { spec, place: OnceLock::new() });
        reference.about().slots.push(Arc::clone(&slot));
        Ok(PatternUse { reference, slot })
    }

    fn name_line(&self, within: Option<(&str, Role)>, words: &[String]) -> String {
        let words: Vec<Cow<'_, str>> = words.iter().map(|word| quoted(word)).collect();
        let text = match within {
            Some((proxy, role)) => format!("acl {} {proxy}: {}", role.word(), words.join(" ")),
            None => format!("acl {}", words.join(" ")),
        };
        let mut inner = self.inner();
        let before = inner.lines.entry(text.clone()).or_default();
        *before += 1;
        match *before {
            1 => text,
            count => format!("{text} #{count}"),
        }
    }

    fn push(
        &self,
        name: String,
        is_file: bool,
        criterion: String,
        wanted_id: Option<u32>,
        about: About,
    ) -> Result<Arc<Reference>, RuleError> {
        let mut inner = self.inner();
        if wanted_id.is_some() && inner.list.iter().any(|one| one.wanted_id == wanted_id) {
            return Err(RuleError::new("the id is already used").hint("give each ACL another number after '-u'"));
        }
        let reference = Arc::new(Reference {
            name,
            is_file,
            criterion,
            wanted_id,
            id: OnceLock::new(),
            about: Mutex::new(about),
            live: OnceLock::new(),
        });
        inner.list.push(Arc::clone(&reference));
        if is_file {
            inner.by_file.insert(reference.name.clone(), Arc::clone(&reference));
        }
        Ok(reference)
    }

    /// Gives each reference its number and its contents: those of `used` with its name, or its file's.
    ///
    /// What takes long with a large file is done here, by who reads the configuration. `pause` is called between two references.
    pub fn settle(&self, used: Option<&References>, mut pause: impl FnMut()) {
        let mut inner = self.inner();
        if std::mem::replace(&mut inner.is_settled, true) {
            return;
        }
        inner.lines = HashMap::new();
        let files = std::mem::take(&mut inner.files);
        inner.list.sort_by_cached_key(|one| one.first_line(&files));
        let taken: Vec<u32> = inner.list.iter().filter_map(|one| one.wanted_id).collect();
        let mut free = (0..).filter(|id| !taken.contains(id));
        for one in &inner.list {
            let id = one.wanted_id.or_else(|| free.next());
            // It has none before.
            let _ = one.id.set(id.unwrap_or_default());
        }
        let list = inner.list.clone();
        let kept = used.map(|used| used.inner().named.clone()).unwrap_or_default();
        let used = used.map(References::list).unwrap_or_default();
        let used: HashMap<(bool, &str), &Arc<Reference>> = used.iter().map(|one| (one.key(), one)).collect();
        for one in list {
            let live = used.get(&one.key()).and_then(|before| before.live.get());
            if let Some(update) = one.settle(live) {
                inner.updates.push((one, update));
            }
            pause();
        }
        inner.join_named();
        // Those of rules in use work on what is in use until the commit.
        inner.named.extend(kept);
    }

    /// What a commit does: the files that changed.
    pub fn planned(&self) -> Vec<PlannedPatterns> {
        let inner = self.inner();
        let planned = inner.updates.iter().filter_map(|(one, update)| {
            let live = one.live.get()?;
            let ended = update.ended.iter().map(|key| live.changed_key(key)).collect();
            Some(PlannedPatterns { name: one.title(), edits: update.edits.clone(), ended })
        });
        planned.filter(|one| one.edits != FileEdits::default() || !one.ended.is_empty()).collect()
    }

    /// Whether requests may change contents.
    pub fn has_actions(&self) -> bool {
        self.inner().named.iter().any(|named| named.strong_count() > 0)
    }

    /// Applies what changed files make of the contents in use. It cannot fail.
    pub fn commit(&self) {
        let updates = {
            let mut inner = self.inner();
            // Rules may stay while other rules begin, or end, to use the file.
            inner.join_named();
            std::mem::take(&mut inner.updates)
        };
        for (one, update) in updates {
            if let Some(live) = one.live.get() {
                live.apply(update);
            }
        }
    }

    /// All references, in the order of their numbers.
    pub fn list(&self) -> Vec<Arc<Reference>> {
        let mut list = self.inner().list.clone();
        list.sort_by_key(|one| one.id());
        list
    }
}

impl Inner {
    /// Joins the files that actions change with their contents.
    fn join_named(&mut self) {
        self.named.retain(|named| named.strong_count() > 0);
        for named in self.named.iter().filter_map(Weak::upgrade) {
            named.live.store(self.by_file.get(&named.name).and_then(|file| file.live.get()).cloned());
        }
    }
}

impl About {
    /// The slot of a way to match, after all entries were judged.
    fn slot(&mut self, spec: MatchSpec, path: &str) -> Result<Arc<Slot>, RuleError> {
        if let Some(slot) = self.slots.iter().find(|slot| slot.spec == spec) {
            return Ok(Arc::clone(slot));
        }
        for (number, key, value) in file::entries(&self.content, self.is_map) {
            spec.judge(key, value).map_err(|error| RuleError {
                message: format!("{} at line {number} of file '{path}'", error.message),
                ..error
            })?;
        }
        let slot = Arc::new(Slot { spec, place: OnceLock::new() });
        self.slots.push(Arc::clone(&slot));
        Ok(slot)
    }
}

impl Reference {
    fn about(&self) -> MutexGuard<'_, About> {
        self.about.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where it is used first.
    fn first_line(&self, files: &[Arc<str>]) -> (usize, u32) {
        let mut about = self.about();
        let place =
            |source: &Source| (files.iter().position(|file| *file == source.file).unwrap_or(files.len()), source.line);
        about.users.sort_by_key(|(_, source)| place(source));
        about.users.first().map(|(_, source)| place(source)).unwrap_or_default()
    }

    /// By what it is found in another configuration.
    fn key(&self) -> (bool, &str) {
        (self.is_file, &self.name)
    }

    /// Joins it with its contents. The result is what changes them, if there are some already.
    fn settle(&self, live: Option<&Arc<Live>>) -> Option<Update> {
        let mut about = self.about();
        if self.live.get().is_some() {
            return None;
        }
        let content = std::mem::take(&mut about.content);
        let lines = || -> Vec<live::FileLine<'_>> {
            match self.is_file {
                true => file::entries(&content, about.is_map).map(|(_, key, value)| (key, value)).collect(),
                false => about.patterns.iter().map(|pattern| (pattern.as_bytes(), None)).collect(),
            }
        };
        let user = Arc::new(());
        let Some(live) = live else {
            let specs = about.slots.iter().map(|slot| (slot.spec, Arc::downgrade(&user))).collect();
            let live = Arc::new(Live::new(specs, about.digest, &lines(), self.is_file));
            for (at, slot) in about.slots.iter().enumerate() {
                let _ = slot.place.set(Place { live: Arc::clone(&live), slot: at, _user: Arc::clone(&user) });
            }
            let _ = self.live.set(live);
            return None;
        };
        let mut is_new = false;
        for slot in &about.slots {
            let (at, user, lacks) = live.slot(slot.spec, &user);
            is_new |= lacks;
            let _ = slot.place.set(Place { live: Arc::clone(live), slot: at, _user: user });
        }
        let _ = self.live.set(Arc::clone(live));
        match self.is_file && live.digest() != about.digest {
            true => Some(live.update(about.digest, Some(&lines()))),
            false => is_new.then(|| live.update(about.digest, None)),
        }
    }

    /// What it is called by in commands (`#ID`).
    pub fn id(&self) -> u32 {
        self.id.get().copied().unwrap_or_default()
    }

    /// The file; `None` of what a line has.
    pub fn file(&self) -> Option<&str> {
        self.is_file.then_some(&*self.name)
    }

    /// The file, or the proxy and the line, as operators and other processes name it.
    pub fn title(&self) -> String {
        self.name.clone()
    }

    /// HAProxy's description of it.
    pub fn description(&self) -> String {
        let about = self.about();
        let place = |source: &Source| format!("file '{}' line {}", source.file, source.line);
        match self.is_file {
            false => {
                let place = about.users.first().map(|(_, source)| place(source)).unwrap_or_default();
                format!("acl '{}' {place}", self.criterion)
            }
            true => {
                let users = about.users.iter().map(|(is_map, source)| {
                    let kind = if *is_map { "map" } else { "acl" };
                    format!("by {kind} at {}", place(source))
                });
                let users: Vec<String> = users.collect();
                format!("pattern loaded from file '{}' used {}", self.name, users.join(", "))
            }
        }
    }

    /// Whether its entries have values.
    pub fn is_map(&self) -> bool {
        self.about().is_map
    }

    /// Whether an ACL uses it.
    pub fn is_acl(&self) -> bool {
        self.about().is_acl
    }

    /// Its contents.
    pub fn live(&self) -> Arc<Live> {
        match self.live.get() {
            Some(live) => Arc::clone(live),
            None => {
                self.settle(None);
                self.live.get().map(Arc::clone).unwrap_or_else(|| Arc::new(Live::new(Vec::new(), 0, &[], true)))
            }
        }
    }

    /// What each way to match finds for a text.
    pub fn find(&self, text: &str) -> Vec<FoundPattern> {
        let slots = self.about().slots.clone();
        let found = slots.iter().filter_map(|slot| {
            let place = slot.place.get()?;
            let find = |index: &Index| {
                index.find(Sample::str(text.as_bytes()), |found| found.map(|found| Arc::clone(&found.hit.entry)))
            };
            let entry = match place.live.is_changed() {
                true => place.live.with_index(place.slot, find),
                // The rules of a line do without an index as long as nobody changes it.
                false => {
                    let index = Index::new(slot.spec);
                    index.insert_all(&place.live.page(None, 0, usize::MAX));
                    Some(find(&index))
                }
            };
            let MatchSpec { method, ignore_case, output } = slot.spec;
            let output = match output {
                Output::Nothing => None,
                output => Some(match output.kind() {
                    Type::Int => "sint",
                    Type::Ip => "addr",
                    _ => "str",
                }),
            };
            Some(FoundPattern {
                method: method.word(),
                ignore_case,
                output,
                in_tree: slot.spec.in_tree(),
                entry: entry.flatten(),
            })
        });
        found.collect()
    }
}

impl PatternUse {
    fn place(&self) -> Option<&Place> {
        self.slot.place.get().or_else(|| {
            self.reference.settle(None);
            self.slot.place.get()
        })
    }

    /// Whether what a line has was changed at run time.
    #[inline]
    pub fn is_changed(&self) -> bool {
        self.slot.place.get().is_some_and(|place| place.live.is_changed())
    }

    /// Whether the sample matches one of the patterns.
    pub fn matches(&self, sample: Sample<'_>) -> bool {
        let Some(Place { live, slot, .. }) = self.place() else { return false };
        live.with_index(*slot, |index| index.find(sample, |found| found.is_some())).unwrap_or(false)
    }

    /// The value of the entry that matches.
    pub fn value(&self, sample: Sample<'_>) -> Option<Sample<'static>> {
        let Place { live, slot, .. } = self.place()?;
        live.with_index(*slot, |index| index.value(sample))?
    }
}

/// A word as it stands in a name: in quotes if it could be taken for two, or for a number behind the line.
fn quoted(word: &str) -> Cow<'_, str> {
    let is_plain =
        |text: &str| !text.contains(|c: char| c.is_whitespace() || c.is_control() || matches!(c, '"' | '\\'));
    match is_plain(word) && !word.starts_with('#') {
        true => Cow::Borrowed(word),
        false => Cow::Owned(format!("{word:?}")),
    }
}

/// The content of a file; `opt@` may be missing, and `virt@` has none.
fn read(path: &str, files: &dyn Files) -> Result<Vec<u8>, RuleError> {
    let content = match path.split_once('@') {
        Some(("virt", _)) => return Ok(Vec::new()),
        Some(("opt", name)) => match files.read_patterns(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            content => content,
        },
        Some(("file", name)) => files.read_patterns(name),
        _ => files.read_patterns(path),
    };
    let content = content.map_err(|error| RuleError::new(format!("failed to open pattern file <{path}>: {error}")))?;
    match content.len() > PATTERN_FILE_MAX {
        true => Err(RuleError::new(format!("'{path}' is larger than {PATTERN_FILE_MAX} bytes"))),
        false => Ok(content),
    }
}
