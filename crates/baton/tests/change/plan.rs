//! What `plan` says is what the reload after it does.

use std::net::TcpListener;

use super::{assert_served, config, free_address, origin};
use crate::support::Proxy;

#[test]
fn what_plan_says_is_what_reload_does() {
    let origin = origin();
    let (web, other) = (free_address(), free_address());
    let good = config(&[web.to_string()], origin.address(), "");
    let proxy = Proxy::start(&good);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().map(|address| (address, taken)).unwrap().0;
    let with = |bind: String| config(&[web.to_string(), bind], origin.address(), "");
    let socket = proxy.folder.path().join("web.sock").display().to_string();
    let second = |more: &str| format!("{good}frontend second\n bind {more}\n default_backend app\n");
    let cases = [
        good.clone(),
        with(other.to_string()),
        with(format!("{web},{web}")),
        with(format!("{web} backlog 7")),
        with(taken.to_string()),
        with("203.0.113.77:80".into()),
        with("/no/such/folder/x.sock".into()),
        with(socket.clone()),
        with(format!("{socket} mode 666")),
        good.clone(),
        second(&other.to_string()),
        second(&web.to_string()),
        second(&format!("*:{}", web.port())),
        good.replace("nbthread 2", "nbthread 1"),
        good.replace("nbthread 2", "nbthread 1\n tune.bufsize 20000"),
        good.replace("nbthread 2", "nbthread 2\n maxconn 100000000"),
        good.replace("default_backend app", "default_backend none"),
        good.replace(" default_backend", " errorfile 503 /no/such/page\n default_backend"),
        good.replace(" default_backend", " errorfile 503 /dev/null\n default_backend"),
        good.replace("server s1", "server s2"),
        good.replace("mode http", "mode tcp"),
        good.replace(&format!("bind {web}"), &format!("bind {web} ssl crt /no/such.pem")),
        String::new(),
        good.clone(),
    ];
    let mut verdicts = Vec::new();
    for (number, text) in cases.iter().enumerate() {
        proxy.write(text);
        let before = proxy.status();
        let planned = proxy.plan();
        let after = proxy.status();
        assert_eq!((before.generation, before.refused), (after.generation, after.refused), "a plan changes nothing");
        assert_eq!(before.listeners, after.listeners);
        let done = proxy.reload();
        let words = |outcome: &baton_control::protocol::Outcome| {
            let of = |message: &baton_control::protocol::Message| (message.severity.clone(), message.message.clone());
            outcome.messages.iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(planned.accepted, done.accepted, "case {number}: {:?} {:?}", planned.messages, done.messages);
        assert_eq!(words(&planned), words(&done), "case {number}");
        assert_eq!((&planned.plan, &planned.pending), (&done.plan, &done.pending), "case {number}");
        verdicts.push(done.accepted);
    }
    assert!(verdicts.contains(&true) && verdicts.contains(&false), "{verdicts:?}");
    assert_served(web);

    // As long as it is so, it is shown.
    let waiting = proxy.change(&good.replace("nbthread 2", "nbthread 1")).pending;
    assert_eq!(waiting.iter().map(ToString::to_string).collect::<Vec<_>>(), ["nbthread 2 -> 1"]);
    let later = proxy.change(&good.replace("nbthread 2", "nbthread 1\n maxconn 50"));
    assert_eq!((&later.pending, &proxy.status().pending), (&waiting, &waiting), "the next reload still says so");
    assert!(proxy.said().contains("Restart pending: nbthread 2 -> 1"), "{}", proxy.said());
    assert!(proxy.change(&good).pending.is_empty() && proxy.status().pending.is_empty());
}
