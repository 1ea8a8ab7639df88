//! The products: how each is configured for the same task, started, and replaced while it serves.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde_json::{Value, json};

use super::Failed;
use super::origin::Origins;

/// What is replaced, and by which means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Product {
    /// `-sf PID`.
    Baton,
    /// `-x SOCKET -sf PID`.
    Haproxy,
    /// SIGHUP: new workers.
    NginxReload,
    /// SIGUSR2, then SIGQUIT to the old master: a new binary.
    NginxBinary,
    /// Hot restart: `--restart-epoch N`.
    Envoy,
}

impl FromStr for Product {
    type Err = String;

    fn from_str(text: &str) -> Result<Product, String> {
        Ok(match text {
            "baton" => Product::Baton,
            "haproxy" => Product::Haproxy,
            "nginx-reload" => Product::NginxReload,
            "nginx-binary" => Product::NginxBinary,
            "envoy" => Product::Envoy,
            other => return Err(format!("no such product: {other}")),
        })
    }
}

/// Where the clients connect to.
#[derive(Clone, Copy, Debug)]
pub struct Fronts {
    /// HTTP, plain and TLS.
    pub web: [SocketAddr; 2],
    /// TCP: plain and TLS for clients, and plain and TLS for servers within each.
    pub tunnels: [[SocketAddr; 2]; 2],
}

impl Fronts {
    /// Addresses that were free a moment ago.
    pub fn free() -> Result<Fronts, Failed> {
        let mut held = Vec::new();
        let mut free = || {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            held.push(listener);
            Ok::<_, std::io::Error>(address)
        };
        Ok(Fronts { web: [free()?, free()?], tunnels: [[free()?, free()?], [free()?, free()?]] })
    }
}

/// The files of a product.
pub struct Files {
    pub folder: PathBuf,
    /// Its configuration.
    pub config: PathBuf,
    certificate: PathBuf,
}

impl Files {
    pub fn pid(&self) -> PathBuf {
        self.folder.join("pid")
    }

    pub fn stats_socket(&self) -> PathBuf {
        self.folder.join("admin.sock")
    }

    /// Writes the configuration of a product; `bundle` is certificate and key.
    pub fn write(
        product: Product,
        folder: &Path,
        bundle: &str,
        fronts: &Fronts,
        origins: &Origins,
    ) -> Result<Files, Failed> {
        let certificate = folder.join("site.pem");
        fs::write(&certificate, bundle)?;
        let files = Files { folder: folder.to_owned(), config: folder.join("config"), certificate };
        let text = match product {
            Product::Baton | Product::Haproxy => files.haproxy(fronts, origins),
            Product::NginxReload | Product::NginxBinary => files.nginx(fronts, origins),
            Product::Envoy => serde_json::to_string_pretty(&files.envoy(fronts, origins))?,
        };
        fs::write(&files.config, text)?;
        Ok(files)
    }

    /// One file for haproxy and for Baton.
    fn haproxy(&self, fronts: &Fronts, origins: &Origins) -> String {
        let (certificate, socket) = (self.certificate.display(), self.stats_socket());
        let mut text = format!(
            "global\n nbthread 1\n maxconn 8000\n stats socket {} mode 600 level admin expose-fd listeners\n\
             defaults\n mode http\n timeout connect 5s\n timeout client 600s\n timeout server 600s\n timeout tunnel 600s\n \
             timeout http-keep-alive 600s\n\
             frontend web\n bind {}\n bind {} ssl crt {certificate} alpn h2,http/1.1\n \
             use_backend encrypted if {{ path_beg /t/ }}\n default_backend plain\n\
             backend plain\n server s0 {}\n\
             backend encrypted\n server s0 {} ssl verify none\n server s1 {} ssl verify none\n",
            socket.display(),
            fronts.web[0],
            fronts.web[1],
            origins.http[0],
            origins.http[1],
            origins.http[2],
        );
        for (client, addresses) in fronts.tunnels.iter().enumerate() {
            for (server, address) in addresses.iter().enumerate() {
                let tls = if client == 1 { format!(" ssl crt {certificate}") } else { String::new() };
                text += &format!("listen tunnel{client}{server}\n mode tcp\n bind {address}{tls}\n");
                text += &match server {
                    0 => format!(" server s0 {}\n", origins.echo[0]),
                    _ => format!(
                        " server s0 {} ssl verify none\n server s1 {} ssl verify none\n",
                        origins.echo[1], origins.echo[2]
                    ),
                };
            }
        }
        text
    }

    fn nginx(&self, fronts: &Fronts, origins: &Origins) -> String {
        let (folder, certificate) = (self.folder.display(), self.certificate.display());
        // Else the worker would look for a user that may read nothing here.
        let user = if nix::unistd::geteuid().is_root() { "user root root;\n" } else { "" };
        let mut streams = String::new();
        for (client, addresses) in fronts.tunnels.iter().enumerate() {
            for (server, address) in addresses.iter().enumerate() {
                let listen = match client {
                    0 => format!("listen {address} backlog=4096;"),
                    _ => format!(
                        "listen {address} ssl backlog=4096; ssl_certificate {certificate}; ssl_certificate_key {certificate};"
                    ),
                };
                let pass = match server {
                    0 => "proxy_pass echo_plain;",
                    _ => "proxy_pass echo_encrypted; proxy_ssl on; proxy_ssl_protocols TLSv1.2 TLSv1.3;",
                };
                streams += &format!("server {{ {listen} {pass} }}\n");
            }
        }
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {folder}/{name};\n"))
            .concat();
        format!(
            "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n{user}worker_processes 1;\npid {pid};\n\
             error_log {folder}/error.log;\nworker_rlimit_nofile 16000;\nevents {{ worker_connections 12000; }}\n\
             http {{\naccess_log off;\n{temporary}keepalive_timeout 600s;\nkeepalive_requests 100000000;\nkeepalive_time 24h;\n\
             client_max_body_size 0;\nproxy_buffering off;\nproxy_request_buffering off;\nproxy_read_timeout 600s;\nproxy_send_timeout 600s;\n\
             client_body_timeout 600s;\nproxy_http_version 1.1;\nproxy_set_header Upgrade $http_upgrade;\n\
             map $http_upgrade $connection_upgrade {{ default upgrade; '' ''; }}\n\
             proxy_set_header Connection $connection_upgrade;\nproxy_ssl_protocols TLSv1.2 TLSv1.3;\n\
             upstream plain {{ server {plain}; keepalive 256; }}\n\
             upstream encrypted {{ server {old}; server {new}; keepalive 256; }}\n\
             server {{ listen {web} backlog=4096; listen {web_tls} ssl http2 backlog=4096;\n\
             ssl_certificate {certificate}; ssl_certificate_key {certificate}; ssl_protocols TLSv1.2 TLSv1.3;\n\
             location / {{ proxy_pass http://plain; }}\nlocation /t/ {{ proxy_pass https://encrypted; }} }}\n}}\n\
             stream {{\nproxy_timeout 600s;\nssl_protocols TLSv1.2 TLSv1.3;\nupstream echo_plain {{ server {echo}; }}\n\
             upstream echo_encrypted {{ server {echo_old}; server {echo_new}; }}\n{streams}}}\n",
            pid = self.pid().display(),
            plain = origins.http[0],
            old = origins.http[1],
            new = origins.http[2],
            web = fronts.web[0],
            web_tls = fronts.web[1],
            echo = origins.echo[0],
            echo_old = origins.echo[1],
            echo_new = origins.echo[2],
        )
    }

    fn envoy(&self, fronts: &Fronts, origins: &Origins) -> Value {
        let mut listeners = Vec::new();
        for (is_tls, address) in fronts.web.iter().enumerate() {
            let route = |prefix: &str, cluster: &str| json!({"match": {"prefix": prefix}, "route": {"cluster": cluster, "timeout": "0s", "idle_timeout": "0s"}});
            let filter = json!({"name": "envoy.filters.network.http_connection_manager", "typed_config": {
                "@type": extension("filters.network.http_connection_manager.v3.HttpConnectionManager"),
                "stat_prefix": "web", "codec_type": "AUTO", "stream_idle_timeout": "0s",
                "upgrade_configs": [{"upgrade_type": "websocket"}],
                "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
                    "routes": [route("/t/", "encrypted"), route("/", "plain")]}]},
                "http_filters": [{"name": "envoy.filters.http.router",
                    "typed_config": {"@type": extension("filters.http.router.v3.Router")}}],
            }});
            listeners.push(self.envoy_listener(*address, is_tls == 1, &["h2", "http/1.1"], &filter));
        }
        for (client, addresses) in fronts.tunnels.iter().enumerate() {
            for (server, address) in addresses.iter().enumerate() {
                let cluster = ["echo_plain", "echo_encrypted"][server];
                let filter = json!({"name": "envoy.filters.network.tcp_proxy", "typed_config": {
                    "@type": extension("filters.network.tcp_proxy.v3.TcpProxy"),
                    "stat_prefix": "tunnel", "cluster": cluster, "idle_timeout": "600s",
                }});
                listeners.push(self.envoy_listener(*address, client == 1, &[], &filter));
            }
        }
        let cluster = |name: &str, addresses: &[SocketAddr], is_tls: bool| {
            let endpoints: Vec<Value> =
                addresses.iter().map(|address| json!({"endpoint": {"address": envoy_address(*address)}})).collect();
            let mut cluster = json!({"name": name, "connect_timeout": "5s", "type": "STATIC",
                "circuit_breakers": {"thresholds": [{"max_connections": 16000, "max_pending_requests": 16000, "max_requests": 16000}]},
                "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]}});
            if is_tls {
                cluster["transport_socket"] = json!({"name": "envoy.transport_sockets.tls", "typed_config": {
                    "@type": extension("transport_sockets.tls.v3.UpstreamTlsContext"),
                    "common_tls_context": {"tls_params": {"tls_maximum_protocol_version": "TLSv1_3"}}}});
            }
            cluster
        };
        json!({"static_resources": {"listeners": listeners, "clusters": [
            cluster("plain", &origins.http[..1], false), cluster("encrypted", &origins.http[1..], true),
            cluster("echo_plain", &origins.echo[..1], false), cluster("echo_encrypted", &origins.echo[1..], true),
        ]}})
    }

    fn envoy_listener(&self, address: SocketAddr, is_tls: bool, protocols: &[&str], filter: &Value) -> Value {
        let mut chain = json!({"filters": [filter]});
        if is_tls {
            let file = json!({"filename": self.certificate});
            chain["transport_socket"] = json!({"name": "envoy.transport_sockets.tls", "typed_config": {
                "@type": extension("transport_sockets.tls.v3.DownstreamTlsContext"),
                "common_tls_context": {"alpn_protocols": protocols,
                    "tls_params": {"tls_maximum_protocol_version": "TLSv1_3"},
                    "tls_certificates": [{"certificate_chain": file, "private_key": file}]}}});
        }
        json!({"address": envoy_address(address), "filter_chains": [chain]})
    }
}

fn extension(name: &str) -> String {
    format!("type.googleapis.com/envoy.extensions.{name}")
}

fn envoy_address(address: SocketAddr) -> Value {
    json!({"socket_address": {"address": address.ip().to_string(), "port_value": address.port()}})
}
