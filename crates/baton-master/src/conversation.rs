//! `baton reload`, `plan` and `status` at the master's address: a reload or an upgrade is the master's business, everything else is handed
//! to the worker with the connection, so that the worker knows who asks.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixListener as StdListener;
use std::rc::{Rc, Weak};
use std::time::Duration;

use baton_control::control_socket::Peer;
use baton_control::control_socket::find::{self, Where};
use baton_control::endpoint;
use baton_control::protocol::line::{self, ASKED_WITHIN};
use baton_control::protocol::{Envelope, REPLY_BYTES_MAX, Reply, Request};
use baton_control::rights::{Places, Rights};
use nix::sys::socket::{MsgFlags, recv};
use tokio::io::{AsyncWriteExt, Interest};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// Bytes that are looked at to tell what is asked.
const LOOK_BYTES: usize = 256;

/// What is asked for.
#[derive(Debug)]
pub(crate) enum Conversation {
    /// `baton reload` or `baton upgrade`.
    Reload {
        /// Takes the response.
        stream: UnixStream,
        /// Whether the program is to be started anew even if it is the same.
        is_upgrade: bool,
    },
    /// Anything else, for the worker.
    Other(UnixStream),
}

/// What every conversation needs.
#[derive(Debug)]
pub(crate) struct Desk<E> {
    /// Who may ask for what.
    pub rights: Rights,
    /// How many are listened to at a time.
    pub places: Places,
    /// Held by each conversation until the master knows of it.
    pub busy: Weak<()>,
    /// Takes what is asked for.
    pub events: mpsc::UnboundedSender<E>,
}

/// Accepts askers until the master is gone.
pub(crate) async fn serve<E: From<Conversation> + 'static>(listener: StdListener, desk: Rc<Desk<E>>) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (busy, desk) = (desk.busy.upgrade(), desk.clone());
        tokio::task::spawn_local(async move {
            // Who is nobody, says nothing or left is not our trouble.
            let Ok(peer) = Peer::of(&stream) else { return };
            let Some(_place) = desk.places.take(peer.uid, desk.rights.is_starter(peer.uid)) else {
                return endpoint::too_many(&stream, peer.uid);
            };
            let Ok(Ok(request)) = tokio::time::timeout(ASKED_WITHIN, first_words(&stream)).await else { return };
            // The worker refuses those who may not ask, in words.
            let conversation = match request.filter(|request| desk.rights.may(peer.uid, request)) {
                Some(Request::Reload) => Conversation::Reload { stream, is_upgrade: false },
                Some(Request::Upgrade) => Conversation::Reload { stream, is_upgrade: true },
                Some(
                    Request::Plan { .. }
                    | Request::Status
                    | Request::SyncCertificates
                    | Request::Certificates
                    | Request::Handover,
                )
                | None => Conversation::Other(stream),
            };
            let _ = desk.events.send(conversation.into());
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
    line::read_question(read, LOOK_BYTES).await?;
    line::write_reply(&mut write, reply).await
}

/// Asks a worker and waits for the answer, however long it takes.
///
/// # Errors
/// A sentence: it is gone, or ended before it answered.
pub async fn ask(pid: i32, request: Request) -> Result<Reply, String> {
    let talk = async {
        let pid = u32::try_from(pid).map_err(io::Error::other)?;
        // It is our child, so that its PID says it all.
        let reached = tokio::task::spawn_blocking(move || find::reach(pid, Where::Anywhere));
        let stream = reached.await.map_err(io::Error::other)??.stream;
        stream.set_nonblocking(true)?;
        let mut stream = UnixStream::from_std(stream)?;
        let (read, mut write) = stream.split();
        write.write_all(&line::encode(request)?).await?;
        let line = line::read(read, REPLY_BYTES_MAX).await?;
        if line.is_empty() {
            return Err(io::Error::other("it ended before it replied"));
        }
        let envelope: Envelope<Reply> = serde_json::from_str(&line).map_err(io::Error::other)?;
        Ok(envelope.body)
    };
    talk.await.map_err(|error: io::Error| format!("worker {pid}: {error}"))
}
