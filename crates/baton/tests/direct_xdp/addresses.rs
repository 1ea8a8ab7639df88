//! The virtual addresses: they come after their services and go before them, and another director takes them over.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use flows::{Held, new_director};
use nix::sys::signal::Signal;

use super::*;

/// How long a client waits that asks again and again.
const SHORT: Duration = Duration::from_millis(5);
/// Beginnings and ends that the client sees.
const ROUNDS: usize = 3;

/// The configuration with `manage-vip`.
fn managed(text: &str) -> String {
    text.replace("balance roundrobin\n", "balance roundrobin\nmanage-vip interface eth0\n")
}

fn has_addresses(director: &link::Machine) -> bool {
    let shown = director.run("ip address show dev eth0");
    vips().iter().all(|vip| shown.contains(&format!("{vip}/")))
}

/// Lets clients end, also when the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nobody_is_refused_while_it_begins_is_replaced_and_ends() {
    lab(1, |lab| {
        for vip in vips() {
            lab.director.run(&format!("ip address del {vip} dev eth0"));
            // The client knows where it is before it is there.
            lab.client.run(&format!("ip neighbour replace {vip} lladdr {} dev eth0 nud permanent", lab.director.mac()));
        }
        // What is for nobody here is dropped, and no error comes of it.
        lab.director.run("sysctl -qw net.ipv4.ip_forward=0 net.ipv6.conf.all.forwarding=0");
        let folder = tempfile::tempdir().unwrap();
        // A server that is checked may be down for a moment on a busy machine, and then clients are refused.
        let text = managed(&text(lab, folder.path(), &[1], "flush")).replace(" check inter 200ms", "");
        let is_over = AtomicBool::new(false);
        let [served, unanswered] = [0, 0].map(AtomicUsize::new);
        thread::scope(|scope| {
            let _over = Over(&is_over);
            for vip in vips() {
                let (client, is_over, served, unanswered) = (&lab.client, &is_over, &served, &unanswered);
                scope.spawn(move || {
                    client.inside(|| {
                        while !is_over.load(Ordering::Relaxed) {
                            match TcpStream::connect_timeout(&SocketAddr::new(vip, 80), SHORT) {
                                Ok(_) => served.fetch_add(1, Ordering::Relaxed),
                                Err(error) if error.kind() == ErrorKind::TimedOut => {
                                    unanswered.fetch_add(1, Ordering::Relaxed)
                                }
                                Err(error) => panic!("{vip}: {error}: its service is not there"),
                            };
                        }
                    });
                });
            }
            for _ in 0..ROUNDS {
                let before = served.load(Ordering::Relaxed);
                let proxy = lab.director.inside(|| Proxy::start(&text));
                until("the addresses are there", || has_addresses(&lab.director));
                until("clients are served", || served.load(Ordering::Relaxed) > before + 20);
                // Another process takes over, is killed, and a third one begins with what is there.
                let next = lab.director.inside(|| proxy.replace(&[]));
                until("the first one ends", || proxy.has_ended());
                next.signal(Signal::SIGKILL);
                next.wait();
                let last = lab.director.inside(|| Proxy::start(&text));
                let before = served.load(Ordering::Relaxed);
                until("clients are served again", || served.load(Ordering::Relaxed) > before + 20);
                assert!(has_addresses(&lab.director));
                last.signal(Signal::SIGTERM);
                last.wait();
                assert!(!has_addresses(&lab.director));
                let before = unanswered.load(Ordering::Relaxed);
                until("nobody answers", || unanswered.load(Ordering::Relaxed) > before + 5);
            }
        });
    });
}

#[test]
fn downloads_go_on_at_a_second_director_that_takes_the_addresses() {
    lab(3, |lab| {
        let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let [first_text, second_text] = [0, 1].map(|at| text(lab, folders[at].path(), &[1, 1, 1], "keep"));
        let _first = start(lab, &first_text);
        let second = new_director("second", 3);
        let other = second.inside(|| Proxy::start(&second_text));
        let mut held = hold(lab, 12);
        let is_over = AtomicBool::new(false);
        let beats = AtomicUsize::new(0);
        let count = held.len();
        thread::scope(|scope| {
            let _over = Over(&is_over);
            for connection in &mut held {
                let (is_over, beats) = (&is_over, &beats);
                scope.spawn(move || {
                    while !is_over.load(Ordering::Relaxed) {
                        assert_eq!(connection.says().expect("it goes on"), connection.server);
                        beats.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            let is_alive = |since: usize| beats.load(Ordering::Relaxed) > since + 20 * count;
            until("all are under way", || is_alive(0));
            // The first director is cut off; the second one takes the addresses and says so.
            link::run("ip link set director down");
            second.inside(|| other.change(&managed(&second_text)));
            assert!(has_addresses(&second));
            let since = beats.load(Ordering::Relaxed);
            until("they go on", || is_alive(since));
        });
        all_go_on(&mut held);
        let mut fresh = Held::new(&lab.client, vips()[0]);
        assert_eq!(fresh.says().unwrap(), fresh.server);
    });
}
