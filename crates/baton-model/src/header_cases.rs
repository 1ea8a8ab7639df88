//! The spelling of header names for peers that do not treat them as what they are, without case (configuration manual, `h1-case-adjust`).

use std::collections::BTreeMap;

/// Names in lower case, each with the spelling that is sent.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct HeaderCases(BTreeMap<Box<[u8]>, Box<[u8]>>);

/// Why a spelling is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BadSpelling {
    /// It is another name.
    Other,
    /// The name has a spelling already.
    Duplicate,
}

impl HeaderCases {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a spelling.
    ///
    /// # Errors
    /// See [`BadSpelling`].
    pub fn add(&mut self, from: &str, to: &str) -> Result<(), BadSpelling> {
        if !from.eq_ignore_ascii_case(to) {
            return Err(BadSpelling::Other);
        }
        match self.0.insert(from.as_bytes().into(), to.as_bytes().into()) {
            None => Ok(()),
            Some(_) => Err(BadSpelling::Duplicate),
        }
    }

    /// The spelling of a name in lower case; it is as long as the name.
    pub fn spelling(&self, name: &[u8]) -> Option<&[u8]> {
        self.0.get(name).map(|spelling| &**spelling)
    }
}
