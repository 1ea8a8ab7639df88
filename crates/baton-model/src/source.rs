//! Where a thing was written.

use std::fmt;
use std::sync::Arc;

/// A place in a configuration file. Two sources always compare equal, so that moving a line is not a change.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The file's name as given on the command line.
    pub file: Arc<str>,
    /// The line, from 1; 0 when the thing was not written in a file.
    pub line: u32,
}

impl PartialEq for Source {
    /// Always true: a [`Model`](crate::Model) is compared by what it says, not by where that stands.
    fn eq(&self, _: &Source) -> bool {
        true
    }
}

impl Eq for Source {}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}
