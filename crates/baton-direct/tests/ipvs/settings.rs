//! Timeouts, sysctls and connection sync daemons; and what is said where something is missing.

use std::fs;
use std::time::Duration;

use baton_direct::{OnExit, SyncDaemon, Timeouts};

use super::*;

/// The user and the group `nobody`.
const NOBODY: u32 = 65_534;

fn sync(interface: &str, id: u8) -> Option<SyncDaemon> {
    Some(SyncDaemon { interface: interface.into(), id })
}

#[test]
fn settings_are_set_when_asked_for_and_daemons_are_ended_by_who_started_them() {
    lab::inside(|| {
        said(
            "modprobe dummy && ip link add eth7 type dummy && ip address add 10.7.0.1/24 dev eth7 && ip link set eth7 up",
        );
        let timeouts = || said("ipvsadm -Ln --timeout").trim().to_owned();
        let sysctls = || said("cat /proc/sys/net/ipv4/vs/expire_nodest_conn /proc/sys/net/ipv4/vs/sloppy_tcp");
        let daemons = || said("ipvsadm -Ln --daemon");
        let mut director = director();
        let (before, untouched) = (timeouts(), sysctls());
        assert_eq!(director.reconcile(&[]).unwrap(), DirectorReport::default());
        assert_eq!((timeouts(), sysctls(), daemons()), (before, untouched, String::new()), "nothing was asked for");
        assert!(director.removal().contains("dropped"), "{}", director.removal());

        let time = |seconds| Some(Duration::from_secs(seconds));
        let settings = DirectorSettings {
            timeouts: Timeouts { tcp: time(600), tcp_fin: None, udp: time(60) },
            expire_nodest_conn: Some(true),
            sloppy_tcp: Some(true),
            sync_master: sync("eth7", 7),
            sync_backup: sync("eth7", 8),
            ..DirectorSettings::default()
        };
        director.set(&settings);
        let steps = done(director.reconcile(&[]).unwrap());
        let expected = [
            "set the timeouts of connections: tcp 600s, udp 60s",
            "set net.ipv4.vs.expire_nodest_conn = 1",
            "set net.ipv4.vs.sloppy_tcp = 1",
            "start the connection sync daemon master on eth7 with id 7",
            "start the connection sync daemon backup on eth7 with id 8",
        ];
        assert_eq!(steps, expected);
        assert_eq!(timeouts(), "Timeout (tcp tcpfin udp): 600 120 60");
        assert_eq!(sysctls(), "1\n1\n");
        assert!(daemons().contains("master sync daemon (mcast=eth7, syncid=7"), "{}", daemons());
        assert!(daemons().contains("backup sync daemon (mcast=eth7, syncid=8"), "{}", daemons());
        assert!(director.removal().contains("its connections end"), "{}", director.removal());
        assert_eq!(director.reconcile(&[]).unwrap(), DirectorReport::default());

        // Another program of ours knows them by the record: one gets another id, the other one is not asked for.
        director.rest();
        let mut next = director_with(&DirectorSettings { sync_master: sync("eth7", 9), ..DirectorSettings::default() });
        let steps = done(next.reconcile(&[]).unwrap());
        let expected = [
            "stop the connection sync daemon master",
            "start the connection sync daemon master on eth7 with id 9",
            "stop the connection sync daemon backup",
        ];
        assert_eq!(steps, expected);
        assert!(daemons().contains("syncid=9") && !daemons().contains("backup"), "{}", daemons());
        next.leave(OnExit::Flush).unwrap();
        assert_eq!(daemons(), "");

        // Somebody else's is neither changed nor ended.
        said("ipvsadm --start-daemon backup --mcast-interface eth7 --syncid 3");
        let mut other =
            director_with(&DirectorSettings { sync_backup: sync("eth7", 4), ..DirectorSettings::default() });
        let report = other.reconcile(&[]).unwrap();
        assert!(
            report.done.is_empty() && report.refused[0].why.contains("another one runs on eth7 with id 3"),
            "{report:?}"
        );
        other.leave(OnExit::Flush).unwrap();
        assert!(daemons().contains("syncid=3"), "{}", daemons());
        let mut missing =
            director_with(&DirectorSettings { sync_master: sync("eth8", 4), ..DirectorSettings::default() });
        let report = missing.reconcile(&[]).unwrap();
        assert!(report.failed[0].to_string().contains("there must be an interface eth8"), "{report:?}");
    });
}

#[test]
fn persistence_asks_for_what_keeps_clients_away_from_weight_0() {
    lab::inside(|| {
        let setting = "/proc/sys/net/ipv4/vs/expire_quiescent_template";
        let persistence = Some(baton_direct::Persistence { timeout: Duration::from_secs(60), prefix: 32 });
        let servers = [to("10.0.1.1:80", 1), to("10.0.1.2:80", 0)];
        let services = [Service { persistence, ..service(tcp("10.0.0.1:80"), Scheduler::RoundRobin, &servers) }];
        let implied = DirectorSettings { is_persistent: true, ..DirectorSettings::default() };
        let mut director = director_with(&implied);
        assert!(!director.keeps_away(&DirectorSettings::default()), "as the kernel has it");
        // A container, where settings cannot be written.
        said("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys");
        let mut contained = director_with(&implied);
        assert!(!contained.keeps_away(&implied));
        let plan = contained.plan(&services).unwrap();
        assert!(plan.tunes.is_empty() && plan.refused.is_empty(), "{plan}");
        assert!(plan.remarks[0].contains("removed") && plan.remarks[0].contains("expire_quiescent_template"), "{plan}");
        drop(contained);
        said("umount /proc/sys");
        assert!(director.keeps_away(&implied));
        let steps = done(director.reconcile(&services).unwrap());
        assert_eq!(steps[0], "set net.ipv4.vs.expire_quiescent_template = 1");
        assert_eq!(said(&format!("cat {setting}")), "1\n");
        let off = DirectorSettings { expire_quiescent_template: Some(false), ..implied };
        director.set(&off);
        assert!(!director.keeps_away(&off));
        assert_eq!(done(director.reconcile(&services).unwrap()), ["set net.ipv4.vs.expire_quiescent_template = 0"]);
        director.leave(OnExit::Flush).unwrap();
        assert_eq!(said(&format!("cat {setting}")), "0\n");
    });
}

#[test]
fn what_dh_refuses_is_said() {
    lab::inside(|| {
        let servers = [to("10.0.1.1:80", 1), to("10.0.1.2:80", 0)];
        let services = |scheduler| [service(tcp("10.0.0.1:80"), scheduler, &servers)];
        let mut director = director();
        let remarks = director.plan(&services(Scheduler::Destination)).unwrap().remarks;
        assert!(remarks[0].contains("`balance dh` refuses the clients that it maps to 10.0.1.2:80"), "{remarks:?}");
        assert_eq!(director.plan(&services(Scheduler::Source)).unwrap().remarks, [""; 0]);
    });
}

#[test]
fn what_is_missing_is_said_with_what_helps() {
    lab::inside(|| {
        let loader = fs::read_to_string("/proc/sys/kernel/modprobe").unwrap();
        fs::write("/proc/sys/kernel/modprobe", "/bin/false").unwrap();
        let refusal = |asked| Director::open(asked, &DirectorSettings::default()).map(drop).unwrap_err().to_string();
        let said = refusal(EngineChoice::Ipvs);
        assert!(said.contains("the kernel has no IPVS") && said.contains("modprobe ip_vs"), "{said}");
        let auto = refusal(EngineChoice::Auto);
        assert!(auto.contains("neither engine") && auto.contains("no IPVS") && auto.contains("engine xdp"), "{auto}");

        fs::write("/proc/sys/kernel/modprobe", loader.trim()).unwrap();
        let auto = Director::open(EngineChoice::Auto, &DirectorSettings::default()).unwrap();
        assert_eq!(auto.engine_name(), "ipvs");
        assert!(auto.reason().contains("the kernel has IPVS"), "{}", auto.reason());
        assert!(auto.manner().contains("IPVS 1.2.1 with 4096 buckets"), "{}", auto.manner());
        assert_eq!(director().reason(), "set by the configuration");

        fs::write("/proc/sys/kernel/modprobe", "/bin/false").unwrap();
        let mut open = director();
        let mut desired = service(tcp("10.0.0.1:80"), Scheduler::Maglev, &[]);
        let report = open.reconcile(std::slice::from_ref(&desired)).unwrap();
        let fault = report.failed[0].to_string();
        assert!(fault.contains("no scheduler mh") && fault.contains("modprobe ip_vs_mh"), "{fault}");
        fs::write("/proc/sys/kernel/modprobe", loader.trim()).unwrap();
        desired.scheduler = Scheduler::RoundRobin;
        caps::clear(None, caps::CapSet::Effective).unwrap();
        let said = refusal(EngineChoice::Ipvs);
        assert!(said.contains("CAP_NET_ADMIN"), "{said}");
        assert!(!said.contains("no IPVS"), "{said}");
    });
}

/// A module that is loaded later is no reason to end connections.
#[cfg(feature = "bpf")]
#[test]
fn auto_stays_with_the_engine_that_has_services() {
    lab::inside(|| {
        said(
            "mount -t bpf -o mode=700 bpf /sys/fs/bpf && modprobe dummy && ip link add eth7 type dummy && \
             ip address add 10.7.0.1/24 dev eth7 && ip link set eth7 up && \
             ip neighbour add 10.7.0.2 lladdr 02:00:00:00:00:02 dev eth7",
        );
        let services = [service(tcp("10.7.0.7:80"), Scheduler::RoundRobin, &[to("10.7.0.2:80", 1)])];
        let open = |asked| {
            let mut settings = DirectorSettings::default();
            settings.xdp.interfaces = vec!["eth7".into()];
            Director::open(asked, &settings).unwrap()
        };
        let by = |asked, engine, why: &str| {
            let mut director = open(asked);
            assert_eq!(director.engine_name(), engine);
            assert!(director.reason().contains(why), "{}", director.reason());
            let warnings = director.plan(&services).unwrap().warnings;
            assert_eq!(director.reconcile(&services).unwrap().remarks, warnings);
            warnings.join("")
        };
        assert_eq!(by(EngineChoice::Xdp, "xdp", "set by the configuration"), "");
        assert_eq!(by(EngineChoice::Auto, "xdp", "already has services of Baton"), "");
        let changes = by(EngineChoice::Ipvs, "ipvs", "set by the configuration");
        assert!(changes.contains("the engine changes from xdp to ipvs"), "{changes}");
        assert_eq!(by(EngineChoice::Auto, "ipvs", "already has services of Baton"), "");
        by(EngineChoice::Xdp, "xdp", "set by the configuration");
        // It cannot be had any more.
        said("umount /sys/fs/bpf");
        let left = by(EngineChoice::Auto, "ipvs", "the kernel has IPVS");
        assert!(left.contains("services of Baton remain in another engine"), "{left}");
        open(EngineChoice::Ipvs).leave(OnExit::Flush).unwrap();
        assert_eq!(dump(), [""; 0]);
    });
}

#[test]
fn without_root_and_in_a_jail_it_goes_on() {
    lab::inside(|| {
        let settings = DirectorSettings { expire_nodest_conn: Some(true), ..DirectorSettings::default() };
        let mut director = director_with(&settings);
        let mut service = service(tcp("10.0.0.1:80"), Scheduler::RoundRobin, &[to("10.0.1.1:80", 1)]);
        done(director.reconcile(std::slice::from_ref(&service)).unwrap());
        director.set(&DirectorSettings { expire_nodest_conn: Some(false), ..settings });
        director.give_to(NOBODY, NOBODY).unwrap();
        let jail = tempfile::tempdir().unwrap();
        nix::unistd::chroot(jail.path()).unwrap();
        std::env::set_current_dir("/").unwrap();
        nix::sys::prctl::set_keepcaps(true).unwrap();
        nix::unistd::setgid(NOBODY.into()).unwrap();
        nix::unistd::setuid(NOBODY.into()).unwrap();
        let kept = [caps::Capability::CAP_NET_ADMIN].into_iter().collect();
        caps::set(None, caps::CapSet::Effective, &kept).unwrap();

        service.destinations[0].weight = 2;
        let steps = done(director.reconcile(std::slice::from_ref(&service)).unwrap());
        assert_eq!(steps.len(), 2, "{steps:?}");
        assert!(director.removal().contains("expire_nodest_conn = 0"), "{}", director.removal());
        assert_eq!(director.figures().unwrap().len(), 1);
        director.leave(OnExit::Flush).unwrap();
        assert_eq!(director.figures().unwrap(), []);
        std::mem::forget(jail);
    });
}
