//! What a process can take of connections that come from another one.
//!
//! Formats of descriptions up to 3 are a line: who knows one knows those before. What was added since are *kinds*, each of which a process
//! knows or does not: it says in words which it takes, and each description says which it needs. A connection goes only to a process that
//! takes all that it needs; a description with a word that is unknown here is refused, and the connection stays where it is.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What a description may need besides its format.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MoveKind {
    /// What rules have left in a session: variables, captures, tracked entries of stick tables.
    SessionState,
    /// Our own record layer, on either side.
    Tls,
    /// A request in flight.
    Requests,
    /// A connection with HTTP/2.
    Http2,
    /// An idle connection to a server.
    ServerPools,
    /// One with HTTP/2.
    Http2Servers,
    /// A session with bytes that its receiver has not taken.
    HeldBytes,
    /// A request whose head has begun to come.
    RequestHeads,
}

impl MoveKind {
    /// All of them, with what they are called between processes.
    const ALL: [(MoveKind, &str); 8] = [
        (MoveKind::SessionState, "session-state"),
        (MoveKind::Tls, "tls"),
        (MoveKind::Requests, "requests"),
        (MoveKind::Http2, "http2"),
        (MoveKind::ServerPools, "server-pools"),
        (MoveKind::Http2Servers, "http2-servers"),
        (MoveKind::HeldBytes, "held-bytes"),
        (MoveKind::RequestHeads, "request-heads"),
    ];
}

/// Stands for words that are unknown here where they are passed on: it is none of a kind, and never will be.
const UNKNOWN: &str = "unknown";

/// Those that this program takes.
const TAKEN: &[MoveKind] = &[
    MoveKind::SessionState,
    MoveKind::Tls,
    MoveKind::Requests,
    MoveKind::Http2,
    MoveKind::ServerPools,
    MoveKind::Http2Servers,
    MoveKind::HeldBytes,
    MoveKind::RequestHeads,
];

/// Some kinds, as a list of their words between processes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct MoveKinds {
    /// A bit for each, at its place.
    known: u32,
    /// There are words that are unknown here.
    has_unknown: bool,
}

impl MoveKinds {
    /// Those that this program takes.
    pub fn taken() -> MoveKinds {
        TAKEN.iter().copied().collect()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        *self == MoveKinds::default()
    }

    /// Whether a process takes all of these that takes `taken`.
    pub fn is_within(self, taken: MoveKinds) -> bool {
        !self.has_unknown && self.known & !taken.known == 0
    }

    /// Those that both have.
    pub fn common(self, other: MoveKinds) -> MoveKinds {
        MoveKinds { known: self.known & other.known, has_unknown: false }
    }

    /// Whether this one is among them.
    pub fn has(self, kind: MoveKind) -> bool {
        self.known & bit(kind) != 0
    }

    /// This one, too.
    pub fn add(&mut self, kind: MoveKind) {
        self.known |= bit(kind);
    }
}

fn bit(kind: MoveKind) -> u32 {
    1 << kind as u8
}

impl FromIterator<MoveKind> for MoveKinds {
    fn from_iter<T: IntoIterator<Item = MoveKind>>(kinds: T) -> MoveKinds {
        let mut all = MoveKinds::default();
        kinds.into_iter().for_each(|kind| all.add(kind));
        all
    }
}

impl Serialize for MoveKinds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = MoveKind::ALL.iter().filter(|(kind, _)| self.has(*kind)).map(|(_, word)| *word);
        serializer.collect_seq(known.chain(self.has_unknown.then_some(UNKNOWN)))
    }
}

impl<'de> Deserialize<'de> for MoveKinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<MoveKinds, D::Error> {
        deserializer.deserialize_seq(Words)
    }
}

struct Words;

impl<'de> Visitor<'de> for Words {
    type Value = MoveKinds;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of words")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut words: A) -> Result<MoveKinds, A::Error> {
        let mut kinds = MoveKinds::default();
        while let Some(word) = words.next_element::<Cow<'de, str>>()? {
            match MoveKind::ALL.iter().find(|(_, known)| *known == word) {
                Some((kind, _)) => kinds.add(*kind),
                None => kinds.has_unknown = true,
            }
        }
        Ok(kinds)
    }
}

/// What a process takes of connections that move.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Takes {
    /// The newest format of descriptions; 0: it takes no connections.
    pub format: u32,
    /// What they may need besides.
    pub kinds: MoveKinds,
}

impl Takes {
    /// No connection.
    pub const NONE: Takes = Takes { format: 0, kinds: MoveKinds { known: 0, has_unknown: false } };

    /// Whether it takes any.
    pub fn any(self) -> bool {
        self.format > 0
    }

    /// Whether it takes what is described in this format and needs these.
    pub fn covers(self, format: u32, needs: MoveKinds) -> bool {
        format <= self.format && needs.is_within(self.kinds)
    }

    /// What both take.
    pub fn common(self, other: Takes) -> Takes {
        Takes { format: self.format.min(other.format), kinds: self.kinds.common(other.kinds) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> MoveKinds {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn kinds_are_words() {
        for (at, (kind, word)) in MoveKind::ALL.into_iter().enumerate() {
            let text = format!("[\"{word}\"]");
            let kinds: MoveKinds = [kind].into_iter().collect();
            assert_eq!((kind as usize, read(&text), serde_json::to_string(&kinds).unwrap()), (at, kinds, text));
        }
        assert!(read("[]").is_empty());
        assert!(!read(r#"["later"]"#).is_empty());
        assert_eq!(read(&serde_json::to_string(&read(r#"["later"]"#)).unwrap()), read(r#"["later"]"#));
        let all = read(r#"["server-pools","http2","tls","http2-servers","session-state","requests","tls"]"#);
        assert_eq!(
            serde_json::to_string(&all).unwrap(),
            r#"["session-state","tls","requests","http2","server-pools","http2-servers"]"#
        );
    }

    #[test]
    fn a_connection_goes_where_all_that_it_needs_is_taken() {
        let check = |format, needs: &str, taken: &str, expect| {
            let takes = Takes { format: 3, kinds: read(taken) };
            assert_eq!(takes.covers(format, read(needs)), expect, "{format} {needs} {taken}");
        };
        check(3, "[]", "[]", true);
        check(4, "[]", "[]", false);
        check(3, r#"["tls"]"#, r#"["http2","tls"]"#, true);
        check(3, r#"["tls"]"#, r#"["http2"]"#, false);
        check(3, r#"["tls","http2"]"#, r#"["http2"]"#, false);
        // What neither knows is not understood, even if both say it.
        check(1, r#"["later"]"#, r#"["later"]"#, false);
        // What the other takes besides does not matter.
        check(1, r#"["tls"]"#, r#"["later","tls"]"#, true);
        assert!(!Takes::NONE.covers(1, MoveKinds::default()));
        let both = Takes { format: 3, kinds: read(r#"["tls","http2"]"#) }
            .common(Takes { format: 2, kinds: read(r#"["http2","later"]"#) });
        assert_eq!(both, Takes { format: 2, kinds: read(r#"["http2"]"#) });
    }
}
