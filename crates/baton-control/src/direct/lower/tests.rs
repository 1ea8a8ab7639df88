//! Sections and states, and the services that they become.

use std::sync::Arc;
use std::time::Duration;

use baton_config::{FixedEnvironment, Options, load};

use super::*;

fn model(text: &str) -> Arc<Model> {
    let loaded = load(&Options::file("a.cfg"), &FixedEnvironment::with_file("a.cfg", text));
    let faults: Vec<String> = loaded.diagnostics.iter().map(|fault| fault.render(1)).collect();
    Arc::new(loaded.model.unwrap_or_else(|| panic!("{text}\n{}", faults.join(""))))
}

/// All that the sections of a model ask for.
fn lowered(model: &Model, standing: impl Fn(&Server) -> Standing) -> Lowered {
    let mut all = Lowered::default();
    for Lowered { services, down } in pairs(model).map(|(front, back)| lower(front, back, &standing)) {
        all.services.extend(services);
        all.down.extend(down);
    }
    all
}

/// `ADDRESS:PORT=WEIGHT` of each server of the first service, servers as `change` has them.
fn shown(lines: &str, change: impl Fn(&str, &mut Standing)) -> String {
    let text = format!("listen web\n mode direct\n bind 10.0.0.1:80\n{lines}\n");
    let Lowered { services, .. } = lowered(&model(&text), |server| {
        let mut standing = Standing::at_first(server, EffectiveServer::of(server));
        change(&server.name, &mut standing);
        standing
    });
    let show = |one: &Destination| format!("{}={}", one.address, one.weight);
    services[0].destinations.iter().map(show).collect::<Vec<_>>().join(" ")
}

const TWO: &str = " server a 10.0.0.2\n server b 10.0.0.3 weight 3\n";

fn down(of: &'static str) -> impl Fn(&str, &mut Standing) {
    move |name, standing| {
        if name == of {
            (standing.runs, standing.takes) = (false, false);
        }
    }
}

#[test]
fn weights_are_the_configurations() {
    assert_eq!(shown(TWO, |_, _| {}), "10.0.0.2:80=1 10.0.0.3:80=3");
    let draining = |name: &str, standing: &mut Standing| standing.takes = name != "b";
    assert_eq!(shown(TWO, draining), "10.0.0.2:80=1 10.0.0.3:80=0");
}

#[test]
fn who_is_down_keeps_connections_unless_clients_would_still_come() {
    assert_eq!(shown(TWO, down("b")), "10.0.0.2:80=1 10.0.0.3:80=0");
    let removed = "10.0.0.2:80=1";
    assert_eq!(shown(&format!("{TWO} balance dh\n"), down("b")), removed);
    assert_eq!(shown(&TWO.replace("weight 3", "check on-marked-down shutdown-sessions"), down("b")), removed);
}

#[test]
fn who_sticks_to_a_server_that_is_down_is_known_to_the_engine() {
    let sticky = format!("{TWO} stick-table type ip size 1m expire 5m\n stick on src\n");
    assert_eq!(shown(&sticky, down("b")), "10.0.0.2:80=1 10.0.0.3:80=0");
    let text = |lines: &str| format!("listen web\n mode direct\n bind 10.0.0.1:80-81\n{lines}\n");
    let removed = |lines: &str, change: &dyn Fn(&str, &mut Standing)| {
        let Lowered { down, .. } = lowered(&model(&text(lines)), |server| {
            let mut standing = Standing::at_first(server, EffectiveServer::of(server));
            change(&server.name, &mut standing);
            standing
        });
        down.iter().map(|(key, address)| format!("{key} {address}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(removed(&sticky, &down("b")), "tcp 10.0.0.1:80 10.0.0.3:80, tcp 10.0.0.1:81 10.0.0.3:81");
    assert_eq!(removed(&sticky, &|name, standing| standing.takes = name != "b"), "", "it drains");
    assert_eq!(removed(TWO, &down("b")), "");
    let asked = |global: &str| {
        let settings = settings(&model(&format!("global\n{global}\n{}", text(&sticky))));
        (settings.is_persistent, settings.expire_quiescent_template)
    };
    assert_eq!(asked(""), (true, None));
    assert_eq!(asked("tune.ipvs.expire-quiescent-template off"), (true, Some(false)));
    assert!(!settings(&model(&text(TWO))).is_persistent);
    let remembered = |global: &str| settings(&model(&format!("global\n{global}\n{}", text(TWO)))).xdp.connections;
    assert_eq!((remembered(""), remembered("tune.xdp.connections 7000")), (None, Some(7000)));
}

#[test]
fn dh_has_no_server_that_gets_nothing() {
    let lines = " balance dh\n server a 10.0.0.2\n server b 10.0.0.3 weight 0\n server c 10.0.0.4 backup\n";
    assert_eq!(shown(lines, |_, _| {}), "10.0.0.2:80=1");
    assert_eq!(shown(lines, down("a")), "10.0.0.4:80=1");
    // For their connections, those stay of whom an operator says so.
    assert_eq!(shown(lines, |name, standing| standing.takes = name != "a"), "10.0.0.2:80=0 10.0.0.4:80=1");
    assert_eq!(shown(lines, |_, standing| standing.weight = 0), "10.0.0.2:80=0");
    assert_eq!(shown(lines, |_, standing| standing.weight = 5), "10.0.0.2:80=5 10.0.0.3:80=5");
}

#[test]
fn a_slow_start_is_finer_than_weights() {
    let slowly = |name: &str, standing: &mut Standing| {
        if name == "b" {
            standing.throttle = Some(10);
        }
    };
    assert_eq!(shown(TWO, slowly), "10.0.0.2:80=16 10.0.0.3:80=4");
    assert_eq!(shown(&format!("{TWO} balance mh\n"), slowly), "10.0.0.2:80=1 10.0.0.3:80=3", "a hash has no shares");
}

#[test]
fn backups_have_their_turn_when_nobody_else_has() {
    let lines = " server a 10.0.0.2\n server b 10.0.0.3 backup\n server c 10.0.0.4 backup\n";
    assert_eq!(shown(lines, |_, _| {}), "10.0.0.2:80=1 10.0.0.3:80=0 10.0.0.4:80=0");
    assert_eq!(shown(lines, down("a")), "10.0.0.2:80=0 10.0.0.3:80=1 10.0.0.4:80=0");
    let all = format!("{lines} option allbackups\n");
    assert_eq!(shown(&all, down("a")), "10.0.0.2:80=0 10.0.0.3:80=1 10.0.0.4:80=1");
}

#[test]
fn every_address_of_a_section_is_a_service() {
    let text = "frontend in\n mode direct\n bind 10.0.0.1:80-81\n bind udp@10.0.0.1:53,fwmark@7\n default_backend app\n\
                backend app\n mode direct\n balance source hash-port\n stick-table type ip size 1m expire 5m\n \
                stick on src,ipmask(24)\n server a 10.0.0.2 maxconn 100 minconn 80\n server b 10.0.0.3:8080 masquerade\n \
                server c 10.0.0.4 tunnel gre\n";
    let Lowered { services, .. } =
        lowered(&model(text), |server| Standing::at_first(server, EffectiveServer::of(server)));
    let keys: Vec<String> = services.iter().map(|service| service.key.to_string()).collect();
    assert_eq!(keys, ["tcp 10.0.0.1:80", "tcp 10.0.0.1:81", "udp 10.0.0.1:53", "mark 7"]);
    let last = &services[3];
    let places: Vec<String> = last.destinations.iter().map(|one| one.address.to_string()).collect();
    assert_eq!(places, ["10.0.0.2:0", "10.0.0.3:8080", "10.0.0.4:0"]);
    assert_eq!((last.scheduler, last.hash_port, last.fallback), (Scheduler::Source, true, true));
    assert_eq!(last.persistence, Some(Persistence { timeout: Duration::from_secs(300), prefix: 24 }));
    assert_eq!((last.destinations[0].upper, last.destinations[0].lower), (100, 80));
    assert_eq!(last.destinations[2].forwarding, baton_direct::Forwarding::Tunnel(Tunnel::Gre));
}

#[test]
fn what_is_managed_and_what_stays_is_said_by_each_section() {
    let text = "listen a\n mode direct\n bind 10.0.0.1:80-81\n manage-vip\n on-exit flush\n server a 10.0.0.2\n\
                listen b\n mode direct\n engine ipvs\n bind 10.0.0.9:80 interface eth1\n manage-vip interface eth0 prefix 24\n \
                server a 10.0.0.2\n";
    let model = model(text);
    let all = managed(&model);
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].interface.clone(), all[0].prefix), (Err([10, 0, 0, 2].into()), 32));
    assert_eq!((all[1].interface.clone(), all[1].prefix), (Ok("eth0".into()), 24));
    let kept: Vec<String> = kept_at_exit(&model).iter().map(ServiceKey::to_string).collect();
    assert_eq!(kept, ["tcp 10.0.0.9:80"]);
    assert_eq!(engine(&model), baton_direct::EngineChoice::Ipvs);
    assert_eq!(settings(&model).xdp.interfaces, ["eth1"]);
    assert_eq!(settings(&model).xdp.place, XdpHook::Best);
    let stack = self::model(&text.replace("engine ipvs", "engine xdp stack"));
    assert_eq!((engine(&stack), settings(&stack).xdp.place), (baton_direct::EngineChoice::Xdp, XdpHook::Stack));
}
