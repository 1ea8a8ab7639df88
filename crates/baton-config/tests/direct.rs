//! `mode direct`: what its sections become, and what is said about what does not fit.

use baton_config::{FixedEnvironment, Loaded, Options, load};
use baton_model::{Direct, Model};

fn loaded(text: &str) -> Loaded {
    load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text))
}

fn model(text: &str) -> Model {
    let loaded = loaded(text);
    let faults: Vec<String> = loaded.diagnostics.iter().map(|fault| fault.render(1)).collect();
    loaded.model.unwrap_or_else(|| panic!("refused: {text}\n{}", faults.join("")))
}

/// The settings of the first section that is given as lines of `listen web`.
fn direct(lines: &str) -> Direct {
    let text = format!("listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n{lines}\n");
    Direct::clone(model(&text).proxies[0].direct.as_ref().expect("the section is in mode direct"))
}

/// Kind, line and message of each fault, of a whole file.
fn faults(text: &str) -> Vec<String> {
    let show = |fault: &baton_config::Diagnostic| format!("{} {}: {}", fault.line, fault.id, fault.message);
    loaded(text).diagnostics.iter().map(show).collect()
}

/// That the first fault is in this line, and told with these words.
#[track_caller]
fn refused(text: &str, line: u32, words: &str) {
    let loaded = loaded(text);
    let shown = faults(text);
    let alert = loaded.of(baton_config::Severity::Alert).next().unwrap_or_else(|| panic!("taken: {text}\n{shown:?}"));
    assert!(alert.line == line && alert.message.contains(words), "{text}\n{shown:#?}");
}

/// Checks that a line is refused in a section that is valid without it.
#[track_caller]
fn refused_line(line: &str, words: &str) {
    refused(&format!("listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n {line}\n"), 5, words);
}

#[test]
fn the_example_is_what_it_says() {
    let text = "listen web\n mode direct\n engine ipvs\n on-exit flush\n manage-vip interface eth0 prefix 24\n \
                bind 192.168.121.2:80-81 name web\n bind udp@192.168.121.2:53,fwmark@7,fwmark6@0x8 interface eth1\n balance leastconn\n \
                stick-table type ip size 1m expire 90500ms\n stick on src,ipmask(24,64)\n option httpchk GET /health\n \
                server app1 192.168.121.141 check\n server app2 192.168.121.13 check weight 2 maxconn 1000 minconn 800 port 99\n";
    // A mark of IPv6 cannot lead to servers of IPv4.
    let model = model(&text.replace(",fwmark6@0x8", ""));
    let web = &model.proxies[0];
    let direct = web.direct.as_ref().expect("the section is in mode direct");
    let places: Vec<String> = direct.places.iter().map(|place| place.place.to_string()).collect();
    assert_eq!(places, ["192.168.121.2:80", "192.168.121.2:81", "udp@192.168.121.2:53", "fwmark@7"]);
    assert_eq!(direct.places[0].name.as_deref(), Some("web"));
    assert_eq!(direct.places[3].interface.as_deref(), Some("eth1"));
    let expected = "Some(ManageVip { interface: Some(\"eth0\"), prefix: Some(24) })";
    assert_eq!(format!("{:?} {:?}", direct.engine, direct.on_exit), "Ipvs Flush");
    assert_eq!(format!("{:?}", direct.manage_vip), expected);
    assert_eq!(format!("{:?}", direct.persistence), "Some(Stickiness { expire: 91s, prefix: 24, prefix6: 64 })");
    assert!(web.binds.is_empty(), "nobody listens");
    assert!(direct.vip_check);
    assert_eq!(web.servers[0].check.port, Some(80), "the service's");
    assert_eq!(web.servers[1].check.port, Some(99));
    assert_eq!((web.servers[1].maxconn, web.servers[1].minconn), (1000, 800));
    assert!(model.has_listener() && model.has_direct());
    refused(text, 12, "not of the address family of the service fwmark6@8");
}

#[test]
fn balance_becomes_a_scheduler() {
    let scheduler = |words: &str| {
        let direct = direct(&format!(" balance {words}"));
        format!("{:?} {} {}", direct.scheduler, direct.hash_port, direct.fallback)
    };
    for (words, expected) in [
        ("roundrobin", "RoundRobin false false"),
        ("static-rr", "RoundRobin false false"),
        ("leastconn", "LeastConn false false"),
        ("source hash-port", "Source true false"),
        ("random(3)", "Random false false"),
        ("mh hash-port fallback", "Maglev true true"),
        ("dh", "Destination false false"),
        ("sed", "ShortestDelay false false"),
        ("nq", "NeverQueue false false"),
        ("lblc", "Locality false false"),
        ("lblcr", "LocalityReplicated false false"),
        ("fo", "Failover false false"),
        ("ovf", "Overflow false false"),
    ] {
        assert_eq!(scheduler(words), expected, "{words}");
    }
    refused_line("balance uri", "'balance uri' is not supported in the kernel");
    refused_line("balance first", "'balance first' is not supported in the kernel");
    refused_line("balance mh foo", "only accepts 'hash-port' and 'fallback'");
    for words in
        ["roundrobin hash-port", "leastconn fallback", "static-rr hash-port", "random(2) fallback", "source fallback x"]
    {
        refused_line(&format!("balance {words}"), "cannot handle unexpected argument");
    }
    assert_eq!(format!("{:?}", direct(" balance mh\n balance source").scheduler), "Source", "the last one counts");
    let of_defaults =
        "defaults\n balance leastconn hash-port\nlisten web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n";
    assert!(faults(of_defaults)[0].starts_with("2 extra-argument"), "{:?}", faults(of_defaults));
    assert!(loaded(of_defaults).model.is_some(), "a warning");
}

#[test]
fn the_engine_xdp_has_a_place() {
    for (words, expected) in [("xdp", "Xdp(Best)"), ("xdp driver", "Xdp(Driver)"), ("xdp stack", "Xdp(Stack)")] {
        assert_eq!(format!("{:?}", direct(&format!(" engine {words}")).engine), expected);
    }
    refused_line("engine xdp drive", "'engine xdp' only supports 'driver', 'stack' (got 'drive')");
    for odd in ["xdp stack eth0", "ipvs driver", "auto stack"] {
        refused_line(&format!("engine {odd}"), "cannot handle unexpected argument");
    }
}

#[test]
fn words_of_this_mode_are_refused_in_others() {
    let tcp =
        |line: &str| format!("listen web\n bind 10.0.0.1:80\n timeout client 1s\n server a 10.0.0.2:80\n {line}\n");
    for (line, words) in [
        ("engine ipvs", "it needs 'mode direct'"),
        ("on-exit flush", "it needs 'mode direct'"),
        ("manage-vip", "it needs 'mode direct'"),
        ("balance mh", "it needs 'mode direct'"),
        ("no option direct-vip-check", "it needs 'mode direct'"),
        ("bind udp@10.0.0.1:53", "dgram-type address not acceptable"),
        ("bind fwmark@7", "unknown prefix 'fwmark@'"),
        ("bind 10.0.0.1:0", "invalid port '0'"),
        ("server b 10.0.0.3:80 tunnel", "need 'mode direct'"),
        ("stick on src", "unable to find stick-table"),
    ] {
        refused(&tcp(line), 5, words);
    }
}

#[test]
fn what_is_about_bytes_is_refused_with_a_remedy() {
    for line in [
        "http-request deny",
        "acl a src 10.0.0.0/8",
        "tcp-request connection reject",
        "option forwardfor",
        "cookie a insert",
        "maxconn 100",
        "rate-limit sessions 10",
        "errorfile 503 /x",
        "use_backend web",
        "hash-type consistent",
        "option splice-auto",
    ] {
        let text = format!("listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n {line}\n");
        assert!(faults(&text).iter().any(|fault| fault.starts_with("5 ")), "{line}: {:?}", faults(&text));
        assert!(loaded(&text).model.is_none(), "{line}");
    }
    let text = "listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n timeout client 5s\n retries 2\n";
    assert_eq!(
        faults(text),
        [
            "5 without-meaning: 'timeout client' is ignored for proxy 'web', which is in 'mode direct'.",
            "6 without-meaning: 'retries' is ignored for proxy 'web', which is in 'mode direct'.",
        ]
    );
    assert!(loaded(text).model.is_some());
}

#[test]
fn what_defaults_bring_is_left_out_and_told_where_it_is_missed() {
    let text = "defaults\n mode http\n timeout client 5s\n timeout connect 1s\n timeout server 5s\n option httplog\n \
                option forwardfor\n maxconn 100\n balance uri\n log /dev/log local0\n\
                listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2 check\n";
    assert_eq!(
        faults(text),
        [
            "7 without-meaning: 'option forwardfor' of this 'defaults' section is ignored for proxy 'web', which is in 'mode direct'.",
            "8 without-meaning: 'maxconn' of this 'defaults' section is ignored for proxy 'web', which is in 'mode direct'.",
            "9 without-meaning: 'balance uri' is not supported in the kernel for proxy 'web': falling back to round robin.",
        ]
    );
    let model = model(text);
    assert_eq!(model.proxies[0].timeouts.connect, Some(std::time::Duration::from_secs(1)), "checks need it");
    assert_eq!(model.proxies[0].timeouts.client, None);
    assert_eq!(model.proxies[0].maxconn, None);
}

#[test]
fn addresses_that_no_service_can_have_are_refused() {
    let bind = |text: &str| format!("listen web\n mode direct\n bind {text}\n server a 10.0.0.2\n");
    for (text, words) in [
        (":80", "needs a specific address"),
        ("[::]:80", "needs a specific address"),
        ("/tmp/socket", "is not a virtual address"),
        ("10.0.0.1:80 ssl", "only supports 'name', 'id' and 'interface'"),
        ("10.0.0.1:80 accept-proxy", "only supports 'name', 'id' and 'interface'"),
        ("10.0.0.1:0", "port 0 (all ports) requires persistence"),
        ("10.0.0.2:80", "has the virtual address of the service"),
        ("[fe80::1]:80", "not of the address family of the service"),
    ] {
        let text = bind(text);
        let shown = faults(&text);
        assert!(shown.iter().any(|fault| fault.contains(words)), "{text}: {shown:#?}");
        assert!(loaded(&text).model.is_none(), "{text}");
    }
    refused(&bind("udp@10.0.0.1"), 3, "missing port specification");
    refused(&bind("fwmark@0"), 3, "a number above 0");
    refused(&bind("10.0.0.1:1-5000"), 1, "more than 4096 virtual services");
    refused(&format!("{} engine xdp stack\n", bind("fwmark@7")), 3, "before a firewall can mark them");
    refused(&format!("{} manage-vip\n", bind("fwmark@7")), 5, "which have no address");
    refused(&format!("{} manage-vip prefix 64\n", bind("10.0.0.1:80")), 5, "whose prefix is at most 32");
    let sticky = format!("{} stick-table type ip size 1m expire 5m\n stick on src\n", bind("10.0.0.1:0"));
    assert!(loaded(&sticky).model.is_some(), "{:?}", faults(&sticky));
}

#[test]
fn servers_that_packets_cannot_reach_are_refused() {
    for (words, message) in [
        ("10.0.0.3:8080", "differs from that of the service 10.0.0.1:80, and packets keep their port"),
        ("10.0.0.3:8080 tunnel", "packets keep their port"),
        ("10.0.0.3:+1", "a relative port"),
        ("/tmp/socket", "needs an IP address"),
        ("0.0.0.0", "needs an IP address"),
        ("10.0.0.3 send-proxy", "'send-proxy' is not supported"),
        ("10.0.0.3 ssl verify none", "'ssl' is not supported"),
        ("10.0.0.3 observe layer4 check", "'observe' is not supported"),
        ("10.0.0.3 maxconn 5 minconn 6", "'minconn' is greater than 'maxconn'"),
        ("10.0.0.2", "has the same address as server 'a'"),
        ("[fd00::3]", "not of the address family"),
        ("10.0.0.3 tunnel gue:x", "expects a port"),
    ] {
        refused_line(&format!("server b {words}"), message);
    }
    // The service's port is a masqueraded server's too, where it has none.
    let twice = |servers: &str| {
        let text = format!("listen web\n mode direct\n bind 10.0.0.1:80,10.0.0.1:443\n{servers}");
        faults(&text).iter().filter(|fault| fault.contains("has the same address as server 'a'")).count()
    };
    assert_eq!(twice(" server a 10.0.0.2 masquerade\n server b 10.0.0.2:80 masquerade\n"), 1);
    assert_eq!(twice(" server a 10.0.0.2:443 masquerade\n server b 10.0.0.2 masquerade\n"), 1);
    assert_eq!(twice(" server a 10.0.0.2 masquerade\n server b 10.0.0.2:8080 masquerade\n"), 0);
    let text = "listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2:80\n server b 10.0.0.3:8080 masquerade\n \
                server c 10.0.0.4 tunnel gue:99 check\n server d [fd00::5] tunnel gre\n server e 10.0.0.6 tunnel weight 3\n";
    let forwarding: Vec<_> =
        model(text).proxies[0].servers.iter().map(|server| format!("{:?}", server.forwarding)).collect();
    assert_eq!(forwarding, ["Direct", "Masquerade", "Tunnel(Gue(99))", "Tunnel(Gre)", "Tunnel(IpIp)"]);
}

#[test]
fn a_check_of_a_server_of_udp_is_told_where_to_ask() {
    let warned = |binds: &str, check: &str| {
        let text = format!("listen names\n mode direct\n bind {binds}\n option httpchk\n server a 10.0.0.2 {check}\n");
        assert!(loaded(&text).model.is_some(), "{:?}", faults(&text));
        faults(&text).iter().any(|fault| fault.contains("'check' uses TCP, but the service on port 53 is UDP"))
    };
    assert!(warned("udp@10.0.0.1:53", "check"));
    assert!(!warned("udp@10.0.0.1:53", ""));
    assert!(!warned("udp@10.0.0.1:53", "check port 53"));
    assert!(!warned("udp@10.0.0.1:53", "check addr 10.0.0.2:53"));
    assert!(!warned("udp@10.0.0.1:53\n http-check connect port 8080", "check"));
    assert!(!warned("udp@10.0.0.1:53\n bind 10.0.0.1:53", "check"));
}

#[test]
fn all_faults_are_told_at_once() {
    let text = "listen web\n mode direct\n bind :80\n balance rr\n server a 10.0.0.2:8080\n server b /tmp/socket\n";
    let lines: Vec<u32> = loaded(text).diagnostics.iter().map(|fault| fault.line).collect();
    assert!([3, 4, 5, 6].iter().all(|line| lines.contains(line)), "{:#?}", faults(text));
    let ssl = text.replace(" bind :80\n balance rr\n", " bind 10.0.0.1:80 ssl crt /tmp/none\n");
    assert!(faults(&ssl).iter().any(|fault| fault.contains("port 8080 differs")), "{:#?}", faults(&ssl));
}

/// What helps with the first fault of a whole file.
#[track_caller]
fn helps(text: &str, words: &str) {
    let loaded = loaded(text);
    let alert = loaded.of(baton_config::Severity::Alert).next().unwrap_or_else(|| panic!("taken: {text}"));
    assert!(alert.hint.as_ref().is_some_and(|hint| hint.contains(words)), "{text}\n{alert:?}");
}

#[test]
fn words_of_others_are_answered_with_ours() {
    let web = |bind: &str, lines: &str| format!("listen web\n mode direct\n bind {bind}\n{lines}\n");
    for (line, words) in [
        ("balance wlc", "the kernel's scheduler `wlc` is 'leastconn' in Baton"),
        ("balance rr", "is 'roundrobin' in Baton"),
        ("balance sh", "is 'source' in Baton"),
        ("balance elephant", "mh, dh, sed"),
        ("balance roundrobin hash-port", "of 'source' and 'mh'"),
        ("server b 10.0.0.3 gate", "direct routing is the default"),
        ("server b 10.0.0.3 nat", "'masquerade'"),
        ("server b 10.0.0.3 weight 300", "scale down the weights"),
        ("server b 2001:db8:121::15", "write '[2001:db8:121::15]'"),
        ("server b 2001:db8::15:3", "write '[2001:db8::15:3]'"),
        ("persistence_timeout 300", "expire 300s'"),
        ("lb_algo rr", "'balance'"),
        ("delay_loop 6", "baton convert"),
    ] {
        helps(&web("10.0.0.1:80", line), words);
    }
    helps(&web("udp://10.0.0.1:53", ""), "write 'udp@10.0.0.1:53'");
    helps(&web("fwmark@7", " server a 10.0.0.2 check"), "add 'port NUMBER'");
    for (line, words) in [
        ("tune.ipvs.timeout-tcp 900", "write '900s'"),
        ("tune.ipvs.sloppy-tcp 1", "write 'on'"),
        ("tune.ipvs.sloppy-tcp 0", "write 'off'"),
    ] {
        helps(&format!("global\n {line}\n"), words);
    }
}

#[test]
fn persistence_is_what_the_kernel_can() {
    for (lines, words) in [
        ("stick on src", "needs a 'stick-table' with its duration"),
        ("stick match src", "not supported in 'mode direct'"),
        ("stick on hdr(host)", "not supported in 'mode direct'"),
        ("stick on src,ipmask(99)", "not supported in 'mode direct'"),
        ("stick on src\n stick-table type ip size 1m", "needs a 'stick-table' with its duration"),
        ("stick on src\n stick-table type ip size 1m expire 0", "disables persistence"),
    ] {
        refused_line(lines, words);
    }
    let stick = "stick-table type ip size 1m expire 5m\n stick on src\n";
    refused_line(&format!("server n 10.0.0.9 non-stick\n {stick}"), "is not supported with 'stick on src'");
    direct(&format!(" {stick} default-server non-stick\n server n 10.0.0.9 stick"));
    direct(" server n 10.0.0.9 non-stick");
    let sticky = direct(" stick-table type ip size 1m expire 5m\n stick on src");
    assert_eq!(format!("{:?}", sticky.persistence), "Some(Stickiness { expire: 300s, prefix: 32, prefix6: 128 })");
}

#[test]
fn a_frontend_and_its_backend_are_like_a_listen() {
    let text = "frontend in\n mode direct\n bind 10.0.0.1:80\n default_backend app\n\
                backend app\n mode direct\n server a 10.0.0.2 check\n server b 10.0.0.3:81 masquerade\n";
    let model = model(text);
    assert_eq!(model.proxies[1].servers[0].check.port, Some(80));
    assert_eq!(model.proxies[1].servers[1].check.port, None, "it has its own");
    refused(&text.replace(" default_backend app\n", "").replace(" check", ""), 1, "has no servers");
    refused(&text.replace("10.0.0.3:81 masquerade", "10.0.0.3:81"), 8, "packets keep their port");
    let mixed = text.replace("backend app\n mode direct\n", "backend app\n mode tcp\n");
    assert!(
        faults(&mixed).iter().any(|fault| fault.contains("cannot be combined with another mode")),
        "{:?}",
        faults(&mixed)
    );
    let mixed = text.replace("frontend in\n mode direct\n", "frontend in\n mode tcp\n");
    assert!(
        faults(&mixed).iter().any(|fault| fault.contains("cannot be combined with another mode")),
        "{:?}",
        faults(&mixed)
    );
}

#[test]
fn sections_do_not_get_into_each_others_way() {
    let two = |first: &str, second: &str| {
        format!(
            "listen a\n mode direct\n bind {first}\n server a 10.0.0.2\nlisten b\n mode direct\n bind {second}\n server b 10.0.0.3\n"
        )
    };
    refused(&two("10.0.0.1:80", "10.0.0.1:80"), 7, "is already a virtual service of proxy 'a' (a.cfg:1)");
    assert!(loaded(&two("10.0.0.1:80", "udp@10.0.0.1:80")).model.is_some());
    refused(&two("fwmark@7", "fwmark@7"), 7, "is already a virtual service of proxy 'a'");
    let engines = two("10.0.0.1:80\n engine ipvs", "10.0.0.1:81\n engine xdp");
    refused(&engines, 9, "all sections must use the same engine");
    let places = two("10.0.0.1:80\n engine xdp driver", "10.0.0.1:81\n engine xdp");
    refused(
        &places,
        9,
        "requests engine xdp, but proxy 'a' (a.cfg:1) requests xdp driver: all sections must use the same engine",
    );
    assert!(loaded(&places.replace("xdp\n", "auto\n")).model.is_some(), "auto is any");
    let listener = |address: &str| {
        format!(
            "listen a\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\nlisten b\n bind {address}\n timeout client 1s\n"
        )
    };
    refused(&listener("10.0.0.1:80"), 6, "(a.cfg:3): no connection will arrive");
    let every = listener("10.0.0.1:80")
        .replace("10.0.0.1:80\n server", "10.0.0.1:0\n stick-table type ip size 1m expire 5m\n stick on src\n server");
    refused(&every, 8, "but the kernel sends packets to all ports of 10.0.0.1 to");
    assert_eq!(faults(&listener("10.0.0.1:81")).len(), 0);
    let wide = listener(":80");
    assert!(
        loaded(&wide).model.is_some() && faults(&wide)[0].contains("no connection will arrive"),
        "{:?}",
        faults(&wide)
    );
}

#[test]
fn settings_of_the_kernel_are_read() {
    let global =
        |lines: &str| format!("global\n{lines}listen web\n mode direct\n bind 10.0.0.1:80\n server a 10.0.0.2\n");
    let text = global(
        " tune.ipvs.timeout-tcp 15m\n tune.ipvs.timeout-tcpfin 30s\n tune.ipvs.timeout-udp 60s\n \
         tune.ipvs.expire-nodest-conn on\n tune.ipvs.sloppy-tcp off\n tune.ipvs.sync-master eth0 id 7\n tune.ipvs.sync-backup eth1\n \
         tune.ipvs.expire-quiescent-template off\n tune.xdp.connections 2000000\n \
         setcap cap_net_admin,cap_net_raw\n",
    );
    assert_eq!(model(&text).global.xdp_connections, Some(2_000_000));
    let ipvs = model(&text).global.ipvs;
    assert_eq!(
        (ipvs.timeout_tcp, ipvs.timeout_udp),
        (Some(std::time::Duration::from_secs(900)), Some(std::time::Duration::from_secs(60)))
    );
    assert_eq!((ipvs.expire_nodest_conn, ipvs.sloppy_tcp), (Some(true), Some(false)));
    assert_eq!(ipvs.expire_quiescent_template, Some(false));
    assert_eq!(format!("{:?}", ipvs.sync_master), "Some(Sync { interface: \"eth0\", id: 7 })");
    assert_eq!(format!("{:?}", ipvs.sync_backup), "Some(Sync { interface: \"eth1\", id: 0 })");
    for (line, words) in [
        ("tune.ipvs.timeout-tcp 1500ms", "whole seconds"),
        ("tune.ipvs.sloppy-tcp maybe", "'on'"),
        ("tune.ipvs.sync-master", "name of a network interface"),
        ("tune.ipvs.sync-master eth0 id 999", "between 0 and 255"),
        ("tune.xdp.connections 0", "between 1 and 16777216"),
        ("tune.xdp.connections many", "integer"),
    ] {
        let shown = faults(&global(&format!(" {line}\n")));
        assert!(shown[0].starts_with("2 ") && shown[0].contains(words), "{line}: {shown:?}");
    }
}
