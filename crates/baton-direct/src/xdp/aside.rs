//! What a process without root does while nothing is asked for: it keeps what it could not make again, and nothing is anywhere else.

use std::thread;
use std::time::{Duration, Instant};

use baton_kernel::bpf::direct::Direct;

use super::engine::Xdp;
use crate::KernelError;

/// How long the kernel may take to untie a program from an interface, and how often it is looked whether it has.
const UNTIED_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

impl Xdp {
    /// Takes the program from the interfaces and what is pinned out of the file system; both come back with the next service.
    pub(super) fn put_aside(&mut self) -> Result<(), KernelError> {
        let is_empty = self.services()?.is_empty();
        let Some(direct) = self.direct.as_mut().filter(|_| is_empty) else { return Ok(()) };
        let tied: Vec<u32> = direct.attached()?.into_iter().map(|(interface, _)| interface).collect();
        direct.put_aside()?;
        self.wait_until_untied(&tied)
    }

    /// Waits for what the kernel does a moment after a link is gone: until then the interfaces seem to be somebody else's.
    fn wait_until_untied(&mut self, tied: &[u32]) -> Result<(), KernelError> {
        let end = Instant::now() + UNTIED_WITHIN;
        let still = self.direct.as_ref().map_or(Ok(Vec::new()), Direct::attached)?;
        loop {
            let links = self.routing.links()?;
            let is_tied = |index: &u32| links.iter().any(|link| link.index == *index && link.has_xdp);
            let is_untied = !tied.iter().any(|index| is_tied(index) && !still.iter().any(|(there, _)| there == index));
            if is_untied || Instant::now() >= end {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
    }
}
