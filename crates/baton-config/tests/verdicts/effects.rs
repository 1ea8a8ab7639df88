//! What is read without a word has an effect: every keyword whose row says that it works changes the model in some case that is
//! accepted. One that is only read belongs to those "without an effect", whose reason is printed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use baton_config::keywords::{self, Status};
use baton_config::{Options, Severity, SystemEnvironment, load};

use baton_model::Model;
use baton_prove::certificates::Authority;

use super::{TEMPLATES, directory, in_dir};

/// Cases that the comparison with HAProxy has no use for: a template, in which `@` stands for the words that make the difference,
/// and of each keyword such words.
type Cases = (&'static str, &'static [(&'static str, &'static str)]);

const MORE: &[Cases] = &[
    (
        "global\n@\nlisten l\n bind 127.0.0.1:1\n bind 127.0.0.1:2 ssl crt DIR/a.pem\n bind /x.sock\n \
         server s 127.0.0.1:1 ssl verify none\n",
        &[
            ("global key-base", "key-base DIR\ncrt-store x\n load crt DIR/a.pem key a.pem"),
            ("global master-worker", "master-worker"),
            ("global ssl-default-bind-ciphers", "ssl-default-bind-ciphers ECDHE-RSA-AES128-GCM-SHA256"),
            ("global ssl-default-bind-ciphersuites", "ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256"),
            ("global ssl-default-server-ciphers", "ssl-default-server-ciphers ECDHE-RSA-AES128-GCM-SHA256"),
            ("global ssl-default-server-ciphersuites", "ssl-default-server-ciphersuites TLS_AES_128_GCM_SHA256"),
            ("global ssl-default-server-curves", "ssl-default-server-curves P-256"),
            ("global ssl-default-server-options", "ssl-default-server-options ssl-min-ver TLSv1.3"),
            ("global ssl-default-server-sigalgs", "ssl-default-server-sigalgs RSA+SHA256"),
            ("global server-state-file", "server-state-file /x"),
            ("global stats maxconn", "stats maxconn 7"),
            ("global tune.maxrewrite", "tune.maxrewrite 2048"),
            ("global tune.stick-counters", "tune.stick-counters 5"),
            ("global tune.handover", "tune.handover off"),
            ("global tune.handover.patience", "tune.handover.patience 7s"),
            ("global tune.ipvs.expire-nodest-conn", "tune.ipvs.expire-nodest-conn on"),
            ("global tune.ipvs.expire-quiescent-template", "tune.ipvs.expire-quiescent-template on"),
            ("global tune.ipvs.sloppy-tcp", "tune.ipvs.sloppy-tcp on"),
            ("global tune.ipvs.sync-backup", "tune.ipvs.sync-backup lo id 1"),
            ("global tune.ipvs.sync-master", "tune.ipvs.sync-master lo id 1"),
            ("global tune.ipvs.timeout-tcp", "tune.ipvs.timeout-tcp 9s"),
            ("global tune.ipvs.timeout-tcpfin", "tune.ipvs.timeout-tcpfin 9s"),
            ("global tune.ipvs.timeout-udp", "tune.ipvs.timeout-udp 9s"),
            ("global tune.xdp.connections", "tune.xdp.connections 1000"),
            ("global unix-bind", "unix-bind prefix /tmp/ mode 600"),
        ],
    ),
    (
        "global\n @\nlisten l\n mode http\n bind 127.0.0.1:1\n option h1-case-adjust-bogus-client\n",
        &[
            ("global h1-case-adjust", "h1-case-adjust host Host"),
            ("global h1-case-adjust-file", "h1-case-adjust-file DIR/names"),
        ],
    ),
    (
        "global\n h1-case-adjust host Host\nlisten l\n mode http\n bind 127.0.0.1:1\n server s 127.0.0.1:1\n @\n",
        &[
            ("option h1-case-adjust-bogus-client", "option h1-case-adjust-bogus-client"),
            ("option h1-case-adjust-bogus-server", "option h1-case-adjust-bogus-server"),
        ],
    ),
    (
        "listen l\n bind 127.0.0.1:1\n default-server send-proxy-v2-ssl\n server s 127.0.0.1:1 @\n",
        &[
            ("server no-send-proxy-v2", "no-send-proxy-v2"),
            ("server no-send-proxy-v2-ssl", "no-send-proxy-v2-ssl"),
            ("server send-proxy-v2-ssl-cn", "send-proxy-v2-ssl-cn"),
        ],
    ),
    ("global\n@\npeers p\n peer a 127.0.0.1:1\n peer b 127.0.0.1:2\n", &[("global localpeer", "localpeer a")]),
    (
        "global\n localpeer a\npeers p\n shards 3\n peer a 127.0.0.1:1\n peer b 127.0.0.1:2 @\n",
        &[("server shard", "shard 2")],
    ),
    (
        "global\n stats socket /tmp/x.sock @\n",
        &[
            ("bind expose-fd", "expose-fd listeners"),
            ("bind level", "level admin"),
            ("bind severity-output", "severity-output number"),
        ],
    ),
    (
        "listen l\n bind 127.0.0.1:2 ssl crt DIR/a.pem @\n",
        &[
            ("bind crt-list", "crt-list DIR/list"),
            ("bind tls-ticket-keys", "tls-ticket-keys DIR/tickets"),
            ("ssl-f-use", "\n ssl-f-use crt DIR/b.pem"),
            ("load-server-state-from-file", "\n load-server-state-from-file global"),
            ("server-state-file-name", "\n server-state-file-name x"),
        ],
    ),
    ("listen l\n bind :::2 @\n", &[("bind v4v6", "v4v6"), ("bind namespace", "namespace blue")]),
    (
        "listen l\n mode http\n bind 127.0.0.1:1\n server s 127.0.0.1:1 ssl verify none check @\n",
        &[
            ("http-send-name-header", "\n http-send-name-header X-Server"),
            ("option forwarded", "\n option forwarded"),
            ("server alpn", "alpn http/1.1"),
            ("server ca-file", "ca-file DIR/ca.pem"),
            ("server check-alpn", "check-alpn http/1.1"),
            ("server check-proto", "check-proto h2\n option httpchk"),
            ("server proto", "proto h2"),
            ("server check-sni", "check-sni a.test"),
            ("server ciphers", "ciphers ECDHE-RSA-AES128-GCM-SHA256"),
            ("server ciphersuites", "ciphersuites TLS_AES_128_GCM_SHA256"),
            ("server crl-file", "verify required ca-file DIR/ca.pem crl-file DIR/crl.pem"),
            ("server crt", "crt DIR/a.pem"),
            ("server curves", "curves P-256"),
            ("server force-tlsv12", "force-tlsv12"),
            ("server force-tlsv13", "force-tlsv13"),
            ("server init-state", "init-state down"),
            ("server inter", "inter 3s"),
            ("server no-ssl-reuse", "no-ssl-reuse"),
            ("server no-tls-tickets", "no-tls-tickets"),
            ("server no-tlsv12", "no-tlsv12"),
            ("server no-tlsv13", "no-tlsv13"),
            ("server pool-max-conn", "pool-max-conn 7"),
            ("server redir", "redir http://a.test"),
            ("server sigalgs", "sigalgs RSA+SHA256"),
            ("server sni", "sni str(a.test)"),
            ("server ssl-max-ver", "ssl-max-ver TLSv1.2"),
            ("server ssl-min-ver", "ssl-min-ver TLSv1.3"),
            ("server verify", "verify required ca-file DIR/ca.pem"),
            ("server verifyhost", "verify required ca-file DIR/ca.pem verifyhost a.test"),
        ],
    ),
    (
        "http-errors e\n errorfile 503 /dev/null\nlisten l\n mode http\n bind 127.0.0.1:1\n @\n server s 127.0.0.1:1 check\n",
        &[
            ("default-server", "default-server weight 7"),
            ("dynamic-cookie-key", "cookie C insert dynamic\n dynamic-cookie-key x"),
            ("errorfiles", "errorfiles e"),
            ("http-error", "http-error status 503 content-type text/plain string x"),
            ("http-check connect", "option httpchk\n http-check connect port 9"),
            ("http-check expect", "option httpchk\n http-check expect status 204"),
            ("http-check send", "option httpchk\n http-check send uri /x"),
            ("http-check comment", "option httpchk\n http-check comment x"),
            ("http-check send-state", "option httpchk\n http-check send-state"),
            ("http-check set-var*", "option httpchk\n http-check set-var(check.a) int(1)"),
            ("http-check unset-var*", "option httpchk\n http-check unset-var(check.a)"),
            ("option grpc-check", "option grpc-check service a"),
            ("option ldap-check", "option ldap-check"),
            ("option pgsql-check", "option pgsql-check user bob"),
            ("option redis-check", "option redis-check"),
            ("option ssl-hello-chk", "option ssl-hello-chk"),
            ("option tcp-check", "option tcp-check"),
            ("tcp-check comment", "option tcp-check\n tcp-check comment x"),
            ("tcp-check connect", "option tcp-check\n tcp-check connect"),
            ("tcp-check expect", "option tcp-check\n tcp-check expect string x"),
            ("tcp-check send", "option tcp-check\n tcp-check send x"),
            ("tcp-check send-binary", "option tcp-check\n tcp-check send-binary 0a"),
            ("tcp-check send-binary-lf", "option tcp-check\n tcp-check send-binary-lf %[str(0a)]"),
            ("tcp-check send-lf", "option tcp-check\n tcp-check send-lf %[be_name]"),
            ("tcp-check set-var*", "option tcp-check\n tcp-check set-var(check.a) int(1)"),
            ("tcp-check unset-var*", "option tcp-check\n tcp-check unset-var(check.a)"),
        ],
    ),
    (
        "global\n external-check\n insecure-fork-wanted\nlisten l\n bind 127.0.0.1:1\n @\n server s 127.0.0.1:1 check\n",
        &[
            ("option external-check", "option external-check\n external-check command /bin/true"),
            ("external-check command", "option external-check\n external-check command /bin/true"),
            ("external-check path", "option external-check\n external-check command true\n external-check path /bin"),
        ],
    ),
    (
        "defaults\n disabled\n option httpclose\nlisten l\n mode http\n @\n",
        &[("enabled", "enabled"), ("option http-keep-alive", "no option httpclose\n option http-keep-alive")],
    ),
    (
        "listen l\n bind 127.0.0.1:1\n server s 127.0.0.1:1 check @\n",
        &[("server check-ssl", "check-ssl verify none"), ("server ssl", "ssl verify none")],
    ),
    (
        "listen l\n bind 127.0.0.1:1\n default-server ssl verify required ca-file DIR/ca.pem verifyhost x backup check check-ssl \
         check-send-proxy send-proxy tfo no-tls-tickets no-ssl-reuse\n server s 127.0.0.1:1 @\n",
        &[
            ("server no-backup", "no-backup"),
            ("server no-check", "no-check"),
            ("server no-check-send-proxy", "no-check-send-proxy"),
            ("server no-check-ssl", "no-check-ssl"),
            ("server no-send-proxy", "no-send-proxy"),
            ("server no-ssl", "no-ssl"),
            ("server no-tfo", "no-tfo"),
            ("server no-verifyhost", "no-verifyhost"),
            ("server ssl-reuse", "ssl-reuse"),
            ("server tls-tickets", "tls-tickets"),
        ],
    ),
    (
        "mailers m\n mailer a 127.0.0.1:25\nlisten l\n bind 127.0.0.1:1\n @\n",
        &[("email-alert", "email-alert mailers m\n email-alert from a\n email-alert to b")],
    ),
    (
        "resolvers r\n nameserver n 127.0.0.1:53\n\
         listen l\n mode http\n bind 127.0.0.1:1\n server s localhost:80 init-addr none @\n",
        &[("server resolvers", "resolvers r")],
    ),
    (
        "resolvers r\n nameserver n 127.0.0.1:53\n\
         listen l\n mode http\n bind 127.0.0.1:1\n server s localhost:80 init-addr none resolvers r @\n",
        &[
            ("server resolve-net", "resolve-net 10.0.0.0/8"),
            ("server resolve-opts", "resolve-opts allow-dup-ip"),
            ("server resolve-prefer", "resolve-prefer ipv4"),
        ],
    ),
    (
        "listen l\n mode direct\n bind 192.0.2.1:80\n @\n",
        &[
            ("engine", "engine ipvs"),
            ("manage-vip", "manage-vip"),
            ("on-exit", "on-exit flush"),
            ("option direct-vip-check", "no option direct-vip-check"),
            ("stick", "stick-table type ip size 1m expire 5m\n stick on src"),
            ("stick-table", "stick-table type ip size 1m expire 5m\n stick on src"),
            ("server masquerade", "server s 192.0.2.9 masquerade"),
            ("server tunnel", "server s 192.0.2.9 tunnel ipip"),
        ],
    ),
];

/// Keywords that leave nothing in the model, and what they do instead.
const ELSEWHERE: &[(&str, &str)] = &[
    ("bind force-sslv3", "it is refused"),
    ("bind force-tlsv10", "it is refused"),
    ("bind force-tlsv11", "it is refused"),
    ("server force-sslv3", "it is refused"),
    ("server force-tlsv10", "it is refused"),
    ("server force-tlsv11", "it is refused"),
    ("server no-sslv3", "it is never spoken; a warning where other words make it void"),
    ("server no-tlsv10", "it is never spoken; a warning where other words make it void"),
    ("server no-tlsv11", "it is never spoken; a warning where other words make it void"),
    ("server usesrc", "it is refused where it stands alone; behind 'source' it is a part of that"),
    ("server stick", "it undoes 'non-stick'"),
    ("option transparent", "it is refused where it would send connections elsewhere"),
    ("transparent", "it is refused where it would send connections elsewhere"),
    ("global external-check", "'option external-check' is refused without it"),
    ("global insecure-fork-wanted", "'option external-check' is warned of without it"),
    ("global default-path", "it changes which files the lines after it name"),
    ("global setenv", "lines after it read the variable"),
    ("global presetenv", "lines after it read the variable"),
    ("global unsetenv", "lines after it do not find the variable"),
    ("global resetenv", "lines after it do not find the variables"),
    ("global zero-warning", "it makes errors of warnings"),
];

/// The model of a text that is accepted.
fn model(text: &str, file: &Path) -> Option<Model> {
    std::fs::write(file, text).expect("a file can be written");
    let loaded = load(&Options::file(file), &SystemEnvironment);
    let is_refused = loaded.of(Severity::Alert).next().is_some();
    loaded.model.filter(|_| !is_refused)
}

/// Each line with what it is compared with: in the tables of parameters, the line without one of them and its arguments.
fn pairs(kind: &str, line: &str, parameters: &BTreeMap<&str, usize>) -> Vec<(String, String)> {
    if parameters.is_empty() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let first = if first == "no" { words.next().unwrap_or_default() } else { first };
        let second = words.next().unwrap_or_default();
        return vec![(first.into(), String::new()), (format!("{first} {second}"), String::new())];
    }
    let words: Vec<&str> = line.split_whitespace().collect();
    let without =
        |at: usize, args: usize| [&words[..at], &words[(at + 1 + args).min(words.len())..]].concat().join(" ");
    let known = words.iter().enumerate().skip(1).filter_map(|(at, word)| Some((at, word, parameters.get(word)?)));
    known.map(|(at, word, args)| (format!("{kind} {word}"), without(at, *args))).collect()
}

#[test]
fn what_is_read_without_a_word_has_an_effect() {
    let works = |status: &Status| *status == Status::Done;
    let binds: BTreeMap<&str, usize> =
        keywords::bind_parameters().filter(|row| works(&row.2)).map(|row| (row.0, row.1)).collect();
    let servers: BTreeMap<&str, usize> =
        keywords::server_parameters().filter(|row| works(&row.2)).map(|row| (row.0, row.1)).collect();
    let globals =
        keywords::global_keywords().filter(|row| works(&row.status)).map(|row| format!("global {}", row.name));
    let proxies = keywords::proxy_keywords().filter(|row| works(&row.status)).map(|row| row.name.to_owned());
    let parameters = binds.keys().map(|name| format!("bind {name}"));
    let parameters = parameters.chain(servers.keys().map(|name| format!("server {name}")));
    let mut silent: BTreeSet<String> = globals.chain(proxies).chain(parameters).collect();

    let dir = directory();
    let file = dir.path().join("case.cfg");
    let revoked = Authority::new("a").and_then(|authority| authority.revoke(&[7])).expect("a list can be made");
    for (name, content) in [("list", "DIR/b.pem\n"), ("tickets", ""), ("names", "host Host\n"), ("crl.pem", &revoked)] {
        std::fs::write(dir.path().join(name), in_dir(content, dir.path())).expect("a file can be written");
    }
    let none = BTreeMap::new();
    let differs = |template: &str, with: &str, without: &str| {
        let [with, without] =
            [with, without].map(|line| model(&in_dir(&template.replace('@', line), dir.path()), &file));
        with.is_some() && with != without
    };
    let cases = TEMPLATES
        .iter()
        .flat_map(|(name, lines, template)| lines.lines().map(move |line| (*name, line, *template)))
        .filter(|(_, line, _)| !line.is_empty() && !line.starts_with("# "));
    for (name, line, template) in cases {
        let (kind, parameters) = match name {
            "bind" | "tls_bind" => ("bind", &binds),
            "server" => ("server", &servers),
            _ => ("", &none),
        };
        for (keyword, without) in pairs(kind, line, parameters) {
            let keyword = if name.ends_with("global") { format!("global {keyword}") } else { keyword };
            if !silent.contains(&keyword) {
                continue;
            }
            if differs(template, line, &without) {
                silent.remove(&keyword);
            }
        }
    }
    let mut wrong = Vec::new();
    for (template, cases) in MORE {
        for (keyword, words) in *cases {
            if !differs(template, words, "") {
                wrong.push(format!("'{keyword}' should change the model: {words:?}"));
            } else if !silent.remove(*keyword) {
                wrong.push(format!("'{keyword}' has an effect in another case already: {words:?} is not needed"));
            }
        }
    }
    for (keyword, reason) in ELSEWHERE {
        if !silent.remove(*keyword) {
            wrong.push(format!("'{keyword}' changes the model: no need to say that {reason}"));
        }
    }
    wrong.extend(
        silent.iter().map(|keyword| format!("'{keyword}' is read and accepted without a word, and changes nothing")),
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
