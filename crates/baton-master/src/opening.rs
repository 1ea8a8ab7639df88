//! What a master does for a worker that gave up root and asks for new addresses ([`baton_control::servant::opening`]).
//!
//! What a worker can make its master do is bounded by what the operator wrote, not by what the worker says: the master
//! judges each address by the files that it has read for itself, so that a worker that somebody has broken into gets what its
//! configuration would give it anyway. It binds TCP sockets and does nothing else: no file, no unix socket. There is one
//! conversation at a time, with at most [`INHERITED_MAX`] sockets, over after [`TALK_WITHIN`].

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use baton_config::Options;
use baton_control::environment::Outside;
use baton_control::listeners::{Denied, INHERITED_MAX, Named};
use baton_control::reload;
use baton_control::servant::link::{self, Heard};
use baton_control::servant::opening::{OpeningRequest, OpeningResponse, TALK_WITHIN, wait_until};
use baton_kernel::listen::SocketIdentity;
use socket2::Socket;

/// How the files are read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// What the command line says about them.
    pub options: Options,
    /// Where they are found.
    pub outside: Arc<Outside>,
}

/// The master's part, until the worker is content. `held` are the addresses of the sockets it holds; `tell` hears of each
/// that is bound. Blocks.
///
/// # Errors
/// When the worker is gone or silent; sockets it has not got are closed.
pub fn answer(
    line: &Socket,
    reading: &Reading,
    held: &[SocketIdentity],
    mut tell: impl FnMut(SocketAddr),
) -> io::Result<()> {
    let end = Instant::now() + TALK_WITHIN;
    // A configuration with faults names nothing.
    let model = reload::read(&reading.options, &reading.outside).model.unwrap_or_default();
    let named = Named::new(&model, held);
    let mut count = 0;
    loop {
        wait_until(line, end)?;
        let asked = match link::hear(line)? {
            Heard::Message(OpeningRequest::Bind(asked), _) => asked,
            Heard::Unknown => return Err(io::ErrorKind::InvalidData.into()),
            Heard::Closed => return Ok(()),
        };
        let outcome = match count < INHERITED_MAX {
            true => named.bind(&asked),
            false => Err(Denied::Refused(format!("more than {INHERITED_MAX} sockets at once"))),
        };
        match outcome {
            Ok(sockets) => {
                count += sockets.len();
                let fds: Vec<_> = sockets.iter().map(OwnedFd::as_fd).collect();
                link::say(line, &OpeningResponse::Bound, &fds)?;
                tell(asked.address);
            }
            Err(Denied::NotNamed) => link::say(line, &OpeningResponse::NotNamed, &[])?,
            Err(Denied::Refused(reason)) => link::say(line, &OpeningResponse::Refused { reason }, &[])?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use baton_control::listeners::UnopenedAddress;
    use baton_control::servant::opening::ask;
    use baton_kernel::{Endpoint, inherit};

    use super::*;

    fn free() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
    }

    fn wanted(address: SocketAddr) -> UnopenedAddress {
        UnopenedAddress { address, interface: None, namespace: None, transparent: false, v6only: None, sockets: 2 }
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
