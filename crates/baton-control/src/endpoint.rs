//! The running process's end of [`protocol`](crate::protocol): accepts, checks who asks, and passes requests on to the
//! change line.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener as StdListener};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::handover::giver;
use crate::protocol::{Envelope, REQUEST_BYTES_MAX, Reply, Request, VERSION, socket_name};

/// The most askers at once; further ones wait in the kernel's queue.
const ASKERS_MAX: usize = 16;
/// The most processes that talk about a handover at once: those before us that report until they end, and who takes over.
const CONVERSATIONS_MAX: usize = 1024;
/// How long an asker may take to say what it wants.
const PATIENCE: Duration = Duration::from_secs(5);

/// A request and the way back.
#[derive(Debug)]
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Takes the answer; an asker that left is no error.
    pub reply: oneshot::Sender<Reply>,
}

/// Listens at the name of this process.
///
/// # Errors
/// `AddrInUse` when somebody else took the name.
pub fn listen() -> io::Result<StdListener> {
    let address = SocketAddr::from_abstract_name(socket_name(std::process::id()))?;
    let listener = StdListener::bind_addr(&address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Serves askers until the change line is gone. `may_ask` are users besides root. Who asks for a handover is left to
/// `handover`, which tells the change line by `events`.
pub async fn serve(
    listener: StdListener,
    may_ask: Vec<u32>,
    asked: mpsc::Sender<Asked>,
    events: mpsc::Sender<giver::Event>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    let room = Arc::new(Semaphore::new(ASKERS_MAX));
    let talks = Arc::new(Semaphore::new(CONVERSATIONS_MAX));
    loop {
        let Ok(place) = room.clone().acquire_owned().await else { return Ok(()) };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (asked, events, may_ask, talks) = (asked.clone(), events.clone(), may_ask.clone(), talks.clone());
        tokio::spawn(async move {
            // An asker that does not speak our language, or left, is not our trouble.
            let taker = answer(stream, &may_ask, asked).await;
            drop(place);
            // One too many is closed, and goes on by itself.
            if let Ok(Some(taker)) = taker
                && let Ok(_talks) = talks.try_acquire()
            {
                giver::talk(taker, events).await;
            }
        });
    }
}

/// Serves one asker whom a master has accepted.
pub async fn serve_one(
    stream: UnixStream,
    may_ask: Vec<u32>,
    asked: mpsc::Sender<Asked>,
    events: mpsc::Sender<giver::Event>,
) {
    // An asker that does not speak our language, or left, is not our trouble.
    if let Ok(Some(taker)) = answer(stream, &may_ask, asked).await {
        giver::talk(taker, events).await;
    }
}

/// Answers one question. Gives the stream back if it was to take over.
async fn answer(mut stream: UnixStream, may_ask: &[u32], asked: mpsc::Sender<Asked>) -> io::Result<Option<UnixStream>> {
    let uid = stream.peer_cred()?.uid();
    let (read, mut write) = stream.split();
    let reply = if uid != 0 && !may_ask.contains(&uid) {
        failed(refusal(uid, may_ask))
    } else {
        let mut line = String::new();
        let mut reader = BufReader::new(read.take(REQUEST_BYTES_MAX as u64));
        tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await.map_err(io::Error::other)??;
        match understand(&line) {
            Ok(Request::Handover) => Reply::Handover,
            Ok(request) => pass_on(request, asked).await,
            Err(reason) => failed(reason),
        }
    };
    let is_handover = reply == Reply::Handover;
    let mut line = serde_json::to_vec(&Envelope::new(reply)).map_err(io::Error::other)?;
    line.push(b'\n');
    write.write_all(&line).await?;
    Ok(is_handover.then_some(stream))
}

fn understand(line: &str) -> Result<Request, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        baton: u32,
    }
    let version: Version = serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
    if version.baton != VERSION {
        return Err(format!("this process speaks version {VERSION}, not {}", version.baton));
    }
    let envelope: Envelope<Request> = serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
    Ok(envelope.body)
}

async fn pass_on(request: Request, asked: mpsc::Sender<Asked>) -> Reply {
    let (reply, answer) = oneshot::channel();
    if asked.send(Asked { request, reply }).await.is_err() {
        return failed("the process is ending".into());
    }
    answer.await.unwrap_or_else(|_| failed("the process is ending".into()))
}

/// Names those who may, so that the reader knows as whom to try again.
fn refusal(uid: u32, may_ask: &[u32]) -> String {
    let mut users: Vec<u32> = may_ask.iter().copied().filter(|user| *user != 0).collect();
    users.sort_unstable();
    users.dedup();
    let others: String = users.iter().map(|user| format!(" and user {user}")).collect();
    format!("user {uid} may not send requests to process {}: root{others} may", std::process::id())
}

fn failed(reason: String) -> Reply {
    Reply::Failed { reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expect: Result<Request, &str>) {
        match (understand(line), expect) {
            (Ok(request), Ok(expected)) => assert_eq!(request, expected),
            (Err(reason), Err(expected)) => assert!(reason.contains(expected), "{reason}"),
            (found, _) => panic!("{line}: {found:?}"),
        }
    }

    #[test]
    fn a_refusal_names_those_who_may() {
        let pid = std::process::id();
        assert_eq!(refusal(9, &[0, 0]), format!("user 9 may not send requests to process {pid}: root may"));
        let both = format!("user 9 may not send requests to process {pid}: root and user 7 may");
        assert_eq!(refusal(9, &[7, 0, 7]), both);
    }

    #[test]
    fn what_is_not_understood_is_said() {
        check(r#"{"baton":1,"ask":"reload"}"#, Ok(Request::Reload));
        check(r#"{"baton":1,"ask":"reload","later":true}"#, Ok(Request::Reload));
        check(r#"{"baton":2,"ask":"reload"}"#, Err("version 1"));
        check(r#"{"baton":1,"ask":"dance"}"#, Err("not a request"));
        check("", Err("not a request"));
        check("GET / HTTP/1.1", Err("not a request"));
    }
}
