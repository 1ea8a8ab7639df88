//! What is refused, undone, or killed under way: nothing is half done.

use std::path::PathBuf;

use baton_direct::real_server::Tunnels;

use super::*;

#[test]
fn addresses_that_are_no_virtual_ones_are_refused() {
    alone(|| {
        let server = Machine::new("server", 11);
        let before = all_of(&server);
        let refused = |vip: &str, tunnel| {
            let wanted = RealServerOptions { tunnel, ..asked(&[vip.parse().unwrap()], ArpMethod::Auto) };
            server.inside(|| up(&wanted, false).unwrap_err().to_string())
        };
        for (vip, tunnel, said) in [
            ("192.0.2.11", None, "this machine has it on eth0"),
            ("::ffff:192.0.2.7", None, "write 192.0.2.7"),
            ("2001:db8::77", Some(Tunnels::Ipip), "IPv4 only"),
            ("224.0.0.1", None, "is not an address that clients can use"),
            ("ff02::1", None, "is not an address that clients can use"),
            ("0.0.0.0", None, "is not an address that clients can use"),
            ("::1", None, "is not an address that clients can use"),
            ("127.0.0.1", None, "is not an address that clients can use"),
        ] {
            let fault = refused(vip, tunnel);
            assert!(fault.contains(said) && fault.contains(&format!("virtual address {vip}")), "{fault}");
        }
        same(&all_of(&server), &before);
        // Beside the same address with a network around it, the kernel takes no second one.
        server.run("ip address add 192.0.2.7/24 dev lo");
        let before = all_of(&server);
        for is_dry in [true, false] {
            let fault = server.inside(|| up(&asked(&vips(), ArpMethod::Auto), is_dry).unwrap_err().to_string());
            assert!(
                fault.contains("on lo with /24") && fault.contains("ip address del 192.0.2.7/24 dev lo"),
                "{fault}"
            );
        }
        same(&all_of(&server), &before);
    });
}

#[test]
fn nothing_is_half_done() {
    alone(|| {
        let server = Machine::new("server", 11);
        let before = all_of(&server);
        let report = server.inside(|| up(&asked(&vips(), ArpMethod::Auto), true).unwrap());
        assert_eq!(
            report.steps,
            [
                "set net.ipv4.conf.all.arp_announce to 2 (it is 0)",
                "set net.ipv4.conf.all.arp_ignore to 1 (it is 0)",
                "put 192.0.2.7/32 on lo",
                "put 2001:db8::77/128 on lo"
            ]
        );
        same(&all_of(&server), &before);
        // Settings can be written by root without a capability, and addresses cannot.
        let fault = server.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            up(&asked(&vips(), ArpMethod::Sysctl), false).unwrap_err()
        });
        assert!(fault.remedy.contains("CAP_NET_ADMIN"), "{fault}");
        same(&all_of(&server), &before);
        let fault = server.inside(|| {
            baton_kernel::process::capabilities::reduce_to(&[]).unwrap();
            up(&asked(&vips(), ArpMethod::Filter), false).unwrap_err()
        });
        assert!(fault.to_string().contains("CAP_NET_ADMIN"), "{fault}");
        same(&all_of(&server), &before);
        assert_eq!(take_down(&server, &[]), RealServerReport::default());
    });
}

#[test]
fn what_was_recorded_and_not_done_is_forgotten() {
    alone(|| {
        let server = Machine::new("server", 11);
        let before = all_of(&server);
        set_up(&server, &asked(&vips(), ArpMethod::Sysctl));
        let recorded: Vec<_> = records().into_iter().map(|path| (fs::read(&path).unwrap(), path)).collect();
        assert_eq!(recorded.len(), 2, "what is up, and the addresses");
        take_down(&server, &[]);
        // As if it had been killed before it added an address.
        for (text, path) in recorded {
            fs::write(path, text).unwrap();
        }
        take_down(&server, &[]);
        assert_eq!(records(), Vec::<PathBuf>::new());
        same(&all_of(&server), &before);
    });
}

/// Files of what is remembered, in all network namespaces.
fn records() -> Vec<PathBuf> {
    let folders = fs::read_dir("/run/baton-real-server").into_iter().flatten();
    let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
    files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// `up` in a program of its own, so that it can be killed: this test program, asked for the test below.
const KILLED: &str = "BATON_TEST_REAL_SERVER";

#[test]
fn up_for_a_test_that_kills_it() {
    if let Some(method) = std::env::var_os(KILLED) {
        up(&asked(&vips(), method.to_str().unwrap().parse().unwrap()), false).unwrap();
    }
}

#[test]
fn whenever_it_is_killed_down_puts_all_back() {
    alone(|| {
        let server = Machine::new("server", 11);
        server.run("nft add table inet theirs");
        let before = all_of(&server);
        let this = std::env::current_exe().unwrap();
        let mut ends = Vec::new();
        for method in ["sysctl", "filter"] {
            for turn in 0..40 {
                let mut command = std::process::Command::new("ip");
                command
                    .args(["netns", "exec", server.name])
                    .arg(&this)
                    .args(["--exact", "faults::up_for_a_test_that_kills_it"]);
                command.env(KILLED, method).stdout(std::process::Stdio::null());
                let mut child = command.spawn().unwrap();
                // Its first trace, and then a little more each time.
                let folder = std::path::Path::new("/run/baton-real-server");
                while !folder.exists() && child.try_wait().unwrap().is_none() {
                    std::hint::spin_loop();
                }
                let more = Instant::now() + Duration::from_micros(turn * 150);
                while Instant::now() < more {
                    std::hint::spin_loop();
                }
                child.kill().unwrap();
                child.wait().unwrap();
                let steps = take_down(&server, &[]).steps.len();
                ends.push(steps);
                same(&all_of(&server), &before);
                assert_eq!(records(), Vec::<PathBuf>::new(), "{method} after {turn}");
                let _ = fs::remove_dir_all(folder);
            }
        }
        ends.sort_unstable();
        ends.dedup();
        eprintln!("killed so that {ends:?} steps were left to undo");
    });
}
