//! A set of servers by their places in the configuration.

/// A set of small numbers, of which the first is found by looking at few words.
#[derive(Clone, Debug, Default)]
pub(super) struct Bits {
    words: Vec<u64>,
    /// A bit for each word that is not empty.
    summary: Vec<u64>,
    len: usize,
}

impl Bits {
    /// With room for numbers below `bound`.
    pub(super) fn with_room(bound: usize) -> Bits {
        let words = bound.div_ceil(64);
        Bits { words: vec![0; words], summary: vec![0; words.div_ceil(64)], len: 0 }
    }

    /// Whether the number belongs to the set from now on. Beyond the bound, the set makes room.
    pub(super) fn set(&mut self, number: usize, belongs: bool) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
            self.summary.resize(self.words.len().div_ceil(64), 0);
        }
        let before = self.words[word];
        let after = if belongs { before | bit } else { before & !bit };
        self.words[word] = after;
        self.len = self.len + after.count_ones() as usize - before.count_ones() as usize;
        let bit = 1 << (word % 64);
        let summary = &mut self.summary[word / 64];
        *summary = if after == 0 { *summary & !bit } else { *summary | bit };
    }

    /// Whether the number belongs to the set.
    pub(super) fn contains(&self, number: usize) -> bool {
        self.words.get(number / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The smallest one.
    pub(super) fn first(&self) -> Option<usize> {
        let (at, word) = self.summary.iter().enumerate().find(|(_, word)| **word != 0)?;
        let word = at * 64 + word.trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    /// All, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.summary.iter().enumerate().flat_map(|(at, word)| ones(at, *word));
        words.flat_map(|word| ones(word, self.words[word]))
    }
}

/// The numbers of the bits that are set in the `at`-th word.
fn ones(at: usize, mut word: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
        word &= word - 1;
        Some(at * 64 + bit)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn it_is_a_sorted_set() {
        let (mut bits, mut set) = (Bits::with_room(9000), BTreeSet::new());
        assert_eq!(bits.first(), None);
        let mut random = 1u32;
        for _ in 0..2000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (number, belongs) = ((random >> 8) as usize % 9000, random >> 31 == 0);
            bits.set(number, belongs);
            if belongs {
                set.insert(number);
            } else {
                set.remove(&number);
            }
            assert_eq!((bits.len(), bits.first()), (set.len(), set.first().copied()));
        }
        assert!(bits.iter().eq(set));
    }
}
