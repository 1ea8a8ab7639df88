//! The last malformed message of each proxy (`show errors`): a request by its frontend, a response by its backend. Written where a message
//! turns out to be malformed, which costs a lock and a copy then and nothing otherwise.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Bytes of a message that are kept.
const BYTES_MAX: usize = 16 * 1024;

/// A message that was none.
#[derive(Clone, Debug)]
pub struct Capture {
    /// Its number, from 0, among those of the process.
    pub number: u64,
    /// When it came.
    pub at: SystemTime,
    /// The client.
    pub source: Option<SocketAddr>,
    /// The frontend that its client came in by.
    pub frontend: (Arc<str>, u32),
    /// Of a response, the server that sent it.
    pub server: Option<Arc<str>>,
    /// What was received, as far as it is kept.
    pub bytes: Vec<u8>,
    /// How many there were.
    pub len: usize,
    /// Which of them is at fault.
    pub position: usize,
}

/// The last malformed message of a proxy.
#[derive(Debug, Default)]
pub struct LastCapture(Mutex<Option<Arc<Capture>>>);

/// How many there were in all.
#[derive(Debug, Default)]
pub struct CaptureCount(AtomicU64);

impl CaptureCount {
    /// How many.
    pub fn total(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The number of one more.
    pub(crate) fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}

impl LastCapture {
    /// The last one.
    pub fn get(&self) -> Option<Arc<Capture>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps one in the place of the one before.
    pub(crate) fn keep(&self, capture: Capture) {
        let capture = Arc::new(capture);
        let before = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(capture);
        drop(before);
    }
}

impl Capture {
    /// The bytes that are kept.
    pub(crate) fn kept(bytes: &[u8]) -> Vec<u8> {
        bytes[..bytes.len().min(BYTES_MAX)].to_vec()
    }
}
