//! `baton convert` as a whole: what real `ipvsadm` and real keepalived put into a kernel (`support/lab`), and files.

mod support;

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use support::{lab, program, until};

const TABLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../baton-config/tests/convert");

/// What comes out for this input, and what is said.
fn converted(arguments: &[&str], input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(program());
    command.arg("convert").args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program was built");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    let [out, said] = [done.stdout, done.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (done.status.code(), out, said)
}

fn ipvsadm(arguments: &[&str], input: &str) -> String {
    let mut command = Command::new("ipvsadm");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut child = command.spawn().expect("installed by scripts/setup test");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let done = child.wait_with_output().expect("it ends");
    assert!(done.status.success(), "ipvsadm {arguments:?}");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn a_table_of_the_kernel_is_converted() {
    lab::inside(|| {
        let table = fs::read_to_string(format!("{TABLES}/table.ipvsadm")).expect("it is in the tree");
        ipvsadm(&["-R"], &table);
        let (code, config, said) = converted(&[], &ipvsadm(&["-S", "-n"], ""));
        assert_eq!(code, Some(0), "{said}");
        let expected = fs::read_to_string(format!("{TABLES}/table.cfg")).expect("it is in the tree");
        let body = |text: &str| text.lines().skip(1).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(body(&config), body(&expected), "{said}");
        let remarks = fs::read_to_string(format!("{TABLES}/table.said")).expect("it is in the tree");
        let remarks: String = remarks.lines().map(|line| format!("baton: standard input: {line}\n")).collect();
        assert_eq!(said, remarks);
    });
}

/// Services that `mode direct` has exactly as they are.
const EXACT: &str = "\
-A -t 192.168.121.2:80 -s wrr
-a -t 192.168.121.2:80 -r 192.168.121.13:80 -g -w 2
-a -t 192.168.121.2:80 -r 192.168.121.141:80 -g -w 1
-A -t 192.168.121.3:0 -s wlc -p 300 -M 255.255.255.0
-a -t 192.168.121.3:0 -r 192.168.121.13:0 -g -w 256
-A -u 192.168.121.2:53 -s sh -b sh-fallback,sh-port
-a -u 192.168.121.2:53 -r 10.0.0.9:5353 -m -w 1
-A -t [fd00::2]:443 -s lblc -p 60 -M 64
-a -t [fd00::2]:443 -r [fd00::1]:443 -g -w 0
-A -f 7 -s mh -b mh-fallback,mh-port
-a -f 7 -r 10.9.0.4:0 -i -w 1 --tun-type ipip
-a -f 7 -r 10.9.0.5:0 -i -w 3 --tun-type gue --tun-port 6080 --tun-nocsum
-a -f 7 -r 10.9.0.6:0 -i -w 1 --tun-type gre --tun-nocsum
-A -f 8 -6 -s sed -p 360
-a -f 8 -6 -r [fd00::1]:0 -g -w 1
";

#[test]
fn baton_gives_the_kernel_the_same_table() {
    lab::inside(|| {
        ipvsadm(&["-R"], EXACT);
        let before = ipvsadm(&["-S", "-n"], "");
        assert_eq!(before, EXACT);
        let (code, config, said) = converted(&[], &before);
        assert_eq!((code, &*said), (Some(0), ""));
        ipvsadm(&["-C"], "");
        fs::write("/run/direct.cfg", &config).expect("/run is ours");
        let mut command = Command::new(program());
        command.args(["-db", "-f", "/run/direct.cfg"]);
        let baton = Ended(command.spawn().expect("the program was built"));
        let mut after = String::new();
        until("baton has told the kernel all", || {
            after = ipvsadm(&["-S", "-n"], "");
            after.lines().count() == before.lines().count()
        });
        drop(baton);
        assert_eq!(after, before, "{config}");
    });
}

/// Ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ =
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0.id() as i32), nix::sys::signal::Signal::SIGTERM);
        let _ = self.0.wait();
    }
}

/// A virtual server of each kind, and what is left to keepalived's defaults.
const KEEPALIVED: &str = "\
$POOL=192.168.121
virtual_server ${POOL}.2 80 {
    protocol TCP
    delay_loop 600
    real_server ${POOL}.13 8080 {
        weight 2
    }
    real_server ${POOL}.141 80 {
        TCP_CHECK {
        }
    }
}
virtual_server 192.168.121.3 {
    lb_algo sh
    lb_kind DR
    flag-1
    persistence_timeout
    persistence_granularity 255.255.255.0
    real_server 10.0.0.1 {
    }
    real_server 10.0.0.2 { weight 3
    }
}
virtual_server fd00::2 443 {
    protocol TCP
    persistence_timeout 60
    persistence_granularity 64
    lvs_method DR
    real_server fd00::1 443 {
    }
}
virtual_server fwmark 7 {
    lvs_sched mh
    flag-2
    lvs_method TUN type gue port 6080
    real_server 10.9.0.4 80 {
    }
    real_server 10.9.0.5 {
        lvs_method TUN
    }
}
virtual_server_group dns {
    192.168.200.1-2 53
    192.168.200.8/31 53
    fwmark 9
}
virtual_server group dns
{
    lvs_sched wrr
    lvs_method DR
    protocol UDP
    real_server 192.168.200.53 53 {
      weight 5
    }
}
";

/// What the kernel has of it, line by line: one section for each address or mark, as in a dump. Checks are not in the kernel.
fn in_the_kernel(config: &str) -> Vec<String> {
    let mut all = Vec::new();
    for section in config.split("\nlisten ").skip(1) {
        let lines: Vec<&str> = section.lines().filter(|line| line.starts_with("    ")).map(str::trim).collect();
        let (binds, others): (Vec<&str>, Vec<&str>) = lines.into_iter().partition(|line| line.starts_with("bind "));
        let mut others: Vec<String> = others
            .into_iter()
            .filter(|line| !line.starts_with("timeout check") && !line.starts_with("default-server"))
            .map(|line| line.split(" check").next().unwrap_or(line).to_owned())
            .collect();
        others.sort();
        all.extend(binds.into_iter().map(|bind| format!("{bind}: {}", others.join("; "))));
    }
    all.sort();
    all
}

#[test]
fn keepalived_means_what_is_written_of_it() {
    lab::inside(|| {
        let file = Path::new("/run/keepalived.conf");
        fs::write(file, KEEPALIVED).expect("/run is ours");
        let mut command = Command::new("keepalived");
        command.args(["-n", "-l", "-C", "-p", "/run/k.pid", "-c", "/run/c.pid", "-f"]).arg(file);
        let log =
            || fs::OpenOptions::new().create(true).append(true).open("/run/keepalived.log").expect("/run is ours");
        command.stdout(log()).stderr(log());
        let keepalived = Ended(command.spawn().expect("installed by scripts/setup test"));
        let mut dump = String::new();
        until("keepalived has told the kernel all", || {
            dump = ipvsadm(&["-S", "-n"], "");
            dump.lines().count() == 21
        });
        let (_, by_dump, _) = converted(&["--from", "ipvsadm"], &dump);
        let (code, config, said) = converted(&[&file.display().to_string()], "");
        assert_eq!(code, Some(0), "{said}");
        let log = fs::read_to_string("/run/keepalived.log").unwrap_or_default();
        assert_eq!(in_the_kernel(&config), in_the_kernel(&by_dump), "{dump}\n{config}\n{log}");
        assert_eq!(in_the_kernel(&config).len(), 9);
        drop(keepalived);
    });
}

#[test]
fn what_is_written_overwrites_nothing() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let out = folder.path().join("direct.cfg").display().to_string();
    let table = "-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -g\n-D -t 10.0.0.1:80\n";
    let (code, printed, said) = converted(&["-o", &out, "-"], table);
    assert_eq!((code, &*printed), (Some(0), ""), "{said}");
    assert!(said.starts_with("baton: standard input: line 3: `-D -t 10.0.0.1:80`: left out"), "{said}");
    let written = fs::read_to_string(&out).expect("it was written");
    assert!(written.contains("listen tcp-10.0.0.1-80\n"), "{written}");
    let (code, _, said) = converted(&["-o", &out], table);
    assert!(code == Some(1) && said.contains("exists already"), "{said}");
    let (code, _, said) = converted(&["/no/such/file"], "");
    assert!(code == Some(1) && said.contains("cannot read /no/such/file"), "{said}");
    let (code, _, said) = converted(&[], "listen web\n");
    assert!(code == Some(1) && said.contains("--from ipvsadm or --from keepalived"), "{said}");
}
