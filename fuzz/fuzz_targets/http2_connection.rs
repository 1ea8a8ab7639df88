//! Two peers of ours that do what the input says, in any order: neither ever sees a violation, and no bytes of a body are lost or changed.
#![no_main]

use std::collections::BTreeMap;

use baton_http2::{Config, Connection, ErrorCode, Event, RequestPseudo, Role, Settings};
use libfuzzer_sys::fuzz_target;

struct Side {
    connection: Connection,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Bytes sent and received on each stream, and those that wait for us.
    streams: BTreeMap<u32, (u64, u64, usize)>,
}

impl Side {
    fn new(role: Role, window: u8) -> Side {
        let settings = Settings {
            initial_window_size: 1 + u32::from(window) * 300,
            header_table_size: u32::from(window) * 20,
            max_concurrent_streams: 1000,
            enable_push: false,
            ..Settings::default()
        };
        let config = Config { settings, resets_max: 1 << 20, control_frames_max: 1 << 20, ..Config::default() };
        let mut side = Side {
            connection: Connection::new(role, config),
            out: Vec::new(),
            input: Vec::new(),
            streams: BTreeMap::new(),
        };
        side.connection.open(&mut side.out);
        side
    }

    fn take(&mut self) {
        let mut taken = 0;
        loop {
            let received = self.connection.receive(&self.input[taken..], &mut self.out).expect("no violation");
            taken += received.consumed;
            match received.event {
                None => break,
                Some(Event::Head { stream, .. }) => {
                    self.streams.entry(stream).or_default();
                }
                Some(Event::Data { stream, bytes, .. }) => {
                    let at = self.streams.entry(stream).or_default();
                    for byte in bytes {
                        assert_eq!(*byte, (at.1 % 251) as u8);
                        at.1 += 1;
                    }
                    at.2 += bytes.len();
                }
                Some(Event::Failed { stream, violation }) => panic!("{stream}: {violation:?}"),
                Some(_) => {}
            }
        }
        self.input.drain(..taken);
    }
}

fuzz_target!(|input: &[u8]| {
    let &[window, other, ref steps @ ..] = input else { return };
    let mut sides = [Side::new(Role::Client, window), Side::new(Role::Server, other)];
    let pseudo = RequestPseudo { method: b"POST", scheme: b"https", authority: b"a", path: b"/", protocol: None };
    for step in steps.chunks_exact(2) {
        let (side, len) = (usize::from(step[0] & 1), usize::from(step[1]) * 40 + 1);
        let known: Vec<u32> = sides[side].streams.keys().copied().collect();
        let stream = known.get(usize::from(step[1]) % known.len().max(1)).copied().unwrap_or(1);
        let [client, server] = &mut sides;
        let (us, them) = if side == 0 { (client, server) } else { (server, client) };
        match step[0] >> 1 & 15 {
            0 | 1 => {
                let len = len.min(us.out.len());
                them.input.extend(us.out.drain(..len));
                them.take();
            }
            2 if side == 0 => {
                if us.connection.has_settings()
                    && let Ok(stream) = us.connection.send_request(
                        pseudo,
                        [(&b"x"[..], &step[..])].into_iter().filter(|_| false),
                        false,
                        &mut us.out,
                    )
                {
                    us.streams.insert(stream, (0, 0, 0));
                }
            }
            2 => us.connection.send_response(stream, 200, std::iter::empty(), false, &mut us.out),
            3 | 4 => {
                let Some(at) = us.streams.get_mut(&stream) else { continue };
                let bytes: Vec<u8> = (at.0..at.0 + len as u64).map(|at| (at % 251) as u8).collect();
                at.0 += us.connection.send_data(stream, &bytes, false, &mut us.out) as u64;
            }
            5 => {
                if let Some(at) = us.streams.get_mut(&stream) {
                    us.connection.consumed(stream, std::mem::take(&mut at.2), &mut us.out);
                }
            }
            6 => {
                us.connection.send_trailers(stream, [(&b"x"[..], &b"y"[..])].into_iter(), &mut us.out);
            }
            7 => us.connection.reset(stream, ErrorCode::CANCEL, &mut us.out),
            8 => {
                us.connection.release(stream, &mut us.out);
                us.streams.remove(&stream);
            }
            9 => us.connection.ping([step[1]; 8], &mut us.out),
            10 if side == 1 && step[1] > 250 => us.connection.begin_drain(&mut us.out),
            11 => us.connection.shrink(),
            _ => {}
        }
    }
});
