//! A worker that gave up root asks its master, which did not, to bind new addresses for it: the messages, and the worker's part.
//!
//! ```text
//!   worker: open, with a line of its own ──▶  master reads the files of this moment, once
//!           bind ADDRESS                 ──▶  is it in there, in these words? then: socket, bind
//!                                        ◀──  bound, with the sockets; or why not
//! ```

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::link::{self, Heard};
use crate::listeners::{Denied, Granted, UnopenedAddress};

/// How long a conversation may take in all.
pub const TALK_WITHIN: Duration = Duration::from_secs(30);

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum OpeningRequest {
    /// Bind this address.
    Bind(UnopenedAddress),
}

/// What the master answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
pub enum OpeningResponse {
    /// With the sockets.
    Bound,
    /// The files do not name the address so.
    NotNamed,
    /// The system refused.
    Refused {
        /// In words.
        reason: String,
    },
}

/// The worker's part: asks for each address in turn. Blocks.
///
/// # Errors
/// When the master is gone, does not answer in time, or does not understand.
pub fn ask(line: &Socket, all: Vec<UnopenedAddress>) -> io::Result<Granted> {
    let end = Instant::now() + TALK_WITHIN;
    let mut granted = Granted::new();
    for wanted in all {
        wait_until(line, end)?;
        link::say(line, &OpeningRequest::Bind(wanted.clone()), &[])?;
        let outcome = match link::hear(line)? {
            Heard::Message(OpeningResponse::Bound, sockets) => Ok(sockets),
            Heard::Message(OpeningResponse::NotNamed, _) => Err(Denied::NotNamed),
            Heard::Message(OpeningResponse::Refused { reason }, _) => Err(Denied::Refused(reason)),
            Heard::Unknown => return Err(io::ErrorKind::InvalidData.into()),
            Heard::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        granted.push((wanted, outcome));
    }
    Ok(granted)
}

/// Lets no call on the line take longer than until `end`.
///
/// # Errors
/// The time is over.
pub fn wait_until(line: &Socket, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    line.set_read_timeout(Some(left))?;
    line.set_write_timeout(Some(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_these_for_ever() {
        let text =
            r#"{"say":"bind","address":"127.0.0.1:80","interface":null,"transparent":false,"v6only":null,"sockets":2}"#;
        let asked = OpeningRequest::Bind(UnopenedAddress {
            address: "127.0.0.1:80".parse().unwrap(),
            interface: None,
            namespace: None,
            transparent: false,
            v6only: None,
            sockets: 2,
        });
        assert_eq!(serde_json::to_string(&asked).unwrap(), text);
        assert_eq!(serde_json::from_str::<OpeningRequest>(text).unwrap(), asked);
        let short = r#"{"say":"bind","address":"127.0.0.1:80","sockets":2}"#;
        assert_eq!(serde_json::from_str::<OpeningRequest>(short).unwrap(), asked);
        assert_eq!(serde_json::to_string(&OpeningResponse::NotNamed).unwrap(), r#"{"say":"not-named"}"#);
        let refused = OpeningResponse::Refused { reason: "x".into() };
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"say":"refused","reason":"x"}"#);
    }
}
