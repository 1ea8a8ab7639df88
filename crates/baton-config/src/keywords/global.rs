//! The keywords of the `global` section (configuration manual, 3).

use std::path::PathBuf;
use std::time::Duration;

use baton_rules::suggestion;

use super::rows::{gone, later, none};
use super::server::tls::defaults as tls;
use super::{Apply, GLOBAL, Keyword, Status, header_cases, http2, limits, peers, process, stats};
use crate::lower::{Call, DefaultPath, GlobalDraft, Prefix, log_target};

pub(super) const fn row(
    name: &'static str,
    args: &'static str,
    apply: fn(&mut GlobalDraft, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections: GLOBAL, args, status: Status::Done, doc, apply: Apply::Global(apply) }
}

const POLLER: &str = "Baton always uses epoll";
const INTERNAL: &str = "it tunes HAProxy internals that Baton does not have";
const CLIENT: &str =
    "it is about the HTTP client of Lua scripts and of the command `httpclient`, which Baton does not have";
const COMPRESSION: &str = "it configures compression, which is not supported yet";

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("chroot", "DIR", chroot, "Directory to chroot to after start-up."),
    row(
        "close-spread-time",
        "TIME",
        close_spread_time,
        "Time over which a graceful stop spreads closing idle connections.",
    ),
    row("cpu-map", "[auto:]1/THREADS CPUS...", process::cpu_map, "CPU affinity of the threads."),
    row("daemon", "", daemon, "Run in the background."),
    row("default-path", "current|config|parent|origin DIR", default_path, "Base directory of relative file names."),
    row("description", "TEXT", description, "Description of this instance."),
    row("fd-hard-limit", "NUMBER", process::fd_hard_limit, "Upper bound for the limit of open file descriptors."),
    row("gid", "NUMBER", gid, "Group id of the process."),
    row(
        "h1-accept-payload-with-any-method",
        "",
        http10_payload,
        "Accept bodies of requests with GET, HEAD and DELETE in HTTP/1.0.",
    ),
    row(
        "h1-case-adjust",
        "FROM TO",
        header_cases::adjust,
        "Spelling of a header name, for 'option h1-case-adjust-bogus-client' and '-server'.",
    ),
    row(
        "h1-case-adjust-file",
        "FILE",
        header_cases::adjust_file,
        "Spellings of header names, a name and its spelling in each line.",
    ),
    row("grace", "TIME", grace, "How long connections are still accepted after a graceful stop was requested."),
    row("group", "NAME", group, "Group of the process."),
    row(
        "h2-workaround-bogus-websocket-clients",
        "",
        http2::no_websockets,
        "WebSockets over HTTP/2 (RFC 8441) are not offered to clients, which use HTTP/1.1 for them.",
    ),
    row("hard-stop-after", "TIME", hard_stop_after, "Maximum duration of a graceful stop."),
    row(
        "insecure-setuid-wanted",
        "",
        process::insecure_setuid_wanted,
        "Programs started by the process may gain privileges by their setuid bit.",
    ),
    row("log", "ADDRESS [len N] [format F] [sample R] FACILITY [MAX [MIN]]", log, "A log target for 'log global'."),
    row("log-send-hostname", "[NAME]", log_hostname, "Host name in log lines."),
    row("log-tag", "TEXT", log_tag, "Program name in log lines."),
    row(
        "master-worker",
        "[no-exit-on-failure]",
        master_worker,
        "Master-worker mode: a master process holds the listening sockets.",
    ),
    row("external-check", "", external_check, "Permits 'option external-check'."),
    row(
        "insecure-fork-wanted",
        "",
        insecure_fork,
        "Says that programs are started on purpose, as 'option external-check' does.",
    ),
    row("max-spread-checks", "TIME", max_spread_checks, "Maximum time over which the first health checks are spread."),
    row(
        "localpeer",
        "NAME",
        peers::localpeer,
        "This process's name in 'peers' sections; without it, that of the host.",
    ),
    row("maxconn", "NUMBER", limits::maxconn, "Maximum number of concurrent connections of the process."),
    row(
        "maxsessrate",
        "NUMBER",
        limits::maxsessrate,
        "Maximum number of new sessions per second, of the process; a session is a connection that is accepted.",
    ),
    row("maxconnrate", "NUMBER", limits::maxconnrate, "Maximum number of new connections per second, of the process."),
    row("maxpipes", "NUMBER", limits::maxpipes, "Maximum number of pipes for splicing, of the process."),
    row(
        "maxsslconn",
        "NUMBER",
        limits::maxsslconn,
        "Maximum number of concurrent TLS connections with clients, of the \
                                                     process.",
    ),
    row(
        "maxsslrate",
        "NUMBER",
        limits::maxsslrate,
        "Maximum number of new TLS connections with clients per second, of \
                                                     the process.",
    ),
    row("nbthread", "NUMBER", limits::nbthread, "Number of threads."),
    row("nosplice", "", limits::nosplice, "Disables splicing."),
    row("node", "NAME", node, "The node's name in statistics."),
    row("pidfile", "FILE", pidfile, "File that the PID is written to."),
    row("presetenv", "NAME VALUE", setenv, "Sets an environment variable that is not set."),
    row("quiet", "", quiet, "No messages at start-up."),
    row("resetenv", "[NAME ...]", resetenv, "Removes all environment variables except the named ones."),
    row("server-state-base", "DIRECTORY", server_state_base, "Directory of server state files with a relative name."),
    row(
        "server-state-file",
        "FILE",
        server_state_file,
        "Server states to start with, of backends that load the global file.",
    ),
    row("set-dumpable", "", process::set_dumpable, "Write a core dump when the process crashes."),
    row("setcap", "NAME[,NAME...]", process::setcap, "Capabilities to keep when the user changes (as in HAProxy 2.9)."),
    row("setenv", "NAME VALUE", setenv, "Sets an environment variable."),
    row(
        "spread-checks",
        "PERCENT",
        limits::spread_checks,
        "Random variation of the interval between health checks, in \
                                                            percent.",
    ),
    row("ssl-default-server-ciphers", "NAMES", tls::ciphers, "Default TLS 1.2 cipher suites of servers."),
    row("ssl-default-server-ciphersuites", "NAMES", tls::ciphersuites, "Default TLS 1.3 cipher suites of servers."),
    row("ssl-default-server-curves", "NAMES", tls::curves, "Default key exchange groups of servers."),
    row(
        "ssl-default-server-options",
        "[ssl-min-ver V] [ssl-max-ver V] [no-tls-tickets] …",
        tls::options,
        "Default TLS settings of servers.",
    ),
    row("ssl-default-server-sigalgs", "NAMES", tls::sigalgs, "Default signature algorithms of servers."),
    row("ssl-server-verify", "none|required", tls::server_verify, "Default 'verify' of servers."),
    row(
        "stats socket",
        "ADDRESS [level L] [severity-output S] [expose-fd listeners] [bind options]",
        stats::socket,
        "A socket of the runtime API (see [runtime.md](runtime.md)).",
    ),
    row("stats maxconn", "NUMBER", stats::maxconn, "Maximum number of concurrent sessions of the runtime API."),
    row("stats timeout", "TIME", stats::timeout, "Idle timeout of runtime API sessions."),
    row("strict-limits", "", process::strict_limits, "Start-up fails if a system limit cannot be set (the default)."),
    row("tune.bufsize", "BYTES", limits::bufsize, "Buffer size, which limits the length of message heads."),
    row("tune.http.cookielen", "NUMBER", limits::cookielen, "Longest part of a cookie that 'capture cookie' keeps."),
    row("tune.http.logurilen", "NUMBER", limits::logurilen, "Longest part of a request line in a log line."),
    row(
        "tune.h2.fe.glitches-threshold",
        "NUMBER",
        http2::glitches_threshold,
        "Violations and oddities of an HTTP/2 client after which its connection is closed (as in HAProxy 3.0); 0, the default, is no limit.",
    ),
    row(
        "tune.h2.be.glitches-threshold",
        "NUMBER",
        http2::server_glitches_threshold,
        "As 'tune.h2.fe.glitches-threshold', for servers.",
    ),
    row(
        "tune.h2.be.initial-window-size",
        "BYTES",
        http2::server_initial_window_size,
        "As 'tune.h2.initial-window-size', for servers: bytes of a response's body that one may send ahead of its client.",
    ),
    row(
        "tune.h2.be.max-concurrent-streams",
        "NUMBER",
        http2::server_max_concurrent_streams,
        "As 'tune.h2.max-concurrent-streams', for connections to servers.",
    ),
    row(
        "tune.h2.fe.initial-window-size",
        "BYTES",
        http2::initial_window_size,
        "As 'tune.h2.initial-window-size' (as in HAProxy 2.8).",
    ),
    row(
        "tune.h2.fe.max-concurrent-streams",
        "NUMBER",
        http2::max_concurrent_streams,
        "As 'tune.h2.max-concurrent-streams' (as in HAProxy 2.8).",
    ),
    row(
        "tune.h2.header-table-size",
        "BYTES",
        http2::header_table_size,
        "Size of the table by which HTTP/2 clients abbreviate header fields: 4096 by default.",
    ),
    row(
        "tune.h2.initial-window-size",
        "BYTES",
        http2::initial_window_size,
        "Bytes of a body that an HTTP/2 client or server may send ahead of the other side: 65535 by default.",
    ),
    row(
        "tune.h2.max-concurrent-streams",
        "NUMBER",
        http2::max_concurrent_streams,
        "Requests of an HTTP/2 connection in flight, of clients and to servers: 100 by default; 0 is no limit.",
    ),
    row(
        "tune.h2.max-frame-size",
        "BYTES",
        http2::max_frame_size,
        "Longest HTTP/2 frame that clients and servers may send, at most 'tune.bufsize'.",
    ),
    row(
        "tune.handover",
        "on|off",
        limits::handover,
        "Whether established connections move to the process that takes over: on by default. Not in HAProxy.",
    ),
    row(
        "tune.handover.patience",
        "TIME",
        limits::handover_patience,
        "How long a request in flight has to end before it moves to the process that takes over in the middle: 2s by default. Not in HAProxy.",
    ),
    row("tune.http.maxhdr", "NUMBER", limits::maxhdr, "Maximum number of header fields of a message."),
    row(
        "tune.maxaccept",
        "NUMBER",
        limits::maxaccept,
        "Connections that a listening socket accepts in a row before other events: 64 by default, -1 is no limit.",
    ),
    row("tune.maxrewrite", "BYTES", limits::maxrewrite, "Buffer space reserved for added headers."),
    row(
        "tune.stick-counters",
        "NUMBER",
        limits::stick_counters,
        "Counters 'sc0', 'sc1' and so on that a session or a request can track: 3 by default.",
    ),
    row("uid", "NUMBER", uid, "User id of the process."),
    row("ulimit-n", "NUMBER", limits::ulimit_n, "Limit of open file descriptors."),
    row(
        "unix-bind",
        "[prefix P] [mode M] [user U|uid N] [group G|gid N]",
        unix_bind,
        "Default settings of UNIX listening sockets.",
    ),
    row("unsetenv", "NAME ...", unsetenv, "Removes environment variables."),
    row("user", "NAME", user, "User of the process."),
    row("zero-warning", "", zero_warning, "Warnings refuse the configuration."),
    none("busy-polling", GLOBAL, "…", POLLER),
    none("expose-experimental-directives", GLOBAL, "…", "there are no experimental directives"),
    none("httpclient.resolvers.id", GLOBAL, "…", CLIENT),
    none("httpclient.resolvers.prefer", GLOBAL, "…", CLIENT),
    none("httpclient.ssl.ca-file", GLOBAL, "…", CLIENT),
    none("httpclient.ssl.verify", GLOBAL, "…", CLIENT),
    none("lua-prepend-path", GLOBAL, "…", "Lua is not supported yet"),
    none("maxcompcpuusage", GLOBAL, "…", COMPRESSION),
    none("maxcomprate", GLOBAL, "…", COMPRESSION),
    none("maxzlibmem", GLOBAL, "…", COMPRESSION),
    none("mworker-max-reloads", GLOBAL, "…", "a reload starts no process"),
    none("no-memory-trimming", GLOBAL, "…", INTERNAL),
    none("noepoll", GLOBAL, "…", POLLER),
    none("noevports", GLOBAL, "…", POLLER),
    none("nogetaddrinfo", GLOBAL, "…", "names are always resolved by the system"),
    none("nokqueue", GLOBAL, "…", POLLER),
    none("nopoll", GLOBAL, "…", POLLER),
    none(
        "noreuseport",
        GLOBAL,
        "…",
        "threads share an address with SO_REUSEPORT, and start-up fails if another process listens on it",
    ),
    none("numa-cpu-mapping", GLOBAL, "…", "the kernel schedules the threads"),
    none("pp2-never-send-local", GLOBAL, "…", "PROXY v2 headers in health checks always use the LOCAL command"),
    none("profiling.memory", GLOBAL, "…", INTERNAL),
    none("profiling.tasks", GLOBAL, "…", INTERNAL),
    none("stats bind-process", GLOBAL, "…", "there is only one process"),
    none("thread-group", GLOBAL, "…", "there are no thread groups"),
    none("thread-groups", GLOBAL, "…", "there are no thread groups"),
    none("tune.buffers.limit", GLOBAL, "…", INTERNAL),
    none("tune.buffers.reserve", GLOBAL, "…", INTERNAL),
    none("tune.chksize", GLOBAL, "…", INTERNAL),
    none("tune.comp.maxlevel", GLOBAL, "…", COMPRESSION),
    none("tune.fail-alloc", GLOBAL, "…", INTERNAL),
    none("tune.fd.edge-triggered", GLOBAL, "…", INTERNAL),
    none("tune.idle-pool.shared", GLOBAL, "…", "idle connections stay with the thread that opened them"),
    none("tune.idletimer", GLOBAL, "…", INTERNAL),
    none("tune.listener.multi-queue", GLOBAL, "…", "the kernel spreads connections over the threads"),
    none("tune.lua.forced-yield", GLOBAL, "…", "Lua is not supported yet"),
    none("tune.lua.maxmem", GLOBAL, "…", "Lua is not supported yet"),
    none("tune.lua.service-timeout", GLOBAL, "…", "Lua is not supported yet"),
    none("tune.lua.session-timeout", GLOBAL, "…", "Lua is not supported yet"),
    none("tune.lua.task-timeout", GLOBAL, "…", "Lua is not supported yet"),
    none("tune.maxpollevents", GLOBAL, "…", INTERNAL),
    none("tune.pattern.cache-size", GLOBAL, "…", INTERNAL),
    none(
        "tune.peers.max-updates-at-once",
        GLOBAL,
        "…",
        "each peer gets as many updates at once as its connection takes",
    ),
    none("tune.pipesize", GLOBAL, "…", "pipes are 256 KiB, or what the system allows"),
    none("tune.pool-high-fd-ratio", GLOBAL, "…", "idle connections are bounded by 'pool-max-conn'"),
    none("tune.pool-low-fd-ratio", GLOBAL, "…", "idle connections are bounded by 'pool-max-conn'"),
    none("tune.quic.frontend.conn-tx-buffers.limit", GLOBAL, "…", "it configures QUIC, which is not supported yet"),
    none("tune.quic.frontend.max-idle-timeout", GLOBAL, "…", "it configures QUIC, which is not supported yet"),
    none("tune.quic.frontend.max-streams-bidi", GLOBAL, "…", "it configures QUIC, which is not supported yet"),
    none("tune.quic.retry-threshold", GLOBAL, "…", "it configures QUIC, which is not supported yet"),
    none("tune.rcvbuf.client", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.rcvbuf.server", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.recv_enough", GLOBAL, "…", INTERNAL),
    none("tune.runqueue-depth", GLOBAL, "…", INTERNAL),
    none("tune.sched.low-latency", GLOBAL, "…", INTERNAL),
    none("tune.sndbuf.client", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.sndbuf.server", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.zlib.memlevel", GLOBAL, "…", COMPRESSION),
    none("tune.zlib.windowsize", GLOBAL, "…", COMPRESSION),
    later("51degrees-cache-size", GLOBAL),
    later("51degrees-data-file", GLOBAL),
    later("51degrees-property-name-list", GLOBAL),
    later("51degrees-property-separator", GLOBAL),
    none("cluster-secret", GLOBAL, "SECRET", "it configures QUIC, which is not supported yet"),
    later("deviceatlas-json-file", GLOBAL),
    later("deviceatlas-log-level", GLOBAL),
    later("deviceatlas-properties-cookie", GLOBAL),
    later("deviceatlas-separator", GLOBAL),
    later("lua-load", GLOBAL),
    later("lua-load-per-thread", GLOBAL),
    later("wurfl-cache-size", GLOBAL),
    later("wurfl-data-file", GLOBAL),
    later("wurfl-information-list", GLOBAL),
    later("wurfl-information-list-separator", GLOBAL),
    gone(
        "nbproc",
        GLOBAL,
        "nbproc is not supported any more since HAProxy 2.5. Threads will automatically be used on multi-processor machines if available.",
    ),
];

/// Keywords that should stand once: the first one counts, as in HAProxy.
pub(super) fn again(call: &mut Call<'_, '_>, given: bool) -> bool {
    if !given {
        return false;
    }
    call.warn(0, "already-specified", format!("'{}' already specified. Continuing.", call.name));
    true
}

fn chroot(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.chroot.is_some();
    if let Some(dir) = call.only("a directory as an argument")
        && !again(call, given)
    {
        global.model.chroot = Some(PathBuf::from(dir));
    }
}

fn pidfile(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.pidfile.is_some();
    if let Some(file) = call.only("a file name as an argument")
        && !again(call, given)
    {
        global.model.pidfile = Some(PathBuf::from(file));
    }
}

/// `server-state-file FILE`. What stands behind the file's name is ignored, here and below, as HAProxy does.
fn server_state_file(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" => call.wrong(0, "'server-state-file' expect one argument: a file path.".into()),
        file if !again(call, global.model.server_state_file.is_some()) => {
            global.model.server_state_file = Some(PathBuf::from(file));
        }
        _ => {}
    }
}

/// `server-state-base DIRECTORY`.
fn server_state_base(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" => call.wrong(0, "'server-state-base' expects one argument: a directory path.".into()),
        directory if !again(call, global.model.server_state_base.is_some()) => {
            global.model.server_state_base = Some(PathBuf::from(directory));
        }
        _ => {}
    }
}

/// `<time> as argument`, possibly zero, which means none.
pub(super) fn duration(call: &mut Call<'_, '_>) -> Option<Duration> {
    if call.arg(0).is_empty() {
        call.expects(0, "<time> as argument");
        return None;
    }
    call.time()
}

fn close_spread_time(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.close_spread_time = match call.arg(0) {
        "infinite" => Some(Duration::MAX),
        _ => duration(call),
    };
}

fn hard_stop_after(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.hard_stop_after = duration(call);
}

fn grace(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.grace = duration(call);
}

fn http10_payload(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.http10_payload |= call.at_most(0);
}

fn external_check(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.permits_external_checks |= call.at_most(0);
}

fn insecure_fork(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        global.wants_forks = call.prefix == Prefix::None;
    }
}

fn max_spread_checks(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.max_spread_checks = duration(call);
}

fn daemon(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.daemon |= call.at_most(0);
}

fn quiet(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.quiet |= call.at_most(0);
}

fn zero_warning(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    // Read again when everything is judged, see `load`.
    call.at_most(0);
}

fn master_worker(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" | "no-exit-on-failure" => global.model.master_worker |= call.at_most(1),
        other => {
            let message = format!("'master-worker' only supports 'no-exit-on-failure' option (got '{other}').");
            call.not_one_of(0, message, ["no-exit-on-failure"]);
        }
    }
}

fn default_path(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let origin = PathBuf::from(call.arg(1));
    let choices = [("current", 0), ("config", 1), ("parent", 2), ("origin", 3)];
    match call.choose(call.first, "default-path", &choices) {
        Some(3) if call.arg(1).is_empty() => call.expects(1, "a directory as the argument of 'origin'"),
        Some(kind) if call.at_most(if kind == 3 { 2 } else { 1 }) => {
            call.context.base = match kind {
                0 => DefaultPath::Current,
                1 => DefaultPath::Config,
                2 => DefaultPath::Parent,
                _ => DefaultPath::Origin(origin),
            };
        }
        _ => {}
    }
}

fn description(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.arg(0) {
        "" => call.expects(0, "a string argument"),
        _ => global.model.description = Some(call.rest().join(" ")),
    }
}

fn node(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let name = call.arg(0);
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '.' | '-' | '_');
    if name.is_empty() || !name.chars().all(fits) {
        let message = "'node' requires valid node name - non-empty string with digits(0-9), letters(A-Z, a-z), \
                       dot(.), hyphen(-) or underscode(_).";
        return call.wrong(0, message.into());
    }
    if call.at_most(1) {
        global.model.node = Some(name.into());
    }
}

fn user(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.uid.is_some();
    let name = call.arg(0);
    match call.context.env.user(name) {
        Some(uid) if call.at_most(1) && !again(call, given) => global.model.uid = Some(uid),
        Some(_) => {}
        None => call.error(call.first, "unknown-user", format!("cannot find user id for '{name}'")),
    }
}

fn group(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.gid.is_some();
    let name = call.arg(0);
    match call.context.env.group(name) {
        Some(gid) if call.at_most(1) && !again(call, given) => global.model.gid = Some(gid),
        Some(_) => {}
        None => call.error(call.first, "unknown-group", format!("cannot find group id for '{name}'")),
    }
}

fn uid(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.uid.is_some();
    if let Some(uid) = call.number(0, i64::from(u32::MAX) - 1)
        && !again(call, given)
    {
        global.model.uid = u32::try_from(uid).ok();
    }
}

fn gid(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let given = global.model.gid.is_some();
    if let Some(gid) = call.number(0, i64::from(u32::MAX) - 1)
        && !again(call, given)
    {
        global.model.gid = u32::try_from(gid).ok();
    }
}

fn log(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.prefix == Prefix::No {
        global.model.log.clear();
        if call.args() > 0 {
            call.wrong(0, "log : 'no log' does not expect arguments".into());
        }
    } else if call.arg(0) == "global" {
        call.wrong(0, "log : 'global' is not supported for a global syslog server".into());
    } else if let Some(target) = log_target(call) {
        global.model.log.push(target);
    }
}

fn log_hostname(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    global.model.log_hostname = Some(call.arg(0).into());
}

fn log_tag(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if let Some(tag) = call.only("a tag for use in syslog") {
        global.model.log_tag = Some(tag.into());
    }
}

/// The variables themselves are set while the lines are read; here the arguments are judged.
fn setenv(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    match call.args() {
        0 | 1 => call.expects(call.args(), "a name and a value"),
        _ => {
            call.at_most(2);
        }
    }
}

fn unsetenv(_: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    if call.args() == 0 {
        call.expects(0, "at least one variable name");
    }
}

fn resetenv(_: &mut GlobalDraft, _: &mut Call<'_, '_>) {}

fn unix_bind(global: &mut GlobalDraft, call: &mut Call<'_, '_>) {
    let mut at = call.first;
    while at < call.line.words.len() {
        let value = call.line.word(at + 1);
        match call.line.word(at) {
            "prefix" => global.unix_prefix = value.into(),
            "mode" => match u32::from_str_radix(value, 8) {
                Ok(mode) if mode <= 0o7777 => global.unix_socket.mode = Some(mode),
                _ => call.error(at + 1, "bad-value", format!("'unix-bind' : invalid mode '{value}' (octal expected)")),
            },
            "uid" => {
                global.unix_socket.uid =
                    call.number_at(at + 1, "unix-bind uid", 0, i64::from(u32::MAX) - 1).map(|id| id as u32);
            }
            "gid" => {
                global.unix_socket.gid =
                    call.number_at(at + 1, "unix-bind gid", 0, i64::from(u32::MAX) - 1).map(|id| id as u32);
            }
            "user" => match call.context.env.user(value) {
                Some(id) => global.unix_socket.uid = Some(id),
                None => call.error(at + 1, "unknown-user", format!("'unix-bind' : '{value}' unknown user.")),
            },
            "group" => match call.context.env.group(value) {
                Some(id) => global.unix_socket.gid = Some(id),
                None => call.error(at + 1, "unknown-group", format!("'unix-bind' : '{value}' unknown group.")),
            },
            odd => {
                let message =
                    "'unix-bind' only supports the 'prefix', 'mode', 'uid', 'gid', 'user' and 'group' options.";
                let hint = suggestion(odd, ["prefix", "mode", "uid", "gid", "user", "group"]);
                return call.error_with(at, "bad-value", message.into(), hint);
            }
        }
        at += 2;
    }
}
