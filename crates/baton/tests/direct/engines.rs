//! Both engines on one machine: a reload from one to the other, and what is left of either.

use std::net::TcpStream;

use super::*;

/// With this engine, and one server, which serves a connection whoever sends it on.
fn by(engine: &str, folder: &Path, global: &str) -> String {
    let global = format!("tune.ipvs.sloppy-tcp on\n{global}");
    let text = Text { global: &global, web: "on-exit flush", servers: "server s1 192.168.121.11\n" };
    text.at(folder).replace("engine ipvs", &format!("engine {engine}"))
}

/// Whether the director's interface has a program.
fn has_program() -> bool {
    said("ip link show dev eth0").contains("xdp")
}

/// What is pinned, and which records there are.
fn left() -> String {
    said("ls /sys/fs/bpf/baton-direct/*/* /run/baton-direct/*/*.json 2>/dev/null || true")
}

#[track_caller]
fn is_by(engine: &str) {
    until("this engine balances, and no other", || {
        (dump().is_empty(), has_program()) == (engine == "xdp", engine == "xdp")
    });
}

fn begin_with_both() {
    begin();
    said("mount -t bpf bpf /sys/fs/bpf");
}

#[test]
fn a_reload_changes_the_engine() {
    lab::inside(|| {
        begin_with_both();
        let folder = tempfile::tempdir().unwrap();
        let proxy = Proxy::start(&by("ipvs", folder.path(), ""));
        is_by("ipvs");
        let (server, long) = Long::begin();
        let (stop, stopped) = channel::<()>();
        let clients = within("client", move || {
            let mut dialled = 0;
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                TcpStream::connect(VIP).expect("nobody is refused while the engine changes");
                dialled += 1;
            }
            dialled
        });
        for (engine, former) in [("xdp", "ipvs"), ("ipvs", "xdp"), ("xdp", "ipvs")] {
            proxy.write(&by(engine, folder.path(), ""));
            let plan = proxy.plan().plan.kernel.join("\n");
            assert!(plan.contains(&format!("engine {former}, afterwards: remove service")), "{plan}");
            proxy.change(&by(engine, folder.path(), ""));
            let warning =
                format!("the engine changes from {former} to {engine}, which does not know the open connections");
            until("it is a warning", || proxy.said().contains(&warning));
            is_by(engine);
            long.goes_on(server);
            assert_eq!(shares(4), BTreeMap::from([(1, 4)]));
            let info =
                said(&format!("echo show info | socat -t 5 - unix-connect:{}/admin.sock", folder.path().display()));
            assert!(info.contains(&format!("Direct_engine: {engine}")), "{info}");
        }
        long.end();
        drop(stop);
        let dialled = clients.join().expect("nobody is refused");
        assert!(dialled > 20, "only {dialled} clients came");
        proxy.signal(nix::sys::signal::Signal::SIGTERM);
        let (_, said) = proxy.wait();
        assert!(dump().is_empty() && !has_program(), "{said}");
        assert_eq!(left(), "");
    });
}

#[test]
fn what_either_engine_has_goes_with_the_sections() {
    lab::inside(|| {
        begin_with_both();
        let jail = tempfile::tempdir().unwrap();
        let jailed = format!("user nobody\ngroup nogroup\nchroot {}\n", jail.path().display());
        for (engine, global) in [("xdp", ""), ("xdp", &jailed), ("ipvs", &jailed)] {
            let folder = tempfile::tempdir().unwrap();
            // The folder of a socket is not in the jail, where it would come back to.
            let with = by(engine, folder.path(), global);
            let with: String =
                with.lines().filter(|line| !line.starts_with("stats")).map(|line| format!("{line}\n")).collect();
            let without = format!("global\n{global}\nlisten other\nmode http\nbind 127.0.0.1:8080\n");
            let proxy = Proxy::start(&with);
            is_by(engine);
            // By a reload, after which they can come back.
            for _ in 0..2 {
                proxy.change(&without);
                until("nothing is directed", || within("client", refused).join().unwrap());
                until("no program is left", || !has_program());
                proxy.change(&with);
                is_by(engine);
                assert_eq!(shares(2), BTreeMap::from([(1, 2)]));
            }
            // By another process.
            proxy.write(&without);
            let next = proxy.replace(&[]);
            proxy.wait();
            until("nothing is left", || dump().is_empty() && !has_program() && left().is_empty());
            drop(next);
        }
    });
}

/// Whether nobody listens.
fn refused() -> bool {
    TcpStream::connect_timeout(&VIP.parse().unwrap(), network::PATIENCE).is_err()
}
