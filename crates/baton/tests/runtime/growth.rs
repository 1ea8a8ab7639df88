//! Servers that are added and deleted one by one under load: no request fails, and the cost of one does not grow with their number.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use baton_prove::{Origin, OriginOptions};

use crate::support::clients::{assert_clean, under_load};
use crate::support::{PATIENCE, Proxy, free_address};

/// How many servers; all 5,000 of the promise with this variable.
const SERVERS: &str = "BATON_TEST_SERVERS";

struct Session(UnixStream);

impl Session {
    fn command(&mut self, command: &str, expect: &str) {
        self.0.write_all(format!("{command}\n").as_bytes()).expect("it reads");
        let mut text = Vec::new();
        let mut room = [0; 4096];
        while !text.ends_with(b"\n> ") {
            let count = self.0.read(&mut room).expect("a response");
            assert!(count > 0, "{command}: the end");
            text.extend_from_slice(&room[..count]);
        }
        let text = String::from_utf8_lossy(&text);
        assert!(text.starts_with(expect), "{command}: {text}");
    }
}

/// CPU time that the thread of the change path used until now, in nanoseconds: what else the machine does is not in it.
fn cpu_ns(proxy: &Proxy) -> u64 {
    let pid = proxy.pid();
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).expect("it runs");
    text.split(' ').next().and_then(|field| field.parse().ok()).expect("a number of nanoseconds")
}

/// What one command costs: of a row of sums the median difference. Once a second the thread also reads all counters, which is in few of them.
fn median(used: &[u64]) -> u64 {
    let mut each: Vec<u64> = used.windows(2).map(|pair| pair[1] - pair[0]).collect();
    each.sort_unstable();
    each[each.len() / 2]
}

#[test]
fn servers_come_and_go_by_the_thousand_at_the_same_cost_each() {
    let count: usize = std::env::var(SERVERS).ok().and_then(|text| text.parse().ok()).unwrap_or(1200);
    let origin = Origin::start(OriginOptions::new("o1")).expect("loopback has a free port");
    let (folder, web) = (tempfile::tempdir().unwrap(), free_address());
    let text = format!(
        "global\n nbthread 1\n stats timeout 60s\n stats socket {}/a.sock level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n default_backend app\nbackend app\n server s {}\n",
        folder.path().display(),
        origin.address(),
    );
    let proxy = Proxy::start(&text);
    let stream = UnixStream::connect(folder.path().join("a.sock")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut session = Session(stream);
    session.command("prompt", "\n");
    let (mut added, mut deleted) = (vec![cpu_ns(&proxy)], Vec::new());
    let result = under_load(&web.to_string(), || {
        for number in 0..count {
            session.command(&format!("add server app/n{number} 127.0.0.1:9 weight 5"), "New server registered.\n");
            added.push(cpu_ns(&proxy));
        }
        // Neither the first nor the last ones first.
        let mut places: Vec<usize> = (0..count).collect();
        places.sort_by_key(|place| (place % 7, *place));
        deleted.push(cpu_ns(&proxy));
        for number in places {
            session.command(&format!("del server app/n{number}"), "Server deleted.\n");
            deleted.push(cpu_ns(&proxy));
        }
    });
    assert_clean(&result, &proxy.said());
    session.command("show servers state app", "1\n");
    let tenth = count / 10;
    for (what, used) in [("add server", &added), ("del server", &deleted)] {
        // Of additions the last ones meet the most servers, of deletions the first ones.
        let (first, last) = (median(&used[..=tenth]), median(&used[count - tenth..]));
        let (small, large) = if what == "add server" { (first, last) } else { (last, first) };
        assert!(small > 0, "{what}: the thread of the change path does it");
        assert!(
            large < small * 3,
            "{what}: {} us each with few servers, {} us with {count}",
            small / 1000,
            large / 1000
        );
    }
}
