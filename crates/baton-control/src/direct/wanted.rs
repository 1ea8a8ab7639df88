//! What a model and the states of servers ask for now, and how a reason against it is told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use baton_direct::{Service, ServiceKey, sysctl};
use baton_model::{EffectiveServer, Forwarding, Model, Overrides, Proxy, Role, Server};
use baton_proxy::balance::{BackendState, Edition, HealthState, ServerState};
use baton_proxy::{Refused, Registry};

use super::keeper::Work;
use super::lower::{self, Lowered, Standing};

/// Whether anything goes at the end of the last process.
pub fn leaves_something(model: &Model) -> bool {
    let goes = |front: &Proxy| front.direct.as_ref().is_some_and(|direct| direct.on_exit == baton_model::OnExit::Flush);
    lower::pairs(model).any(|(front, _)| goes(front))
}

/// What shall be in the kernel, by the states of servers as they are now; of servers that are new, by what they begin with. Of a model
/// that is not in use yet: as they are right after a reload with it.
pub fn work(model: &Model, registry: &Registry) -> Work {
    let mut sections = Sections::default();
    sections.work_of(model, &registry.overrides(), |back| registry.backend_state(back)).beside(model)
}

/// What the sections of the model in use ask for, kept from one look to the next: a section whose words are the same and whose servers did
/// not change is not looked at again, and its services stay the same objects.
#[derive(Debug, Default)]
pub struct Sections {
    /// By the name of the frontend.
    kept: HashMap<Arc<str>, Section>,
    /// What else the model asks for that was looked at last.
    beside: Option<(Arc<Model>, Work)>,
}

/// The state of a backend's servers, and its edition when they were read.
type ReadState = (Arc<BackendState>, Edition);

/// What a section asked for, and by what it is known to do so still.
#[derive(Debug)]
struct Section {
    front: Arc<Proxy>,
    back: Arc<Proxy>,
    /// Without one, everything may change.
    state: Option<ReadState>,
    services: Vec<Arc<Service>>,
    down: Vec<(ServiceKey, SocketAddr)>,
}

impl Sections {
    /// What shall be in the kernel: [`work`] of the model in use.
    pub fn work(&mut self, model: &Arc<Model>, registry: &Registry) -> Work {
        let Work { services, down, .. } =
            self.work_of(model, &registry.overrides(), |back| registry.backend_state(back));
        let beside = match self.beside.take().filter(|(of, _)| Arc::ptr_eq(of, model)) {
            Some((_, beside)) => beside,
            None => Work::default().beside(model),
        };
        let (_, beside) = self.beside.insert((Arc::clone(model), beside));
        Work { services, down, ..beside.clone() }
    }

    /// Services alone.
    fn work_of(
        &mut self,
        model: &Model,
        overrides: &Overrides,
        find: impl Fn(&str) -> Option<Arc<BackendState>>,
    ) -> Work {
        let mut before = std::mem::take(&mut self.kept);
        let mut work = Work::default();
        for (front, back) in lower::pairs(model) {
            // Servers that change after this are looked at once more.
            let state = find(&back.name).map(|state| (Arc::clone(&state), state.edition()));
            let known = before.remove(&front.name).filter(|known| known.is_of(front, back, state.as_ref()));
            let section = known.unwrap_or_else(|| Section::new(front, back, state, overrides));
            work.services.extend(section.services.iter().cloned());
            work.down.extend(section.down.iter().copied());
            self.kept.insert(front.name.clone(), section);
        }
        work
    }
}

impl Section {
    fn new(front: &Arc<Proxy>, back: &Arc<Proxy>, state: Option<ReadState>, overrides: &Overrides) -> Section {
        let servers = state.iter().flat_map(|(state, _)| state.servers());
        let states: HashMap<Arc<str>, Arc<ServerState>> =
            servers.map(|server| (server.name().clone(), server)).collect();
        let Lowered { services, down } = lower::lower(front, back, |server| {
            let effective = overrides.server(&back.name, server);
            match states.get(&server.name) {
                Some(state) => standing(state, server, effective),
                None => Standing::at_first(server, effective),
            }
        });
        let services = services.into_iter().map(Arc::new).collect();
        Section { front: Arc::clone(front), back: Arc::clone(back), state, services, down }
    }

    /// Whether it would be the same again.
    fn is_of(&self, front: &Arc<Proxy>, back: &Arc<Proxy>, state: Option<&ReadState>) -> bool {
        let is_state =
            |((one, before), (other, now)): (&ReadState, &ReadState)| Arc::ptr_eq(one, other) && before == now;
        Arc::ptr_eq(&self.front, front)
            && Arc::ptr_eq(&self.back, back)
            && self.state.as_ref().zip(state).is_some_and(is_state)
    }
}

impl Work {
    /// With what a model asks for besides services.
    fn beside(self, model: &Model) -> Work {
        Work {
            settings: lower::settings(model),
            managed: lower::managed(model),
            listened: lower::listened(model),
            ..self
        }
    }
}

/// How a server is once it has this configuration.
fn standing(state: &ServerState, server: &Server, effective: EffectiveServer) -> Standing {
    let before = state.config();
    let admin = state.admin_with(server, effective);
    // Who is checked no more is up.
    let health = match before.check.enabled && !server.check.enabled && server.check.track.is_none() {
        true => HealthState::Up,
        false => state.health(),
    };
    let runs = !admin.in_maintenance() && health != HealthState::Down && !state.is_removed();
    let takes = runs && health == HealthState::Up && !admin.is_draining();
    let throttle = state.throttle().and_then(|percent| match (before.slowstart, server.slowstart) {
        (Some(old), Some(new)) if old != new => {
            let percent = u128::from(percent) * old.as_millis() / new.as_millis().max(1);
            u32::try_from(percent).ok().filter(|percent| *percent < 100)
        }
        (_, Some(_)) => Some(percent),
        (_, None) => None,
    });
    Standing { runs, takes, weight: effective.weight, throttle }
}

/// A reason against a model, at the section that it is about.
pub(super) fn refuse(model: &Model, what: &str, why: &str) -> Refused {
    let is_it =
        |front: &&Arc<Proxy>| front.places().iter().any(|bind| what == format!("service {}", lower::key(&bind.place)));
    let mut fronts = lower::pairs(model).map(|(front, _)| front);
    let front = fronts.find(is_it).or_else(|| lower::pairs(model).map(|(front, _)| front).next());
    let source = front.map(|front| front.source.clone()).unwrap_or_default();
    let object = match front {
        Some(front) => {
            format!("{} {}", if front.role == Role::Listen { "proxy" } else { front.role.word() }, front.name)
        }
        None => "mode direct".into(),
    };
    let reason = if what == "mode direct" { format!("mode direct: {why}") } else { format!("{what}: {why}") };
    Refused { object, reason, source }
}

/// Services named in a warning.
const NAMED_MAX: usize = 5;

/// What a Baton that has ended left in the kernel, for one that has no sections; a sentence for each engine.
pub(super) fn left_behind() -> Vec<String> {
    let told = |(engine, keys): (&str, Vec<baton_direct::ServiceKey>)| {
        let mut named: Vec<String> = keys.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        named.extend(keys.len().checked_sub(NAMED_MAX + 1).map(|more| format!("{} more", more + 1)));
        let by_hand = match engine {
            "xdp" => "rm -r /sys/fs/bpf/baton-direct/NUMBER",
            _ => "ipvsadm -D",
        };
        format!(
            "services of a Baton process that has ended remain in the kernel, without a section in the configuration (engine \
             {engine}: {}): remove them manually ({by_hand}), or start with their sections and reload without them",
            named.join(", ")
        )
    };
    baton_direct::record::left_behind(&baton_direct::DirectorSettings::default()).into_iter().map(told).collect()
}

/// Settings of the system that what a model asks for does not go with. Asked while the process sees /proc.
pub(super) fn advice(model: &Model) -> Vec<String> {
    let masquerades = |ipv6: bool| {
        lower::pairs(model).any(|(front, back)| {
            let is_family = front.places().iter().any(|bind| bind.place.is_ipv6() == ipv6);
            is_family && back.servers.iter().any(|server| server.forwarding == Forwarding::Masquerade)
        })
    };
    let does = sysctl::DirectorNeeds {
        masquerades_ipv4: masquerades(false),
        masquerades_ipv6: masquerades(true),
        interfaces: lower::settings(model).xdp.interfaces,
    };
    sysctl::director(&does).iter().map(ToString::to_string).collect()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use baton_config::{FixedEnvironment, Options, load};
    use baton_model::{AdminState, Author, Object, Override, Setting};

    use super::*;

    const CHECKED: &str = " server a 10.0.0.2 weight 2 check\n server b 10.0.0.3 weight 4\n";

    fn model(servers: &str) -> Model {
        let text = format!("listen web\n mode direct\n bind 10.0.0.1:80\n{servers}");
        let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", &*text));
        Model::clone(&loaded.model.unwrap_or_else(|| panic!("refused: {text}")))
    }

    /// A process that works by a model.
    struct Running {
        web: Arc<BackendState>,
        overrides: Overrides,
    }

    impl Running {
        fn by(servers: &str) -> Running {
            Running {
                web: BackendState::new(&model(servers).proxies[0], Instant::now()),
                overrides: Overrides::default(),
            }
        }

        fn weights(&self, model: &Model) -> Vec<u32> {
            let Work { services, .. } = Sections::default().work_of(model, &self.overrides, |_| Some(self.web.clone()));
            services[0].destinations.iter().map(|destination| destination.weight).collect()
        }

        /// The weights that are planned for a model, which are those that there are once it is in use.
        #[track_caller]
        fn change(&mut self, servers: &str) -> Vec<u32> {
            let model = model(servers);
            let planned = self.weights(&model);
            self.overrides.settle(&model);
            let effective = |server: &Server| self.overrides.server(&model.proxies[0].name, server);
            self.web.replace(&model.proxies[0], &effective, &|_| None, Instant::now());
            assert_eq!(planned, self.weights(&model), "{servers}: a reload makes what was planned");
            planned
        }

        /// An operator sets a field of the first server.
        fn set(&mut self, value: Setting) {
            let config = self.web.server("a").unwrap().config();
            let set =
                Override { file: Setting::of(value.field(), Some(&config)), value, by: Author::default(), at_s: 0 };
            self.overrides.set(Object::server(self.web.name(), &config.name), set);
            self.web.settle(&|server: &Server| self.overrides.server(self.web.name(), server));
        }
    }

    #[test]
    fn a_plan_has_the_weights_that_a_reload_gives() {
        let mut running = Running::by(CHECKED);
        assert_eq!(running.change(CHECKED), [2, 4]);
        assert_eq!(running.change(&CHECKED.replace("weight 4", "weight 0")), [2, 0]);
        assert_eq!(running.change(&CHECKED.replace("weight 2", "weight 9")), [9, 4]);
        assert_eq!(running.change(&CHECKED.replace("weight 4", "weight 4 disabled")), [2, 0]);
        assert_eq!(running.change(CHECKED), [2, 4]);
        running.set(Setting::Weight(7));
        running.set(Setting::State(AdminState { maintenance: false, drain: true }));
        assert_eq!(running.change(&CHECKED.replace("weight 4", "weight 5")), [0, 5], "what was set by hand stays");
        running.set(Setting::State(AdminState::default()));
        assert_eq!(running.change(CHECKED), [7, 4]);
        assert_eq!(running.change(&CHECKED.replace("weight 2", "weight 3")), [3, 4], "the file changed that field");
        assert_eq!(running.change(CHECKED), [2, 4]);
    }

    #[test]
    fn a_plan_knows_who_starts_slowly_and_who_is_checked_no_more() {
        let slow = CHECKED.replace("weight 2", "weight 100 slowstart 100s");
        let mut running = Running::by(&slow);
        assert_eq!(running.change(&slow), [100, 4]);
        let server = running.web.server("a").unwrap();
        let first = |servers: &str| running.weights(&model(servers))[0];
        let now = Instant::now();
        server.set_health(HealthState::Down, now);
        assert_eq!(first(&slow), 0);
        server.set_health(HealthState::Up, now);
        running.web.warm_up(now + Duration::from_secs(50));
        assert_eq!(first(&slow), 50 * lower::SCALE);
        assert_eq!(first(&slow.replace("100s", "200s")), 25 * lower::SCALE);
        assert_eq!(first(&CHECKED.replace("weight 2", "weight 100")), 100, "all of it at once");
        server.set_health(HealthState::Down, now);
        assert_eq!(first(&slow.replace(" check", "")), 100);
    }

    #[test]
    fn a_section_whose_servers_did_not_change_keeps_its_services() {
        let text = |weight: u32| {
            format!(
                "listen one\n mode direct\n bind 10.0.0.1:80-81\n server a 10.0.0.2 weight {weight}\n\
                 listen two\n mode direct\n bind 10.0.0.9:80\n stick-table type ip size 1m expire 5m\n stick on src\n \
                 server a 10.0.0.3 weight 4 check\n"
            )
        };
        let model = |weight: u32| {
            let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text(weight)));
            loaded.model.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
        };
        let (first, mut second) = (model(2), model(3));
        second.share(&first, || {});
        let states: Vec<Arc<BackendState>> =
            first.proxies.iter().map(|proxy| BackendState::new(proxy, Instant::now())).collect();
        let mut sections = Sections::default();
        let mut overrides = Overrides::default();
        // Which services are the same objects as before, and the weights.
        let mut before: Vec<Arc<Service>> = Vec::new();
        let mut look = |model: &Model, overrides: &Overrides| {
            let find = |name: &str| states.iter().find(|state| &**state.name() == name).cloned();
            let Work { services, down, .. } = sections.work_of(model, overrides, find);
            let same: Vec<bool> = services.iter().zip(&before).map(|(one, other)| Arc::ptr_eq(one, other)).collect();
            let weights: Vec<u32> = services.iter().map(|service| service.destinations[0].weight).collect();
            before = services;
            (same, weights, down.len())
        };
        assert_eq!(look(&first, &overrides), (vec![], vec![2, 2, 4], 0));
        assert_eq!(look(&first, &overrides), (vec![true; 3], vec![2, 2, 4], 0));
        let checked = states[1].server("a").unwrap();
        checked.set_health(HealthState::Down, Instant::now());
        assert_eq!(look(&first, &overrides), (vec![true, true, false], vec![2, 2, 0], 1));
        assert_eq!(look(&first, &overrides), (vec![true; 3], vec![2, 2, 0], 1));
        checked.set_health(HealthState::Up, Instant::now());

        // The file changes one of them.
        states[0].replace(&second.proxies[0], &EffectiveServer::of, &|_| None, Instant::now());
        assert_eq!(look(&second, &overrides), (vec![false; 3], vec![3, 3, 4], 0));
        states[0].replace(&first.proxies[0], &EffectiveServer::of, &|_| None, Instant::now());
        assert_eq!(look(&first, &overrides), (vec![false, false, true], vec![2, 2, 4], 0));

        // An operator changes the other one.
        let file = Setting::Weight(4);
        let set = Override { file, value: Setting::Weight(9), by: Author::default(), at_s: 0 };
        overrides.set(Object::server(states[1].name(), &checked.config().name), set);
        states[1].settle(&|server: &Server| overrides.server(states[1].name(), server));
        assert_eq!(look(&first, &overrides), (vec![true, true, false], vec![2, 2, 9], 0));
    }
}
