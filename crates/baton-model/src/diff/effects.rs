//! The fields of a model, a row each: how two values of it are compared, and what follows from a change of it besides its own setting.
//! [`diff`](super::diff()) compares by these rows, `plan` prints what they say, and the appliers (pools of server connections, health
//! checks, listening addresses) ask them what to do. A field that is new does not compile until it has a row, or it is said where else it is compared.

use super::words::Words;
use crate::{
    Bind, BindOptions, CheckSettings, Direct, Global, GlobalTls, IpvsTuning, Level, LogTarget, Process, Proxy, Server,
    ServerProtocol, Stats, TcpOptions, Timeouts,
};

/// What a change does besides its own setting.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Effects {
    /// Idle connections to the server are closed, since they were opened by the setting before.
    pub reconnects: bool,
    /// The health check starts again, with the counters that it had.
    pub restarts_check: bool,
    /// A socket that is open cannot follow: a reload that keeps the address is refused.
    pub needs_socket: bool,
    /// It takes effect with the next process.
    pub is_pending: bool,
    /// Connections that feel it.
    pub impact: Impact,
}

/// Which connections feel a change, in the order of how much they do. All others end by the settings they began with.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum Impact {
    /// None.
    #[default]
    Nobody,
    /// Sessions that are bound to the server by a cookie go to another one.
    BoundSessions,
    /// In-flight requests to the server finish, its idle connections are closed.
    ServerConnections,
    /// Clients that come to the address from now on.
    NewClients,
    /// Connections of which the kernel passes the packets on no more.
    KernelConnections,
    /// Connections of the mode before end with their current request or tunnel.
    ConnectionsOfMode,
    /// What the removal of the section does.
    Section,
}

impl Effects {
    /// Nothing follows.
    pub const NONE: Effects = Effects {
        reconnects: false,
        restarts_check: false,
        needs_socket: false,
        is_pending: false,
        impact: Impact::Nobody,
    };
    /// Server connections are opened anew.
    pub const RECONNECTS: Effects = Effects { reconnects: true, impact: Impact::ServerConnections, ..Effects::NONE };
    const RECHECKS: Effects = Effects { restarts_check: true, ..Effects::NONE };
    const RECONNECTS_AND_RECHECKS: Effects = Effects { restarts_check: true, ..Effects::RECONNECTS };
    const NEEDS_SOCKET: Effects = Effects { needs_socket: true, ..Effects::NONE };
    const PENDING: Effects = Effects { is_pending: true, ..Effects::NONE };

    const fn on(impact: Impact) -> Effects {
        Effects { impact, ..Effects::NONE }
    }

    /// What both do.
    pub fn with(self, other: Effects) -> Effects {
        Effects {
            reconnects: self.reconnects || other.reconnects,
            restarts_check: self.restarts_check || other.restarts_check,
            needs_socket: self.needs_socket || other.needs_socket,
            is_pending: self.is_pending || other.is_pending,
            impact: self.impact.max(other.impact),
        }
    }
}

use Effects as E;

/// A field, or a direction of its change.
pub(super) struct FieldRow<T: 'static> {
    pub(super) word: &'static str,
    pub(super) differs: fn(&T, &T) -> bool,
    /// Its value as text; empty: it is too large to be shown.
    pub(super) text: fn(&T) -> String,
    pub(super) effects: Effects,
}

/// A setting of `global`, which is compared as text.
pub(super) struct SettingRow<T: 'static> {
    pub(super) word: &'static str,
    pub(super) text: fn(&T) -> String,
    pub(super) effects: Effects,
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// The keyword, or the family of keywords.
    pub word: &'static str,
    /// The old value; empty, as the new one, where they are too large to be shown.
    pub from: String,
    /// The new value.
    pub to: String,
    /// What follows.
    pub effects: Effects,
}

/// The text of a value that is too large to be shown.
fn unshown<T>(_: &T) -> String {
    String::new()
}

/// The text of a field.
macro_rules! shown {
    ($type:ident $field:ident) => {
        |value: &$type| value.$field.words()
    };
    ($type:ident $field:ident $show:expr) => {
        $show
    };
}

/// The rows of a type. Every field of it stands in one of the lists: the fields with a row, and those that are compared `elsewhere`.
/// `also` are rows for one direction of a change, or for parts of a field.
macro_rules! rows {
    ($type:ident; $($field:ident $(by $show:expr)? => $word:literal $effects:expr),* $(,)?;
     also $($extra:literal $when:expr => $follows:expr),* $(,)?; elsewhere $($other:ident),* $(,)?) => {{
        const _: fn(&$type) = |value| {
            let $type { $($field: _,)* $($other: _,)* } = value;
        };
        &[
            $(FieldRow {
                word: $word,
                differs: |old, new| old.$field != new.$field,
                text: shown!($type $field $($show)?),
                effects: $effects,
            },)*
            $(FieldRow { word: $extra, differs: $when, text: unshown, effects: $follows },)*
        ]
    }};
}

/// The rows of a part of `global`, as [`rows`].
macro_rules! settings {
    ($type:ident; $($field:ident => $word:literal $effects:expr),* $(,)?;
     also $($extra:literal $text:expr => $follows:expr),* $(,)?; elsewhere $($other:ident),* $(,)?) => {{
        const _: fn(&$type) = |value| {
            let $type { $($field: _,)* $($other: _,)* } = value;
        };
        &[
            $(SettingRow { word: $word, text: |part| part.$field.words(), effects: $effects },)*
            $(SettingRow { word: $extra, text: $text, effects: $follows },)*
        ]
    }};
}

/// A server. Its numeric id counts only where it places the server on a consistent hash ring.
pub(super) static SERVER: &[FieldRow<Server>] = rows! { Server;
    address => "address" E::RECONNECTS_AND_RECHECKS,
    resolution by unshown => "resolvers" E::NONE,
    weight => "weight" E::NONE,
    weight_by_dns => "weight by DNS" E::NONE,
    named_by_operator => "name by operators" E::NONE,
    backup => "backup" E::NONE,
    disabled => "disabled" E::NONE,
    maxconn => "maxconn" E::NONE,
    minconn => "minconn" E::NONE,
    maxqueue => "maxqueue" E::NONE,
    cookie => "cookie" E::NONE,
    send_proxy => "send-proxy" E::RECONNECTS_AND_RECHECKS,
    source_address by unshown => "source" E::RECONNECTS_AND_RECHECKS,
    slowstart => "slowstart" E::NONE,
    check by |server| checks(&server.check) => "check" E::RECHECKS,
    agent by |server| agent(server) => "agent-check" E::NONE,
    socks4 by |server| socks4(server) => "socks4" E::RECONNECTS_AND_RECHECKS,
    pool_max_conn => "pool-max-conn" E::NONE,
    pool_purge_delay => "pool-purge-delay" E::NONE,
    max_reuse => "max-reuse" E::NONE,
    // Only what opens a connection needs to know.
    tfo => "tfo" E::NONE,
    tcp_user_timeout_ms => "tcp-ut" E::RECONNECTS_AND_RECHECKS,
    proto => "proto" E::RECONNECTS,
    websockets => "ws" E::NONE,
    redir => "redir" E::NONE,
    non_stick => "non-stick" E::NONE,
    tls by unshown => "ssl" E::RECONNECTS_AND_RECHECKS,
    forwarding by unshown => "forwarding" E::NONE;
    also "disabled" |old, new| new.disabled && !old.disabled => E::on(Impact::BoundSessions);
    elsewhere name, id, line, written, tls_ready, starts_at_last,
};

/// A proxy. Its numeric id is left out: without `id` it follows the order of the file, and a section that moved up a place is not a
/// change to it.
pub(super) static PROXY: &[FieldRow<Proxy>] = rows! { Proxy;
    mode => "mode" E::on(Impact::ConnectionsOfMode),
    disabled => "disabled" E::NONE,
    maxconn => "maxconn" E::NONE,
    backlog => "backlog" E::NONE,
    rate_limit => "rate-limit" E::NONE,
    default_backend => "default_backend" E::NONE,
    rules by unshown => "rules" E::NONE,
    http by unshown => "http options" E::NONE,
    logging by unshown => "log" E::NONE,
    balance => "balance" E::NONE,
    email_alert by unshown => "email-alert" E::NONE,
    cookie by unshown => "cookie" E::NONE,
    retries => "retries" E::NONE,
    retry_on => "retry-on" E::NONE,
    fullconn => "fullconn" E::NONE,
    check by unshown => "check" E::RECHECKS,
    // The files are read at the start of a process.
    state_file => "load-server-state-from-file" E::NONE,
    state_file_name => "server-state-file-name" E::NONE,
    stats by unshown => "stats" E::NONE,
    table by unshown => "stick-table" E::NONE,
    description => "description" E::NONE,
    // Connections that are open go on as they were opened.
    source_address by unshown => "source" E::RECHECKS;
    also "disabled" |old, new| new.disabled && !old.disabled => E::on(Impact::Section);
    elsewhere name, id, role, binds, servers, timeouts, tcp, direct, source, lines,
};

/// The timeouts of a proxy.
pub(super) static TIMEOUTS: &[FieldRow<Timeouts>] = rows! { Timeouts;
    client => "timeout client" E::NONE,
    server => "timeout server" E::NONE,
    connect => "timeout connect" E::RECHECKS,
    http_request => "timeout http-request" E::NONE,
    http_keep_alive => "timeout http-keep-alive" E::NONE,
    queue => "timeout queue" E::NONE,
    tunnel => "timeout tunnel" E::NONE,
    client_fin => "timeout client-fin" E::NONE,
    server_fin => "timeout server-fin" E::NONE,
    check => "timeout check" E::RECHECKS,
    tarpit => "timeout tarpit" E::NONE;
    also; elsewhere
};

/// The options of a proxy for both modes.
pub(super) static TCP: &[FieldRow<TcpOptions>] = rows! { TcpOptions;
    client_keepalive => "option clitcpka" E::NONE,
    server_keepalive => "option srvtcpka" E::RECHECKS,
    abort_on_close => "option abortonclose" E::NONE,
    no_linger => "option nolinger" E::NONE,
    all_backups => "option allbackups" E::NONE,
    prefer_last_server => "option prefer-last-server" E::NONE,
    persist => "option persist" E::NONE,
    rdp_cookie => "persist rdp-cookie" E::NONE,
    redispatch by unshown => "option redispatch" E::NONE,
    independent_streams => "option independent-streams" E::NONE,
    splice_auto => "option splice-auto" E::NONE,
    splice_request => "option splice-request" E::NONE,
    splice_response => "option splice-response" E::NONE,
    socket_stats => "option socket-stats" E::NONE;
    also; elsewhere
};

/// The settings of `mode direct`.
pub(super) static DIRECT: &[FieldRow<Direct>] = rows! { Direct;
    engine by unshown => "engine" E::NONE,
    on_exit by unshown => "on-exit" E::NONE,
    manage_vip by unshown => "manage-vip" E::NONE,
    persistence by unshown => "stick" E::NONE,
    vip_check => "option direct-vip-check" E::RECHECKS,
    scheduler by unshown => "balance" E::NONE,
    hash_port by unshown => "balance" E::NONE,
    fallback by unshown => "balance" E::NONE;
    also; elsewhere places,
};

/// A listening address besides its options.
pub(super) static BIND: &[FieldRow<Bind>] = rows! { Bind;
    name => "name" E::NONE,
    id => "id" E::NONE;
    also; elsewhere address, options, source,
};

/// The options of a listening address. By `interface` and `namespace` it is another address.
pub(super) static BIND_OPTIONS: &[FieldRow<BindOptions>] = rows! { BindOptions;
    accept_proxy => "accept-proxy" E::NONE,
    accept_netscaler => "accept-netscaler-cip" E::NONE,
    backlog => "backlog" E::NONE,
    maxconn => "maxconn" E::NONE,
    socket by unshown => "mode" E::NONE,
    transparent => "transparent" E::NEEDS_SOCKET,
    v6only => "v4v6/v6only" E::NEEDS_SOCKET,
    defer_accept => "defer-accept" E::NONE,
    tfo => "tfo" E::NONE,
    mss => "mss" E::NONE,
    tcp_user_timeout_ms => "tcp-ut" E::NONE,
    shards => "shards" E::NONE,
    tls by unshown => "ssl" E::NONE,
    proto => "proto" E::NONE;
    also "tfo" |old, new| old.tfo && !new.tfo => E::NEEDS_SOCKET,
    "mss" |old, new| old.mss.is_some() && new.mss.is_none() => E::NEEDS_SOCKET;
    elsewhere interface, namespace,
};

/// The `global` section.
pub(super) static GLOBAL: &[SettingRow<Global>] = settings! { Global;
    daemon => "daemon" E::PENDING,
    quiet => "quiet" E::PENDING,
    master_worker => "master-worker" E::PENDING,
    nbthread => "nbthread" E::PENDING,
    maxconn => "maxconn" E::NONE,
    maxconnrate => "maxconnrate" E::NONE,
    maxsessrate => "maxsessrate" E::NONE,
    maxsslconn => "maxsslconn" E::NONE,
    maxsslrate => "maxsslrate" E::NONE,
    maxpipes => "maxpipes" E::NONE,
    nosplice => "nosplice" E::NONE,
    ulimit_n => "ulimit-n" E::PENDING,
    uid => "user" E::PENDING,
    gid => "group" E::PENDING,
    chroot => "chroot" E::PENDING,
    pidfile => "pidfile" E::PENDING,
    node => "node" E::NONE,
    description => "description" E::NONE,
    hard_stop_after => "hard-stop-after" E::NONE,
    grace => "grace" E::NONE,
    close_spread_time => "close-spread-time" E::NONE,
    spread_checks => "spread-checks" E::RECHECKS,
    max_spread_checks => "max-spread-checks" E::NONE,
    log_tag => "log-tag" E::NONE,
    log_hostname => "log-send-hostname" E::NONE,
    bufsize => "tune.bufsize" E::PENDING,
    maxrewrite => "tune.maxrewrite" E::NONE,
    maxhdr => "tune.http.maxhdr" E::NONE,
    http10_payload => "h1-accept-payload-with-any-method" E::NONE,
    logged_line_len => "tune.http.logurilen" E::NONE,
    captured_cookie_len => "tune.http.cookielen" E::NONE,
    stick_counters => "tune.stick-counters" E::NONE,
    server_state_file => "server-state-file" E::PENDING,
    server_state_base => "server-state-base" E::PENDING,
    xdp_connections => "tune.xdp.connections" E::NONE;
    also "log" |global| logs(&global.log) => E::NONE,
    "tune.maxaccept" |global| accepts(global.maxaccept) => E::NONE,
    "tune.h2.fe.glitches-threshold" |global| global.http2.glitches_max.words() => E::NONE,
    "tune.handover" |global| (!global.keeps_connections).words() => E::NONE,
    "tune.handover.patience" |global| global.handover_patience.words() => E::NONE,
    "tune.h2.header-table-size" |global| global.http2.header_table_size.words() => E::NONE,
    "tune.h2.initial-window-size" |global| global.http2.initial_window_size.words() => E::NONE,
    "tune.h2.max-concurrent-streams" |global| global.http2.max_concurrent_streams.words() => E::NONE,
    "tune.h2.max-frame-size" |global| global.http2.max_frame_size.words() => E::NONE,
    "tune.h2.be.glitches-threshold" |global| global.http2.server_glitches_max.words() => E::NONE,
    "tune.h2.be.initial-window-size" |global| global.http2.server_initial_window_size.words() => E::NONE,
    "tune.h2.be.max-concurrent-streams" |global| global.http2.server_max_concurrent_streams.words() => E::NONE,
    "h2-workaround-bogus-websocket-clients" |global| global.http2.no_websockets.words() => E::NONE,
    "tune.vars.global-max-size" |global| global.variable_limits.global.words() => E::NONE,
    "tune.vars.proc-max-size" |global| global.variable_limits.process.words() => E::NONE,
    "tune.vars.sess-max-size" |global| global.variable_limits.session.words() => E::NONE,
    "tune.vars.txn-max-size" |global| global.variable_limits.transaction.words() => E::NONE,
    "tune.vars.check-max-size" |global| global.variable_limits.check.words() => E::NONE,
    "tune.vars.reqres-max-size" |global| global.variable_limits.message.words() => E::NONE,
    "set-var" |global| variables(&global.variables) => E::NONE;
    elsewhere log, maxaccept, keeps_connections, handover_patience, variable_limits, variables, process, stats, tls, ipvs, http2, lines,
};

/// What is done once, when a process starts.
static PROCESS: &[SettingRow<Process>] = settings! { Process;
    strict_limits => "strict-limits" E::PENDING,
    fd_hard_limit => "fd-hard-limit" E::PENDING,
    cpu_map => "cpu-map" E::PENDING,
    capabilities => "setcap" E::PENDING,
    dumpable => "set-dumpable" E::PENDING,
    may_gain_rights => "insecure-setuid-wanted" E::PENDING;
    also; elsewhere
};

/// The runtime API.
static STATS: &[SettingRow<Stats>] = settings! { Stats;
    timeout => "stats timeout" E::NONE,
    maxconn => "stats maxconn" E::NONE;
    also "stats socket" sockets => E::NONE;
    elsewhere sockets,
};

/// What holds for handshakes after the change. `ca-base` is part of the paths that it changes, and what servers have by default is part of
/// the servers that it changes.
static TLS: &[SettingRow<GlobalTls>] = settings! { GlobalTls;
    crt_base => "crt-base" E::NONE,
    extra => "ssl-load-extra-files" E::NONE,
    issuers_chain_path => "issuers-chain-path" E::NONE,
    skip_self_issued_ca => "ssl-skip-self-issued-ca" E::NONE,
    cache_size => "tune.ssl.cachesize" E::NONE,
    lifetime_s => "tune.ssl.lifetime" E::NONE,
    max_record => "tune.ssl.maxrecord" E::NONE,
    capture_buffer => "tune.ssl.capture-buffer-size" E::NONE;
    also; elsewhere ca_base, server_verify_none, server_defaults,
};

/// What the kernel's IPVS has once for all services.
static IPVS: &[SettingRow<IpvsTuning>] = settings! { IpvsTuning;
    timeout_tcp => "tune.ipvs.timeout-tcp" E::NONE,
    timeout_tcpfin => "tune.ipvs.timeout-tcpfin" E::NONE,
    timeout_udp => "tune.ipvs.timeout-udp" E::NONE,
    expire_nodest_conn => "tune.ipvs.expire-nodest-conn" E::NONE,
    expire_quiescent_template => "tune.ipvs.expire-quiescent-template" E::NONE,
    sloppy_tcp => "tune.ipvs.sloppy-tcp" E::NONE,
    sync_master => "tune.ipvs.sync-master" E::NONE,
    sync_backup => "tune.ipvs.sync-backup" E::NONE;
    also; elsewhere
};

/// What differs between two values, and what follows from all of it.
#[derive(Debug, Default)]
pub(super) struct Differences {
    pub(super) words: Vec<&'static str>,
    pub(super) fields: Vec<FieldChange>,
    pub(super) effects: Effects,
}

impl Differences {
    /// Notes in which of these fields two values differ.
    pub(super) fn look<T>(&mut self, rows: &[FieldRow<T>], old: &T, new: &T) {
        for row in rows.iter().filter(|row| (row.differs)(old, new)) {
            if !self.words.contains(&row.word) {
                self.words.push(row.word);
            }
            let (from, to) = ((row.text)(old), (row.text)(new));
            match self.fields.iter_mut().find(|field| field.word == row.word && (from == to || field.from == field.to))
            {
                // Another part of the same, or one direction of its change.
                Some(known) => {
                    known.effects = known.effects.with(row.effects);
                    if from != to {
                        (known.from, known.to) = (from, to);
                    }
                }
                None => self.fields.push(FieldChange { word: row.word, from, to, effects: row.effects }),
            }
            self.effects = self.effects.with(row.effects);
        }
    }
}

/// What differs in a proxy itself.
pub(super) fn compare_proxies(old: &Proxy, new: &Proxy) -> Differences {
    let mut found = Differences::default();
    found.look(PROXY, old, new);
    found.look(TIMEOUTS, &old.timeouts, &new.timeouts);
    found.look(TCP, &old.tcp, &new.tcp);
    // That the mode itself differs says more.
    if let (Some(old), Some(new)) = (&old.direct, &new.direct) {
        found.look(DIRECT, old, new);
    }
    found
}

/// What differs in a server of a backend.
pub(super) fn compare_servers(backend: &Proxy, old: &Server, new: &Server) -> Differences {
    let mut found = Differences::default();
    found.look(SERVER, old, new);
    if old.id != new.id && backend.balance.hash.consistent {
        found.words.push("id");
    }
    found
}

/// The fields in which a proxy itself differs from another one.
pub fn proxy_fields(old: &Proxy, new: &Proxy) -> Vec<FieldChange> {
    compare_proxies(old, new).fields
}

/// The fields in which a server differs from another one.
pub fn server_fields(old: &Server, new: &Server) -> Vec<FieldChange> {
    let mut found = Differences::default();
    found.look(SERVER, old, new);
    found.fields
}

/// The fields in which a listening address differs.
pub fn bind_fields(old: &Bind, new: &Bind) -> Vec<FieldChange> {
    let mut found = Differences::default();
    found.look(BIND, old, new);
    found.look(BIND_OPTIONS, &old.options, &new.options);
    found.fields
}

/// Whether connections that were opened by the one are not to be used for the other.
pub fn reconnects(old: &Server, new: &Server) -> bool {
    SERVER.iter().any(|row| row.effects.reconnects && (row.differs)(old, new))
}

/// By what connections to a server are opened, as text for another process: connections that were opened by the same may be used for each
/// other.
pub fn connection_terms(server: &Server) -> String {
    let rows = SERVER.iter().filter(|row| row.effects.reconnects);
    let mut terms: Vec<String> = rows.map(|row| format!("{}={}", row.word, (row.text)(server))).collect();
    // Those that the plan does not show.
    terms.push(format!("{:?}", server.source_address));
    terms.push(format!("{:?}", server.tls.is_some()));
    terms.join(" ")
}

/// The option of a listening address that an open socket cannot follow; `None`: it can follow all that differs.
pub fn needs_socket(old: &BindOptions, new: &BindOptions) -> Option<&'static str> {
    BIND_OPTIONS.iter().find(|row| row.effects.needs_socket && (row.differs)(old, new)).map(|row| row.word)
}

/// Whether a server's check has to start again: backend and server, before and after.
pub fn restarts_check(old: (&Proxy, &Server), new: (&Proxy, &Server)) -> bool {
    fn any<T>(rows: &[FieldRow<T>], old: &T, new: &T) -> bool {
        rows.iter().any(|row| row.effects.restarts_check && (row.differs)(old, new))
    }
    let ((old, before), (new, after)) = (old, new);
    let direct = || old.direct.as_deref().zip(new.direct.as_deref());
    any(SERVER, before, after)
        || any(PROXY, old, new)
        || any(TIMEOUTS, &old.timeouts, &new.timeouts)
        || any(TCP, &old.tcp, &new.tcp)
        || direct().is_some_and(|(old, new)| any(DIRECT, old, new))
}

/// Notes settings of `global` with their texts before and after.
pub(super) fn compare_globals(
    old: &Global,
    new: &Global,
    note: &mut impl FnMut(&'static str, String, String, Effects),
) {
    fn look<T>(rows: &[SettingRow<T>], old: &T, new: &T, note: &mut impl FnMut(&'static str, String, String, Effects)) {
        for row in rows {
            let (from, to) = ((row.text)(old), (row.text)(new));
            if from != to {
                note(row.word, from, to, row.effects);
            }
        }
    }
    look(GLOBAL, old, new, note);
    look(PROCESS, &old.process, &new.process, note);
    look(STATS, &old.stats, &new.stats, note);
    look(TLS, &old.tls, &new.tls, note);
    look(IPVS, &old.ipvs, &new.ipvs, note);
}

/// `tune.maxaccept` as it is written.
fn accepts(limit: Option<u32>) -> String {
    if limit == Some(u32::MAX) { "-1".into() } else { limit.words() }
}

/// What a server's line says of its checks.
fn checks(check: &CheckSettings) -> String {
    let mut words = vec![if check.enabled { "check".to_owned() } else { "no-check".to_owned() }];
    words.push(format!("inter {}", check.inter.words()));
    let mut also = |word: &str, value: Option<String>| words.extend(value.map(|value| format!("{word} {value}")));
    also("fastinter", check.fastinter.map(|time| time.words()));
    also("downinter", check.downinter.map(|time| time.words()));
    also("rise", Some(check.rise.to_string()));
    also("fall", Some(check.fall.to_string()));
    also("addr", check.addr.as_ref().map(ToString::to_string));
    also("port", check.port.map(|port| port.to_string()));
    also("check-proto", check.proto.map(|proto| if proto == ServerProtocol::H2 { "h2" } else { "h1" }.to_owned()));
    also("track", check.track.clone());
    words.join(" ")
}

/// What a server's line says of its agent.
fn agent(server: &Server) -> String {
    let Some(agent) = server.agent() else { return "no-agent-check".into() };
    let mut words = vec![format!("agent-check agent-inter {}", agent.inter.words())];
    words.extend(agent.addr.map(|addr| format!("agent-addr {addr}")));
    words.extend(agent.port.map(|port| format!("agent-port {port}")));
    words.join(" ")
}

/// The proxy on the way to a server.
fn socks4(server: &Server) -> String {
    server.socks4.map_or("unset".into(), |address| address.to_string())
}

/// `log` lines without their first word.
fn logs(targets: &[LogTarget]) -> String {
    let one = |target: &LogTarget| {
        let place = &target.address;
        let format = if target.format.is_empty() { String::new() } else { format!(" format {}", target.format) };
        let sample = target.sample.as_ref().map(|sample| format!(" sample {sample}")).unwrap_or_default();
        let (Level(max), Level(min)) = (target.max, target.min);
        format!("{place} len {}{format}{sample} facility {} levels {min} to {max}", target.len, target.facility.0)
    };
    match targets {
        [] => "unset".into(),
        some => some.iter().map(one).collect::<Vec<_>>().join(", "),
    }
}

/// Variables of the process as lines set them.
fn variables(lines: &[(String, String)]) -> String {
    match lines {
        [] => "unset".into(),
        some => some.iter().map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", "),
    }
}

/// The sockets of the runtime API in a line.
fn sockets(stats: &Stats) -> String {
    match stats.sockets.is_empty() {
        true => "unset".into(),
        false => stats.sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{AdminState, EffectiveServer, Role};

    #[test]
    fn what_follows_from_both_follows() {
        let both = E::RECONNECTS.with(E::RECHECKS).with(E::on(Impact::BoundSessions));
        assert_eq!(both, E::RECONNECTS_AND_RECHECKS);
    }

    /// Every row says who feels it, in agreement with itself.
    #[test]
    fn rows_agree_with_themselves() {
        let all = SERVER.iter().map(|row| (row.word, row.effects));
        let all = all.chain(PROXY.iter().map(|row| (row.word, row.effects)));
        let all = all.chain(BIND_OPTIONS.iter().map(|row| (row.word, row.effects)));
        let all = all.chain(GLOBAL.iter().map(|row| (row.word, row.effects)));
        for (word, effects) in all {
            assert_eq!(effects.reconnects, effects.impact == Impact::ServerConnections, "{word}");
            assert!(!effects.is_pending || effects == E::PENDING, "{word} is pending and yet does something");
        }
    }

    #[test]
    fn a_field_that_an_operator_overrides_touches_neither_connection_nor_check() {
        let old = Server::new("s", 1, None);
        let new = Server { weight: 7, disabled: true, ..old.clone() };
        assert_ne!(EffectiveServer::of(&old), EffectiveServer::of(&new));
        assert_eq!(EffectiveServer::of(&new).admin, AdminState { maintenance: true, drain: false });
        let proxy = Proxy::new("b", Role::Backend);
        let found = compare_servers(&proxy, &old, &new);
        assert_eq!((found.words, found.effects), (vec!["weight", "disabled"], E::on(Impact::BoundSessions)));
        assert!(!reconnects(&old, &new) && !restarts_check((&proxy, &old), (&proxy, &new)));
    }

    #[test]
    fn only_what_a_check_depends_on_restarts_it() {
        let server = Server::new("s", 1, None);
        let proxy = Proxy::new("b", Role::Backend);
        let restarts = |change: fn(&mut Proxy)| {
            let mut new = proxy.clone();
            change(&mut new);
            assert!(!compare_proxies(&proxy, &new).words.is_empty());
            restarts_check((&proxy, &server), (&new, &server))
        };
        assert!(restarts(|proxy| proxy.timeouts.check = Some(Duration::from_secs(9))));
        assert!(restarts(|proxy| proxy.tcp.server_keepalive = true));
        assert!(!restarts(|proxy| proxy.timeouts.client = Some(Duration::from_secs(9))));
        assert!(!restarts(|proxy| proxy.tcp.persist = true));
    }
}
