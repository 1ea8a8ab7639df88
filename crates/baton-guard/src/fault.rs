//! Why something could not be done.

pub use baton_kernel::KernelError;

use crate::iptables;

impl From<iptables::Error> for KernelError {
    fn from(error: iptables::Error) -> KernelError {
        // Its sentence has the remedy inside.
        KernelError::new("iptables", error.to_string(), "")
    }
}
