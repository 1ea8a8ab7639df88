//! Files of server states (`server-state-file`): what `show servers state` printed of an earlier process, HAProxy's or ours, is what this
//! one starts with. Read once, before the first commit, when no process hands over what it knows.
//!
//! What an operator had set becomes an override by the values that the configuration had then, so it ends when the configuration of
//! today has others. Ports, where a server is checked, and whether TLS is on are those of the file, whatever the configuration says, and so is
//! the address that a name had (`init-addr last`), as in HAProxy. Health continues where a server is checked.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use baton_config::Environment;
use baton_dns::DomainName;
use baton_model::{AdminState, DiscoveredServer, DiscoveredService, Field, Model, Proxy, Server, Setting, StateFile};

use crate::handover::memory::{BackendMemory, CheckMemory, HEALTH_WORDS, ProcessMemory, ServerMemory};
use crate::overrides::OverrideRecord;
use crate::overrides::discovered::record;

/// The largest weight of a server.
const WEIGHT_MAX: u32 = 256;
/// The version of the format, which is a file's first line.
const VERSION: &str = "1";
/// The fewest columns of a line.
const COLUMNS_MIN: usize = 20;

/// `srv_check_status`: HAProxy 2.6's numbers for its words.
const CHECK_WORDS: [(u8, &str); 9] = [
    (3, "HANA"),
    (6, "L4OK"),
    (7, "L4TOUT"),
    (8, "L4CON"),
    (12, "L7TOUT"),
    (13, "L7RSP"),
    (15, "L7OK"),
    (16, "L7OKC"),
    (17, "L7STS"),
];

/// `srv_admin_state`, a mask: in maintenance, disabled in the configuration, draining, with a host that an operator or an SRV record named.
const MAINTENANCE: u32 = 0x01;
const DISABLED: u32 = 0x04;
const DRAIN: u32 = 0x08;
const NAMED: u32 = 0x40;

/// What files of server states say.
#[derive(Debug, Default)]
pub struct SavedStates {
    /// Health, checks and overrides.
    pub memory: ProcessMemory,
    /// What there is to say about the files, as HAProxy says it.
    pub warnings: Vec<String>,
    /// How many servers continue from a file.
    pub servers: usize,
}

/// The number of a check's short word; 1 of none.
pub(crate) fn check_number(word: &str) -> u8 {
    CHECK_WORDS.iter().find(|(_, known)| *known == word).map_or(1, |(number, _)| *number)
}

/// Reads the files that a configuration names. `at_s` is the time that the overrides begin at.
pub fn read(model: &Model, env: &dyn Environment, at_s: u64) -> SavedStates {
    let mut saved = SavedStates::default();
    let mut files: BTreeMap<PathBuf, Option<String>> = BTreeMap::new();
    for backend in model.proxies.iter().filter(|proxy| proxy.role.is_backend() && !proxy.disabled) {
        let whose = match backend.state_file {
            StateFile::None => continue,
            StateFile::Global => Whose::Global,
            StateFile::Local => Whose::Backend(&backend.name),
        };
        let Some(path) = model.state_file(backend) else {
            saved.warnings.push(format!(
                "backend '{}' configured to load server state file from global section 'server-state-file' directive. \
                 Unfortunately, 'server-state-file' is not set!",
                backend.name
            ));
            continue;
        };
        if !files.contains_key(&path) {
            let content = content(&path, whose, env).map_err(|warning| saved.warnings.push(warning)).ok();
            files.insert(path.clone(), content);
        }
        let Some(content) = files.get(&path).and_then(Option::as_deref) else { continue };
        backend_states(&mut saved, backend, content, &path, at_s);
    }
    saved
}

/// Whose file it is, for messages.
#[derive(Clone, Copy)]
enum Whose<'m> {
    Global,
    Backend(&'m str),
}

/// The lines of a file that can be read; a file that is no such file is refused whole.
fn content(path: &Path, whose: Whose<'_>, env: &dyn Environment) -> Result<String, String> {
    let shown = path.display();
    let bytes = env.read(path).map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::NotFound => "No such file or directory".to_owned(),
            _ => error.to_string(),
        };
        match whose {
            Whose::Global => format!("config: Can't open global server state file '{shown}': {reason}"),
            Whose::Backend(name) => format!("Proxy '{name}': Can't open server state file '{shown}': {reason}."),
        }
    })?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    match text.split_once('\n') {
        Some((version, lines)) if version.trim_end() == VERSION => Ok(lines.to_owned()),
        Some(_) | None => Err(match whose {
            Whose::Global => format!("config: Can't get version of the global server state file '{shown}'."),
            Whose::Backend(name) => format!("Proxy '{name}': Can't get version of the server state file '{shown}'."),
        }),
    }
}

/// Takes what a file says of a backend's servers. What stands after a line that cannot be read is not read.
fn backend_states(saved: &mut SavedStates, backend: &Proxy, content: &str, path: &Path, at_s: u64) {
    let mut memory = BackendMemory::default();
    for (number, line) in (1..).zip(content.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(state) = SavedState::read(line) else {
            let warning = format!(
                "config: corrupted server state file '{}' at line {number}: the rest is not read.",
                path.display()
            );
            if !saved.warnings.contains(&warning) {
                saved.warnings.push(warning);
            }
            break;
        };
        if state.backend != &*backend.name {
            continue;
        }
        let Some(server) = backend.servers.iter().find(|server| &*server.name == state.server) else { continue };
        saved.servers += 1;
        saved.memory.overrides.extend(state.overrides(server, path, at_s));
        saved.memory.overrides.extend(state.found(server).map(|one| record(&backend.name, &server.name, &one)));
        memory.servers.0.push((Arc::clone(&server.name), state.memory(server)));
    }
    if !memory.servers.is_empty() {
        saved.memory.backends.0.push((Arc::clone(&backend.name), memory));
    }
}

/// A line of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct SavedState<'l> {
    backend: &'l str,
    server: &'l str,
    /// `srv_op_state`: 0 stopped, 1 starting, 2 running, 3 stopping.
    operation: u8,
    /// `srv_admin_state`.
    admin: u32,
    /// The weight as set, and as configured.
    weight: u32,
    configured_weight: u32,
    /// Seconds since the last change.
    since_s: u64,
    check_status: u8,
    check_health: u32,
    place: SavedPlace,
    /// `srv_fqdn`, `srvrecord`; `None`: `-`.
    host: Option<&'l str>,
    service: Option<&'l str>,
}

/// Where a server was, and where it was checked. `None`: the file does not say.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct SavedPlace {
    address: Option<IpAddr>,
    port: Option<u16>,
    is_encrypted: Option<bool>,
    check_port: Option<u16>,
    check_address: Option<IpAddr>,
    is_agent_asked: Option<bool>,
    agent_address: Option<IpAddr>,
    agent_port: Option<u16>,
}

impl SavedPlace {
    fn read(columns: &[&str]) -> SavedPlace {
        let column = |at: usize| columns.get(at).copied().unwrap_or_default();
        let port = |at: usize| column(at).parse().ok().filter(|port| *port > 0);
        SavedPlace {
            address: column(4).parse().ok(),
            port: port(18),
            is_encrypted: match column(20) {
                "0" => Some(false),
                "1" => Some(true),
                _ => None,
            },
            check_port: port(21),
            check_address: column(22).parse().ok(),
            is_agent_asked: column(14)
                .parse::<u8>()
                .ok()
                .filter(|state| state & 0x02 > 0)
                .map(|state| state & 0x04 > 0),
            agent_address: column(23).parse().ok(),
            agent_port: port(24),
        }
    }

    /// What of it counts for a server, with what the configuration says.
    fn settings(self, server: &Server) -> Vec<Setting> {
        let mut settings = Vec::new();
        // What name servers are asked for is known as they said it, and is no setting.
        let is_looked_up = server.looked_up().is_some();
        if let Some(now) = server.address.inet().filter(|_| server.address.port_offset.is_none() && !is_looked_up) {
            let ip = self.address.filter(|_| server.starts_at_last).unwrap_or(now.ip());
            let then = SocketAddr::new(ip, self.port.unwrap_or(now.port()));
            settings.extend((then != now).then(|| Setting::Address(Some(then.to_string().into()))));
        }
        // A name that the system does not know now.
        if server.address.is_unresolved() && server.starts_at_last && !is_looked_up {
            let place = self.address.map(|ip| SocketAddr::new(ip, self.port.unwrap_or(server.address.port())));
            settings.extend(place.map(|place| Setting::Address(Some(place.to_string().into()))));
        }
        if server.check.enabled {
            settings.extend(self.check_port.map(|port| Setting::CheckPort(Some(port))));
            settings.extend(self.check_address.map(|address| Setting::CheckAddress(Some(address))));
        }
        if let Some(agent) = server.agent() {
            settings.extend(self.is_agent_asked.map(Setting::Agent));
            settings.extend(self.agent_port.map(|port| Setting::AgentPort(Some(port))));
            // One that asks at the address of the checks is written with that.
            let address =
                self.agent_address.filter(|_| agent.addr.is_some() || self.agent_address != self.check_address);
            settings.extend(address.map(|address| Setting::AgentAddress(Some(address))));
        }
        if server.any_tls().is_some() {
            settings.extend(self.is_encrypted.map(Setting::Tls));
        }
        settings
    }
}

impl<'l> SavedState<'l> {
    fn read(line: &'l str) -> Option<SavedState<'l>> {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        if columns.len() < COLUMNS_MIN {
            return None;
        }
        Some(SavedState {
            backend: columns[1],
            server: columns[3],
            operation: columns[5].parse().ok().filter(|state| *state <= 3)?,
            admin: columns[6].parse().ok()?,
            weight: columns[7].parse().ok()?,
            configured_weight: columns[8].parse().ok()?,
            since_s: columns[9].parse().ok()?,
            check_status: columns[10].parse().ok()?,
            check_health: columns[12].parse().ok()?,
            place: SavedPlace::read(&columns),
            host: Some(columns[17]).filter(|host| *host != "-"),
            service: Some(columns[19]).filter(|service| *service != "-"),
        })
    }

    /// The host that an operator had set, where one can.
    fn renamed(&self, of: &Server) -> Option<Setting> {
        let can_be = of.resolution.as_ref().is_some_and(|resolution| resolution.service.is_none());
        let host = self.host.filter(|_| can_be && self.admin & NAMED != 0 && of.looked_up().is_some())?;
        DomainName::parse(host).map(|_| Setting::Fqdn(Some(host.into())))
    }

    /// What name servers had said of a server that they are asked for.
    fn found(&self, of: &Server) -> Option<DiscoveredServer> {
        let (resolution, name) = of.looked_up()?;
        let address = self.place.address.filter(|_| of.starts_at_last)?;
        let mut one = DiscoveredServer {
            resolvers: Arc::clone(&resolution.resolvers),
            name: name.into(),
            address: Some(address),
            service: None,
            weight: None,
        };
        match &resolution.service {
            Some(service) => {
                self.service.filter(|saved| *saved == &**service)?;
                one.service = Some(DiscoveredService { host: self.host?.into(), port: self.place.port? });
                one.weight = Some(self.weight.min(WEIGHT_MAX));
            }
            None => {
                if let Some(Setting::Fqdn(Some(host))) = self.renamed(of) {
                    one.name = host;
                }
            }
        }
        Some(one)
    }

    /// What operators had set, and where the server was.
    fn overrides(&self, of: &Server, path: &Path, at_s: u64) -> impl Iterator<Item = OverrideRecord> {
        let is_set = |bit: u32| self.admin & bit != 0;
        let state = AdminState { maintenance: is_set(MAINTENANCE), drain: is_set(DRAIN) };
        let configured = AdminState { maintenance: is_set(DISABLED), drain: false };
        let place = self.renamed(of).into_iter().chain(self.place.settings(of));
        let place = place.map(|value| (value.field(), Setting::of(value.field(), Some(of)), value));
        // SRV records give weights.
        let is_service = self.found(of).is_some_and(|one| one.service.is_some());
        let weight = if is_service { self.configured_weight } else { self.weight };
        let settings: Vec<(Field, Setting, Setting)> = [
            (Field::State, Setting::State(configured), Setting::State(state)),
            (Field::Weight, Setting::Weight(self.configured_weight), Setting::Weight(weight)),
        ]
        .into_iter()
        .chain(place)
        .collect();
        let (backend, server) = (self.backend.to_owned(), self.server.to_owned());
        let socket = format!("server-state-file {}", path.display());
        settings.into_iter().filter(|(_, file, value)| value != file).map(move |(field, file, value)| OverrideRecord {
            backend: backend.clone(),
            server: server.clone(),
            frontend: String::new(),
            field: field.word().into(),
            value: value.to_string(),
            file: file.to_string(),
            uid: None,
            pid: None,
            socket: socket.clone(),
            at_s,
        })
    }

    /// How the server was. One that is not checked is up: nothing would ever find that it is again.
    fn memory(&self, server: &Server) -> ServerMemory {
        let is_checked = server.check.enabled;
        let word = CHECK_WORDS.iter().find(|(number, _)| *number == self.check_status).map(|(_, word)| *word);
        let health = match self.operation {
            0 if is_checked && word.is_some() && self.admin & MAINTENANCE == 0 => HEALTH_WORDS[2],
            3 if is_checked => HEALTH_WORDS[1],
            _ => "",
        };
        let check = word.filter(|_| is_checked).map(|word| {
            Box::new(CheckMemory {
                status: word.into(),
                health: self.check_health,
                rise: server.check.rise,
                fall: server.check.fall,
                ..CheckMemory::default()
            })
        });
        // Down, and not by its checks: by its agent.
        let is_up_by_checks = !is_checked || self.check_health >= server.check.rise;
        let is_held =
            self.operation == 0 && self.admin & MAINTENANCE == 0 && is_up_by_checks && server.agent().is_some();
        let agent = is_held.then(|| Box::new(CheckMemory { rise: 1, fall: 1, ..CheckMemory::default() }));
        let since_ms = self.since_s.saturating_mul(1000);
        ServerMemory { health: health.into(), since_ms, check, agent, is_held, ..ServerMemory::default() }
    }
}

#[cfg(test)]
mod tests {
    use baton_config::{FixedEnvironment, Options, load};

    use super::*;

    const CONFIG: &str = "resolvers r\n nameserver n1 127.0.0.1:53\nglobal\n server-state-base /var/lib\n server-state-file all\ndefaults\n mode http\n timeout client 1s\n \
        timeout server 1s\n timeout connect 1s\n load-server-state-from-file global\nfrontend f\n bind 127.0.0.1:80\n \
        default_backend app\nbackend app\n server s1 127.0.0.1:1 weight 10\n server s2 127.0.0.1:2 weight 10\n \
        server s3 127.0.0.1:3 check\n server s4 127.0.0.1:4 disabled\n \
        server s5 localhost:5 init-addr last,192.0.2.1\n server s6 192.0.2.66:6 check port 9 ssl verify none\n \
        server s7 localhost:7 init-addr 192.0.2.1\n \
        server s8 nowhere.invalid:8 init-addr last,none\n server s9 127.0.0.1:8 agent-check agent-port 80\nbackend named\n default-server resolvers r init-addr last,none\n \
        server n1 a.test:80\n server n2 a.test:81\n server n3 _app._tcp.test\n server n4 192.0.2.44:80\n \
        server n5 a.test:85 init-addr none\n server n6 _app._tcp.test\nbackend own\n load-server-state-from-file local\n \
        server l1 127.0.0.1:1\n";

    /// Lines of HAProxy 2.6.12, with its server names.
    const SAVED: &str = "1\n# be_id be_name\n\
        3 app 1 s1 127.0.0.1 2 8 3 10 1 1 0 2 0 0 0 0 - 1 - 0 0 - - 0\n\
        3 app 2 s2 127.0.0.1 0 1 10 10 7 1 0 0 0 0 0 0 - 2 - 0 0 - - 0\n\
        3 app 3 s3 127.0.0.1 0 0 1 1 2 8 2 0 6 0 0 0 - 3 - 0 0 - - 0\n\
        3 app 4 s4 127.0.0.1 2 4 1 1 1 1 0 0 8 0 0 0 - 2 - 0 0 - - 0\n\
        3 app 5 s5 192.0.2.5 2 0 1 1 1 1 0 0 8 0 0 0 localhost 50 - 0 0 - - 0\n\
        3 app 6 s6 192.0.2.6 2 0 1 1 1 6 3 6 6 0 0 0 - 60 - 0 61 192.0.2.7 - 0\n\
        3 app 7 s7 192.0.2.8 2 0 1 1 1 1 0 0 8 0 0 0 localhost 7 - 0 0 - - 0\n\
        3 app 8 s8 192.0.2.9 2 0 1 1 1 1 0 0 8 0 0 0 nowhere.invalid 8 - 0 0 - - 0\n\
        3 app 10 s9 127.0.0.1 0 0 1 1 3 1 0 2 0 18 0 0 - 8 - 0 0 - 192.0.2.9 81\n\
        4 named 1 n1 192.0.2.11 2 0 1 1 1 1 0 0 8 0 0 0 b.test 80 - 0 0 - - 0\n\
        4 named 2 n2 192.0.2.12 2 64 1 1 1 1 0 0 8 0 0 0 b.test 81 - 0 0 - - 0\n\
        4 named 3 n3 192.0.2.13 2 64 7 1 1 1 0 0 8 0 0 0 h.test 8003 _app._tcp.test 0 0 - - 0\n\
        4 named 4 n4 192.0.2.14 2 64 1 1 1 1 0 0 8 0 0 0 b.test 80 - 0 0 - - 0\n\
        4 named 5 n5 192.0.2.15 2 64 1 1 1 1 0 0 8 0 0 0 a..test 85 - 0 0 - - 0\n\
        4 named 6 n6 192.0.2.16 2 64 7 1 1 1 0 0 8 0 0 0 h.test 8003 _other._tcp.test 0 0 - - 0\n\
        3 app 9 gone 127.0.0.1 2 0 1 1 1 1 0 0 8 0 0 0 - 2 - 0 0 - - 0\n";

    fn saved(files: &[(&str, &str)]) -> SavedStates {
        let mut env = FixedEnvironment::with_file("a.cfg", CONFIG);
        env.files.extend(files.iter().map(|(path, text)| (PathBuf::from(path), text.as_bytes().to_vec())));
        let loaded = load(&Options::file("a.cfg"), &env);
        read(&loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics)), &env, 7)
    }

    #[test]
    fn a_file_of_haproxy_becomes_overrides_and_health() {
        let saved = saved(&[("/var/lib/all", SAVED), ("/var/lib/own", "1\n")]);
        let overrides: Vec<String> = saved.memory.overrides.iter().map(ToString::to_string).collect();
        let expect = [
            "server app/s1 state drain (file: ready)",
            "server app/s1 weight 3 (file: 10)",
            "server app/s2 state maint (file: ready)",
            "server app/s4 state ready (file: maint)",
            "server app/s4 addr 127.0.0.1:2 (file: 127.0.0.1:4)",
            "server app/s5 addr 192.0.2.5:50 (file: localhost:5)",
            "server app/s6 addr 192.0.2.66:60 (file: 192.0.2.66:6)",
            "server app/s6 check-port 61 (file: 9)",
            "server app/s6 check-addr 192.0.2.7 (file: -)",
            "server app/s6 ssl disabled (file: enabled)",
            "server app/s8 addr 192.0.2.9:8 (file: nowhere.invalid:8)",
            "server app/s9 agent disabled (file: enabled)",
            "server app/s9 agent-port 81 (file: 80)",
            "server app/s9 agent-addr 192.0.2.9 (file: -)",
            "server named/n2 fqdn b.test (file: a.test)",
            "server named/n6 weight 7 (file: 1)",
        ];
        let (overrides, found): (Vec<_>, Vec<_>) = overrides.into_iter().partition(|text| !text.contains("discovered"));
        assert_eq!((overrides, saved.servers, saved.warnings), (expect.map(String::from).to_vec(), 15, Vec::new()));
        assert_eq!(found.len(), 3);
        let found: Vec<_> = saved.memory.overrides.iter().filter_map(crate::overrides::discovered::read).collect();
        let found: Vec<String> = found
            .iter()
            .map(|(backend, server, one)| {
                let host = one.service.as_ref().map(|service| format!(" {}:{}", service.host, service.port));
                let address = one.address.map(|address| address.to_string()).unwrap_or_default();
                format!("{backend}/{server} {} {address} {:?}{}", one.name, one.weight, host.unwrap_or_default())
            })
            .collect();
        let expect = [
            "named/n1 a.test 192.0.2.11 None",
            "named/n2 b.test 192.0.2.12 None",
            "named/n3 _app._tcp.test 192.0.2.13 Some(7) h.test:8003",
        ];
        assert_eq!(found, expect);
        let (name, backend) = saved.memory.backends.iter().next().unwrap();
        let health =
            |(name, server): (&Arc<str>, &ServerMemory)| format!("{name} '{}' {}", server.health, server.since_ms);
        let health: Vec<String> = backend.servers.iter().map(health).collect();
        assert_eq!(
            (&**name, health.join(", ").as_str()),
            (
                "app",
                "s1 '' 1000, s2 '' 7000, s3 'down' 2000, s4 '' 1000, s5 '' 1000, s6 '' 1000, s7 '' 1000, s8 '' 1000, \
                 s9 '' 3000"
            )
        );
    }

    #[test]
    fn what_cannot_be_read_is_reported() {
        let all = saved(&[]);
        let expect = [
            "config: Can't open global server state file '/var/lib/all': No such file or directory",
            "Proxy 'own': Can't open server state file '/var/lib/own': No such file or directory.",
        ];
        assert_eq!(all.warnings, expect);
        let all = saved(&[("/var/lib/all", ""), ("/var/lib/own", "2\n")]);
        let expect = [
            "config: Can't get version of the global server state file '/var/lib/all'.",
            "Proxy 'own': Can't get version of the server state file '/var/lib/own'.",
        ];
        assert_eq!(all.warnings, expect);
        let all = saved(&[
            ("/var/lib/all", &SAVED.replace("3 app 2 s2", "3 app garbage\n3 app 2 s2")),
            ("/var/lib/own", "1\n"),
        ]);
        let expect = "config: corrupted server state file '/var/lib/all' at line 3: the rest is not read.";
        assert_eq!((all.warnings, all.servers), (vec![expect.to_owned()], 1));
    }

    #[test]
    fn numbers_of_checks_and_their_words_belong_together() {
        assert_eq!((check_number("L4OK"), check_number(""), check_number("L7STS")), (6, 1, 17));
    }
}
