//! What changes between two models, as a value: `plan` prints it, `reload` applies it.

mod words;

use std::fmt;
use std::sync::Arc;

use self::words::Words;
use crate::{
    Bind, BindTls, Direct, DirectBind, GlobalTls, IpvsTuning, Level, LogAddress, LogTarget, Model, Process, Proxy,
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
    diff_global(old, new, &mut changes);
    if old.crt_stores != new.crt_stores {
        let loads = |model: &Model| {
            let count: usize = model.crt_stores.iter().map(|store| store.loads.len()).sum();
            format!("of {count} certificates")
        };
        changes.push(Change::Global { setting: "crt-store", from: loads(old), to: loads(new), live: true });
    }
    for proxy in &old.proxies {
        if find(new, proxy).is_none() {
            changes.push(Change::ProxyRemoved(proxy.clone()));
        }
    }
    for proxy in &new.proxies {
        match find(old, proxy) {
            None => changes.push(Change::ProxyAdded(proxy.clone())),
            Some(before) => diff_proxy(before, proxy, &mut changes),
        }
    }
    ChangeSet { changes }
}

/// The proxy of the same name and role. A frontend that becomes a `listen` is another object.
fn find<'m>(model: &'m Model, proxy: &Proxy) -> Option<&'m Arc<Proxy>> {
    model.proxies.iter().find(|other| other.name == proxy.name && other.role == proxy.role)
}

fn diff_global(old: &Model, new: &Model, changes: &mut Vec<Change>) {
    let (old, new) = (&old.global, &new.global);
    let mut note = |setting, from: String, to: String, live| {
        if from != to {
            changes.push(Change::Global { setting, from, to, live });
        }
    };
    note("nbthread", old.nbthread.words(), new.nbthread.words(), false);
    note("maxconn", old.maxconn.words(), new.maxconn.words(), true);
    note("maxpipes", old.maxpipes.words(), new.maxpipes.words(), true);
    note("nosplice", old.nosplice.words(), new.nosplice.words(), true);
    note("ulimit-n", old.ulimit_n.words(), new.ulimit_n.words(), false);
    note("user", old.uid.words(), new.uid.words(), false);
    note("group", old.gid.words(), new.gid.words(), false);
    note("chroot", old.chroot.words(), new.chroot.words(), false);
    note("pidfile", old.pidfile.words(), new.pidfile.words(), false);
    diff_process(&old.process, &new.process, &mut note);
    note("hard-stop-after", old.hard_stop_after.words(), new.hard_stop_after.words(), true);
    note("grace", old.grace.words(), new.grace.words(), true);
    note("close-spread-time", old.close_spread_time.words(), new.close_spread_time.words(), true);
    note("spread-checks", old.spread_checks.words(), new.spread_checks.words(), true);
    note("log", logs(&old.log), logs(&new.log), true);
    note("log-tag", old.log_tag.words(), new.log_tag.words(), true);
    note("log-send-hostname", old.log_hostname.words(), new.log_hostname.words(), true);
    note("stats socket", sockets(&old.stats), sockets(&new.stats), true);
    note("stats timeout", old.stats.timeout.words(), new.stats.timeout.words(), true);
    note("stats maxconn", old.stats.maxconn.words(), new.stats.maxconn.words(), true);
    note("tune.bufsize", old.bufsize.words(), new.bufsize.words(), false);
    note("tune.maxrewrite", old.maxrewrite.words(), new.maxrewrite.words(), true);
    note("tune.http.maxhdr", old.maxhdr.words(), new.maxhdr.words(), true);
    diff_tls(&old.tls, &new.tls, &mut note);
    diff_ipvs(&old.ipvs, &new.ipvs, &mut note);
    note("tune.xdp.connections", old.xdp_connections.words(), new.xdp_connections.words(), true);
}

/// What holds for handshakes after the change. `crt-base` and `ca-base` are part of the paths that they change.
fn diff_tls(old: &GlobalTls, new: &GlobalTls, note: &mut impl FnMut(&'static str, String, String, bool)) {
    note("ssl-load-extra-files", old.extra.words(), new.extra.words(), true);
    note("issuers-chain-path", old.issuers_chain_path.words(), new.issuers_chain_path.words(), true);
    note("ssl-skip-self-issued-ca", old.skip_self_issued_ca.words(), new.skip_self_issued_ca.words(), true);
    note("tune.ssl.cachesize", old.cache_size.words(), new.cache_size.words(), true);
    note("tune.ssl.lifetime", old.lifetime_s.words(), new.lifetime_s.words(), true);
    note("tune.ssl.maxrecord", old.max_record.words(), new.max_record.words(), true);
    note("tune.ssl.capture-buffer-size", old.capture_buffer.words(), new.capture_buffer.words(), true);
}

/// What the kernel's IPVS has once for all services.
fn diff_ipvs(old: &IpvsTuning, new: &IpvsTuning, note: &mut impl FnMut(&'static str, String, String, bool)) {
    note("tune.ipvs.timeout-tcp", old.timeout_tcp.words(), new.timeout_tcp.words(), true);
    note("tune.ipvs.timeout-tcpfin", old.timeout_tcpfin.words(), new.timeout_tcpfin.words(), true);
    note("tune.ipvs.timeout-udp", old.timeout_udp.words(), new.timeout_udp.words(), true);
    note("tune.ipvs.expire-nodest-conn", old.expire_nodest_conn.words(), new.expire_nodest_conn.words(), true);
    let [before, now] = [old, new].map(|ipvs| ipvs.expire_quiescent_template.words());
    note("tune.ipvs.expire-quiescent-template", before, now, true);
    note("tune.ipvs.sloppy-tcp", old.sloppy_tcp.words(), new.sloppy_tcp.words(), true);
    note("tune.ipvs.sync-master", old.sync_master.words(), new.sync_master.words(), true);
    note("tune.ipvs.sync-backup", old.sync_backup.words(), new.sync_backup.words(), true);
}

/// `log` lines without their first word.
fn logs(targets: &[LogTarget]) -> String {
    let one = |target: &LogTarget| {
        let place = match &target.address {
            LogAddress::Udp(address) => address.to_string(),
            LogAddress::Unix(path) => path.display().to_string(),
            LogAddress::Stdout => "stdout".into(),
            LogAddress::Stderr => "stderr".into(),
            LogAddress::Fd(number) => format!("fd@{number}"),
            LogAddress::Ring(name) => format!("ring@{name}"),
        };
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
    note("strict-limits", old.strict_limits.words(), new.strict_limits.words(), false);
    note("fd-hard-limit", old.fd_hard_limit.words(), new.fd_hard_limit.words(), false);
    note("cpu-map", old.cpu_map.words(), new.cpu_map.words(), false);
    note("setcap", old.capabilities.words(), new.capabilities.words(), false);
    note("set-dumpable", old.dumpable.words(), new.dumpable.words(), false);
    note("insecure-setuid-wanted", old.may_gain_rights.words(), new.may_gain_rights.words(), false);
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
    for bind in &old.binds {
        if !new.binds.iter().any(|other| other.is_same_place(bind)) {
            changes.push(Change::BindRemoved { proxy: old.clone(), bind: bind.clone() });
        }
    }
    for bind in &new.binds {
        match old.binds.iter().find(|other| other.is_same_place(bind)) {
            None => changes.push(Change::BindAdded { proxy: new.clone(), bind: bind.clone() }),
            Some(before) if before != bind => {
                let settings = bind_settings(before, bind);
                changes.push(Change::BindChanged { proxy: new.clone(), bind: bind.clone(), settings });
            }
            Some(_) => {}
        }
    }
    diff_places(old, new, changes);
    for server in &old.servers {
        if !new.servers.iter().any(|other| other.name == server.name) {
            changes.push(Change::ServerRemoved { proxy: old.clone(), server: server.clone() });
        }
    }
    for server in &new.servers {
        match old.servers.iter().find(|other| other.name == server.name) {
            None => changes.push(Change::ServerAdded { proxy: new.clone(), server: server.clone() }),
            Some(before) => {
                let settings = server_settings(new, before, server);
                if !settings.is_empty() {
                    changes.push(Change::ServerChanged { proxy: new.clone(), server: server.clone(), settings });
                }
            }
        }
    }
}

/// Collects the names of the fields that differ.
macro_rules! differing {
    ($old:expr, $new:expr, $($field:ident => $word:literal),* $(,)?) => {{
        let mut words = Vec::new();
        $(if $old.$field != $new.$field { words.push($word); })*
        words
    }};
}

/// Places of `mode direct`, which are what they are by address or mark.
fn diff_places(old: &Arc<Proxy>, new: &Arc<Proxy>, changes: &mut Vec<Change>) {
    for place in old.places() {
        if !new.places().iter().any(|other| other.place == place.place) {
            changes.push(Change::PlaceRemoved { proxy: old.clone(), place: place.clone() });
        }
    }
    for place in new.places() {
        match old.places().iter().find(|other| other.place == place.place) {
            None => changes.push(Change::PlaceAdded { proxy: new.clone(), place: place.clone() }),
            Some(before) if before != place => {
                changes.push(Change::PlaceChanged { proxy: new.clone(), place: place.clone() });
            }
            Some(_) => {}
        }
    }
}

/// What differs in the settings of `mode direct`; that the mode itself differs says more.
fn direct_settings(old: &Option<Arc<Direct>>, new: &Option<Arc<Direct>>) -> Vec<&'static str> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let mut settings = differing!(old, new,
        engine => "engine", on_exit => "on-exit", manage_vip => "manage-vip", persistence => "stick",
        vip_check => "option direct-vip-check");
    let balance = |direct: &Direct| (direct.scheduler, direct.hash_port, direct.fallback);
    if balance(old) != balance(new) {
        settings.push("balance");
    }
    settings
}

/// What differs in a proxy itself. Its numeric id is left out: without `id` it follows the order of the file, and a section
/// that moved up a place is not a change to it.
fn proxy_settings(old: &Proxy, new: &Proxy) -> Vec<&'static str> {
    let mut settings = differing!(old, new,
        mode => "mode", disabled => "disabled", description => "description", maxconn => "maxconn",
        backlog => "backlog", rate_limit => "rate-limit", default_backend => "default_backend", rules => "rules",
        timeouts => "timeout", http => "http options", tcp => "options", logging => "log", balance => "balance",
        cookie => "cookie", dynamic_cookie_key => "dynamic-cookie-key", retries => "retries", retry_on => "retry-on",
        fullconn => "fullconn", check => "check", source_address => "source", grace => "grace");
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
fn server_settings(proxy: &Proxy, old: &Server, new: &Server) -> Vec<&'static str> {
    let mut settings = differing!(old, new,
        address => "address", weight => "weight", backup => "backup", disabled => "disabled",
        maxconn => "maxconn", minconn => "minconn", maxqueue => "maxqueue", cookie => "cookie",
        send_proxy => "send-proxy", source_address => "source", slowstart => "slowstart", check => "check",
        pool_max_conn => "pool-max-conn", pool_low_conn => "pool-low-conn", pool_purge_delay => "pool-purge-delay",
        max_reuse => "max-reuse", tfo => "tfo", tcp_user_timeout_ms => "tcp-ut", redir => "redir",
        non_stick => "non-stick", tls => "ssl",
        forwarding => "forwarding", accepted => "other options");
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
            Change::ServerChanged { proxy, server, settings } => {
                write!(out, "{}: server {}: {} changed", object(proxy), server.name, settings.join(", "))
            }
        }
    }
}

#[cfg(test)]
mod tests;
