//! The end of a flip.

use super::stored::Stored;
use super::{FlipMethod, FlipMethodKind, FlipReport, Flips, KIND, KernelError, Name, by_kind};

impl Flips {
    /// Removes a flip with all that it has in the kernel, also when nobody remembers it.
    ///
    /// # Errors
    /// What could not be removed; the rest was. Without the right to look, nothing was.
    pub fn remove(&self, name: &Name) -> Result<FlipReport, KernelError> {
        let _lock = self.lock(name)?;
        let found = self.found(name)?;
        let (there, was_guarded) = (found.there, found.is_guarded);
        let mut failed = None;
        // Nobody may reach the loopback once its guard is gone: while this fails, the guard stays.
        self.close_localnet(name)?;
        for method in &there {
            if let Err(fault) = method.remove(name) {
                failed.get_or_insert(fault);
            }
        }
        if let Some(fault) = failed {
            return Err(fault);
        }
        self.state.remove(KIND, name.as_str())?;
        let mut done = FlipReport::line(match (&found.stored, there.is_empty()) {
            (Ok(None), true) => format!("nothing of {name} existed"),
            (Ok(_), _) => format!("{name} is removed"),
            (Err(fault), false) => format!("{name} is removed, with its unreadable file: {}", fault.place),
            (Err(fault), true) => {
                format!("only an unreadable file of {name} existed and is removed: {}", fault.place)
            }
        });
        if was_guarded {
            done.lines.extend(self.exposed(name));
        }
        Ok(done)
    }

    /// What there is of a name that is to be removed.
    pub(super) fn found(&self, name: &Name) -> Result<FlipRemains, KernelError> {
        // A file that cannot be read is no reason to leave rules behind.
        let stored = self.stored(name);
        let (mut there, mut is_guarded) = (Vec::new(), false);
        for kind in FlipMethodKind::ALL {
            let is_its = matches!(&stored, Ok(Some(stored)) if stored.method == kind);
            let method = by_kind(kind);
            if method.names()?.contains(name) || is_its {
                is_guarded |= method.has_guard(name)?;
                there.push(method);
            }
        }
        Ok(FlipRemains { stored, there, is_guarded })
    }
}

/// What there is of a name.
pub(super) struct FlipRemains {
    /// What is remembered, or why it cannot be read.
    pub stored: Result<Option<Stored>, KernelError>,
    /// By which methods something is in the kernel.
    pub there: Vec<Box<dyn FlipMethod>>,
    /// Whether a loopback's guard is among it.
    pub is_guarded: bool,
}
