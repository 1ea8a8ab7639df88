//! From Debian's keepalived to Baton with clients all the while, by the steps of docs/convert.md; and who fights over the services.

use std::fs::{self, File};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::TryRecvError;

use super::*;

/// What stays keepalived's.
const VRRP: &str = "
vrrp_instance web {
    state BACKUP
    interface eth0
    virtual_router_id 51
    priority 150
    advert_int 1
    virtual_ipaddress {
        192.168.121.2/32 dev eth0
    }
}
";

/// What becomes Baton's.
const WEB: &str = "
virtual_server 192.168.121.2 80 {
    delay_loop 2
    lb_algo rr
    lb_kind DR
    protocol TCP
    real_server 192.168.121.11 80 {
        TCP_CHECK {
            connect_timeout 3
        }
    }
    real_server 192.168.121.12 80 {
        TCP_CHECK {
            connect_timeout 3
        }
    }
}
";

/// The page's.
const STEPS: [&str; 3] = [
    "kill -STOP $(cat /run/checkers.pid)",
    "kill -HUP $(cat /run/keepalived.pid)",
    "kill -KILL $(cat /run/checkers.pid)",
];

const FILE: &str = "/run/keepalived.conf";
const LOG: &str = "/run/keepalived.log";

struct Keepalived(Child);

impl Keepalived {
    fn start() -> Keepalived {
        let log = File::create(LOG).expect("/run is ours");
        let mut command = Command::new("keepalived");
        command.args(["-n", "-l", "-D", "-f", FILE]).stdin(Stdio::null());
        command.stdout(log.try_clone().expect("a file")).stderr(log);
        Keepalived(command.spawn().expect("installed by scripts/setup test"))
    }
}

impl Drop for Keepalived {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn log() -> String {
    fs::read_to_string(LOG).unwrap_or_default()
}

/// New clients one after another, until they shall stop; each is served, or the thread panics. Gives how many.
fn clients(served: Sender<u8>, stop: Receiver<()>) -> JoinHandle<usize> {
    within("client", move || {
        let mut number = 0;
        while stop.try_recv() == Err(TryRecvError::Empty) {
            let by = Download::begin(VIP).next(1).expect("a new client is served");
            number += 1;
            let _ = served.send(by);
            std::thread::sleep(PAUSE);
        }
        number
    })
}

#[test]
fn keepalived_gives_its_services_without_a_gap() {
    lab::inside(|| {
        begin();
        said("ip address del 192.168.121.2/32 dev eth0");
        fs::write(FILE, [VRRP, WEB].concat()).unwrap();
        let _keepalived = Keepalived::start();
        until("keepalived directs", || log().contains("Entering MASTER STATE") && dump().len() == 3);
        let [first, second] = downloads();
        let (served, by) = channel();
        let (stop, stopped) = channel();
        let clients = clients(served, stopped);
        by.recv().expect("clients are served");

        // As an operator would.
        let program = support::program().display();
        let config = said(&format!("{program} convert {FILE}"));
        let baton = Proxy::start_with(&config, &[]);
        until("it is Baton's", || baton.said().contains("existed in the kernel and is now managed by Baton"));
        until("its servers are well", || weight(1) == Some(1) && weight(2) == Some(1));
        fs::write(FILE, VRRP).unwrap();
        let [halt, reload, end] = STEPS;
        said(halt);
        said(reload);
        until("VRRP goes on by the new file", || {
            log().contains("Reload") && log().matches("setting VIPs").count() == 2
        });
        said(end);
        until("keepalived is complete again", || log().contains("Reload complete"));
        while by.try_recv().is_ok() {}
        for _ in 0..10 {
            by.recv().expect("clients are served");
        }
        first.goes_on(1);
        second.goes_on(2);
        // Later reloads have nothing to take away.
        said(reload);
        until("it has reloaded", || log().matches("Reload complete").count() == 2);
        assert_eq!(dump().len(), 3, "{:?}", dump());
        drop(stop);
        let number = clients.join().expect("nobody is refused");
        assert!(number > 10, "{number} clients");
        first.end();
        second.end();
        let said = baton.said();
        assert!(!said.contains("another program changed"), "nothing was ever missing: {said}");
        assert!(!log().contains("Removing Virtual Server"), "{}", log());
    });
}

#[test]
fn the_steps_of_the_page_are_those_that_are_tested() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/convert.md");
    let page = fs::read_to_string(page).expect("it is in the tree");
    for step in STEPS {
        assert!(page.contains(&format!("\n    {step} ")), "docs/convert.md has not: {step}");
    }
}

#[test]
fn what_is_removed_by_others_is_back_at_once() {
    /// So many looks at everything would take longer than the test waits.
    const TIMES: usize = 6;
    lab::inside(|| {
        begin();
        // Without any service the kernel's IPVS would not look at packets, and open connections would be answered by a reset.
        said("ipvsadm -A -t 192.0.2.1:9");
        let director = Director::start(&PLAIN);
        until("the web is in the kernel", || weight(2).is_some());
        let whole = dump();
        let mut removed = 0;
        let [first, second] = downloads();
        until("it was put right each time", || {
            let is_whole = dump() == whole;
            if is_whole && removed < TIMES {
                said(
                    ["ipvsadm -D -t 192.168.121.2:80", "ipvsadm -d -t 192.168.121.2:80 -r 192.168.121.12:80"]
                        [removed % 2],
                );
                removed += 1;
                return false;
            }
            is_whole
        });
        first.goes_on(1);
        second.goes_on(2);
        first.end();
        second.end();
        until("it is said", || director.proxy.said().contains("another program changed Baton's kernel state"));
    });
}
