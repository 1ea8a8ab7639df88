//! TLS with a client, from its first byte to the agreement (RFC 8446 2, RFC 5246 7.3).
//!
//! The client's first message is read as a whole before anything is answered: by it the [`Acceptor`] chooses settings and
//! certificate. Everything after it is between rustls and the client.

use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use baton_tls::agreed::record_len;
use baton_tls::rustls::server::UnbufferedServerConnection;
use baton_tls::{Acceptor, ChosenConfig, Hello, Unwanted};

use crate::client::Client;
use crate::core::{Core, Interrupt, until};
use crate::state::Counter;
use crate::stream::{Agreeing, Broken, Records, Tls};
use crate::sums::ProcessSum;

/// A first message longer than the memory for it, about 20 KiB, is refused: clients send less than 2.
const TOO_LONG: [u8; 7] = alert(50);
/// The client speaks nothing newer than TLS 1.1.
const TOO_OLD: [u8; 7] = alert(70);
/// TLS 1.2 on the wire.
const TLS12: u16 = 0x0303;
/// The client asks for a name that has no certificate (RFC 6066 3).
const UNKNOWN_NAME: [u8; 7] = alert(112);
/// The client was made to fall back from a version that both speak (RFC 7507 3).
const FALLBACK: [u8; 7] = alert(86);
/// A fault of our own.
const INTERNAL: [u8; 7] = alert(80);

/// Why a client is not served.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandshakeFailure {
    /// It closed before the end of the handshake.
    Closed {
        /// It sent nothing.
        silent: bool,
    },
    /// It did not get to the end within `timeout client`.
    Late,
    /// The connection broke.
    Broken,
    /// It sent what is no TLS, wants what we do not have, or did not prove who it is.
    Refused,
    /// Its certificate was refused.
    Untrusted {
        /// For a fault of an authority above it.
        by_chain: bool,
    },
    /// The connection was told to end.
    Ordered,
}

impl HandshakeFailure {
    /// The log's words; `None` where nothing is logged. `dont_log_null`: silence is nothing to be told (`option dontlognull`),
    /// which for HAProxy includes a client that stops in the middle.
    pub fn text(self, dont_log_null: bool) -> Option<&'static str> {
        match self {
            HandshakeFailure::Closed { silent: true } | HandshakeFailure::Late if dont_log_null => None,
            HandshakeFailure::Closed { .. } if dont_log_null => Some("SSL handshake failure"),
            HandshakeFailure::Closed { .. } => Some("Connection closed during SSL handshake"),
            HandshakeFailure::Late => Some("Timeout during SSL handshake"),
            HandshakeFailure::Broken => Some("Connection error during SSL handshake"),
            HandshakeFailure::Refused => Some("SSL handshake failure"),
            HandshakeFailure::Untrusted { by_chain: true } => Some("SSL client CA chain cannot be verified"),
            HandshakeFailure::Untrusted { by_chain: false } => Some("SSL client certificate not trusted"),
            HandshakeFailure::Ordered => Some("Stopped during SSL handshake"),
        }
    }
}

impl From<Interrupt> for HandshakeFailure {
    fn from(interrupt: Interrupt) -> HandshakeFailure {
        match interrupt {
            Interrupt::Timeout => HandshakeFailure::Late,
            Interrupt::Abort => HandshakeFailure::Ordered,
        }
    }
}

/// Agrees on TLS with a client, within `timeout client`, and remembers the facts. A client that cannot be served was told why.
pub async fn agree(core: &Core, client: &mut Client, acceptor: &Acceptor) -> Result<(), HandshakeFailure> {
    let limit = client.session.view().plan.proxy.timeouts.client;
    client.deadline.set(limit.map(|limit| core.now() + limit));
    let figures = &core.registry.tls;
    core.registry.sums.add(ProcessSum::TlsHandshakes, 1);
    let outcome = attempt(core, client, acceptor).await;
    let view = client.session.view();
    let counters = view.plan.state.counters.of(core.number);
    match client.connection.tls() {
        None => counters.add(Counter::TlsFailures, 1),
        Some(facts) => {
            counters.add(Counter::TlsSessions, 1);
            counters.add(Counter::TlsResumed, u64::from(facts.resumed));
            let total = if facts.resumed { &figures.resumed } else { &figures.full };
            total.fetch_add(1, Ordering::Relaxed);
        }
    }
    outcome
}

async fn attempt(core: &Core, client: &mut Client, acceptor: &Acceptor) -> Result<(), HandshakeFailure> {
    let mut received = core.records.take();
    if let Some(input) = client.take_input() {
        received.append(&input);
        core.buffers.give(input);
    }
    let chosen = match hello(core, client, acceptor, &mut received).await {
        Ok(chosen) => chosen,
        Err(failed) => {
            core.records.give(received);
            return Err(failed);
        }
    };
    let Ok(session) = UnbufferedServerConnection::new(chosen.config.clone()) else {
        core.records.give(received);
        return refuse(client, INTERNAL);
    };
    let agreeing = Agreeing::with_client(session, record_len(&chosen.config));
    client.connection.stream.secure(Tls::new(agreeing, Some(received), core.records.clone()));
    let Client { connection, deadline, .. } = client;
    let stream = &connection.stream;
    match until(core, connection.orders(), deadline, |cx| stream.poll_handshake(cx)).await? {
        Ok(()) => {}
        Err(Broken::Closed) => return Err(HandshakeFailure::Closed { silent: false }),
        Err(Broken::Socket(_)) => return Err(HandshakeFailure::Broken),
        Err(Broken::Protocol(_, None)) => return Err(HandshakeFailure::Refused),
        Err(Broken::Protocol(_, Some(refusal))) => {
            return Err(HandshakeFailure::Untrusted { by_chain: refusal.depth > 0 });
        }
    }
    client.connection.stream.note_facts(|agreed| chosen.facts(agreed));
    // The times of what follows begin here (configuration manual, 8.4 "Timing events").
    client.connection.begin_again(core.now());
    Ok(())
}

/// Reads the client's first message and asks what to answer it with. What is no such message goes on to rustls, which knows
/// what to say to it.
async fn hello(
    core: &Core,
    client: &mut Client,
    acceptor: &Acceptor,
    received: &mut Records,
) -> Result<ChosenConfig, HandshakeFailure> {
    loop {
        match Hello::read(received.bytes()) {
            Ok(hello) => {
                let hello = hello.unwrap_or_default();
                // rustls would say that something is missing in it.
                if (1..TLS12).contains(&hello.version()) && hello.versions().next().is_none() {
                    return refuse(client, TOO_OLD);
                }
                return match acceptor.choose(&hello) {
                    Ok(chosen) => Ok(chosen),
                    Err(Unwanted::Name) => refuse(client, UNKNOWN_NAME),
                    Err(Unwanted::Fallback) => refuse(client, FALLBACK),
                };
            }
            Err(_) if received.is_full() => return refuse(client, TOO_LONG),
            Err(_) => {}
        }
        let silent = received.is_empty();
        let Client { connection, deadline, .. } = &mut *client;
        let stream = &connection.stream;
        let read = until(core, connection.orders(), deadline, |cx| stream.poll_read(cx, received.room())).await;
        match read {
            Ok(Ok(0)) => return Err(HandshakeFailure::Closed { silent }),
            Ok(Ok(count)) => received.filled(count),
            Ok(Err(_)) => return Err(HandshakeFailure::Broken),
            Err(interrupt) => return Err(interrupt.into()),
        }
    }
}

/// Tells the client why not, as far as the socket takes it.
fn refuse<T>(client: &Client, alert: [u8; 7]) -> Result<T, HandshakeFailure> {
    let mut cx = Context::from_waker(Waker::noop());
    // A few bytes on a new connection: the socket has room for them.
    let _: Poll<_> = client.connection.stream.poll_write(&mut cx, &alert);
    Err(HandshakeFailure::Refused)
}

/// A fatal alert, not encrypted (RFC 8446 6).
const fn alert(description: u8) -> [u8; 7] {
    [21, 3, 3, 0, 2, 2, description]
}
