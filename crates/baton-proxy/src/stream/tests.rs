//! Two streams that speak TLS with each other over a socket pair, with nothing around them.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use baton_records::PLAIN_MAX;
use baton_tls::agreed::{release_client_keys, release_server_keys};
use baton_tls::rustls::client::UnbufferedClientConnection;
use baton_tls::rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use baton_tls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use baton_tls::rustls::server::UnbufferedServerConnection;
use baton_tls::rustls::version::{TLS12, TLS13};
use baton_tls::rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};

use super::*;

/// A server's and a client's end, not agreed yet, and the memory they share.
struct Pair {
    server: Stream,
    client: Stream,
    pool: Rc<RecordPool>,
}

impl Pair {
    fn new(version: &'static SupportedProtocolVersion) -> Pair {
        let made = rcgen::generate_simple_self_signed(["x.example".to_owned()]).expect("a certificate");
        let certificate: CertificateDer<'static> = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(default_provider());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .expect("certificate and key fit");
        server.ticketer = Ticketer::new().expect("random bytes");
        let mut roots = RootCertStore::empty();
        roots.add(certificate).expect("a root");
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .expect("a version")
            .with_root_certificates(roots)
            .with_no_client_auth();
        release_server_keys(&mut server);
        release_client_keys(&mut client);
        let server = UnbufferedServerConnection::new(Arc::new(server)).expect("a server");
        let name = ServerName::try_from("x.example").expect("a name");
        let client = UnbufferedClientConnection::new(Arc::new(client), name).expect("a client");

        let (one, other) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("two sockets");
        let pool: Rc<RecordPool> = Rc::default();
        let stream = |socket: Socket, tls| {
            socket.set_nonblocking(true).expect("a socket");
            let mut stream = Stream::new(socket).expect("a runtime");
            stream.secure(tls);
            stream
        };
        Pair {
            server: stream(one, Tls::new(Agreeing::with_client(server, PLAIN_MAX), None, pool.clone())),
            client: stream(other, Tls::new(Agreeing::with_server(client), None, pool.clone())),
            pool,
        }
    }

    /// Agreed.
    async fn agreed(version: &'static SupportedProtocolVersion) -> Pair {
        let pair = Pair::new(version);
        let server = async {
            poll_fn(|cx| pair.server.poll_handshake(cx)).await.expect("an agreement");
            pair.server.note_facts(|agreed| Facts::of(agreed, None, None));
        };
        let client = async {
            poll_fn(|cx| pair.client.poll_handshake(cx)).await.expect("an agreement");
            pair.client.note_facts(|agreed| Facts::of(agreed, None, None));
            // Its last word waits for the first bytes, or for the wait for some.
            poll_fn(|cx| Poll::Ready(pair.client.poll_read(cx, &mut [0]).is_pending())).await;
        };
        tokio::join!(server, client);
        pair
    }

    /// Nothing is lent to the two ends.
    fn assert_at_rest(&self, when: &str) {
        for (end, stream) in [("server", &self.server), ("client", &self.client)] {
            let held = stream.tls.as_ref().map(|tls| tls.holds());
            assert_eq!(held, Some([false; 3]), "{when}, {end}: received, plain, unsent");
        }
    }
}

async fn read(stream: &Stream, room: usize) -> Vec<u8> {
    let mut bytes = vec![0; room];
    let count = poll_fn(|cx| stream.poll_read(cx, &mut bytes)).await.expect("bytes or the end");
    bytes.truncate(count);
    bytes
}

async fn write(stream: &Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let count = poll_fn(|cx| stream.poll_write(cx, bytes)).await.expect("a peer");
        bytes = &bytes[count..];
    }
}

/// Whether the stream has nothing to read, at this moment.
async fn is_silent(stream: &Stream) -> bool {
    poll_fn(|cx| Poll::Ready(stream.poll_read(cx, &mut [0]).is_pending())).await
}

fn run<F: Future<Output = ()>>(test: impl Fn(&'static SupportedProtocolVersion) -> F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    for version in [&TLS12, &TLS13] {
        runtime.block_on(test(version));
    }
}

/// What an encrypted connection takes besides its keys and rustls' states, which are boxed.
#[test]
fn tls_is_small() {
    assert!(size_of::<Tls>() <= 1400, "{}", size_of::<Tls>());
}

#[test]
fn an_idle_connection_holds_no_memory_of_the_core() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        assert!(is_silent(&pair.server).await && is_silent(&pair.client).await);
        pair.assert_at_rest("agreed");
        for round in 0..3 {
            write(&pair.client, b"question").await;
            assert_eq!(read(&pair.server, 100).await, b"question");
            write(&pair.server, &[7; 100_000]).await;
            let mut got = 0;
            while got < 100_000 {
                got += read(&pair.client, 1000).await.len();
            }
            assert!(!pair.server.is_stale() && !pair.client.is_stale(), "round {round}");
            pair.assert_at_rest("answered");
        }
        drop(pair.server);
        assert_eq!(read(&pair.client, 10).await, b"");
        assert!(pair.client.is_stale());
        drop(pair.client);
        drop(pair.pool);
    });
}

#[test]
fn readers_of_every_size_get_the_same_bytes() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at ^ (at >> 8)) as u8).collect();
        for room in [1, 7, 1000, 16_384, 65_536, 1 << 20] {
            let sent = if room < 1000 { &sent[..5000] } else { &sent };
            let reader = async {
                let mut got = Vec::new();
                while got.len() < sent.len() {
                    poll_fn(|cx| pair.server.poll_readable(cx)).await;
                    got.extend(read(&pair.server, room).await);
                }
                assert!(got == *sent, "{room}");
            };
            tokio::join!(reader, write(&pair.client, sent));
        }
        assert!(is_silent(&pair.server).await);
        pair.assert_at_rest("all was read");
    });
}

#[test]
fn a_writer_waits_for_its_reader_and_its_bytes_are_sent_when_it_is_told_so() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        let bytes = vec![3; 1 << 16];
        let (mut begun, mut left) = (bytes.len(), &bytes[..]);
        // Until the sockets take no more.
        while let Poll::Ready(count) = poll_fn(|cx| Poll::Ready(pair.client.poll_write(cx, left))).await {
            left = &left[count.expect("a peer")..];
            if left.is_empty() {
                (begun, left) = (begun + bytes.len(), &bytes);
            }
            assert!(begun < 64 << 20, "nobody reads");
        }
        let reader = async {
            let mut got = 0;
            while got < begun {
                let read = read(&pair.server, 50_000).await;
                assert!(!read.is_empty() && read.iter().all(|byte| *byte == 3));
                got += read.len();
            }
            assert_eq!(got, begun);
        };
        tokio::join!(reader, write(&pair.client, left));
        assert!(is_silent(&pair.server).await);
        pair.assert_at_rest("all was read");
    });
}

#[test]
fn the_end_is_seen_behind_what_came_before_it() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        let closed = |stream: &Stream| {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            stream.poll_closed(&mut cx).map(|end| end.is_ok())
        };
        assert_eq!(closed(&pair.server), Poll::Pending);
        write(&pair.client, b"last").await;
        pair.client.shutdown_write();
        poll_fn(|cx| pair.server.poll_readable(cx)).await;
        assert_eq!(closed(&pair.server), Poll::Pending, "bytes hide it");
        assert!(pair.server.is_stale(), "bytes that nobody asked for");
        assert_eq!(read(&pair.server, 10).await, b"last");
        assert_eq!(closed(&pair.server), Poll::Ready(true));
        assert_eq!(read(&pair.server, 10).await, b"");
        // The other direction goes on.
        write(&pair.server, b"answer").await;
        assert_eq!(read(&pair.client, 10).await, b"answer");
        let error = poll_fn(|cx| pair.client.poll_write(cx, b"more")).await.expect_err("it said that it had said all");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
    });
}

#[test]
fn tickets_are_no_reason_to_give_a_connection_up() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        // The tickets of TLS 1.3 are on the way.
        assert!(!pair.client.is_stale());
        assert!(is_silent(&pair.client).await);
        assert!(!pair.client.is_stale());
        pair.server.reset_on_close();
        drop(pair.server);
        poll_fn(|cx| pair.client.poll_readable(cx)).await;
        assert!(pair.client.is_stale(), "closed without a word");
    });
}

/// Both ends as if they were in another process.
fn moved(pair: Pair) -> Pair {
    let Pair { server, client, pool } = pair;
    let [server, client] = [server, client].map(|stream| {
        let socket = stream.socket().try_clone().expect("a descriptor");
        let tls = stream.take_tls().expect("it can move");
        assert!(!stream.can_move());
        // No close_notify was sent.
        drop(stream);
        Stream::resumed(socket, Some(&tls), &pool)
    });
    Pair { server, client, pool }
}

#[test]
fn both_ends_move_between_any_two_messages() {
    run(|version| async move {
        let mut pair = Pair::agreed(version).await;
        for round in 0..5_u8 {
            write(&pair.client, &[round; 30_000]).await;
            write(&pair.server, &[round; 30_000]).await;
            pair = moved(pair);
            for end in [&pair.server, &pair.client] {
                let mut got = 0;
                while got < 30_000 {
                    // What does not fit into the room moves as it is.
                    let bytes = read(end, 7001).await;
                    assert!(bytes.iter().all(|byte| *byte == round));
                    got += bytes.len();
                }
            }
            assert_eq!(pair.server.facts().and_then(|facts| facts.version), Some(version.version));
        }
        write(&pair.client, b"last words").await;
        assert_eq!(read(&pair.server, 4).await, b"last");
        pair.client.shutdown_write();
        poll_fn(|cx| pair.client.poll_write(cx, b"more")).await.expect_err("it has said all");
        pair = moved(pair);
        poll_fn(|cx| pair.client.poll_write(cx, b"more")).await.expect_err("it has said all, wherever");
        assert_eq!(read(&pair.server, 100).await, b" words");
        assert_eq!(read(&pair.server, 100).await, b"");
        pair = moved(pair);
        assert_eq!(read(&pair.server, 100).await, b"");
        write(&pair.server, b"goes on").await;
        assert_eq!(read(&pair.client, 100).await, b"goes on");
    });
}

#[test]
fn what_was_taken_is_put_back() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        write(&pair.client, b"before").await;
        let taken = pair.server.take_tls();
        let error = poll_fn(|cx| pair.server.poll_write(cx, b"no keys")).await.expect_err("it is elsewhere");
        assert_eq!(error.kind(), io::ErrorKind::BrokenPipe);
        pair.server.put_back(taken.as_deref());
        assert_eq!(read(&pair.server, 100).await, b"before");
        write(&pair.server, b"after").await;
        assert_eq!(read(&pair.client, 100).await, b"after");
    });
}

#[test]
fn the_start_of_a_record_is_nothing_to_read() {
    run(|version| async move {
        let pair = Pair::agreed(version).await;
        let is_readable = || {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            pair.server.poll_readable(&mut cx).is_ready()
        };
        let tls = pair.client.take_tls().expect("it can move");
        let mut layer = baton_records::Layer::from_bytes(tls.layer()).expect("a layer");
        let mut records = vec![0; layer.sealed_len(100)];
        let count = layer.seal(&[9; 100], &mut records).expect("room");
        let (first, second) = records[..count].split_at(50);
        let socket = pair.client.socket();
        socket.send(first).expect("room");
        assert!(!is_readable());
        socket.send(second).expect("room");
        poll_fn(|cx| pair.server.poll_readable(cx)).await;
        assert_eq!(read(&pair.server, 1000).await, [9; 100]);
    });
}

#[test]
fn a_peer_that_leaves_during_the_handshake_is_missed() {
    run(|version| async move {
        let Pair { server, client, .. } = Pair::new(version);
        drop(client);
        let outcome = poll_fn(|cx| server.poll_handshake(cx)).await;
        assert!(matches!(outcome, Err(Broken::Closed)), "{outcome:?}");
    });
}

/// The two ends of a connection, of which neither is watched.
fn unwatched() -> [Stream; 2] {
    let pair = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("two sockets");
    [pair.0, pair.1].map(|socket| {
        socket.set_nonblocking(true).expect("a socket");
        Stream::accepted(socket)
    })
}

#[test]
fn a_connection_that_need_not_be_waited_for_is_never_registered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let [client, server] = unwatched();
        write(&client, b"request").await;
        poll_fn(|cx| server.poll_readable(cx)).await;
        assert_eq!(read(&server, 100).await, b"request");
        write(&server, b"response").await;
        assert_eq!(read(&client, 100).await, b"response");
        assert!(!server.wire.is_watched() && !client.wire.is_watched());
    });
}

#[test]
fn what_has_to_be_waited_for_is_registered_and_comes() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let [client, server] = unwatched();
        let look = || poll_fn(|cx| Poll::Ready((server.poll_readable(cx).is_ready(), server.wire.is_watched())));
        assert_eq!([look().await, look().await], [(false, false), (false, true)]);
        let request = async {
            poll_fn(|cx| server.poll_readable(cx)).await;
            read(&server, 100).await
        };
        let (request, ()) = tokio::join!(request, write(&client, b"request"));
        assert_eq!(request, b"request");
        // Neither side was watched when more was written than the socket takes.
        let [client, server] = unwatched();
        let long = vec![b'x'; 4 << 20];
        let receive = async {
            let mut received = 0;
            while received < long.len() {
                received += read(&server, 1 << 16).await.len();
            }
        };
        tokio::join!(write(&client, &long), receive);
        drop(client);
        assert_eq!(read(&server, 1).await, b"", "the end");
        assert!(server.is_stale());
    });
}
