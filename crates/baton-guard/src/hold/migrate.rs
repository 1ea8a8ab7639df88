//! The kernel moves connections that wait in a closing socket to another one that listens at the address
//! (`net.ipv4.tcp_migrate_req`, Linux 5.14 and newer, IPv6 too). Nothing is held, nobody waits.
//!
//! It helps when the server's sockets share their address (SO_REUSEPORT) and the new ones listen before the old ones close. The setting
//! is one for the whole network namespace: it is switched on for as long as any run needs it. Its value from before lies in a file,
//! and whoever is last puts it back.

use std::fs;

use baton_kernel::state::{Lock, NamespaceId, State};
use serde::{Deserialize, Serialize};

use super::method::{HoldCounts, HoldMethod, HoldOrder, Journal, UndoNotes};
use super::plan::Plan;
use crate::KernelError;

/// The setting.
const SETTING: &str = "/proc/sys/net/ipv4/tcp_migrate_req";
/// Its name for people.
const SETTING_NAME: &str = "net.ipv4.tcp_migrate_req";
/// Counters of this thread's network namespace.
const COUNTERS: &str = "/proc/thread-self/net/netstat";
/// Kind and name of the file with the value from before.
const FILE: (&str, &str) = ("sysctl", "tcp_migrate_req");
/// How often somebody else may put the value back while we begin.
const TRIES: usize = 100;

/// What the file says: the value from before, and where that was.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SavedSetting {
    value: String,
    place: NamespaceId,
}

impl SavedSetting {
    /// What a run left that still needs the setting, or was killed. One of another place is none, and one that cannot be read
    /// is lost.
    fn read(state: &State) -> Option<SavedSetting> {
        state.read::<SavedSetting>(FILE.0, FILE.1).ok().flatten().filter(|before| before.place == NamespaceId::here())
    }
}

/// Whether the kernel has the setting, and it does what was asked for.
pub(super) fn usable(order: &HoldOrder) -> Result<(), KernelError> {
    if !order.interfaces.is_empty() {
        let reason = "the setting applies to the whole network namespace, not to an interface";
        return Err(KernelError::new("method migrate", reason, "omit --interface, or choose another --method"));
    }
    value().map(|_| ())
}

/// Prepares it.
pub(super) fn prepare(_order: &HoldOrder) -> Result<Box<dyn HoldMethod>, KernelError> {
    Ok(Box::new(Migrate { before: value()?, running: None }))
}

/// Puts the value back, unless somebody else needs it still, who will do it then.
pub(super) fn undo(_order: &HoldOrder, _notes: &UndoNotes) -> Result<(), KernelError> {
    put_back()
}

/// Puts the value back for all processes: the last one that needs the setting does it.
pub(super) fn put_back() -> Result<(), KernelError> {
    put_back_in(&State::open(crate::RUN)?)
}

struct Migrate {
    before: String,
    running: Option<Running>,
}

struct Running {
    state: State,
    /// Shared by all runs that need the setting.
    share: Lock,
    /// Of the kernel's counter, when we began.
    moved: u64,
}

impl HoldMethod for Migrate {
    fn plan(&self) -> Plan {
        let back = format!("{SETTING_NAME} = {} again, unless another run still needs it", self.before);
        Plan {
            begin: vec![format!("{SETTING_NAME} = 1 (now {}), for the whole network namespace", self.before)],
            end: vec![back],
            safety: "the setting stays on, which is harmless; the next run, or `baton hold release`, restores it"
                .into(),
        }
    }

    fn begin(&mut self, _journal: &mut dyn Journal) -> Result<(), KernelError> {
        let begun = self.switch_on();
        if begun.is_err() {
            // What cannot be put back now is put back with the next run's.
            let _ = put_back();
        }
        begun
    }

    fn end(&mut self) -> Result<HoldCounts, KernelError> {
        let Some(running) = self.running.take() else { return Ok(HoldCounts::default()) };
        let connections = moved().saturating_sub(running.moved);
        let Running { state, share, .. } = running;
        std::mem::drop(share);
        put_back_in(&state)?;
        Ok(HoldCounts { connections, ..HoldCounts::default() })
    }
}

impl Migrate {
    fn switch_on(&mut self) -> Result<(), KernelError> {
        let state = State::open(crate::RUN)?;
        for _ in 0..TRIES {
            if let Some(_first) = state.try_lock(FILE.0, FILE.1)? {
                // What a run left that was killed is the older truth.
                if SavedSetting::read(&state).is_none() {
                    state.write(FILE.0, FILE.1, &SavedSetting { value: value()?, place: NamespaceId::here() })?;
                }
                if let Err(fault) = set("1") {
                    state.remove(FILE.0, FILE.1)?;
                    return Err(fault);
                }
            }
            let share = state.share(FILE.0, FILE.1)?;
            // Nobody put it back between the two.
            if SavedSetting::read(&state).is_some() {
                self.running = Some(Running { state, share, moved: moved() });
                return Ok(());
            }
        }
        Err(KernelError::new(SETTING_NAME, "is switched on and off by another program", "try again"))
    }
}

/// The last one that needs the setting puts it back. Our own share must be gone.
fn put_back_in(state: &State) -> Result<(), KernelError> {
    let Some(_last) = state.try_lock(FILE.0, FILE.1)? else { return Ok(()) };
    if let Some(before) = SavedSetting::read(state)
        && value()? != before.value
    {
        set(&before.value)?;
    }
    state.remove(FILE.0, FILE.1)
}

fn value() -> Result<String, KernelError> {
    let text = fs::read_to_string(SETTING).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => KernelError::new(
            SETTING_NAME,
            "this kernel does not support it",
            "it needs Linux 5.14; choose another --method",
        ),
        _ => KernelError::io(SETTING_NAME, &error),
    })?;
    Ok(text.trim().to_owned())
}

fn set(value: &str) -> Result<(), KernelError> {
    fs::write(SETTING, value).map_err(|error| KernelError::io(SETTING_NAME, &error))
}

/// How many connections the kernel moved so far; 0 where it does not tell.
fn moved() -> u64 {
    fs::read_to_string(COUNTERS).ok().and_then(|text| counter(&text, "TCPMigrateReqSuccess")).unwrap_or_default()
}

/// A counter of `/proc/net/netstat`: a line of names, and below it one of numbers with the same first word.
fn counter(text: &str, name: &str) -> Option<u64> {
    let lines: Vec<&str> = text.lines().collect();
    lines.chunks_exact(2).find_map(|pair| {
        let at = pair[0].split_ascii_whitespace().position(|word| word == name)?;
        pair[1].split_ascii_whitespace().nth(at)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: A B TCPMigrateReqSuccess\nTcpExt: 1 2 3\nIpExt: C\nIpExt: 4\n";
        assert_eq!(counter(text, "TCPMigrateReqSuccess"), Some(3));
        assert_eq!(counter(text, "C"), Some(4));
        assert_eq!((counter(text, "D"), counter("TcpExt: A\n", "A"), counter("", "A")), (None, None, None));
    }
}
