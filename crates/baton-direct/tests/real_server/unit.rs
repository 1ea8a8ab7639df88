//! The unit of systemd that sets it up at each boot.

use super::*;

#[test]
fn a_unit_sets_it_up_at_the_next_boot() {
    if !fs::exists("/etc/systemd/system").unwrap() {
        return eprintln!("SKIPPED: no folder for units of systemd here");
    }
    alone(|| {
        link::run("mount -t tmpfs tmpfs /etc/systemd/system");
        let server = Machine::new("server", 11);
        let persistent = |method| RealServerOptions { is_persistent: true, ..asked(&vips(), method) };
        let report = set_up(&server, &persistent(ArpMethod::Filter));
        let is_started = fs::exists("/run/systemd/system").unwrap();
        assert_eq!(report.remarks.len(), if is_started { 0 } else { vips().len() }, "{report:?}");
        for vip in vips() {
            let name = format!("baton-real-server@{}.service", vip.to_string().replace(':', "-"));
            let unit = format!("/etc/systemd/system/{name}");
            let wanted = format!("/etc/systemd/system/multi-user.target.wants/{name}");
            assert_eq!(fs::read_to_string(&unit).unwrap(), fs::read_to_string(wanted).unwrap());
            let text = fs::read_to_string(&unit).unwrap();
            assert!(text.contains(&format!("real-server up --vip {vip}")), "{text}");
            assert_eq!(text.contains("--method filter"), vip.is_ipv4());
            let verified = link::try_run(&format!("systemd-analyze verify --man=no {unit}"));
            let said = String::from_utf8_lossy(&verified.stderr).into_owned();
            assert!(verified.status.success() && !said.contains("baton-real-server"), "{said}");
        }
        assert_eq!(set_up(&server, &persistent(ArpMethod::Filter)), RealServerReport::default());
        // What the unit itself does when the machine goes down leaves the unit.
        server.inside(|| down(&vips(), true, false)).unwrap();
        assert_eq!(fs::read_dir("/etc/systemd/system").unwrap().count(), 3);
        // After the next boot nothing is remembered, and `down` removes it all the same.
        let report = take_down(&server, &vips());
        assert_eq!(report.steps.len(), 2, "{report:?}");
        assert_eq!(fs::read_dir("/etc/systemd/system/multi-user.target.wants").unwrap().count(), 0);
        fs::write("/etc/systemd/system/baton-real-server@192.0.2.7.service", "[Unit]\n").unwrap();
        let fault = server.inside(|| up(&persistent(ArpMethod::Auto), false).unwrap_err());
        assert!(fault.to_string().contains("was not created by this program"), "{fault}");
        take_down(&server, &vips());
        assert!(fs::exists("/etc/systemd/system/baton-real-server@192.0.2.7.service").unwrap());
    });
}
