//! `baton reload`, `plan` and `status` at the master's address: a reload or an upgrade is the master's business, everything else is handed
//! to the worker with the connection, so that the worker knows who asks.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener, UnixStream as StdStream};
use std::rc::Weak;
use std::time::Duration;

use nix::sys::socket::{MsgFlags, recv};
use std::os::fd::AsRawFd;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::run::Event;
use crate::protocol::{Envelope, REPLY_BYTES_MAX, Reply, Request, socket_name};

/// How long an asker may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes that are looked at to tell what is asked.
const LOOK_BYTES: usize = 256;

/// Accepts askers until the master is gone.
///
/// Each conversation holds `busy` until the master knows of it.
pub async fn serve(
    listener: StdListener,
    may_ask: u32,
    busy: Weak<()>,
    events: mpsc::UnboundedSender<Event>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (events, busy) = (events.clone(), busy.upgrade());
        tokio::task::spawn_local(async move {
            // Who is nobody, says nothing or left is not our trouble.
            let Ok(credentials) = stream.peer_cred() else { return };
            let is_allowed = credentials.uid() == 0 || credentials.uid() == may_ask;
            let Ok(Ok(request)) = tokio::time::timeout(PATIENCE, first_words(&stream)).await else { return };
            // The worker refuses those who may not ask, in words.
            let event = match request.filter(|_| is_allowed) {
                Some(Request::Reload) => Event::AskedReload { stream, is_upgrade: false },
                Some(Request::Upgrade) => Event::AskedReload { stream, is_upgrade: true },
                Some(
                    Request::Plan { .. }
                    | Request::Status
                    | Request::SyncCertificates
                    | Request::Certificates
                    | Request::Handover,
                )
                | None => Event::Conversation(stream),
            };
            let _ = events.send(event);
            drop(busy);
        });
    }
}

/// Looks at what is said first without taking it.
async fn first_words(stream: &UnixStream) -> io::Result<Option<Request>> {
    let mut seen = [0; LOOK_BYTES];
    let look = || Ok(recv(stream.as_raw_fd(), &mut seen, MsgFlags::MSG_PEEK)?);
    let length = stream.async_io(Interest::READABLE, look).await?;
    let line = seen[..length].split(|byte| *byte == b'\n').next().unwrap_or_default();
    Ok(serde_json::from_slice::<Envelope<Request>>(line).ok().map(|envelope| envelope.body))
}

/// Takes the request that was looked at, and answers it.
pub async fn answer(mut stream: UnixStream, reply: Reply) -> io::Result<()> {
    let (read, mut write) = stream.split();
    BufReader::new(read.take(LOOK_BYTES as u64)).read_line(&mut String::new()).await?;
    let mut line = serde_json::to_vec(&Envelope::new(reply)).map_err(io::Error::other)?;
    line.push(b'\n');
    write.write_all(&line).await
}

/// Asks a worker and waits for the answer, however long it takes.
///
/// # Errors
/// A sentence: it is gone, or ended before it answered.
pub async fn ask(pid: i32, request: Request) -> Result<Reply, String> {
    let talk = async {
        let name = socket_name(u32::try_from(pid).map_err(io::Error::other)?);
        let stream = StdStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        let mut line = serde_json::to_vec(&Envelope::new(request)).map_err(io::Error::other)?;
        line.push(b'\n');
        let (read, mut write) = stream.split();
        write.write_all(&line).await?;
        let mut line = String::new();
        BufReader::new(read.take(REPLY_BYTES_MAX as u64)).read_line(&mut line).await?;
        if line.is_empty() {
            return Err(io::Error::other("it ended before it answered"));
        }
        let envelope: Envelope<Reply> = serde_json::from_str(&line).map_err(io::Error::other)?;
        Ok(envelope.body)
    };
    talk.await.map_err(|error: io::Error| format!("worker {pid}: {error}"))
}
