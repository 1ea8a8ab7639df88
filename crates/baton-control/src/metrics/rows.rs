//! The metrics of HAProxy 2.6's exporter: a row each, referring to the column of `show stat` or the line of `show info` whose value it is.
//! Nothing is counted for them, and their descriptions are those of the column or line.

use crate::runtime::stat::ObjectKind;
use crate::runtime::stat::columns::{COLUMNS, Column};

/// How a metric's values behave.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricType {
    /// Only grows while the process, or its successors, live.
    Counter,
    /// Goes up and down.
    Gauge,
}

impl MetricType {
    pub fn word(self) -> &'static str {
        match self {
            MetricType::Counter => "counter",
            MetricType::Gauge => "gauge",
        }
    }
}

/// What is made of a column's value.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MetricForm {
    /// The number as it is.
    Number,
    /// Milliseconds, shown as seconds.
    Seconds,
    /// A series of a family that has one for each class of status codes.
    Class(&'static str),
    /// A series for each state that the object can have: 1 for its state.
    State,
    /// A series for each result of a check: 1 for the last one.
    Check,
    /// The code of the last check; 0 when it had none.
    CheckCode,
    /// The number of a backend's servers in each state.
    Servers,
    /// The number of a backend's servers with each result of a check.
    Checks,
}

/// A metric of frontends, sockets, backends or servers.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name, behind `haproxy_` and the kind of object.
    pub name: &'static str,
    pub metric_type: MetricType,
    pub column: Column,
    pub form: MetricForm,
    /// Whose it is.
    objects: &'static [ObjectKind],
    /// Proxies of another mode do not have it.
    pub is_http: bool,
    /// An object without a value has no series; else the series is there, as not a number.
    pub is_omitted: bool,
    help: Option<&'static str>,
}

impl Metric {
    /// What it is.
    pub fn help(&self) -> String {
        let column = COLUMNS[self.column as usize].doc;
        match (self.help, column.strip_suffix(", ms")) {
            (Some(help), _) => help.into(),
            (None, Some(what)) if self.form == MetricForm::Seconds => format!("{what}, seconds"),
            (None, _) => column.into(),
        }
    }

    const fn of_http(self) -> Metric {
        Metric { is_http: true, ..self }
    }

    const fn omitted(self) -> Metric {
        Metric { is_omitted: true, ..self }
    }

    const fn form(self, form: MetricForm) -> Metric {
        Metric { form, ..self }
    }

    const fn help_is(self, help: &'static str) -> Metric {
        Metric { help: Some(help), ..self }
    }
}

const fn gauge(objects: &'static [ObjectKind], name: &'static str, column: Column) -> Metric {
    Metric {
        name,
        metric_type: MetricType::Gauge,
        column,
        form: MetricForm::Number,
        objects,
        is_http: false,
        is_omitted: false,
        help: None,
    }
}

const fn counter(objects: &'static [ObjectKind], name: &'static str, column: Column) -> Metric {
    Metric { metric_type: MetricType::Counter, ..gauge(objects, name, column) }
}

/// A time in milliseconds, shown in seconds.
const fn time(name: &'static str, column: Column) -> Metric {
    gauge(BS, name, column).form(MetricForm::Seconds)
}

/// The responses with status codes of a class. All classes are one family.
const fn class(code: &'static str, column: Column) -> Metric {
    counter(FBS, "http_responses_total", column)
        .form(MetricForm::Class(code))
        .of_http()
        .help_is("Responses by the class of their status code")
}

use ObjectKind::{Backend, Frontend, Listener, Server};

const F: &[ObjectKind] = &[Frontend];
const B: &[ObjectKind] = &[Backend];
const S: &[ObjectKind] = &[Server];
const BS: &[ObjectKind] = &[Backend, Server];
const FL: &[ObjectKind] = &[Frontend, Listener];
const FB: &[ObjectKind] = &[Frontend, Backend];
const FBS: &[ObjectKind] = &[Frontend, Backend, Server];
const FLB: &[ObjectKind] = &[Frontend, Listener, Backend];
const ALL: &[ObjectKind] = &[Frontend, Listener, Backend, Server];

/// In the order of the columns, which is HAProxy's.
static METRICS: &[Metric] = &[
    gauge(BS, "current_queue", Column::Qcur),
    gauge(BS, "max_queue", Column::Qmax),
    gauge(ALL, "current_sessions", Column::Scur),
    gauge(ALL, "max_sessions", Column::Smax),
    gauge(ALL, "limit_sessions", Column::Slim),
    counter(ALL, "sessions_total", Column::Stot),
    counter(ALL, "bytes_in_total", Column::Bin),
    counter(ALL, "bytes_out_total", Column::Bout),
    counter(FLB, "requests_denied_total", Column::Dreq),
    counter(ALL, "responses_denied_total", Column::Dresp),
    counter(FL, "request_errors_total", Column::Ereq),
    counter(BS, "connection_errors_total", Column::Econ),
    counter(BS, "response_errors_total", Column::Eresp),
    counter(BS, "retry_warnings_total", Column::Wretr),
    counter(BS, "redispatch_warnings_total", Column::Wredis),
    gauge(ALL, "status", Column::Status).form(MetricForm::State).help_is("1 for the current status, otherwise 0"),
    gauge(BS, "weight", Column::Weight),
    gauge(B, "active_servers", Column::Act).help_is("Active servers in use"),
    gauge(B, "backup_servers", Column::Bck).help_is("Backup servers in use"),
    counter(S, "check_failures_total", Column::Chkfail),
    counter(BS, "check_up_down_total", Column::Chkdown),
    gauge(BS, "check_last_change_seconds", Column::Lastchg),
    counter(BS, "downtime_seconds_total", Column::Downtime),
    gauge(S, "queue_limit", Column::Qlimit),
    gauge(S, "current_throttle", Column::Throttle),
    counter(BS, "loadbalanced_total", Column::Lbtot),
    gauge(F, "limit_session_rate", Column::RateLim),
    gauge(FBS, "max_session_rate", Column::RateMax),
    gauge(S, "check_status", Column::CheckStatus)
        .form(MetricForm::Check)
        .omitted()
        .help_is("1 for the result of the last check, otherwise 0"),
    gauge(S, "check_code", Column::CheckCode).form(MetricForm::CheckCode).omitted(),
    gauge(S, "check_duration_seconds", Column::CheckDuration).form(MetricForm::Seconds).omitted(),
    class("1xx", Column::Hrsp1xx),
    class("2xx", Column::Hrsp2xx),
    class("3xx", Column::Hrsp3xx),
    class("4xx", Column::Hrsp4xx),
    class("5xx", Column::Hrsp5xx),
    class("other", Column::HrspOther),
    gauge(F, "http_requests_rate_max", Column::ReqRateMax).of_http(),
    counter(FB, "http_requests_total", Column::ReqTot).of_http(),
    counter(BS, "client_aborts_total", Column::CliAbrt),
    counter(BS, "server_aborts_total", Column::SrvAbrt),
    counter(FB, "http_comp_bytes_in_total", Column::CompIn).of_http(),
    counter(FB, "http_comp_bytes_out_total", Column::CompOut).of_http(),
    counter(FB, "http_comp_bytes_bypassed_total", Column::CompByp).of_http(),
    counter(FB, "http_comp_responses_total", Column::CompRsp).of_http(),
    gauge(BS, "last_session_seconds", Column::Lastsess),
    time("queue_time_average_seconds", Column::Qtime),
    time("connect_time_average_seconds", Column::Ctime),
    time("response_time_average_seconds", Column::Rtime),
    time("total_time_average_seconds", Column::Ttime),
    gauge(F, "connections_rate_max", Column::ConnRateMax),
    counter(F, "connections_total", Column::ConnTot),
    counter(F, "intercepted_requests_total", Column::Intercepted).of_http(),
    counter(FL, "denied_connections_total", Column::Dcon),
    counter(FL, "denied_sessions_total", Column::Dses),
    counter(ALL, "failed_header_rewriting_total", Column::Wrew),
    counter(BS, "connection_attempts_total", Column::Connect),
    counter(BS, "connection_reuses_total", Column::Reuse),
    counter(FB, "http_cache_lookups_total", Column::CacheLookups).of_http(),
    counter(FB, "http_cache_hits_total", Column::CacheHits).of_http(),
    gauge(S, "idle_connections_current", Column::SrvIcur),
    gauge(S, "idle_connections_limit", Column::SrcIlim),
    time("max_queue_time_seconds", Column::QtimeMax),
    time("max_connect_time_seconds", Column::CtimeMax),
    time("max_response_time_seconds", Column::RtimeMax),
    time("max_total_time_seconds", Column::TtimeMax),
    counter(ALL, "internal_errors_total", Column::Eint),
    gauge(S, "unsafe_idle_connections_current", Column::IdleConnCur),
    gauge(S, "safe_idle_connections_current", Column::SafeConnCur),
    gauge(S, "used_connections_current", Column::UsedConnCur),
    gauge(S, "need_connections_current", Column::NeedConnEst),
    gauge(BS, "uweight", Column::Uweight),
    gauge(B, "agg_server_status", Column::AggServerStatus)
        .form(MetricForm::Servers)
        .omitted()
        .help_is("Servers by their status"),
    gauge(B, "agg_server_check_status", Column::AggServerCheckStatus)
        .form(MetricForm::Servers)
        .omitted()
        .help_is("Servers by their status; the same as agg_server_status"),
    gauge(B, "agg_check_status", Column::AggCheckStatus)
        .form(MetricForm::Checks)
        .omitted()
        .help_is("Servers by the result of their last check"),
];

/// The metrics of a kind of object.
pub fn metrics_of(kind: ObjectKind) -> impl Iterator<Item = &'static Metric> {
    METRICS.iter().filter(move |metric| metric.objects.contains(&kind))
}

/// A metric of the process.
#[derive(Clone, Copy, Debug)]
pub struct ProcessMetric {
    /// Its name, behind `haproxy_process_`.
    pub name: &'static str,
    pub metric_type: MetricType,
    /// The line of `show info` whose value it is; `None`: HAProxy has one in other builds, and shows that it is not a number.
    pub line: Option<&'static str>,
}

const fn count(name: &'static str, line: &'static str) -> ProcessMetric {
    ProcessMetric { name, metric_type: MetricType::Counter, line: Some(line) }
}

const fn level(name: &'static str, line: &'static str) -> ProcessMetric {
    ProcessMetric { name, metric_type: MetricType::Gauge, line: Some(line) }
}

const fn unknown(name: &'static str) -> ProcessMetric {
    ProcessMetric { name, metric_type: MetricType::Gauge, line: None }
}

/// In HAProxy's order.
pub static PROCESS: &[ProcessMetric] = &[
    level("nbthread", "Nbthread"),
    level("nbproc", "Nbproc"),
    level("relative_process_id", "Process_num"),
    level("uptime_seconds", "Uptime_sec"),
    count("pool_failures_total", "PoolFailed"),
    level("max_fds", "Ulimit-n"),
    level("max_sockets", "Maxsock"),
    level("max_connections", "Maxconn"),
    level("hard_max_connections", "Hard_maxconn"),
    level("current_connections", "CurrConns"),
    count("connections_total", "CumConns"),
    count("requests_total", "CumReq"),
    level("max_ssl_connections", "MaxSslConns"),
    level("current_ssl_connections", "CurrSslConns"),
    count("ssl_connections_total", "CumSslConns"),
    level("max_pipes", "Maxpipes"),
    level("pipes_used_total", "PipesUsed"),
    level("pipes_free_total", "PipesFree"),
    level("current_connection_rate", "ConnRate"),
    level("limit_connection_rate", "ConnRateLimit"),
    level("max_connection_rate", "MaxConnRate"),
    level("current_session_rate", "SessRate"),
    level("limit_session_rate", "SessRateLimit"),
    level("max_session_rate", "MaxSessRate"),
    level("current_ssl_rate", "SslRate"),
    level("limit_ssl_rate", "SslRateLimit"),
    level("max_ssl_rate", "MaxSslRate"),
    level("current_frontend_ssl_key_rate", "SslFrontendKeyRate"),
    level("max_frontend_ssl_key_rate", "SslFrontendMaxKeyRate"),
    level("frontend_ssl_reuse", "SslFrontendSessionReuse_pct"),
    level("current_backend_ssl_key_rate", "SslBackendKeyRate"),
    level("max_backend_ssl_key_rate", "SslBackendMaxKeyRate"),
    count("ssl_cache_lookups_total", "SslCacheLookups"),
    count("ssl_cache_misses_total", "SslCacheMisses"),
    level("http_comp_bytes_in_total", "CompressBpsIn"),
    level("http_comp_bytes_out_total", "CompressBpsOut"),
    level("limit_http_comp", "CompressBpsRateLim"),
    unknown("current_zlib_memory"),
    unknown("max_zlib_memory"),
    level("current_tasks", "Tasks"),
    level("current_run_queue", "Run_queue"),
    level("idle_time_percent", "Idle_pct"),
    level("stopping", "Stopping"),
    level("jobs", "Jobs"),
    level("unstoppable_jobs", "Unstoppable Jobs"),
    level("listeners", "Listeners"),
    level("active_peers", "ActivePeers"),
    level("connected_peers", "ConnectedPeers"),
    count("dropped_logs_total", "DroppedLogs"),
    level("busy_polling_enabled", "BusyPolling"),
    count("failed_resolutions", "FailedResolutions"),
    count("bytes_out_total", "TotalBytesOut"),
    count("spliced_bytes_out_total", "TotalSplicdedBytesOut"),
    level("bytes_out_rate", "BytesOutRate"),
    count("recv_logs_total", "CumRecvLogs"),
    level("build_info", "Build info"),
    level("max_memory_bytes", "Memmax_bytes"),
    level("pool_allocated_bytes", "PoolAlloc_bytes"),
    level("pool_used_bytes", "PoolUsed_bytes"),
    level("start_time_seconds", "Start_time_sec"),
];

/// The states of an object, as labels have them.
pub fn states_of(kind: ObjectKind) -> &'static [&'static str] {
    match kind {
        Frontend | Backend => &["DOWN", "UP"],
        Server => &["DOWN", "UP", "MAINT", "DRAIN", "NOLB"],
        Listener => &["WAITING", "OPEN", "FULL"],
    }
}

/// The state in [`states_of`] that the status column names: its words go on with what a server is on its way to.
pub fn state_of(kind: ObjectKind, status: &str) -> Option<usize> {
    let first = status.split([' ', '/']).next().unwrap_or_default();
    let word = match (kind, first) {
        (Frontend, "STOP") => "DOWN",
        (Frontend, _) | (Server, "no") => "UP",
        (_, first) => first,
    };
    states_of(kind).iter().position(|state| *state == word)
}

/// The results of checks, as labels have them.
pub static CHECKS: [&str; 16] = [
    "HANA", "SOCKERR", "L4OK", "L4TOUT", "L4CON", "L6OK", "L6TOUT", "L6RSP", "L7TOUT", "L7RSP", "L7OK", "L7OKC",
    "L7STS", "PROCERR", "PROCTOUT", "PROCOK",
];

/// The result in [`CHECKS`] that the column names: a `*` in front stands for a check in progress.
pub fn check_of(status: &str) -> Option<usize> {
    let word = status.trim_start_matches("* ");
    CHECKS.iter().position(|check| *check == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_status_column_are_states() {
        let check = |kind, status: &str, expect: Option<&str>| {
            assert_eq!(state_of(kind, status).map(|at| states_of(kind)[at]), expect, "{status}");
        };
        check(Server, "UP 1/3", Some("UP"));
        check(Server, "no check", Some("UP"));
        check(Server, "DOWN 1/2", Some("DOWN"));
        check(Server, "MAINT (via app/a)", Some("MAINT"));
        check(Server, "MAINT (resolution)", Some("MAINT"));
        check(Server, "DRAIN 2/3", Some("DRAIN"));
        check(Server, "NOLB", Some("NOLB"));
        check(Backend, "UP (1/2)", Some("UP"));
        check(Backend, "DOWN", Some("DOWN"));
        check(Frontend, "OPEN", Some("UP"));
        check(Frontend, "STOP", Some("DOWN"));
        check(Listener, "OPEN", Some("OPEN"));
        check(Listener, "STOP", None);
        assert_eq!((check_of("* L7STS"), check_of("L4OK"), check_of("INI")), (Some(12), Some(2), None));
    }

    #[test]
    fn a_family_has_one_type_and_its_rows_are_neighbours() {
        for kind in [Frontend, Listener, Backend, Server] {
            let rows: Vec<&Metric> = metrics_of(kind).collect();
            let families: Vec<&[&Metric]> = rows.chunk_by(|one, next| one.name == next.name).collect();
            for (at, family) in families.iter().enumerate() {
                assert!(family.iter().all(|row| row.metric_type == family[0].metric_type));
                assert!(families[at + 1..].iter().all(|other| other[0].name != family[0].name), "{}", family[0].name);
                assert_eq!(family[0].metric_type == MetricType::Counter, family[0].name.ends_with("_total"));
            }
        }
    }
}
