//! Servers by a word: their names, or the values of their persistence cookies.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// An index of servers. The words are the configuration's, of which nobody makes up such that collide; that a request's word
/// may be looked up adds none.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// The first server that has the word.
    first: FxHashMap<Word, u32>,
    /// For each server the next one that has the word too, or [`NOBODY`]. Empty when all words differ.
    others: Vec<u32>,
}

const NOBODY: u32 = u32::MAX;

/// A text that is looked up by its bytes.
#[derive(Debug)]
struct Word(Arc<str>);

impl Words {
    /// Of servers in the order of the configuration, `None` for one without a word.
    pub(super) fn new<'a>(servers: impl DoubleEndedIterator<Item = Option<&'a Arc<str>>> + ExactSizeIterator) -> Words {
        let count = servers.len();
        let mut words = Words::default();
        for (server, word) in servers.enumerate().rev() {
            let Some(word) = word else { continue };
            if let Some(other) = words.first.insert(Word(Arc::clone(word)), server as u32) {
                words.others.resize(count, NOBODY);
                words.others[server] = other;
            }
        }
        words
    }

    /// Whether [`Words::push`] moves none of the others.
    pub(super) fn has_room(&self, word: Option<&Arc<str>>) -> bool {
        word.is_none_or(|word| self.first.len() < self.first.capacity() && !self.first.contains_key(word.as_bytes()))
    }

    /// One server more, behind all others, with a word that none of them has.
    pub(super) fn push(&mut self, server: usize, word: Option<&Arc<str>>) {
        if let Some(word) = word {
            self.first.insert(Word(Arc::clone(word)), server as u32);
        }
    }

    /// A server leaves: it is found by its word no more. The others are not looked at, but for those that have the same word.
    pub(super) fn remove(&mut self, server: usize, word: Option<&Arc<str>>) {
        let Some(word) = word else { return };
        let next = match self.others.get_mut(server) {
            Some(next) => std::mem::replace(next, NOBODY),
            None => NOBODY,
        };
        match self.first.get_mut(word.as_bytes()) {
            Some(first) if *first as usize == server && next == NOBODY => drop(self.first.remove(word.as_bytes())),
            Some(first) if *first as usize == server => *first = next,
            Some(first) => {
                let mut at = *first;
                while let Some(other) = self.others.get_mut(at as usize).filter(|other| **other != NOBODY) {
                    if *other as usize == server {
                        *other = next;
                        break;
                    }
                    at = *other;
                }
            }
            None => {}
        }
    }

    /// Who has that word, in the order of the configuration.
    pub(super) fn find(&self, word: &[u8]) -> impl Iterator<Item = usize> {
        let first = self.first.get(word).copied();
        let next = |server: &u32| self.others.get(*server as usize).copied().filter(|other| *other != NOBODY);
        std::iter::successors(first, next).map(|server| server as usize)
    }
}

impl Borrow<[u8]> for Word {
    fn borrow(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_bytes().hash(state);
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Word) -> bool {
        self.0 == other.0
    }
}

impl Eq for Word {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_finds_all_that_have_it_in_order() {
        let words = ["a", "", "b", "a", "c", "a", "b"].map(|word| (!word.is_empty()).then(|| Arc::from(word)));
        let index = Words::new(words.iter().map(Option::as_ref));
        let find = |word: &[u8]| index.find(word).collect::<Vec<_>>();
        assert_eq!(find(b"a"), [0, 3, 5]);
        assert_eq!(find(b"b"), [2, 6]);
        assert_eq!(find(b"c"), [4]);
        assert!(find(b"").is_empty());
        assert!(find(b"\xff").is_empty());
    }

    #[test]
    fn one_leaves_and_the_others_are_found() {
        let [a, b] = ["a", "b"].map(Arc::<str>::from);
        for (leaves, expect) in [(0, [2, 3]), (2, [0, 3]), (3, [0, 2])] {
            let mut index = Words::new([Some(&a), Some(&b), Some(&a), Some(&a), None].into_iter());
            index.remove(leaves, Some(&a));
            index.remove(1, Some(&b));
            index.remove(4, None);
            assert_eq!(index.find(b"a").collect::<Vec<_>>(), expect, "{leaves}");
            assert!(index.find(b"b").next().is_none());
        }
        let mut index = Words::new([Some(&a)].into_iter());
        index.remove(0, Some(&a));
        assert!(index.find(b"a").next().is_none() && index.first.is_empty());
    }

    #[test]
    fn one_comes_in_place_as_long_as_there_is_room_and_its_word_is_new() {
        let [a, b, c] = ["a", "b", "c"].map(Arc::<str>::from);
        let mut index = Words::new([Some(&a), Some(&b), Some(&a)].into_iter());
        assert!(
            index.has_room(None) && !index.has_room(Some(&a)),
            "the last of those with the word would have to know"
        );
        assert!(!Words::default().has_room(Some(&a)));
        assert!(index.has_room(Some(&c)), "a map of two has room for three");
        index.push(3, None);
        index.push(4, Some(&c));
        let find = |word: &[u8]| index.find(word).collect::<Vec<_>>();
        assert_eq!((find(b"a"), find(b"b"), find(b"c")), (vec![0, 2], vec![1], vec![4]));
    }
}
