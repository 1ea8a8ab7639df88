//! The serialized state of a connection: another process continues with it, or refuses it.

use baton_http2::{Config, Connection, Event, RequestPseudo, Role};
use serde_json::{Value, json};

/// The ends of a connection that has had some requests, whose header tables are in use: the server's and the client's.
fn used() -> [Value; 2] {
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
                    assert!(!server.can_go_on(Role::Server), "a stream is open");
                    server.send_response(stream, 200, fields.into_iter(), true, &mut down);
                    server.release(stream, &mut down);
                }
                Some(_) => {}
                None => break,
            }
        }
        up.clear();
        let mut input = &down[..];
        loop {
            let received = client.receive(input, &mut up).expect("nothing is wrong");
            input = &input[received.consumed..];
            match received.event {
                Some(Event::Head { stream, .. }) => {
                    assert!(!client.can_go_on(Role::Client), "a stream is open");
                    client.release(stream, &mut up);
                }
                Some(_) => {}
                None => break,
            }
        }
        down.clear();
    }
    assert!(server.can_go_on(Role::Server) && client.can_go_on(Role::Client));
    [server, client].map(|end| serde_json::to_value(&end).expect("plain data"))
}

#[test]
fn what_cannot_be_is_refused() {
    let [of_server, of_client] = used();
    let refused = |role: Role, mut state: Value, place: &str, value: Value| {
        *state.pointer_mut(place).unwrap_or_else(|| panic!("{place}: there is no such")) = value.clone();
        let can_go_on = serde_json::from_value::<Connection>(state).is_ok_and(|connection| connection.can_go_on(role));
        assert!(!can_go_on, "{role:?} {place}: {value}");
    };
    refused(Role::Server, of_server.clone(), "/role", json!("Client"));
    refused(Role::Client, of_client.clone(), "/role", json!("Server"));
    refused(Role::Client, of_client.clone(), "/reading", json!({"Preface": {"seen": 1}}));
    for next in [0, 2, 1_u32 << 31, u32::MAX] {
        refused(Role::Client, of_client.clone(), "/next_own", json!(next));
    }
    refused(Role::Client, of_client.clone(), "/peer_last", json!(1));
    let check = |place: &str, value: Value| {
        refused(Role::Server, of_server.clone(), place, value.clone());
        if !place.starts_with("/reading") {
            refused(Role::Client, of_client.clone(), place, value);
        }
    };
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
