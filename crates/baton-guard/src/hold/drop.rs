//! SYNs are dropped by a rule of our own; clients send them again, the first time after a second.

use super::method::{Method, Notes, Order};
use crate::Fault;

fn absent() -> Fault {
    Fault::new("method drop", "is not there yet", "choose another one by --method")
}

/// Whether this machine allows it.
pub(super) fn usable(_order: &Order) -> Result<(), Fault> {
    Err(absent())
}

/// Prepares it.
pub(super) fn prepare(_order: &Order) -> Result<Box<dyn Method>, Fault> {
    Err(absent())
}

/// Undoes what a dead process left.
pub(super) fn undo(_order: &Order, _notes: &Notes) -> Result<(), Fault> {
    Ok(())
}
