//! Read buffers, from a pool of the core's own. An idle connection holds none.

use std::fmt;
use std::ops::Deref;

use crate::spare::Spare;

/// Buffers a core keeps for later; more are given back to the allocator. Many, because the next wave of a burst takes them
/// again, for which the allocator would take new memory; they are thinned out every second.
const KEPT_MAX: usize = 4096;

/// A fixed piece of memory with the bytes that were read but not used yet.
///
/// A head that is in use can be pinned: its bytes stay where they are, before the live ones, until
/// [`unpin`](Self::unpin), so that spans into it stay valid while a body passes through the rest.
#[derive(Default)]
pub struct Buffer {
    data: Box<[u8]>,
    pinned: usize,
    start: usize,
    end: usize,
}

impl Buffer {
    /// Room for `size` bytes, empty.
    pub fn new(size: usize) -> Buffer {
        Buffer { data: vec![0; size].into_boxed_slice(), pinned: 0, start: 0, end: 0 }
    }

    /// A buffer of just these bytes, one part behind the other; `None` when there are none.
    pub fn of(parts: &[&[u8]]) -> Option<Buffer> {
        let data = parts.concat().into_boxed_slice();
        (!data.is_empty()).then_some(Buffer { end: data.len(), data, pinned: 0, start: 0 })
    }

    /// Room for at least `size` bytes, with a head that is pinned and bytes behind it.
    pub fn holding(size: usize, pinned: &[u8], bytes: &[u8]) -> Buffer {
        let len = pinned.len() + bytes.len();
        let mut buffer = Buffer::new(size.max(len + 1));
        buffer.data[..pinned.len()].copy_from_slice(pinned);
        buffer.data[pinned.len()..len].copy_from_slice(bytes);
        (buffer.pinned, buffer.start, buffer.end) = (pinned.len(), pinned.len(), len);
        buffer
    }

    /// The free room behind the bytes. Moves them to the front first when nothing is left behind them.
    pub fn room(&mut self) -> &mut [u8] {
        if self.start == self.end {
            self.start = self.pinned;
            self.end = self.pinned;
        } else if self.end == self.data.len() {
            self.compact();
        }
        &mut self.data[self.end..]
    }

    /// Moves the bytes to the front, behind what is pinned.
    pub fn compact(&mut self) {
        if self.start > self.pinned {
            self.data.copy_within(self.start..self.end, self.pinned);
            self.end -= self.start - self.pinned;
            self.start = self.pinned;
        }
    }

    /// `count` bytes were read into [`room`](Self::room).
    pub fn filled(&mut self, count: usize) {
        self.end = (self.end + count).min(self.data.len());
    }

    /// The first `count` bytes are used up.
    pub fn consume(&mut self, count: usize) {
        self.start = (self.start + count).min(self.end);
    }

    /// The first `count` bytes, a head, are used but stay in place for [`pinned`](Self::pinned).
    pub fn pin(&mut self, count: usize) {
        debug_assert!(self.pinned == 0);
        self.compact();
        self.pinned = count.min(self.end);
        self.start = self.pinned;
    }

    /// The pinned bytes.
    pub fn pinned(&self) -> &[u8] {
        &self.data[..self.pinned]
    }

    /// Lets go of the pinned bytes.
    pub fn unpin(&mut self) {
        self.pinned = 0;
    }

    /// Whether no more can be read before something is consumed.
    pub fn is_full(&self) -> bool {
        self.start == self.pinned && self.end == self.data.len()
    }

    /// The whole capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.data.len()
    }

    /// Forgets what it holds, and keeps the memory.
    pub fn clear(&mut self) {
        let Buffer { data: _, pinned, start, end } = self;
        (*pinned, *start, *end) = (0, 0, 0);
    }
}

/// By what they hold, and where: not by their size, and not by bytes that are out of use.
impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        let Buffer { data: _, pinned, start, end } = self;
        (*pinned, *start, *end) == (other.pinned, other.start, other.end)
            && self.pinned() == other.pinned()
            && **self == **other
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Buffer { data, pinned: _, start, end } = self;
        let mut out = out.debug_struct("Buffer");
        out.field("capacity", &data.len()).field("start", start).field("end", end);
        out.field("pinned", &format_args!("{}", self.pinned().escape_ascii()));
        out.field("bytes", &format_args!("{}", self.escape_ascii())).finish()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }
}

/// How many times larger the buffers for long bodies are.
const LARGE: usize = 4;
/// Large buffers a core keeps.
const LARGE_KEPT_MAX: usize = 64;

/// Room of short buffers. Not a power of two: many that begin at the same place of their pages compete for few places in the processor's caches.
const SHORT: usize = 1280;

/// A core's spare buffers of three sizes.
#[derive(Debug)]
pub struct BufferPool {
    size: usize,
    short: Spare<Buffer>,
    usual: Spare<Buffer>,
    large: Spare<Buffer>,
}

impl BufferPool {
    /// A pool of buffers of `size` bytes (`tune.bufsize`).
    pub fn new(size: usize) -> BufferPool {
        BufferPool { size, short: Spare::new(KEPT_MAX), usual: Spare::new(KEPT_MAX), large: Spare::new(LARGE_KEPT_MAX) }
    }

    /// An empty buffer.
    pub fn take(&self) -> Buffer {
        self.usual.take().unwrap_or_else(|| Buffer::new(self.size))
    }

    /// An empty buffer for `bytes` bytes: a short one if they fit, which is [enlarged](Self::enlarge) should more follow.
    pub fn take_for(&self, bytes: usize) -> Buffer {
        if bytes > SHORT || SHORT >= self.size {
            return self.take();
        }
        self.short.take().unwrap_or_else(|| Buffer::new(SHORT))
    }

    /// Makes a short buffer a usual one, with the same in it.
    pub fn enlarge(&self, buffer: &mut Buffer) {
        if buffer.capacity() >= self.size {
            return;
        }
        let mut usual = self.take();
        let (pinned, end) = (buffer.pinned, buffer.pinned + buffer.len());
        usual.data[..pinned].copy_from_slice(buffer.pinned());
        usual.data[pinned..end].copy_from_slice(buffer);
        (usual.pinned, usual.start, usual.end) = (pinned, pinned, end);
        self.give(std::mem::replace(buffer, usual));
    }

    /// Sees to room for so many bytes that wait to be read into a buffer, unless it is a usual one.
    #[inline]
    pub fn see_to_room(&self, buffer: &mut Buffer, waiting: usize) {
        if buffer.capacity() < self.size && buffer.room().len() < waiting {
            self.enlarge(buffer);
        }
    }

    /// An empty buffer for a long body: fewer system calls carry more bytes.
    pub fn take_large(&self) -> Buffer {
        self.large.take().unwrap_or_else(|| Buffer::new(LARGE * self.size))
    }

    /// Gives a buffer of any of the sizes back.
    pub fn give(&self, mut buffer: Buffer) {
        let pool = match buffer.capacity() {
            size if size == self.size => &self.usual,
            size if size == LARGE * self.size => &self.large,
            SHORT => &self.short,
            _ => return,
        };
        buffer.clear();
        pool.give(buffer);
    }

    /// The size of a usual buffer, or of one for a long body.
    pub fn size(&self, is_long: bool) -> usize {
        if is_long { LARGE * self.size } else { self.size }
    }

    /// Frees what was not needed lately: how many bytes.
    pub fn thin(&self) -> usize {
        (self.usual.thin() + self.large.thin() * LARGE) * self.size + self.short.thin() * SHORT
    }

    /// Whether it is one of the large buffers.
    pub fn is_large(&self, buffer: &Buffer) -> bool {
        buffer.capacity() > self.size
    }

    /// Whether a body with so many bytes to come is worth a large buffer.
    pub fn is_long(&self, bytes: u64) -> bool {
        bytes > 2 * self.size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_moves_what_is_left_to_the_front() {
        let mut buffer = Buffer::new(8);
        buffer.room().copy_from_slice(b"abcdefgh");
        buffer.filled(8);
        assert!(buffer.is_full());
        buffer.consume(5);
        assert_eq!(buffer.room().len(), 5);
        assert_eq!(&*buffer, b"fgh");
        buffer.pin(1);
        assert_eq!((buffer.pinned(), &*buffer), (&b"f"[..], &b"gh"[..]));
        assert_eq!(buffer.room().len(), 5);
        buffer.consume(1);
        buffer.compact();
        assert_eq!((buffer.pinned(), &*buffer), (&b"f"[..], &b"h"[..]));
        buffer.unpin();
        buffer.consume(9);
        assert!(buffer.is_empty());
        assert_eq!(buffer.room().len(), 8);
    }

    #[test]
    fn a_short_buffer_is_enlarged_when_more_waits_than_it_has_room_for() {
        let pool = BufferPool::new(2 * SHORT);
        let mut buffer = pool.take_for(SHORT);
        buffer.room()[..9].copy_from_slice(b"head+body");
        buffer.filled(9);
        buffer.pin(5);
        buffer.consume(1);
        pool.see_to_room(&mut buffer, SHORT - 9);
        assert_eq!(buffer.capacity(), SHORT, "there is as much room");
        pool.see_to_room(&mut buffer, SHORT - 8);
        assert_eq!(buffer.capacity(), 2 * SHORT);
        assert_eq!((buffer.pinned(), &*buffer), (&b"head+"[..], &b"ody"[..]));
        assert_eq!(buffer.room().len(), 2 * SHORT - 8);
        let before = buffer.data.as_ptr();
        pool.enlarge(&mut buffer);
        assert_eq!(buffer.data.as_ptr(), before, "it is a usual one");
        assert_eq!(pool.take_for(0).capacity(), SHORT, "the short one was given back");
        assert_eq!(pool.take_for(SHORT + 1).capacity(), 2 * SHORT);
        assert_eq!(
            BufferPool::new(SHORT).take_for(1).capacity(),
            SHORT,
            "no smaller than usual ones that are short themselves"
        );
    }
}
