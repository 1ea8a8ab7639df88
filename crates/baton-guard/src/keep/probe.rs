//! Asking a program whether it serves: by a URL, a connection, or a command.
//!
//! Old and new program have the same sockets, and the kernel chooses who gets a connection. So an answer at a kept address may be the
//! old one's. A probe that is to tell of the new one asks where only that one answers, or by a command that knows its number.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use std::time::Duration;

use super::listen::KeptSocket;
use super::supervisor::Number;
use crate::flip::probe::ProbeKind;

/// How long one answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(5);

/// How to ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    how: ProbeKind,
    /// Whom; empty for the addresses that are kept.
    doors: Vec<SocketAddr>,
}

impl FromStr for Probe {
    type Err = String;

    /// `tcp://ADDRESS:PORT` takes a connection; `http://HOST[:PORT]/PATH` and `/PATH`, which is asked at each kept address, are answered
    /// with a status from 200 to 399; all else is a command of `sh` that ends with 0.
    fn from_str(text: &str) -> Result<Probe, String> {
        let Some(address) = text.strip_prefix("tcp://") else {
            return Ok(Probe { how: text.parse()?, doors: Vec::new() });
        };
        let door = address.parse().map_err(|_| {
            format!("'{text}' is not an address: write such as tcp://127.0.0.1:8080 or tcp://[::1]:8080")
        })?;
        Ok(Probe { how: ProbeKind::Connect, doors: vec![door] })
    }
}

impl Probe {
    /// Adds the addresses that are kept.
    ///
    /// # Errors
    /// When it asks for a path, and none of them is one that can be dialled.
    pub(super) fn at(mut self, kept: &[KeptSocket]) -> Result<Probe, String> {
        if self.doors.is_empty() {
            self.doors = kept.iter().filter_map(|kept| kept.listening.local().inet()).map(dialled).collect();
        }
        match &self.how {
            ProbeKind::Path(path) if self.doors.is_empty() => {
                Err(format!("--probe {path}: there is no TCP address to request it from; use a URL or a command"))
            }
            _ => Ok(self),
        }
    }

    /// Asks once. It may take as long as [`ANSWER_MAX`], and not longer than `left`.
    ///
    /// # Errors
    /// Why it does not serve.
    pub(super) fn ask(&self, number: Number, pid: i32, left: Duration) -> Result<(), String> {
        let variables = [("BATON_KEEP_PID", pid.to_string()), ("BATON_KEEP_INSTANCE", number.to_string())];
        self.how.ask_at(&format!("instance {number}"), &self.doors, &variables, left.min(ANSWER_MAX))
    }
}

/// Where an address is reached from here.
fn dialled(local: SocketAddr) -> SocketAddr {
    let ip = match local.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, local.port())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_connection_or_a_command_tells() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let probe = |text: String| text.parse::<Probe>().unwrap().at(&[]).unwrap();
        assert_eq!(probe(format!("tcp://{address}")).ask(1, 9, ANSWER_MAX), Ok(()));
        drop(listener);
        let why = probe(format!("tcp://{address}")).ask(2, 9, ANSWER_MAX).unwrap_err();
        assert!(why.starts_with(&format!("instance 2 ({address}) does not respond")), "{why}");
        assert_eq!(probe("test $BATON_KEEP_PID-$BATON_KEEP_INSTANCE = 9-3".into()).ask(3, 9, ANSWER_MAX), Ok(()));
        assert!(probe("exit 4".into()).ask(3, 9, ANSWER_MAX).unwrap_err().contains("exit status: 4"));
        assert!("tcp://localhost:80".parse::<Probe>().unwrap_err().contains("tcp://127.0.0.1:8080"));
        assert!("/health".parse::<Probe>().unwrap().at(&[]).unwrap_err().contains("no TCP address"));
    }

    #[test]
    fn all_addresses_are_asked_here() {
        let check = |local: &str, expect: &str| assert_eq!(dialled(local.parse().unwrap()).to_string(), expect);
        check("0.0.0.0:80", "127.0.0.1:80");
        check("[::]:80", "[::1]:80");
        check("10.0.0.1:80", "10.0.0.1:80");
    }
}
