//! The words of `mode direct`, which HAProxy has not: a row each. What they may be combined with is judged when the section is
//! whole (`lower/direct.rs`), since `mode` may stand anywhere in it.

use std::net::SocketAddr;
use std::time::Duration;

use baton_model::{
    EngineChoice, Family, Forwarding, IpvsTuning, ManageVip, OnExit, Place, Ruleset, Scheduler, Stickiness, Sync,
    Tunnel, XdpWhere,
};
use baton_rules::suggestion;

use super::balance::ALGORITHMS;
use super::rows::row;
use super::rule::rule;
use super::server::parameter;
use super::{Apply, BACK, DEFAULTS, FRONT, GLOBAL, Keyword, Parameter, Sections, Status};
use crate::address::{self, Port, Text};
use crate::lower::{Call, Draft, Prefix, ServerDraft};

const FE: Sections = DEFAULTS | FRONT;
const BE: Sections = DEFAULTS | BACK;

/// The longest that the kernel remembers where a client goes, as ipvsadm(8) has it.
const EXPIRE_MAX: Duration = Duration::from_secs(31 * 24 * 3600);
/// The most connections that the engine xdp can remember: some 2 GB.
const XDP_CONNECTIONS_MAX: i64 = 1 << 24;
/// Bytes in a network interface's name.
const INTERFACE_MAX: usize = 15;

/// Rows of proxies.
pub(crate) static ROWS: &[Keyword] = &[
    row("engine", FE, "auto|ipvs|xdp [driver|stack]", engine, "'mode direct': the engine that balances in the kernel."),
    row(
        "manage-vip",
        FE,
        "[interface NAME] [prefix BITS]",
        manage_vip,
        "'mode direct': adds the virtual addresses to an interface and announces them.",
    ),
    row("on-exit", FE, "keep|flush", on_exit, "'mode direct': what stays in the kernel after Baton exits."),
    row(
        "option direct-vip-check",
        BE,
        "",
        vip_check,
        "'mode direct': health checks also test the virtual address on the servers (the default).",
    ),
    row(
        "stick",
        BACK,
        "on|match|store-request|store-response EXPR [table NAME] [if|unless COND]",
        stick,
        "Persistence by a stick table; in 'mode direct': 'on src[,ipmask(BITS[,BITS6])]'.",
    ),
];

/// Rows of `global`.
pub(crate) static GLOBAL_ROWS: &[Keyword] = &[
    global(
        "tune.ipvs.expire-nodest-conn",
        "on|off",
        expire_nodest,
        "Connections of a removed server are closed immediately.",
    ),
    global(
        "tune.ipvs.expire-quiescent-template",
        "on|off",
        expire_quiescent,
        "Clients with persistence to a server of weight 0 go to another server.",
    ),
    global(
        "tune.ipvs.sloppy-tcp",
        "on|off",
        sloppy_tcp,
        "TCP connections are accepted without their handshake, as \
                                                          after a failover.",
    ),
    global(
        "tune.ipvs.sync-backup",
        "INTERFACE [id N]",
        |ipvs, call| sync(call, &mut ipvs.sync_backup),
        "Receives the connection table of another director.",
    ),
    global(
        "tune.ipvs.sync-master",
        "INTERFACE [id N]",
        |ipvs, call| sync(call, &mut ipvs.sync_master),
        "Sends the connection table to another director.",
    ),
    global(
        "tune.ipvs.timeout-tcp",
        "TIME",
        |ipvs, call| seconds(call, &mut ipvs.timeout_tcp),
        "Idle timeout of TCP connections.",
    ),
    global(
        "tune.ipvs.timeout-tcpfin",
        "TIME",
        |ipvs, call| seconds(call, &mut ipvs.timeout_tcpfin),
        "Idle timeout of half-closed TCP connections.",
    ),
    global(
        "tune.ipvs.timeout-udp",
        "TIME",
        |ipvs, call| seconds(call, &mut ipvs.timeout_udp),
        "Idle timeout of UDP flows.",
    ),
    Keyword {
        name: "tune.xdp.connections",
        sections: GLOBAL,
        args: "N",
        status: Status::Done,
        doc: "Size of the connection table of the engine xdp.",
        apply: Apply::Global(|global, call| {
            let number = call.number(1, XDP_CONNECTIONS_MAX).and_then(|number| number.try_into().ok());
            global.model.xdp_connections = number.or(global.model.xdp_connections);
        }),
    },
];

/// Words of `server` lines.
pub(crate) static SERVER_ROWS: &[Parameter<ServerDraft>] = &[
    parameter(
        "masquerade",
        0,
        |s, _, _| {
            s.server.forwarding = Forwarding::Masquerade;
            0
        },
        "'mode direct': NAT; packets get the server's address, and responses return through this machine.",
    ),
    parameter(
        "tunnel",
        0,
        tunnel,
        "'mode direct': packets go through a tunnel, 'ipip' (the default), 'gue:PORT' or 'gre'.",
    ),
];

const fn global(
    name: &'static str,
    args: &'static str,
    apply: fn(&mut IpvsTuning, &mut Call<'_, '_>),
    doc: &'static str,
) -> Keyword {
    Keyword { name, sections: GLOBAL, args, status: Status::Done, doc, apply: Apply::Ipvs(apply) }
}

/// What a section says that only `mode direct` has, and the lines for complaints.
#[derive(Clone, Debug, Default)]
pub(crate) struct DirectDraft {
    pub engine: EngineChoice,
    pub on_exit: OnExit,
    pub manage_vip: Option<ManageVip>,
    /// `balance` with a word that only this mode has.
    pub scheduler: Option<Scheduler>,
    pub hash_port: bool,
    pub fallback: bool,
    /// Masks of `stick on src`.
    pub stick: Option<(u8, u8)>,
    /// `no option direct-vip-check`.
    pub no_vip_check: bool,
    /// Addresses that only this mode has.
    pub places: Vec<OwnNode>,
    /// The port of the service that leads here, for checks.
    pub service_port: Option<u16>,
    /// That service is of UDP, and none that leads there is of TCP.
    pub is_udp: bool,
}

/// An address of a `bind` line that other modes cannot have.
#[derive(Clone, Debug)]
pub(crate) struct OwnNode {
    pub place: Place,
    pub bind: Box<baton_model::Bind>,
    /// What is wrong with it in other modes, and where.
    pub refusal: String,
    pub line: crate::syntax::Line,
}

/// A `bind` address that only `mode direct` has: `udp@`, `fwmark@`, `fwmark6@`, port 0. `None` is another one.
pub(crate) fn place(text: &str, call: &mut Call<'_, '_>) -> Option<Result<Vec<Place>, String>> {
    for (prefix, ipv6) in [("fwmark@", false), ("fwmark6@", true)] {
        if let Some(mark) = text.strip_prefix(prefix) {
            let mark = match mark.strip_prefix("0x") {
                Some(digits) => u32::from_str_radix(digits, 16),
                None => mark.parse(),
            };
            return Some(match mark {
                Ok(mark @ 1..) => Ok(vec![Place::Mark { mark, ipv6 }]),
                _ => Err(format!("'{text}' needs a firewall mark, a number above 0")),
            });
        }
    }
    let udp = [("udp@", ""), ("udp4@", "ipv4@"), ("udp6@", "ipv6@")]
        .iter()
        .find_map(|(prefix, family)| Some(format!("{family}{}", text.strip_prefix(prefix)?)));
    let parsed = address::parse(udp.as_deref().unwrap_or(text));
    let make = |address: SocketAddr| if udp.is_some() { Place::Udp(address) } else { Place::Tcp(address) };
    let (host, family, low, high) = match (parsed, &udp) {
        (Ok(Text::Inet { host, family, port: Port::One(port) }), _) if port == 0 || udp.is_some() => {
            (host, family, port, port)
        }
        (Ok(Text::Inet { host, family, port: Port::Range(low, high) }), Some(_)) => (host, family, low, high),
        (Ok(_), Some(_)) => return Some(Err(format!("missing port specification in '{text}'"))),
        (Err(message), Some(_)) => return Some(Err(message)),
        _ => return None,
    };
    Some(ip(&host, family, text, call).map(|ip| (low..=high).map(|port| make((ip, port).into())).collect()))
}

fn ip(host: &str, family: Family, text: &str, call: &mut Call<'_, '_>) -> Result<std::net::IpAddr, String> {
    let found = address::literal(host, family).or_else(|| call.context.resolve(host, family));
    found.ok_or_else(|| format!("invalid address: '{host}' in '{text}'"))
}

/// The words of `balance` that only `mode direct` has, and the ones behind those. False when it is none of them.
pub(crate) fn balance(draft: &mut Draft, call: &mut Call<'_, '_>) -> bool {
    let direct = &mut draft.direct;
    (direct.scheduler, direct.hash_port, direct.fallback) = (None, false, false);
    let own = Scheduler::OWN.iter().find(|(word, _)| *word == call.arg(0));
    if let Some((_, scheduler)) = own {
        direct.scheduler = Some(*scheduler);
    }
    if matches!(call.arg(0), "source" | "mh") {
        for index in 1..call.args() {
            match call.arg(index) {
                "hash-port" => direct.hash_port = true,
                "fallback" => direct.fallback = true,
                odd if own.is_some() => {
                    let message = format!("'balance mh' only accepts 'hash-port' and 'fallback' (got '{odd}').");
                    call.not_one_of(index, message, ["hash-port", "fallback"]);
                }
                // HAProxy does not mind words behind 'source'.
                _ => {}
            }
        }
    } else if own.is_some() {
        call.at_most(1);
    }
    own.is_some()
}

/// The words of `balance` in `mode direct`.
pub(crate) const BALANCE: &str =
    "'mode direct' supports roundrobin, static-rr, leastconn, source, random, mh, dh, sed, nq, lblc, lblcr, fo, ovf";

/// What helps who writes another word behind `balance`, such as ipvsadm's.
pub(crate) fn balance_hint(word: &str, is_direct: bool) -> Option<String> {
    let ours = match word {
        "rr" | "wrr" => "roundrobin",
        "lc" | "wlc" => "leastconn",
        "sh" => "source",
        "twos" => "random",
        _ => {
            let own = Scheduler::OWN.iter().map(|(word, _)| *word).filter(|_| is_direct);
            return suggestion(word, ALGORITHMS.into_iter().chain(own)).or(is_direct.then(|| BALANCE.into()));
        }
    };
    Some(format!("the kernel's scheduler `{word}` is '{ours}' in Baton; {BALANCE}"))
}

/// What helps who writes a word of ipvsadm or keepalived behind `server`.
pub(crate) fn server_hint(word: &str) -> Option<String> {
    let hint = match word {
        "gate" | "gatewaying" | "dr" | "droute" => "remove it: direct routing is the default of 'mode direct'",
        "nat" | "masq" | "masquerading" => "use 'masquerade' in 'mode direct'",
        "tun" | "ipip" => "use 'tunnel' in 'mode direct'",
        _ => return None,
    };
    Some(hint.into())
}

/// What helps who writes a word of keepalived in a section.
pub(crate) fn section_hint(word: &str, argument: &str) -> Option<String> {
    let hint = match word {
        "persistence_timeout" if argument.parse::<u32>().is_ok() => {
            let table = format!("'stick-table type ip size 1m expire {argument}s'");
            return Some(format!("use {table} and 'stick on src' in 'mode direct'"));
        }
        "lb_algo" | "lvs_sched" => "use 'balance'; `baton convert` converts files of keepalived",
        "lb_kind" | "lvs_method" => {
            "use 'masquerade' or 'tunnel' on 'server' lines; `baton convert` converts files of keepalived"
        }
        "virtual_server" | "real_server" | "sorry_server" | "delay_loop" | "persistence_timeout" => {
            "this is a keyword of keepalived; `baton convert` converts its files"
        }
        _ => return None,
    };
    Some(hint.into())
}

/// What helps who writes a URL for an address of `bind`.
pub(crate) fn bind_hint(text: &str) -> Option<String> {
    let rest = text.strip_prefix("udp://")?;
    Some(format!("write 'udp@{rest}', in 'mode direct'"))
}

fn engine(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let xdp = EngineChoice::Xdp(XdpWhere::Best);
    let choices = [("auto", EngineChoice::Auto), ("ipvs", EngineChoice::Ipvs), ("xdp", xdp)];
    let Some(mut value) = call.choose(call.first, "engine", &choices) else { return };
    let is_xdp = value == xdp;
    if is_xdp && call.args() > 1 {
        let places = [("driver", XdpWhere::Driver), ("stack", XdpWhere::Stack)];
        let Some(place) = call.choose(call.first + 1, "engine xdp", &places) else { return };
        value = EngineChoice::Xdp(place);
    }
    if call.at_most(if is_xdp { 2 } else { 1 }) {
        draft.direct.engine = value;
    }
}

fn on_exit(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if let Some(value) = call.choose(call.first, "on-exit", &[("keep", OnExit::Keep), ("flush", OnExit::Flush)])
        && call.at_most(1)
    {
        draft.direct.on_exit = value;
    }
}

/// The name of a network interface at a word's index.
pub(crate) fn interface(call: &mut Call<'_, '_>, word: usize) -> Option<String> {
    let name = call.line.word(word);
    let fits =
        !name.is_empty() && name.len() <= INTERFACE_MAX && !name.contains(['/', ' ']) && !matches!(name, "." | "..");
    if !fits {
        let message = format!("'{}' expects the name of a network interface (`ip link`), found '{name}'.", call.name);
        call.error(word, "bad-value", message);
    }
    fits.then(|| name.into())
}

fn manage_vip(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let mut managed = ManageVip::default();
    let mut index = 0;
    while index < call.args() {
        match call.arg(index) {
            "interface" => match interface(call, call.first + index + 1) {
                Some(name) => managed.interface = Some(name),
                None => return,
            },
            "prefix" => match call.number_at(call.first + index + 1, "manage-vip prefix", 1, 128) {
                Some(bits) => managed.prefix = u8::try_from(bits).ok(),
                None => return,
            },
            odd => {
                let message = format!("'manage-vip' only accepts 'interface NAME' and 'prefix BITS' (got '{odd}').");
                return call.not_one_of(index, message, ["interface", "prefix"]);
            }
        }
        index += 2;
    }
    draft.direct.manage_vip = Some(managed);
}

fn vip_check(draft: &mut Draft, call: &mut Call<'_, '_>) {
    if call.at_most(0) {
        draft.direct.no_vip_check = call.prefix == Prefix::No;
    }
}

/// `stick …`; in this mode `stick on src[,ipmask(24[,64])]` only.
fn stick(draft: &mut Draft, call: &mut Call<'_, '_>) {
    let key = call.arg(1);
    let masks = match key.strip_prefix("src") {
        Some("") => Some((32, 128)),
        Some(rest) => rest.strip_prefix(",ipmask(").and_then(|rest| rest.strip_suffix(')')).and_then(ipmask),
        None => None,
    };
    // Said of mode direct alone, by who judges.
    draft.direct.stick = match call.arg(0) {
        "on" if call.args() == 2 => masks,
        _ => None,
    };
    rule(draft, call, Ruleset::Stick);
}

fn ipmask(text: &str) -> Option<(u8, u8)> {
    let (four, six) = text.split_once(',').unwrap_or((text, "128"));
    let four = match four.parse::<u8>() {
        Ok(bits) => bits,
        Err(_) => address::network(&format!("0.0.0.0/{four}"))?.1,
    };
    let six = six.trim().parse::<u8>().ok()?;
    ((1..=32).contains(&four) && (1..=128).contains(&six)).then_some((four, six))
}

impl DirectDraft {
    /// What is wrong with the words of persistence, or what they amount to. `expire` is that of the table.
    pub fn persistence(
        &self,
        stick: Option<&crate::syntax::Line>,
        expire: Option<Duration>,
    ) -> Result<Option<Stickiness>, String> {
        let (prefix, prefix6) = match (stick, self.stick) {
            (Some(line), None) => {
                let words = line.texts().collect::<Vec<_>>().join(" ");
                return Err(format!(
                    "'{words}' is not supported in 'mode direct', which knows client addresses only: use 'stick on \
                     src' or 'stick on src,ipmask(24)'"
                ));
            }
            (_, Some(masks)) => masks,
            (None, None) => return Ok(None),
        };
        let Some(expire) = expire else {
            return Err(
                "'stick on src' needs a 'stick-table' with its duration: 'stick-table type ip size 1m expire 5m'"
                    .into(),
            );
        };
        let whole = Duration::from_secs(expire.as_secs() + u64::from(expire.subsec_nanos() > 0));
        match whole {
            Duration::ZERO => Err("'expire 0' of the stick-table disables persistence: remove 'stick on src'".into()),
            over if over > EXPIRE_MAX => Err(format!(
                "'expire' of the stick-table exceeds the kernel's maximum of {} days",
                EXPIRE_MAX.as_secs() / 86400
            )),
            expire => Ok(Some(Stickiness { expire, prefix, prefix6 })),
        }
    }
}

/// `tunnel [ipip|gue:PORT|gre]`.
fn tunnel(server: &mut ServerDraft, call: &mut Call<'_, '_>, at: usize) -> usize {
    let word = call.line.word(at + 1);
    let (kind, used) = match word {
        "ipip" => (Tunnel::IpIp, 1),
        "gre" => (Tunnel::Gre, 1),
        "gue" => (Tunnel::Gue(6080), 1),
        _ => match word.strip_prefix("gue:") {
            None => (Tunnel::IpIp, 0),
            Some(port) => match port.parse::<u16>() {
                Ok(port @ 1..) => (Tunnel::Gue(port), 1),
                _ => {
                    call.error(at + 1, "bad-value", format!("'tunnel gue:PORT' expects a port, found '{port}'."));
                    (Tunnel::IpIp, 1)
                }
            },
        },
    };
    server.server.forwarding = Forwarding::Tunnel(kind);
    used
}

fn on_off(call: &mut Call<'_, '_>) -> Option<bool> {
    if let Some(meant) = ["off", "on"].get(call.arg(0).parse::<usize>().unwrap_or(usize::MAX)) {
        let message = format!("'{}' only supports 'on', 'off' (got '{}').", call.name, call.arg(0));
        call.error_with(call.first, "bad-value", message, Some(format!("write '{meant}'")));
        return None;
    }
    let value = call.choose(call.first, call.name, &[("on", true), ("off", false)])?;
    call.at_most(1).then_some(value)
}

fn expire_nodest(ipvs: &mut IpvsTuning, call: &mut Call<'_, '_>) {
    ipvs.expire_nodest_conn = on_off(call).or(ipvs.expire_nodest_conn);
}

fn expire_quiescent(ipvs: &mut IpvsTuning, call: &mut Call<'_, '_>) {
    ipvs.expire_quiescent_template = on_off(call).or(ipvs.expire_quiescent_template);
}

fn sloppy_tcp(ipvs: &mut IpvsTuning, call: &mut Call<'_, '_>) {
    ipvs.sloppy_tcp = on_off(call).or(ipvs.sloppy_tcp);
}

/// A time in whole seconds, which the kernel has.
fn seconds(call: &mut Call<'_, '_>, field: &mut Option<Duration>) {
    let Some(time) = call.time() else { return };
    if time.is_zero() || time.subsec_nanos() > 0 {
        let (name, text) = (call.name, call.arg(0));
        let is_bare = !time.is_zero() && text.chars().all(|char| char.is_ascii_digit());
        let hint = is_bare.then(|| format!("'{text}' is in milliseconds; write '{text}s'"));
        let message = format!("'{name}' expects whole seconds, at least one, found '{text}'.");
        return call.error_with(call.first, "bad-value", message, hint);
    }
    *field = Some(time);
}

fn sync(call: &mut Call<'_, '_>, field: &mut Option<Sync>) {
    let Some(interface) = interface(call, call.first) else { return };
    let id = match call.arg(1) {
        "" => 0,
        "id" => match call.number_at(call.first + 2, "id", 0, 255) {
            Some(id) if call.at_most(3) => id as u8,
            _ => return,
        },
        odd => return call.wrong(1, format!("'{}' only accepts 'id N' (got '{odd}').", call.name)),
    };
    *field = Some(Sync { interface, id });
}
