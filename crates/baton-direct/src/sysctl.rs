//! Settings of the kernel's network (sysctl(8)): read, set, and judged for a director and for a real server.
//!
//! They are those of the calling thread's network namespace. What is judged is said, never changed.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::PathBuf;

use baton_kernel::KernelError;

/// Where they are.
const FOLDER: &str = "/proc/sys";
/// Bytes of a value that are read at most.
const VALUE_MAX: usize = 4096;

/// A setting, by its path below `/proc/sys`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Sysctl(String);

impl Sysctl {
    /// By its path, such as `net/ipv4/ip_forward`.
    pub fn new(path: impl Into<String>) -> Sysctl {
        Sysctl(path.into())
    }

    /// Of IPv4 on an interface, or on `all` or `default`.
    pub fn ipv4(interface: &str, name: &str) -> Sysctl {
        Sysctl(format!("net/ipv4/conf/{interface}/{name}"))
    }

    /// Of IPv6 on an interface, or on `all` or `default`.
    pub fn ipv6(interface: &str, name: &str) -> Sysctl {
        Sysctl(format!("net/ipv6/conf/{interface}/{name}"))
    }

    /// Its last word, such as `arp_ignore`.
    pub(crate) fn name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }

    /// This setting for `all` interfaces; `None` unless it belongs to an interface.
    pub(crate) fn of_all(&self) -> Option<Sysctl> {
        let (before, rest) = self.0.split_once("/conf/")?;
        let (_, name) = rest.rsplit_once('/')?;
        Some(Sysctl(format!("{before}/conf/all/{name}")))
    }

    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(FOLDER).join(&self.0)
    }

    /// Its value; `None` when the kernel has no such setting.
    ///
    /// # Errors
    /// When it is there and cannot be read.
    pub fn read(&self) -> Result<Option<String>, KernelError> {
        match fs::read(self.path()) {
            Ok(mut bytes) => {
                bytes.truncate(VALUE_MAX);
                Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned()))
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Its value, where it is a number.
    pub fn number(&self) -> Option<i64> {
        self.read().ok().flatten()?.parse().ok()
    }

    /// Sets it.
    ///
    /// # Errors
    /// Without the right, in a container where settings are read-only, or when there is no such setting.
    pub fn write(&self, value: &str) -> Result<(), KernelError> {
        fs::OpenOptions::new()
            .write(true)
            .open(self.path())
            .and_then(|mut file| io::Write::write_all(&mut file, value.as_bytes()))
            .map_err(|error| self.fault(&error))
    }

    fn fault(&self, error: &io::Error) -> KernelError {
        let remedy = match error.kind() {
            ErrorKind::PermissionDenied => "run it as root".into(),
            ErrorKind::ReadOnlyFilesystem => format!("settings are read-only here; set it outside: sysctl -w {self}=…"),
            _ => String::new(),
        };
        KernelError::new(format!("setting {self}"), error.to_string(), remedy)
    }
}

impl fmt::Display for Sysctl {
    /// As `sysctl` writes it: with dots, and a slash for the dot of an interface's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let swapped = self.0.chars().map(|character| match character {
            '/' => '.',
            '.' => '/',
            other => other,
        });
        f.write_str(&swapped.collect::<String>())
    }
}

/// A setting that is in the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SysctlAdvice {
    /// Which one.
    pub setting: Sysctl,
    /// What it is.
    pub found: String,
    /// What it should be.
    pub wanted: &'static str,
    /// What happens otherwise, as a half-sentence.
    pub why: &'static str,
}

impl SysctlAdvice {
    /// The command that sets it.
    pub fn remedy(&self) -> String {
        format!("sysctl -w {}={}", self.setting, self.wanted)
    }
}

impl fmt::Display for SysctlAdvice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}; {}", self.setting, self.found, self.why, self.remedy())
    }
}

/// What a director does, as far as settings depend on it.
#[derive(Clone, Debug, Default)]
pub struct DirectorNeeds {
    /// Some server is reached by masquerade.
    pub masquerades_ipv4: bool,
    /// Some server is reached by masquerade over IPv6.
    pub masquerades_ipv6: bool,
    /// The interfaces by which clients come and servers are reached, as far as they are known.
    pub interfaces: Vec<String>,
}

/// What is in the way of a director.
pub fn director(director: &DirectorNeeds) -> Vec<SysctlAdvice> {
    let mut advice = Vec::new();
    let mut want = |setting: Sysctl, is_right: &dyn Fn(i64) -> bool, wanted, why| {
        if let Some(found) = setting.number().filter(|found| !is_right(*found)) {
            advice.push(SysctlAdvice { setting, found: found.to_string(), wanted, why });
        }
    };
    if director.masquerades_ipv4 {
        let why = "masqueraded packets are not forwarded";
        want(Sysctl::new("net/ipv4/ip_forward"), &|found| found == 1, "1", why);
        // The kernel sends redirects when `all` or the interface has it.
        let why = "ICMP redirects make servers bypass the director, which breaks masqueraded connections";
        for interface in ["all"].into_iter().chain(director.interfaces.iter().map(String::as_str)) {
            want(Sysctl::ipv4(interface, "send_redirects"), &|found| found == 0, "0", why);
        }
    }
    if director.masquerades_ipv6 {
        let why = "masqueraded packets are not forwarded";
        want(Sysctl::ipv6("all", "forwarding"), &|found| found >= 1, "1", why);
    }
    // With one interface the way back is always that one.
    if let [first, _, ..] = &director.interfaces[..] {
        let why = "requests that arrive on another interface than responses leave by are dropped";
        for interface in ["all", first].into_iter().chain(director.interfaces.iter().skip(1).map(String::as_str)) {
            want(Sysctl::ipv4(interface, "rp_filter"), &|found| found != 1, "2", why);
        }
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_sysctl() {
        assert_eq!(Sysctl::ipv4("eth0.7", "arp_ignore").to_string(), "net.ipv4.conf.eth0/7.arp_ignore");
        assert_eq!(Sysctl::new("net/ipv4/there_is_none").read().unwrap(), None);
        assert!(Sysctl::new("net/ipv4/there_is_none").write("1").unwrap_err().to_string().contains("there_is_none"));
    }
}
