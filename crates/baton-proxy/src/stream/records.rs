//! Memory for records on their way: what came and is not decrypted yet, what is encrypted and not sent yet, what is decrypted
//! and did not fit into the reader's room. A core lends it; an idle connection holds none.

use crate::spare::Spare;

/// Room for one record of whatever length a peer may send (RFC 5246 6.2.3: 2^14 + 2048 bytes and a header), and for what is
/// sent in most exchanges. Bytes.
const USUAL: usize = 20 * 1024;
/// Room for [`WRITTEN_MAX`] bytes in records, for a handshake message of the longest kind that rustls takes (64 KiB), and for
/// a long body to be received in few calls. Bytes.
const LARGE: usize = 68 * 1024;
/// Pieces of each size that a core keeps.
const KEPT_MAX: usize = 64;
/// Plain bytes that are encrypted and sent together.
pub const WRITTEN_MAX: usize = 64 * 1024;
/// Plain bytes that fit into a usual piece, whatever the lengths of the records.
const USUAL_WRITTEN_MAX: usize = 16 * 1024;

/// A piece of memory with the bytes in use in it.
#[derive(Debug, Default)]
pub struct Records {
    data: Vec<u8>,
    start: usize,
    end: usize,
}

impl Records {
    /// The bytes in use.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// The bytes in use, to be decrypted in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start..self.end]
    }

    /// Whether no byte is in use.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether no more fits behind the bytes, which stand at the very front.
    pub fn is_full(&self) -> bool {
        self.start == 0 && self.end == self.data.len()
    }

    /// The free room behind the bytes, which are moved to the front when there is little.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.data.len() - self.end < USUAL {
            self.data.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.data[self.end..]
    }

    /// Room for `more` bytes behind the bytes, new memory where that is needed.
    pub fn room_for(&mut self, more: usize) -> &mut [u8] {
        if self.room().len() < more {
            self.data.resize(self.end + more, 0);
        }
        &mut self.data[self.end..]
    }

    /// `count` bytes were put into the room.
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.data.len());
    }

    /// The first `count` bytes are used up.
    pub fn consume(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }

    /// Appends bytes.
    pub fn append(&mut self, bytes: &[u8]) {
        self.room_for(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.filled(bytes.len());
    }
}

/// A core's spare pieces.
#[derive(Debug)]
pub struct RecordPool {
    usual: Spare<Records>,
    large: Spare<Records>,
}

impl Default for RecordPool {
    fn default() -> Self {
        RecordPool { usual: Spare::new(KEPT_MAX), large: Spare::new(KEPT_MAX) }
    }
}

impl RecordPool {
    /// An empty piece.
    pub fn take(&self) -> Records {
        self.usual.take().unwrap_or_else(|| Records { data: vec![0; USUAL], start: 0, end: 0 })
    }

    /// An empty piece for much: fewer calls carry more bytes.
    pub fn take_large(&self) -> Records {
        self.large.take().unwrap_or_else(|| Records { data: vec![0; LARGE], start: 0, end: 0 })
    }

    /// An empty piece for that many plain bytes.
    pub fn take_for(&self, plain: usize) -> Records {
        if plain > USUAL_WRITTEN_MAX { self.take_large() } else { self.take() }
    }

    /// A piece with these bytes; `None` for none.
    pub fn filled(&self, bytes: &[u8]) -> Option<Records> {
        if bytes.is_empty() {
            return None;
        }
        let mut piece = if bytes.len() > USUAL { self.take_large() } else { self.take() };
        piece.append(bytes);
        Some(piece)
    }

    /// Whether it is one of the large pieces.
    pub fn is_large(&self, piece: &Records) -> bool {
        piece.data.len() >= LARGE
    }

    /// Gives a piece back.
    pub fn give(&self, mut piece: Records) {
        (piece.start, piece.end) = (0, 0);
        match piece.data.len() {
            USUAL => self.usual.give(piece),
            LARGE => self.large.give(piece),
            _ => {}
        }
    }

    /// Gives a piece back if nothing is in it.
    pub fn settle(&self, place: &mut Option<Records>) {
        if let Some(piece) = place.take_if(|piece| piece.is_empty()) {
            self.give(piece);
        }
    }

    /// Frees what was not needed lately: how many bytes.
    pub fn thin(&self) -> usize {
        self.usual.thin() * USUAL + self.large.thin() * LARGE
    }
}
