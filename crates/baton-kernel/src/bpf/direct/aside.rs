//! Maps and program put aside: without a pin, kept by the process that has them open.
//!
//! Maps are made and programs are loaded with root's rights. A process that gave those up keeps what it has, also while nothing
//! is asked for.

use std::os::fd::AsFd;

use aya::maps::MapData;

use super::{Direct, unpin_all};
use crate::KernelError;

/// A name that nothing has for longer than it takes to see whether a process can pin.
const TRIAL: &str = "trial";

impl Direct {
    /// Takes it from all interfaces and out of the file system, for a process that could not make it again: what it has open is all
    /// that is left, until [`take_up`](Self::take_up). Where it could not be pinned again either, as when the folder was removed by somebody
    /// else, it stays where it is, and forwards nothing.
    ///
    /// # Errors
    /// When files could not be removed.
    pub fn put_aside(&mut self) -> Result<(), KernelError> {
        self.forward_nothing();
        if self.is_aside || self.try_to_pin().is_err() {
            return Ok(());
        }
        self.is_aside = true;
        unpin_all(&self.folder)
    }

    /// Pins again what was put aside. Nothing is done when it was not.
    ///
    /// # Errors
    /// When the folder was removed meanwhile, or the kernel refuses it.
    pub fn take_up(&mut self) -> Result<(), KernelError> {
        if !self.is_aside {
            return Ok(());
        }
        // Of another process that was to take over and did not.
        unpin_all(&self.folder)?;
        for (name, map) in &self.maps {
            self.pin_map(map, name)?;
        }
        self.is_aside = false;
        Ok(())
    }

    /// Whether this process can pin something in the folder.
    fn try_to_pin(&self) -> Result<(), KernelError> {
        let Some((_, map)) = self.maps.first() else { return Ok(()) };
        self.folder.unpin(TRIAL)?;
        self.pin_map(map, TRIAL)?;
        self.folder.unpin(TRIAL)
    }

    fn pin_map(&self, map: &MapData, name: &str) -> Result<(), KernelError> {
        let path = self.folder.path();
        self.folder.pin(map.fd().as_fd(), name).map_err(|error| {
            let reason = format!("pinning the BPF map {name}: {error}");
            match self.folder.is_removed() {
                true => KernelError::new(
                    path.display().to_string(),
                    format!("{reason}, because another program removed the directory"),
                    "start a new process that takes over (baton -sf PID) and creates it again",
                ),
                false => KernelError::new(
                    path.display().to_string(),
                    reason,
                    "start a new process that takes over (baton -sf PID)",
                ),
            }
        })
    }
}
