//! The old process's side of the conversation. It asks the change path three times: what there is to give, to let go, and to
//! go on as before; it does nothing to live state itself.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::channel::{ANSWER_WITHIN, Broken, Channel, READY_WITHIN};
use super::kinds::Takes;
use super::memory::ProcessMemory;
use super::message::{
    Hello, Message, Ready, Refused, Released, Report, SOCKETS_PER_MESSAGE, Socket, Sockets, TableNames, Welcome,
};
use super::moving::{Leaving, Verdicts};
use super::record::ConnectionRecord;
use super::report;
use super::server_record::ServerRecord;
use super::wire::WireVersion;
use crate::control_socket::Peer;
use crate::rights::Place;

/// What conversations tell the change path.
#[derive(Debug)]
pub enum GiverEvent {
    /// A process wants to take over. Answered at once.
    Asked {
        /// Whose process it is.
        uid: u32,
        /// What it said.
        hello: Hello,
        /// Takes what there is to give.
        reply: oneshot::Sender<Result<Offer, Refused>>,
    },
    /// It serves: let go.
    Ready {
        /// What it said.
        ready: Ready,
        /// The version that is spoken with it.
        version: WireVersion,
        /// What it said that is unknown here: kinds of frames, with their numbers.
        skipped: Vec<(String, u64)>,
        /// Takes what to answer, and what to report from then on.
        reply: oneshot::Sender<Following>,
        /// Ends when the last report was sent, or cannot be.
        done: oneshot::Receiver<()>,
    },
    /// It failed, or gave up: nothing has changed.
    Failed {
        /// A sentence.
        reason: String,
    },
    /// A process before us reports.
    Report {
        /// Its number.
        from: u32,
        /// What it reports.
        report: Report,
    },
    /// A process says that it is one before us, and found us by itself.
    Joined {
        /// Its number, as the kernel says.
        from: u32,
        /// Tells it where to report to instead.
        moved: oneshot::Sender<Heir>,
        /// Whose process it is.
        uid: u32,
        /// Takes how far it is listened to, if it is one of them.
        reply: oneshot::Sender<Option<Hearing>>,
    },
    /// A process before us offers connections. Answered at once.
    Offered {
        /// What they are.
        connections: Vec<ConnectionRecord>,
        /// Takes which are taken.
        reply: oneshot::Sender<Verdicts>,
    },
    /// A process before us gives idle connections to servers.
    Servers {
        /// The connections, with their sockets.
        servers: Vec<(ServerRecord, OwnedFd)>,
    },
    /// A process before us has ended, or reports elsewhere by now.
    Left {
        /// Its number.
        from: u32,
    },
}

/// What follows a handover.
#[derive(Debug)]
pub struct Following {
    /// What the taker is told.
    pub released: Released,
    /// What to report from then on.
    pub reports: mpsc::UnboundedReceiver<Report>,
    /// Connections that move.
    pub leaving: Option<Leaving>,
}

/// How far a process before us is listened to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Hearing {
    /// What it counted.
    Reports,
    /// Its connections may move here, too.
    Connections,
}

/// Whom to report to instead of us.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Heir {
    /// Its number.
    pub pid: u32,
    /// The version that it speaks.
    pub version: WireVersion,
    /// The connections that it takes.
    pub takes: Takes,
}

/// What there is to give.
#[derive(Debug)]
pub struct Offer {
    /// The version to speak.
    pub version: WireVersion,
    /// Our program's version.
    pub program: String,
    /// Whom we took over from.
    pub lineage: Vec<u32>,
    /// Listening sockets, address by address; to be let go of when they were sent.
    pub sockets: Vec<(Socket, Arc<[OwnedFd]>)>,
    /// The memory of stick tables, by name; both processes count in it from then on.
    pub tables: Vec<(String, OwnedFd)>,
    /// What to remember.
    pub state: ProcessMemory,
}

/// Talks with a process that asked for a handover, until it has said everything.
///
/// A process before us gives its `place` back: there are no more of them than this process took over from.
pub async fn talk(stream: UnixStream, peer: Peer, place: Option<Place>, events: mpsc::Sender<GiverEvent>) {
    let mut channel = Channel::new(stream);
    match channel.receive(ANSWER_WITHIN).await {
        Ok(Message::Hello(hello)) => give(channel, peer.uid, hello, events).await,
        // What it says of itself does not count.
        Ok(Message::Reporting { pid: _, version }) => {
            let Some(from) = peer.pid else { return };
            channel.speak(version.map(WireVersion::at_most).unwrap_or_default());
            let ((moved, told), (reply, answer)) = (oneshot::channel(), oneshot::channel());
            if events.send(GiverEvent::Joined { from, moved, uid: peer.uid, reply }).await.is_err() {
                return;
            }
            match answer.await {
                Ok(Some(hearing)) => {
                    drop(place);
                    report::listen(channel, from, hearing, told, events).await;
                }
                Ok(None) => abort(&mut channel, "it did not take over from the reporting process").await,
                Err(_) => {}
            }
        }
        Ok(other) => abort(&mut channel, &format!("unexpected first message {}", other.name())).await,
        Err(error) => abort(&mut channel, &error.to_string()).await,
    }
}

async fn give(mut channel: Channel, uid: u32, hello: Hello, events: mpsc::Sender<GiverEvent>) {
    let (reply, answer) = oneshot::channel();
    if events.send(GiverEvent::Asked { uid, hello, reply }).await.is_err() {
        return;
    }
    let offer = match answer.await {
        Ok(Ok(offer)) => offer,
        Ok(Err(refused)) => {
            // Who does not wait any more does not want to know.
            let _ = channel.send(Message::Refused(refused), &[], ANSWER_WITHIN).await;
            return;
        }
        Err(_) => return,
    };
    let ready = match hand_out(&mut channel, offer).await {
        Ok(ready) => ready,
        Err(reason) => {
            abort(&mut channel, &reason).await;
            let _ = events.send(GiverEvent::Failed { reason }).await;
            return;
        }
    };
    let (reply, answer) = oneshot::channel();
    let (_sent, done) = oneshot::channel();
    let (version, skipped) = (channel.version(), channel.skipped());
    if events.send(GiverEvent::Ready { ready, version, skipped, reply, done }).await.is_err() {
        return;
    }
    let Ok(Following { released, reports, leaving }) = answer.await else { return };
    // It serves, whether it hears this or not.
    let _ = channel.send(Message::Released(released), &[], ANSWER_WITHIN).await;
    report::tell(channel, reports, leaving).await;
}

/// Sends everything, and waits until the taker serves. Nothing of it changes what we do.
async fn hand_out(channel: &mut Channel, offer: Offer) -> Result<Ready, String> {
    let welcome = Welcome {
        version: offer.version.number(),
        pid: std::process::id(),
        program: offer.program,
        lineage: offer.lineage,
        sockets: offer.sockets.iter().map(|(_, shards)| shards.len() as u32).sum(),
        state_bytes: 0,
    };
    say(channel, Message::Welcome(welcome)).await?;
    channel.speak(offer.version);
    expect(channel, &Message::Send).await?;
    let sockets = offer.sockets.iter().flat_map(|(socket, shards)| shards.iter().map(move |shard| (socket, shard)));
    let sockets: Vec<_> = sockets.collect();
    for some in sockets.chunks(SOCKETS_PER_MESSAGE) {
        let sockets = Sockets { sockets: some.iter().map(|(socket, _)| (*socket).clone()).collect() };
        let fds: Vec<_> = some.iter().map(|(_, fd)| fd.as_fd()).collect();
        let sent = channel.send(Message::Sockets(sockets), &fds, ANSWER_WITHIN).await;
        sent.map_err(|error| format!("sending sockets: {error}"))?;
    }
    drop(offer.sockets);
    expect(channel, &Message::Received).await?;
    // A process that speaks version 1 only knows no tables.
    if channel.version() == WireVersion::Frames {
        for some in offer.tables.chunks(SOCKETS_PER_MESSAGE) {
            let tables = TableNames { tables: some.iter().map(|(name, _)| name.clone()).collect() };
            let fds: Vec<_> = some.iter().map(|(_, fd)| fd.as_fd()).collect();
            let sent = channel.send(Message::Tables(tables), &fds, ANSWER_WITHIN).await;
            sent.map_err(|error| format!("sending stick tables: {error}"))?;
        }
    }
    drop(offer.tables);
    say(channel, Message::State(Box::new(offer.state))).await?;
    match channel.receive(READY_WITHIN).await {
        Ok(Message::Ready(ready)) => Ok(ready),
        Ok(other) => Err(unexpected(other)),
        Err(Broken::Closed) => Err("it ended before it served".into()),
        Err(error) => Err(format!("it does not serve: {error}")),
    }
}

async fn say(channel: &mut Channel, message: Message) -> Result<(), String> {
    let name = message.name();
    channel.send(message, &[], ANSWER_WITHIN).await.map_err(|error| format!("sending {name}: {error}"))
}

async fn expect(channel: &mut Channel, message: &Message) -> Result<(), String> {
    match channel.receive(ANSWER_WITHIN).await {
        Ok(received) if received == *message => Ok(()),
        Ok(other) => Err(unexpected(other)),
        Err(error) => Err(format!("waiting for {}: {error}", message.name())),
    }
}

fn unexpected(message: Message) -> String {
    match message {
        Message::Abort { reason } => reason,
        other => format!("unexpected: {}", other.name()),
    }
}

async fn abort(channel: &mut Channel, reason: &str) {
    // Whoever is gone does not need to hear it.
    let _ = channel.send(Message::Abort { reason: reason.into() }, &[], ANSWER_WITHIN).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handover::message::Hello;

    /// Plays the change path: offers nothing but a state, and says how the conversation ended.
    async fn change_line(mut events: mpsc::Receiver<GiverEvent>) -> String {
        loop {
            match events.recv().await {
                Some(GiverEvent::Asked { reply, .. }) => {
                    let offer = Offer {
                        version: WireVersion::Messages,
                        program: "test".into(),
                        lineage: Vec::new(),
                        sockets: Vec::new(),
                        tables: Vec::new(),
                        state: ProcessMemory::default(),
                    };
                    reply.send(Ok(offer)).unwrap();
                }
                Some(GiverEvent::Failed { reason }) => return reason,
                Some(other) => return format!("{other:?}"),
                None => return "nothing".into(),
            }
        }
    }

    /// A taker that says so much and then nothing more; how the conversation ended, and what the taker was told.
    async fn silent(said: &[Message]) -> (String, Message) {
        let (one, other) = UnixStream::pair().unwrap();
        let peer = Peer::of(&one).unwrap();
        let (events, seen) = mpsc::channel(4);
        let taker = async {
            let mut channel = Channel::new(other);
            for message in said {
                channel.send(message.clone(), &[], ANSWER_WITHIN).await.unwrap();
            }
            loop {
                if let message @ Message::Abort { .. } = channel.next().await.unwrap() {
                    return message;
                }
            }
        };
        let ((), ended, told) = tokio::join!(talk(one, peer, None, events), change_line(seen), taker);
        (ended, told)
    }

    #[tokio::test(start_paused = true)]
    async fn every_wait_has_an_end() {
        let check = async |said: &[Message], expect: &str| {
            let (ended, told) = silent(said).await;
            assert_eq!(ended, expect);
            match told {
                Message::Abort { reason } if expect == "nothing" => assert_eq!(reason, "no reply within 5 s"),
                Message::Abort { reason } => assert_eq!(reason, expect, "the taker is told the same"),
                other => panic!("{other:?}"),
            }
        };
        let hello = Message::Hello(Hello { versions: vec![1], ..Hello::default() });
        let (send, received) = (Message::Send, Message::Received);
        check(&[], "nothing").await;
        check(std::slice::from_ref(&hello), "waiting for send: no reply within 5 s").await;
        check(&[hello.clone(), send.clone()], "waiting for received: no reply within 5 s").await;
        check(&[hello, send, received], "it does not serve: no reply within 30 s").await;
    }
}
