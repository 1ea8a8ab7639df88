use super::*;
use crate::{Address, BindOptions, Direct, Role, Source};

fn bind(port: u16) -> Bind {
    let address = Address::Inet(([127, 0, 0, 1], port).into());
    Bind { address, name: None, id: None, options: BindOptions::default(), source: Source::default() }
}

fn model(proxies: Vec<Proxy>) -> Model {
    Model { proxies: proxies.into_iter().map(Arc::new).collect(), ..Model::default() }
}

fn check(old: Vec<Proxy>, new: Vec<Proxy>, expect: &[&str]) {
    let changes = diff(&model(old), &model(new));
    let lines: Vec<String> = changes.changes.iter().map(|change| change.to_string()).collect();
    assert_eq!(lines, expect);
}

#[test]
fn the_same_is_no_change_even_when_it_moved() {
    let mut moved = Proxy::new("a", Role::Frontend);
    moved.source.line = 7;
    check(vec![Proxy::new("a", Role::Frontend)], vec![moved], &[]);
}

#[test]
fn binds_are_compared_by_address() {
    let mut old = Proxy::new("a", Role::Frontend);
    old.binds = vec![bind(1), bind(2)];
    let mut new = old.clone();
    new.binds = vec![bind(2), bind(3)];
    new.binds[0].options.accept_proxy = true;
    check(
        vec![old],
        vec![new],
        &[
            "frontend a: bind 127.0.0.1:1 removed",
            "frontend a: bind 127.0.0.1:2 changed",
            "frontend a: bind 127.0.0.1:3 added",
        ],
    );
}

#[test]
fn certificates_and_settings_of_tls_are_told_apart() {
    let tls = |crt: &str, strict_sni| {
        let certificates = vec![crate::CrtSource::Crt { path: crt.into(), default: false }];
        let mut proxy = Proxy::new("a", Role::Frontend);
        proxy.binds = vec![bind(1)];
        proxy.binds[0].options.tls = Some(Arc::new(BindTls { certificates, strict_sni, ..BindTls::default() }));
        proxy
    };
    let mut off = tls("x", false);
    off.binds[0].options.tls = None;
    let changed = |what: &str| format!("frontend a: {what} of bind 127.0.0.1:1 changed");
    check(vec![tls("x", true)], vec![tls("x", true)], &[]);
    check(vec![tls("x", true)], vec![tls("y", true)], &[&changed("certificates")]);
    check(vec![tls("x", true)], vec![tls("x", false)], &[&changed("TLS settings")]);
    check(vec![tls("x", true)], vec![tls("y", false)], &[&changed("certificates and TLS settings")]);
    check(vec![off], vec![tls("y", false)], &[&changed("TLS")]);
}

#[test]
fn an_address_by_another_interface_is_another_bind() {
    let by = |interface: &str| {
        let mut bind = bind(1);
        bind.options.interface = Some(interface.into());
        bind
    };
    let mut old = Proxy::new("a", Role::Frontend);
    old.binds = vec![by("lo"), by("eth0")];
    let mut new = old.clone();
    check(vec![old.clone()], vec![new.clone()], &[]);
    new.binds[0].options.interface = None;
    check(
        vec![old],
        vec![new],
        &["frontend a: bind 127.0.0.1:1 interface lo removed", "frontend a: bind 127.0.0.1:1 added"],
    );
}

#[test]
fn an_address_in_another_namespace_is_another_bind() {
    let within = |namespace: Option<&str>| {
        let mut bind = bind(1);
        bind.options.namespace = namespace.map(str::to_owned);
        bind
    };
    let mut old = Proxy::new("a", Role::Frontend);
    old.binds = vec![within(None), within(Some("blue"))];
    let mut new = old.clone();
    check(vec![old.clone()], vec![new.clone()], &[]);
    new.binds[1] = within(Some("green"));
    check(
        vec![old],
        vec![new],
        &["frontend a: bind 127.0.0.1:1 namespace blue removed", "frontend a: bind 127.0.0.1:1 namespace green added"],
    );
}

#[test]
fn a_proxy_of_another_role_is_another_proxy() {
    check(
        vec![Proxy::new("a", Role::Frontend)],
        vec![Proxy::new("a", Role::Listen)],
        &["frontend a removed", "listen a added"],
    );
}

#[test]
fn a_number_that_follows_the_order_of_the_file_is_no_change() {
    let old = Proxy::new("a", Role::Backend);
    let mut new = old.clone();
    new.id = old.id + 1;
    check(vec![old], vec![new], &[]);
}

#[test]
fn places_and_settings_of_mode_direct_are_compared() {
    let place = |port| DirectBind {
        place: crate::Place::Udp(([10, 0, 0, 1], port).into()),
        name: None,
        id: None,
        interface: None,
        source: Source::default(),
    };
    let direct = |places: Vec<DirectBind>| {
        let mut proxy = Proxy::new("a", Role::Listen);
        proxy.mode = crate::Mode::Direct;
        proxy.direct = Some(Arc::new(Direct { places, ..Direct::default() }));
        proxy
    };
    let old = direct(vec![place(53), place(54)]);
    let mut new = direct(vec![place(54), place(55)]);
    let settings = Arc::make_mut(new.direct.as_mut().expect("it was given"));
    settings.places[0].interface = Some("eth0".into());
    settings.scheduler = crate::Scheduler::Maglev;
    settings.on_exit = crate::OnExit::Flush;
    check(
        vec![old.clone()],
        vec![new],
        &[
            "listen a: on-exit, balance changed",
            "listen a: bind udp@10.0.0.1:53 removed",
            "listen a: bind udp@10.0.0.1:54 changed",
            "listen a: bind udp@10.0.0.1:55 added",
        ],
    );
    let mut tcp = old.clone();
    (tcp.mode, tcp.direct) = (crate::Mode::Tcp, None);
    check(
        vec![old],
        vec![tcp],
        &["listen a: mode changed", "listen a: bind udp@10.0.0.1:53 removed", "listen a: bind udp@10.0.0.1:54 removed"],
    );
}

#[test]
fn settings_are_named() {
    let old = Proxy::new("a", Role::Backend);
    let mut new = old.clone();
    new.retries = 1;
    new.timeouts.server = Some(std::time::Duration::from_secs(1));
    check(vec![old], vec![new], &["backend a: retries, timeout server changed"]);
}

#[test]
fn settings_of_global_are_in_the_words_of_a_configuration() {
    use std::time::Duration;
    let old = Model::default();
    let mut new = Model::default();
    let global = &mut new.global;
    global.ipvs.timeout_tcp = Some(Duration::from_secs(900));
    global.ipvs.sloppy_tcp = Some(true);
    global.ipvs.sync_master = Some(crate::Sync { interface: "eth0".into(), id: 7 });
    global.xdp_connections = Some(1_000_000);
    global.daemon = true;
    global.node = Some("east".into());
    global.maxaccept = Some(u32::MAX);
    global.max_spread_checks = Some(Duration::from_secs(2));
    global.hard_stop_after = Some(Duration::from_millis(1500));
    global.close_spread_time = Some(Duration::MAX);
    global.chroot = Some("/var/lib/baton (old)".into());
    global.process.cpu_map = [(1, [0, 1, 2, 6].into())].into();
    global.process.capabilities = crate::Capability::ALL[..2].iter().copied().collect();
    global.tls.extra.bundle = false;
    global.log_hostname = Some(String::new());
    global.tls.crt_base = Some("/etc/crt".into());
    let changes = diff(&old, &new).changes;
    let lines: Vec<String> = changes.iter().map(|change| change.to_string().replace("global: ", "")).collect();
    let next = "(takes effect with the next process)";
    assert_eq!(
        lines,
        [
            &format!("daemon off -> on {next}"),
            &format!("chroot unset -> /var/lib/baton (old) {next}"),
            "node unset -> east",
            "hard-stop-after unset -> 1500ms",
            "close-spread-time unset -> infinite",
            "max-spread-checks unset -> 2s",
            "log-send-hostname unset -> \"\"",
            "tune.xdp.connections unset -> 1000000",
            "tune.maxaccept unset -> -1",
            &format!("cpu-map unset -> 1/1 0-2 6 {next}"),
            &format!("setcap unset -> cap_net_admin,cap_net_bind_service {next}"),
            "crt-base unset -> /etc/crt",
            "ssl-load-extra-files all -> sctl ocsp issuer key",
            "tune.ipvs.timeout-tcp unset -> 900s",
            "tune.ipvs.sloppy-tcp unset -> on",
            "tune.ipvs.sync-master unset -> eth0 id 7",
        ]
    );
}
