//! What expressions read and change of an entry of a stick table, whoever found it.

use baton_model::DataType;
use baton_tables::{Now, Tracked};

/// A number of an entry. A general-purpose counter or tag of its own name may be the first or second element of an array instead.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredNumber {
    data: DataType,
    array: Option<(DataType, u8)>,
}

impl StoredNumber {
    pub const GPT0: StoredNumber = StoredNumber::or(DataType::Gpt0, DataType::Gpt, 0);
    pub const GPC0: StoredNumber = StoredNumber::or(DataType::Gpc0, DataType::Gpc, 0);
    pub const GPC1: StoredNumber = StoredNumber::or(DataType::Gpc1, DataType::Gpc, 1);
    pub const GPC0_RATE: StoredNumber = StoredNumber::or(DataType::Gpc0Rate, DataType::GpcRate, 0);
    pub const GPC1_RATE: StoredNumber = StoredNumber::or(DataType::Gpc1Rate, DataType::GpcRate, 1);

    /// What is stored by that name alone.
    pub const fn of(data: DataType) -> StoredNumber {
        StoredNumber { data, array: None }
    }

    const fn or(data: DataType, array: DataType, index: u8) -> StoredNumber {
        StoredNumber { data, array: Some((array, index)) }
    }

    /// Its value now; `None`: it is not stored.
    pub fn get(self, entry: &Tracked, now: Now) -> Option<u64> {
        let (data, index) = self.place(entry);
        entry.get(data, index, now)
    }

    /// Where it is.
    pub fn place(self, entry: &Tracked) -> (DataType, u8) {
        match self.array {
            Some(array) if !entry.has(self.data) => array,
            Some(_) | None => (self.data, 0),
        }
    }
}

/// Counts one in a general-purpose counter and in its rate, as far as they are stored; gives the counter's value then.
pub(crate) fn increment(entry: &Tracked, counter: (DataType, u8), rate: (DataType, u8), now: Now) -> u64 {
    entry.add(rate.0, rate.1, 1, now);
    match entry.add(counter.0, counter.1, 1, now) {
        true => entry.get(counter.0, counter.1, now).unwrap_or_default(),
        false => 0,
    }
}

/// An index as an argument gives it; one that no array has is out of all of them.
pub(crate) fn index(argument: Option<i64>) -> u8 {
    argument.and_then(|index| u8::try_from(index).ok()).unwrap_or(u8::MAX)
}
