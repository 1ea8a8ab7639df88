//! Numbers that are the same in every run.

/// A generator after Steele, Lea and Flood (SplitMix64).
pub struct Random {
    state: u64,
}

impl Random {
    /// Seeded with a case and what it is for.
    pub fn new(case: &str, purpose: &str) -> Random {
        let state = case
            .bytes()
            .chain(purpose.bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Random { state }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// One time in `times`.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub fn of<'t, T>(&mut self, list: &'t [T]) -> &'t T {
        &list[self.below(list.len())]
    }

    /// Up to `most` bytes of `alphabet`.
    pub fn text(&mut self, alphabet: &[u8], most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| *self.of(alphabet)).collect()
    }

    /// Up to `most` bytes of any value.
    pub fn bytes(&mut self, most: usize) -> Vec<u8> {
        (0..self.below(most + 1)).map(|_| self.next() as u8).collect()
    }
}
