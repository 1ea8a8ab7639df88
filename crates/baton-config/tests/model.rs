//! What a configuration becomes: each case is a text and a part of the model, printed.

use std::path::PathBuf;

use baton_config::{FixedEnvironment, Options, Severity, load};
use baton_model::{CheckConnect, CheckExpect, CheckStep, CheckText, CheckType, Model, Proxy, Server, ServerTarget};

fn environment(text: &str) -> FixedEnvironment {
    let mut env = FixedEnvironment::with_file("/etc/a.cfg", text);
    env.files.insert(PathBuf::from("/etc/503.http"), b"HTTP/1.0 503 x\r\n\r\n".to_vec());
    env.fds.push(7);
    env.hosts.insert("both".into(), vec![[127, 0, 0, 9].into(), [0, 0, 0, 0, 0, 0, 0, 1].into()]);
    env
}

fn model(text: &str) -> Model {
    let loaded = load(&Options::file("/etc/a.cfg"), &environment(text));
    let faults: Vec<String> = loaded.of(Severity::Alert).map(|alert| alert.render(1)).collect();
    loaded.model.unwrap_or_else(|| panic!("refused:\n{}", faults.join("")))
}

/// Compares what `part` prints of the model.
fn check(text: &str, part: impl Fn(&Model) -> String, expect: &str) {
    assert_eq!(part(&model(text)), expect, "{text}");
}

/// A line of a `backend b` in HTTP mode, whose proxy is printed by `part`.
fn check_backend(line: &str, part: impl Fn(&Proxy) -> String, expect: &str) {
    check(&format!("backend b\n mode http\n {line}\n"), |model| part(&model.proxies[0]), expect);
}

/// A server line behind its name.
fn check_server(words: &str, part: impl Fn(&Server) -> String, expect: &str) {
    check_backend(&format!("server s {words}"), |proxy| part(&proxy.servers[0]), expect);
}

/// The addresses of a `bind` line.
fn check_bind(words: &str, expect: &str) {
    let addresses = |model: &Model| {
        let list = model.proxies[0].binds.iter().map(|bind| bind.address.to_string());
        list.collect::<Vec<_>>().join(" ")
    };
    check(&format!("frontend f\n bind {words}\n"), addresses, expect);
}

#[test]
fn binds_are_expanded() {
    check_bind(":80", "0.0.0.0:80");
    check_bind("*:80,[::1]:81", "0.0.0.0:80 [::1]:81");
    check_bind("127.0.0.1:80-82", "127.0.0.1:80 127.0.0.1:81 127.0.0.1:82");
    check_bind("ipv6@:80", "[::]:80");
    check_bind("stream+ipv4@localhost:80", "127.0.0.1:80");
    check_bind("ipv6@both:80", "[::1]:80");
    check_bind("/run/a.sock", "unix@/run/a.sock");
    check_bind("unix@/run/a.sock,abns@b", "unix@/run/a.sock abns@b");
    check_bind("fd@7", "fd@7");
    check(
        "global\n setenv N 7\nfrontend f\n bind \"fd@${N}\"\n",
        |m| m.proxies[0].binds[0].address.to_string(),
        "fd@7",
    );
    check(
        "global\n unix-bind prefix /var mode 600\nfrontend f\n bind /a\n",
        |m| format!("{} {:?}", m.proxies[0].binds[0].address, m.proxies[0].binds[0].options.socket.mode),
        "unix@/var/a Some(384)",
    );
}

#[test]
fn bind_options() {
    let options = "accept-proxy backlog 5 maxconn 6 interface lo namespace blue v6only defer-accept tfo transparent mss 9 tcp-ut 2s \
                   shards 3 nice 2 uid 4 gid 5 mode 640 name n id 9";
    check(
        &format!("frontend f\n bind :1 {options}\n"),
        |model| {
            let bind = &model.proxies[0].binds[0];
            let options = &bind.options;
            format!(
                "{:?} {:?} {} {:?} {:?} {:?} {:?} {:?} {} {} {} {:?} {:?} {:?} {:?}",
                bind.name,
                bind.id,
                options.accept_proxy,
                options.backlog,
                options.maxconn,
                options.interface,
                options.namespace,
                options.v6only,
                options.defer_accept,
                options.tfo,
                options.transparent,
                options.mss,
                options.tcp_user_timeout_ms,
                options.shards,
                options.socket
            )
        },
        "Some(\"n\") Some(9) true Some(5) Some(6) Some(\"lo\") Some(\"blue\") Some(true) true true true Some(9) Some(2000) Some(3) \
         SocketMode { mode: Some(416), uid: Some(4), gid: Some(5) }",
    );
}

#[test]
fn server_addresses() {
    let place = |server: &Server| {
        let address = match &server.address.target {
            ServerTarget::Fixed(address) => address.to_string(),
            ServerTarget::ClientDestination(written) => format!("client's {written}"),
            ServerTarget::Unresolved { port } => format!("unresolved:{port}"),
        };
        let offset = server.address.port_offset.map(|offset| format!(" {offset:+}")).unwrap_or_default();
        let disabled = if server.disabled { " disabled" } else { "" };
        format!("{address}{offset}{disabled}")
    };
    check_server("127.0.0.1:80", place, "127.0.0.1:80");
    check_server("127.0.0.1", place, "127.0.0.1:0");
    check_server("127.0.0.1:+10", place, "127.0.0.1:0 +10");
    check_server("127.0.0.1:-10", place, "127.0.0.1:0 -10");
    check_server("[::1]:80", place, "[::1]:80");
    check_server("*", place, "client's 0.0.0.0:0");
    check_server("0.0.0.0:80", place, "client's 0.0.0.0:80");
    check_server("*:+1", place, "client's 0.0.0.0:0 +1");
    check_server("[::]:80", place, "client's [::]:80");
    check_server("localhost:80", place, "127.0.0.1:80");
    check_server("ipv6@both:80", place, "[::1]:80");
    check_server("missing:80 init-addr none", place, "unresolved:80");
    check_server("missing:80 init-addr libc,192.0.2.1", place, "192.0.2.1:80");
    check_server("unix@/run/s", place, "unix@/run/s");
    check_server("abns@s", place, "abns@s");
}

#[test]
fn server_options() {
    check_server("127.0.0.1:1", |s| format!("{} {} {} {}", s.weight, s.maxconn, s.id, s.pool_max_conn), "1 0 1 -1");
    check_server(
        "127.0.0.1:1 weight 7 backup disabled id 9 cookie c",
        |s| format!("{} {} {} {} {:?}", s.weight, s.backup, s.disabled, s.id, s.cookie),
        "7 true true 9 Some(\"c\")",
    );
    check_server("127.0.0.1:1 minconn 5", |s| format!("{} {}", s.minconn, s.maxconn), "5 5");
    check_server(
        "127.0.0.1:1 send-proxy-v2 max-reuse 3 tcp-ut 5",
        |s| format!("{:?} {:?} {:?}", s.send_proxy.version(), s.max_reuse, s.tcp_user_timeout_ms),
        "V2 Some(3) Some(5)",
    );
    check_server(
        "127.0.0.1:1 check inter 1s rise 4 fall 5 port 99 observe layer7 on-error mark-down",
        |s| {
            let check = &s.check;
            format!(
                "{} {:?} {} {} {:?} {:?} {:?}",
                check.enabled, check.inter, check.rise, check.fall, check.port, check.observe, check.on_error
            )
        },
        "true 1s 4 5 Some(99) Layer7 MarkDown",
    );
    check_server(
        "127.0.0.1:1 source 127.0.0.2:10-20 usesrc client interface lo weight 3",
        |s| format!("{:?} {}", s.source_address, s.weight),
        "Some(SourceAddress { ip: 127.0.0.2, ports: (10, 20), use_client: Some(true), interface: Some(\"lo\") }) 3",
    );
}

#[test]
fn default_server_and_templates() {
    let servers = |model: &Model| {
        let list = model.proxies[0].servers.iter();
        let shown = list.map(|s| format!("{}:{}:{}:{}", s.name, s.id, s.weight, s.check.enabled));
        shown.collect::<Vec<_>>().join(" ")
    };
    check(
        "defaults\n default-server weight 5\nbackend b\n server a 127.0.0.1:1\n default-server weight 6 check\n \
         server-template t 2-3 127.0.0.1:1 no-check\n server c 127.0.0.1:1 weight 7 id 2\n",
        servers,
        "a:1:5:false t2:3:6:false t3:4:6:false c:2:7:true",
    );
}

#[test]
fn defaults_are_inherited_and_can_be_undone() {
    let text = "defaults base\n mode http\n timeout client 1s\n option tcpka\n option dontlognull\n maxconn 9\n\
                defaults more from base\n timeout server 2s\nfrontend f from base\n no option dontlognull\n\
                frontend g from more\n timeout client 3s\nbackend h from more\n mode tcp\n";
    let shown = |model: &Model| {
        let list = model.proxies.iter().map(|p| {
            format!(
                "{} {:?} {:?} {:?} {} {:?}",
                p.name, p.mode, p.timeouts.client, p.timeouts.server, p.logging.dont_log_null, p.maxconn
            )
        });
        list.collect::<Vec<_>>().join("\n")
    };
    check(
        text,
        shown,
        "f Http Some(1s) None false Some(9)\ng Http Some(3s) Some(2s) true Some(9)\nh Tcp Some(1s) Some(2s) true Some(9)",
    );
    check("defaults\n mode http\ndefaults\nbackend b\n", |m| format!("{:?}", m.proxies[0].mode), "Tcp");
}

#[test]
fn balance_and_hash() {
    let shown = |proxy: &Proxy| format!("{:?}", proxy.balance.algorithm);
    check_backend("balance leastconn", shown, "LeastConn");
    check_backend("balance random", shown, "Random { draws: 2 }");
    check_backend("balance random(5)", shown, "Random { draws: 5 }");
    check_backend(
        "balance uri whole depth 3 len 4",
        shown,
        "Uri(UriHash { whole: true, len: 4, depth: 3, path_only: false })",
    );
    check_backend("balance url_param u check_post", shown, "UrlParam { name: \"u\", check_post: Some(48) }");
    check_backend("balance hdr(Host) use_domain_only", shown, "Hdr { name: \"Host\", domain_only: true }");
    check_backend("balance hash src", shown, "Hash(\"src\")");
    let hash = |proxy: &Proxy| format!("{:?}", proxy.balance.hash);
    check_backend(
        "hash-type consistent wt6 avalanche",
        hash,
        "HashType { consistent: true, function: Wt6, avalanche: Full }",
    );
    check_backend("hash-type map-based", hash, "HashType { consistent: false, function: Sdbm, avalanche: Default }");
}

#[test]
fn options_of_connections() {
    let shown = |proxy: &Proxy| format!("{:?} {:?}", proxy.http.connection, proxy.tcp.redispatch);
    check_backend("option httpclose", shown, "Close Off");
    check_backend("option http-server-close\n option redispatch", shown, "ServerClose Last(1)");
    check_backend("option httpclose\n no option httpclose\n option redispatch -3", shown, "KeepAlive Last(3)");
    check_backend("option redispatch 2", shown, "KeepAlive Every(2)");
    let forwarded = |proxy: &Proxy| format!("{:?}", proxy.http.forwarded_for);
    check_backend(
        "option forwardfor except 10.0.0.0/8 header X if-none",
        forwarded,
        "Some(ForwardedFor { except: Some((10.0.0.0, 8)), header: \"X\", if_none: true })",
    );
    check_backend("retry-on 503 empty-response", |p| format!("{:?}", p.retry_on.statuses), "[503]");
}

#[test]
fn health_checks() {
    // Steps as words.
    let shown = |proxy: &Proxy| {
        let text = |text: &CheckText| match text {
            CheckText::Plain(text) => text.clone(),
            CheckText::Format(text) => format!("({text})"),
        };
        let step = |step: &CheckStep| match step {
            CheckStep::Comment(text) => format!("# {text}"),
            CheckStep::Connect(CheckConnect { port, ssl, .. }) => format!("connect {port:?} {ssl}"),
            CheckStep::Send(send) => {
                let (old, new) = (&send.old_headers, &send.headers);
                format!("{} {} {} {old:?} {new:?}", send.method, text(&send.uri), send.version)
            }
            CheckStep::SendData(data) => format!("send {} {}", text(&data.text), data.is_binary),
            CheckStep::Expect(expect) => {
                let CheckExpect { negated, kind, pattern, min_recv, ok_status, comment, .. } = expect;
                format!("expect {negated} {kind} {pattern:?} {min_recv:?} {ok_status:?} {comment:?}")
            }
            CheckStep::SetVariable { target, value } => format!("set {target} {}", text(value)),
            CheckStep::UnsetVariable(name) => format!("unset {name}"),
        };
        match &proxy.check.kind {
            CheckType::Http(steps) => format!("http: {}", steps.iter().map(step).collect::<Vec<_>>().join(", ")),
            CheckType::Tcp(steps) => format!("tcp: {}", steps.iter().map(step).collect::<Vec<_>>().join(", ")),
            other => format!("{other:?}"),
        }
    };
    check_backend("http-check expect status 200", shown, "Connect");
    check_backend("option httpchk", shown, "http: OPTIONS / HTTP/1.0 [] []");
    check_backend(r"option httpchk GET /x HTTP/1.1\r\nHost:\ h", shown, "http: GET /x HTTP/1.1 [(\"Host\", \"h\")] []");
    check_backend(
        "option httpchk\n http-check connect port 8\n http-check send meth GET uri /y hdr a b\n http-check expect ! string z",
        shown,
        "http: connect Some(Number(8)) false, GET /y HTTP/1.0 [] [(\"a\", \"b\")], \
         expect true string [\"z\"] None None None",
    );
    check_backend(
        "option tcp-check\n tcp-check set-var(check.a) int(1)\n tcp-check connect ssl\n server s 127.0.0.1:1 verify none\n \
         tcp-check send-binary 0a\n tcp-check comment c\n \
         tcp-check expect min-recv 3 comment d ok-status L6OK rstring ^a",
        shown,
        "tcp: set check.a int(1), connect None true, send 0a true, # c, \
         expect false rstring [\"^a\"] Some(3) Some(\"L6OK\") Some(\"d\")",
    );
    check_backend("option redis-check", shown, "Protocol(Redis)");
    check_backend("option smtpchk EHLO a.b", shown, "Protocol(Smtp { hello: \"EHLO a.b\" })");
    check_backend(
        "option mysql-check user bob pre-41",
        shown,
        "Protocol(MySql { user: Some(\"bob\"), is_before_41: true })",
    );
    check_backend("option redis-check\n option tcp-check\n tcp-check send x", shown, "tcp: send x false");
}

#[test]
fn health_checks_of_defaults() {
    let check = |defaults: &str, backend: &str, expect: &str| {
        let text = format!("defaults\n mode http\n {defaults}\nbackend b\n {backend}\n");
        let shown = |model: &Model| format!("{:?}", model.proxies[0].check.kind.steps());
        let whole = format!("defaults\n mode http\nbackend b\n {expect}\n");
        let steps = |text: &str| {
            let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
            shown(&loaded.model.expect("it is well"))
        };
        assert_eq!(steps(&text), steps(&whole), "{defaults} | {backend}");
    };
    let tcp = "option tcp-check\n tcp-check connect\n tcp-check send dx";
    check(tcp, "", tcp);
    check(tcp, "option tcp-check", tcp);
    check(tcp, "tcp-check connect\n tcp-check send own", "option tcp-check\n tcp-check connect\n tcp-check send own");
    check(tcp, "option httpchk", "option httpchk");
    check("tcp-check send dx", "option tcp-check", "option tcp-check");
    check("option httpchk /d", "", "option httpchk /d");
    check("option httpchk /d\n http-check send hdr a b", "option httpchk /e", "option httpchk /e");
    check("option httpchk /d\n http-check expect status 404", "option tcp-check", "option tcp-check");
    check("option httpchk /d", "http-check send meth GET", "option httpchk\n http-check send meth GET");
}

#[test]
fn cookies_logs_and_pages() {
    check_backend(
        "cookie c insert dynamic\n dynamic-cookie-key k",
        |p| p.cookie.as_ref().map(|c| format!("{:?} {:?}", c.mode, c.dynamic_key)).unwrap_or_default(),
        "Insert Some(\"k\")",
    );
    check(
        "global\n log 127.0.0.1 local3 err\n log /dev/log user\ndefaults\n log global\n option httplog\nfrontend f\n mode http\nfrontend g\n no log\n log stdout daemon\n",
        |model| {
            let list = model.proxies.iter().map(|p| {
                let targets = p.logging.targets.iter().map(|t| format!("{:?}/{}/{}", t.address, t.facility.0, t.max.0));
                format!("{:?} {}", p.logging.format, targets.collect::<Vec<_>>().join(" "))
            });
            list.collect::<Vec<_>>().join("\n")
        },
        "Http Udp(127.0.0.1:514)/19/3 Unix(\"/dev/log\")/1/7\nTcp Stdout/3/7",
    );
    check_backend("errorfile 503 /etc/503.http", |p| p.http.error_pages[0].0.to_string(), "503");
    check(
        "global\n default-path config\nbackend b\n errorfile 503 503.http\n errorloc303 400 /x\n errorloc 500 /y\n",
        |model| {
            let pages = model.proxies[0].http.error_pages.iter();
            pages.map(|(status, _)| status.to_string()).collect::<Vec<_>>().join(" ")
        },
        "400 500 503",
    );
}

#[test]
fn ids_are_given_out_around_those_that_are_written() {
    let ids = |m: &Model| m.proxies.iter().map(|p| p.id.to_string()).collect::<Vec<_>>().join(" ");
    check("frontend a\nbackend b\n id 3\nbackend c\n", ids, "1 3 4");
    // HAProxy has a proxy of its own for its sockets.
    check("global\n stats socket /run/x.sock\nfrontend a\nbackend b\n id 3\nbackend c\n", ids, "2 3 4");
}

#[test]
fn rules_keep_their_words() {
    let text = "defaults d\n mode http\n http-request deny if { path /x }\nfrontend f from d\n acl a src 1.1.1.1\n \
                http-request set-header X \"a b\" if a\n use_backend b if a\nbackend b\n mode http\n";
    check(
        text,
        |m| {
            let rules = m.proxies[0].rules.values().flatten();
            rules.map(|rule| format!("{:?} {}", rule.ruleset, rule.words.join("|"))).collect::<Vec<_>>().join("\n")
        },
        "Acl a|src|1.1.1.1\nHttpRequest deny|if|{|path|/x|}\nHttpRequest set-header|X|a b|if|a\nUseBackend b|if|a",
    );
}

#[test]
fn the_command_line_overrides() {
    let env = environment("global\n maxconn 5\nfrontend f\n bind :1\nfrontend g\n maxconn 6\n");
    let options = Options { maxconn: Some(7), proxy_maxconn: Some(8), ..Options::file("/etc/a.cfg") };
    let model = load(&options, &env).model.expect("the configuration is good");
    let shown = (model.global.maxconn, model.proxies[0].maxconn, model.proxies[1].maxconn);
    assert_eq!(shown, (Some(7), Some(8), Some(6)));
}

#[test]
fn directories_are_read_in_order_and_each_file_begins_anew() {
    let mut env = FixedEnvironment::default();
    env.files.insert("/d/b.cfg".into(), b"backend b\n".to_vec());
    env.files.insert("/d/a.cfg".into(), b"defaults\n mode http\nbackend a\n".to_vec());
    env.files.insert("/d/c.txt".into(), b"nonsense\n".to_vec());
    let loaded = load(&Options::file("/d"), &env);
    let model = loaded.model.expect("the configuration is good");
    let names: Vec<String> = model.proxies.iter().map(|p| format!("{} {:?}", p.name, p.mode)).collect();
    assert_eq!(names, ["a Http", "b Http"]);
    env.files.insert("/d/b.cfg".into(), b"balance roundrobin\n".to_vec());
    assert!(load(&Options::file("/d"), &env).model.is_none());
}

#[test]
fn variables_that_were_set_are_told() {
    let loaded = load(&Options::file("/etc/a.cfg"), &environment("global\n setenv A 1\n unsetenv B\n presetenv A 2\n"));
    let variables: Vec<String> = loaded.variables.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
    assert_eq!(variables, ["A=Some(\"1\")", "B=None"]);
}

#[test]
fn stick_rules_store_servers_in_the_tables_that_they_use() {
    let text = "global\n localpeer me\nbackend b\n mode http\n stick-table type ip size 10 store gpc1,gpc0\n stick match src\n stick on src table c\n \
                stick store-request src table p/t\npeers p\n peer me 127.0.0.1:1\n table t type ip size 10\n\
                backend c\n stick-table type ip size 10\nbackend d\n stick-table type ip size 10 store gpc0\n";
    let stored = |model: &Model| {
        let table = |table: &std::sync::Arc<baton_model::StickTable>| {
            table.stored.iter().map(|stored| stored.to_string()).collect::<Vec<_>>().join(",")
        };
        model.tables().map(table).collect::<Vec<_>>().join(" ")
    };
    check(text, stored, "server_id,gpc0,gpc1,server_key server_id,server_key gpc0 server_id,server_key");
}

/// As Debian's haproxy numbers them.
#[test]
fn servers_are_numbered_around_those_that_have_a_number() {
    for (given, expected) in [
        ("- - -", "1 2 3"),
        ("11 - 13 -", "11 2 13 4"),
        ("- 1 -", "2 1 4"),
        ("2 - -", "2 3 4"),
        ("3 - - -", "3 2 4 5"),
        ("- - 5 - -", "1 2 5 4 6"),
        ("1 - - 2 -", "1 3 4 2 6"),
    ] {
        let line = |(at, id): (usize, &str)| match id {
            "-" => format!(" server s{at} 127.0.0.1:1\n"),
            id => format!(" server s{at} 127.0.0.1:1 id {id}\n"),
        };
        let servers: String = given.split(' ').enumerate().map(line).collect();
        let ids = |model: &Model| {
            model.proxies[0].servers.iter().map(|server| server.id.to_string()).collect::<Vec<_>>().join(" ")
        };
        check(&format!("backend b\n{servers}"), ids, expected);
    }
}

#[test]
fn stick_tables() {
    let tables = |model: &Model| {
        let one = |table: &std::sync::Arc<baton_model::StickTable>| {
            let stored: Vec<String> = table.stored.iter().map(ToString::to_string).collect();
            let more = (table.no_purge, table.server_key, &table.write_to, table.recv_only, table.bytes_factor);
            format!("{} {} {} {:?} [{}] {more:?}", table.name, table.key, table.size, table.expire, stored.join(","))
        };
        model.tables().map(one).collect::<Vec<_>>().join("; ")
    };
    let timeouts = "defaults\n timeout client 1s\n timeout server 1s\n timeout connect 1s\n";
    check(
        &format!(
            "{timeouts}frontend f\n bind :1\n stick-table type ip size 1k expire 10s store gpc0,http_req_rate(1m) store conn_cur\n"
        ),
        tables,
        "f ip 1024 Some(10s) [gpc0,conn_cur,http_req_rate(60000)] (false, Name, None, false, 1)",
    );
    check(
        &format!(
            "{timeouts}backend b\n stick-table type binary len 6 size 2m nopurge srvkey addr store gpt(2),gpc(3),gpc_rate(3,10s) write-to \
             c\nbackend c\n stick-table type binary len 6 size 5 recv-only brates-factor 512 store gpt(2)\n"
        ),
        tables,
        "b binary len 6 2097152 None [gpt(2),gpc(3),gpc_rate(3,10000)] (true, Address, Some(\"c\"), false, 1); c binary len 6 5 None \
         [gpt(2)] (false, Name, None, true, 512)",
    );
    check(
        &format!("{timeouts}backend b\n stick-table size 7 type string\n"),
        tables,
        "b string len 31 7 None [] (false, Name, None, false, 1)",
    );
}
