//! Both roles talk to each other: whatever pieces the bytes arrive in, however small windows are, and in whichever process each side goes on, every
//! message arrives as it was sent.

use std::collections::BTreeMap;

use baton_http2::{Config, Connection, Event, NotOpened, RequestPseudo, Role, Settings};
use proptest::collection::vec;
use proptest::prelude::*;

/// A message, as it was sent or as it arrived.
#[derive(Clone, Default, PartialEq, Debug)]
struct Message {
    /// `:path`, or `:status`.
    start: String,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    trailers: Vec<(String, String)>,
    is_whole: bool,
}

/// What is being sent on a stream.
struct Sending {
    message: Message,
    has_head: bool,
    sent: usize,
}

/// One side.
struct Side {
    connection: Connection,
    out: Vec<u8>,
    /// What arrived and was not taken.
    input: Vec<u8>,
    received: BTreeMap<u32, Message>,
    sending: BTreeMap<u32, Sending>,
    /// Bytes of bodies that were not consumed yet.
    unconsumed: Vec<(u32, usize)>,
}

fn pairs(fields: &[(String, String)]) -> impl Iterator<Item = (&[u8], &[u8])> {
    fields.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))
}

impl Side {
    fn new(role: Role, config: Config) -> Side {
        let mut side = Side {
            connection: Connection::new(role, config),
            out: Vec::new(),
            input: Vec::new(),
            received: BTreeMap::new(),
            sending: BTreeMap::new(),
            unconsumed: Vec::new(),
        };
        side.connection.open(&mut side.out);
        side
    }

    /// Another process goes on.
    fn moves(&mut self) {
        let text = serde_json::to_string(&self.connection).expect("plain data");
        self.connection = serde_json::from_str(&text).expect("plain data");
        self.connection.shrink();
    }

    fn take(&mut self) {
        let mut taken = 0;
        loop {
            let received = self.connection.receive(&self.input[taken..], &mut self.out).expect("no violation");
            taken += received.consumed;
            let Some(event) = received.event else { break };
            let head = self.connection.head();
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
            let fields = || head.pairs().map(|(name, value)| (text(name), text(value))).collect();
            match event {
                Event::Head { stream, ends } => {
                    let start = if head.status() == 0 { text(head.path()) } else { head.status().to_string() };
                    let message = Message { start, fields: fields(), is_whole: ends, ..Message::default() };
                    assert!(self.received.insert(stream, message).is_none());
                }
                Event::Data { stream, bytes, ends } => {
                    let message = self.received.get_mut(&stream).expect("a head came first");
                    message.body.extend_from_slice(bytes);
                    message.is_whole = ends;
                    self.unconsumed.push((stream, bytes.len()));
                }
                Event::Trailers { stream } => {
                    let trailers = fields();
                    let message = self.received.get_mut(&stream).expect("a head came first");
                    message.trailers = trailers;
                    message.is_whole = true;
                }
                Event::Interim { .. } => assert_eq!(head.status(), 103),
                Event::Window { .. } | Event::Settings | Event::Pong { .. } | Event::GoAway { .. } => {}
                Event::Reset { .. } | Event::Failed { .. } | Event::HeadTooLarge { .. } => panic!("{event:?}"),
            }
        }
        self.input.drain(..taken);
    }

    /// Sends what can be sent.
    fn go_on(&mut self) {
        for (stream, len) in self.unconsumed.drain(..) {
            self.connection.consumed(stream, len, &mut self.out);
        }
        let Side { connection, sending, out, .. } = self;
        sending.retain(|&stream, at| {
            let Sending { message, has_head, sent } = at;
            let is_bare = message.body.is_empty() && message.trailers.is_empty();
            if !*has_head {
                *has_head = true;
                connection.send_response(stream, 103, std::iter::empty(), false, out);
                let status = message.start.parse().expect("a status");
                connection.send_response(stream, status, pairs(&message.fields), is_bare, out);
            }
            if is_bare {
                return false;
            }
            let ends = message.trailers.is_empty();
            *sent += connection.send_data(stream, &message.body[*sent..], ends, out);
            let is_done = *sent == message.body.len();
            if is_done && !ends {
                connection.send_trailers(stream, pairs(&message.trailers), out);
            }
            !is_done
        });
    }
}

/// Moves up to `len` bytes.
fn carry(from: &mut Side, to: &mut Side, len: usize) {
    let len = len.min(from.out.len());
    to.input.extend(from.out.drain(..len));
    to.take();
}

fn text() -> impl Strategy<Value = String> {
    "[!-~]([ -~]{0,20}[!-~])?"
}

fn fields() -> impl Strategy<Value = Vec<(String, String)>> {
    let name = prop_oneof![
        Just("accept".to_owned()),
        Just("user-agent".to_owned()),
        Just("x-request-id".to_owned()),
        Just("authorization".to_owned()),
        "x-[a-z0-9-]{1,40}"
    ];
    vec((name, prop_oneof![text(), Just(String::new()), "[a-z]{500}"]), 0..12)
}

fn message(start: impl Strategy<Value = String>) -> impl Strategy<Value = Message> {
    (start, fields(), prop_oneof![Just(0), 0..100usize, 0..20_000usize], fields(), any::<bool>()).prop_map(
        |(start, fields, len, trailers, has_trailers)| Message {
            start,
            fields,
            body: (0..len).map(|at| at as u8).collect(),
            trailers: if has_trailers { trailers } else { Vec::new() },
            is_whole: true,
        },
    )
}

fn settings() -> impl Strategy<Value = Config> {
    (1..5u32, prop_oneof![Just(1u32), 2..70_000u32, Just(1 << 20)], 0..5000u32, 16_384..40_000u32).prop_map(
        |(streams, window, table, frame)| Config {
            settings: Settings {
                max_concurrent_streams: streams,
                initial_window_size: window.max(200),
                header_table_size: table,
                max_frame_size: frame,
                enable_push: false,
                ..Settings::default()
            },
            connection_window: 65_535 + window,
            control_frames_max: 1_000_000,
            ..Config::default()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn messages_arrive_as_they_were_sent(
        exchanges in vec((message("/[a-z]{0,30}"), message("[2-5][0-9]{2}".prop_filter("has a body", |status| !matches!(&status[..], "204" | "304")))), 1..12),
        ours in settings(),
        theirs in settings(),
        pieces in vec(prop_oneof![1..20usize, 1..70_000usize], 1..20),
    ) {
        let (mut client, mut server) = (Side::new(Role::Client, ours), Side::new(Role::Server, theirs));
        let (mut waiting, mut streams) = (exchanges.iter(), Vec::new());
        let mut next = waiting.next();
        for round in 0.. {
            prop_assert!(round < 300_000, "it goes on");
            // Before, it does not know how many streams it may open.
            while client.connection.has_settings()
                && let Some((request, _)) = next
            {
                let pseudo = RequestPseudo { method: b"POST", scheme: b"https", authority: b"a", path: request.start.as_bytes(), protocol: None };
                let is_bare = request.body.is_empty() && request.trailers.is_empty();
                match client.connection.send_request(pseudo, pairs(&request.fields), is_bare, &mut client.out) {
                    Ok(stream) => {
                        streams.push(stream);
                        client.sending.insert(stream, Sending { message: request.clone(), has_head: true, sent: 0 });
                        next = waiting.next();
                    }
                    Err(NotOpened::Full) => break,
                    Err(NotOpened::Ending) => prop_assert!(false),
                }
            }
            let piece = pieces[round % pieces.len()];
            carry(&mut client, &mut server, piece);
            carry(&mut server, &mut client, piece);
            if round % 31 == 3 {
                client.moves();
                server.moves();
            }
            client.go_on();
            let arrived: Vec<_> = server.received.iter().filter(|(_, message)| message.is_whole).map(|(stream, _)| *stream).collect();
            for stream in arrived {
                let at = usize::try_from(stream / 2).expect("small");
                prop_assert_eq!(server.received.remove(&stream), Some(exchanges[at].0.clone()));
                server.sending.insert(stream, Sending { message: exchanges[at].1.clone(), has_head: false, sent: 0 });
            }
            let sending: Vec<_> = server.sending.keys().copied().collect();
            server.go_on();
            for stream in sending.iter().filter(|stream| !server.sending.contains_key(stream)) {
                server.connection.release(*stream, &mut server.out);
            }
            let answered: Vec<_> = client.received.iter().filter(|(_, message)| message.is_whole).map(|(stream, _)| *stream).collect();
            for stream in answered {
                let at = streams.iter().position(|own| *own == stream).expect("a request of ours");
                prop_assert_eq!(client.received.remove(&stream), Some(exchanges[at].1.clone()));
                client.connection.release(stream, &mut client.out);
                streams[at] = 0;
            }
            if next.is_none() && streams.iter().all(|stream| *stream == 0) {
                break;
            }
        }
        prop_assert_eq!((client.connection.streams(), client.connection.glitches()), (0, 0));
        for (end, role, other) in [(&server, Role::Server, Role::Client), (&client, Role::Client, Role::Server)] {
            prop_assert!(end.connection.can_go_on(role) && !end.connection.can_go_on(other));
        }
        // The end, in two steps.
        server.connection.begin_drain(&mut server.out);
        for _ in 0..4 {
            carry(&mut server, &mut client, usize::MAX);
            carry(&mut client, &mut server, usize::MAX);
        }
        prop_assert!(server.connection.is_drained() && client.connection.has_peer_gone_away());
        prop_assert_eq!(client.connection.may_open(), Err(NotOpened::Ending));
    }
}
