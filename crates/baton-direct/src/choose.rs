//! Which engine: what was asked for, or what this kernel has.

use std::fmt;
use std::str::FromStr;

use crate::ipvs::Ipvs;
use crate::{Engine, Fault, Settings, xdp};

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Asked {
    /// IPVS where the kernel has it, else XDP.
    #[default]
    Auto,
    /// The kernel's IP Virtual Server.
    Ipvs,
    /// A program of ours on the interfaces.
    Xdp,
}

impl FromStr for Asked {
    type Err = String;

    fn from_str(word: &str) -> Result<Asked, String> {
        match word {
            "auto" => Ok(Asked::Auto),
            "ipvs" => Ok(Asked::Ipvs),
            "xdp" => Ok(Asked::Xdp),
            _ => Err(format!("`{word}` is no engine; there are `auto`, `ipvs` and `xdp`")),
        }
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Asked::Auto => "auto",
            Asked::Ipvs => "ipvs",
            Asked::Xdp => "xdp",
        })
    }
}

const ASKED_FOR: &str = "the configuration asks for it";
const KERNEL_HAS_IT: &str = "the kernel has IPVS, which knows every scheduler, tunnels and masquerading";

/// All engines' names.
pub const NAMES: [&str; 2] = ["ipvs", "xdp"];

/// Opens the engine, and says in a sentence why it is this one.
///
/// # Errors
/// With what is missing for the one asked for, or for each of them.
pub fn engine(asked: Asked, settings: &Settings) -> Result<(Box<dyn Engine>, String), Fault> {
    match asked {
        Asked::Ipvs => Ok((Box::new(Ipvs::open()?), ASKED_FOR.into())),
        Asked::Xdp => Ok((xdp::open(&settings.xdp)?, ASKED_FOR.into())),
        Asked::Auto => match Ipvs::open() {
            Ok(ipvs) => Ok((Box::new(ipvs), KERNEL_HAS_IT.into())),
            Err(no_ipvs) => match xdp::open(&settings.xdp) {
                Ok(xdp) => {
                    Ok((xdp, format!("the kernel's IPVS cannot be used ({}: {})", no_ipvs.place, no_ipvs.reason)))
                }
                Err(no_xdp) => {
                    Err(Fault::new("engine auto", format!("neither engine can be used: {no_ipvs}; and {no_xdp}"), ""))
                }
            },
        },
    }
}
