//! A unit of systemd for each virtual address, so that it is up after the next boot.

use std::fs;
use std::io::{ErrorKind, Write};
use std::net::IpAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use baton_kernel::KernelError;

use super::record::{ActiveVip, ArpSuppression, Tunnels};

/// Where an administrator's units are (systemd.unit(5)).
const FOLDER: &str = "/etc/systemd/system";
/// What starts them.
const WANTED_BY: &str = "multi-user.target";
/// There only while systemd is the system's manager (sd_booted(3)).
pub(super) const BOOTED: &str = "/run/systemd/system";
/// The first line, by which ours are known.
const MARK: &str = "# Made by `baton real-server up --persistent`; `baton real-server down` removes it.";

/// The unit's name for an address. A colon would be right in it, but not to `systemd-analyze verify`.
pub(super) fn name(vip: IpAddr) -> String {
    format!("baton-real-server@{}.service", vip.to_string().replace(':', "-"))
}

fn path(vip: IpAddr) -> PathBuf {
    Path::new(FOLDER).join(name(vip))
}

fn link(vip: IpAddr) -> PathBuf {
    Path::new(FOLDER).join(format!("{WANTED_BY}.wants")).join(name(vip))
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitState {
    Nothing,
    /// One of ours, which is as it would be made now.
    Ours,
    /// One of ours, with other words.
    OursOtherwise,
    /// Somebody else's.
    Foreign,
}

pub(super) fn look(up: &ActiveVip) -> UnitState {
    match fs::read_to_string(path(up.vip)) {
        Ok(found) if found == text(up) && link(up.vip).exists() => UnitState::Ours,
        Ok(found) if found.starts_with(MARK) => UnitState::OursOtherwise,
        Ok(_) => UnitState::Foreign,
        Err(error) if error.kind() == ErrorKind::NotFound => UnitState::Nothing,
        // What cannot be read is not ours to replace.
        Err(_) => UnitState::Foreign,
    }
}

/// Whether systemd runs here and reads units.
pub(super) fn is_read() -> bool {
    Path::new(BOOTED).is_dir()
}

/// Whether a unit of ours is there, whatever its words.
pub(super) fn is_ours(vip: IpAddr) -> bool {
    fs::read_to_string(path(vip)).is_ok_and(|found| found.starts_with(MARK))
}

/// The unit's text.
pub(super) fn text(up: &ActiveVip) -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| PathBuf::from("/usr/sbin/baton"));
    let program = program.display();
    let vip = up.vip;
    let method = match &up.quiet {
        ArpSuppression::ByItself => "",
        ArpSuppression::Settings(_) => " --method sysctl",
        ArpSuppression::Filter(_) => " --method filter",
    };
    let interfaces: String =
        up.quiet.interfaces().iter().map(|interface| format!(" --interface {interface}")).collect();
    let tunnel = match up.tunnel {
        Some(Tunnels::Ipip) => " --tunnel ipip",
        None => "",
    };
    // The filter asks under the interfaces' own addresses, so these must be there.
    let network = if let ArpSuppression::Filter(_) = up.quiet { "network-online.target" } else { "network.target" };
    format!(
        "{MARK}
[Unit]
Description=Virtual address {vip} of a real server
Documentation=man:baton(8)
Wants={network}
After={network} systemd-sysctl.service nftables.service
RequiresMountsFor={program}

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart={program} real-server up --vip {vip}{method}{interfaces}{tunnel} --persistent
ExecStop={program} real-server down --vip {vip} --keep-unit
CapabilityBoundingSet=CAP_NET_ADMIN CAP_NET_RAW CAP_DAC_OVERRIDE
NoNewPrivileges=yes
ProtectHome=yes

[Install]
WantedBy={WANTED_BY}
"
    )
}

/// Writes and enables it.
pub(super) fn write(up: &ActiveVip) -> Result<(), KernelError> {
    let (path, link) = (path(up.vip), link(up.vip));
    let write = || {
        let aside = path.with_extension("new");
        match fs::remove_file(&aside) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // New, so that what somebody put there meanwhile is not written to.
        fs::File::create_new(&aside)?.write_all(text(up).as_bytes())?;
        fs::rename(&aside, &path)?;
        if let Some(folder) = link.parent() {
            fs::create_dir_all(folder)?;
        }
        match symlink(&path, &link) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    };
    write().map_err(|error: std::io::Error| {
        let remedy = match error.kind() {
            ErrorKind::NotFound => "systemd may be missing; without --persistent it is set up until the next boot",
            _ => "run it as root, or omit --persistent",
        };
        KernelError::new(format!("unit {}", path.display()), error.to_string(), remedy)
    })?;
    reload();
    Ok(())
}

/// Disables and removes it, when it is ours.
pub(super) fn remove(vip: IpAddr) -> Result<(), KernelError> {
    for path in [link(vip), path(vip)] {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(KernelError::new(format!("unit {}", path.display()), error.to_string(), "run it as root"));
            }
            Ok(()) | Err(_) => {}
        }
    }
    reload();
    Ok(())
}

/// Has systemd read its units, where it runs. What it thinks of them is seen at the next start.
fn reload() {
    if is_read() {
        let mut command = Command::new("systemctl");
        let _ = command.arg("daemon-reload").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}
