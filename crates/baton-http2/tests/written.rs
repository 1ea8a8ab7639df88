//! The state of a connection that was written down elsewhere: another process goes on with it, or refuses it.

use baton_http2::{Config, Connection, Event, RequestPseudo, Role};
use serde_json::{Value, json};

/// A server's connection that has had some requests, whose header tables are in use.
fn used() -> Value {
    let (mut client, mut server) =
        (Connection::new(Role::Client, Config::default()), Connection::new(Role::Server, Config::default()));
    let (mut up, mut down) = (Vec::new(), Vec::new());
    client.open(&mut up);
    server.open(&mut down);
    for number in 0..3 {
        let pseudo = RequestPseudo { method: b"GET", scheme: b"http", authority: b"a", path: b"/", protocol: None };
        let value = format!("value {number}");
        let fields = [(&b"x-mark"[..], value.as_bytes())];
        client.send_request(pseudo, fields.into_iter(), true, &mut up).expect("there is room");
        let mut input = &up[..];
        loop {
            let received = server.receive(input, &mut down).expect("nothing is wrong");
            input = &input[received.consumed..];
            match received.event {
                Some(Event::Head { stream, .. }) => {
                    assert!(!server.can_go_on(), "a stream is open");
                    server.send_response(stream, 200, fields.into_iter(), true, &mut down);
                    server.release(stream, &mut down);
                }
                Some(_) => {}
                None => break,
            }
        }
        up.clear();
    }
    assert!(server.can_go_on());
    serde_json::to_value(&server).expect("plain data")
}

#[test]
fn what_cannot_be_is_refused() {
    let check = |place: &str, value: Value| {
        let mut state = used();
        *state.pointer_mut(place).unwrap_or_else(|| panic!("{place}: there is no such")) = value.clone();
        let can_go_on = serde_json::from_value::<Connection>(state).is_ok_and(|connection| connection.can_go_on());
        assert!(!can_go_on, "{place}: {value}");
    };
    check("/role", json!("Client"));
    check("/role", json!("later"));
    check("/drain", json!("Announced"));
    check("/reading", json!({"Preface": {"seen": 24}}));
    for table in ["/decoder/table", "/encoder/table"] {
        check(&format!("{table}/size"), json!(1));
        check(&format!("{table}/size_max"), json!(1));
        check(&format!("{table}/arena"), json!([1, 2, 3]));
        check(&format!("{table}/entries/0/start"), json!(u32::MAX));
        check(&format!("{table}/entries/0/name_len"), json!(u32::MAX));
        check(&format!("{table}/entries/1/start"), json!(1 << 20));
    }
    check("/encoder/table/size_max", json!(1 << 20));
    check("/peer/max_frame_size", json!(0));
    check("/obeyed/initial_window_size", json!(u32::MAX));
    check("/config/connection_window", json!(u32::MAX));
    check("/receive_window/size", json!(u32::MAX));
}
