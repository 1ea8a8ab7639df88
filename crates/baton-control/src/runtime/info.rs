//! `show info`: information about the process, under the names HAProxy 2.6 gives to it (management guide, 9.3).

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use baton_config::condition::COMPATIBLE_VERSION;
use baton_kernel::output::losses;
use baton_kernel::panics;
use baton_kernel::process::limits::OpenFiles;
use baton_kernel::process::usage;
use baton_model::Global;
use baton_proxy::state::ProcessLimits;
use baton_proxy::{Counter, Limit, ProcessSum};

use super::field::{self, Field, Form, Format, Value};
use crate::capacity::Capacity;
use crate::control::Control;
use crate::direct::DirectorSetup;
use crate::operators::Call;
use crate::operators::answer::CommandResponse;
use crate::operators::figures::{self, ObjectKey, ObjectSample};

/// A value of the process: its place in the typed forms, and how to learn it.
struct Row {
    at: usize,
    field: Field,
    value: fn(&Facts<'_>) -> Value,
}

impl Row {
    /// Two gauges are rates for HAProxy once they have a fraction.
    fn tag(&self, value: &Value) -> &'static str {
        match (self.at, value) {
            (35 | 37, Value::Float(_)) => "MRP",
            _ => self.field.tag,
        }
    }
}

const fn row(
    at: usize,
    name: &'static str,
    tag: &'static str,
    value: fn(&Facts<'_>) -> Value,
    doc: &'static str,
) -> Row {
    Row { at, field: Field { name, tag, doc }, value }
}

/// Something Baton does not have, or does not count: zero, as HAProxy says of what it does not use.
const fn zero(at: usize, name: &'static str, tag: &'static str, doc: &'static str) -> Row {
    row(at, name, tag, |_| Value::U32(0), doc)
}

/// A rate that is always zero, as a fraction where that is wanted.
const fn rate0(at: usize, name: &'static str, tag: &'static str, doc: &'static str) -> Row {
    row(at, name, tag, |facts| facts.fraction(0.0), doc)
}

/// In HAProxy's order, with its positions: 45 and 46 belong to a build with another compression library.
static ROWS: &[Row] = &[
    row(0, "Name", "POS", |_| Value::text("HAProxy"), "The program whose API this is: clients look for it"),
    row(1, "Version", "POS", |facts| Value::text(facts.version()), "Compatible HAProxy version, and its own"),
    row(2, "Release_date", "POS", |_| Value::text(release_date()), "Date of the program's file"),
    row(
        3,
        "Nbthread",
        "CGS",
        |facts| Value::count(facts.control.line.registry().cores() as u64),
        "Threads that carry traffic",
    ),
    row(4, "Nbproc", "CGS", |_| Value::U32(1), "Processes that carry traffic: 1"),
    row(5, "Process_num", "KGP", |_| Value::U32(1), "Number of this process: 1"),
    row(6, "Pid", "SGP", |_| Value::U32(std::process::id()), "Process id"),
    row(7, "Uptime", "MDP", |facts| Value::text(facts.uptime()), "Time since the start in words"),
    row(8, "Uptime_sec", "MDP", |facts| facts.seconds(facts.up.as_secs_f64()), "Time since the start in seconds"),
    zero(9, "Memmax_MB", "CLP", "Limit of memory in MiB; there is none"),
    row(10, "PoolAlloc_MB", "MGP", |facts| Value::count(facts.memory >> 20), "Memory in RAM, in MiB"),
    row(11, "PoolUsed_MB", "MGP", |facts| Value::count(facts.memory >> 20), "Memory in RAM, in MiB"),
    zero(12, "PoolFailed", "MCP", "Failed allocations; none is survived"),
    row(13, "Ulimit-n", "CLP", |facts| Value::count(facts.descriptors), "Limit of open descriptors"),
    row(14, "Maxsock", "CLP", |facts| Value::count(facts.descriptors), "Limit of open descriptors"),
    row(
        15,
        "Maxconn",
        "CLP",
        |facts| Value::U32(facts.limits().connections.or(facts.maxconn())),
        "Limit of client connections",
    ),
    row(16, "Hard_maxconn", "CLP", |facts| Value::U32(facts.maxconn()), "Limit of client connections"),
    row(17, "CurrConns", "MGP", |facts| Value::count(facts.connections()), "Current client connections"),
    row(
        18,
        "CumConns",
        "MCP",
        |facts| Value::count(facts.cumulated_connections() + facts.sessions),
        "Client connections since the start, including the runtime API",
    ),
    row(
        19,
        "CumReq",
        "MCP",
        |facts| Value::count(facts.requests() + facts.sessions),
        "Requests since the start; a TCP connection counts as one, and so does a session of the runtime API",
    ),
    row(
        20,
        "MaxSslConns",
        "MMP",
        |facts| Value::count(facts.limit(|global| global.maxsslconn)),
        "Limit of TLS connections with clients; 0 is none",
    ),
    row(21, "CurrSslConns", "MGP", |facts| Value::count(facts.tls_open()), "Current TLS connections with clients"),
    row(
        22,
        "CumSslConns",
        "MCP",
        |facts| Value::count(facts.tls.counted.sessions),
        "TLS handshakes with clients since the start",
    ),
    row(
        23,
        "Maxpipes",
        "CLP",
        |facts| Value::U32(facts.control.line.model().pipes_max()),
        "Limit of pipes for splicing",
    ),
    row(24, "PipesUsed", "MGP", |facts| facts.pipes(), "Pipes, including idle ones"),
    zero(25, "PipesFree", "MGP", "Idle pipes; they are counted as used"),
    row(26, "ConnRate", "MRP", |facts| facts.fraction(facts.rate.0), "Connections in the last second"),
    row(
        27,
        "ConnRateLimit",
        "CLP",
        |facts| facts.rate_limit(&facts.limits().connection_rate, |global| global.maxconnrate),
        "Limit of connections per second; 0 is none",
    ),
    row(28, "MaxConnRate", "MMP", |facts| Value::count(facts.rate.1), "Peak of connections per second"),
    row(29, "SessRate", "MRP", |facts| facts.fraction(facts.rate.0), "Sessions in the last second"),
    row(
        30,
        "SessRateLimit",
        "CLP",
        |facts| facts.rate_limit(&facts.limits().session_rate, |global| global.maxsessrate),
        "Limit of sessions per second; 0 is none",
    ),
    row(31, "MaxSessRate", "MRP", |facts| Value::count(facts.rate.1), "Peak of sessions per second"),
    row(
        32,
        "SslRate",
        "MRP",
        |facts| facts.fraction(facts.tls.sessions_exact().0),
        "TLS handshakes in the last second",
    ),
    row(
        33,
        "SslRateLimit",
        "CLP",
        |facts| facts.rate_limit(&facts.limits().tls_rate, |global| global.maxsslrate),
        "Limit of TLS handshakes per second; 0 is none",
    ),
    row(
        34,
        "MaxSslRate",
        "MMP",
        |facts| Value::count(facts.tls.sessions_exact().1),
        "Peak of TLS handshakes per second",
    ),
    row(
        35,
        "SslFrontendKeyRate",
        "MGP",
        |facts| facts.fraction(facts.tls.requests_exact().0),
        "TLS keys made for clients in the last second",
    ),
    row(
        36,
        "SslFrontendMaxKeyRate",
        "MMP",
        |facts| Value::count(facts.tls.requests_exact().1),
        "Peak of TLS keys made for clients per second",
    ),
    row(
        37,
        "SslFrontendSessionReuse_pct",
        "MGP",
        |facts| facts.fraction(facts.tls_reuse()),
        "TLS sessions of clients resumed in the last second, percent",
    ),
    row(
        38,
        "SslBackendKeyRate",
        "MRP",
        |facts| facts.fraction(facts.server_tls.requests_exact().0),
        "TLS keys made for servers in the last second",
    ),
    row(
        39,
        "SslBackendMaxKeyRate",
        "MMP",
        |facts| Value::count(facts.server_tls.requests_exact().1),
        "Peak of TLS keys made for servers per second",
    ),
    row(
        40,
        "SslCacheLookups",
        "MCP",
        |facts| Value::count(facts.control.line.session_lookups().0),
        "TLS sessions that were looked for",
    ),
    row(
        41,
        "SslCacheMisses",
        "MCP",
        |facts| Value::count(facts.control.line.session_lookups().1),
        "TLS sessions that were not found",
    ),
    rate0(42, "CompressBpsIn", "MRP", "Bytes to be compressed in the last second"),
    rate0(43, "CompressBpsOut", "MRP", "Bytes that were compressed in the last second"),
    zero(44, "CompressBpsRateLim", "CLP", "Limit of compressed bytes per second"),
    row(47, "Tasks", "MGP", |facts| Value::count(facts.tasks()), "Connections and health checks"),
    zero(48, "Run_queue", "MGP", "Runnable tasks; not counted"),
    row(
        49,
        "Idle_pct",
        "MaP",
        |facts| Value::U32(facts.idle()),
        "Idle share of the threads' CPU time in the last second",
    ),
    row(50, "node", "COS", |facts| Value::text(facts.node()), "Name of the node"),
    row(51, "description", "COS", |facts| facts.description(), "Description of the instance"),
    row(
        52,
        "Stopping",
        "MGP",
        |facts| Value::U32(facts.control.is_stopping().into()),
        "1 during a graceful stop, otherwise 0",
    ),
    row(
        53,
        "Jobs",
        "MGP",
        |facts| Value::count(facts.connections() + facts.operators() + facts.listeners()),
        "Connections and listening addresses",
    ),
    zero(54, "Unstoppable Jobs", "MGP", "Jobs that a graceful stop does not wait for"),
    row(55, "Listeners", "MGP", |facts| Value::count(facts.listeners()), "Listening addresses"),
    row(56, "ActivePeers", "MGP", |facts| Value::count(facts.peers().0 as u64), "Peers with a connection"),
    row(57, "ConnectedPeers", "MGP", |facts| Value::count(facts.peers().1 as u64), "Peers with a session"),
    row(
        58,
        "DroppedLogs",
        "MGP",
        |_| Value::count(losses::total()),
        "Lost lines to logs, standard output and standard error",
    ),
    zero(59, "BusyPolling", "MGP", "1 with busy polling, which is not supported"),
    zero(60, "FailedResolutions", "MGP", "Names that could not be resolved at run time"),
    row(61, "TotalBytesOut", "MGP", |facts| Value::U64(facts.bytes_out()), "Bytes sent to clients since the start"),
    row(
        62,
        "TotalSplicdedBytesOut",
        "MGP",
        |facts| Value::U64(facts.sum(ProcessSum::Spliced)),
        "Bytes that were spliced since the start",
    ),
    row(63, "BytesOutRate", "MRP", |facts| Value::U64(facts.bytes as u64), "Bytes sent to clients in the last second"),
    zero(64, "DebugCommandsIssued", "MGP", "Debug commands; there are none"),
    zero(65, "CumRecvLogs", "MCP", "Log lines received"),
    row(66, "Build info", "POS", |facts| Value::text(facts.version()), "Version of the program"),
    zero(67, "Memmax_bytes", "CLP", "Limit of memory; there is none"),
    row(68, "PoolAlloc_bytes", "MGP", |facts| Value::U64(facts.memory), "Memory in RAM"),
    row(69, "PoolUsed_bytes", "MGP", |facts| Value::U64(facts.memory), "Memory in RAM"),
    row(70, "Start_time_sec", "MDP", |facts| facts.seconds(facts.started()), "When it started, seconds since 1970"),
    row(71, "Tainted", "SGP", |_| Value::text("0"), "Whether anything experimental was used"),
    // Baton's own, far behind what later versions of HAProxy add.
    row(1000, "Maxconn_reason", "COS", |facts| Value::text(facts.reason()), "Source of the connection limit"),
    row(
        1001,
        "Direct_engine",
        "SGP",
        |facts| facts.direct(|about| format!("{}: {}", about.engine, about.reason)),
        "'mode direct': engine in the kernel, and why it was chosen",
    ),
    row(1002, "Direct_setup", "SGP", |facts| facts.direct(|about| about.manner.clone()), "'mode direct': its setup"),
    row(1003, "Direct_problems", "SGP", |facts| facts.complaints(), "'mode direct': current problems"),
    row(1004, "Panics", "MCP", |_| panics_seen(), "Internal errors that ended a connection or a task"),
];

/// `show info`.
pub(super) fn show(control: &Control, call: &Call) -> CommandResponse {
    let format = Format::of(call.args());
    let facts = Facts::look(control, format.exact);
    let mut out = String::new();
    for row in ROWS {
        let value = (row.value)(&facts);
        if value == Value::None {
            continue;
        }
        match format.form {
            Form::Plain => {
                // Writing to a string cannot fail.
                let _ = write!(out, "{}: {value}", row.field.name);
                field::describe(&mut out, &row.field, format.described);
            }
            Form::Typed => field::typed(&mut out, "", row.at, &row.field, row.tag(&value), &value, format.described),
            Form::Json => {
                out.push(if out.is_empty() { '[' } else { ',' });
                field::json(&mut out, "", row.at, &row.field, row.tag(&value), &value);
            }
        }
    }
    if format.form == Form::Json {
        out.push_str("]\n");
    }
    CommandResponse::Data(out)
}

/// Every value with its line, for another form of output.
pub(crate) fn values(control: &Control) -> Vec<(&'static Field, Value)> {
    let facts = Facts::look(control, false);
    ROWS.iter().map(|row| (&row.field, (row.value)(&facts))).collect()
}

/// `show version`.
pub(super) fn version(control: &Control, _: &Call) -> CommandResponse {
    CommandResponse::info(version_of(control))
}

/// A version that tools which ask for HAProxy's understand, and that tells whose it is.
fn version_of(control: &Control) -> String {
    spoken_version(&control.settings.version)
}

/// What the rows are made of, learned once.
struct Facts<'a> {
    control: &'a Control,
    is_exact: bool,
    up: std::time::Duration,
    memory: u64,
    descriptors: u64,
    /// Sessions of operators since the start.
    sessions: u64,
    /// Connections of the last second, and the most.
    rate: (f64, u64),
    /// Bytes to clients in the last second.
    bytes: f64,
    /// TLS with clients: see [`figures::of_tls`].
    tls: ObjectSample,
    /// TLS with servers: see [`figures::of_server_tls`].
    server_tls: ObjectSample,
    /// Processor time: see [`figures::of_processor`].
    processor: ObjectSample,
}

impl Facts<'_> {
    fn look(control: &Control, is_exact: bool) -> Facts<'_> {
        let counted = control.line.generation().map(|generation| figures::of_process(generation));
        let rates = &control.line.runtime().rates;
        let now = Instant::now();
        let seen = ObjectSample::of(rates, &ObjectKey::Process, counted.unwrap_or_default(), now);
        let server_tls = control.line.generation().map(|generation| figures::of_server_tls(generation));
        let tls = ObjectSample::of(rates, &ObjectKey::Tls, figures::of_tls(control.line.registry()), now);
        Facts {
            rate: seen.sessions_exact(),
            bytes: seen.bytes(),
            tls,
            server_tls: ObjectSample::of(rates, &ObjectKey::ServerTls, server_tls.unwrap_or_default(), now),
            processor: ObjectSample::of(rates, &ObjectKey::Processor, figures::of_processor(), now),
            control,
            is_exact,
            up: Instant::now().saturating_duration_since(control.line.registry().started),
            memory: usage::resident_bytes().unwrap_or_default(),
            descriptors: OpenFiles::now().map_or(0, |limit| limit.soft),
            sessions: control.line.runtime().sessions().1,
        }
    }

    /// A limit of the configuration in use; 0 is none.
    fn limit(&self, of: impl Fn(&Global) -> Option<u32>) -> u64 {
        self.control.line.generation().and_then(|generation| of(&generation.model.global)).unwrap_or(0).into()
    }

    /// Limits that operators set.
    fn limits(&self) -> &ProcessLimits {
        &self.control.line.registry().limits
    }

    fn rate_limit(&self, set: &Limit, of: impl Fn(&Global) -> Option<u32>) -> Value {
        let configured = self.control.line.generation().and_then(|generation| of(&generation.model.global));
        Value::U32(set.rate_or(configured).unwrap_or(0))
    }

    /// Connections with clients at addresses with TLS.
    fn tls_open(&self) -> u64 {
        u64::try_from(self.control.line.registry().tls.open.load(Ordering::Relaxed)).unwrap_or(0)
    }

    fn pipes(&self) -> Value {
        Value::count(self.control.line.registry().pipes.load(Ordering::Relaxed) as u64)
    }

    /// How many percent of the threads' time were left.
    fn idle(&self) -> u32 {
        let (used_ms, _) = self.processor.sessions_exact();
        let used = used_ms / 10.0 / self.control.line.registry().cores() as f64;
        (100.0 - used).clamp(0.0, 100.0).round() as u32
    }

    /// Of the handshakes in the last second, how many percent took a session up again.
    fn tls_reuse(&self) -> f64 {
        let (full, resumed) = (self.tls.requests_exact().0, self.tls.bytes());
        if full + resumed > 0.0 { 100.0 * resumed / (full + resumed) } else { 0.0 }
    }

    fn version(&self) -> String {
        version_of(self.control)
    }

    /// Whole seconds, or with their fraction.
    fn seconds(&self, seconds: f64) -> Value {
        if self.is_exact { Value::Float(seconds) } else { Value::U32(seconds as u32) }
    }

    fn fraction(&self, number: f64) -> Value {
        if self.is_exact { Value::Float(number) } else { Value::U32(number.round() as u32) }
    }

    fn uptime(&self) -> String {
        let seconds = self.up.as_secs();
        format!("{}d {}h{:02}m{:02}s", seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60)
    }

    fn started(&self) -> f64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.saturating_sub(self.up).as_secs_f64()
    }

    fn maxconn(&self) -> u32 {
        self.control.line.generation().map_or(0, |generation| generation.maxconn)
    }

    fn reason(&self) -> String {
        let line = &self.control.line;
        Capacity::now(line.model(), line.registry().cores()).within(self.descriptors).to_string()
    }

    fn connections(&self) -> u64 {
        let open = self.control.line.registry().open.load(Ordering::Relaxed);
        u64::try_from(open).unwrap_or_default()
    }

    /// Sessions of the runtime API now.
    fn operators(&self) -> u64 {
        self.control.line.runtime().sessions().0.into()
    }

    fn listeners(&self) -> u64 {
        self.control.line.listeners().addresses().len() as u64
    }

    fn peers(&self) -> (usize, usize) {
        self.control.line.peer_sessions()
    }

    fn tasks(&self) -> u64 {
        self.connections() + self.control.line.checker().len() as u64
    }

    fn sum(&self, sum: ProcessSum) -> u64 {
        self.control.line.registry().sums.get(sum)
    }

    /// A counter of all frontends, those that were removed included.
    fn total(&self, counter: Counter, removed: ProcessSum) -> u64 {
        let removed = self.sum(removed);
        let Some(generation) = self.control.line.generation() else { return removed };
        removed + generation.frontends.iter().map(|plan| plan.state.counters.total(counter)).sum::<u64>()
    }

    fn cumulated_connections(&self) -> u64 {
        self.total(Counter::Connections, ProcessSum::Connections)
    }

    fn bytes_out(&self) -> u64 {
        self.total(Counter::BytesOut, ProcessSum::BytesOut)
    }

    fn requests(&self) -> u64 {
        let removed = self.sum(ProcessSum::Requests);
        let Some(generation) = self.control.line.generation() else { return removed };
        removed + generation.frontends.iter().map(|plan| plan.requests()).sum::<u64>()
    }

    /// Nothing without `mode direct`.
    fn direct(&self, what: impl Fn(&DirectorSetup) -> String) -> Value {
        let text = self.control.line.direct().about().map(what).filter(|text| !text.is_empty());
        text.map_or(Value::None, Value::text)
    }

    fn complaints(&self) -> Value {
        let complaints: Vec<&str> = self.control.line.direct().complaints().collect();
        if complaints.is_empty() { Value::None } else { Value::text(complaints.join("; ")) }
    }

    fn node(&self) -> String {
        let given = self.control.line.model().global.node.clone();
        given.unwrap_or_else(|| baton_rules::Files::hostname(&self.control.settings.outside))
    }

    fn description(&self) -> Value {
        self.control.line.model().global.description.as_deref().map_or(Value::None, Value::text)
    }
}

/// Nothing as long as there was none.
fn panics_seen() -> Value {
    match panics::count() {
        0 => Value::None,
        count => Value::count(count),
    }
}

/// The date of the program's file.
fn release_date() -> String {
    let changed = std::env::current_exe().and_then(std::fs::metadata).and_then(|file| file.modified());
    let at = changed.unwrap_or(UNIX_EPOCH);
    jiff::Timestamp::try_from(at).map_or_else(|_| "1970/01/01".into(), |at| at.strftime("%Y/%m/%d").to_string())
}
/// HAProxy's version whose language is spoken, and Baton's own.
pub fn spoken_version(own: &str) -> String {
    format!("{COMPATIBLE_VERSION}-baton{own}")
}
