//! Programs of others: who has one on the interface keeps it.

use std::process::Command;

use flows::pass;

use super::*;

/// What `ip` says of the XDP program on the director's interface.
fn program(lab: &Lab) -> String {
    let shown = lab.director.run("ip link show dev eth0");
    let program = shown.lines().find(|line| line.contains("prog/xdp"));
    program.unwrap_or_else(|| panic!("{shown}")).to_owned()
}

#[test]
fn anothers_program_stays_and_is_named() {
    lab(1, |lab| {
        let folder = tempfile::tempdir().unwrap();
        let object = pass(folder.path());
        lab.director.run(&format!("ip link set dev eth0 xdp object {} section xdp", object.display()));
        let before = program(lab);
        let unnamed = text(lab, folder.path(), &[1], "flush");
        let named = unnamed.replace(":80\n", ":80 interface eth0\n");
        let reason = "it has another XDP program, which is not replaced: remove it (ip link set dev eth0 xdp off)";
        for text in [&named, &unnamed] {
            let (status, said) = lab.director.inside(|| Proxy::begin(&[], text, &[]).wait());
            assert!(!status.success() && said.contains("interface eth0") && said.contains(reason), "{said}");
            assert_eq!(program(lab), before);
        }
        // Who checks a file is warned, for it may be for another machine.
        let file = folder.path().join("checked.cfg");
        fs::write(&file, &named).unwrap();
        let checked = lab
            .director
            .inside(|| Command::new(support::program()).arg("-c").arg("-f").arg(&file).output().expect("it was built"));
        let said = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success() && said.contains("[WARNING]") && said.contains(reason), "{said}");
        assert_eq!(program(lab), before);
        // Without it, Baton begins; and what comes by a reload is refused alike.
        lab.director.run("ip link set dev eth0 xdp off");
        let proxy = start(lab, &named);
        lab.director.run("ip link add other type veth peer name end");
        lab.director.run(&format!("ip link set dev other xdp object {} section xdp", object.display()));
        let more = named.replacen(":80 interface eth0", ":80 interface eth0\nbind 192.0.2.7:81 interface other", 1);
        let refused = lab.director.inside(|| proxy.change_refused(&more));
        assert!(refused.contains(&reason.replace("eth0", "other")), "{refused}");
        assert_eq!(ask(&lab.client, vips()[0], 3).len(), 1, "it goes on");
    });
}
