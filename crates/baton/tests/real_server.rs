//! `baton real-server` as an operator runs it: machines on a link, network namespaces of their own, and the whole program.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use baton_kernel::netns;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use support::{lab, program};

/// A director and a real server on a bridge, with `/run` and systemd's units of their own; or it says that it may not.
fn with_machines(test: impl FnOnce() + Send) {
    if !Path::new("/etc/systemd/system").is_dir() {
        return eprintln!("SKIPPED: no folder for units of systemd here");
    }
    let inside = || {
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount::<str, str, str, str>(None, "/", None, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None)?;
        for folder in ["/run", "/etc/systemd/system"] {
            mount::<str, str, str, str>(Some("tmpfs"), folder, Some("tmpfs"), MsFlags::empty(), None)?;
        }
        ip("link add br0 type bridge forward_delay 0");
        ip("link set br0 up");
        for (name, address) in [("director", "192.0.2.1/24"), ("server", "192.0.2.11/24")] {
            ip(&format!("netns add {name}"));
            ip(&format!("link add {name} type veth peer name eth0 netns {name}"));
            ip(&format!("link set {name} master br0 up"));
            for words in ["link set lo up", "link set eth0 up", &format!("address add {address} dev eth0")] {
                ip(&format!("-netns {name} {words}"));
            }
        }
        ip("-netns director address add 192.0.2.7/32 dev eth0");
        test();
        Ok::<(), nix::Error>(())
    };
    match netns::in_new(inside) {
        Ok(done) => done.expect("folders of our own"),
        Err(error) => eprintln!("SKIPPED: no right to a network namespace ({error})"),
    }
}

#[track_caller]
fn ip(words: &str) -> String {
    let output = Command::new("ip").args(words.split_whitespace()).output().expect("the program ip (iproute2)");
    assert!(output.status.success(), "ip {words}: {}", text(&output.stderr));
    text(&output.stdout)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// `baton real-server WORDS` on a machine.
fn baton(machine: &str, words: &str) -> Output {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", machine]).arg(program()).arg("real-server").args(words.split_whitespace());
    command.output().unwrap()
}

/// Runs the command, which succeeds; returns what it printed.
#[track_caller]
fn does(machine: &str, words: &str) -> String {
    let output = baton(machine, words);
    assert!(output.status.success(), "{words}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Runs the command, which exits with 1.
#[track_caller]
fn finds(machine: &str, words: &str) -> String {
    let output = baton(machine, words);
    assert_eq!(output.status.code(), Some(1), "{words}: {}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout) + &text(&output.stderr)
}

#[test]
fn a_real_server_comes_and_goes() {
    with_machines(|| {
        let from_outside = "check --vip 192.0.2.7 --from eth0 --server 192.0.2.11 --within 300ms";
        let found = finds("director", from_outside);
        assert!(found.contains("ok: no other machine responds for 192.0.2.7"), "{found}");
        assert!(
            found.contains("WRONG: 192.0.2.7 on 192.0.2.11: nothing there responds for the virtual address"),
            "{found}"
        );
        assert!(found.contains("    on 192.0.2.11: baton real-server up --vip 192.0.2.7"), "{found}");
        let found = finds("server", "check --vip 192.0.2.7 --port 80");
        assert!(found.contains("WRONG: 192.0.2.7 is not on lo"), "{found}");
        assert!(found.contains("    baton real-server up --vip 192.0.2.7\n"), "{found}");
        assert!(found.contains("WRONG: nothing listens on port 80"), "{found}");

        let before = ip("-netns server address show");
        let plan = does("server", "up --vip 192.0.2.7/32 --dry-run");
        assert!(plan.contains("would put 192.0.2.7/32 on lo"), "{plan}");
        assert_eq!(ip("-netns server address show"), before);
        let done = baton("server", "up --vip 192.0.2.7 --persistent");
        assert!(text(&done.stderr).contains("systemd does not run here"), "{}", text(&done.stderr));
        let done = text(&done.stdout);
        assert!(done.contains("set net.ipv4.conf.all.arp_ignore to 1 (it is 0)"), "{done}");
        assert!(done.contains("write and enable the unit baton-real-server@192.0.2.7.service"), "{done}");
        assert_eq!(does("server", "up --vip 192.0.2.7 --persistent"), "nothing to do\n");
        does("server", "check --vip 192.0.2.7");
        let found = does("director", from_outside);
        assert!(found.contains("ok: 192.0.2.7 on 192.0.2.11: the virtual address is set up"), "{found}");

        // What the unit says works as it stands.
        let unit = std::fs::read_to_string("/etc/systemd/system/baton-real-server@192.0.2.7.service").unwrap();
        let word = |key: &str| unit.lines().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
        for command in [word("ExecStop="), word("ExecStart=")] {
            let words = command.split_once(" real-server ").unwrap().1;
            does("server", words);
        }
        does("server", "check --vip 192.0.2.7");
        let done = does("server", "down --vip 192.0.2.7");
        assert!(done.contains("restore net.ipv4.conf.all.arp_ignore to 0"), "{done}");
        assert!(done.contains("disable and remove the unit"), "{done}");
        let addresses = |shown: String| shown.replace(" tentative", "");
        assert_eq!(addresses(ip("-netns server address show")), addresses(before));
        assert_eq!(does("server", "down --all"), "nothing to do\n");
    });
}

#[test]
fn a_real_server_that_answers_is_named() {
    with_machines(|| {
        ip("-netns server address add 192.0.2.7/32 dev lo");
        let found = finds("director", "check --vip 192.0.2.7 --from eth0 --server 192.0.2.11 --within 300ms");
        let shown = ip("-netns server -brief link show eth0");
        let mac = shown.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap();
        assert!(
            found.contains(&format!("WRONG: {mac} (192.0.2.11) responds for 192.0.2.7"))
                && found.contains("clients bypass the director"),
            "{found}"
        );
        let found = finds("server", "check --vip 192.0.2.7");
        assert!(found.contains("arp_ignore is 0 on eth0: ARP requests for 192.0.2.7"), "{found}");
        does("server", "up --vip 192.0.2.7 --method filter");
        does("director", "check --vip 192.0.2.7 --from eth0 --within 300ms");
        does("server", "check --vip 192.0.2.7");
    });
}

#[test]
fn a_missing_right_and_wrong_words_are_said() {
    with_machines(|| {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", "server", "setpriv", "--bounding-set", "-all"]).arg(program());
        let output = command.args(["real-server", "check", "--vip", "192.0.2.7", "--from", "eth0"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains("CAP_NET_RAW"), "{}", text(&output.stderr));
        assert!(finds("server", "up --vip 192.0.2.7 --interface eth7").contains("there is no such interface"));
        assert!(finds("server", "up --vip 127.0.0.1").contains("is not an address that clients can use"));
        let output = baton("server", "up --vip 192.0.2.7/24");
        assert!(text(&output.stderr).contains("write 192.0.2.7"), "{}", text(&output.stderr));
        assert!(finds("server", "up --vip 192.0.2.7 --method arp").contains("unknown method 'arp'"));
        let help = does("server", "--help");
        assert!(help.contains("Examples:\n  baton real-server up --vip"), "{help}");
    });
}

/// A machine that boots with Debian's systemd: a root of its own above this one's files, whose targets ask for nothing but what is
/// enabled in the test. `asks` looks at the machine when all is started, and switches off.
const BOOT: &str = r#"set -e
modprobe -a overlay dummy
ip link add eth0 type dummy
ip address add 192.0.2.11/24 dev eth0
ip link set eth0 up
root=/run/root units=/run/root/etc/systemd/system
mkdir -p /run/upper /run/work $root
mount -t overlay overlay -o lowerdir=/,upperdir=/run/upper,workdir=/run/work $root
rm -rf $units $root/lib/systemd/system/*.wants $root/lib/systemd/system-generators
mkdir -p $units/multi-user.target.wants
for target in sysinit basic multi-user; do printf '[Unit]\nDefaultDependencies=no\n' >$units/$target.target; done
cat >$units/asks.service <<'END'
[Unit]
After=baton-real-server@192.0.2.7.service
[Service]
Type=oneshot
ExecStart=/bin/sh -c '/mnt/baton real-server check --vip 192.0.2.7; systemctl is-active baton-real-server@192.0.2.7; systemctl --no-block poweroff'
StandardOutput=file:/told
StandardError=inherit
END
ln -s $units/asks.service $units/multi-user.target.wants/
mount --bind {{folder}} $root/mnt
mount -t proc proc $root/proc
mount -t tmpfs run $root/run
# As on the day before: what the kernel had then is gone.
unshare --net chroot $root /mnt/baton real-server up --vip 192.0.2.7 --persistent
umount $root/run $root/proc
env -i container=lab PATH="$PATH" unshare --pid --mount --fork chroot $root /lib/systemd/systemd --unit=multi-user.target || true
cat $root/told
echo afterwards: $(cat /proc/sys/net/ipv4/conf/all/arp_ignore) $(ip -brief address show dev lo)
"#;

#[test]
fn it_is_set_up_at_the_next_boot() {
    if !Path::new("/lib/systemd/systemd").exists() {
        return eprintln!("SKIPPED: no systemd here (package systemd)");
    }
    let folder = program().parent().expect("it is in a folder");
    let script = BOOT.replace("{{folder}}", &folder.display().to_string());
    let Some(booted) = lab::run(&script) else { return };
    let said = &booted.output;
    assert_eq!(booted.status, 0, "{said}");
    assert!(said.contains("write and enable the unit baton-real-server@192.0.2.7.service"), "{said}");
    assert!(said.contains("ok: 192.0.2.7/32 is on lo") && !said.contains("WRONG"), "{said}");
    assert!(said.lines().any(|line| line.trim_end() == "active"), "{said}");
    // A machine that goes down takes it away in order.
    let afterwards = said.rsplit("afterwards:").next().unwrap();
    assert!(afterwards.starts_with(" 0 lo ") && !afterwards.contains("192.0.2.7"), "{said}");
}
