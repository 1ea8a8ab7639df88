//! What operators set at run time, keyed by name: plain data beside the [`Model`].
//!
//! What is in force is the model with the overrides on top, decided by [`Overrides::server`] alone. An override has the value that the
//! file had when it was set, and counts as long as the file has that value: when the file changes that very field, the override has
//! ended, and [`Overrides::settle`] takes it out. It ends with its object too.

mod setting;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use crate::{Model, Server};

/// The line of a server that is not there, as text.
pub const NO_LINE: &str = "-";

/// All of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Overrides {
    entries: BTreeMap<(Object, Field), Override>,
}

/// Whose field is overridden.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Object {
    /// The process: limits of `global`.
    Process,
    /// A frontend.
    Frontend {
        /// Its name.
        frontend: Arc<str>,
    },
    /// A server of a backend.
    Server {
        /// The backend's name.
        backend: Arc<str>,
        /// Its own name.
        server: Arc<str>,
    },
}

/// A field that can be overridden.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Field {
    /// Of a server: ready, draining, in maintenance. The file has `disabled`.
    State,
    /// Of a server: `weight`.
    Weight,
    /// Of a server: whether there is one, and what its line says. Added and deleted servers.
    Line,
    /// Of a server: whether it is checked. The file has `check`.
    Health,
    /// Of a server, a frontend or the process: `maxconn`.
    Maxconn,
    /// Of a server: its address and port.
    Address,
    /// Of a server: the name of its host, which name servers are asked for.
    Fqdn,
    /// Of a server: where it is checked, `addr`.
    CheckAddress,
    /// Of a server: at which port it is checked, `port`.
    CheckPort,
    /// Of a server: whether its agent is asked. The file has `agent-check`.
    Agent,
    /// Of a server: `agent-addr`.
    AgentAddress,
    /// Of a server: `agent-port`.
    AgentPort,
    /// Of a server: `agent-send`.
    AgentSend,
    /// Of a server: whether its traffic is encrypted, `ssl`.
    Tls,
    /// Of the process: `maxconnrate`.
    ConnectionRate,
    /// Of the process: `maxsessrate`.
    SessionRate,
    /// Of the process: `maxsslrate`.
    TlsRate,
    /// Of a frontend: whether it lets clients in. The file has `disabled`.
    Service,
}

/// A field with its value.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Setting {
    /// [`Field::State`].
    State(AdminState),
    /// [`Field::Weight`].
    Weight(u32),
    /// [`Field::Line`]: what stands behind the name of a server that was added; of the file's server its address. `None`: there is none.
    Line(Option<Arc<str>>),
    /// [`Field::Health`].
    Health(bool),
    /// [`Field::Maxconn`]: 0 is no limit.
    Maxconn(u32),
    /// [`Field::Address`]: an address with its port; of the file what is written there.
    Address(Option<Arc<str>>),
    /// [`Field::Fqdn`]; `None`: the address is written literally, or an SRV record gives the host.
    Fqdn(Option<Arc<str>>),
    /// [`Field::CheckAddress`].
    CheckAddress(Option<IpAddr>),
    /// [`Field::CheckPort`].
    CheckPort(Option<u16>),
    /// [`Field::Agent`].
    Agent(bool),
    /// [`Field::AgentAddress`].
    AgentAddress(Option<IpAddr>),
    /// [`Field::AgentPort`].
    AgentPort(Option<u16>),
    /// [`Field::AgentSend`].
    AgentSend(Arc<str>),
    /// [`Field::Tls`].
    Tls(bool),
    /// [`Field::ConnectionRate`]: 0 is no limit.
    ConnectionRate(u32),
    /// [`Field::SessionRate`]: 0 is no limit.
    SessionRate(u32),
    /// [`Field::TlsRate`]: 0 is no limit.
    TlsRate(u32),
    /// [`Field::Service`].
    Service(bool),
}

/// What operators and the file say of a server: reasons that may apply together. Neither is `ready`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct AdminState {
    /// Maintenance.
    pub maintenance: bool,
    /// Drain: no new sessions but persistent ones.
    pub drain: bool,
}

/// A value that counts instead of the file's.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Override {
    /// The value.
    pub value: Setting,
    /// What the file said when it was set.
    pub file: Setting,
    /// Who set it.
    pub by: Author,
    /// When, in seconds since 1970.
    pub at_s: u64,
}

/// Who set something at run time.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Author {
    /// The user, as the kernel says; `None` where it does not, as over TCP.
    pub uid: Option<u32>,
    /// The process, as the kernel says; it may have ended since.
    pub pid: Option<u32>,
    /// The socket of the runtime API that was used.
    pub socket: String,
}

/// An override that counts no more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndedOverride {
    /// Whose.
    pub object: Object,
    /// What it said.
    pub value: Setting,
    /// What the file says now; `None`: the object is gone.
    pub file: Option<Setting>,
}

/// A server's fields that can be overridden, as they are in force.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct EffectiveServer {
    /// `weight`.
    pub weight: u32,
    /// Its state, apart from what it inherits or lacks.
    pub admin: AdminState,
}

impl Overrides {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// All, in the order of their objects' names.
    pub fn iter(&self) -> impl Iterator<Item = (&Object, &Override)> {
        self.entries.iter().map(|((object, _), set)| (object, set))
    }

    /// The one of a field.
    pub fn get(&self, object: &Object, field: Field) -> Option<&Override> {
        self.entries.get(&(object.clone(), field))
    }

    /// Those of an object.
    pub fn of<'a>(&'a self, object: &'a Object) -> impl Iterator<Item = &'a Override> {
        Field::ALL.into_iter().filter_map(|field| self.get(object, field))
    }

    /// Those of servers' lines and checks, which make of what the files say what is in force: by backend, with the servers' names. The
    /// oldest come first.
    pub fn of_lines(&self) -> BTreeMap<&Arc<str>, Vec<(&Arc<str>, &Override)>> {
        let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for ((object, field), set) in &self.entries {
            if let Object::Server { backend, server } = object
                && field.is_of_line()
            {
                all.entry(backend).or_default().push((server, set));
            }
        }
        all.values_mut().for_each(|sets| sets.sort_by_key(|(_, set)| set.at_s));
        all
    }

    /// Takes out all of an object; which fields it had.
    pub fn remove(&mut self, object: &Object) -> Vec<Field> {
        let had = |field: &Field| self.entries.remove(&(object.clone(), *field)).is_some();
        Field::ALL.into_iter().filter(had).collect()
    }

    /// Takes out those of an object, of all objects without one, and of them those of a field. With the line of a server that was added goes
    /// whatever else is set of it.
    pub fn clear(&mut self, object: Option<&Object>, field: Option<Field>) -> Vec<(Object, Field)> {
        let is_meant = |(of, is): &(Object, Field)| {
            let is_gone = || {
                let line = self.get(of, Field::Line);
                field == Some(Field::Line) && line.is_some_and(|set| set.file == Setting::Line(None))
            };
            object.is_none_or(|object| object == of) && (field.is_none_or(|field| field == *is) || is_gone())
        };
        let meant: Vec<(Object, Field)> = self.entries.keys().filter(|key| is_meant(key)).cloned().collect();
        meant.iter().for_each(|key| drop(self.entries.remove(key)));
        meant
    }

    /// The backends of whose servers there are any.
    pub fn backends(&self) -> HashSet<&Arc<str>> {
        self.entries.keys().filter_map(|(object, _)| object.backend()).collect()
    }

    /// What is set of a field of a frontend or the process, of which the file says this.
    pub fn setting(&self, object: &Object, file: &Setting) -> Option<&Setting> {
        self.get(object, file.field()).filter(|set| set.file == *file).map(|set| &set.value)
    }

    /// The limit of a frontend or the process that is set, where the file says this.
    pub fn limit(&self, object: &Object, file: Option<Setting>) -> Option<u32> {
        self.setting(object, &file?)?.limit()
    }

    /// Sets a field; one that is set to what the file says is overridden no more.
    pub fn set(&mut self, object: Object, set: Override) {
        let key = (object, set.value.field());
        match set.value == set.file {
            true => drop(self.entries.remove(&key)),
            false => drop(self.entries.insert(key, set)),
        }
    }

    /// Adds those of another process, of which the newest count.
    pub fn join(&mut self, others: Overrides) {
        for (key, theirs) in others.entries {
            if self.entries.get(&key).is_none_or(|ours| ours.at_s <= theirs.at_s) {
                self.entries.insert(key, theirs);
            }
        }
    }

    /// What is in force for a server that the file has so.
    pub fn server(&self, backend: &Arc<str>, server: &Server) -> EffectiveServer {
        let mut effective = EffectiveServer::of(server);
        if self.is_empty() {
            return effective;
        }
        let mut key = (Object::Server { backend: backend.clone(), server: server.name.clone() }, Field::State);
        for field in [Field::State, Field::Weight] {
            key.1 = field;
            let set = self.entries.get(&key).filter(|set| set.file == Setting::of(field, Some(server)));
            match set.map(|set| &set.value) {
                Some(Setting::State(admin)) => effective.admin = *admin,
                Some(Setting::Weight(weight)) => effective.weight = *weight,
                // These are in the server's line as it is in force.
                Some(
                    Setting::Line(_)
                    | Setting::Health(_)
                    | Setting::Maxconn(_)
                    | Setting::Address(_)
                    | Setting::Fqdn(_)
                    | Setting::CheckAddress(_)
                    | Setting::CheckPort(_)
                    | Setting::Agent(_)
                    | Setting::AgentAddress(_)
                    | Setting::AgentPort(_)
                    | Setting::AgentSend(_)
                    | Setting::Tls(_)
                    | Setting::ConnectionRate(_)
                    | Setting::SessionRate(_)
                    | Setting::TlsRate(_)
                    | Setting::Service(_),
                )
                | None => {}
            }
        }
        effective
    }

    /// Those that a model, as the files have it, ends.
    pub fn ended_by(&self, model: &Model) -> Vec<EndedOverride> {
        let backends = self.backends();
        let mut servers: HashMap<(&str, &str), &Server> = HashMap::new();
        let mut there: HashSet<&str> = HashSet::new();
        for proxy in model.proxies.iter().filter(|proxy| proxy.role.is_backend() && backends.contains(&proxy.name)) {
            there.insert(&proxy.name);
            servers.extend(proxy.servers.iter().map(|server| ((&*proxy.name, &*server.name), &**server)));
        }
        let ended = self.entries.iter().filter_map(|((object, field), set)| {
            let Object::Server { backend, server } = object else {
                let file = Setting::of_object(*field, object, model);
                let is_in_force = file.as_ref() == Some(&set.file);
                let ended = EndedOverride { object: object.clone(), value: set.value.clone(), file };
                return (!is_in_force).then_some(ended);
            };
            let server = servers.get(&(&**backend, &**server)).copied();
            let is_there = there.contains(&**backend);
            let line = self.get(object, Field::Line).filter(|set| set.file == Setting::of(Field::Line, server));
            let has_no_agent = || server.is_some_and(|server| server.agent().is_none());
            let is_in_force = match line.map(|line| &line.value) {
                _ if !is_there => false,
                // Nobody would ever take it back.
                _ if set.by.is_agent() && has_no_agent() => false,
                // What is set of a server that was added, no file says.
                Some(Setting::Line(Some(_))) => true,
                _ if *field == Field::Line => line.is_some(),
                Some(_) => false,
                None => server.is_some_and(|server| Setting::of(*field, Some(server)) == set.file),
            };
            let file = match field {
                Field::Line => is_there.then(|| Setting::of(Field::Line, server)),
                _ => server.map(|server| Setting::of(*field, Some(server))),
            };
            (!is_in_force).then(|| EndedOverride { object: object.clone(), value: set.value.clone(), file })
        });
        ended.collect()
    }

    /// Takes out those that a model ends.
    pub fn settle(&mut self, model: &Model) -> Vec<EndedOverride> {
        let ended = self.ended_by(model);
        for one in &ended {
            self.entries.remove(&(one.object.clone(), one.value.field()));
        }
        ended
    }
}

impl Object {
    /// A server.
    pub fn server(backend: &Arc<str>, server: &Arc<str>) -> Object {
        Object::Server { backend: backend.clone(), server: server.clone() }
    }

    /// A frontend.
    pub fn frontend(frontend: &Arc<str>) -> Object {
        Object::Frontend { frontend: frontend.clone() }
    }

    /// The object that an operator names: `global`, a frontend, or `backend/server`.
    pub fn of_words(words: &str) -> Option<Object> {
        match words.split_once('/') {
            Some((backend, server)) => {
                (!backend.is_empty() && !server.is_empty()).then(|| Object::server(&backend.into(), &server.into()))
            }
            None if words == "global" => Some(Object::Process),
            None => (!words.is_empty()).then(|| Object::frontend(&words.into())),
        }
    }

    /// The backend of a server.
    pub fn backend(&self) -> Option<&Arc<str>> {
        match self {
            Object::Server { backend, .. } => Some(backend),
            Object::Process | Object::Frontend { .. } => None,
        }
    }
}

impl fmt::Display for Object {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Object::Process => out.write_str("global"),
            Object::Frontend { frontend } => write!(out, "frontend {frontend}"),
            Object::Server { backend, server } => write!(out, "server {backend}/{server}"),
        }
    }
}

impl AdminState {
    const ALL: [AdminState; 4] = [
        AdminState { maintenance: false, drain: false },
        AdminState { maintenance: false, drain: true },
        AdminState { maintenance: true, drain: false },
        AdminState { maintenance: true, drain: true },
    ];

    fn word(self) -> &'static str {
        match (self.maintenance, self.drain) {
            (false, false) => "ready",
            (false, true) => "drain",
            (true, false) => "maint",
            (true, true) => "maint+drain",
        }
    }
}

impl EffectiveServer {
    /// As the file has it, with the weight by DNS.
    pub fn of(server: &Server) -> EffectiveServer {
        let admin = AdminState { maintenance: server.disabled, drain: false };
        EffectiveServer { weight: server.weight_by_dns.unwrap_or(server.weight), admin }
    }
}

/// What stands for a socket where no operator set something, but the agent of a server.
const AGENT: &str = "agent-check";

impl Author {
    /// The agent of a server.
    pub fn agent() -> Author {
        Author { uid: None, pid: None, socket: AGENT.into() }
    }

    /// Whether the agent of a server set it. It will say so again.
    pub fn is_agent(&self) -> bool {
        self.uid.is_none() && self.pid.is_none() && self.socket == AGENT
    }
}

impl fmt::Display for Author {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(uid) = self.uid {
            write!(out, "uid {uid} ")?;
        }
        if let Some(pid) = self.pid {
            write!(out, "pid {pid} ")?;
        }
        write!(out, "over {}", self.socket)
    }
}

impl EndedOverride {
    /// Why it ended.
    pub fn why(&self) -> String {
        match &self.file {
            Some(Setting::Line(None)) => format!("{} is no longer in the file", self.object),
            Some(file) => format!("the file now has {file}"),
            None => format!("{} is no longer in the file", self.object),
        }
    }
}

impl fmt::Display for EndedOverride {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let EndedOverride { object, value, .. } = self;
        write!(out, "{object} {} {value}, set at run time, ends: {}", value.field().word(), self.why())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Proxy, Role};

    fn model(servers: &[Server]) -> Model {
        let mut proxy = Proxy::new("app", Role::Backend);
        proxy.servers = servers.iter().cloned().map(Arc::new).collect();
        Model { proxies: vec![Arc::new(proxy)], ..Model::default() }
    }

    fn server(weight: u32, disabled: bool) -> Server {
        Server { weight, disabled, ..Server::new("s1", 1, None) }
    }

    fn s1() -> Object {
        Object::server(&"app".into(), &"s1".into())
    }

    fn set(overrides: &mut Overrides, value: Setting, file: &Server, at_s: u64) {
        let file = Setting::of(value.field(), Some(file));
        overrides.set(s1(), Override { value, file, by: Author::default(), at_s });
    }

    const DRAIN: AdminState = AdminState { maintenance: false, drain: true };

    #[test]
    fn an_override_ends_when_the_file_changes_that_very_field() {
        let file = server(10, false);
        let mut overrides = Overrides::default();
        set(&mut overrides, Setting::State(DRAIN), &file, 1);
        set(&mut overrides, Setting::Weight(3), &file, 1);
        let app: Arc<str> = "app".into();
        assert_eq!(overrides.server(&app, &file), EffectiveServer { weight: 3, admin: DRAIN });
        assert!(overrides.settle(&model(&[Server { maxconn: 7, ..server(10, false) }])).is_empty());
        let heavier = server(20, false);
        assert_eq!(overrides.server(&app, &heavier), EffectiveServer { weight: 20, admin: DRAIN });
        let ended = overrides.settle(&model(&[heavier]));
        let told: Vec<String> = ended.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["server app/s1 weight 3, set at run time, ends: the file now has 20"]);
        assert_eq!(
            overrides.server(&app, &file),
            EffectiveServer { weight: 10, admin: DRAIN },
            "it does not come back"
        );
        let gone = overrides.settle(&model(&[]));
        assert_eq!((gone.len(), gone[0].file.clone(), overrides.len()), (1, None, 0));
    }

    #[test]
    fn what_the_file_says_is_no_override() {
        let file = server(10, true);
        let mut overrides = Overrides::default();
        set(&mut overrides, Setting::State(AdminState::default()), &file, 1);
        assert_eq!(overrides.len(), 1);
        set(&mut overrides, Setting::State(AdminState { maintenance: true, drain: false }), &file, 2);
        set(&mut overrides, Setting::Weight(10), &file, 2);
        assert!(overrides.is_empty());
    }

    #[test]
    fn of_two_processes_the_newest_count() {
        let file = server(10, false);
        let (mut one, mut other) = (Overrides::default(), Overrides::default());
        set(&mut one, Setting::Weight(3), &file, 5);
        set(&mut other, Setting::Weight(4), &file, 4);
        set(&mut other, Setting::State(DRAIN), &file, 4);
        one.join(other);
        assert_eq!(one.server(&"app".into(), &file), EffectiveServer { weight: 3, admin: DRAIN });
    }

    #[test]
    fn a_server_that_was_added_or_deleted_is_so_until_the_file_names_it_or_not() {
        let object = |name: &str| Object::server(&"app".into(), &name.into());
        let line = |line: Option<&str>| Setting::Line(line.map(Into::into));
        let set = |value, file| Override { value, file, by: Author::default(), at_s: 1 };
        let mut overrides = Overrides::default();
        overrides.set(object("n1"), set(line(Some("127.0.0.1:9 weight 3")), line(None)));
        overrides.set(object("n1"), set(Setting::State(AdminState::default()), Setting::State(DRAIN)));
        let address = server(10, false).address.to_string();
        overrides.set(object("s1"), set(line(None), line(Some(&address))));
        let asked = model(&[server(10, false)]);
        assert!(overrides.ended_by(&asked).is_empty());
        let mut named = Server::new("n1", 2, None);
        named.weight = 5;
        let ended = |model: &Model| overrides.ended_by(model).iter().map(ToString::to_string).collect::<Vec<_>>();
        let gone = |field: &str| format!("server app/{field}, set at run time, ends: ");
        let told = ended(&model(&[server(10, false), named]));
        assert!(told.len() == 2 && told[0].starts_with(&gone("n1 state ready")), "{told:?}");
        assert!(told[1].starts_with(&gone("n1 line 127.0.0.1:9 weight 3")), "{told:?}");
        assert_eq!(ended(&model(&[])), [gone("s1 line -") + "server app/s1 is no longer in the file"]);
        assert_eq!(ended(&Model::default()).len(), 3, "the backend is gone");
        overrides.set(object("s1"), set(line(Some(&address)), line(Some(&address))));
        assert_eq!((overrides.remove(&object("n1")).len(), overrides.is_empty()), (2, true));
    }

    #[test]
    fn limits_of_frontends_and_the_process_hold_until_the_file_changes_them() {
        let mut model = model(&[]);
        model.global.maxconnrate = Some(5);
        let (mut overrides, mut web) = (Overrides::default(), Proxy::new("web", Role::Frontend));
        web.maxconn = Some(10);
        model.proxies.push(Arc::new(web.clone()));
        let frontend = Object::frontend(&"web".into());
        let entries = [
            (frontend.clone(), Setting::Maxconn(3), Setting::Maxconn(10)),
            (frontend.clone(), Setting::Service(false), Setting::Service(true)),
            (Object::Process, Setting::ConnectionRate(0), Setting::ConnectionRate(5)),
        ];
        for (object, value, file) in entries {
            overrides.set(object, Override { value, file, by: Author::default(), at_s: 0 });
        }
        assert_eq!(overrides.settle(&model), []);
        let limit = |overrides: &Overrides, model: &Model| {
            let maxconn = Setting::of_frontend(Field::Maxconn, model.frontend("web").unwrap());
            let rate = Setting::of_process(Field::ConnectionRate, &model.global);
            (overrides.limit(&frontend, maxconn), overrides.limit(&Object::Process, rate))
        };
        assert_eq!(limit(&overrides, &model), (Some(3), Some(0)));
        web.maxconn = Some(11);
        model.proxies = vec![Arc::new(web)];
        assert_eq!(limit(&overrides, &model), (None, Some(0)), "another value of the file counts before it settles");
        assert_eq!(overrides.settle(&model).len(), 1);
        model.proxies.clear();
        assert_eq!(overrides.settle(&model).len(), 1, "the frontend is gone");
        let words = ["global", "web", "app/s1", "", "app/"].map(Object::of_words);
        assert_eq!(
            words,
            [
                Some(Object::Process),
                Some(frontend.clone()),
                Some(Object::server(&"app".into(), &"s1".into())),
                None,
                None
            ]
        );
    }

    #[test]
    fn settings_are_these_words_for_ever() {
        let check = |setting: Setting, field: &str, text: &str| {
            assert_eq!((setting.field().word(), setting.to_string().as_str()), (field, text));
            assert_eq!(Field::of_word(field).and_then(|field| Setting::parse(field, text)), Some(setting.clone()));
        };
        for (state, word) in AdminState::ALL.into_iter().zip(["ready", "drain", "maint", "maint+drain"]) {
            check(Setting::State(state), "state", word);
        }
        check(Setting::Weight(256), "weight", "256");
        check(Setting::Line(Some("127.0.0.1:1 weight 3".into())), "line", "127.0.0.1:1 weight 3");
        check(Setting::Line(None), "line", "-");
        check(Setting::Health(true), "health", "enabled");
        check(Setting::Maxconn(7), "maxconn", "7");
        check(Setting::Address(Some("[::1]:80".into())), "addr", "[::1]:80");
        check(Setting::Address(None), "addr", "-");
        check(Setting::CheckAddress(Some([192, 0, 2, 1].into())), "check-addr", "192.0.2.1");
        check(Setting::CheckAddress(None), "check-addr", "-");
        check(Setting::CheckPort(Some(81)), "check-port", "81");
        check(Setting::CheckPort(None), "check-port", "-");
        check(Setting::Health(false), "health", "disabled");
        check(Setting::Agent(false), "agent", "disabled");
        check(Setting::AgentAddress(Some([192, 0, 2, 1].into())), "agent-addr", "192.0.2.1");
        check(Setting::AgentAddress(None), "agent-addr", "-");
        check(Setting::AgentPort(Some(81)), "agent-port", "81");
        check(Setting::AgentPort(None), "agent-port", "-");
        check(Setting::AgentSend("".into()), "agent-send", "");
        check(Setting::AgentSend("a b\r\n\\é\u{1}".into()), "agent-send", "a b\\r\\n\\\\é\\x01");
        assert_eq!(Setting::parse(Field::State, "gone"), None);
        assert_eq!(Setting::parse(Field::Weight, "257"), None);
        assert_eq!(Field::of_word("colour"), None);
    }
}
