//! `net.ipv4.conf.all.route_localnet`: without it the kernel drops connections from elsewhere that are translated to 127.0.0.1.
//!
//! It is switched on for as long as a flip needs it, by whom it then is remembered, and only together with rules that drop what
//! other machines send to or from loopback addresses: what was unreachable stays unreachable.

use std::{fs, io};

use crate::Fault;

/// Of the network namespace of the process that reads it.
const SWITCH: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

/// Whether it is on.
pub(super) fn is_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() != "0")
}

/// Whether it could be switched.
pub(super) fn can_switch() -> Result<(), Fault> {
    fs::OpenOptions::new().write(true).open(SWITCH).map(drop).map_err(|error| refused(&error))
}

/// Switches it.
pub(super) fn switch(on: bool) -> Result<(), Fault> {
    fs::write(SWITCH, if on { "1" } else { "0" }).map_err(|error| refused(&error))
}

fn refused(error: &io::Error) -> Fault {
    let remedy = "clients from elsewhere cannot reach an instance at 127.0.0.1 without it: run as root where /proc/sys can be \
                      written, or let the instances listen at another address, or at all (--blue :8000)";
    Fault::new(SWITCH, error.to_string(), remedy)
}
