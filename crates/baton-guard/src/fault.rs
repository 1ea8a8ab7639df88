//! Why something could not be done.

pub use baton_kernel::Fault;

use crate::iptables;

impl From<iptables::Error> for Fault {
    fn from(error: iptables::Error) -> Fault {
        // Its sentence has the remedy inside.
        Fault::new("iptables", error.to_string(), "")
    }
}
