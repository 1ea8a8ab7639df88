//! The service of systemd with its drop-in for `mode direct`: Baton is a user without a name, has the rights and the system calls of both
//! files and nothing else, and the folders that they make. Without systemd as the first process they are made here as it would.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use super::*;
use crate::link::run;

/// Whom the service is here.
const USER: &str = "61236";

fn packaging() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd")
}

/// The values of a key in both files.
fn values<'t>(unit: &'t str, key: &str) -> Vec<&'t str> {
    unit.lines().filter_map(|line| line.strip_prefix(key)?.strip_prefix('=')).collect()
}

/// What is to be there to become the service.
fn is_there() -> bool {
    let all = "command -v systemd-analyze && command -v setpriv && /usr/bin/python3 -c 'import seccomp'";
    let is_there = Command::new("sh").args(["-c", all]).output().unwrap().status.success();
    if !is_there {
        eprintln!("SKIPPED: one of Debian's packages systemd, util-linux and python3-seccomp is not installed");
    }
    is_there
}

#[test]
fn the_service_directs_with_the_rights_of_its_drop_in() {
    if !is_there() {
        return;
    }
    lab(2, |lab| {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
        let read = |name: &str| fs::read_to_string(packaging().join(name)).unwrap();
        let unit = format!("{}{}", read("baton.service"), read("direct.conf"));
        let both = folder.path().join("unit");
        fs::write(&both, &unit).unwrap();

        // What systemd does as root: /sys/fs/bpf as it mounts it, its folders under /run, and what runs before the start.
        fs::set_permissions("/sys/fs/bpf", PermissionsExt::from_mode(0o700)).unwrap();
        for name in values(&unit, "RuntimeDirectory") {
            run(&format!("install -d -o {USER} -g {USER} /run/{name}"));
        }
        let before =
            values(&unit, "ExecStartPre")[0].strip_prefix("-+/bin/sh -c '").unwrap().strip_suffix('\'').unwrap();
        assert!(before.contains("-o baton -g baton"), "{before}");
        let before = before.replace("-o baton -g baton", &format!("-o {USER} -g {USER}"));
        let before = before.replace("$$", "$").replace("%%", "%");
        let made = lab.director.inside(|| Command::new("/bin/sh").args(["-c", &before]).status().unwrap());
        assert!(made.success(), "{before}");

        let rights: Vec<String> = values(&unit, "AmbientCapabilities")
            .join(" ")
            .split(' ')
            .map(|right| format!(",+{}", right.strip_prefix("CAP_").unwrap().to_lowercase()))
            .collect();
        let only = format!("-all{}", rights.concat());
        let wrapper = format!(
            "setpriv --reuid {USER} --regid {USER} --clear-groups --inh-caps {only} --ambient-caps {only} --bounding-set {only} \
             --no-new-privs {} --kill {}",
            packaging().join("under-filter").display(),
            both.display()
        );
        let words: Vec<&str> = wrapper.split(' ').collect();
        let given_up = format!("user nobody\nchroot {}\n", folder.path().display());
        let config = |weights: &[u32]| text(lab, folder.path(), weights, "flush").replace(&given_up, "");
        let proxy = lab.director.inside(|| Proxy::start_under(&words, &config(&[1, 1]), &["-Ws"]));
        fs::set_permissions(proxy.folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        until("it serves", || answers(lab));
        let mut held = hold(lab, 8);
        lab.director.inside(|| proxy.change(&config(&[0, 1])));
        until("nothing new for a server that drains", || !ask(&lab.client, vips()[0], 12).contains_key("one"));
        all_go_on(&mut held);
        // What is left of it at the end is a folder that is the user's.
        proxy.signal(Signal::SIGTERM);
        let (status, said) = proxy.wait();
        assert!(status.success() || status.code() == Some(143), "{status}: {said}");
        let link = lab.director.run("ip link show dev eth0");
        assert!(!link.contains("xdp"), "{link}{said}");
    });
}
