//! What a model and the states of servers ask for now, and how a reason against it is told.

use std::collections::HashMap;
use std::sync::Arc;

use baton_direct::sysctl;
use baton_model::{Forwarding, Model, Proxy, Role, Server};
use baton_proxy::balance::{HealthState, ServerState};
use baton_proxy::{Refused, Registry};

use super::keeper::Work;
use super::lower::{self, Standing};

/// Whether anything goes at the end of the last process.
pub fn leaves_something(model: &Model) -> bool {
    let goes = |front: &Proxy| front.direct.as_ref().is_some_and(|direct| direct.on_exit == baton_model::OnExit::Flush);
    lower::pairs(model).any(|(front, _)| goes(front))
}

/// What shall be in the kernel, by the states of servers as they are now; of servers that are new, by what they begin with.
pub fn work(model: &Model, registry: &Registry) -> Work {
    let mut standings: HashMap<(Arc<str>, Arc<str>), Standing> = HashMap::new();
    for (_, back) in lower::pairs(model) {
        let Some(state) = registry.backend_state(&back.name) else { continue };
        for server in state.servers() {
            standings.insert((back.name.clone(), server.name().clone()), standing(&server));
        }
    }
    let standing = |back: &Proxy, server: &Server| {
        let known = standings.get(&(back.name.clone(), server.name.clone())).copied();
        known.unwrap_or_else(|| Standing::at_first(server))
    };
    Work {
        services: lower::services(model, standing),
        down: lower::down(model, standing),
        settings: lower::settings(model),
        managed: lower::managed(model),
        listened: lower::listened(model),
    }
}

fn standing(server: &ServerState) -> Standing {
    let runs = server.is_running();
    let takes = runs && server.health() == HealthState::Up && !server.admin().is_draining();
    Standing { runs, takes, weight: server.weight(), throttle: server.throttle() }
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
    let told = |(engine, keys): (&str, Vec<baton_direct::Key>)| {
        let mut named: Vec<String> = keys.iter().take(NAMED_MAX).map(ToString::to_string).collect();
        named.extend(keys.len().checked_sub(NAMED_MAX + 1).map(|more| format!("{} more", more + 1)));
        let by_hand = match engine {
            "xdp" => "rm -r /sys/fs/bpf/baton-direct/NUMBER",
            _ => "ipvsadm -D",
        };
        format!(
            "services of a Baton that has ended are in the kernel and stay there, though nothing asks for them (engine {engine}: \
             {}): remove them by hand ({by_hand}), or begin with their sections once more and reload without them",
            named.join(", ")
        )
    };
    baton_direct::record::left_behind(&baton_direct::Settings::default()).into_iter().map(told).collect()
}

/// Settings of the system that what a model asks for does not go with. Asked while the process sees /proc.
pub(super) fn advice(model: &Model) -> Vec<String> {
    let masquerades = |ipv6: bool| {
        lower::pairs(model).any(|(front, back)| {
            let is_family = front.places().iter().any(|bind| bind.place.is_ipv6() == ipv6);
            is_family && back.servers.iter().any(|server| server.forwarding == Forwarding::Masquerade)
        })
    };
    let does = sysctl::Director {
        masquerades_ipv4: masquerades(false),
        masquerades_ipv6: masquerades(true),
        interfaces: lower::settings(model).xdp.interfaces,
    };
    sysctl::director(&does).iter().map(ToString::to_string).collect()
}
