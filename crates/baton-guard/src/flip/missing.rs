//! A method that this program was built without.

use super::method::{FlipMethod, FlipMethodKind, Observed, PlanStep};
use super::{Colour, Name, Setting};
use crate::KernelError;

/// Stands for a method that this machine does not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnavailableMethod(pub FlipMethodKind);

impl UnavailableMethod {
    fn fault(self) -> KernelError {
        let remedy = match self.0 {
            FlipMethodKind::SkLookup => {
                "install clang and build it with `make build` (cargo feature bpf), or use another method"
            }
            FlipMethodKind::Nft | FlipMethodKind::Ipset | FlipMethodKind::Iptables => "use another method",
        };
        KernelError::new(format!("method {}", self.0), "this program was built without it", remedy)
    }
}

impl FlipMethod for UnavailableMethod {
    fn kind(&self) -> FlipMethodKind {
        self.0
    }

    fn check(&self, _: &Setting) -> Result<(), KernelError> {
        Err(self.fault())
    }

    fn observe(&self, _: &Setting) -> Result<Observed, KernelError> {
        Err(self.fault())
    }

    fn install(&self, _: &Setting, _: Colour, _: bool) -> Result<(), KernelError> {
        Err(self.fault())
    }

    fn switch(&self, _: &Setting, _: Colour) -> Result<(), KernelError> {
        Err(self.fault())
    }

    fn remove(&self, _: &Name) -> Result<(), KernelError> {
        Err(self.fault())
    }

    fn names(&self) -> Result<Vec<Name>, KernelError> {
        Ok(Vec::new())
    }

    fn plan(&self, _: &Setting, _: PlanStep) -> Result<Vec<String>, KernelError> {
        Err(self.fault())
    }

    fn plan_removal(&self, _: &Name) -> Result<Vec<String>, KernelError> {
        Err(self.fault())
    }
}
