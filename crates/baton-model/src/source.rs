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

/// The words of a line from some point on, as they are written in a configuration. Like two sources, two of them always compare equal:
/// another spelling is not a change.
#[derive(Clone, Debug, Default)]
pub struct Written(pub Arc<str>);

impl PartialEq for Written {
    /// Always true, as of a [`Source`].
    fn eq(&self, _: &Written) -> bool {
        true
    }
}

impl Eq for Written {}

/// Where the keywords of a section stand: in itself, and in the `defaults` section that it begins with. Like two sources, two of them always
/// compare equal.
#[derive(Clone, Debug, Default)]
pub struct KeywordLines {
    /// The last line of each of its own keywords.
    pub own: Box<[(&'static str, Source)]>,
    /// The last line of each keyword of its `defaults`.
    pub inherited: Arc<[(&'static str, Source)]>,
}

impl PartialEq for KeywordLines {
    /// Always true, as of a [`Source`].
    fn eq(&self, _: &KeywordLines) -> bool {
        true
    }
}

impl Eq for KeywordLines {}

impl KeywordLines {
    /// The line of a keyword, and whether it is one of a `defaults` section.
    pub fn find(&self, keyword: &str) -> Option<(&Source, bool)> {
        let of = |lines: &'_ [(&'static str, Source)]| lines.iter().position(|(known, _)| *known == keyword);
        of(&self.own)
            .map(|at| (&self.own[at].1, false))
            .or_else(|| of(&self.inherited).map(|at| (&self.inherited[at].1, true)))
    }
}
