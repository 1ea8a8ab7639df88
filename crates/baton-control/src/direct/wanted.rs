//! What a model and the states of servers ask for now, and how a reason against it is told.

use std::collections::HashMap;
use std::sync::Arc;

use baton_direct::sysctl;
use baton_model::{EffectiveServer, Forwarding, Model, Overrides, Proxy, Role, Server};
use baton_proxy::balance::{BackendState, HealthState, ServerState};
use baton_proxy::{Refused, Registry};

use super::keeper::Work;
use super::lower::{self, Standing};

/// Whether anything goes at the end of the last process.
pub fn leaves_something(model: &Model) -> bool {
    let goes = |front: &Proxy| front.direct.as_ref().is_some_and(|direct| direct.on_exit == baton_model::OnExit::Flush);
    lower::pairs(model).any(|(front, _)| goes(front))
}

/// What shall be in the kernel, by the states of servers as they are now; of servers that are new, by what they begin with. Of a model
/// that is not in use yet: as they are right after a reload with it.
pub fn work(model: &Model, registry: &Registry) -> Work {
    work_of(model, &registry.overrides(), |back| registry.backend_state(back))
}

fn work_of(model: &Model, overrides: &Overrides, find: impl Fn(&str) -> Option<Arc<BackendState>>) -> Work {
    let mut states: HashMap<(Arc<str>, Arc<str>), Arc<ServerState>> = HashMap::new();
    for (_, back) in lower::pairs(model) {
        let Some(state) = find(&back.name) else { continue };
        for server in state.servers() {
            states.insert((back.name.clone(), server.name().clone()), server);
        }
    }
    let standing = |back: &Proxy, server: &Server| {
        let effective = overrides.server(&back.name, server);
        match states.get(&(back.name.clone(), server.name.clone())) {
            Some(state) => standing(state, server, effective),
            None => Standing::at_first(server, effective),
        }
    };
    Work {
        services: lower::services(model, standing),
        down: lower::down(model, standing),
        settings: lower::settings(model),
        managed: lower::managed(model),
        listened: lower::listened(model),
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
        |front: &&Proxy| front.places().iter().any(|bind| what == format!("service {}", lower::key(&bind.place)));
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
            let services = work_of(model, &self.overrides, |_| Some(self.web.clone())).services;
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
}
