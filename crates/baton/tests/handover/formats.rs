//! Descriptions of connections in every format that there has been: what older programs wrote is served, and they get nothing that they do
//! not know. The samples were recorded from a program that knew formats up to 3, and no words for what came later; they are kept for ever.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use baton_control::handover::record::ConnectionRecord;
use serde_json::Value;

use crate::givers::Giver;
use crate::peers::Taker;
use crate::support::{Proxy, free_address, until};
use crate::tunnels::{connect, echo, exchange};
use crate::upgrades::{WEBSOCKET, open, upgrading};
use crate::{Client, origins};

/// The formats, and how many connections there are of each.
const FORMATS: [u32; 3] = [1, 2, 3];

/// A line for each format.
fn samples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/handover/samples/connections.jsonl")
}

fn sample(format: u32) -> String {
    let text = fs::read_to_string(samples()).expect("it is in the tree");
    text.lines().nth(format as usize - 1).expect("a line for each format").to_owned()
}

/// Frontends for a kept connection and a WebSocket, and for a session in `mode tcp`.
fn config(web: SocketAddr, db: SocketAddr, server: SocketAddr, [echo, upgrading]: [SocketAddr; 2]) -> String {
    format!(
        "global\n nbthread 1\n maxconn 200\ndefaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n use_backend ws if {{ path /ws }}\n default_backend app\n\
         backend app\n server s0 {server}\nbackend ws\n server s0 {upgrading}\n\
         frontend db\n mode tcp\n bind {db}\n default_backend echo\nbackend echo\n mode tcp\n server s0 {echo}\n"
    )
}

/// The sample of a format for this client, who was accepted at `address`; with the socket of its server, if it has one. The server sends
/// back what it receives.
pub fn recorded(format: u32, address: SocketAddr, client: &TcpStream) -> (ConnectionRecord, Option<TcpStream>) {
    let mut record: ConnectionRecord = serde_json::from_str(&sample(format)).expect("it was written by us");
    record.address = address.to_string();
    record.source = client.peer_addr().ok();
    let server = record.tunnel.as_mut().map(|tunnel| {
        let server = TcpStream::connect(echo()).expect("it listens");
        tunnel.facts.server = server.peer_addr().ok();
        tunnel.facts.source = None;
        server.set_nonblocking(true).expect("a socket");
        server
    });
    (record, server)
}

#[test]
fn what_older_programs_describe_is_served() {
    for format in FORMATS {
        let (_origins, servers) = origins(1);
        let (web, db) = (free_address(), free_address());
        let mut giver = Giver::start(&format!("moving-sample-{format}"), web, db);
        let client = connect(if format == 2 { db } else { web });
        let text = config(web, db, servers[0], [echo(), upgrading()]);
        let mut new = Proxy::begin(&[], &text, &["-sf", &giver.pid().to_string()]);
        giver.meets(&new);
        new.serves();
        until("it is there", || new.status().connections_arrived == 1);
        if format == 1 {
            let mut client = Client(client);
            assert!(client.get("/").contains("\"connection\":1"), "it comes from the server");
        } else {
            let mut client = client;
            (1..4).for_each(|number| _ = exchange(&mut client, number));
        }
        drop(giver);
        until("it has ended", || new.status().connections == 0);
    }
}

/// Without what differs from one connection to the next: times, addresses, and how many bytes.
fn general(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                let name = name.as_str();
                let is_own = ["_us", "_ms"].iter().any(|end| name.ends_with(end))
                    || ["address", "source"].contains(&name)
                    || (name == "server" && field.as_str().is_some_and(|server| server.contains(':')))
                    || ["moved", "bytes_in", "bytes_out"].contains(&name);
                *field = if is_own { Value::Null } else { general(field.take()) };
            }
            value
        }
        _ => value,
    }
}

#[test]
fn older_programs_get_what_they_know_and_as_they_know_it() {
    let (_origins, servers) = origins(1);
    for newest in FORMATS.into_iter().rev() {
        let (web, db) = (free_address(), free_address());
        let old = Proxy::start(&config(web, db, servers[0], [echo(), upgrading()]));
        let mut kept = Client::connect(web);
        kept.get("/");
        let mut sessions = [connect(db), open(web, WEBSOCKET.replace("?x=1", "").as_str())];
        sessions.iter_mut().for_each(|session| _ = exchange(session, 1));
        let mut taker = Taker::ask(old.pid());
        taker.receive_all();
        taker.ready_for(newest);
        let mut records = Vec::new();
        while records.len() < newest as usize {
            records.extend(taker.hear_offer().connections);
        }
        records.sort_by_key(|record| record.format);
        let json = |record: &ConnectionRecord| serde_json::to_value(record).expect("it can be written");
        let written: Vec<Value> = records.iter().map(json).collect();
        if newest == 3 && std::env::var_os("BATON_UPDATE").is_some() && !samples().exists() {
            let lines: String = written.iter().map(|value| format!("{value}\n")).collect();
            fs::write(samples(), lines).expect("the tree is ours");
        }
        for (format, value) in FORMATS.into_iter().zip(written) {
            let sample: Value = serde_json::from_str(&sample(format)).expect("it was written by us");
            assert_eq!(general(value), general(sample), "format {format} for who knows {newest}");
        }
        if newest < 3 {
            let staying = [("unknown".to_owned(), u64::from(3 - newest))].map(|(why, count)| (why, count as _)).into();
            until("the others stay", || old.status().connections_staying == staying);
        }
        drop((kept, sessions, taker));
        assert!(old.wait().0.success());
    }
}
