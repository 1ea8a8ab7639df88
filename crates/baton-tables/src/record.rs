//! An entry as a value: for commands, and for peers.

use std::sync::Arc;

use baton_model::DataType;

use crate::key::OwnedKey;

/// An entry at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// Its key.
    pub key: OwnedKey,
    /// Milliseconds until it expires; `None`: it does not.
    pub expires_ms: Option<u64>,
    /// How many connections and requests track it.
    pub references: u32,
    /// All that is stored with it, by ascending type and index.
    pub values: Vec<(DataType, u8, Value)>,
}

impl Record {
    /// A value of it.
    pub fn value(&self, data: DataType, index: u8) -> Option<&Value> {
        self.values.iter().find(|(of, at, _)| (*of, *at) == (data, index)).map(|(.., value)| value)
    }
}

/// What is stored under a type of data.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Value {
    /// A number or a tag.
    Number(u64),
    /// A rate, as peers exchange it.
    Rate {
        /// Milliseconds since the current period began.
        elapsed_ms: u32,
        /// Events since then.
        current: u32,
        /// Events in the whole period before.
        previous: u32,
    },
    /// A server, by name or address; `None`: no server yet.
    ServerKey(Option<Arc<str>>),
}

impl Value {
    /// What a fetch gives: for a rate of `period` milliseconds its value now. `None` for a text.
    pub fn number(&self, period: u32) -> Option<u64> {
        match self {
            Value::Number(number) => Some(*number),
            Value::Rate { elapsed_ms, current, previous } => {
                let rate = crate::rate::Rate { start: 0, current: *current, previous: *previous };
                Some(rate.value((*elapsed_ms).min(u32::MAX / 2), period))
            }
            Value::ServerKey(_) => None,
        }
    }
}
