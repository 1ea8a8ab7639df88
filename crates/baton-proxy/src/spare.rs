//! Memory a core keeps for whoever needs such a piece next, as much as was needed lately.

use std::cell::{Cell, RefCell};

/// Pieces of one kind, the one used last on top. A burst leaves no more behind than [`thin`](Self::thin) finds needed.
#[derive(Debug)]
pub struct Spare<T> {
    kept: RefCell<Vec<T>>,
    most: usize,
    /// The fewest that lay here since it was thinned last: so many were not needed.
    fewest: Cell<usize>,
}

impl<T> Spare<T> {
    /// Keeps at most that many.
    pub fn new(most: usize) -> Spare<T> {
        Spare { kept: RefCell::default(), most, fewest: Cell::new(0) }
    }

    /// One that was used before.
    pub fn take(&self) -> Option<T> {
        let mut kept = self.kept.borrow_mut();
        let piece = kept.pop();
        self.fewest.set(self.fewest.get().min(kept.len()));
        piece
    }

    /// Keeps a piece, unless there are enough.
    pub fn give(&self, piece: T) {
        let mut kept = self.kept.borrow_mut();
        if kept.len() < self.most {
            kept.push(piece);
        }
    }

    /// Drops half of those that nobody needed since the last time, those unused for longest. How many that are.
    pub fn thin(&self) -> usize {
        let mut kept = self.kept.borrow_mut();
        let surplus = self.fewest.get().min(kept.len()).div_ceil(2);
        kept.drain(..surplus);
        self.fewest.set(kept.len());
        surplus
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_needed_goes_by_halves_and_the_rest_stays() {
        let spare = Spare::new(5);
        let lent: Vec<_> = (0..9).map(|_| spare.take().unwrap_or(0)).collect();
        lent.into_iter().for_each(|piece| spare.give(piece));
        let mut counts = Vec::new();
        for used in [0, 4, 1, 0, 0, 0] {
            let before = spare.kept.borrow().len();
            let dropped = spare.thin();
            counts.push(spare.kept.borrow().len());
            assert_eq!(before - dropped, spare.kept.borrow().len());
            let lent: Vec<_> = (0..used).filter_map(|_| spare.take()).collect();
            lent.into_iter().for_each(|piece| spare.give(piece));
        }
        assert_eq!(counts, [5, 2, 2, 1, 0, 0], "five are kept; three of them are used once, then one, then none");
    }
}
