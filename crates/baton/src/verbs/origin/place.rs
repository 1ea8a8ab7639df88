//! Where an origin listens and what it is called, as the command line says it. No I/O but the resolver's.

use std::fmt;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::str::FromStr;

use baton_prove::OriginOptions;

/// `[NAME=]ADDRESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginAddress {
    /// `None`: it has no name of its own.
    pub name: Option<String>,
    at: ListenAddress,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ListenAddress {
    Port(u16),
    /// A host (or address) and a port.
    Host(String),
    Unix(PathBuf),
}

impl FromStr for OriginAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginAddress, String> {
        let (name, text) = match text.split_once('=') {
            Some((name, rest)) if !name.contains('/') => (Some(self::name(name)?), rest),
            _ => (None, text),
        };
        let at = if text.contains('/') {
            ListenAddress::Unix(text.strip_prefix("unix:").unwrap_or(text).into())
        } else if let Ok(port) = text.parse() {
            ListenAddress::Port(port)
        } else if text.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok()) {
            ListenAddress::Host(text.to_owned())
        } else {
            return Err("expected a port, HOST:PORT, or a path with a slash".into());
        };
        Ok(OriginAddress { name, at })
    }
}

impl fmt::Display for OriginAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.at {
            ListenAddress::Port(port) => write!(f, "port {port}"),
            ListenAddress::Host(text) => f.write_str(text),
            ListenAddress::Unix(path) => path.display().fmt(f),
        }
    }
}

impl OriginAddress {
    /// The options with this place in them; a port alone is one of `bind`.
    ///
    /// # Errors
    /// A sentence, when the host has no address.
    pub fn apply(&self, bind: IpAddr, options: OriginOptions) -> Result<OriginOptions, String> {
        Ok(match &self.at {
            ListenAddress::Port(port) => OriginOptions { address: SocketAddr::new(bind, *port), ..options },
            ListenAddress::Host(text) => {
                let found = text.to_socket_addrs().map_err(|error| format!("{text}: {error}"))?.next();
                OriginOptions { address: found.ok_or_else(|| format!("{text}: the name has no address"))?, ..options }
            }
            ListenAddress::Unix(path) => OriginOptions { unix: Some(path.clone()), ..options },
        })
    }
}

/// A name that can stand in a line of words.
pub fn name(text: &str) -> Result<String, String> {
    match text.is_empty() || text.chars().any(|letter| letter.is_whitespace() || letter.is_control()) {
        true => Err("a name must not contain spaces".into()),
        false => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_three_shapes_and_may_have_a_name() {
        let check = |text: &str, name: Option<&str>, at: ListenAddress| {
            assert_eq!(text.parse(), Ok(OriginAddress { name: name.map(str::to_owned), at }), "{text}");
        };
        let host = |text: &str| ListenAddress::Host(text.to_owned());
        check("8001", None, ListenAddress::Port(8001));
        check("left=8001", Some("left"), ListenAddress::Port(8001));
        check("a=localhost:0", Some("a"), host("localhost:0"));
        check("[::1]:80", None, host("[::1]:80"));
        check("/run/a=b.sock", None, ListenAddress::Unix("/run/a=b.sock".into()));
        check("a=./s", Some("a"), ListenAddress::Unix("./s".into()));
        check("unix:/s", None, ListenAddress::Unix("/s".into()));
        for wrong in ["", "x", "=1", "a b=1", "65536", ":80", "h:", "h:x", "-1"] {
            assert!(wrong.parse::<OriginAddress>().is_err(), "{wrong}");
        }
    }
}
