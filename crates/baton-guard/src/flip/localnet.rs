//! `net.ipv4.conf.all.route_localnet`: without it the kernel drops connections from elsewhere that are translated to 127.0.0.1.
//!
//! It is switched on for as long as a flip needs it, by whom it then is remembered, and only together with rules that drop what
//! other machines send to or from loopback addresses: what was unreachable stays unreachable.

use std::{fs, io};

use super::stored::Stored;
use super::{FlipMethod, FlipMethodKind, Flips, KIND, Name, Setting, by_kind};
use crate::KernelError;

/// The lock under which it is changed. No flip has this name: it is too long.
const LOCK: &str = "route-localnet-of-all";
/// The file that is there while it is on by us. It is no flip's own: whichever goes last switches it off.
const FILE: &str = "localnet";
const OPENED: &str = "opened";

/// Of the network namespace of the process that reads it.
const SWITCH: &str = "/proc/sys/net/ipv4/conf/all/route_localnet";

impl Flips {
    /// Lets clients from elsewhere reach loopback addresses, once the rules are there that guard them; and before anything leads
    /// there, so that nobody is dropped on the way.
    pub(super) fn open_localnet(&self, setting: &Setting, method: &dyn FlipMethod) -> Result<(), KernelError> {
        method.guard(setting)?;
        let _lock = self.state.lock(KIND, LOCK)?;
        if is_on() {
            return Ok(());
        }
        // Remembered before it is so: what is forgotten would stay on.
        self.state.write(FILE, OPENED, &true)?;
        switch(true)
    }

    /// Whether it is on by us. What cannot be read was written by us all the same.
    pub(super) fn has_opened_localnet(&self) -> bool {
        self.state.read(FILE, OPENED).unwrap_or(Some(true)).is_some()
    }

    /// Undoes [`open_localnet`](Self::open_localnet), whichever flip did it, unless another one than this needs it.
    pub(super) fn close_localnet(&self, but: &Name) -> Result<(), KernelError> {
        let lock = self.state.lock(KIND, LOCK)?;
        if !self.has_opened_localnet() {
            lock.remove();
            return Ok(());
        }
        if self.is_localnet_needed(but)? {
            return Ok(());
        }
        switch(false)?;
        self.state.remove(FILE, OPENED)?;
        lock.remove();
        Ok(())
    }

    /// Whether another flip than this needs it.
    pub(super) fn is_localnet_needed(&self, but: &Name) -> Result<bool, KernelError> {
        let needs = |name: &String| match self.state.read::<Stored>(KIND, name) {
            Ok(Some(other)) => other.method.needs_localnet(&other.setting),
            Ok(None) => false,
            // It may.
            Err(_) => true,
        };
        Ok(self.state.names(KIND)?.iter().filter(|name| *name != but.as_str()).any(needs))
    }
}

impl Flips {
    /// What an operator must know once a guard of this flip is gone: that the switch is on all the same, because others switched it on,
    /// or because nobody remembers that we did; and that no guard is left that keeps other machines away.
    pub(super) fn exposed(&self, name: &Name) -> Option<String> {
        let is_guarded = |kind: FlipMethodKind| {
            let method = by_kind(kind);
            method.names().unwrap_or_default().iter().any(|name| method.has_guard(name).unwrap_or_default())
        };
        (is_on() && !FlipMethodKind::ALL.into_iter().any(is_guarded)).then(|| warning(name))
    }
}

/// The words for a switch that stays on.
pub(super) fn warning(name: &Name) -> String {
    format!(
        "warning: net.ipv4.conf.all.route_localnet stays on, because there is no record that Baton switched it on: without the \
         guard of {name}, other machines of the network can reach listeners on 127.0.0.0/8; unless something else needs it: \
         `sysctl -w net.ipv4.conf.all.route_localnet=0`"
    )
}

/// Whether it is on.
pub(super) fn is_on() -> bool {
    fs::read_to_string(SWITCH).is_ok_and(|text| text.trim() != "0")
}

/// Whether it could be switched.
pub(super) fn can_switch() -> Result<(), KernelError> {
    fs::OpenOptions::new().write(true).open(SWITCH).map(drop).map_err(|error| refused(&error))
}

/// Switches it.
fn switch(on: bool) -> Result<(), KernelError> {
    fs::write(SWITCH, if on { "1" } else { "0" }).map_err(|error| refused(&error))
}

fn refused(error: &io::Error) -> KernelError {
    let remedy = "remote clients cannot reach an instance on 127.0.0.1 without it: run as root where /proc/sys is writable, or \
        let the instances listen on another address, or on all (--blue :8000)";
    KernelError::new(SWITCH, error.to_string(), remedy)
}
