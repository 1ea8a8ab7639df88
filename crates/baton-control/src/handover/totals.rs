//! Sums of a process that no proxy has: where they are counted, and as they are remembered.

use baton_kernel::output::losses;
use baton_proxy::ProcessSum;

use super::memory::{Named, ProcessTotals};

/// Sums that a process has counted, for whoever comes after it; without lost log lines.
pub(crate) fn of_sums(sum: impl Fn(ProcessSum) -> u64) -> ProcessTotals {
    // A session of the runtime API counts as a connection and as a request, as in HAProxy.
    let sessions = sum(ProcessSum::RuntimeSessions);
    ProcessTotals {
        connections: sum(ProcessSum::Connections).saturating_add(sessions),
        requests: sum(ProcessSum::Requests).saturating_add(sessions),
        bytes_out: sum(ProcessSum::BytesOut),
        tls_handshakes: sum(ProcessSum::TlsHandshakes),
        spliced: sum(ProcessSum::Spliced),
        reloads_applied: sum(ProcessSum::ReloadsApplied),
        reloads_rejected: sum(ProcessSum::ReloadsRejected),
        reloads_ns: sum(ProcessSum::ReloadsNs),
        moved_in: sum(ProcessSum::MovedIn),
        moved_out: sum(ProcessSum::MovedOut),
        servers_moved_in: sum(ProcessSum::ServersMovedIn),
        servers_moved_out: sum(ProcessSum::ServersMovedOut),
        lost_lines: Named::default(),
    }
}

/// The sums to which the totals of another process are added.
pub(crate) fn sums(totals: &ProcessTotals) -> [(ProcessSum, u64); 12] {
    [
        (ProcessSum::Connections, totals.connections),
        (ProcessSum::Requests, totals.requests),
        (ProcessSum::BytesOut, totals.bytes_out),
        (ProcessSum::TlsHandshakes, totals.tls_handshakes),
        (ProcessSum::Spliced, totals.spliced),
        (ProcessSum::ReloadsApplied, totals.reloads_applied),
        (ProcessSum::ReloadsRejected, totals.reloads_rejected),
        (ProcessSum::ReloadsNs, totals.reloads_ns),
        (ProcessSum::MovedIn, totals.moved_in),
        (ProcessSum::MovedOut, totals.moved_out),
        (ProcessSum::ServersMovedIn, totals.servers_moved_in),
        (ProcessSum::ServersMovedOut, totals.servers_moved_out),
    ]
}

/// Log lines that were lost, by target.
pub(crate) fn lost_lines() -> Named<u64> {
    let lossy = losses::all().into_iter().filter(|losses| losses.lost() > 0);
    lossy.map(|losses| (losses.name().into(), losses.lost())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_down_is_what_is_added() {
        let counted = |sum: ProcessSum| sum as u64 + 1;
        let sessions = counted(ProcessSum::RuntimeSessions);
        let all = sums(&of_sums(counted));
        for (sum, amount) in all {
            let more = if matches!(sum, ProcessSum::Connections | ProcessSum::Requests) { sessions } else { 0 };
            assert_eq!(amount, counted(sum) + more, "{sum:?}");
        }
        assert_eq!(
            all.len() + 1,
            ProcessSum::NAMED.len(),
            "all but the sessions, which are connections and requests then"
        );
    }
}
