//! After a handover: the process that is ending tells what its last connections still count, so that figures are exact, and
//! how many sessions they hold on each server, which count for `maxconn`. Connections that can move follow ([`super::moving`]).
//!
//! A process that hands over in its turn passes nothing on: it tells those who report to it whom to report to instead, and
//! they connect there.

use std::time::Duration;

use tokio::net::UnixStream;
use tokio::sync::{mpsc, oneshot};

use super::channel::{ANSWER_WITHIN, Broken, Channel};
use super::giver::{GiverEvent, Hearing, Heir};
use super::kinds::Takes;
use super::message::{Connections, IdleServers, Message, Report};
use super::moving::{Coming, Leaving, LeavingEvent};
use super::taker;
use super::wire::WireVersion;

/// How often to report.
pub const EVERY: Duration = Duration::from_millis(100);
/// How often a process that reports may be sent on to another one before it gives up.
const MOVES_MAX: u32 = 10_000;

/// Sends reports until there are no more, or nobody to tell.
pub async fn tell(mut channel: Channel, mut reports: mpsc::UnboundedReceiver<Report>, mut leaving: Option<Leaving>) {
    let mut moves = 0;
    loop {
        tokio::select! {
            report = reports.recv() => {
                let Some(report) = report else { return };
                if channel.send(Message::Report(report), &[], ANSWER_WITHIN).await.is_err() {
                    return;
                }
            }
            event = leaving_event(&mut leaving) => {
                let Some(leaving) = &mut leaving else { return };
                let done = match event {
                    LeavingEvent::Client(departure) => leaving.offer(&mut channel, departure).await,
                    LeavingEvent::Server(server) => leaving.give_servers(&mut channel, server).await,
                    LeavingEvent::Late => leaving.withdraw(&mut channel).await,
                };
                if done.is_err() {
                    return;
                }
            }
            said = channel.next() => match said {
                Ok(Message::Take(take)) => {
                    if let Some(leaving) = &mut leaving
                        && leaving.taken(&mut channel, take).await.is_err()
                    {
                        return;
                    }
                }
                Ok(Message::Moved { to, version, moving, kinds }) if moves < MOVES_MAX => {
                    moves += 1;
                    // Dropping the old one says that everything was sent.
                    let Ok(other) = reach(to, version.map(WireVersion::at_most).unwrap_or_default()).await else { return };
                    channel = other;
                    if let Some(leaving) = &mut leaving
                        && leaving.goes_to(&mut channel, Takes { format: moving, kinds }).await.is_err()
                    {
                        return;
                    }
                }
                Ok(_) => {}
                Err(_) => return,
            },
        }
    }
}

async fn leaving_event(leaving: &mut Option<Leaving>) -> LeavingEvent {
    match leaving {
        Some(leaving) => leaving.next().await,
        None => std::future::pending().await,
    }
}

/// Connects to the process to report to, which speaks that version.
async fn reach(pid: u32, version: WireVersion) -> Result<Channel, Broken> {
    let stream = tokio::task::spawn_blocking(move || taker::connect(pid)).await.map_err(std::io::Error::other)?;
    let stream = stream.map_err(|error| Broken::Said(error.to_string()))?;
    stream.set_nonblocking(true)?;
    let mut channel = Channel::new(UnixStream::from_std(stream)?);
    let said = Some(version.number()).filter(|_| version != WireVersion::Messages);
    channel.send(Message::Reporting { pid: std::process::id(), version: said }, &[], ANSWER_WITHIN).await?;
    channel.speak(version);
    Ok(channel)
}

/// Passes on what a process before us reports, until it ends. `moved` tells whom it shall report to instead.
pub async fn listen(
    mut channel: Channel,
    from: u32,
    hearing: Hearing,
    mut moved: oneshot::Receiver<Heir>,
    events: mpsc::Sender<GiverEvent>,
) {
    let mut may_move = true;
    let mut coming = Coming::default();
    loop {
        tokio::select! {
            to = &mut moved, if may_move => {
                may_move = false;
                if let Ok(Heir { pid: to, version, takes: Takes { format: moving, kinds } }) = to {
                    let version = Some(version.number()).filter(|_| version != WireVersion::Messages);
                    // When it is gone, what it said last is still to be read.
                    let _ = channel.send(Message::Moved { to, version, moving, kinds }, &[], ANSWER_WITHIN).await;
                }
            }
            said = channel.next() => match said {
                Ok(Message::Report(report)) => {
                    if events.send(GiverEvent::Report { from, report }).await.is_err() {
                        return;
                    }
                }
                Ok(Message::Connections(offer)) if hearing == Hearing::Connections => {
                    let (reply, answer) = oneshot::channel();
                    let Connections { batch, connections } = offer;
                    if events.send(GiverEvent::Offered { connections, reply }).await.is_err() {
                        return;
                    }
                    // Without verdicts they are for another process, which is told next.
                    if let Ok(Some(verdicts)) = answer.await {
                        let take = coming.expect(batch, verdicts);
                        if channel.send(Message::Take(take), &[], ANSWER_WITHIN).await.is_err() {
                            break;
                        }
                    }
                }
                Ok(Message::Give(give)) => {
                    if coming.arrive(&mut channel, &give).is_err() {
                        break;
                    }
                }
                Ok(Message::Withdraw { batch }) => coming.withdraw(batch),
                Ok(Message::Servers(IdleServers { servers })) => {
                    let Ok(sockets) = channel.take_fds(servers.len()) else { break };
                    // Those of a process that is not listened to are closed.
                    let servers: Vec<_> = servers.into_iter().zip(sockets).collect();
                    if hearing == Hearing::Connections && events.send(GiverEvent::Servers { servers }).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(_) => break,
            },
        }
    }
    let _ = events.send(GiverEvent::Left { from }).await;
}
