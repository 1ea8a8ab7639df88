//! Name servers that send what none should: what becomes of it, and what is counted, beside haproxy.

use std::collections::BTreeMap;
use std::path::Path;

use super::name_server::{Manner, Scripted};
use super::{config, counter, servers};
use crate::peers::{Both, socat};
use crate::support::{Proxy, free_address, until};

/// All that is counted of the only name server of a section, but for queries, valid responses, and timeouts, which HAProxy does not count.
fn counters(socket: &Path) -> BTreeMap<String, u64> {
    let text = socat(socket, "show resolvers r\n");
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let counts = lines.filter_map(|(name, count)| Some((name.trim().to_owned(), count.trim().parse().ok()?)));
    counts.filter(|(name, _)| !["sent", "valid", "timeout"].contains(&name.as_str())).collect()
}

/// Names of what is counted more often than before.
fn grown(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    after.iter().filter(|(name, count)| before.get(*name) < Some(count)).map(|(name, _)| name.clone()).collect()
}

#[test]
fn what_a_name_server_should_not_send_is_counted_as_haproxy_counts_it() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.41"]);
    let (ours, theirs) = (free_address(), free_address());
    let backend = "backend app\n server s1 app.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let text = |folder: &Path, web| {
        config(folder, web, dns.address, backend).replace("obsolete 300ms", "obsolete 0").replace("300ms", "1h")
    };
    let both = Both::start_each(|folder| text(folder, ours), |folder| text(folder, theirs));
    let sockets = [both.baton("admin.sock"), both.haproxy("admin.sock")];
    for manner in [
        Manner::Garbage,
        Manner::OtherId,
        Manner::OtherQuestion,
        Manner::Empty,
        Manner::Huge,
        Manner::CutOff,
        Manner::Loop,
        Manner::Alias,
        Manner::NoRecords,
        Manner::Fails,
        Manner::Refuses,
        Manner::Nx,
        Manner::Silent,
        Manner::Truncated,
    ] {
        let before = sockets.each_ref().map(|socket| counters(socket));
        dns.behave(manner);
        let asked = dns.asked().len();
        until("it is asked a few times", || dns.asked().len() > asked + 24);
        let after = sockets.each_ref().map(|socket| counters(socket));
        let [ours, theirs] = [0, 1].map(|at| grown(&before[at], &after[at]));
        // A truncated response is asked for again by TCP, which HAProxy does not.
        let theirs = if manner == Manner::Truncated { vec!["truncated".to_owned()] } else { theirs };
        assert_eq!(ours, theirs, "{manner:?}");
        dns.behave(Manner::Good);
        let asked = dns.asked().len();
        until("it is asked a few times", || dns.asked().len() > asked + 8);
    }
    for socket in &sockets {
        assert!(servers(socket)[0].starts_with("app s1 127.0.0.41 "), "{:?}", servers(socket));
    }
}

#[test]
fn messages_by_tcp_that_do_not_end_or_are_no_responses_change_nothing() {
    let dns = Scripted::start();
    dns.addresses("app.test", &["127.0.0.43"]);
    let (web, folder) = (free_address(), tempfile::tempdir().expect("a folder for the test"));
    let backend = "backend app\n server s1 app.test:80 resolvers r init-addr none resolve-prefer ipv4\n";
    let text = config(folder.path(), web, dns.address, backend).replace("nameserver n1 ", "nameserver n1 tcp@");
    let _proxy = Proxy::start(&text.replace("obsolete 300ms", "obsolete 0").replace("300ms", "1h"));
    let socket = folder.path().join("admin.sock");
    let has = |address: &str| servers(&socket)[0].starts_with(&format!("app s1 {address} "));
    until("it has its address", || has("127.0.0.43"));
    for (manner, name) in [
        (Manner::Half, "timeout"),
        (Manner::Empty, "timeout"),
        // It closes the connection.
        (Manner::Silent, "snd_error"),
        (Manner::Garbage, "invalid"),
        (Manner::OtherId, "outdated"),
        (Manner::OtherQuestion, "invalid"),
        (Manner::CutOff, "invalid"),
    ] {
        let before = counter(&socket, name);
        dns.behave(manner);
        until(&format!("{manner:?} is counted"), || counter(&socket, name) > before + 2);
        assert!(has("127.0.0.43"), "{manner:?}: {:?}", servers(&socket));
    }
    // Behind what is none, a response counts.
    dns.addresses("app.test", &["127.0.0.44"]);
    dns.behave(Manner::LateByTcp);
    until("the response counts", || has("127.0.0.44"));
}
