//! What is missing is said, with what helps, before anything begins.

use std::fs;
use std::process::{Command, Stdio};

use super::*;

/// How it ends when it cannot begin, and what it says.
fn refused(wrapper: &[&str]) -> (bool, String) {
    let folder = tempfile::tempdir().unwrap();
    let (ended, said) = Proxy::begin(wrapper, &PLAIN.at(folder.path()), &[]).wait();
    (ended.success(), said)
}

#[test]
fn a_missing_right_or_module_is_named() {
    lab::inside(|| {
        begin();
        let loader = fs::read_to_string("/proc/sys/kernel/modprobe").unwrap();
        fs::write("/proc/sys/kernel/modprobe", "/bin/false").unwrap();
        let (is_well, said) = refused(&[]);
        assert!(!is_well && said.contains("no IPVS") && said.contains("modprobe ip_vs"), "{said}");
        fs::write("/proc/sys/kernel/modprobe", loader.trim()).unwrap();
        let (is_well, said) = refused(&["setpriv", "--bounding-set", "-net_admin", "--inh-caps", "-net_admin"]);
        assert!(!is_well && said.contains("CAP_NET_ADMIN"), "{said}");
        assert_eq!(dump(), [""; 0]);
    });
}

#[test]
fn a_plan_says_what_would_be_done_and_does_nothing() {
    lab::inside(|| {
        begin();
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("test.cfg");
        fs::write(&config, PLAIN.at(folder.path())).unwrap();
        let plan =
            Command::new(support::program()).arg("plan").arg("-f").arg(&config).stdin(Stdio::null()).output().unwrap();
        let said = String::from_utf8_lossy(&plan.stdout);
        assert!(said.contains("192.168.121.2:80") && said.contains("192.168.121.11"), "{said}");
        assert_eq!(dump(), [""; 0]);
    });
}
