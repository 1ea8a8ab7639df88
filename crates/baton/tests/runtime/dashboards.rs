//! Debian's Prometheus with what public dashboards and alert rules for HAProxy ask of it: under traffic, each expression gives for
//! Baton what it gives for Debian's haproxy, of the exporter in the process and of `prometheus-haproxy-exporter` beside it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use serde_json::{Deserializer, Value};

use crate::metrics::{both, scrape};
use crate::support::{free_address, until};
use crate::tools::{Ended, get};

/// Metrics that panels show as they are.
const SHOWN: &[&str] = &[
    "process_nbthread",
    "process_nbproc",
    "process_uptime_seconds",
    "process_start_time_seconds",
    "process_build_info",
    "process_max_fds",
    "process_max_sockets",
    "process_max_connections",
    "process_hard_max_connections",
    "process_current_connections",
    "process_max_ssl_connections",
    "process_current_ssl_connections",
    "process_max_pipes",
    "process_pipes_used_total",
    "process_pipes_free_total",
    "process_current_connection_rate",
    "process_max_connection_rate",
    "process_limit_connection_rate",
    "process_current_session_rate",
    "process_max_session_rate",
    "process_limit_session_rate",
    "process_current_ssl_rate",
    "process_max_ssl_rate",
    "process_limit_ssl_rate",
    "process_current_frontend_ssl_key_rate",
    "process_max_frontend_ssl_key_rate",
    "process_current_backend_ssl_key_rate",
    "process_max_backend_ssl_key_rate",
    "process_frontend_ssl_reuse",
    "process_http_comp_bytes_in_total",
    "process_http_comp_bytes_out_total",
    "process_limit_http_comp",
    "process_current_tasks",
    "process_current_run_queue",
    "process_jobs",
    "process_unstoppable_jobs",
    "process_listeners",
    "process_active_peers",
    "process_connected_peers",
    "process_bytes_out_rate",
    "process_pool_allocated_bytes",
    "process_pool_used_bytes",
    "process_max_memory_bytes",
    "process_stopping",
    "process_busy_polling_enabled",
    "process_relative_process_id",
    "frontend_max_sessions",
    "frontend_limit_sessions",
    "frontend_http_requests_rate_max",
    "frontend_connections_rate_max",
    "frontend_limit_session_rate",
    "frontend_max_session_rate",
    "backend_max_sessions",
    "backend_limit_sessions",
    "backend_max_session_rate",
    "backend_max_queue",
    "backend_weight",
    "backend_backup_servers",
    "backend_last_session_seconds",
    "backend_check_last_change_seconds",
    "backend_agg_server_status",
    "backend_agg_server_check_status",
    "backend_agg_check_status",
    "server_max_sessions",
    "server_limit_sessions",
    "server_max_session_rate",
    "server_max_queue",
    "server_queue_limit",
    "server_weight",
    "server_uweight",
    "server_last_session_seconds",
    "server_check_code",
    "server_check_last_change_seconds",
    "server_current_throttle",
    "server_idle_connections_current",
    "server_idle_connections_limit",
    "server_safe_idle_connections_current",
    "server_unsafe_idle_connections_current",
    "server_used_connections_current",
    "server_need_connections_current",
    "sticktable_size",
    "sticktable_used",
];

/// Counters of which panels show the rate, for each series and in sum.
const COUNTED: &[&str] = &[
    "process_connections_total",
    "process_requests_total",
    "process_ssl_connections_total",
    "process_ssl_cache_lookups_total",
    "process_ssl_cache_misses_total",
    "process_dropped_logs_total",
    "process_bytes_out_total",
    "process_spliced_bytes_out_total",
    "process_pool_failures_total",
    "process_failed_resolutions",
    "process_recv_logs_total",
    "frontend_sessions_total",
    "frontend_bytes_in_total",
    "frontend_bytes_out_total",
    "frontend_http_requests_total",
    "frontend_http_responses_total",
    "frontend_requests_denied_total",
    "frontend_responses_denied_total",
    "frontend_request_errors_total",
    "frontend_denied_connections_total",
    "frontend_denied_sessions_total",
    "frontend_connections_total",
    "frontend_intercepted_requests_total",
    "frontend_internal_errors_total",
    "frontend_http_cache_hits_total",
    "frontend_http_cache_lookups_total",
    "frontend_http_comp_bytes_in_total",
    "frontend_http_comp_bytes_out_total",
    "frontend_http_comp_bytes_bypassed_total",
    "frontend_http_comp_responses_total",
    "frontend_failed_header_rewriting_total",
    "backend_sessions_total",
    "backend_bytes_in_total",
    "backend_bytes_out_total",
    "backend_http_requests_total",
    "backend_http_responses_total",
    "backend_requests_denied_total",
    "backend_responses_denied_total",
    "backend_connection_errors_total",
    "backend_response_errors_total",
    "backend_internal_errors_total",
    "backend_retry_warnings_total",
    "backend_redispatch_warnings_total",
    "backend_failed_header_rewriting_total",
    "backend_check_up_down_total",
    "backend_downtime_seconds_total",
    "backend_loadbalanced_total",
    "backend_client_aborts_total",
    "backend_server_aborts_total",
    "backend_connection_attempts_total",
    "backend_connection_reuses_total",
    "backend_http_cache_hits_total",
    "backend_http_comp_responses_total",
    "server_sessions_total",
    "server_bytes_in_total",
    "server_bytes_out_total",
    "server_http_responses_total",
    "server_responses_denied_total",
    "server_connection_errors_total",
    "server_response_errors_total",
    "server_retry_warnings_total",
    "server_redispatch_warnings_total",
    "server_internal_errors_total",
    "server_check_failures_total",
    "server_check_up_down_total",
    "server_downtime_seconds_total",
    "server_loadbalanced_total",
    "server_client_aborts_total",
    "server_server_aborts_total",
    "server_connection_attempts_total",
    "server_connection_reuses_total",
];

/// Whole expressions. `$host` is the scraped process, as in Grafana; its other variables have values of the test's configuration.
const EXPRESSIONS: &[&str] = &[
    // The rows with single figures.
    "time() - haproxy_process_start_time_seconds{instance=~\"$host\"}",
    "haproxy_process_start_time_seconds{instance=\"$host\"} * 1000",
    "sum(haproxy_process_nbthread{instance=~\"$host\"}) / sum(haproxy_process_nbproc{instance=~\"$host\"})",
    "100 - haproxy_process_idle_time_percent{instance=~\"$host\"}",
    "avg_over_time(haproxy_process_idle_time_percent{instance=\"$host\"}[1m])",
    "100 * haproxy_process_current_connections{instance=\"$host\"} / haproxy_process_max_connections{instance=\"$host\"}",
    "count(haproxy_frontend_status{instance=\"$host\",state=\"UP\"} == 1) by (instance)",
    "count(haproxy_backend_status{instance=\"$host\",state=\"UP\"} == 1)",
    "count(haproxy_backend_status{instance=\"$host\",state=\"DOWN\"} == 1)",
    "count(haproxy_server_status{instance=\"$host\",state=\"UP\"} == 1)",
    "count(haproxy_server_status{instance=\"$host\",state=\"DOWN\"} == 1)",
    "count(haproxy_server_status{instance=\"$host\",state=\"MAINT\"} == 1) or vector(0)",
    "count(haproxy_server_status{instance=\"$host\",state=\"NOLB\"} == 1) or vector(0)",
    "count(count by (server) (haproxy_server_status{instance=\"$host\",proxy=\"app\"}))",
    "sum(haproxy_backend_active_servers{instance=\"$host\",proxy=~\"app|rawback\"})",
    "max(haproxy_process_uptime_seconds{instance=\"$host\"}) by (instance)",
    "label_replace(haproxy_process_build_info{instance=\"$host\"}, \"host\", \"$1\", \"instance\", \"(.*):.*\")",
    // Traffic.
    "sum(rate(haproxy_frontend_bytes_in_total{proxy=~\"web\",instance=\"$host\"}[1m])) by (instance) * 8",
    "-sum(rate(haproxy_frontend_bytes_out_total{proxy=~\"web\",instance=\"$host\"}[1m])) by (instance) * 8",
    "sum(irate(haproxy_frontend_http_requests_total{instance=\"$host\",proxy=~\".*\"}[1m])) by (proxy)",
    "sum by (code) (irate(haproxy_frontend_http_responses_total{instance=\"$host\",proxy=~\"web\",code=~\".*\"}[1m]))",
    "sum(rate(haproxy_backend_http_responses_total{instance=\"$host\",proxy=~\"app\",code=\"2xx\"}[1m])) without (code)",
    "sum(rate(haproxy_frontend_http_responses_total{instance=\"$host\",code=\"5xx\"}[1m])) by (proxy)",
    "sum(increase(haproxy_server_http_responses_total{instance=\"$host\",code=~\"4xx|5xx\"}[5m])) by (proxy, server)",
    "sum(increase(haproxy_frontend_connections_total{instance=~\"$host\"}[1h])) by (proxy)",
    "topk(5, sum(rate(haproxy_server_sessions_total{instance=\"$host\"}[1m])) by (server))",
    "sum by (proxy, server) (rate(haproxy_server_bytes_out_total{instance=\"$host\",proxy=\"app\",server=~\"up|unchecked\"}[1m]))",
    "sum(rate(haproxy_listener_bytes_in_total{instance=\"$host\",listener=\"first\"}[1m])) by (proxy, listener)",
    "sum by (listener) (haproxy_listener_status{instance=\"$host\"})",
    // Sessions, queues, times.
    "sum(haproxy_frontend_current_sessions{instance=\"$host\",proxy=~\".*\"}) by (proxy)",
    "sum(haproxy_backend_current_sessions{instance=\"$host\"}) by (proxy)",
    "sum(haproxy_backend_current_queue{instance=\"$host\"}) by (proxy)",
    "max(haproxy_server_current_queue{instance=\"$host\"}) by (proxy, server)",
    "max_over_time(haproxy_server_current_sessions{instance=\"$host\",server=~\".*\"}[1m])",
    "haproxy_backend_queue_time_average_seconds{instance=\"$host\",proxy=\"app\"}",
    "haproxy_backend_connect_time_average_seconds{instance=\"$host\",proxy=\"app\"}",
    "haproxy_backend_response_time_average_seconds{instance=\"$host\",proxy=\"app\"} * 1000",
    "avg(haproxy_backend_total_time_average_seconds{instance=\"$host\"}) by (proxy)",
    "max(haproxy_backend_max_queue_time_seconds{instance=\"$host\"}) by (proxy)",
    "max(haproxy_backend_max_connect_time_seconds{instance=\"$host\"}) by (proxy)",
    "max(haproxy_backend_max_response_time_seconds{instance=\"$host\"}) by (proxy)",
    "max(haproxy_backend_max_total_time_seconds{instance=\"$host\"}) by (proxy)",
    "avg(haproxy_server_response_time_average_seconds{instance=\"$host\"}) by (proxy, server)",
    "haproxy_server_queue_time_average_seconds{instance=\"$host\"} + haproxy_server_connect_time_average_seconds",
    "haproxy_server_max_total_time_seconds{instance=\"$host\",server=\"up\"}",
    // States and checks, by value and by label.
    "haproxy_frontend_status{instance=\"$host\",proxy=\"web\"} == 1",
    "haproxy_backend_status{instance=\"$host\"} == 1",
    "haproxy_server_status{instance=\"$host\",proxy=\"app\"} == 1",
    "sum by (state) (haproxy_server_status{instance=\"$host\"})",
    "haproxy_server_check_status{instance=\"$host\",state=\"L4OK\"} == 1",
    "haproxy_server_check_status{instance=\"$host\",state=~\"L4CON|L4TOUT|L7STS|L7TOUT\"}",
    "avg(haproxy_server_check_duration_seconds{instance=\"$host\",server=\"up\"}) by (proxy, server)",
    "changes(haproxy_server_check_up_down_total{instance=\"$host\"}[5m])",
    "sum(haproxy_backend_agg_server_status{instance=\"$host\",proxy=\"app\"}) by (state)",
    // Alert rules, without the limit that they compare with.
    "100 * sum by (proxy) (rate(haproxy_server_http_responses_total{instance=\"$host\",code=\"4xx\"}[1m])) \
     / sum by (proxy) (rate(haproxy_server_http_responses_total{instance=\"$host\"}[1m]))",
    "100 * sum by (proxy, server) (rate(haproxy_server_response_errors_total{instance=\"$host\"}[1m])) \
     / sum by (proxy, server) (rate(haproxy_server_http_responses_total{instance=\"$host\"}[1m]))",
    "100 * sum by (proxy) (avg_over_time(haproxy_backend_max_sessions{instance=\"$host\"}[2m])) \
     / sum by (proxy) (avg_over_time(haproxy_backend_limit_sessions{instance=\"$host\"}[2m]))",
    "haproxy_server_max_sessions{instance=\"$host\"} / haproxy_server_limit_sessions",
    "sum by (proxy) (rate(haproxy_backend_retry_warnings_total{instance=\"$host\"}[1m]))",
    "sum by (instance, proxy) (rate(haproxy_frontend_requests_denied_total{instance=\"$host\"}[2m]))",
    "increase(haproxy_server_check_failures_total{instance=\"$host\"}[1m])",
    "(sum by (proxy) (haproxy_backend_status{instance=\"$host\",state=\"UP\"})) == 0",
    "min by (proxy) (haproxy_backend_active_servers{instance=\"$host\"} + haproxy_backend_backup_servers)",
    "up{instance=\"$host\"} == 1",
    "scrape_samples_scraped{instance=\"$host\"} > 100",
];

/// Expressions about `prometheus-haproxy-exporter`, whose names and labels are others.
const BESIDE: &[&str] = &[
    "haproxy_up{instance=\"$host\"} == 1",
    "rate(haproxy_exporter_scrapes_total{instance=\"$host\"}[1m])",
    "haproxy_exporter_csv_parse_failures_total{instance=\"$host\"} == 0",
    "count by (instance) (haproxy_version_info{instance=\"$host\"})",
    "sum(rate(haproxy_frontend_bytes_in_total{instance=\"$host\",frontend=~\"web\"}[1m])) by (instance)",
    "sum(irate(haproxy_frontend_http_responses_total{instance=\"$host\",code=~\"2xx|4xx|5xx\"}[1m])) by (code)",
    "sum(rate(haproxy_frontend_http_requests_total{instance=\"$host\"}[1m])) by (frontend)",
    "haproxy_frontend_current_sessions{instance=\"$host\"}",
    "haproxy_frontend_current_session_rate{instance=\"$host\"}",
    "haproxy_frontend_limit_sessions{instance=\"$host\"}",
    "rate(haproxy_frontend_connections_total{instance=\"$host\"}[1m])",
    "rate(haproxy_frontend_requests_denied_total{instance=\"$host\"}[1m])",
    "rate(haproxy_frontend_request_errors_total{instance=\"$host\"}[1m])",
    "sum(rate(haproxy_backend_http_responses_total{instance=\"$host\",backend=~\".*\",code=\"2xx\"}[1m])) by (backend)",
    "rate(haproxy_backend_bytes_out_total{instance=\"$host\"}[1m])",
    "haproxy_backend_up{instance=\"$host\",backend=\"app\"} == 1",
    "haproxy_backend_current_queue{instance=\"$host\"}",
    "haproxy_backend_current_server{instance=\"$host\"}",
    "haproxy_backend_weight{instance=\"$host\"}",
    "rate(haproxy_backend_connection_errors_total{instance=\"$host\"}[1m])",
    "rate(haproxy_backend_response_errors_total{instance=\"$host\"}[1m])",
    "rate(haproxy_backend_retry_warnings_total{instance=\"$host\"}[1m])",
    "haproxy_backend_http_response_time_average_seconds{instance=\"$host\"}",
    "haproxy_backend_http_total_time_average_seconds{instance=\"$host\"}",
    "haproxy_server_up{instance=\"$host\",backend=\"app\",server=\"up\"} == 1",
    "haproxy_server_up{instance=\"$host\",server=\"down\"} == 0",
    "sum(haproxy_server_up{instance=\"$host\"}) by (backend)",
    "haproxy_server_weight{instance=\"$host\"}",
    "haproxy_server_current_sessions{instance=\"$host\"}",
    "rate(haproxy_server_bytes_in_total{instance=\"$host\"}[1m])",
    "rate(haproxy_server_downtime_seconds_total{instance=\"$host\"}[1m])",
    "increase(haproxy_server_check_failures_total{instance=\"$host\"}[1m])",
    "sum(rate(haproxy_server_http_responses_total{instance=\"$host\"}[1m])) by (server, code)",
];

/// What fills the lists of a dashboard: a label, and the series that it is taken from.
const LABELS: &[(&str, &str)] = &[
    ("instance", "haproxy_process_nbproc"),
    ("job", "haproxy_process_start_time_seconds"),
    ("proxy", "haproxy_frontend_status{instance=\"$host\"}"),
    ("proxy", "haproxy_backend_status{instance=~\"$host\"}"),
    ("proxy", "haproxy_server_status{instance=\"$host\"}"),
    ("server", "haproxy_server_status{instance=\"$host\",proxy=~\"app\"}"),
    ("server", "haproxy_server_bytes_in_total{instance=\"$host\"}"),
    ("code", "haproxy_server_http_responses_total{instance=\"$host\"}"),
    ("state", "haproxy_server_status{instance=\"$host\"}"),
    ("state", "haproxy_server_check_status{instance=\"$host\"}"),
    ("listener", "haproxy_listener_status{instance=\"$host\"}"),
    ("name", "haproxy_sticktable_size{instance=\"$host\"}"),
    ("type", "haproxy_sticktable_used{instance=\"$host\"}"),
];

/// Debian's Prometheus, which scrapes these, each a job with its address as the instance.
struct Prometheus {
    address: SocketAddr,
    folder: tempfile::TempDir,
    _process: Ended,
}

impl Prometheus {
    fn start(targets: &[SocketAddr]) -> Prometheus {
        let (address, folder) = (free_address(), tempfile::tempdir().unwrap());
        let job = |target: &SocketAddr| {
            format!("  - job_name: at-{target}\n    static_configs:\n      - targets: ['{target}']\n")
        };
        let jobs: String = targets.iter().map(job).collect();
        let (file, log) = (folder.path().join("prometheus.yml"), folder.path().join("log"));
        let intervals = "global:\n  scrape_interval: 250ms\n  scrape_timeout: 250ms\n";
        fs::write(&file, format!("{intervals}scrape_configs:\n{jobs}")).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
            .arg(format!("--web.listen-address={address}"))
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .expect("prometheus is installed by scripts/setup test");
        Prometheus { address, folder, _process: Ended(process) }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// The responses to these requests of its API, each a path with a parameter: one client, one connection.
    #[track_caller]
    fn ask(&self, requests: &[(String, &str, String)]) -> Vec<Value> {
        let mut config = String::new();
        for (path, parameter, value) in requests {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"");
            config += &format!(
                "url = \"http://{}/api/v1/{path}\"\nget\ndata-urlencode = \"{parameter}={value}\"\nsilent\nmax-time = 30\nnext\n",
                self.address
            );
        }
        let mut client = Command::new("curl")
            .args(["-K", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl is installed by scripts/setup test");
        let mut stdin = client.stdin.take().expect("it is piped");
        let writing = thread::spawn(move || stdin.write_all(config.trim_end_matches("next\n").as_bytes()));
        let output = client.wait_with_output().expect("it is our child");
        writing.join().unwrap().unwrap();
        Deserializer::from_slice(&output.stdout).into_iter().map(|value| value.unwrap_or_default()).collect()
    }

    /// What expressions give.
    fn query(&self, expressions: &[String]) -> Vec<Value> {
        let requests: Vec<_> =
            expressions.iter().map(|expression| ("query".to_owned(), "query", expression.clone())).collect();
        self.ask(&requests)
    }

    /// Whether an expression gives anything.
    fn has(&self, expression: &str) -> bool {
        self.query(&[expression.to_owned()]).first().is_some_and(|response| !series(response).is_empty())
    }
}

/// The series of a response by their labels, without those that name the process and its version.
fn series(response: &Value) -> BTreeSet<String> {
    let result = response["data"]["result"].as_array().into_iter().flatten();
    let labels = |series: &Value| {
        let labels = series["metric"].as_object().into_iter().flatten();
        let own = |name: &str| matches!(name, "instance" | "job" | "version" | "host");
        let labels: Vec<_> =
            labels.filter(|(name, _)| !own(name)).map(|(name, value)| format!("{name}={value}")).collect();
        labels.join(",")
    };
    result.map(labels).collect()
}

/// All expressions about the exporter in the process.
fn expressions() -> Vec<String> {
    let shown = SHOWN.iter().map(|name| format!("haproxy_{name}{{instance=~\"$host\"}}"));
    let rate = COUNTED.iter().map(|name| format!("rate(haproxy_{name}{{instance=\"$host\"}}[1m])"));
    let sum =
        COUNTED.iter().map(|name| format!("sum(irate(haproxy_{name}{{instance=\"$host\"}}[5m])) by (instance, proxy)"));
    shown.chain(rate).chain(sum).chain(EXPRESSIONS.iter().map(|expression| (*expression).to_owned())).collect()
}

fn of(expression: &str, host: SocketAddr) -> String {
    expression.replace("$host", &host.to_string())
}

/// `prometheus-haproxy-exporter` for a socket.
fn exporter(socket: &Path) -> (SocketAddr, Ended) {
    let address = free_address();
    let child = Command::new("prometheus-haproxy-exporter")
        .arg(format!("--web.listen-address={address}"))
        .arg(format!("--haproxy.scrape-uri=unix:{}", socket.display()))
        .stderr(Stdio::null())
        .spawn()
        .expect("the exporter is installed by scripts/setup test");
    (address, Ended(child))
}

/// Each expression gives something for Baton, and the same series as for haproxy.
#[track_caller]
fn compare(prometheus: &Prometheus, expressions: &[String], haproxy: SocketAddr, baton: SocketAddr) {
    let ask = |host| prometheus.query(&expressions.iter().map(|expression| of(expression, host)).collect::<Vec<_>>());
    let (others, own) = (ask(haproxy), ask(baton));
    assert_eq!((others.len(), own.len()), (expressions.len(), expressions.len()), "{}", prometheus.log());
    let mut different = Vec::new();
    for ((expression, other), own) in expressions.iter().zip(&others).zip(&own) {
        if series(own).is_empty() || series(own) != series(other) {
            different.push(format!("{expression}\n  baton: {own}\n  haproxy: {other}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

#[test]
fn dashboards_get_what_they_get_of_haproxy() {
    let (both, [haproxy, baton], _origin) = both();
    let (others, own) = (exporter(&both.haproxy("admin.sock")), exporter(&both.baton("admin.sock")));
    let prometheus = Prometheus::start(&[haproxy[0], baton[0], others.0, own.0]);
    let ends = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                for [_, web, _] in [haproxy, baton] {
                    assert!(get(web, "/").is_some(), "it is served");
                }
            }
        });
        let compared = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for [metrics, ..] in [haproxy, baton] {
                let rate = "rate(haproxy_server_http_responses_total{instance=\"$host\",server=\"unchecked\",code=\"2xx\"}[1m]) > 0";
                until("rates of the process", || prometheus.has(&of(rate, metrics)));
            }
            for exporter in [others.0, own.0] {
                let rate = "rate(haproxy_server_http_responses_total{instance=\"$host\",server=\"unchecked\"}[1m]) > 0";
                until("rates of the exporter beside it", || prometheus.has(&of(rate, exporter)));
            }
            compare(&prometheus, &expressions(), haproxy[0], baton[0]);
            let beside: Vec<String> = BESIDE.iter().map(|expression| (*expression).to_owned()).collect();
            compare(&prometheus, &beside, others.0, own.0);
            labels_are_haproxys(&prometheus, haproxy[0], baton[0]);
        }));
        ends.store(true, Ordering::Relaxed);
        if let Err(panic) = compared {
            std::panic::resume_unwind(panic);
        }
    });
    targets_are_up(&prometheus, baton[0]);
    linter_accepts(baton[0]);
}

/// The lists from which a dashboard's user chooses.
fn labels_are_haproxys(prometheus: &Prometheus, haproxy: SocketAddr, baton: SocketAddr) {
    let ask = |host| {
        let values = LABELS.iter().map(|(label, from)| (format!("label/{label}/values"), "match[]", of(from, host)));
        let found = LABELS.iter().map(|(_, from)| ("series".to_owned(), "match[]", of(from, host)));
        prometheus.ask(&values.chain(found).collect::<Vec<_>>())
    };
    let (others, own) = (ask(haproxy), ask(baton));
    assert_eq!((others.len(), own.len()), (2 * LABELS.len(), 2 * LABELS.len()));
    for (index, (label, from)) in LABELS.iter().enumerate() {
        let values = own[index]["data"].as_array().expect(from);
        assert!(!values.is_empty(), "{label} of {from}");
        assert_eq!(values, others[index]["data"].as_array().expect(from), "{label} of {from}");
        let count = |responses: &[Value]| responses[LABELS.len() + index]["data"].as_array().map_or(0, Vec::len);
        assert!(count(&own) > 0 && count(&own) == count(&others), "{from}");
    }
}

/// Every scrape so far was read to its end, with no series twice.
fn targets_are_up(prometheus: &Prometheus, baton: SocketAddr) {
    let targets = &prometheus.ask(&[("targets".into(), "state", "active".into())])[0];
    let is_batons = |target: &&Value| target["scrapeUrl"].as_str() == Some(&format!("http://{baton}/metrics"));
    let targets = targets["data"]["activeTargets"].as_array().expect("its targets");
    let target = targets.iter().find(is_batons).unwrap_or_else(|| panic!("{targets:?}"));
    assert_eq!((target["health"].as_str(), target["lastError"].as_str()), (Some("up"), Some("")), "{target}");
    let log = prometheus.log();
    assert!(!log.contains("level=warn") && !log.contains("level=error"), "{log}");
}

/// Prometheus' own linter. Names that it does not like are HAProxy's.
fn linter_accepts(metrics: SocketAddr) {
    let mut lint = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool comes with prometheus");
    lint.stdin.take().unwrap().write_all(scrape(metrics, "").1.as_bytes()).unwrap();
    let mut said = String::new();
    lint.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(lint.wait().unwrap().code(), Some(3), "{said}");
    assert!(!said.contains("error while linting") && !said.contains("baton_"), "{said}");
}
