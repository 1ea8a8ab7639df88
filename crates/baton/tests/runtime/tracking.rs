//! Servers that `track` another one: what is logged and shown of them when operators and agents change that one, and themselves. It has to be what
//! haproxy logs and shows.

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use crate::agents::{Agent, Observed};
use crate::support::{PATIENCE, free_address};
use crate::table::cell;

/// All servers that are looked at: one that others track, those, and one beside them.
const SERVERS: [(&str, &str); 6] = [("b0", "s"), ("b0", "t"), ("near", "s"), ("near", "u"), ("l", "s"), ("far", "b")];

/// Server and state, in turn. `up` and `down` are `health`.
const COMMANDS: &[&str] = &[
    "near/s maint",
    "b0/s maint",
    "b0/s ready",
    "b0/s drain",
    "near/s ready",
    "near/s drain",
    "b0/s ready",
    "b0/s maint",
    "b0/s drain",
    "near/s maint",
    "b0/s maint",
    "near/s ready",
    "b0/s ready",
    "near/u drain",
    "b0/s drain",
    "near/u ready",
    "b0/s ready",
    "b0/s down",
    "b0/s drain",
    "near/s maint",
    "b0/s maint",
    "near/s ready",
    "b0/s ready",
    "far/b drain",
    "b0/s down",
    "b0/s up",
    "far/b maint",
    "b0/s down",
    "far/b ready",
    "b0/s up",
];

fn outcomes(start: fn(&str) -> Observed, name: &str) -> Vec<String> {
    let agent = Agent::start(b"up\n");
    let web = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = web.local_addr().expect("it is bound").port();
    let observed = start(&format!(
        "backend b0\n server s 127.0.0.1:{port} check inter 60s agent-check agent-port {} agent-inter 20ms\n server t 127.0.0.1:9\n\
         backend near\n server s 127.0.0.1:9 track b0/s\n server u 127.0.0.1:9 track s\n\
         listen l\n bind {}\n server s 127.0.0.1:9 track b0/s\n\
         backend far\n server b 127.0.0.1:9 track b0/s backup\n",
        agent.port,
        free_address(),
    ));
    let settled = || {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "{name}: it is asked all the time");
            let stats = observed.stats();
            let status = cell(&stats, "b0", "s", "agent_status");
            // In maintenance there is none of either.
            let is_checked = matches!(cell(&stats, "b0", "s", "check_status"), "L4OK" | "");
            if is_checked && status != "INI" && !status.starts_with('*') {
                break stats;
            }
            thread::sleep(Duration::from_millis(5));
        }
    };
    let mut seen = Vec::new();
    let mut look = |what: &str| {
        let stats = settled();
        let status = |(backend, server): &(&str, &str)| {
            let admin = observed.command(&format!("show servers state {backend}"));
            let admin = admin
                .lines()
                .find(|line| line.split(' ').nth(3) == Some(server))
                .and_then(|line| line.split(' ').nth(6));
            format!("{backend}/{server} {} {}", cell(&stats, backend, server, "status"), admin.unwrap_or_default())
        };
        let lines = observed.lines();
        let lines = lines.values().flatten().cloned().collect::<Vec<_>>();
        seen.push(format!("{what}\n  {}\n  {}", SERVERS.each_ref().map(status).join(", "), lines.join("\n  ")));
    };
    settled();
    agent.says(b"down #why\n");
    look("the agent says down");
    agent.says(b"up\n");
    look("the agent says up");
    agent.says(b"drain\n");
    look("the agent says drain");
    agent.says(b"ready up\n");
    look("the agent says ready");
    // From now on operators alone decide.
    assert_eq!(observed.command("disable agent b0/s"), "\n", "{name}");
    for command in COMMANDS {
        let (server, state) = command.split_once(' ').expect("two words");
        let kind = if matches!(state, "up" | "down") { "health" } else { "state" };
        assert_eq!(observed.command(&format!("set server {server} {kind} {state}")), "\n", "{name}: {command}");
    }
    look("operators");
    seen
}

#[test]
fn who_tracks_a_server_is_logged_and_shown_as_by_haproxy() {
    let reference = thread::spawn(|| outcomes(Observed::haproxy, "haproxy"));
    let ours = outcomes(Observed::baton, "baton");
    let reference = reference.join().expect("haproxy's half");
    for (seen, expect) in ours.iter().zip(&reference) {
        let (seen, expect) = (seen.lines().collect::<Vec<_>>(), expect.lines().collect::<Vec<_>>());
        assert_eq!(seen, expect);
    }
}
