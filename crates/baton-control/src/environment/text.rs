//! Everything that was read for a configuration, as one piece that another process can read again.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use baton_model::Family;

/// Begins every text, with its version.
const MAGIC: &[u8] = b"baton-text 1\n";

/// What was asked of the outside.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueryKey(Vec<u8>);

impl QueryKey {
    /// The content of a file.
    pub fn file(path: &Path) -> QueryKey {
        QueryKey::of(b'f', path.as_os_str().as_bytes())
    }

    /// Whether a path is a directory.
    pub fn directory(path: &Path) -> QueryKey {
        QueryKey::of(b'd', path.as_os_str().as_bytes())
    }

    /// The files of a directory.
    pub fn list(path: &Path) -> QueryKey {
        QueryKey::of(b'l', path.as_os_str().as_bytes())
    }

    /// The addresses of a host.
    pub fn host(name: &str, family: Family) -> QueryKey {
        let family = match family {
            Family::Any => b'h',
            Family::V4 => b'4',
            Family::V6 => b'6',
        };
        QueryKey::of(family, name.as_bytes())
    }

    fn of(kind: u8, name: &[u8]) -> QueryKey {
        QueryKey([&[kind], name].concat())
    }
}

/// Answers by what was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub entries: BTreeMap<QueryKey, Vec<u8>>,
}

impl Text {
    /// The magic word, then each key and its answer, both with their length (eight bytes, big endian) before them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (key, answer) in &self.entries {
            for piece in [&key.0, answer] {
                bytes.extend_from_slice(&(piece.len() as u64).to_be_bytes());
                bytes.extend_from_slice(piece);
            }
        }
        bytes
    }

    /// The way back; `None` when these are other bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Text> {
        let mut left = bytes.strip_prefix(MAGIC)?;
        let mut text = Text::default();
        while !left.is_empty() {
            let key = piece(&mut left)?;
            let answer = piece(&mut left)?;
            text.entries.insert(QueryKey(key), answer);
        }
        Some(text)
    }
}

fn piece(left: &mut &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = left.split_first_chunk::<8>()?;
    let (piece, rest) = rest.split_at_checked(usize::try_from(u64::from_be_bytes(*length)).ok()?)?;
    *left = rest;
    Some(piece.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_again_or_refused_whole() {
        let mut text = Text::default();
        text.entries.insert(QueryKey::file(Path::new("etc/x.cfg")), b"global\n".to_vec());
        text.entries.insert(QueryKey::host("a", Family::V6), Vec::new());
        let bytes = text.to_bytes();
        assert_eq!(Text::from_bytes(&bytes), Some(text));
        for end in MAGIC.len() + 1..bytes.len() {
            let is_between_entries = end == MAGIC.len() + 18;
            assert_eq!(Text::from_bytes(&bytes[..end]).is_some(), is_between_entries, "{end}");
        }
        assert_eq!(Text::from_bytes(b"global"), None);
    }
}
