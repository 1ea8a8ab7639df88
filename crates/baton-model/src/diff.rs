//! What changes between two models, as a value: `plan` prints it, `reload` applies it.

mod words;

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use self::words::Words;
use crate::{
    Bind, BindTls, Direct, DirectBind, Global, GlobalTls, IpvsTuning, Level, LogTarget, Model, Process, Proxy, Role,
    Server, Stats,
};

/// The difference between the model in use and the one asked for; empty when both say the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChangeSet {
    /// Changes in a fixed order: global, then removed, added and changed proxies with their parts.
    pub changes: Vec<Change>,
}

/// One change to one object.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A setting of the `global` section, with its old and new value as text.
    Global {
        /// The keyword.
        setting: &'static str,
        /// Old value.
        from: String,
        /// New value.
        to: String,
        /// Whether it takes effect without a new process.
        live: bool,
    },
    /// A proxy that was not there.
    ProxyAdded(Arc<Proxy>),
    /// A proxy that is gone.
    ProxyRemoved(Arc<Proxy>),
    /// Settings of a proxy: the keywords' families that differ, such as `timeout` or `rules`.
    ProxyChanged {
        /// The new proxy.
        proxy: Arc<Proxy>,
        /// What differs.
        settings: Vec<&'static str>,
    },
    /// A listening address that was not there.
    BindAdded {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address.
        bind: Bind,
    },
    /// A listening address that is gone.
    BindRemoved {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address.
        bind: Bind,
    },
    /// Options of a listening address.
    BindChanged {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The address, with its new options.
        bind: Bind,
        /// What differs: `certificates`, `TLS settings`, `TLS` (which is turned on or off); empty: something else.
        settings: Vec<&'static str>,
    },
    /// A virtual address or mark of `mode direct` that was not there.
    PlaceAdded {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place.
        place: DirectBind,
    },
    /// A virtual address or mark of `mode direct` that is gone, and with it what the kernel knows of its connections.
    PlaceRemoved {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place.
        place: DirectBind,
    },
    /// Options of a virtual address or mark of `mode direct`.
    PlaceChanged {
        /// Frontend.
        proxy: Arc<Proxy>,
        /// The place, with its new options.
        place: DirectBind,
    },
    /// A server that was not there.
    ServerAdded {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server.
        server: Arc<Server>,
    },
    /// A server that is gone: requests in flight end, nothing new goes there.
    ServerRemoved {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server.
        server: Arc<Server>,
    },
    /// Settings of a server.
    ServerChanged {
        /// Backend.
        proxy: Arc<Proxy>,
        /// The server as it was.
        before: Arc<Server>,
        /// The new server.
        server: Arc<Server>,
        /// What differs.
        settings: Vec<&'static str>,
    },
}

impl ChangeSet {
    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Compares two models object by object, by name.
pub fn diff(old: &Model, new: &Model) -> ChangeSet {
    let mut changes = Vec::new();
    let Model { global: _, proxies: _, crt_stores } = new;
    diff_global(old, new, &mut changes);
    if old.crt_stores != *crt_stores {
        let loads = |model: &Model| {
            let count: usize = model.crt_stores.iter().map(|store| store.loads.len()).sum();
            format!("of {count} certificates")
        };
        changes.push(Change::Global { setting: "crt-store", from: loads(old), to: loads(new), live: true });
    }
    // A frontend that becomes a `listen` is another object.
    fn key(proxy: &Arc<Proxy>) -> (&str, Role) {
        (&proxy.name, proxy.role)
    }
    let (before, after) = (by(&old.proxies, key), by(&new.proxies, key));
    for proxy in old.proxies.iter().filter(|proxy| !after.contains_key(&key(proxy))) {
        changes.push(Change::ProxyRemoved(proxy.clone()));
    }
    for proxy in &new.proxies {
        match before.get(&key(proxy)) {
            None => changes.push(Change::ProxyAdded(proxy.clone())),
            Some(before) if Arc::ptr_eq(before, proxy) => {}
            Some(before) => diff_proxy(before, proxy, &mut changes),
        }
    }
    ChangeSet { changes }
}

/// Whether a proxy of the same name and role differs from what it was, its parts included.
pub fn is_changed(old: &Arc<Proxy>, new: &Arc<Proxy>) -> bool {
    let mut changes = Vec::new();
    if !Arc::ptr_eq(old, new) {
        diff_proxy(old, new, &mut changes);
    }
    !changes.is_empty()
}

/// Objects by what makes each of them the same one in another model; of several, the first.
fn by<'m, T, K: Eq + Hash>(objects: &'m [T], key: impl Fn(&'m T) -> K) -> HashMap<K, &'m T> {
    let mut all = HashMap::with_capacity(objects.len());
    for object in objects {
        all.entry(key(object)).or_insert(object);
    }
    all
}

/// Settings that the process takes from a new configuration.
const LIVE: bool = true;
/// Settings that a process has for its whole life.
const AT_START: bool = false;

/// Everything is named here without `..`, so that a setting that is new does not compile until it is noted, or it is said why not.
fn diff_global(old: &Model, new: &Model, changes: &mut Vec<Change>) {
    let mut note = |setting, from: String, to: String, live| {
        if from != to {
            changes.push(Change::Global { setting, from, to, live });
        }
    };
    let (old, new) = (&old.global, &new.global);
    let Global {
        daemon,
        quiet,
        master_worker,
        nbthread,
        maxconn,
        maxsslconn,
        maxsslrate,
        maxpipes,
        nosplice,
        ulimit_n,
        pidfile,
        uid,
        gid,
        chroot,
        process,
        node,
        description,
        log,
        log_tag,
        log_hostname,
        hard_stop_after,
        grace,
        close_spread_time,
        spread_checks,
        max_spread_checks,
        tls,
        ipvs,
        xdp_connections,
        stats,
        bufsize,
        maxrewrite,
        maxhdr,
        maxaccept,
    } = new;
    note("daemon", old.daemon.words(), daemon.words(), AT_START);
    note("quiet", old.quiet.words(), quiet.words(), AT_START);
    note("master-worker", old.master_worker.words(), master_worker.words(), AT_START);
    note("nbthread", old.nbthread.words(), nbthread.words(), AT_START);
    note("maxconn", old.maxconn.words(), maxconn.words(), LIVE);
    note("maxsslconn", old.maxsslconn.words(), maxsslconn.words(), LIVE);
    note("maxsslrate", old.maxsslrate.words(), maxsslrate.words(), LIVE);
    note("maxpipes", old.maxpipes.words(), maxpipes.words(), LIVE);
    note("nosplice", old.nosplice.words(), nosplice.words(), LIVE);
    note("ulimit-n", old.ulimit_n.words(), ulimit_n.words(), AT_START);
    note("user", old.uid.words(), uid.words(), AT_START);
    note("group", old.gid.words(), gid.words(), AT_START);
    note("chroot", old.chroot.words(), chroot.words(), AT_START);
    note("pidfile", old.pidfile.words(), pidfile.words(), AT_START);
    diff_process(&old.process, process, &mut note);
    note("node", old.node.words(), node.words(), LIVE);
    note("description", old.description.words(), description.words(), LIVE);
    note("hard-stop-after", old.hard_stop_after.words(), hard_stop_after.words(), LIVE);
    note("grace", old.grace.words(), grace.words(), LIVE);
    note("close-spread-time", old.close_spread_time.words(), close_spread_time.words(), LIVE);
    note("spread-checks", old.spread_checks.words(), spread_checks.words(), LIVE);
    note("max-spread-checks", old.max_spread_checks.words(), max_spread_checks.words(), LIVE);
    note("log", logs(&old.log), logs(log), LIVE);
    note("log-tag", old.log_tag.words(), log_tag.words(), LIVE);
    note("log-send-hostname", old.log_hostname.words(), log_hostname.words(), LIVE);
    diff_stats(&old.stats, stats, &mut note);
    note("tune.bufsize", old.bufsize.words(), bufsize.words(), AT_START);
    note("tune.maxrewrite", old.maxrewrite.words(), maxrewrite.words(), LIVE);
    note("tune.http.maxhdr", old.maxhdr.words(), maxhdr.words(), LIVE);
    note("tune.maxaccept", accepts(old.maxaccept), accepts(*maxaccept), LIVE);
    diff_tls(&old.tls, tls, &mut note);
    diff_ipvs(&old.ipvs, ipvs, &mut note);
    note("tune.xdp.connections", old.xdp_connections.words(), xdp_connections.words(), LIVE);
}

/// `tune.maxaccept` as it is written.
fn accepts(limit: Option<u32>) -> String {
    if limit == Some(u32::MAX) { "-1".into() } else { limit.words() }
}

/// The runtime API.
fn diff_stats(old: &Stats, new: &Stats, note: &mut impl FnMut(&'static str, String, String, bool)) {
    let Stats { sockets: _, timeout, maxconn } = new;
    note("stats socket", sockets(old), sockets(new), LIVE);
    note("stats timeout", old.timeout.words(), timeout.words(), LIVE);
    note("stats maxconn", old.maxconn.words(), maxconn.words(), LIVE);
}

/// What holds for handshakes after the change.
fn diff_tls(old: &GlobalTls, new: &GlobalTls, note: &mut impl FnMut(&'static str, String, String, bool)) {
    let GlobalTls {
        crt_base,
        // Part of the paths that it changes.
        ca_base: _,
        extra,
        issuers_chain_path,
        // Both are part of the servers that they change.
        server_verify_none: _,
        server_defaults: _,
        skip_self_issued_ca,
        cache_size,
        lifetime_s,
        max_record,
        capture_buffer,
    } = new;
    note("crt-base", old.crt_base.words(), crt_base.words(), LIVE);
    note("ssl-load-extra-files", old.extra.words(), extra.words(), LIVE);
    note("issuers-chain-path", old.issuers_chain_path.words(), issuers_chain_path.words(), LIVE);
    note("ssl-skip-self-issued-ca", old.skip_self_issued_ca.words(), skip_self_issued_ca.words(), LIVE);
    note("tune.ssl.cachesize", old.cache_size.words(), cache_size.words(), LIVE);
    note("tune.ssl.lifetime", old.lifetime_s.words(), lifetime_s.words(), LIVE);
    note("tune.ssl.maxrecord", old.max_record.words(), max_record.words(), LIVE);
    note("tune.ssl.capture-buffer-size", old.capture_buffer.words(), capture_buffer.words(), LIVE);
}

/// What the kernel's IPVS has once for all services.
fn diff_ipvs(old: &IpvsTuning, new: &IpvsTuning, note: &mut impl FnMut(&'static str, String, String, bool)) {
    let IpvsTuning {
        timeout_tcp,
        timeout_tcpfin,
        timeout_udp,
        expire_nodest_conn,
        sloppy_tcp,
        expire_quiescent_template,
        sync_master,
        sync_backup,
    } = new;
    note("tune.ipvs.timeout-tcp", old.timeout_tcp.words(), timeout_tcp.words(), LIVE);
    note("tune.ipvs.timeout-tcpfin", old.timeout_tcpfin.words(), timeout_tcpfin.words(), LIVE);
    note("tune.ipvs.timeout-udp", old.timeout_udp.words(), timeout_udp.words(), LIVE);
    note("tune.ipvs.expire-nodest-conn", old.expire_nodest_conn.words(), expire_nodest_conn.words(), LIVE);
    let [before, now] = [&old.expire_quiescent_template, expire_quiescent_template].map(Words::words);
    note("tune.ipvs.expire-quiescent-template", before, now, LIVE);
    note("tune.ipvs.sloppy-tcp", old.sloppy_tcp.words(), sloppy_tcp.words(), LIVE);
    note("tune.ipvs.sync-master", old.sync_master.words(), sync_master.words(), LIVE);
    note("tune.ipvs.sync-backup", old.sync_backup.words(), sync_backup.words(), LIVE);
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

/// What is done once, when a process starts.
fn diff_process(old: &Process, new: &Process, note: &mut impl FnMut(&'static str, String, String, bool)) {
    let Process { strict_limits, fd_hard_limit, cpu_map, capabilities, dumpable, may_gain_rights } = new;
    note("strict-limits", old.strict_limits.words(), strict_limits.words(), AT_START);
    note("fd-hard-limit", old.fd_hard_limit.words(), fd_hard_limit.words(), AT_START);
    note("cpu-map", old.cpu_map.words(), cpu_map.words(), AT_START);
    note("setcap", old.capabilities.words(), capabilities.words(), AT_START);
    note("set-dumpable", old.dumpable.words(), dumpable.words(), AT_START);
    note("insecure-setuid-wanted", old.may_gain_rights.words(), may_gain_rights.words(), AT_START);
}

/// The sockets of the runtime API in a line.
fn sockets(stats: &Stats) -> String {
    match stats.sockets.is_empty() {
        true => "unset".into(),
        false => stats.sockets.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

fn diff_proxy(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<Change>) {
    let settings = proxy_settings(old, new);
    if !settings.is_empty() {
        changes.push(Change::ProxyChanged { proxy: new.clone(), settings });
    }
    diff_binds(old, new, changes);
    diff_places(old, new, changes);
    diff_servers(old, new, changes);
}

fn diff_binds(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<Change>) {
    if old.binds == new.binds {
        return;
    }
    let (before, after) = (by(&old.binds, Bind::key), by(&new.binds, Bind::key));
    for bind in old.binds.iter().filter(|bind| !after.contains_key(&bind.key())) {
        changes.push(Change::BindRemoved { proxy: old.clone(), bind: bind.clone() });
    }
    for bind in &new.binds {
        match before.get(&bind.key()) {
            None => changes.push(Change::BindAdded { proxy: new.clone(), bind: bind.clone() }),
            Some(before) if *before != bind => {
                let settings = bind_settings(before, bind);
                changes.push(Change::BindChanged { proxy: new.clone(), bind: bind.clone(), settings });
            }
            Some(_) => {}
        }
    }
}

fn diff_servers(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<Change>) {
    fn name(server: &Arc<Server>) -> &str {
        &server.name
    }
    if old.servers == new.servers {
        return;
    }
    let (before, after) = (by(&old.servers, name), by(&new.servers, name));
    for server in old.servers.iter().filter(|server| !after.contains_key(name(server))) {
        changes.push(Change::ServerRemoved { proxy: old.clone(), server: server.clone() });
    }
    for server in &new.servers {
        match before.get(name(server)) {
            None => changes.push(Change::ServerAdded { proxy: new.clone(), server: server.clone() }),
            Some(before) => {
                let settings = server_settings(new, before, server);
                if !settings.is_empty() {
                    let (proxy, before, server) = (new.clone(), Arc::clone(before), server.clone());
                    changes.push(Change::ServerChanged { proxy, before, server, settings });
                }
            }
        }
    }
}

/// Collects the names of the fields that differ. Every field of the type stands in one of the two lists, so that one that is new
/// does not compile until it is compared here, or somewhere else.
macro_rules! differing {
    ($type:ident, $old:expr, $new:expr, $($field:ident => $word:literal),*; elsewhere $($other:ident),* $(,)?) => {{
        let $type { $($field: _,)* $($other: _,)* } = &**$new;
        let mut words = Vec::new();
        $(if $old.$field != $new.$field { words.push($word); })*
        words
    }};
}

/// Places of `mode direct`, which are what they are by address or mark.
fn diff_places(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<Change>) {
    let (before, after) = (by(old.places(), |bind| bind.place), by(new.places(), |bind| bind.place));
    for place in old.places().iter().filter(|bind| !after.contains_key(&bind.place)) {
        changes.push(Change::PlaceRemoved { proxy: old.clone(), place: place.clone() });
    }
    for place in new.places() {
        match before.get(&place.place) {
            None => changes.push(Change::PlaceAdded { proxy: new.clone(), place: place.clone() }),
            Some(before) if *before != place => {
                changes.push(Change::PlaceChanged { proxy: new.clone(), place: place.clone() });
            }
            Some(_) => {}
        }
    }
}

/// What differs in the settings of `mode direct`; that the mode itself differs says more.
fn direct_settings(old: &Option<Arc<Direct>>, new: &Option<Arc<Direct>>) -> Vec<&'static str> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let mut settings = differing!(Direct, old, new,
        engine => "engine", on_exit => "on-exit", manage_vip => "manage-vip", persistence => "stick",
        vip_check => "option direct-vip-check";
        elsewhere places, scheduler, hash_port, fallback);
    let balance = |direct: &Direct| (direct.scheduler, direct.hash_port, direct.fallback);
    if balance(old) != balance(new) {
        settings.push("balance");
    }
    settings
}

/// What differs in a proxy itself. Its numeric id is left out: without `id` it follows the order of the file, and a section
/// that moved up a place is not a change to it.
fn proxy_settings(old: &Arc<Proxy>, new: &Arc<Proxy>) -> Vec<&'static str> {
    let mut settings = differing!(Proxy, old, new,
        mode => "mode", disabled => "disabled", maxconn => "maxconn",
        backlog => "backlog", rate_limit => "rate-limit", default_backend => "default_backend", rules => "rules",
        timeouts => "timeout", http => "http options", tcp => "options", logging => "log", balance => "balance",
        cookie => "cookie", retries => "retries", retry_on => "retry-on",
        fullconn => "fullconn", check => "check", source_address => "source";
        elsewhere name, id, role, binds, servers, direct, source);
    settings.extend(direct_settings(&old.direct, &new.direct));
    settings
}

/// What differs in an address, as far as it is about TLS alone.
fn bind_settings(old: &Bind, new: &Bind) -> Vec<&'static str> {
    let mut settings = Vec::new();
    match (&old.options.tls, &new.options.tls) {
        (Some(before), Some(after)) if before != after => {
            if before.certificates != after.certificates {
                settings.push("certificates");
            }
            if (BindTls { certificates: after.certificates.clone(), ..(**before).clone() }) != **after {
                settings.push("TLS settings");
            }
        }
        (Some(_), None) | (None, Some(_)) => settings.push("TLS"),
        (Some(_), Some(_)) | (None, None) => {}
    }
    let plain = |bind: &Bind| {
        let options = crate::BindOptions { tls: None, ..bind.options.clone() };
        Bind { options, ..bind.clone() }
    };
    if !settings.is_empty() && plain(old) != plain(new) {
        settings.push("options");
    }
    settings
}

/// What differs in a server. Its numeric id counts only where it places the server on a consistent hash ring.
fn server_settings(proxy: &Proxy, old: &Arc<Server>, new: &Arc<Server>) -> Vec<&'static str> {
    let mut settings = differing!(Server, old, new,
        address => "address", weight => "weight", backup => "backup", disabled => "disabled",
        maxconn => "maxconn", minconn => "minconn", maxqueue => "maxqueue", cookie => "cookie",
        send_proxy => "send-proxy", source_address => "source", slowstart => "slowstart", check => "check",
        pool_max_conn => "pool-max-conn", pool_purge_delay => "pool-purge-delay",
        max_reuse => "max-reuse", tfo => "tfo", tcp_user_timeout_ms => "tcp-ut", redir => "redir",
        tls => "ssl", forwarding => "forwarding";
        elsewhere name, id, line);
    if old.id != new.id && proxy.balance.hash.consistent {
        settings.push("id");
    }
    settings
}

impl fmt::Display for Change {
    /// One line, object first: `backend app: server s2 added (127.0.0.1:9001)`.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = |proxy: &Proxy| format!("{} {}", proxy.role.word(), proxy.name);
        match self {
            Change::Global { setting, from, to, live: true } => write!(out, "global: {setting} {from} -> {to}"),
            Change::Global { setting, from, to, live: false } => {
                write!(out, "global: {setting} {from} -> {to} (takes effect with the next process)")
            }
            Change::ProxyAdded(proxy) => write!(out, "{} added", object(proxy)),
            Change::ProxyRemoved(proxy) => write!(out, "{} removed", object(proxy)),
            Change::ProxyChanged { proxy, settings } => {
                write!(out, "{}: {} changed", object(proxy), settings.join(", "))
            }
            Change::BindAdded { proxy, bind } => write!(out, "{}: bind {} added", object(proxy), bind.place()),
            Change::BindRemoved { proxy, bind } => write!(out, "{}: bind {} removed", object(proxy), bind.place()),
            Change::BindChanged { proxy, bind, settings } if settings.is_empty() => {
                write!(out, "{}: bind {} changed", object(proxy), bind.place())
            }
            Change::BindChanged { proxy, bind, settings } => {
                write!(out, "{}: {} of bind {} changed", object(proxy), settings.join(" and "), bind.place())
            }
            Change::PlaceAdded { proxy, place } => write!(out, "{}: bind {} added", object(proxy), place.place),
            Change::PlaceRemoved { proxy, place } => write!(out, "{}: bind {} removed", object(proxy), place.place),
            Change::PlaceChanged { proxy, place } => write!(out, "{}: bind {} changed", object(proxy), place.place),
            Change::ServerAdded { proxy, server } => write!(out, "{}: server {} added", object(proxy), server.name),
            Change::ServerRemoved { proxy, server } => write!(out, "{}: server {} removed", object(proxy), server.name),
            Change::ServerChanged { proxy, server, settings, .. } => {
                write!(out, "{}: server {}: {} changed", object(proxy), server.name, settings.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
