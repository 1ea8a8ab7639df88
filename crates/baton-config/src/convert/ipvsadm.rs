//! What `ipvsadm -S` writes (ipvsadm(8)): a line is the command line of one ipvsadm.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use super::ConvertError;
use super::service::{Forwarding, Key, Persistence, Protocol, RealServer, Scheduler, Table, VirtualService};

/// What `ipvsadm -A … -p` sets when it gets no time, in seconds.
const PERSISTENT: u32 = 360;

/// Reads a dump.
pub(super) fn read(text: &str) -> Result<Table, ConvertError> {
    let mut table = Table::default();
    // Where the service of a key is; `None` if it was left out.
    let mut places: BTreeMap<Key, Option<usize>> = BTreeMap::new();
    for (line, text) in (1..).zip(text.lines()) {
        let text = text.trim();
        if text.is_empty() || text.starts_with('#') {
            continue;
        }
        if !table.has_room_for(1) {
            return Err(ConvertError::at(
                line,
                format!("more than {} services and servers", super::MAX_CONVERT_ENTRIES),
            ));
        }
        match read_line(text) {
            Err(why) => table.remark(line, text, why),
            Ok(Command::Global(mut lines)) => table.global.append(&mut lines),
            Ok(Command::AddService(options)) => add_service(&mut table, &mut places, line, text, options),
            Ok(Command::AddServer(options)) => add_server(&mut table, &places, line, text, options),
        }
    }
    Ok(table)
}

/// What a line asks for.
enum Command {
    AddService(IpvsadmOptions),
    AddServer(IpvsadmOptions),
    /// Settings of all services, in Baton's words.
    Global(Vec<String>),
}

/// What a line says of a service or a server.
#[derive(Default)]
struct IpvsadmOptions {
    key: Option<Key>,
    /// Why the key is none.
    refused: Option<String>,
    is_ipv6: bool,
    scheduler: Option<String>,
    flags: Vec<String>,
    persistent: Option<u32>,
    mask: Option<String>,
    engine: Option<String>,
    one_packet: bool,
    real: Option<(IpAddr, u16)>,
    forwarding: Option<Forwarding>,
    tunnel: Option<String>,
    tunnel_port: Option<u16>,
    checksum: Option<&'static str>,
    weight: Option<u32>,
    upper: u32,
    lower: u32,
    /// The options of the line, in order.
    given: Vec<String>,
}

fn read_line(text: &str) -> Result<Command, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let words = if words.first() == Some(&"ipvsadm") { &words[1..] } else { &words[..] };
    let Some((command, rest)) = words.split_first() else {
        return Err("left out: the line has no command (-A or -a)".into());
    };
    match *command {
        "-A" | "--add-service" => Ok(Command::AddService(read_options(rest)?)),
        "-a" | "--add-server" => Ok(Command::AddServer(read_options(rest)?)),
        "--set" => read_timeouts(rest).map(Command::Global),
        "--start-daemon" => read_daemon(rest).map(Command::Global),
        _ => Err("left out: only services (-A) and servers (-a) are converted".into()),
    }
}

fn read_options(words: &[&str]) -> Result<IpvsadmOptions, String> {
    let mut options = IpvsadmOptions::default();
    let mut words = words.iter().copied().peekable();
    while let Some(word) = words.next() {
        let (option, attached) = match word.split_once('=') {
            Some((option, value)) if option.starts_with("--") => (option, Some(value)),
            _ => (word, None),
        };
        options.given.push(option.to_owned());
        let mut value = || attached.or_else(|| words.next()).ok_or_else(|| format!("left out: {option} has no value"));
        match option {
            "-t" | "--tcp-service" => options.serve(Protocol::Tcp, value()?),
            "-u" | "--udp-service" => options.serve(Protocol::Udp, value()?),
            "--sctp-service" => {
                value()?;
                options.refused = Some("left out: SCTP is not supported, only TCP and UDP are".into());
            }
            "-f" | "--fwmark-service" => match value()?.parse() {
                Ok(mark @ 1..) => options.key = Some(Key::Mark { mark, ipv6: None }),
                _ => options.refused = Some("left out: a firewall mark is a number above 0".into()),
            },
            "-6" | "--ipv6" => options.is_ipv6 = true,
            "-s" | "--scheduler" => options.scheduler = Some(value()?.to_owned()),
            "-b" | "--sched-flags" => options.flags.extend(value()?.split(',').map(str::to_owned)),
            "-p" | "--persistent" => {
                let given = match attached {
                    Some(value) => Some(value),
                    None => words.next_if(|next| !next.starts_with('-')),
                };
                options.persistent = Some(given.map_or(Ok(PERSISTENT), |given| number(option, given))?);
            }
            "-M" | "--netmask" => options.mask = Some(value()?.to_owned()),
            "--pe" => options.engine = Some(value()?.to_owned()),
            "-o" | "--ops" => options.one_packet = true,
            "-r" | "--real-server" => options.real = Some(address(value()?)?),
            "-g" | "--gatewaying" => options.forwarding = Some(Forwarding::Direct),
            "-i" | "--ipip" => options.forwarding = Some(Forwarding::IpIp),
            "-m" | "--masquerading" => options.forwarding = Some(Forwarding::Masquerade),
            "--tun-type" => options.tunnel = Some(value()?.to_owned()),
            "--tun-port" => options.tunnel_port = Some(number(option, value()?)?),
            "--tun-nocsum" => {}
            "--tun-csum" => options.checksum = Some("--tun-csum"),
            "--tun-remcsum" => options.checksum = Some("--tun-remcsum"),
            "-w" | "--weight" => options.weight = Some(number(option, value()?)?),
            "-x" | "--u-threshold" => options.upper = number(option, value()?)?,
            "-y" | "--l-threshold" => options.lower = number(option, value()?)?,
            "-n" | "--numeric" => {}
            _ => return Err(format!("not read: unknown option {}", super::shown(option))),
        }
    }
    if let (true, Some(Key::Mark { ipv6, .. })) = (options.is_ipv6, &mut options.key) {
        *ipv6 = Some(true);
    }
    Ok(options)
}

/// Options that say what a service is like, and those that say it of a server; all others name the service.
const OF_SERVICES: [&str; 13] = [
    "-s",
    "--scheduler",
    "-b",
    "--sched-flags",
    "-p",
    "--persistent",
    "-M",
    "--netmask",
    "--pe",
    "-o",
    "--ops",
    "-n",
    "--numeric",
];
const OF_SERVERS: [&str; 21] = [
    "-r",
    "--real-server",
    "-g",
    "--gatewaying",
    "-i",
    "--ipip",
    "-m",
    "--masquerading",
    "--tun-type",
    "--tun-port",
    "--tun-nocsum",
    "--tun-csum",
    "--tun-remcsum",
    "-w",
    "--weight",
    "-x",
    "--u-threshold",
    "-y",
    "--l-threshold",
    "-n",
    "--numeric",
];

impl IpvsadmOptions {
    /// What stands in the line and has no part in what is made of it.
    fn unread(&self, is_service: bool) -> Vec<(&str, String)> {
        let has = |names: &[&str]| self.given.iter().any(|option| names.contains(&&**option));
        let of_others: &[&str] = if is_service { &OF_SERVERS } else { &OF_SERVICES };
        let own: &[&str] = if is_service { &OF_SERVICES } else { &OF_SERVERS };
        let kind = if is_service { "server" } else { "service" };
        let (is_mark, is_tunnel) = (has(&["-f", "--fwmark-service"]), has(&["-i", "--ipip"]));
        let is_gue = self.tunnel.as_deref() == Some("gue");
        let mut unread = Vec::new();
        for (at, option) in self.given.iter().enumerate() {
            let why = match &**option {
                name if of_others.contains(&name) && !own.contains(&name) => {
                    format!("not read: the option is only valid for a {kind}")
                }
                "-6" | "--ipv6" if !is_mark => "left out: it is only valid with a firewall mark".into(),
                "-M" | "--netmask" if self.persistent.is_none() => "left out: it requires persistence (-p)".into(),
                "--tun-type" | "--tun-nocsum" | "--tun-csum" | "--tun-remcsum" if !is_tunnel => {
                    "left out: it requires a tunnel (-i)".into()
                }
                "--tun-port" if !is_gue => "left out: only tunnels of type gue have a port".into(),
                name if !matches!(name, "-n" | "--numeric")
                    && self.given[at + 1..].iter().any(|later| meaning(later) == meaning(name)) =>
                {
                    "not read: the option is repeated, its last value counts".into()
                }
                _ => continue,
            };
            unread.push((&**option, why));
        }
        unread
    }

    fn serve(&mut self, protocol: Protocol, text: &str) {
        match address(text) {
            Ok((address, port)) => self.key = Some(Key::Address { protocol, address, port }),
            Err(why) => self.refused = Some(why),
        }
    }

    fn key(&mut self) -> Result<Key, String> {
        self.refused.take().map_or(Ok(()), Err)?;
        let key = self.key.take().ok_or("left out: no service is given (-t, -u or -f)")?;
        Ok(match key {
            Key::Mark { mark, ipv6: None } => Key::Mark { mark, ipv6: Some(false) },
            key => key,
        })
    }
}

/// What an option sets, under one name for all its spellings.
fn meaning(option: &str) -> &str {
    match option {
        "--tcp-service" | "-u" | "--udp-service" | "--sctp-service" | "-f" | "--fwmark-service" => "-t",
        "--scheduler" => "-s",
        "--persistent" => "-p",
        "--netmask" => "-M",
        "--ipv6" => "-6",
        "--ops" => "-o",
        "--real-server" => "-r",
        "--gatewaying" | "-i" | "--ipip" | "-m" | "--masquerading" => "-g",
        "--weight" => "-w",
        "--u-threshold" => "-x",
        "--l-threshold" => "-y",
        "--tun-csum" | "--tun-remcsum" | "--tun-nocsum" => "--tun-csum",
        option => option,
    }
}

fn number<N: std::str::FromStr>(option: &str, text: &str) -> Result<N, String> {
    text.parse().map_err(|_| format!("left out: {option} expects a number, not {}", super::shown(text)))
}

/// An address with its port, or 0. Names are not resolved.
fn address(text: &str) -> Result<(IpAddr, u16), String> {
    let wrong = || "left out: addresses and ports must be numeric, as `ipvsadm -S -n` writes them".to_owned();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Ok((address, 0));
    }
    if let Some(address) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) {
        return Ok((IpAddr::V6(address.parse().map_err(|_| wrong())?), 0));
    }
    let address: std::net::SocketAddr = text.parse().map_err(|_| wrong())?;
    Ok((address.ip(), address.port()))
}

fn add_service(
    table: &mut Table,
    places: &mut BTreeMap<Key, Option<usize>>,
    line: u32,
    text: &str,
    mut options: IpvsadmOptions,
) {
    let known = options.key.clone();
    let unread: Vec<(String, String)> =
        options.unread(true).into_iter().map(|(option, why)| (option.to_owned(), why)).collect();
    let service = options.key().and_then(|key| service(line, text, key, options));
    let place = match service {
        Ok(mut service) => {
            unread.into_iter().for_each(|(option, why)| service.remark(line, &option, why));
            table.services.push(service);
            Some(table.services.len() - 1)
        }
        Err(why) => {
            table.remark(line, text, why);
            None
        }
    };
    if let Some(key) = known {
        let key = match key {
            Key::Mark { mark, ipv6 } => Key::Mark { mark, ipv6: Some(ipv6 == Some(true)) },
            key => key,
        };
        places.entry(key).or_insert(place);
    }
}

fn service(line: u32, text: &str, key: Key, options: IpvsadmOptions) -> Result<VirtualService, String> {
    let word = options.scheduler.as_deref().unwrap_or(Scheduler::DEFAULT);
    let scheduler = Scheduler::of(word)
        .ok_or_else(|| format!("left out with its servers: unknown scheduler {}", super::shown(word)))?;
    let mut service = VirtualService::new(line, text, scheduler);
    for flag in &options.flags {
        match (scheduler.kernel, flag.as_str()) {
            ("sh", "sh-port") | ("mh", "mh-port") => service.hash_port = true,
            ("sh", "sh-fallback") | ("mh", "mh-fallback") => service.fallback = true,
            _ => service.remark(line, flag, format!("left out: not a flag of {word}")),
        }
    }
    if let Some(engine) = &options.engine {
        service.remark(line, &format!("--pe {engine}"), "left out: persistence is by client address only");
    }
    service.one_packet = options.one_packet.then_some(service.line);
    service.persistence = options.persistent.map(|seconds| Persistence { seconds, prefix: None });
    if let (Some(persistence), Some(mask)) = (&mut service.persistence, &options.mask) {
        match prefix(mask) {
            Some(prefix) => persistence.prefix = Some(prefix),
            None => {
                let why = "left out: invalid netmask, so persistence is per client address";
                service.remark(line, &format!("-M {mask}"), why);
            }
        }
    }
    service.keys.push(key);
    Ok(service)
}

/// How many leading bits a mask has: `255.255.255.0` or, for IPv6, `64`.
pub(super) fn prefix(mask: &str) -> Option<u8> {
    if let Ok(mask) = mask.parse::<Ipv4Addr>() {
        let bits = u32::from(mask);
        return (bits.leading_ones() + bits.trailing_zeros() == u32::BITS && bits != 0)
            .then_some(bits.leading_ones() as u8);
    }
    mask.parse().ok().filter(|length| (1..=128).contains(length))
}

fn add_server(
    table: &mut Table,
    places: &BTreeMap<Key, Option<usize>>,
    line: u32,
    text: &str,
    mut options: IpvsadmOptions,
) {
    let place = options.key().and_then(|key| match places.get(&key) {
        Some(Some(place)) => Ok(*place),
        Some(None) => Err("left out with its service".into()),
        None => Err("left out: its service is not declared above (`-A`)".into()),
    });
    let real = place.and_then(|place| Ok((place, server(line, text, &options)?)));
    match real {
        Ok((place, server)) => {
            let service = &mut table.services[place];
            for (option, why) in options.unread(false) {
                service.remark(line, option, why);
            }
            if let Some(option) = options.checksum {
                service.remark(line, option, "left out: tunnel checksums are not supported");
            }
            service.servers.push(server);
        }
        Err(why) => table.remark(line, text, why),
    }
}

fn server(line: u32, text: &str, options: &IpvsadmOptions) -> Result<RealServer, String> {
    let (address, port) = options.real.ok_or("left out: no real server is given (-r)")?;
    let forwarding = match (options.forwarding.unwrap_or(Forwarding::Direct), options.tunnel.as_deref()) {
        (Forwarding::IpIp, Some("gue")) => {
            Forwarding::Gue(options.tunnel_port.ok_or("left out: a tunnel of type gue needs --tun-port")?)
        }
        (Forwarding::IpIp, Some("gre")) => Forwarding::Gre,
        (Forwarding::IpIp, Some("ipip") | None) => Forwarding::IpIp,
        (Forwarding::IpIp, Some(other)) => {
            return Err(format!("left out: unknown tunnel type {}", super::shown(other)));
        }
        (forwarding, _) => forwarding,
    };
    Ok(RealServer {
        line,
        title: super::shown(text),
        name: None,
        address,
        port,
        forwarding,
        weight: options.weight.unwrap_or(1),
        upper: options.upper,
        lower: options.lower,
        is_backup: false,
        check: None,
    })
}

/// `--set TCP TCPFIN UDP`, in seconds; 0 leaves a time as it is.
fn read_timeouts(words: &[&str]) -> Result<Vec<String>, String> {
    let [tcp, fin, udp] = words else { return Err("left out: --set expects three timeouts".into()) };
    let mut lines = Vec::new();
    for (name, seconds) in [("tcp", tcp), ("tcpfin", fin), ("udp", udp)] {
        let seconds: u32 = number("--set", seconds)?;
        if seconds > 0 {
            lines.push(timeout(name, seconds)?);
        }
    }
    Ok(lines)
}

/// A time of all services, as `global` has it.
pub(super) fn timeout(name: &str, seconds: u32) -> Result<String, String> {
    /// A time is at most so long (configuration manual, 2.5), in seconds.
    const LONGEST: u32 = 2_147_483;
    match seconds {
        1..=LONGEST => Ok(format!("tune.ipvs.timeout-{name} {seconds}s")),
        _ => Err(format!("left out: a timeout is 1 to {LONGEST} seconds")),
    }
}

fn read_daemon(words: &[&str]) -> Result<Vec<String>, String> {
    let Some((role @ (&"master" | &"backup"), mut rest)) = words.split_first() else {
        return Err("left out: a sync daemon is master or backup".into());
    };
    let (mut interface, mut id) = ("eth0", 0_u8);
    while let [option, value, more @ ..] = rest {
        match *option {
            "--mcast-interface" => interface = value,
            "--syncid" => id = number(option, value)?,
            _ => return Err(format!("left out: {} has no equivalent", super::shown(option))),
        }
        rest = more;
    }
    if let [option] = rest {
        return Err(format!("not read: {} has no value", super::shown(option)));
    }
    daemon(role, interface, id).map(|line| vec![line])
}

/// A daemon that synchronises connections, as `global` has it.
pub(super) fn daemon(role: &str, interface: &str, id: u8) -> Result<String, String> {
    /// Longest name of an interface (`IFNAMSIZ` with its end).
    const NAME_MAX: usize = 15;
    let is_name = (1..=NAME_MAX).contains(&interface.len())
        && interface.chars().all(|char| char.is_ascii_alphanumeric() || "-_.:@".contains(char));
    match (is_name, id) {
        (false, _) => Err("left out: not a valid interface name".into()),
        (true, 0) => Ok(format!("tune.ipvs.sync-{role} {interface}")),
        (true, id) => Ok(format!("tune.ipvs.sync-{role} {interface} id {id}")),
    }
}
