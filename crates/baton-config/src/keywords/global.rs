//! The keywords of the `global` section (configuration manual, 3).

use std::path::PathBuf;
use std::time::Duration;

use super::rows::{gone, later, none};
use super::server::tls::defaults as tls;
use super::{Apply, GLOBAL, Keyword, Status, limits, process, stats};
use crate::lower::{Call, DefaultPath, GlobalDraft, Prefix, log_target};

const fn row(
    name: &'static str,
    args: &'static str,
    apply: fn(&mut GlobalDraft, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections: GLOBAL, args, status: Status::Done, doc, apply: Apply::Global(apply) }
}

const VARIABLES: &str = "the number of variables and the length of each are bounded, not their sum";
const POLLER: &str = "Baton has one way to wait for events";
const INTERNAL: &str = "it tunes a part of HAProxy that Baton does not have";
const COMPRESSION: &str = "it belongs to compression, which Baton does not do yet";

pub(crate) static KEYWORDS: &[Keyword] = &[
    row("chroot", "DIR", chroot, "Directory the process locks itself into after start."),
    row(
        "close-spread-time",
        "TIME",
        close_spread_time,
        "Idle connections are closed spread over this time in a soft stop.",
    ),
    row("cpu-map", "[auto:]1/THREADS CPUS...", process::cpu_map, "Processors of the threads."),
    row("daemon", "", daemon, "Go to the background."),
    row("default-path", "current|config|parent|origin DIR", default_path, "Where relative file names start from."),
    row("description", "TEXT", description, "A text about this instance."),
    row("fd-hard-limit", "NUMBER", process::fd_hard_limit, "Most open descriptors, whatever the system allows."),
    row("gid", "NUMBER", gid, "Group id of the process."),
    row("grace", "TIME", grace, "How long to go on accepting after a soft stop was asked for."),
    row("group", "NAME", group, "Group of the process."),
    row("hard-stop-after", "TIME", hard_stop_after, "The longest a soft stop may take."),
    row(
        "insecure-setuid-wanted",
        "",
        process::insecure_setuid_wanted,
        "Programs started by the process may gain rights by their setuid bit.",
    ),
    row("log", "ADDRESS [len N] [format F] [sample R] FACILITY [MAX [MIN]]", log, "A log target for 'log global'."),
    row("log-send-hostname", "[NAME]", log_hostname, "The host name put into log lines."),
    row("log-tag", "TEXT", log_tag, "The program's name in log lines."),
    row("master-worker", "[no-exit-on-failure]", master_worker, "A master process holds the listening sockets."),
    row("max-spread-checks", "TIME", max_spread_checks, "The longest that a first round of checks may be spread over."),
    row("maxconn", "NUMBER", limits::maxconn, "Connections of the whole process."),
    row("maxconnrate", "NUMBER", limits::maxconnrate, "Connections accepted in a second, of the whole process."),
    row("maxpipes", "NUMBER", limits::maxpipes, "Pipes for splicing, of the whole process."),
    row("maxsslconn", "NUMBER", limits::maxsslconn, "TLS connections with clients of the whole process."),
    row("maxsslrate", "NUMBER", limits::maxsslrate, "TLS connections accepted in a second, of the whole process."),
    row("nbthread", "NUMBER", limits::nbthread, "Worker threads."),
    row("nosplice", "", limits::nosplice, "Never splice."),
    row("node", "NAME", node, "The node's name in statistics."),
    row("pidfile", "FILE", pidfile, "Where the process id is written."),
    row("presetenv", "NAME VALUE", setenv, "Sets an environment variable that is not set."),
    row("quiet", "", quiet, "Say nothing at start."),
    row("resetenv", "[NAME ...]", resetenv, "Removes the variables the files have set, except the named ones."),
    row("set-dumpable", "", process::set_dumpable, "Write a core file when the process ends by accident."),
    row("setcap", "NAME[,NAME...]", process::setcap, "Capabilities to keep when the user changes (as in HAProxy 2.9)."),
    row("setenv", "NAME VALUE", setenv, "Sets an environment variable."),
    row("spread-checks", "PERCENT", limits::spread_checks, "Random part of the interval between checks."),
    row("ssl-default-server-ciphers", "NAMES", tls::ciphers, "Cipher suites of TLS 1.2 with servers that say none."),
    row(
        "ssl-default-server-ciphersuites",
        "NAMES",
        tls::ciphersuites,
        "Cipher suites of TLS 1.3 with servers that say none.",
    ),
    row("ssl-default-server-curves", "NAMES", tls::curves, "Groups for the key exchange with servers that say none."),
    row(
        "ssl-default-server-options",
        "[ssl-min-ver V] [ssl-max-ver V] [no-tls-tickets] …",
        tls::options,
        "Versions of TLS with servers that say none.",
    ),
    row("ssl-default-server-sigalgs", "NAMES", tls::sigalgs, "Signature algorithms with servers that say none."),
    row("ssl-server-verify", "none|required", tls::server_verify, "Whether servers without 'verify' are verified."),
    row(
        "stats socket",
        "ADDRESS [level L] [severity-output S] [expose-fd listeners] [bind options]",
        stats::socket,
        "A socket of the runtime API (see [runtime.md](runtime.md)).",
    ),
    row("stats maxconn", "NUMBER", stats::maxconn, "Sessions of the runtime API at once."),
    row("stats timeout", "TIME", stats::timeout, "The longest a session of the runtime API may be silent."),
    row("strict-limits", "", process::strict_limits, "A limit that cannot be had ends the start (the default)."),
    row("tune.bufsize", "BYTES", limits::bufsize, "Size of a buffer, and so the longest message head."),
    row("tune.http.maxhdr", "NUMBER", limits::maxhdr, "Most header fields of a message."),
    row(
        "tune.maxaccept",
        "NUMBER",
        limits::maxaccept,
        "Connections that a socket accepts before other work gets its turn: 64; -1 is no limit.",
    ),
    row("tune.maxrewrite", "BYTES", limits::maxrewrite, "Part of a buffer kept free for added headers."),
    row("uid", "NUMBER", uid, "User id of the process."),
    row("ulimit-n", "NUMBER", limits::ulimit_n, "Limit of open descriptors."),
    row(
        "unix-bind",
        "[prefix P] [mode M] [user U|uid N] [group G|gid N]",
        unix_bind,
        "Defaults of unix sockets to listen on.",
    ),
    row("unsetenv", "NAME ...", unsetenv, "Removes environment variables."),
    row("user", "NAME", user, "User of the process."),
    row("zero-warning", "", zero_warning, "A warning is an error."),
    none("busy-polling", GLOBAL, "…", POLLER),
    none("expose-experimental-directives", GLOBAL, "…", "there are no experimental directives"),
    none("external-check", GLOBAL, "…", "it only permits checks by a program, which are refused where they are used"),
    none("h2-workaround-bogus-websocket-clients", GLOBAL, "…", "it belongs to HTTP/2, which Baton does not do yet"),
    none("httpclient.resolvers.id", GLOBAL, "…", INTERNAL),
    none("httpclient.resolvers.prefer", GLOBAL, "…", INTERNAL),
    none("httpclient.ssl.ca-file", GLOBAL, "…", INTERNAL),
    none("httpclient.ssl.verify", GLOBAL, "…", INTERNAL),
    none("insecure-fork-wanted", GLOBAL, "…", "Baton starts no programs while it serves"),
    none("localpeer", GLOBAL, "NAME", "there are no peers"),
    none("lua-prepend-path", GLOBAL, "…", "there are no scripts to find"),
    none("maxcompcpuusage", GLOBAL, "…", COMPRESSION),
    none("maxcomprate", GLOBAL, "…", COMPRESSION),
    none("maxzlibmem", GLOBAL, "…", COMPRESSION),
    none("mworker-max-reloads", GLOBAL, "…", "a reload starts no process here"),
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
        "the threads share an address by SO_REUSEPORT, and a start refuses one that another process listens on",
    ),
    none("numa-cpu-mapping", GLOBAL, "…", "the kernel places the threads"),
    none("pp2-never-send-local", GLOBAL, "…", "PROXY headers of version 2 in health checks always say LOCAL"),
    none("profiling.memory", GLOBAL, "…", INTERNAL),
    none("profiling.tasks", GLOBAL, "…", INTERNAL),
    none("server-state-base", GLOBAL, "…", "states are not read from files"),
    none("server-state-file", GLOBAL, "…", "states are not read from files"),
    none("stats bind-process", GLOBAL, "…", "there is one process"),
    none("thread-group", GLOBAL, "…", "threads are not grouped"),
    none("thread-groups", GLOBAL, "…", "threads are not grouped"),
    none("tune.buffers.limit", GLOBAL, "…", INTERNAL),
    none("tune.buffers.reserve", GLOBAL, "…", INTERNAL),
    none("tune.chksize", GLOBAL, "…", INTERNAL),
    none("tune.comp.maxlevel", GLOBAL, "…", COMPRESSION),
    none("tune.fail-alloc", GLOBAL, "…", INTERNAL),
    none("tune.fd.edge-triggered", GLOBAL, "…", INTERNAL),
    none("tune.h2.header-table-size", GLOBAL, "…", "it belongs to HTTP/2, which Baton does not do yet"),
    none("tune.h2.initial-window-size", GLOBAL, "…", "it belongs to HTTP/2, which Baton does not do yet"),
    none("tune.h2.max-concurrent-streams", GLOBAL, "…", "it belongs to HTTP/2, which Baton does not do yet"),
    none("tune.h2.max-frame-size", GLOBAL, "…", "it belongs to HTTP/2, which Baton does not do yet"),
    none("tune.http.cookielen", GLOBAL, "…", "it belongs to cookie capture, which Baton does not do yet"),
    none("tune.http.logurilen", GLOBAL, "…", "a URI in a log line is bounded by 'len' of the target only"),
    none("tune.idle-pool.shared", GLOBAL, "…", "idle connections belong to the core that opened them"),
    none("tune.idletimer", GLOBAL, "…", INTERNAL),
    none("tune.listener.multi-queue", GLOBAL, "…", "the kernel spreads connections over the threads"),
    none("tune.lua.forced-yield", GLOBAL, "…", "there are no scripts"),
    none("tune.lua.maxmem", GLOBAL, "…", "there are no scripts"),
    none("tune.lua.service-timeout", GLOBAL, "…", "there are no scripts"),
    none("tune.lua.session-timeout", GLOBAL, "…", "there are no scripts"),
    none("tune.lua.task-timeout", GLOBAL, "…", "there are no scripts"),
    none("tune.maxpollevents", GLOBAL, "…", INTERNAL),
    none("tune.pattern.cache-size", GLOBAL, "…", INTERNAL),
    none("tune.peers.max-updates-at-once", GLOBAL, "…", "it belongs to peers, which Baton does not do yet"),
    none("tune.pipesize", GLOBAL, "…", "a pipe has 256 KiB, or what the system allows"),
    none("tune.pool-high-fd-ratio", GLOBAL, "…", "idle connections are bounded by 'pool-max-conn'"),
    none("tune.pool-low-fd-ratio", GLOBAL, "…", "idle connections are bounded by 'pool-max-conn'"),
    none("tune.quic.frontend.conn-tx-buffers.limit", GLOBAL, "…", "it belongs to QUIC, which Baton does not do yet"),
    none("tune.quic.frontend.max-idle-timeout", GLOBAL, "…", "it belongs to QUIC, which Baton does not do yet"),
    none("tune.quic.frontend.max-streams-bidi", GLOBAL, "…", "it belongs to QUIC, which Baton does not do yet"),
    none("tune.quic.retry-threshold", GLOBAL, "…", "it belongs to QUIC, which Baton does not do yet"),
    none("tune.rcvbuf.client", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.rcvbuf.server", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.recv_enough", GLOBAL, "…", INTERNAL),
    none("tune.runqueue-depth", GLOBAL, "…", INTERNAL),
    none("tune.sched.low-latency", GLOBAL, "…", INTERNAL),
    none("tune.sndbuf.client", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.sndbuf.server", GLOBAL, "…", "the kernel sizes socket buffers"),
    none("tune.vars.check-max-size", GLOBAL, "…", VARIABLES),
    none("tune.vars.global-max-size", GLOBAL, "…", VARIABLES),
    none("tune.vars.proc-max-size", GLOBAL, "…", VARIABLES),
    none("tune.vars.reqres-max-size", GLOBAL, "…", VARIABLES),
    none("tune.vars.sess-max-size", GLOBAL, "…", VARIABLES),
    none("tune.vars.txn-max-size", GLOBAL, "…", VARIABLES),
    none("tune.zlib.memlevel", GLOBAL, "…", COMPRESSION),
    none("tune.zlib.windowsize", GLOBAL, "…", COMPRESSION),
    later("51degrees-cache-size", GLOBAL),
    later("51degrees-data-file", GLOBAL),
    later("51degrees-property-name-list", GLOBAL),
    later("51degrees-property-separator", GLOBAL),
    later("cluster-secret", GLOBAL),
    later("deviceatlas-json-file", GLOBAL),
    later("deviceatlas-log-level", GLOBAL),
    later("deviceatlas-properties-cookie", GLOBAL),
    later("deviceatlas-separator", GLOBAL),
    later("h1-accept-payload-with-any-method", GLOBAL),
    later("h1-case-adjust", GLOBAL),
    later("h1-case-adjust-file", GLOBAL),
    later("lua-load", GLOBAL),
    later("lua-load-per-thread", GLOBAL),
    later("maxsessrate", GLOBAL),
    later("set-var", GLOBAL),
    later("set-var-fmt", GLOBAL),
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

/// `<time> as argument`, possibly zero, which means none.
fn duration(call: &mut Call<'_, '_>) -> Option<Duration> {
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
        other => call.wrong(0, format!("'master-worker' only supports 'no-exit-on-failure' option (got '{other}').")),
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
            _ => {
                let message =
                    "'unix-bind' only supports the 'prefix', 'mode', 'uid', 'gid', 'user' and 'group' options.";
                return call.error(at, "bad-value", message.into());
            }
        }
        at += 2;
    }
}
