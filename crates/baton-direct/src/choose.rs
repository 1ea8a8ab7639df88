//! Which engine: what was asked for, or else the one that has services of ours already, or else what this kernel has.
//!
//! Connections are an engine's own, so that the choice is the same as long as it can be: a module that is loaded later changes nothing.

use std::fmt;
use std::str::FromStr;

use crate::ipvs::{self, Ipvs};
use crate::{DirectorSettings, Engine, KernelError, Service, xdp};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EngineChoice {
    /// The one that has services of ours; without any, IPVS where the kernel has it, else XDP.
    #[default]
    Auto,
    /// The kernel's IP Virtual Server.
    Ipvs,
    /// A program of ours on the interfaces.
    Xdp,
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(word: &str) -> Result<EngineChoice, String> {
        match word {
            "auto" => Ok(EngineChoice::Auto),
            "ipvs" => Ok(EngineChoice::Ipvs),
            "xdp" => Ok(EngineChoice::Xdp),
            _ => Err(format!("unknown engine `{word}`; expected `auto`, `ipvs` or `xdp`")),
        }
    }
}

impl fmt::Display for EngineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            EngineChoice::Auto => "auto",
            EngineChoice::Ipvs => "ipvs",
            EngineChoice::Xdp => "xdp",
        })
    }
}

const ASKED_FOR: &str = "set by the configuration";
const KERNEL_HAS_IT: &str = "the kernel has IPVS, which supports every scheduler, tunnels and masquerading";

const HAS_OURS: &str = "it already has services of Baton with open connections";

/// All engines' names.
pub const NAMES: [&str; 2] = ["ipvs", "xdp"];

/// What an engine can never do of a service, and what an operator should know of it, by the configuration alone: this machine need not
/// have the engine. Of `auto` nobody knows yet.
pub fn judge(asked: EngineChoice, service: &Service) -> (Vec<String>, Vec<String>) {
    match asked {
        EngineChoice::Auto => (Vec::new(), Vec::new()),
        EngineChoice::Ipvs => (ipvs::judge(service), ipvs::refuses_clients(service).into_iter().collect()),
        EngineChoice::Xdp => (xdp::judge(service), xdp::advise(service)),
    }
}

/// Opens the engine, and says in a sentence why it is this one. `holder` is the name of the one that has services of ours.
///
/// # Errors
/// With what is missing for the one asked for, or for each of them.
pub fn engine(
    asked: EngineChoice,
    holder: Option<&str>,
    settings: &DirectorSettings,
) -> Result<(Box<dyn Engine>, String), KernelError> {
    let held = holder.and_then(|name| name.parse().ok()).filter(|held| *held != EngineChoice::Auto);
    match (asked, held) {
        (EngineChoice::Ipvs | EngineChoice::Xdp, _) => Ok((open(asked, settings)?, ASKED_FOR.into())),
        (EngineChoice::Auto, Some(held)) => match open(held, settings) {
            Ok(engine) => Ok((engine, HAS_OURS.into())),
            // Who opened it says what becomes of the services.
            Err(_) => any(settings),
        },
        (EngineChoice::Auto, None) => any(settings),
    }
}

fn open(engine: EngineChoice, settings: &DirectorSettings) -> Result<Box<dyn Engine>, KernelError> {
    match engine {
        EngineChoice::Ipvs => Ok(Box::new(Ipvs::open()?)),
        EngineChoice::Xdp => xdp::open(&settings.xdp),
        EngineChoice::Auto => any(settings).map(|(engine, _)| engine),
    }
}

/// The first that this kernel has.
fn any(settings: &DirectorSettings) -> Result<(Box<dyn Engine>, String), KernelError> {
    let no_ipvs = match Ipvs::open() {
        Ok(ipvs) => return Ok((Box::new(ipvs), KERNEL_HAS_IT.into())),
        Err(fault) => fault,
    };
    match xdp::open(&settings.xdp) {
        Ok(xdp) => Ok((xdp, format!("the kernel's IPVS cannot be used ({}: {})", no_ipvs.place, no_ipvs.reason))),
        Err(no_xdp) => {
            Err(KernelError::new("engine auto", format!("neither engine can be used: {no_ipvs}; and {no_xdp}"), ""))
        }
    }
}
