//! Whole configurations that are too long to be written by hand, as programs write them for others: made here from a few numbers, as text
//! in the language of the case files.

use std::fmt::Write;

/// Sections that all of them begin with.
const PRELUDE: &str = "global\n    log ${LOG} local0\n    nbthread 1\n    maxconn 8000\n\ndefaults\n    mode http\n    log global\n    \
     option httplog\n    option forwardfor\n    timeout connect 3s\n    timeout client 10s\n    timeout server 10s\n\n";

/// The origins that all servers share.
const ORIGINS: usize = 4;

/// The texts of the cases.
pub fn texts() -> [String; 4] {
    [backends(), listens(), ingress(), sites()]
}

/// A line; writing to a string does not fail.
fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    let _ = writeln!(text, "{line}");
}

fn begin(name: &str, about: &str) -> String {
    format!("\n=== {name}\n# {about}\nwith: no-counters\n--- cfg whole\n{PRELUDE}")
}

/// 200 backends behind one frontend, chosen by host and path.
fn backends() -> String {
    let mut text = begin("whole-generated-backends", "200 backends, each with its hosts, rewrites and headers.");
    text.push_str("frontend all\n    bind ${L1}\n    http-request set-header X-Edge all\n");
    for number in 0..200 {
        match number % 4 {
            0 => line(
                &mut text,
                format_args!("    use_backend app-{number:03} if {{ hdr(host) -i app{number}.example }}"),
            ),
            1 => line(&mut text, format_args!("    use_backend app-{number:03} if {{ path_beg /app{number}/ }}")),
            2 => {
                line(&mut text, format_args!("    acl app{number} hdr_dom(host) -i site{number}"));
                line(&mut text, format_args!("    use_backend app-{number:03} if app{number} !{{ path_beg /static }}"));
            }
            _ => {
                let name = format!("    use_backend app-{number:03} if {{ req.hdr(x-app) -m str {number} }}");
                line(&mut text, format_args!("{name} or {{ url_param(app) {number} }}"));
            }
        }
    }
    text.push_str("    default_backend app-000\n\n");
    for number in 0..200 {
        line(&mut text, format_args!("backend app-{number:03}"));
        if number % 3 == 0 {
            text.push_str("    balance roundrobin\n    cookie B insert indirect nocache\n");
        }
        if number % 5 == 1 {
            line(&mut text, format_args!("    http-request replace-path /app{number}/(.*) /\\1"));
        }
        if number % 7 == 2 {
            line(&mut text, format_args!("    http-request deny deny_status 403 if {{ path_beg /admin }}"));
        }
        line(&mut text, format_args!("    http-response set-header X-Backend app-{number:03}"));
        for server in 0..=number % 3 {
            let origin = (number + server) % ORIGINS + 1;
            line(&mut text, format_args!("    server s{server} ${{O{origin}}} cookie c{server} maxconn 20"));
        }
    }
    text.push_str("--- gets\n");
    for number in (0..200).step_by(9) {
        match number % 4 {
            0 => line(&mut text, format_args!("/x | Host: app{number}.example")),
            1 => line(&mut text, format_args!("/app{number}/x?y")),
            2 => line(&mut text, format_args!("/admin | Host: www.site{number}.example")),
            _ => line(&mut text, format_args!("/x?app={number}&z")),
        }
    }
    text.push_str(
        "/ | Host: nobody.example\n/static/a | Host: site6.example\n/ | X-App: 7\n/ | X-App: 8\n--- gets keep\n",
    );
    for number in [0, 4, 8, 12, 16] {
        line(&mut text, format_args!("/k | Host: APP{number}.example | Cookie: B=c0"));
    }
    text
}

/// Forty `listen` sections that differ in mode, defaults and options, as a provisioning tool writes them.
fn listens() -> String {
    let mut text =
        begin("whole-generated-listens", "A section for each service, with what it inherits and what it changes.");
    text.push_str("defaults tcp\n    mode tcp\n    log global\n    option tcplog\n    timeout connect 3s\n    timeout client 10s\n");
    text.push_str("    timeout server 10s\n    balance first\n\ndefaults web\n    mode http\n    log global\n    option httplog\n");
    text.push_str(
        "    option http-server-close\n    timeout connect 3s\n    timeout client 10s\n    timeout server 10s\n\n",
    );
    for number in 1..=40 {
        let (defaults, is_tcp) = if number % 3 == 0 { ("tcp", true) } else { ("web", false) };
        line(&mut text, format_args!("listen service-{number} from {defaults}\n    bind ${{L{number}}}"));
        if !is_tcp {
            line(&mut text, format_args!("    http-request set-header X-Service {number}"));
            match number % 4 {
                0 => text.push_str("    option httpclose\n    option forwardfor if-none\n"),
                1 => line(&mut text, format_args!("    redirect prefix /v2 code 307 if {{ path_beg /old{number} }}")),
                2 => text.push_str("    balance uri\n    no option http-server-close\n"),
                _ => line(
                    &mut text,
                    format_args!("    http-request deny deny_status 40{} if {{ path /no }}", number % 2 * 3),
                ),
            }
        } else if number % 2 == 0 {
            text.push_str("    tcp-request connection reject if { src 127.0.0.5 }\n");
        }
        let origin = number % ORIGINS + 1;
        line(
            &mut text,
            format_args!("    server one ${{O{origin}}}\n    server two ${{O{}}} backup", origin % ORIGINS + 1),
        );
    }
    for number in 1..=40 {
        line(&mut text, format_args!("--- gets L{number}\n/s{number}"));
        match number % 4 {
            1 => line(&mut text, format_args!("/old{number}/x?y")),
            3 => text.push_str("/no\n"),
            _ => {}
        }
    }
    text
}

/// What an ingress controller writes: a backend for each service and port, ACLs for hosts and paths, annotations as rules.
fn ingress() -> String {
    let mut text = begin("whole-generated-ingress", "Hosts, paths and services as a controller writes them.");
    text.push_str("frontend http\n    bind ${L1}\n    http-request set-var(req.host) hdr(host),lower,field(1,:)\n");
    text.push_str("    http-request set-var(req.base) var(req.host),concat(,req.path)\n    http-request set-header X-Forwarded-Proto http\n");
    let services = ["api", "web", "admin", "docs", "auth", "cart"];
    for space in 0..8 {
        for (nth, service) in services.iter().enumerate() {
            let key = format!("ns{space}_{service}");
            line(&mut text, format_args!("    acl host_{key} var(req.host) -m str ns{space}.cluster.example"));
            line(&mut text, format_args!("    acl path_{key} path -m beg /{service}/"));
            line(&mut text, format_args!("    acl path_{key} path -m str /{service}"));
            if nth == 4 {
                line(
                    &mut text,
                    format_args!(
                        "    http-request redirect prefix https://login.example if host_{key} path_{key} !{{ method GET }}"
                    ),
                );
            }
        }
    }
    for space in 0..8 {
        for service in services {
            let key = format!("ns{space}_{service}");
            line(&mut text, format_args!("    use_backend {key}_8080 if host_{key} path_{key}"));
        }
    }
    text.push_str("    default_backend upstream-default\n\nbackend upstream-default\n    http-request return status 404 content-type text/plain \
         lf-string \"default backend - 404 %[path]\"\n\n");
    for space in 0..8 {
        for (nth, service) in services.iter().enumerate() {
            line(&mut text, format_args!("backend ns{space}_{service}_8080\n    balance roundrobin"));
            match nth {
                0 => line(&mut text, format_args!("    http-request replace-path /{service}(/.*)? \\1")),
                1 => text.push_str("    cookie INGRESS insert indirect nocache\n    http-request deny deny_status 413 if { req.hdr_val(content-length) gt 1000 }\n"),
                2 => text.push_str("    http-request deny unless { src 127.0.0.0/8 }\n    http-request set-header X-Admin 1\n"),
                3 => text.push_str("    http-response set-header Cache-Control max-age=60\n"),
                _ => text.push_str("    option http-server-close\n"),
            }
            for pod in 0..3 {
                let origin = (space + nth + pod) % ORIGINS + 1;
                line(&mut text, format_args!("    server pod{pod} ${{O{origin}}} weight 1 cookie p{pod}"));
            }
        }
    }
    text.push_str("--- gets\n");
    for space in 0..8 {
        for (nth, service) in services.iter().enumerate().skip(space % 2).step_by(2) {
            let host = format!("Host: ns{space}.cluster.example");
            match nth % 3 {
                0 => line(&mut text, format_args!("/{service}/a/b?c | {host}")),
                1 => line(&mut text, format_args!("/{service} | {host}:80")),
                _ => line(&mut text, format_args!("POST /{service}/x | {host}")),
            }
        }
    }
    text.push_str("/apix | Host: ns1.cluster.example\n/api/x | Host: ns9.cluster.example\n/web/y | Host: NS2.Cluster.example | Cookie: INGRESS=p1\n");
    text
}

/// Twelve sites with certificates in a `crt-list`, each with its own backend by the name that TLS asked for.
fn sites() -> String {
    let mut text = begin("whole-generated-sites", "TLS for many names at one address.");
    text.push_str("frontend tls\n    bind ${L1} ssl crt-list ${DIR}/sites.list\n    http-request deny deny_status 421 unless { ssl_fc_has_sni }\n");
    text.push_str("    http-request set-header X-SNI %[ssl_fc_sni]\n");
    for number in 0..12 {
        line(&mut text, format_args!("    use_backend site{number} if {{ ssl_fc_sni -i www.site{number}.example }}"));
    }
    text.push_str("    default_backend site0\n\nfrontend plain\n    bind ${L2}\n    http-request redirect scheme https code 301\n");
    for number in 0..12 {
        line(
            &mut text,
            format_args!(
                "backend site{number}\n    http-response set-header Strict-Transport-Security max-age={number}00"
            ),
        );
        line(&mut text, format_args!("    server s ${{O{}}}", number % ORIGINS + 1));
    }
    text.push_str("--- certificates\n");
    for number in 0..12 {
        line(&mut text, format_args!("site{number}.pem server www.site{number}.example *.alias{number}.example"));
    }
    text.push_str("--- file sites.list\n");
    for number in 0..12 {
        line(&mut text, format_args!("${{DIR}}/site{number}.pem"));
    }
    for number in 0..12 {
        line(
            &mut text,
            format_args!("--- gets L1 tls sni=www.site{number}.example\n/s{number} | Host: www.site{number}.example"),
        );
    }
    text.push_str("--- gets L1 tls sni=x.alias3.example\n/alias\n--- gets L1 tls\n/none\n--- gets L1 keep tls 1.2 sni=WWW.site5.example\n/a\n/b\n/c\n");
    text.push_str("--- gets L2\n/plain | Host: www.site7.example\nPOST /p?q | Host: www.site7.example:80\n");
    text
}
