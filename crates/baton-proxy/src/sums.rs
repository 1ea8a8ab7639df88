//! Sums of the process that no proxy has, and that never go back: kept with the counters, for whoever comes after a crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use baton_kernel::cells::{CellMemory, Cells};

/// The name of their record.
pub(crate) const RECORD: &str = "process";

/// A sum.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(usize)]
pub enum ProcessSum {
    /// Connections of frontends that were removed, and sessions of the runtime API in processes before this one.
    Connections,
    /// Requests of frontends that were removed; of a frontend in `mode tcp`, sessions.
    Requests,
    /// Bytes to clients of frontends that were removed.
    BytesOut,
    /// `CumSslConns`: TLS handshakes with clients that were begun.
    TlsHandshakes,
    /// `TotalSplicedBytesOut`: bytes that went through pipes.
    Spliced,
    /// Sessions of the runtime API.
    RuntimeSessions,
    /// Reloads whose configuration came into use.
    ReloadsApplied,
    /// The others.
    ReloadsRejected,
    /// How long all of them took, nanoseconds.
    ReloadsNs,
    /// Clients' connections that came from a process before.
    MovedIn,
    /// Those that went to the next process.
    MovedOut,
    /// Idle connections to servers that came from a process before.
    ServersMovedIn,
    /// Those that went to the next process.
    ServersMovedOut,
}

const SUMS: usize = ProcessSum::ServersMovedOut as usize + 1;

impl ProcessSum {
    /// All of them in their order, with names that never change their meaning.
    pub const NAMED: [(ProcessSum, &str); SUMS] = [
        (ProcessSum::Connections, "connections"),
        (ProcessSum::Requests, "requests"),
        (ProcessSum::BytesOut, "bytes_out"),
        (ProcessSum::TlsHandshakes, "tls_handshakes"),
        (ProcessSum::Spliced, "spliced"),
        (ProcessSum::RuntimeSessions, "runtime_sessions"),
        (ProcessSum::ReloadsApplied, "reloads_applied"),
        (ProcessSum::ReloadsRejected, "reloads_rejected"),
        (ProcessSum::ReloadsNs, "reloads_ns"),
        (ProcessSum::MovedIn, "moved_in"),
        (ProcessSum::MovedOut, "moved_out"),
        (ProcessSum::ServersMovedIn, "servers_moved_in"),
        (ProcessSum::ServersMovedOut, "servers_moved_out"),
    ];
}

/// All sums. What is added to them costs more than an addition: all cores share them.
#[derive(Debug)]
pub struct ProcessSums {
    sums: Cells,
    /// Says how this memory is to be read.
    _layout: Cells,
}

impl ProcessSums {
    /// Zero, in a memory that has none yet and is to be read as `layout` says.
    pub fn new(memory: &Arc<CellMemory>, layout: &str) -> ProcessSums {
        ProcessSums { _layout: memory.take(layout, 0), sums: memory.take(RECORD, SUMS) }
    }

    fn cell(&self, sum: ProcessSum) -> &AtomicU64 {
        &self.sums[sum as usize]
    }

    /// Adds to a sum.
    pub fn add(&self, sum: ProcessSum, amount: u64) {
        self.cell(sum).fetch_add(amount, Ordering::Relaxed);
    }

    /// A sum as it is now.
    pub fn get(&self, sum: ProcessSum) -> u64 {
        self.cell(sum).load(Ordering::Relaxed)
    }

    /// A sum begins anew.
    pub fn clear(&self, sum: ProcessSum) {
        self.cell(sum).store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_stand_in_their_order() {
        let sums = ProcessSums::new(&Arc::new(CellMemory::private()), "");
        for (place, (sum, _)) in ProcessSum::NAMED.iter().enumerate() {
            assert_eq!(*sum as usize, place);
            sums.add(*sum, place as u64 + 1);
        }
        sums.clear(ProcessSum::Requests);
        let seen: Vec<_> = ProcessSum::NAMED.iter().map(|(sum, _)| sums.get(*sum)).collect();
        assert_eq!(seen, [1, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
    }
}
