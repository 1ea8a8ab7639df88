//! Listening sockets that others pass to us when we start: a service manager with the process (`LISTEN_FDS`), an old
//! process by its stats socket (`-x`).

use std::env;
use std::ffi::OsStr;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use baton_control::control_socket::Peer;
use baton_control::handover::belief::{Belief, Believed};
use baton_control::listeners::{INHERITED_MAX, Inherited};
use baton_control::{Messages, printable};
use baton_kernel::process::over_exec;
use baton_kernel::transfer::{TakeError, Taken};
use baton_kernel::{Endpoint, passed, transfer};
use baton_master::STORED_AS;
use baton_model::Model;

use super::Stop;
use crate::arguments::Run;

/// The first descriptor that a service manager passes (sd_listen_fds(3)).
const FIRST: RawFd = 3;
/// `-x` with this name asks nobody, as in HAProxy.
const NOBODY: &str = "/dev/null";

/// How often the old process is asked: on a busy machine it may be late, and asking costs nothing.
const TRIES_MAX: usize = 3;
/// How long to wait before it is asked again when it had nothing to give.
const PAUSE: Duration = Duration::from_millis(50);

/// Everything that is passed to us. The configuration takes what it names.
pub(super) fn sockets(run: &Run, model: &Model, messages: &Messages) -> Result<Inherited, Stop> {
    let mut inherited = Inherited::of_strangers();
    activation(&mut inherited, messages)?;
    match run.old_socket.as_deref() {
        None => {}
        Some(name) if name == NOBODY => {}
        Some(name) => old_process(name, &Believed::with_user(model.global.uid), &mut inherited, messages)?,
    }
    Ok(inherited)
}

/// What a service manager passes, for a master to hold.
pub(super) fn activated(messages: &Messages) -> Result<Inherited, Stop> {
    let mut inherited = Inherited::default();
    activation(&mut inherited, messages)?;
    Ok(inherited)
}

/// Socket activation: `LISTEN_FDS` descriptors from [`FIRST`] on, if `LISTEN_PID` says that they are for us, with their
/// names in `LISTEN_FDNAMES`. They keep their numbers, for `bind fd@3`.
fn activation(inherited: &mut Inherited, messages: &Messages) -> Result<(), Stop> {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
    let (Some(pid), Some(count)) = (number("LISTEN_PID"), number("LISTEN_FDS")) else { return Ok(()) };
    if pid != std::process::id() {
        return Ok(());
    }
    let count = RawFd::try_from(count).ok().filter(|&count| count as usize <= INHERITED_MAX);
    let count = count.ok_or_else(|| format!("LISTEN_FDS is larger than {INHERITED_MAX}"))?;
    let names = env::var("LISTEN_FDNAMES").unwrap_or_default();
    let mut names = names.split(':');
    for number in FIRST..FIRST + count {
        let name = names.next().filter(|name| !name.is_empty()).unwrap_or("unknown");
        // What we put into its keeping is ours alone; a descriptor that is left open here would keep a removed address open.
        let found = match name.starts_with(STORED_AS) {
            true => over_exec::take(number).map(|fd| (fd, None)),
            false => passed::duplicate(number).map(|fd| (fd, Some(number))),
        };
        let added = match found {
            Ok((fd, number)) => inherited.add_known(fd, None, number).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        if let Err(reason) = added {
            messages.warning(&format!("descriptor {number} ({name}) of the service manager is not usable: {reason}"));
        }
    }
    Ok(())
}

/// `-x`: asks the old process for its sockets. It goes on serving until it is told to stop.
fn old_process(name: &OsStr, believed: &Believed, inherited: &mut Inherited, messages: &Messages) -> Result<(), Stop> {
    let shown = name.to_string_lossy();
    let failed =
        |reason: &dyn std::fmt::Display| format!("Failed to get the sockets from the old process! '{shown}': {reason}");
    let endpoint = endpoint(name).map_err(|reason| failed(&reason))?;
    let (belief, taken) = ask(&endpoint, believed).map_err(|reason| failed(&reason))?;
    for socket in taken {
        let namespace = Some(socket.namespace).filter(|name| !name.is_empty());
        let added = belief
            .may_take(&socket.fd)
            .and_then(|()| inherited.add_known(socket.fd, namespace, None).map_err(|reason| reason.to_string()));
        if let Err(reason) = added {
            messages.warning(&format!("a socket of the old process is not used: {}", printable::line(&reason)));
        }
    }
    Ok(())
}

/// Asks for the sockets, again if the old process does not answer in time. One that was replaced itself a moment ago
/// may have heard us instead of its successor, with nothing to give any more.
fn ask(endpoint: &Endpoint, believed: &Believed) -> Result<(Belief, Vec<Taken>), String> {
    for _ in 1..TRIES_MAX {
        match take(endpoint, believed)? {
            (_, Err(TakeError::Talk(_))) => {}
            (_, Err(TakeError::NotExposed)) => thread::sleep(PAUSE),
            (_, Ok(none)) if none.is_empty() => thread::sleep(PAUSE),
            (belief, other) => return other.map(|taken| (belief, taken)).map_err(|error| error.to_string()),
        }
    }
    let (belief, taken) = take(endpoint, believed)?;
    taken.map(|taken| (belief, taken)).map_err(|error| error.to_string())
}

/// Asks once, if whoever listens there may be believed.
fn take(endpoint: &Endpoint, believed: &Believed) -> Result<(Belief, Result<Vec<Taken>, TakeError>), String> {
    let stream = transfer::connect(endpoint).map_err(|error| error.to_string())?;
    let peer = Peer::of(&stream).map_err(|error| error.to_string())?;
    let belief = believed.judge(peer.uid)?;
    Ok((belief, transfer::take_from(&stream, INHERITED_MAX)))
}

/// A unix socket by its path, with or without `unix@`, or an abstract one (`abns@`).
fn endpoint(name: &OsStr) -> Result<Endpoint, &'static str> {
    let bytes = name.as_bytes();
    if let Some(path) = bytes.strip_prefix(b"unix@") {
        return Ok(Endpoint::Unix(Path::new(OsStr::from_bytes(path)).into()));
    }
    if let Some(name) = bytes.strip_prefix(b"abns@") {
        return Ok(Endpoint::Abstract(name.to_vec()));
    }
    match bytes.contains(&b'@') && !bytes.contains(&b'/') {
        true => Err("expected a path, 'unix@' or 'abns@'"),
        false => Ok(Endpoint::Unix(Path::new(name).into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_sockets_have_names_as_elsewhere() {
        assert_eq!(endpoint(OsStr::new("/run/x@1")), Ok(Endpoint::Unix("/run/x@1".into())));
        assert_eq!(endpoint(OsStr::new("unix@x")), Ok(Endpoint::Unix("x".into())));
        assert_eq!(endpoint(OsStr::new("abns@x")), Ok(Endpoint::Abstract(b"x".to_vec())));
        assert!(endpoint(OsStr::new("sockpair@4")).is_err());
    }
}
