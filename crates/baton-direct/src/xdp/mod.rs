//! The engine `xdp`: a BPF program that sees packets before the kernel's network stack does.

use crate::{Engine, Fault};

/// What an operator decides about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where clients' packets come in. Empty: the interfaces through which destinations are reached.
    pub interfaces: Vec<String>,
    /// Connections that are remembered at most; those unused for longest make room.
    pub flows: u32,
}

/// As many connections as are remembered when nobody says otherwise: about 60 MiB.
pub const FLOWS: u32 = 524_288;

impl Default for Settings {
    fn default() -> Settings {
        Settings { interfaces: Vec::new(), flows: FLOWS }
    }
}

/// Opens it for the network namespace of this thread. Nothing is changed before the first step is taken.
///
/// # Errors
/// That this program was built without it, or what is missing here, with what helps.
#[cfg(not(feature = "bpf"))]
pub fn open(_settings: &Settings) -> Result<Box<dyn Engine + Send>, Fault> {
    Err(Fault::new(
        "engine xdp",
        "this baton was built without it",
        "build it with the cargo feature bpf, which takes clang; or use the engine ipvs",
    ))
}

/// Opens it for the network namespace of this thread. Nothing is changed before the first step is taken.
///
/// # Errors
/// What is missing here, with what helps.
#[cfg(feature = "bpf")]
pub fn open(_settings: &Settings) -> Result<Box<dyn Engine + Send>, Fault> {
    Err(Fault::new("engine xdp", "it is not finished", "use the engine ipvs"))
}
