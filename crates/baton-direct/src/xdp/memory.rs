//! How many connections are remembered.
//!
//! Each processor remembers those whose packets it gets, in a share of its own, and gives up its own oldest: what a network card with one
//! queue receives has one share.

use baton_kernel::bpf::direct;

use super::XdpSettings;
use super::engine::Xdp;

/// In all, on any machine: 60 MiB.
const IN_ALL: u64 = 1 << 19;
/// The share of a processor where there are many of them ...
const OF_EACH: u64 = 1 << 16;
/// ... as long as all of it is no more than such a part of the machine's memory.
const PART: u64 = 64;
/// What one takes, about.
const BYTES: u64 = 120;
/// At most, as `tune.xdp.connections` has it.
const MOST: u64 = 1 << 24;

/// As many as a machine with so many processors and bytes of memory remembers when nobody says otherwise.
fn by_machine(processors: u64, memory: u64) -> u32 {
    let shares = (OF_EACH * processors).min(memory / PART / BYTES);
    IN_ALL.max(shares).min(MOST) as u32
}

impl XdpSettings {
    /// How many are remembered by these settings on this machine.
    pub(super) fn remembered(&self) -> u32 {
        self.connections.unwrap_or_else(|| by_machine(direct::processors() as u64, direct::memory()))
    }
}

impl Xdp {
    /// That another number is asked for than there is room for, which was made once; a sentence.
    pub(super) fn remembers_otherwise(&self, settings: &XdpSettings) -> Option<String> {
        let asked = settings.connections?;
        let there = self.direct.as_ref()?.remembered().ok()?;
        // The shares are alike.
        let is_it = (asked..asked.saturating_add(direct::processors() as u32)).contains(&there);
        (!is_it).then(|| {
            format!(
                "tune.xdp.connections {asked}: the connection table has {there} entries since it was created; another size takes effect \
                 when Baton stops with `on-exit flush`, which ends the connections, and starts again"
            )
        })
    }

    /// How many are remembered, in a few words.
    pub(super) fn remembers(&self) -> Option<String> {
        let there = self.direct.as_ref()?.remembered().ok()?;
        Some(match direct::processors() {
            1 => format!("connection table of {there} entries"),
            processors => {
                let each = there as usize / processors;
                format!("connection table of {there} entries, {each} for each of {processors} CPUs")
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_processor_has_its_share_as_far_as_memory_allows() {
        let gib = 1 << 30;
        assert_eq!(by_machine(1, gib), 524_288);
        assert_eq!(by_machine(8, 8 * gib), 524_288);
        assert_eq!(by_machine(16, 16 * gib), 1_048_576);
        assert_eq!(by_machine(128, 256 * gib), 128 * 65_536);
        // A virtual machine for which the kernel keeps room for many.
        assert_eq!(by_machine(128, 4 * gib), 559_240);
        assert_eq!(by_machine(1024, 4096 * gib), 1 << 24);
        assert_eq!(by_machine(128, 0), 524_288);
    }
}
