//! Bytes with keys among them: wherever they were, they are wiped.

use std::io;
use std::ops::{Deref, DerefMut};

use zeroize::{Zeroize, Zeroizing};

/// Bytes that grow at their end and are used up from their front, and leave no copy behind.
#[derive(Debug, Default)]
pub struct Wiped(Zeroizing<Vec<u8>>);

impl Wiped {
    /// Makes room for `more` bytes, which need no other memory then.
    pub fn reserve(&mut self, more: usize) {
        let needed = self.0.len() + more;
        if needed > self.0.capacity() {
            let mut larger = Zeroizing::new(Vec::with_capacity(needed.max(2 * self.0.capacity())));
            larger.extend_from_slice(&self.0);
            self.0 = larger;
        }
    }

    /// The first `count` bytes are used up.
    pub fn consume(&mut self, count: usize) {
        let left = self.0.len().saturating_sub(count);
        let used = self.0.len() - left;
        self.0.copy_within(used.., 0);
        self.0[left..].zeroize();
        self.0.truncate(left);
    }
}

impl Deref for Wiped {
    type Target = Vec<u8>;

    fn deref(&self) -> &Vec<u8> {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }
}

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.reserve(bytes.len());
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn bytes_come_and_go() {
        let mut wiped = Wiped::default();
        for number in 0..100_u8 {
            wiped.write_all(&[number; 100]).unwrap();
        }
        assert_eq!(wiped.len(), 10_000);
        wiped.consume(150);
        assert_eq!((wiped.len(), wiped[0], wiped[49], wiped[50]), (9850, 1, 1, 2));
        let capacity = wiped.capacity();
        wiped.consume(20_000);
        assert_eq!((wiped.len(), wiped.capacity()), (0, capacity));
        wiped.reserve(capacity);
        assert_eq!(wiped.capacity(), capacity, "there is room");
    }
}
