//! A method that this program was built without.

use super::method::{Kind, Method, Observed, Step};
use super::{Colour, Name, Setting};
use crate::Fault;

/// In the place of a method.
#[derive(Clone, Copy, Debug)]
pub(super) struct Missing(pub Kind);

impl Missing {
    fn fault(self) -> Fault {
        let remedy = match self.0 {
            Kind::SkLookup => "build it with the cargo feature bpf, which takes clang; or use another method",
            Kind::Nft | Kind::Ipset | Kind::Iptables => "use another method",
        };
        Fault::new(format!("method {}", self.0), "this program was built without it", remedy)
    }
}

impl Method for Missing {
    fn kind(&self) -> Kind {
        self.0
    }

    fn check(&self, _: &Setting) -> Result<(), Fault> {
        Err(self.fault())
    }

    fn observe(&self, _: &Setting) -> Result<Observed, Fault> {
        Err(self.fault())
    }

    fn install(&self, _: &Setting, _: Colour, _: bool) -> Result<(), Fault> {
        Err(self.fault())
    }

    fn switch(&self, _: &Setting, _: Colour) -> Result<(), Fault> {
        Err(self.fault())
    }

    fn remove(&self, _: &Name) -> Result<(), Fault> {
        Err(self.fault())
    }

    fn names(&self) -> Result<Vec<Name>, Fault> {
        Ok(Vec::new())
    }

    fn plan(&self, _: &Setting, _: Step) -> Result<Vec<String>, Fault> {
        Err(self.fault())
    }

    fn plan_removal(&self, _: &Name) -> Result<Vec<String>, Fault> {
        Err(self.fault())
    }
}
