//! Flow-control windows (RFC 9113 5.2 and 6.9).

use serde::{Deserialize, Serialize};

use crate::frame::MAX_31;

/// What the peer may still send us.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ReceiveWindow {
    /// Below 0 after our SETTINGS have made it smaller.
    left: i32,
    /// Bytes that the consumer took and the peer was not told about yet.
    taken: u32,
    /// The whole window.
    size: u32,
}

impl ReceiveWindow {
    pub fn new(size: u32) -> ReceiveWindow {
        debug_assert!(size <= MAX_31);
        ReceiveWindow { left: size as i32, taken: 0, size }
    }

    /// Whether the state is valid: that of another process need not be.
    pub fn is_sound(&self) -> bool {
        self.size <= MAX_31
    }

    /// Bytes arrived. False: more than were allowed.
    #[inline]
    #[must_use]
    pub fn charge(&mut self, len: u32) -> bool {
        if i64::from(len) > i64::from(self.left) {
            return false;
        }
        self.left -= len as i32;
        true
    }

    /// The consumer took bytes. Returns the increment, when it is worth a frame: half of the window.
    #[inline]
    #[must_use]
    pub fn take(&mut self, len: u32) -> Option<u32> {
        self.taken = self.taken.saturating_add(len);
        (self.taken >= (self.size / 2).max(1)).then(|| self.claim())
    }

    /// The window has another size from now on. Returns the increment, if it grows.
    #[must_use]
    pub fn grow(&mut self, size: u32) -> Option<u32> {
        let more = size.saturating_sub(self.size);
        self.size = size;
        self.taken = self.taken.saturating_add(more);
        (more > 0).then(|| self.claim())
    }

    /// Our SETTINGS were acknowledged: the peer counts from another size.
    pub fn resize(&mut self, from: u32, to: u32) {
        let left = i64::from(self.left) + i64::from(to) - i64::from(from);
        self.left = left.clamp(i64::from(i32::MIN), i64::from(MAX_31)) as i32;
        self.size = to;
    }

    /// All that was taken is given.
    fn claim(&mut self) -> u32 {
        let increment = self.taken.min((i64::from(MAX_31) - i64::from(self.left)).min(i64::from(MAX_31)) as u32);
        self.left = (i64::from(self.left) + i64::from(increment)) as i32;
        self.taken = 0;
        increment
    }
}

/// What we may still send.
#[derive(Copy, Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SendWindow {
    /// Below 0 after the peer's SETTINGS have made it smaller (RFC 9113 6.9.2).
    left: i32,
    /// Someone wanted to send more than was allowed, and is to be woken.
    pub is_awaited: bool,
}

impl SendWindow {
    pub fn new(size: u32) -> SendWindow {
        debug_assert!(size <= MAX_31);
        SendWindow { left: size as i32, is_awaited: false }
    }

    /// Bytes that may be sent.
    #[inline]
    pub fn left(&self) -> usize {
        self.left.max(0) as usize
    }

    /// Bytes are sent, at most those left.
    #[inline]
    pub fn spend(&mut self, len: usize) {
        debug_assert!(len <= self.left());
        self.left = self.left.saturating_sub(len as i32);
    }

    /// The peer gave more, or less by its SETTINGS. False: above 2^31-1.
    #[must_use]
    pub fn add(&mut self, change: i64) -> bool {
        let left = i64::from(self.left) + change;
        self.left = left.clamp(i64::from(i32::MIN), i64::from(MAX_31)) as i32;
        left <= i64::from(MAX_31)
    }

    /// Whether someone waits who can go on now; it is told once.
    #[must_use]
    pub fn wakes(&mut self) -> bool {
        self.left > 0 && std::mem::take(&mut self.is_awaited)
    }
}
