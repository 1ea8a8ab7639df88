//! Many patterns that are looked for in one pass through a text: parts of it by an automaton, regular expressions as a set.
//!
//! An automaton is built for all patterns at once, and takes milliseconds for thousands. So a few that come later are looked for one by
//! one beside it, and with more than that each part of the text is looked up again.

use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use memchr::memmem::Finder;
use regex::bytes::RegexSet;

use super::index::Other;
use crate::substitute;

/// Keys that are looked for one by one.
const SINGLE_MAX: usize = 8;

/// Bytes of all keys of an automaton; it takes some ten times as much memory.
const AUTOMATON_BYTES_MAX: usize = 1 << 20;

/// Keys whose automaton is built again for each change.
const REBUILT_MAX: usize = 256;

/// Regular expressions of a set.
const SET_MAX: usize = 1000;

/// Fewer expressions are faster one by one.
const SET_MIN: usize = 4;

/// Keys that are looked for in a text.
#[derive(Debug)]
pub(super) struct Sought {
    /// Looked for one by one.
    single: Vec<Finder<'static>>,
    /// Looked for together. Some may be gone by now.
    together: Option<(AhoCorasick, Vec<Box<[u8]>>)>,
}

impl Sought {
    /// Of these keys. `None`: there are too many.
    pub fn of<'k>(keys: impl ExactSizeIterator<Item = &'k [u8]>) -> Option<Sought> {
        if keys.len() <= SINGLE_MAX {
            return Some(Sought { single: keys.map(|key| Finder::new(key).into_owned()).collect(), together: None });
        }
        let mut bytes = 0;
        let mut list: Vec<Box<[u8]>> = Vec::with_capacity(keys.len());
        for key in keys {
            bytes += key.len();
            if bytes > AUTOMATON_BYTES_MAX {
                return None;
            }
            list.push(key.into());
        }
        let kind = Some(AhoCorasickKind::ContiguousNFA);
        let automaton = AhoCorasick::builder().kind(kind).build(&list).ok()?;
        Some(Sought { single: Vec::new(), together: Some((automaton, list)) })
    }

    /// Whether so many keys are worth building it for, when so many of them are new.
    pub fn is_worth_building(count: usize, changed: usize) -> bool {
        count <= REBUILT_MAX || changed >= count / 4
    }

    /// With keys that are new. `None`: there are too many.
    pub fn with<'k>(&self, keys: impl ExactSizeIterator<Item = &'k [u8]>) -> Option<Sought> {
        if self.single.len() + keys.len() > SINGLE_MAX {
            return None;
        }
        let new = keys.map(|key| Finder::new(key).into_owned());
        let single = self.single.iter().cloned().chain(new).collect();
        Some(Sought { single, together: self.together.clone() })
    }

    /// Calls `take` with each key that is in the text, perhaps more than once.
    pub fn each<'s>(&'s self, text: &[u8], mut take: impl FnMut(&'s [u8])) {
        self.single.iter().filter(|key| key.find(text).is_some()).for_each(|key| take(key.needle()));
        if let Some((automaton, keys)) = &self.together {
            for found in automaton.find_overlapping_iter(text) {
                take(&keys[found.pattern().as_usize()]);
            }
        }
    }
}

/// Regular expressions, in the order of the entries.
#[derive(Debug)]
pub(super) struct ExpressionSet {
    set: RegexSet,
    /// What they are of.
    others: Arc<Vec<Arc<Other>>>,
}

impl ExpressionSet {
    /// Of entries that are all regular expressions. `None`: they are too few to gain, or too many.
    pub fn of(others: &Arc<Vec<Arc<Other>>>, ignore_case: bool) -> Option<ExpressionSet> {
        if !(SET_MIN..=SET_MAX).contains(&others.len()) {
            return None;
        }
        let texts = others.iter().map(|other| other.regex().map(|regex| regex.as_str()));
        let set = substitute::regex_set(&texts.collect::<Option<Vec<_>>>()?, ignore_case)?;
        Some(ExpressionSet { set, others: Arc::clone(others) })
    }

    /// Whether these are the entries that it is of.
    pub fn is_of(&self, others: &Arc<Vec<Arc<Other>>>) -> bool {
        Arc::ptr_eq(&self.others, others)
    }

    /// The place of the first one that matches.
    pub fn first(&self, text: &[u8]) -> Option<usize> {
        // Most texts match none, which is known sooner than which ones match.
        if !self.set.is_match(text) {
            return None;
        }
        self.set.matches(text).iter().next()
    }
}
