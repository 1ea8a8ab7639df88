//! `--export`: the sockets for other programs, over a unix socket that only its owner may open.
//!
//! A program connects, writes one line, and reads the answer; then the connection is closed. The lines are
//!
//! ```text
//! get            all sockets       ok 2\n80 0.0.0.0:80\n443 0.0.0.0:443\n   with the descriptors, in this order (SCM_RIGHTS)
//! get NAME       that one          ok 1\n80 0.0.0.0:80\n                    with the descriptor
//! list           what there is     as `get`, without descriptors
//! _getsocks      all sockets       HAProxy's own transfer: `haproxy -x SOCKET`
//! ```
//!
//! Whatever is wrong is answered with `error` and a sentence. The descriptors come with the answer's first byte.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use baton_kernel::inherit;
use baton_kernel::listen::SocketIdentity;
use baton_kernel::transfer::{self, OfferedSocket};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use super::listen::KeptSocket;

/// Programs that are answered at the same time; the others wait.
const PEERS_MAX: usize = 16;

/// How long one may take to ask, and to take its answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes in a question.
const QUESTION_MAX: usize = 256;

/// How long to wait when the system has no descriptor left for a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Answers whoever connects, until dropped.
pub async fn serve(listener: UnixListener, kept: Arc<[KeptSocket]>) {
    let peers = Arc::new(Semaphore::new(PEERS_MAX));
    loop {
        let Ok(place) = peers.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream.into_std(),
            Err(_) => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let kept = kept.clone();
        tokio::task::spawn_blocking(move || {
            // Who leaves early has what is wanted.
            let _ = stream.and_then(|stream| talk(stream, &kept));
            drop(place);
        });
    }
}

/// One question and its answer.
fn talk(mut stream: UnixStream, kept: &[KeptSocket]) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let Some(question) = question(&mut stream)? else {
        return stream.write_all(b"error expected a line of at most 256 bytes\n");
    };
    let Ok(question) = String::from_utf8(question) else {
        return stream.write_all(b"error the request is not UTF-8 text; expected get, get NAME, list or _getsocks\n");
    };
    let mut words = question.split_ascii_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("_getsocks"), None, _) => give_as_haproxy(&stream, kept),
        (Some("list"), None, _) => stream.write_all(answer(&kept.iter().collect::<Vec<_>>()).as_bytes()),
        (Some("get"), None, _) => give(&stream, &kept.iter().collect::<Vec<_>>()),
        (Some("get"), Some(name), None) => match kept.iter().find(|kept| kept.name == name) {
            Some(found) => give(&stream, &[found]),
            None => stream.write_all(b"error no socket of this name; 'list' lists the names\n"),
        },
        _ => stream.write_all(b"error unknown request; expected get, get NAME, list or _getsocks\n"),
    }
}

/// The line that is asked; `None` when it is longer than it may be.
fn question(stream: &mut UnixStream) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut buffer = [0; QUESTION_MAX];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let length = match stream.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        bytes.extend_from_slice(&buffer[..length]);
        match bytes.iter().position(|&byte| byte == b'\n') {
            Some(end) if end <= QUESTION_MAX => return Ok(Some(bytes[..end].to_vec())),
            Some(_) => return Ok(None),
            None if bytes.len() > QUESTION_MAX => return Ok(None),
            None => {}
        }
    }
}

fn answer(kept: &[&KeptSocket]) -> String {
    let lines = kept.iter().map(|kept| format!("{} {}\n", kept.name, kept.listening.local()));
    std::iter::once(format!("ok {}\n", kept.len())).chain(lines).collect()
}

fn give(stream: &UnixStream, kept: &[&KeptSocket]) -> io::Result<()> {
    let fds: Vec<BorrowedFd<'_>> = kept.iter().map(|kept| kept.as_fd()).collect();
    inherit::send_all(stream, answer(kept).as_bytes(), &fds)
}

fn give_as_haproxy(stream: &UnixStream, kept: &[KeptSocket]) -> io::Result<()> {
    let interfaces: Vec<String> = kept
        .iter()
        .map(|kept| SocketIdentity::of(kept).ok().flatten().and_then(|known| known.interface).unwrap_or_default())
        .collect();
    let gifts: Vec<OfferedSocket<'_>> = kept
        .iter()
        .zip(&interfaces)
        .map(|(kept, interface)| OfferedSocket { fd: kept.as_fd(), namespace: "", interface })
        .collect();
    transfer::give(stream, &gifts)
}
