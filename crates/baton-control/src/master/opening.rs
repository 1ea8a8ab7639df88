//! A worker that gave up root asks its master, which did not, to bind new addresses for it.
//!
//! ```text
//!   worker: open, with a line of its own ──▶  master reads the files of this moment, once
//!           bind ADDRESS                 ──▶  is it in there, in these words? then: socket, bind
//!                                        ◀──  bound, with the sockets; or why not
//! ```
//!
//! What a worker can make its master do is bounded by what the operator wrote, not by what the worker says: the master
//! judges each address by the files that it has read for itself, so that a worker that somebody has broken into gets what its
//! configuration would give it anyway. It binds TCP sockets and does nothing else: no file, no unix socket. There is one
//! conversation at a time, with at most [`INHERITED_MAX`] sockets, over after [`TALK_WITHIN`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_config::Options;
use baton_kernel::listen::Identity;
use serde::{Deserialize, Serialize};
use socket2::Socket;

use super::link::{self, Heard};
use crate::environment::Outside;
use crate::listeners::{Denied, Granted, INHERITED_MAX, Named, Wanted};
use crate::reload;

/// How long a conversation may take in all.
pub const TALK_WITHIN: Duration = Duration::from_secs(30);

/// How the files are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What the command line says about them.
    pub options: Options,
    /// Where they are found.
    pub outside: Arc<Outside>,
}

/// What a worker asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
enum Ask {
    /// Bind this address.
    Bind(Wanted),
}

/// What the master answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case")]
enum Answer {
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
pub fn ask(line: &Socket, all: Vec<Wanted>) -> io::Result<Granted> {
    let end = Instant::now() + TALK_WITHIN;
    let mut granted = Granted::new();
    for wanted in all {
        wait_until(line, end)?;
        link::say(line, &Ask::Bind(wanted.clone()), &[])?;
        let outcome = match link::hear(line)? {
            Heard::Message(Answer::Bound, sockets) => Ok(sockets),
            Heard::Message(Answer::NotNamed, _) => Err(Denied::NotNamed),
            Heard::Message(Answer::Refused { reason }, _) => Err(Denied::Refused(reason)),
            Heard::Unknown => return Err(io::ErrorKind::InvalidData.into()),
            Heard::Closed => return Err(io::ErrorKind::UnexpectedEof.into()),
        };
        granted.push((wanted, outcome));
    }
    Ok(granted)
}

/// The master's part, until the worker is content. `held` are the addresses of the sockets it holds; `tell` hears of each
/// that is bound. Blocks.
///
/// # Errors
/// When the worker is gone or silent; sockets it has not got are closed.
pub fn answer(line: &Socket, reading: &Reading, held: &[Identity], mut tell: impl FnMut(SocketAddr)) -> io::Result<()> {
    let end = Instant::now() + TALK_WITHIN;
    // A configuration with faults names nothing.
    let model = reload::read(&reading.options, &reading.outside).model.unwrap_or_default();
    let named = Named::new(&model, held);
    let mut count = 0;
    loop {
        wait_until(line, end)?;
        let asked = match link::hear(line)? {
            Heard::Message(Ask::Bind(asked), _) => asked,
            Heard::Unknown => return Err(io::ErrorKind::InvalidData.into()),
            Heard::Closed => return Ok(()),
        };
        let outcome = match count < INHERITED_MAX {
            true => named.bind(&asked),
            false => Err(Denied::Refused(format!("more than {INHERITED_MAX} sockets at a time"))),
        };
        match outcome {
            Ok(sockets) => {
                count += sockets.len();
                let fds: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
                link::say(line, &Answer::Bound, &fds)?;
                tell(asked.address);
            }
            Err(Denied::NotNamed) => link::say(line, &Answer::NotNamed, &[])?,
            Err(Denied::Refused(reason)) => link::say(line, &Answer::Refused { reason }, &[])?,
        }
    }
}

/// Lets no call on the line take longer than until `end`.
fn wait_until(line: &Socket, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    line.set_read_timeout(Some(left))?;
    line.set_write_timeout(Some(left))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use baton_kernel::{Endpoint, inherit};

    use super::*;

    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn wanted(address: SocketAddr) -> Wanted {
        Wanted { address, interface: None, namespace: None, transparent: false, v6only: None, sockets: 2 }
    }

    fn reading(folder: &std::path::Path, address: SocketAddr) -> Reading {
        let text = format!(
            "defaults\n mode http\n timeout client 1s\n timeout connect 1s\n timeout server 1s\nfrontend f\n bind {address}\n"
        );
        std::fs::write(folder.join("a.cfg"), text).unwrap();
        let outside = Arc::new(Outside::new(folder.to_owned(), None).unwrap());
        Reading { options: Options { files: vec!["a.cfg".into()], ..Options::default() }, outside }
    }

    #[test]
    fn messages_are_these_for_ever() {
        let text =
            r#"{"say":"bind","address":"127.0.0.1:80","interface":null,"transparent":false,"v6only":null,"sockets":2}"#;
        let asked = Ask::Bind(wanted("127.0.0.1:80".parse().unwrap()));
        assert_eq!(serde_json::to_string(&asked).unwrap(), text);
        assert_eq!(serde_json::from_str::<Ask>(text).unwrap(), asked);
        let short = r#"{"say":"bind","address":"127.0.0.1:80","sockets":2}"#;
        assert_eq!(serde_json::from_str::<Ask>(short).unwrap(), asked);
        assert_eq!(serde_json::to_string(&Answer::NotNamed).unwrap(), r#"{"say":"not-named"}"#);
        let refused = Answer::Refused { reason: "x".into() };
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"say":"refused","reason":"x"}"#);
    }

    #[test]
    fn a_worker_gets_what_the_files_name() {
        let folder = tempfile::tempdir().unwrap();
        let (named, other) = (free(), free());
        let reading = reading(folder.path(), named);
        let (ours, theirs) = link::pair().unwrap();
        let granted = std::thread::scope(|scope| {
            let master = scope.spawn(|| answer(&theirs, &reading, &[], |_| ()));
            let granted = ask(&ours, vec![wanted(named), wanted(other)]).unwrap();
            drop(ours);
            master.join().unwrap().unwrap();
            granted
        });
        let addresses: Vec<_> = granted[0].1.as_ref().unwrap().iter().map(Endpoint::local_of).collect();
        assert!(addresses.iter().all(|local| matches!(local, Ok(Some(Endpoint::Inet(at))) if *at == named)));
        assert_eq!(addresses.len(), 2);
        assert_eq!(granted[1].1.as_ref().unwrap_err(), &Denied::NotNamed);
    }

    #[test]
    fn who_says_something_else_gets_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let reading = reading(folder.path(), free());
        for nonsense in
            [r#"{"say":"open","path":"/etc/shadow"}"#, "nonsense", r#"{"say":"bind","address":"/run/x","sockets":1}"#]
        {
            let (ours, theirs) = link::pair().unwrap();
            inherit::send(&ours, nonsense.as_bytes(), &[]).unwrap();
            assert!(answer(&theirs, &reading, &[], |_| ()).is_err(), "{nonsense}");
            drop(theirs);
            assert!(ask(&ours, vec![wanted(free())]).is_err(), "the line is closed");
        }
    }
}
