//! What a reader looks patterns up in: one index for each way in which rules match a reference.
//!
//! A look-up takes no lock. A table of keys is a hash table that is read while it is written; text is looked for by the lengths of the
//! patterns: `beg` asks once for each length that some pattern has, and so on. Which entry wins is HAProxy's choice: the longest of `beg`
//! (without `-i`) and `ip`, else the first in the order of the entries.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet, hash_map};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use papaya::{Equivalent, HashMap};
use regex::bytes::Regex;

use super::address::{AddressPattern, embedded, widened};
use super::entry::Entry;
use super::search::{ExpressionSet, Sought};
use crate::args::{prefix4, prefix6};
use crate::pattern::{Method, Range, hexadecimal};
use crate::problem::RuleError;
use crate::sample::{Sample, Type, leading_int};
use crate::substitute::{self, Template};

/// One way to match a reference.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct MatchSpec {
    pub method: Method,
    pub ignore_case: bool,
    pub output: Output,
}

/// What a match gives.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Output {
    /// An ACL: that there is one.
    Nothing,
    Text,
    Int,
    Ip,
    /// `map_regm`: text with references to groups.
    Template,
}

impl Output {
    pub const fn kind(self) -> Type {
        match self {
            Output::Nothing => Type::Bool,
            Output::Text | Output::Template => Type::Str,
            Output::Int => Type::Int,
            Output::Ip => Type::Ip,
        }
    }
}

/// An entry as one index has it.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    pub entry: Arc<Entry>,
    pub value: MapValue,
}

/// The value of a map's entry, read as what the converter gives.
#[derive(Clone, Debug)]
pub(crate) enum MapValue {
    Nothing,
    /// The entry's own text.
    Text,
    Int(i64),
    Ip(Box<IpAddr>),
    Template(Box<Template>),
}

/// What an entry is looked for by.
enum Parsed {
    Always,
    Key(Vec<u8>),
    Range(Range),
    Masked(AddressPattern),
    Regex(Regex),
}

#[derive(Debug)]
pub(crate) struct Index {
    pub spec: MatchSpec,
    table: KeyTable,
    /// Lengths of keys, or of prefixes of IPv4 and of IPv6 addresses.
    lengths: [Lengths; 2],
    /// What no table can have, in the order of the entries.
    others: ArcSwap<Vec<Arc<Other>>>,
    /// Of `sub`: its keys, if they are looked for; else each part of the text is looked up.
    sought: ArcSwapOption<Sought>,
    /// Of `reg`: its expressions, if they are looked for together.
    expressions: ArcSwapOption<ExpressionSet>,
}

/// An entry that no table can have.
#[derive(Debug)]
pub(super) struct Other {
    what: OtherPattern,
    hit: Hit,
}

#[derive(Debug)]
enum OtherPattern {
    Range(Range),
    Masked(AddressPattern),
    Regex(Regex),
    Always,
}

impl Other {
    pub fn regex(&self) -> Option<&Regex> {
        if let OtherPattern::Regex(regex) = &self.what { Some(regex) } else { None }
    }
}

impl MatchSpec {
    /// Whether an entry can be used at all.
    pub fn judge(self, key: &[u8], value: Option<&[u8]>) -> Result<(), RuleError> {
        match self.method {
            Method::Str | Method::Beg | Method::End | Method::Sub | Method::Dir | Method::Dom => {}
            _ => drop(self.parse(key)?),
        }
        match self.output {
            Output::Nothing | Output::Text | Output::Template => Ok(()),
            Output::Int | Output::Ip => self.value(value.unwrap_or_default()).map(drop),
        }
    }

    /// Whether HAProxy has these patterns in a tree.
    pub fn in_tree(self) -> bool {
        matches!(self.method, Method::Str | Method::Beg | Method::Ip) && !self.ignore_case
    }

    fn value(self, value: &[u8]) -> Result<MapValue, RuleError> {
        let text = || String::from_utf8_lossy(value);
        let invalid = || RuleError::new(format!("unable to parse '{}'", text()));
        Ok(match self.output {
            Output::Nothing => MapValue::Nothing,
            Output::Text => MapValue::Text,
            Output::Template => MapValue::Template(Box::new(Template::new(value))),
            Output::Int => {
                let digits = value.strip_prefix(b"-").or_else(|| value.strip_prefix(b"+")).unwrap_or(value);
                let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
                MapValue::Int(leading_int(value).filter(|_| is_number).ok_or_else(invalid)?)
            }
            Output::Ip => MapValue::Ip(Box::new(text().parse().map_err(|_| invalid())?)),
        })
    }

    fn parse(self, key: &[u8]) -> Result<Parsed, RuleError> {
        let text = || String::from_utf8_lossy(key);
        Ok(match self.method {
            Method::Found | Method::Bool => Parsed::Always,
            Method::Int | Method::Len => match Range::of(&text())? {
                range if range.single().is_some() => Parsed::Key(range.single().unwrap_or(0).to_be_bytes().to_vec()),
                range => Parsed::Range(range),
            },
            Method::Ip => match address(&text())? {
                AddressPattern::V4 { address, mask } if mask.leading_ones() + mask.trailing_zeros() >= 32 => {
                    Parsed::Key(key4(address, mask.leading_ones()).to_vec())
                }
                AddressPattern::V6 { address, bits } => Parsed::Key(key6(address, bits).to_vec()),
                masked => Parsed::Masked(masked),
            },
            Method::Bin => Parsed::Key(hexadecimal(&text())?),
            Method::Reg => Parsed::Regex(substitute::regex(&text(), self.ignore_case)?),
            Method::Dir => Parsed::Key(self.folded(trimmed(key, b"/?")).into_owned()),
            Method::Dom => Parsed::Key(self.folded(trimmed(key, b"/?.:")).into_owned()),
            Method::Str | Method::Beg | Method::End | Method::Sub => Parsed::Key(self.folded(key).into_owned()),
        })
    }

    fn folded(self, text: &[u8]) -> Cow<'_, [u8]> {
        match self.ignore_case && text.iter().any(u8::is_ascii_uppercase) {
            true => Cow::Owned(text.to_ascii_lowercase()),
            false => Cow::Borrowed(text),
        }
    }
}

/// An address of a pattern.
pub(crate) fn address(text: &str) -> Result<AddressPattern, RuleError> {
    let written = if text == "localhost" { "127.0.0.1" } else { text };
    AddressPattern::parse(written)
        .ok_or_else(|| RuleError::new(format!("'{text}' is not a valid IPv4 or IPv6 address")))
}

impl Index {
    pub fn new(spec: MatchSpec) -> Index {
        Index {
            spec,
            table: KeyTable::default(),
            lengths: Default::default(),
            others: ArcSwap::default(),
            sought: ArcSwapOption::default(),
            expressions: ArcSwapOption::default(),
        }
    }

    /// Adds entries, in their order, or puts them in the place of those with their numbers. What no table can have is copied once for all
    /// of them.
    pub fn insert_all<'e>(&self, entries: impl IntoIterator<Item = &'e Arc<Entry>>) {
        let mut others = Vec::new();
        let mut keys = Vec::new();
        for entry in entries {
            // It was judged before; what could not be used is left out.
            let (Ok(parsed), Ok(value)) =
                (self.spec.parse(entry.key()), self.spec.value(entry.value().unwrap_or_default()))
            else {
                continue;
            };
            let hit = Hit { entry: Arc::clone(entry), value };
            let what = match parsed {
                Parsed::Key(key) => {
                    let length = self.length(&key);
                    if self.spec.method == Method::Sub {
                        keys.push(key.clone());
                    }
                    if self.table.insert(key, hit)
                        && let Some((lengths, length)) = length
                    {
                        lengths.add(length);
                    }
                    continue;
                }
                Parsed::Always => OtherPattern::Always,
                Parsed::Range(range) => OtherPattern::Range(range),
                Parsed::Masked(masked) => OtherPattern::Masked(masked),
                Parsed::Regex(regex) => OtherPattern::Regex(regex),
            };
            others.push(Arc::new(Other { what, hit }));
        }
        let changed = others.len().max(keys.len());
        if !others.is_empty() {
            let mut all = Vec::clone(&self.others.load());
            for other in others {
                match all.binary_search_by_key(&other.hit.entry.number, |other| other.hit.entry.number) {
                    Ok(at) => all[at] = other,
                    Err(at) => all.insert(at, other),
                }
            }
            self.others.store(Arc::new(all));
        }
        match self.spec.method {
            Method::Sub => self.seek(changed, Some(&keys)),
            Method::Reg => self.join(changed),
            _ => {}
        }
    }

    /// Readers look for keys of `sub` from now on, if that is worth while: `changed` keys are others than before. `new`: those that came.
    fn seek(&self, changed: usize, new: Option<&[Vec<u8>]>) {
        let keys = self.table.winners.pin();
        let before = self.sought.load();
        let sought = match (before.as_deref(), new) {
            _ if Sought::is_worth_building(keys.len(), changed) => {
                let all: Vec<&[u8]> = keys.keys().map(TableKey::bytes).collect();
                Sought::of(all.into_iter())
            }
            (Some(before), Some(new)) => before.with(new.iter().map(Vec::as_slice)),
            // What is gone is found no more.
            (Some(_), None) | (None, _) => return,
        };
        self.sought.store(sought.map(Arc::new));
    }

    /// Readers look for all regular expressions at once from now on, if that is worth while: `changed` of them are others than before.
    fn join(&self, changed: usize) {
        let others = self.others.load_full();
        let is_worth = Sought::is_worth_building(others.len(), changed);
        let set = is_worth.then(|| ExpressionSet::of(&others, self.spec.ignore_case)).flatten();
        self.expressions.store(set.map(Arc::new));
    }

    pub fn remove_all(&self, entries: &[Arc<Entry>]) {
        let mut others = HashSet::new();
        for entry in entries {
            match self.spec.parse(entry.key()) {
                Ok(Parsed::Key(key)) => {
                    if self.table.remove(&key, entry.number)
                        && let Some((lengths, length)) = self.length(&key)
                    {
                        lengths.subtract(length);
                    }
                }
                Ok(_) => drop(others.insert(entry.number)),
                Err(_) => {}
            }
        }
        if !others.is_empty() {
            let mut left = Vec::clone(&self.others.load());
            left.retain(|other| !others.contains(&other.hit.entry.number));
            self.others.store(Arc::new(left));
        }
        match self.spec.method {
            Method::Sub => self.seek(entries.len(), None),
            Method::Reg => self.join(entries.len()),
            _ => {}
        }
    }

    fn length_of(&self, key: &[u8]) -> Option<(usize, usize)> {
        match self.spec.method {
            Method::Beg | Method::End | Method::Sub | Method::Dir | Method::Dom => Some((0, key.len())),
            Method::Ip => Some((usize::from(key.len() > 5), usize::from(key[0]))),
            _ => None,
        }
    }

    fn length(&self, key: &[u8]) -> Option<(&Lengths, usize)> {
        self.length_of(key).map(|(which, length)| (&self.lengths[which], length))
    }

    /// Gives `then` the entry that matches.
    pub fn find<T>(&self, sample: Sample<'_>, then: impl FnOnce(Option<Match<'_>>) -> T) -> T {
        let guard = self.table.winners.guard();
        let get = |key: &[u8]| self.table.winners.get(&Probe(key), &guard);
        match self.spec.method {
            Method::Found | Method::Bool => {
                let holds = self.spec.method == Method::Found || sample.into_bool().unwrap_or(false);
                let others = self.others.load();
                then(others.first().filter(|_| holds).map(|other| Match::of(&other.hit)))
            }
            Method::Int | Method::Len => {
                let number = match self.spec.method {
                    Method::Len => Some(sample.into_text().len() as i64),
                    _ => sample.into_int(),
                };
                let Some(number) = number else { return then(None) };
                let others = self.others.load();
                let range = others
                    .iter()
                    .find(|other| matches!(&other.what, OtherPattern::Range(range) if range.holds(number)));
                then(first(get(&number.to_be_bytes()), range.map(|other| &other.hit)).map(Match::of))
            }
            Method::Ip => {
                let Some(address) = sample.into_ip() else { return then(None) };
                let v4 = || {
                    let address = embedded(address)?;
                    self.lengths[0].list().iter().find_map(|&bits| get(&key4(address & prefix4(bits), bits)))
                };
                let v6 = || {
                    let address = widened(address);
                    self.lengths[1].list().iter().find_map(|&bits| get(&key6(address & prefix6(bits), bits)))
                };
                let hit = match address {
                    IpAddr::V4(_) => v4().or_else(v6),
                    IpAddr::V6(_) => v6().or_else(v4),
                };
                let others = self.others.load();
                let masked = || {
                    let holds = |other: &&Arc<Other>| matches!(&other.what, OtherPattern::Masked(masked) if masked.holds(address));
                    others.iter().find(holds).map(|other| &other.hit)
                };
                then(hit.or_else(masked).map(Match::of))
            }
            Method::Reg => {
                let text = sample.into_text();
                let others = self.others.load();
                let expressions = self.expressions.load();
                let first = match expressions.as_ref().filter(|set| set.is_of(&others)) {
                    Some(set) => set.first(&text),
                    None => others.iter().position(|other| other.regex().is_some_and(|regex| regex.is_match(&text))),
                };
                let other = first.and_then(|first| others.get(first));
                let regex = other.and_then(|other| other.regex()).map(|regex| (regex, &*text));
                then(other.map(|other| Match { hit: &other.hit, regex }))
            }
            Method::Str | Method::Bin => {
                let text = match sample {
                    Sample::Bin(bytes) => bytes,
                    other => other.into_text(),
                };
                then(get(&self.spec.folded(&text)).map(Match::of))
            }
            Method::Beg | Method::End | Method::Sub | Method::Dir | Method::Dom => {
                let text = sample.into_text();
                let folded = self.spec.folded(&text);
                let lengths = self.lengths[0].list();
                let fit = |from: usize| {
                    let most = folded.len() - from;
                    lengths.iter().map(|length| *length as usize).filter(move |length| *length <= most)
                };
                let hit = match self.spec.method {
                    Method::Beg if self.spec.ignore_case => {
                        fit(0).filter_map(|length| get(&folded[..length])).reduce(earlier)
                    }
                    Method::Beg => fit(0).find_map(|length| get(&folded[..length])),
                    Method::End => fit(0).filter_map(|length| get(&folded[folded.len() - length..])).reduce(earlier),
                    Method::Sub => match &*self.sought.load() {
                        Some(sought) => {
                            let mut hit = None;
                            sought.each(&folded, |key| hit = first(hit, get(key)));
                            hit
                        }
                        None => {
                            let at = |from: usize| fit(from).map(move |length| (from, length));
                            let parts = (0..=folded.len()).flat_map(at);
                            parts.filter_map(|(from, length)| get(&folded[from..from + length])).reduce(earlier)
                        }
                    },
                    method => {
                        let delimiters: &[u8] = if method == Method::Dir { b"/?" } else { b"/?.:" };
                        let is_delimiter = |byte: &u8| delimiters.contains(byte);
                        let starts = (0..folded.len()).filter(|&at| at == 0 || is_delimiter(&folded[at - 1]));
                        let parts = starts.flat_map(|from| fit(from).map(move |length| (from, from + length)));
                        let whole = parts.filter(|(from, end)| from < end && folded.get(*end).is_none_or(is_delimiter));
                        whole.filter_map(|(from, end)| get(&folded[from..end])).reduce(earlier)
                    }
                };
                then(hit.map(Match::of))
            }
        }
    }

    /// The value of the entry that matches.
    pub fn value(&self, sample: Sample<'_>) -> Option<Sample<'static>> {
        self.find(sample, |found| {
            let Match { hit, regex } = found?;
            Some(match &hit.value {
                MapValue::Nothing => Sample::Bool(true),
                MapValue::Text => Sample::Str(Cow::Owned(hit.entry.value().unwrap_or_default().to_vec())),
                MapValue::Int(value) => Sample::Int(*value),
                MapValue::Ip(address) => Sample::Ip(**address),
                MapValue::Template(template) => {
                    let (regex, text) = regex?;
                    let mut out = Vec::new();
                    template.write(&regex.captures(text)?, &mut out);
                    Sample::Str(Cow::Owned(out))
                }
            })
        })
    }
}

/// An entry that matches.
pub(crate) struct Match<'a> {
    pub hit: &'a Hit,
    /// Of a regular expression: it, and the text.
    regex: Option<(&'a Regex, &'a [u8])>,
}

impl Match<'_> {
    fn of(hit: &Hit) -> Match<'_> {
        Match { hit, regex: None }
    }
}

fn first<'h>(one: Option<&'h Hit>, other: Option<&'h Hit>) -> Option<&'h Hit> {
    one.into_iter().chain(other).reduce(earlier)
}

fn earlier<'h>(one: &'h Hit, other: &'h Hit) -> &'h Hit {
    if other.entry.number < one.entry.number { other } else { one }
}

/// Without delimiters around it.
fn trimmed<'t>(text: &'t [u8], delimiters: &[u8]) -> &'t [u8] {
    let is_inner = |byte: &u8| !delimiters.contains(byte);
    let start = text.iter().position(is_inner).unwrap_or(text.len());
    let end = text.iter().rposition(is_inner).map_or(start, |last| last + 1);
    &text[start..end]
}

fn key4(address: u32, bits: u32) -> [u8; 5] {
    let [a, b, c, d] = address.to_be_bytes();
    [bits as u8, a, b, c, d]
}

fn key6(address: u128, bits: u32) -> [u8; 17] {
    let mut key = [bits as u8; 17];
    key[1..].copy_from_slice(&address.to_be_bytes());
    key
}

/// Hits by key, and by number.
type MoreHits = hash_map::HashMap<Box<[u8]>, BTreeMap<u64, Hit>>;

/// Hits by key, read without a lock while one writer changes them.
#[derive(Debug, Default)]
struct KeyTable {
    /// The first entry of each key, which is the one that readers want.
    winners: HashMap<TableKey, Hit>,
    /// The other ones.
    more: Mutex<MoreHits>,
}

/// A key, which is the entry's own nearly always.
#[derive(Debug)]
enum TableKey {
    Entry(Arc<Entry>),
    Other(Box<[u8]>),
}

struct Probe<'a>(&'a [u8]);

impl TableKey {
    fn of(hit: &Hit, key: &[u8]) -> TableKey {
        match hit.entry.key() == key {
            true => TableKey::Entry(Arc::clone(&hit.entry)),
            false => TableKey::Other(key.into()),
        }
    }

    fn bytes(&self) -> &[u8] {
        match self {
            TableKey::Entry(entry) => entry.key(),
            TableKey::Other(bytes) => bytes,
        }
    }
}

impl Hash for TableKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.bytes());
    }
}

impl PartialEq for TableKey {
    fn eq(&self, other: &TableKey) -> bool {
        self.bytes() == other.bytes()
    }
}

impl Eq for TableKey {}

impl Hash for Probe<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.0);
    }
}

impl Equivalent<TableKey> for Probe<'_> {
    fn equivalent(&self, key: &TableKey) -> bool {
        self.0 == key.bytes()
    }
}

impl KeyTable {
    fn more(&self) -> MutexGuard<'_, MoreHits> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there was none of its number.
    fn insert(&self, key: Vec<u8>, hit: Hit) -> bool {
        let table = self.winners.pin();
        let number = hit.entry.number;
        let Some(winner) = table.get(&Probe(&key)) else {
            table.insert(TableKey::of(&hit, &key), hit);
            return true;
        };
        let first = winner.entry.number;
        if number > first {
            return self.more().entry(key.into()).or_default().insert(number, hit).is_none();
        }
        if number < first {
            self.more().entry(key.clone().into()).or_default().insert(first, winner.clone());
        }
        table.insert(TableKey::of(&hit, &key), hit);
        number < first
    }

    /// Whether it was there.
    fn remove(&self, key: &[u8], number: u64) -> bool {
        let table = self.winners.pin();
        let Some(winner) = table.get(&Probe(key)) else { return false };
        let is_winner = winner.entry.number == number;
        let mut more = self.more();
        let mut was_there = is_winner;
        let mut next = None;
        if let Some(others) = more.get_mut(key) {
            match is_winner {
                true => next = others.pop_first().map(|(_, hit)| hit),
                false => was_there = others.remove(&number).is_some(),
            }
            if others.is_empty() {
                more.remove(key);
            }
        }
        match (is_winner, next) {
            (true, Some(hit)) => drop(table.insert(TableKey::of(&hit, key), hit)),
            (true, None) => drop(table.remove(&Probe(key))),
            (false, _) => {}
        }
        was_there
    }
}

/// The lengths that patterns have, the longest first, with how many of each there are.
#[derive(Debug, Default)]
struct Lengths {
    list: ArcSwap<Vec<u32>>,
    counts: Mutex<BTreeMap<usize, usize>>,
}

impl Lengths {
    fn list(&self) -> arc_swap::Guard<Arc<Vec<u32>>> {
        self.list.load()
    }

    fn counts(&self) -> MutexGuard<'_, BTreeMap<usize, usize>> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, length: usize) {
        let mut counts = self.counts();
        let count = counts.entry(length).or_default();
        *count += 1;
        if *count == 1 {
            self.publish(&counts);
        }
    }

    fn subtract(&self, length: usize) {
        let mut counts = self.counts();
        if let Some(count) = counts.get_mut(&length) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&length);
                self.publish(&counts);
            }
        }
    }

    fn publish(&self, counts: &BTreeMap<usize, usize>) {
        self.list.store(Arc::new(counts.keys().rev().map(|length| *length as u32).collect()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn index(method: Method) -> Index {
        Index::new(MatchSpec { method, ignore_case: false, output: Output::Text })
    }

    fn entry(number: u64, key: &str, value: &str) -> Arc<Entry> {
        Entry::new(number, key.as_bytes(), Some(value.as_bytes()))
    }

    fn value(index: &Index, text: &str) -> Option<String> {
        let value = index.value(Sample::str(text.as_bytes()))?;
        Some(String::from_utf8_lossy(&value.into_text()).into_owned())
    }

    #[test]
    fn the_first_of_many_entries_of_a_key_wins_whatever_is_removed() {
        let index = index(Method::Beg);
        // Quadratic work would take minutes.
        let all: Vec<Arc<Entry>> = (1..=100_000).map(|number| entry(number, "/a", &number.to_string())).collect();
        index.insert_all(all[1..].iter());
        assert_eq!(value(&index, "/ab").as_deref(), Some("2"));
        index.insert_all(&all[..1]);
        assert_eq!(value(&index, "/ab").as_deref(), Some("1"));
        index.insert_all([&entry(1, "/a", "changed"), &entry(3, "/a", "three")]);
        assert_eq!(value(&index, "/ab").as_deref(), Some("changed"));
        index.remove_all(&all[..2]);
        assert_eq!(value(&index, "/ab").as_deref(), Some("three"));
        index.remove_all(&all[3..]);
        assert_eq!((value(&index, "/ab").as_deref(), index.lengths[0].list().len()), (Some("three"), 1));
        index.remove_all(&all[2..]);
        assert_eq!((value(&index, "/ab"), index.lengths[0].list().len()), (None, 0));
    }

    #[test]
    fn parts_of_a_text_are_found_however_many_keys_there_are() {
        let index = index(Method::Sub);
        assert_eq!(value(&index, "/x1/"), None);
        let check = |from: u64, to: u64| {
            assert_eq!(value(&index, &format!("/x{to}/x{from}/")), Some(from.to_string()), "the first entry wins");
            assert_eq!(value(&index, &format!("/x{to}/")), Some(to.to_string()));
            assert_eq!(value(&index, "/x100000/"), None);
        };
        let keys = |numbers: std::ops::RangeInclusive<u64>| {
            numbers.map(|number| entry(number, &format!("x{number}/"), &number.to_string())).collect::<Vec<_>>()
        };
        for number in 1..=20 {
            index.insert_all(&keys(number..=number));
            check(1, number);
        }
        index.insert_all(&keys(21..=1000));
        check(1, 1000);
        assert!(index.sought.load().is_some());
        // A few more beside the automaton, then too many.
        for number in 1001..=1020 {
            index.insert_all(&keys(number..=number));
            check(1, number);
            check(7, 1000);
        }
        assert!(index.sought.load().is_none());
        for number in 1..=1015 {
            assert_eq!(value(&index, &format!("/x{number}/x1019/")), Some(number.to_string()));
            index.remove_all(&keys(number..=number));
            assert_eq!(value(&index, &format!("/x{number}/x1019/")).as_deref(), Some("1019"));
        }
        check(1016, 1020);
        index.insert_all([&entry(1, "", "empty")]);
        assert_eq!((value(&index, "a").as_deref(), value(&index, "").as_deref()), (Some("empty"), Some("empty")));
    }

    #[test]
    fn the_first_of_many_regular_expressions_wins() {
        for count in [3_u64, 50, 1001] {
            let index = index(Method::Reg);
            let all: Vec<_> =
                (1..=count).map(|number| entry(number, &format!("^/x{number}(/|$)|y$"), &number.to_string())).collect();
            index.insert_all(&all);
            assert_eq!(index.expressions.load().is_some(), count == 50);
            for number in [1, count / 2, count] {
                assert_eq!(value(&index, &format!("/x{number}/a")), Some(number.to_string()));
            }
            assert_eq!((value(&index, "/ay").as_deref(), value(&index, "/x0")), (Some("1"), None));
            index.remove_all(&all[..1]);
            assert_eq!((value(&index, "/ay").as_deref(), value(&index, "/x1/a")), (Some("2"), None));
        }
    }

    #[test]
    fn regular_expressions_stay_as_they_are_when_others_change() {
        let index = index(Method::Reg);
        index.insert_all(&[entry(1, "^a", "1"), entry(3, "c$", "3")]);
        let before = index.others.load_full();
        index.insert_all(&[entry(2, "b", "2"), entry(4, "d", "4")]);
        let after = index.others.load_full();
        assert_eq!((after.len(), value(&index, "bc").as_deref()), (4, Some("2")));
        assert!(Arc::ptr_eq(&before[0], &after[0]) && Arc::ptr_eq(&before[1], &after[2]));
        index.remove_all(&after[1..2].iter().map(|other| Arc::clone(&other.hit.entry)).collect::<Vec<_>>());
        assert_eq!(value(&index, "bc").as_deref(), Some("3"));
        assert!(Arc::ptr_eq(&before[1], &index.others.load()[1]));
    }
}
