//! What is kept for each stream of a connection, to be found by its number.

use std::collections::VecDeque;

use baton_http2::place_of;

/// Streams in work, by rising numbers: they begin in this order, and end in nearly the same.
#[derive(Debug)]
pub struct ByNumber<T>(VecDeque<(u32, T)>);

impl<T> Default for ByNumber<T> {
    fn default() -> Self {
        ByNumber(VecDeque::new())
    }
}

impl<T> ByNumber<T> {
    /// What is kept for a stream.
    #[inline]
    pub fn get(&self, id: u32) -> Option<&T> {
        let at = self.place(id).ok()?;
        self.0.get(at).map(|(_, kept)| kept)
    }

    /// Keeps something for a stream.
    pub fn insert(&mut self, id: u32, kept: T) {
        match self.place(id) {
            Ok(at) => self.0[at] = (id, kept),
            Err(at) => self.0.insert(at, (id, kept)),
        }
    }

    /// The stream is gone.
    pub fn remove(&mut self, id: u32) -> Option<T> {
        let at = self.place(id).ok()?;
        self.0.remove(at).map(|(_, kept)| kept)
    }

    /// Gives the memory of a connection without streams back.
    pub fn shrink(&mut self) {
        if self.0.is_empty() {
            self.0 = VecDeque::new();
        }
    }

    /// Whether there is no stream.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is kept for the streams from that number on, with their numbers.
    pub fn since(&self, first: u32) -> impl Iterator<Item = &(u32, T)> {
        let (Ok(at) | Err(at)) = self.place(first);
        self.0.range(at..)
    }

    /// What is kept for all of them.
    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|(_, kept)| kept)
    }

    fn place(&self, id: u32) -> Result<usize, usize> {
        place_of(&self.0, id, |(id, _)| *id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_by_their_numbers() {
        let mut streams = ByNumber::default();
        assert_eq!(streams.get(1), None);
        assert_eq!(streams.since(0).count(), 0);
        for id in [1, 3, 7, 9, 21, 5] {
            streams.insert(id, id * 10);
        }
        streams.insert(7, 77);
        assert_eq!(streams.values().copied().collect::<Vec<_>>(), [10, 30, 50, 77, 90, 210]);
        let from = |first| streams.since(first).map(|(id, _)| *id).collect::<Vec<_>>();
        assert_eq!((from(0), from(9), from(10), from(22)), (vec![1, 3, 5, 7, 9, 21], vec![9, 21], vec![21], vec![]));
        assert_eq!((streams.remove(3), streams.remove(3), streams.get(21)), (Some(30), None, Some(&210)));
        for id in [1, 5, 7, 9, 21] {
            assert!(streams.remove(id).is_some());
        }
        streams.shrink();
        assert!(streams.is_empty() && streams.0.capacity() == 0);
    }
}
