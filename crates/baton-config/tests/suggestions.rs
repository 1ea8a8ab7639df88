//! "did you mean" for values: what stands where only some words, or names that the file declares, are valid.

use baton_config::{FixedEnvironment, Options, load};

/// The help of the first message that has one.
#[track_caller]
fn check(text: &str, expect: &str) {
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    let hints: Vec<&str> = loaded.diagnostics.iter().filter_map(|found| found.hint.as_deref()).collect();
    assert!(loaded.model.is_none(), "{text}: nothing is wrong");
    let expect = format!("did you mean '{expect}'?");
    assert_eq!(hints.first().copied(), Some(expect.as_str()), "{text}: {:?}", loaded.diagnostics);
}

/// A line of a backend.
#[track_caller]
fn backend(line: &str, expect: &str) {
    check(&format!("backend b\n mode http\n {line}\n"), expect);
}

/// What follows a server's address.
#[track_caller]
fn server(words: &str, expect: &str) {
    backend(&format!("server s 127.0.0.1:1 {words}"), expect);
}

#[track_caller]
fn frontend(line: &str, expect: &str) {
    check(&format!("frontend f\n mode http\n {line}\n"), expect);
}

#[track_caller]
fn global(line: &str, expect: &str) {
    check(&format!("global\n {line}\n"), expect);
}

#[test]
fn words_of_expressions() {
    frontend("log globl", "global");
    frontend("http-request set-var(tx.a) src", "txn.a");
    frontend("http-request set-header X %[var(sees.a)]", "sess.a");
    frontend("http-request set-header X %[path,json(utf9)]", "utf8");
    frontend("http-request set-header X %[path,when(eror)]", "error");
    frontend("http-request set-header X %[path,debug(a,stdeer)]", "stderr");
    frontend("http-request set-header X %[path,digest(blake2b)]", "blake2b512");
}

#[test]
fn words_of_proxies() {
    backend("mode htp", "http");
    backend("mode HTTP", "http");
    backend("balance rondrobin", "roundrobin");
    backend("balance leastcon", "leastconn");
    backend("balance uri hole", "whole");
    backend("balance hdr(host) use_domain_onyl", "use_domain_only");
    backend("balance url_param a chek_post", "check_post");
    backend("hash-type consistant", "consistent");
    backend("hash-type consistent sdmb", "sdbm");
    backend("hash-type consistent sdbm avalanch", "avalanche");
    backend("http-reuse allways", "always");
    backend("retry-on conn-failur", "conn-failure");
    backend("cookie A inser", "insert");
    backend("option forwardfor if-non", "if-none");
    backend("option originalto excpet 10.0.0.0/8", "except");
    frontend("option httplog cfl", "clf");
    frontend("option http-restrict-req-hdr-names deleet", "delete");
    backend("source 10.0.0.1 interfce eth0", "interface");
    backend("source 10.0.0.1 usesrc cleint", "client");
    backend("http-check expect statsu 200", "status");
    backend("http-check send mteh GET", "meth");
    backend("http-check connect prot 80", "port");
    frontend("log 127.0.0.1 format rfc5242 local0", "rfc5424");
    frontend("log 127.0.0.1 locl0", "local0");
    frontend("log 127.0.0.1 local0 notise", "notice");
    frontend("use_backend b iff TRUE", "if");
    frontend("monitor fail unles TRUE", "unless");
    check("backend b\n mode direct\n balance leastcom\n", "leastconn");
    check("backend b\n mode direct\n balance lblrc\n", "lblc");
    check("backend b\n mode direct\n engine ipsv\n", "ipvs");
    check("backend b\n mode direct\n manage-vip interfaec lo\n", "interface");
}

#[test]
fn words_of_servers_and_binds() {
    server("on-error mark-donw", "mark-down");
    server("observe layer-4", "layer4");
    server("init-addr lib", "libc");
    server("on-marked-down shutdown-session", "shutdown-sessions");
    server("init-state ful-up", "fully-up");
    server("ssl verify nnoe", "none");
    server("ssl verify none ssl-min-ver TLS1.2", "TLSv1.2");
    backend("server s upix@/run/s", "unix@");
    frontend("bind :443 ssl verify option", "optional");
    frontend("bind :443 ssl ssl-min-ver TLSv12", "TLSv1.2");
    frontend("bind :443 ssl crt-ignore-err X509_V_ERR_CERT_HAS_EXPIRD", "X509_V_ERR_CERT_HAS_EXPIRED");
    frontend("bind :80 shards by-thred", "by-thread");
    frontend("bind ipv5@:80", "ipv4@");
}

#[test]
fn words_of_the_process() {
    global("stats socket /run/s level admni", "admin");
    global("stats socket /run/s severity-output sting", "string");
    global("stats socket /run/s expose-fd listener", "listeners");
    global("master-worker no-exit-on-failur", "no-exit-on-failure");
    global("setcap cap_net_rwa", "cap_net_raw");
    global("default-path orgin /etc", "origin");
    global("unix-bind usr root", "user");
    global("ssl-default-bind-options no-tls-ticket", "no-tls-tickets");
    global("ssl-default-server-options no-tls-ticket", "no-tls-tickets");
    global("ssl-load-extra-files isuer", "issuer");
    global("ssl-server-verify requird", "required");
}

#[test]
fn names_that_the_file_declares() {
    check("frontend f\n default_backend aap\nbackend app\n", "app");
    check("frontend f\n use_backend aap\nbackend app\n", "app");
    check("defaults base\nfrontend f from bas\n", "base");
    backend("server one 127.0.0.1:1\n use-server oen if TRUE", "one");
    backend("server one 127.0.0.1:1 check\n server two 127.0.0.1:2 track oen", "one");
    check("backend app\n server s 127.0.0.1:1 check\nbackend b\n server s 127.0.0.1:2 track ap/s\n", "app");
    frontend("acl is_api path /x\n http-request deny if is_apy", "is_api");
    check("crt-store web\n load crt x.pem alias main\nfrontend f\n bind :1 ssl crt @web/mian\n", "@web/main");
}

#[test]
fn words_of_rules() {
    frontend("http-request dney", "deny");
    frontend("http-request return statsu 200", "status");
    frontend("http-request deny deny_staus 403", "deny_status");
    frontend("http-request redirect locatoin /x", "location");
    frontend("http-request set-log-level silnet", "silent");
    frontend("http-request strict-mode onn", "on");
    frontend("http-request set-header X %[pth]", "path");
    frontend("http-request set-header X %[path,lowr]", "lower");
    frontend("http-request set-header X %[date(0,mss)]", "ms");
    frontend("http-request deny if { path -m bge /x }", "beg");
    frontend("http-request deny if { pth_beg /x }", "path_beg");
    frontend("http-request del-header X -m sbu", "sub");
}

#[test]
fn what_is_nothing_like_a_known_word_gets_no_guess() {
    let text = "backend b\n mode elephant\n http-reuse elephant\n";
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    assert_eq!(loaded.diagnostics.len(), 2);
    assert!(loaded.diagnostics.iter().all(|found| found.hint.is_none()), "{:?}", loaded.diagnostics);
}
