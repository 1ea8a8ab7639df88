//! The master's side when a worker that gave up root requests new addresses ([`baton_control::servant::opening`]).
//!
//! The files decide what a worker gets, not its request: the master checks each address against the files as it has read them
//! itself, so a compromised worker gets only what its configuration would give it anyway. The master binds TCP sockets and
//! nothing else: no file, no unix socket. There is one conversation at a time. It ends after [`TALK_WITHIN`], and an address
//! beyond [`INHERITED_MAX`] sockets is refused.

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

/// Serves the worker's requests until it closes the line. `held` are the addresses of the sockets that the master holds; `tell`
/// gets each address that is bound. Blocks.
///
/// # Errors
/// When the worker is gone or does not respond in time; sockets that were not passed on are closed.
pub fn answer(
    line: &Socket,
    reading: &Reading,
    held: &[SocketIdentity],
    tell: impl FnMut(SocketAddr),
) -> io::Result<()> {
    serve(line, reading, held, INHERITED_MAX, tell)
}

/// [`answer`], with at most `sockets_max` sockets.
fn serve(
    line: &Socket,
    reading: &Reading,
    held: &[SocketIdentity],
    sockets_max: usize,
    mut tell: impl FnMut(SocketAddr),
) -> io::Result<()> {
    let end = Instant::now() + TALK_WITHIN;
    // An invalid configuration names no address.
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
        let outcome = match asked.sockets.max(1) <= sockets_max - count {
            true => named.bind(&asked),
            false => Err(Denied::Refused(format!("more than {sockets_max} sockets at once"))),
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
    fn an_address_beyond_the_limit_of_sockets_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let named = free();
        let reading = reading(folder.path(), named);
        let (ours, theirs) = link::pair().unwrap();
        let outcomes = std::thread::scope(|scope| {
            scope.spawn(move || serve(&theirs, &reading, &[], 3, |_| ()));
            let too_many = UnopenedAddress { sockets: 4, ..wanted(named) };
            let outcomes = ask(&ours, vec![too_many, wanted(named), wanted(named)]).unwrap();
            drop(ours);
            outcomes
        });
        let refused = Denied::Refused("more than 3 sockets at once".into());
        assert_eq!(outcomes[0].1.as_ref().unwrap_err(), &refused);
        assert_eq!(outcomes[1].1.as_ref().unwrap().len(), 2, "what fits is still bound");
        assert_eq!(outcomes[2].1.as_ref().unwrap_err(), &refused, "earlier sockets count");
    }

    #[test]
    fn an_unknown_message_ends_the_conversation() {
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
