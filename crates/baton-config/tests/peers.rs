//! `peers` sections: what they come to, and what HAProxy refuses of them.

use std::sync::Arc;

use baton_config::{FixedEnvironment, Loaded, Options, load};
use baton_model::{KeyType, PeersSection};

const WEB: &str = "frontend f\n mode http\n timeout client 1s\n bind :80\n";

fn read(text: &str, local: Option<&str>) -> Loaded {
    let options = Options { local_peer: local.map(str::to_owned), ..Options::file("a.cfg") };
    load(&options, &FixedEnvironment::with_file("a.cfg", text))
}

#[track_caller]
fn section(text: &str) -> Arc<PeersSection> {
    let loaded = read(text, Some("hA"));
    let model = loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics));
    assert_eq!(loaded.diagnostics, [], "{text}");
    model.peers.first().cloned().expect("a section")
}

#[track_caller]
fn check(text: &str, expect: &[&str]) {
    let text = format!("{WEB}{text}");
    let said: Vec<String> = read(&text, Some("hA")).diagnostics.iter().map(|found| found.message.clone()).collect();
    assert_eq!(said, expect, "{text}");
}

#[test]
fn a_section_with_peer_lines() {
    let section = section(&format!(
        "{WEB} stick-table type ip size 1k store gpc0 peers mp\npeers mp\n shards 3\n default-server ssl verify none\n peer hA 127.0.0.1:1\n \
         peer hB 127.0.0.2:2 shard 3\n table t type string len 20 size 1m expire 10s store gpc0,http_req_rate(10s)\n"
    ));
    assert_eq!((&*section.name, &*section.local, section.shards), ("mp", "hA", 3));
    let peers: Vec<_> = section.peers.iter().map(|peer| (&*peer.name, peer.shard)).collect();
    assert_eq!(peers, [("hA", 0), ("hB", 3)]);
    let binds: Vec<_> = section.proxy.binds.iter().map(|bind| bind.place()).collect();
    assert_eq!(binds, ["127.0.0.1:1"]);
    assert!(section.server("hB").is_some_and(|server| server.tls.is_some()) && section.server("hA").is_none());
    let table = &section.tables[0];
    assert_eq!((&*table.name, table.key, table.peers.as_deref()), ("mp/t", KeyType::String { length: 20 }, Some("mp")));
}

#[test]
fn a_section_with_bind_and_server_lines() {
    let section = section(&format!(
        "{WEB}peers mp\n disabled\n bind 127.0.0.1:1\n server hA\n server hB 127.0.0.2:2\n enabled\n"
    ));
    assert_eq!((section.proxy.binds.len(), section.proxy.servers.len(), section.disabled), (1, 1, false));
    let by_default = section_of_default();
    assert_eq!(by_default.proxy.binds[0].options.maxconn, Some(7));
}

fn section_of_default() -> Arc<PeersSection> {
    section(&format!("{WEB}peers mp\n default-bind maxconn 7\n peer hA 127.0.0.1:1\n"))
}

#[test]
fn the_local_peer_is_named_by_the_command_line_then_by_the_file_then_by_the_host() {
    let text = format!("global\n localpeer hB\n{WEB}peers mp\n peer hA 127.0.0.1:1\n peer hB 127.0.0.1:2\n");
    let local = |given: Option<&str>| {
        let model = read(&text, given).model.expect("it is right");
        model.peers.first().map(|section| section.local.to_string())
    };
    assert_eq!(local(Some("hA")).as_deref(), Some("hA"));
    assert_eq!(local(None).as_deref(), Some("hB"));
    check(
        "peers mp\n peer hA 127.0.0.1:1\nglobal\n localpeer hB\n",
        &["'localpeer' ignored since it is used after 'peers' section."],
    );
}

#[test]
fn what_is_wrong_is_said_as_by_haproxy() {
    check("peers p\n peer hB 127.0.0.1:1\n", &["Removing incomplete section 'peers p' (no peer named 'hA')."]);
    check("peers p\n disabled\n peer hB 127.0.0.1:1\n", &[]);
    check(
        "peers p\n peer hA 127.0.0.1:1\n peer hA 127.0.0.1:2\n",
        &["'peer hA' : local peer name already referenced at a.cfg:6."],
    );
    check("peers p\n peer hA 127.0.0.1\n", &["'peer hA' : missing port specification in '127.0.0.1'"]);
    check(
        "peers p\n bind 127.0.0.1:1\n bind 127.0.0.1:2\n server hA\n",
        &["One listener per \"peers\" section is authorized but another is already configured at [a.cfg:6]."],
    );
    check(
        "peers p\n bind 127.0.0.1:1\n server hA 127.0.0.1:3\n",
        &["'server p/hA' : unknown keyword '127.0.0.1:3'. Hint: no address was expected for this server."],
    );
    check("peers p\n peer hA 127.0.0.1:1\n foo bar\n", &["unknown keyword 'foo' in 'peers' section"]);
    check(
        "peers p\n peer hA 127.0.0.1:1\npeers p\n peer hA 127.0.0.1:2\n",
        &["peers section 'p' has the same name as another peers section declared at a.cfg:5."],
    );
    check(
        "peers p\n peer hA 127.0.0.1:1\n peer hB 127.0.0.1:2 check\n",
        &["'server hB' : init_addr, resolvers, check and agent are ignored for peers."],
    );
    check("peers p\n server hA\n", &["peers 'p': no address to listen at: other peers cannot connect to 'hA'."]);
    let twice = "peers p\n peer hA 127.0.0.1:1\n table t type ip size 1k\n table t type ip size 1k\n";
    check(twice, &["stick-table name 'p/t' conflicts with table declared in peers 'p' at a.cfg:7."]);
    check("backend b\n stick-table type ip size 1k peers nope\n", &["Proxy 'b': unable to find sync peers 'nope'."]);
    check(
        "peers p\n bind 127.0.0.1:1 accept-proxy\n server hA\n",
        &["'bind' in section 'peers' : 'accept-proxy' is not supported for peers"],
    );
}
