//! The streams of a connection (RFC 9113 5.1).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use crate::error::Violation;
use crate::window::{ReceiveWindow, SendWindow};

/// How far a message is, in one direction of a stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Half {
    /// Its head is to come (and interim heads before it).
    Head,
    /// Its body is to come, or the rest of it.
    Body,
    /// Nothing follows.
    Ended,
}

/// Who reset a stream.
#[derive(Copy, Clone, Eq, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum ResetBy {
    Peer,
    Us,
}

/// A stream that its consumer has not given back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stream {
    pub id: u32,
    pub receiving: Half,
    pub sending: Half,
    /// Nothing more comes or goes.
    pub reset: Option<ResetBy>,
    pub receive_window: ReceiveWindow,
    pub send_window: SendWindow,
    /// Bytes of the body that its `content-length` still wants; `None`: it has none.
    pub expected: Option<u64>,
    /// Bytes of the body that the consumer has not taken.
    pub unconsumed: u32,
    /// Our request was HEAD: the response has no body, whatever its `content-length` says.
    pub is_head: bool,
    /// A GOAWAY said that the peer has not processed it: it may be repeated elsewhere.
    pub is_unprocessed: bool,
}

/// What becomes of the DATA of a stream.
pub(crate) enum DataTaken {
    Taken,
    /// We have reset the stream, and the peer did not know.
    Ignored,
    Violation(Violation),
}

impl Stream {
    /// Takes a DATA frame of `len` bytes, `bytes` of them without padding.
    pub fn take_data(&mut self, len: u32, bytes: u32, ends: bool) -> DataTaken {
        match (self.reset, self.receiving) {
            (Some(ResetBy::Us), _) => return DataTaken::Ignored,
            (Some(ResetBy::Peer), _) => return DataTaken::Violation(Violation::StreamClosed),
            (None, Half::Ended) => return DataTaken::Violation(Violation::StreamHalfClosed),
            (None, Half::Head) => return DataTaken::Violation(Violation::DataBeforeHead),
            (None, Half::Body) => {}
        }
        if !self.receive_window.charge(len) {
            return DataTaken::Violation(Violation::WindowExceeded);
        }
        let bytes = u64::from(bytes);
        if let Some(expected) = self.expected {
            match expected.checked_sub(bytes) {
                Some(left) if !ends || left == 0 => self.expected = Some(left),
                _ => return DataTaken::Violation(Violation::ContentLengthDiffers),
            }
        }
        self.unconsumed += len;
        if ends {
            self.receiving = Half::Ended;
        }
        DataTaken::Taken
    }

    /// Whether it counts as open (RFC 9113 5.1.2). One that the peer has reset does until its consumer is gone: work that cannot be stopped
    /// at once must not be started anew at the same time (CVE-2023-44487).
    pub fn is_open(&self) -> bool {
        self.reset.is_some() || !(self.receiving == Half::Ended && self.sending == Half::Ended)
    }
}

/// The streams, by rising identifier.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Streams {
    list: VecDeque<Stream>,
}

impl Streams {
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Stream> {
        self.place(id).ok().and_then(|at| self.list.get(at))
    }

    #[inline]
    pub fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.place(id).ok().and_then(|at| self.list.get_mut(at))
    }

    /// Adds a stream. Those of one side come in order, so that nearly always it is the last.
    pub fn add(&mut self, stream: Stream) {
        match self.place(stream.id) {
            Ok(at) => self.list[at] = stream,
            Err(at) => self.list.insert(at, stream),
        }
    }

    /// Takes a stream out: nearly always one of the oldest.
    pub fn remove(&mut self, id: u32) -> Option<Stream> {
        self.place(id).ok().and_then(|at| self.list.remove(at))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.list.iter_mut()
    }

    pub fn len(&self) -> usize {
        self.list.len()
    }

    pub fn open(&self) -> usize {
        self.list.iter().filter(|stream| stream.is_open()).count()
    }

    pub fn shrink(&mut self) {
        if self.list.is_empty() {
            self.list = VecDeque::new();
        }
    }

    #[inline]
    fn place(&self, id: u32) -> Result<usize, usize> {
        place_of(&self.list, id, |stream| stream.id)
    }
}

/// Where the stream `id` is in a list by rising identifiers, which `number` tells.
///
/// # Errors
/// It is not there: where it would be.
#[inline]
pub fn place_of<T>(list: &VecDeque<T>, id: u32, number: impl Fn(&T) -> u32) -> Result<usize, usize> {
    let (Some(first), Some(last)) = (list.front(), list.back()) else { return Err(0) };
    if number(last) < id {
        return Err(list.len());
    }
    // Those of one side are numbered by twos, and few are missing in between.
    let likely = (id.saturating_sub(number(first)) / 2) as usize;
    if list.get(likely).is_some_and(|one| number(one) == id) {
        return Ok(likely);
    }
    list.binary_search_by_key(&id, number)
}

/// Streams that we reset while the peer could still send: what is on its way is ignored (RFC 9113 5.1).
const FORGIVEN_MAX: usize = 64;

/// The last of them.
#[derive(Clone, Default, Debug, Serialize, Deserialize)]
pub(crate) struct Forgiven {
    ids: Vec<u32>,
    next: usize,
}

impl Forgiven {
    pub fn add(&mut self, id: u32) {
        if self.ids.len() < FORGIVEN_MAX {
            self.ids.push(id);
        } else {
            self.ids[self.next % FORGIVEN_MAX] = id;
            self.next = (self.next + 1) % FORGIVEN_MAX;
        }
    }

    pub fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_found_whichever_are_missing() {
        let stream = |id| Stream {
            id,
            receiving: Half::Head,
            sending: Half::Head,
            reset: None,
            receive_window: ReceiveWindow::new(1),
            send_window: SendWindow::new(1),
            expected: None,
            unconsumed: 0,
            is_head: false,
            is_unprocessed: false,
        };
        let mut streams = Streams::default();
        assert!(streams.get(1).is_none());
        let (ids, others) = ([3, 5, 9, 11, 13, 201, 203], [1, 4, 7, 15, 199, 205]);
        ids.iter().for_each(|id| streams.add(stream(*id)));
        for gone in [9, 3, 203, 5, 11, 13, 201] {
            assert!(others.iter().all(|id| streams.get(*id).is_none()));
            assert!(streams.remove(gone).is_some_and(|stream| stream.id == gone));
            assert!(streams.get(gone).is_none() && streams.remove(gone).is_none());
            let left: Vec<u32> = streams.iter_mut().map(|stream| stream.id).collect();
            assert!(left.is_sorted() && left.iter().all(|id| streams.get(*id).is_some_and(|stream| stream.id == *id)));
        }
        assert_eq!(streams.len(), 0);
    }
}
