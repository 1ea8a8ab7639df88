//! Every command that both programs have: what it answers without arguments, with invalid ones and with valid ones, word for word. What
//! differs is listed, with the reason; a listed difference that is none any more is an error as well.

use std::path::Path;

use crate::peers::{Both, socat};
use crate::support::free_address;

fn config(folder: &Path) -> String {
    let (folder, web, other) = (folder.display(), free_address(), free_address());
    format!(
        "global\n nbthread 1\n maxconn 500\n stats timeout 20s\n stats socket {folder}/admin.sock mode 600 level admin\n\
         defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {web}\n default_backend app\nfrontend other\n bind {other}\n default_backend app\n\
         backend app\n cookie SRV insert\n server a 127.0.0.1:9 weight 10 maxconn 7\n server b 127.0.0.1:9 check inter 1h\n \
         server c 127.0.0.1:9 disabled\n server t 127.0.0.1:9 track b\nbackend enc\n \
         default-server ssl verify none\n server on 127.0.0.1:9\n server off 127.0.0.1:9 no-ssl\n server own 127.0.0.1:9 no-ssl ssl\n\
         backend agt\n server a 127.0.0.1:9 agent-check agent-port 9 agent-inter 1h\n server n 127.0.0.1:9\n\
         backend plain\n server own 127.0.0.1:9 ssl no-ssl verify none\n server check 127.0.0.1:9 check inter 1h check-ssl verify none\n\
         backend seen\n stick-table type ip size 10 expire 1m store gpc0\n\
         resolvers names\n nameserver n1 127.0.0.1:9\n"
    )
}

/// Commands in the order in which they are given: what one changes, the next ones see.
const COMMANDS: &[&str] = &[
    "show map",
    "show map x",
    "show acl x",
    "add map",
    "add map x a b",
    "add acl x a",
    "clear map",
    "clear map x",
    "clear acl x",
    "del map x a",
    "del acl x a",
    "set map x a b",
    "get map x a",
    "get acl x a",
    "prepare map x",
    "prepare acl x",
    "commit map x",
    "commit map @1 x",
    "commit acl @1 x",
    "show table",
    "show table x",
    "clear table",
    "clear table x",
    "set table",
    "set table x key a",
    "show peers",
    "show peers x",
    "show peers dict",
    "show resolvers x",
    "show cache",
    "get var",
    "get var proc.x",
    "get var x",
    "get var proc.",
    "set var",
    "set var proc.x int(1)",
    "experimental-mode on; set var",
    "experimental-mode on; set var proc.x",
    "experimental-mode on; set var proc.x int(1)",
    "get var proc.x",
    "get var proc.x y",
    "experimental-mode on; set var proc.x expr int(2),add(proc.x)",
    "get var proc.x",
    "experimental-mode on; set var proc.x fmt a%[int(3)]b",
    "get var proc.x",
    "experimental-mode on; set var proc.x fmt a\\ b c",
    "get var proc.x",
    "experimental-mode on; set var proc.x str(a\\ b)",
    "get var proc.x",
    "experimental-mode on; set var proc.x bool(true)",
    "get var proc.x",
    "experimental-mode on; set var proc.x ipv4(192.0.2.1)",
    "get var proc.x",
    "experimental-mode on; set var proc.x ipv6(2001:db8::1)",
    "get var proc.x",
    "experimental-mode on; set var proc.x meth(GET)",
    "get var proc.x",
    "experimental-mode on; set var proc.x str(YWI=),b64dec",
    "get var proc.x",
    "experimental-mode on; set var proc.x var(proc.missing)",
    "get var proc.x",
    "experimental-mode on; set var proc.x int(1) int(2)",
    "experimental-mode on; set var txn.x int(1)",
    "expert-mode on; set var proc.x int(1)",
    "experimental-mode on; set var proc.x nope",
    "experimental-mode on; set var proc.x src",
    "experimental-mode on; set var proc.x-y int(1)",
    "experimental-mode on; set var x int(1)",
    "experimental-mode on; set var proc.x hostname,length; get var proc.x",
    "experimental-mode on; set var proc.x nbsrv(app); get var proc.x",
    "experimental-mode on; set var proc.x be_conn(app); get var proc.x",
    "experimental-mode on; set var proc.x be_sess_rate(app); get var proc.x",
    "experimental-mode on; set var proc.x queue(app); get var proc.x",
    "experimental-mode on; set var proc.x avg_queue(app); get var proc.x",
    "experimental-mode on; set var proc.x connslots(app); get var proc.x",
    "experimental-mode on; set var proc.x be_conn_free(app); get var proc.x",
    "experimental-mode on; set var proc.x fe_conn(web); get var proc.x",
    "experimental-mode on; set var proc.x fe_req_rate(web); get var proc.x",
    "experimental-mode on; set var proc.x fe_sess_rate(web); get var proc.x",
    "experimental-mode on; set var proc.x srv_is_up(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_is_up(app/c); get var proc.x",
    "experimental-mode on; set var proc.x srv_weight(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_iweight(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_uweight(app/c); get var proc.x",
    "experimental-mode on; set var proc.x srv_conn(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_conn_free(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_queue(app/a); get var proc.x",
    "experimental-mode on; set var proc.x srv_sess_rate(app/a); get var proc.x",
    "experimental-mode on; set var proc.x table_cnt(seen); get var proc.x",
    "experimental-mode on; set var proc.x table_avl(seen); get var proc.x",
    "experimental-mode on; set var proc.x str(192.0.2.1),in_table(seen); get var proc.x",
    "experimental-mode on; set var proc.x str(192.0.2.1),table_gpc0(seen); get var proc.x",
    "experimental-mode on; set var proc.x stopping; get var proc.x",
    "experimental-mode on; set var proc.x wait_end; get var proc.x",
    "experimental-mode on; set var proc.x last_rule_line; get var proc.x",
    "experimental-mode on; set var proc.x fmt %[be_conn(app)]/%[table_avl(seen)]; get var proc.x",
    "experimental-mode on; set var proc.x nbsrv(x)",
    "experimental-mode on; set var proc.x be_conn(web)",
    "experimental-mode on; set var proc.x fe_conn(app)",
    "experimental-mode on; set var proc.x srv_is_up(x/a)",
    "experimental-mode on; set var proc.x srv_is_up(app/x)",
    "experimental-mode on; set var proc.x table_cnt(x)",
    "experimental-mode on; set var proc.x table_cnt(app)",
    "experimental-mode on; set var proc.x table_cnt",
    "experimental-mode on; set var proc.x str(a),in_table(x)",
    "experimental-mode on; set var proc.x nbsrv",
    "experimental-mode on; set var proc.x srv_is_up(a)",
    "experimental-mode on; set var proc.x act_conn",
    "experimental-mode on; set var proc.x str(a),map(x)",
    "get var proc.x",
    "experimental-mode on; set var proc.x,ifnotset int(1); get var proc.x",
    "experimental-mode on; set var proc.x,ifexists int(2); get var proc.x",
    "show stat domain",
    "show stat domain x",
    "show stat domain resolvers",
    "show profiling status",
    "show profiling tasks",
    "show profiling memory",
    "show ssl cert",
    "show ssl crl-file",
    "show ssl crt-list",
    "show fd -1",
    "show fd x",
    "show events x",
    "show profiling x",
    "set profiling",
    "set profiling x",
    "set profiling tasks",
    "set profiling memory on",
    "show errors nope",
    "show sess 0x1",
    "shutdown",
    "shutdown session",
    "shutdown session x",
    "shutdown session 0x1",
    "shutdown sessions server",
    "shutdown sessions server app",
    "shutdown sessions server app/x",
    "shutdown sessions server x/a",
    "shutdown sessions server app/a",
    "disable frontend",
    "disable frontend x",
    "disable frontend app",
    "disable frontend other",
    "disable frontend other",
    "show stat other 1 -1",
    "enable frontend",
    "enable frontend x",
    "enable frontend other",
    "enable frontend other",
    "shutdown frontend",
    "shutdown frontend x",
    "set maxconn",
    "set maxconn frontend",
    "set maxconn frontend web",
    "set maxconn frontend x 5",
    "set maxconn frontend web -1",
    "set maxconn frontend web x",
    "set maxconn frontend web 50",
    "show stat web 1 -1",
    "set maxconn server",
    "set maxconn server app/a",
    "set maxconn server app/x 3",
    "set maxconn server app/a x",
    "set maxconn server app/a 5x",
    "set maxconn server app/a 12",
    "show stat app 4 1",
    "set maxconn global",
    "set maxconn global 501",
    "set maxconn global 200",
    "set maxconn global 0",
    "set maxconn x 1",
    "set rate-limit connections global",
    "set rate-limit connections global -1",
    "set rate-limit connections global 100",
    "set rate-limit sessions global 100",
    "set rate-limit ssl-sessions global 100",
    "set rate-limit sessions global 0",
    "set rate-limit",
    "set rate-limit http-compression global 0",
    "enable dynamic-cookie",
    "enable dynamic-cookie backend",
    "enable dynamic-cookie backend x",
    "disable dynamic-cookie backend x",
    "set dynamic-cookie-key",
    "set dynamic-cookie-key backend",
    "set dynamic-cookie-key backend x y",
    "set dynamic-cookie-key backend app",
    "set dynamic-cookie-key backend app key",
    "enable dynamic-cookie backend app",
    "show stat app 4 -1",
    "set dynamic-cookie-key backend app other",
    "show stat app 4 -1",
    "disable dynamic-cookie backend app",
    "enable agent",
    "enable agent app/a",
    "disable agent app/a",
    "disable agent app/x",
    "set server app/a",
    "set server app/a x",
    "set server app/a addr",
    "set server app/a addr x",
    "set server app/a addr 127.0.0.1",
    "set server app/a addr 127.0.0.2",
    "set server app/a addr 127.0.0.2 port",
    "set server app/a addr 127.0.0.2 port x",
    "set server app/b addr 127.0.0.1 port +1",
    "set server app/a addr 127.0.0.2 port 10",
    "set server app/a addr 127.0.0.3 port 11",
    "set server app/a addr 127.0.0.3 port 11",
    "set server app/a addr 127.0.0.4 x 11",
    "set server app/a addr ::1",
    "show stat app 4 1",
    "set server app/a check-addr 127.0.0.1",
    "set server app/b check-addr",
    "set server app/b check-addr x",
    "set server app/b check-addr 127.0.0.2",
    "set server app/b check-addr 127.0.0.2 port 12",
    "set server app/b check-addr 127.0.0.2 port x",
    "set server app/a check-port 1",
    "set server app/b check-port",
    "set server app/b check-port x",
    "set server app/b check-port 70000",
    "set server app/b check-port 13",
    "set server app/a agent",
    "set server app/a agent up",
    "set server app/a agent-addr",
    "set server app/a agent-addr 127.0.0.1",
    "set server app/a agent-port",
    "set server app/a agent-port 1",
    "set server app/a agent-send",
    "set server app/a agent-send x",
    "set server agt/a agent",
    "set server agt/a agent x",
    "set server agt/a agent down",
    "set server agt/a agent up",
    "set server agt/a agent-addr",
    "set server agt/a agent-addr 127.0.0.2",
    "set server agt/a agent-addr 127.0.0.2 port",
    "set server agt/a agent-addr 127.0.0.2 port x",
    "set server agt/a agent-addr 127.0.0.2 port 70000",
    "set server agt/a agent-addr 127.0.0.2 port 8",
    "set server agt/a agent-port",
    "set server agt/a agent-port x",
    "set server agt/a agent-port 70000",
    "set server agt/a agent-port -1",
    "set server agt/a agent-port 7",
    "set server agt/a agent-send",
    "set server agt/a agent-send x",
    "set server agt/n agent up",
    "set server agt/n agent-addr ::1",
    "set server agt/n agent-port 7",
    "set server agt/n agent-send x",
    "enable agent agt/n",
    "disable agent agt/n",
    "disable agent agt/a",
    "disable agent agt/a",
    "set server agt/a agent up",
    "set server agt/a agent-port 7",
    "enable agent agt/a",
    "add server agt/b 127.0.0.1:9 agent-check",
    "add server agt/c 127.0.0.1:9 agent-check agent-port 9",
    "set server agt/c agent up",
    "set server app/a fqdn",
    "set server app/a fqdn x",
    "set server app/a ssl",
    "set server app/a ssl on",
    "set server app/a ssl x",
    "set server enc/on ssl",
    "set server enc/on ssl x",
    "set server enc/on ssl on",
    "set server enc/on ssl off",
    "set server enc/on ssl off x",
    "set server enc/off ssl on",
    "set server enc/own ssl off",
    "set server plain/own ssl on",
    "set server plain/check ssl on",
    "set severity-output number; set server enc/on ssl on",
    "set severity-output string; set server enc/on ssl off",
    "add server enc/new 127.0.0.1:9 ssl verify none",
    "set server enc/new ssl off",
    "set server app/a health",
    "set server app/a health x",
    "set server app/t health up",
    "set server app/a health down",
    "show stat app 4 1",
    "set server app/a health stopping",
    "show stat app 4 1",
    "set server app/a health up",
    "show stat app 4 1",
    "set server app/c state ready",
    "show stat app 4 3",
    "set server app/a addr 127.0.0.9 port x",
];

/// Commands that answer something else here, and why.
const DIFFERENT: &[(&str, &str)] = &[
    ("set maxconn frontend web x", "HAProxy takes a word for zero, and nobody is served any more; here it is refused"),
    ("experimental-mode on; set var proc.x nope", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x src", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x-y int(1)", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var x int(1)", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x nbsrv", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x srv_is_up(a)", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x act_conn", "the words of messages about expressions are Baton's own"),
    ("experimental-mode on; set var proc.x str(a),map(x)", "the words of messages about expressions are Baton's own"),
    ("show profiling status", "there is none"),
    (
        "set server app/a addr 127.0.0.9 port x",
        "HAProxy changes the address although the port is invalid; here nothing changes",
    ),
    (
        "set server app/b addr 127.0.0.1 port +1",
        "HAProxy says why a health check is against it; here a port that depends on the client's cannot be set",
    ),
    ("set rate-limit http-compression global 0", "there is no compression: refused with the reason"),
];

/// Lists of commands begin alike; of rows the columns that a command can change are compared.
fn normal(text: &str) -> String {
    let line = |line: &str| match (line.split_once("Unknown command"), line.starts_with('#')) {
        (Some(_), _) => "Unknown command".into(),
        (None, true) if line.starts_with("# pxname") => String::new(),
        (None, false) if line.starts_with("web,") || line.starts_with("other,") || line.starts_with("app,") => {
            let cells: Vec<&str> = line.split(',').collect();
            [0, 1, 6, 17, 18, 73, 74].map(|at| cells[at].split(":500").next().unwrap_or_default()).join(" ")
        }
        (None, _) => line.to_owned(),
    };
    let lines = text.lines().filter(|line| !line.starts_with("  ")).map(line);
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
}

#[test]
fn commands_answer_in_the_words_of_haproxy() {
    let both = Both::start(config);
    let mut wrong = Vec::new();
    for command in COMMANDS {
        let input = format!("{command}\n");
        let said = [both.baton("admin.sock"), both.haproxy("admin.sock")].map(|socket| normal(&socat(&socket, &input)));
        let is_listed = DIFFERENT.iter().any(|(listed, _)| listed == command);
        if (said[0] == said[1]) == is_listed {
            wrong.push(format!("{command}\n  baton:   {:?}\n  haproxy: {:?}", said[0], said[1]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn headings_are_those_of_haproxy() {
    let both = Both::start(config);
    for (command, lines) in [
        ("show map", 1),
        ("show acl", 1),
        ("show servers conn", 1),
        ("show servers state", 2),
        ("show cli sockets", 1),
        ("show pools", 1),
        ("show backend", 1),
        ("show stat domain resolvers", 2),
        ("show stat domain resolvers typed", 17),
    ] {
        let head = |socket: &Path| -> Vec<String> {
            socat(socket, format!("{command}\n")).lines().take(lines).map(str::to_owned).collect()
        };
        assert_eq!(head(&both.baton("admin.sock")), head(&both.haproxy("admin.sock")), "{command}");
    }
    let first = |socket: &Path, command: &str, separator: char| -> Vec<String> {
        let text = socat(socket, format!("{command}\n"));
        text.lines().filter_map(|line| line.split_once(separator)).map(|(name, _)| name.trim().to_owned()).collect()
    };
    // What is counted here is a part of what HAProxy counts.
    let (ours, theirs) = (both.baton("admin.sock"), both.haproxy("admin.sock"));
    // HAProxy leaves out the comma between two name servers.
    let [own, other] = [&ours, &theirs].map(|socket| socat(socket, "show stat domain resolvers json\n"));
    assert_eq!(own.replace("],[", "]["), other);
    let theirs = first(&theirs, "show activity", ':');
    let own = ["conn_open"];
    for name in first(&ours, "show activity", ':') {
        assert!(theirs.contains(&name) || own.contains(&name.as_str()), "{name} is not in {theirs:?}");
    }
    assert!(socat(&ours, "show profiling\n").starts_with("Per-task CPU profiling              : off"));
    assert!(socat(&ours, "show libs\n").lines().any(|line| line.starts_with("0x") && line.ends_with("/baton")));
    let threads = socat(&ours, "show threads\n");
    assert_eq!(threads.lines().next(), Some("  Thread 1 : name=baton/1 conn=0"), "{threads}");
    let events = socat(&ours, "show events\n");
    assert!(events.starts_with("Supported events sinks are listed below."), "{events}");
    let descriptors = socat(&ours, "show fd\n");
    assert!(descriptors.lines().any(|line| line.trim_start().starts_with("0 : /dev/null")), "{descriptors}");
    assert_eq!(socat(&ours, "show fd 0\n"), "      0 : /dev/null\n\n");
}

#[test]
fn the_schema_accepts_the_output() {
    let both = Both::start(config);
    let json = |command: &str| -> serde_json::Value {
        let text = socat(&both.baton("admin.sock"), format!("{command}\n"));
        serde_json::from_str(text.trim_end()).unwrap_or_else(|error| panic!("{command}: {error}: {text}"))
    };
    let schema = json("show schema json");
    for (command, is_nested) in [("show info json", false), ("show stat json", true)] {
        let output = json(command);
        let rows = output.as_array().expect("a list");
        let items =
            rows.iter().flat_map(|row| row.as_array().filter(|_| is_nested).cloned().unwrap_or(vec![row.clone()]));
        let kind = &schema["oneOf"][usize::from(is_nested)]["items"];
        let wanted = if is_nested { &kind["items"] } else { kind };
        let names = |object: &serde_json::Value| -> Vec<String> {
            let mut names: Vec<String> = object.as_object().expect("an object").keys().cloned().collect();
            names.sort();
            names
        };
        let types: Vec<&str> = schema["definitions"]["typedValue"]["oneOf"]
            .as_array()
            .expect("a list")
            .iter()
            .filter_map(|value| value["properties"]["type"]["enum"][0].as_str())
            .collect();
        let mut count = 0;
        for item in items {
            assert_eq!(names(&item), names(&wanted["properties"]), "{item}");
            for tag in ["origin", "nature", "scope"] {
                let words = schema["definitions"]["tags"]["properties"][tag]["enum"].as_array().expect("a list");
                assert!(words.contains(&item["tags"][tag]), "{tag} of {item}");
            }
            let kind = item["value"]["type"].as_str().expect("a word");
            assert!(types.contains(&kind) && item["value"]["value"].is_string() == (kind == "str"), "{item}");
            count += 1;
        }
        assert!(count > 50, "{command}: {count}");
    }
}
