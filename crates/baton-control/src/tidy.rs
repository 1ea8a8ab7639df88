//! Memory after changes: what a configuration held lies scattered between what is in use.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use baton_kernel::process::memory;

/// How long after a change, when the last request that works by the old configuration is likely over.
const AFTER: Duration = Duration::from_secs(2);

/// Gives freed memory back to the system some time after a change, once for however many there are meanwhile.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tidy {
    planned: Rc<Cell<bool>>,
}

impl Tidy {
    /// Plans it, on another thread: this one has changes to make. Within a `LocalSet`.
    pub(crate) fn later(&self) {
        if self.planned.replace(true) {
            return;
        }
        let planned = self.planned.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(AFTER).await;
            planned.set(false);
            // It fails only when the process ends.
            let _ = tokio::task::spawn_blocking(memory::give_back).await;
        });
    }
}
