//! The running process's end of [`protocol`](crate::protocol): accepts, checks who asks, and passes requests on to the
//! change path.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use crate::control_socket::Peer;
use crate::handover::giver;
use crate::handover::succession::Lineage;
use crate::protocol::{Envelope, REQUEST_BYTES_MAX, Reply, Request, VERSION, line};
use crate::rights::{Places, Rights};

/// A request and the way back.
#[derive(Debug)]
pub struct PendingRequest {
    /// What is asked.
    pub request: Request,
    /// Takes the answer; an asker that left is no error.
    pub reply: oneshot::Sender<Reply>,
}

/// What every conversation needs.
#[derive(Clone, Debug)]
pub struct Desk {
    /// Who may ask for what.
    pub rights: Rights,
    /// How many are served at a time.
    pub places: Places,
    /// From whom this process took over.
    pub lineage: Lineage,
    /// Takes requests.
    pub asked: mpsc::Sender<PendingRequest>,
    /// Takes what is said about a handover.
    pub events: mpsc::Sender<giver::GiverEvent>,
}

/// Serves askers until the change path is gone. An asker too many of its user is closed; nobody waits for another one.
pub async fn serve(listener: StdListener, desk: Desk) -> io::Result<()> {
    let listener = UnixListener::from_std(listener)?;
    while !desk.asked.is_closed() {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        tokio::spawn(serve_one(stream, desk.clone()));
    }
    Ok(())
}

/// Serves one asker, whom a master may have accepted.
pub async fn serve_one(mut stream: UnixStream, desk: Desk) {
    let Ok(peer) = Peer::of(&stream) else { return };
    let is_trusted = desk.rights.is_starter(peer.uid) || peer.pid.is_some_and(|pid| desk.lineage.has(pid));
    let Some(place) = desk.places.take(peer.uid, is_trusted) else { return too_many(&stream, peer.uid) };
    // An asker that does not speak our language, or left, is not our trouble.
    if let Ok(true) = answer(&mut stream, peer, &desk).await {
        giver::talk(stream, peer, Some(place), desk.events).await;
    }
}

/// Closes a connection more than its user may have, and says so, if that takes no waiting.
pub fn too_many(stream: &UnixStream, uid: u32) {
    let reply = failed(format!("user {uid} has too many connections to process {}", std::process::id()));
    if let Ok(line) = line::encode(reply) {
        let _ = stream.try_write(&line);
    }
}

/// Answers one question; true when a handover is to be talked about.
async fn answer(stream: &mut UnixStream, peer: Peer, desk: &Desk) -> io::Result<bool> {
    let (read, mut write) = stream.split();
    let question = line::read_question(read, REQUEST_BYTES_MAX).await?;
    let reply = match understand(&question) {
        Ok(Request::Handover) => Reply::Handover,
        Ok(request) if desk.rights.may(peer.uid, &request) => pass_on(request, desk.asked.clone()).await,
        Ok(request) => failed(desk.rights.refusal(peer.uid, &request)),
        Err(reason) => failed(reason),
    };
    let is_handover = reply == Reply::Handover;
    line::write_reply(&mut write, reply).await?;
    Ok(is_handover)
}

fn understand(line: &str) -> Result<Request, String> {
    #[derive(serde::Deserialize)]
    struct Version {
        baton: u32,
    }
    let version: Version = serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
    if version.baton != VERSION {
        return Err(format!("this process supports version {VERSION} of the protocol, not {}", version.baton));
    }
    let envelope: Envelope<Request> = serde_json::from_str(line).map_err(|error| format!("not a request: {error}"))?;
    Ok(envelope.body)
}

async fn pass_on(request: Request, asked: mpsc::Sender<PendingRequest>) -> Reply {
    let (reply, answer) = oneshot::channel();
    if asked.send(PendingRequest { request, reply }).await.is_err() {
        return failed("the process is stopping".into());
    }
    answer.await.unwrap_or_else(|_| failed("the process is stopping".into()))
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
    fn what_is_not_understood_is_said() {
        check(r#"{"baton":1,"request":"reload"}"#, Ok(Request::Reload));
        check(r#"{"baton":1,"request":"reload","later":true}"#, Ok(Request::Reload));
        check(r#"{"baton":2,"request":"reload"}"#, Err("version 1"));
        check(r#"{"baton":1,"request":"dance"}"#, Err("not a request"));
        check("", Err("not a request"));
        check("GET / HTTP/1.1", Err("not a request"));
    }
}
