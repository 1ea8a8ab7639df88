//! `mode direct` of a whole process in the lab: a client, a director and three real servers, whose answers do not come this way.
//!
//! The test is in the director's namespace, where Baton runs; clients are threads in the client's.

#[path = "../../../baton-direct/tests/network/mod.rs"]
mod network;
#[path = "../support/mod.rs"]
mod support;

mod changes;
#[cfg(feature = "bpf")]
mod engines;
mod forwarding;
mod health;
mod ipv6;
mod keepalived;
mod life;
mod master;
mod pair;
mod rights;
mod sticky;
mod traffic;
mod words;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use network::{Download, PIECE, VIP, enter, network, said, share, within};
use support::{Proxy, lab, until};

/// The engine under test.
const ENGINE: &str = "ipvs";

/// A configuration: what is in `global`, what is in the section besides its servers, and these.
struct Text<'a> {
    global: &'a str,
    web: &'a str,
    servers: &'a str,
}

/// Three servers that are not checked.
const PLAIN: Text<'_> = Text { global: "", web: "", servers: "server s1 192.168.121.11\nserver s2 192.168.121.12\n" };

impl Text<'_> {
    /// With a socket for commands in this folder.
    fn at(&self, folder: &Path) -> String {
        let Text { global, web, servers } = self;
        let folder = folder.display();
        format!(
            "global\nstats socket {folder}/admin.sock level admin\n{global}\n\
             listen web\nmode direct\nengine {ENGINE}\nbind {VIP}\nbalance roundrobin\n{web}\n{servers}"
        )
    }
}

/// A running director.
struct Director {
    proxy: Proxy,
    folder: PathBuf,
}

impl Director {
    #[track_caller]
    fn start(text: &Text<'_>) -> Director {
        Director::start_with(text, &[])
    }

    #[track_caller]
    fn start_with(text: &Text<'_>, arguments: &[&str]) -> Director {
        let folder = tempfile::tempdir().expect("a folder for the test").keep();
        let proxy = Proxy::start_with(&text.at(&folder), arguments);
        let director = Director { proxy, folder };
        director.is_set();
        director
    }

    /// Waits until the kernel has the service; gives how `ipvsadm` shows it.
    #[track_caller]
    fn is_set(&self) -> Vec<String> {
        let mut shown = Vec::new();
        until("the service is in the kernel", || {
            shown = dump();
            !shown.is_empty()
        });
        shown
    }

    /// Another text by a reload.
    #[track_caller]
    fn change(&self, text: &Text<'_>) {
        self.proxy.change(&text.at(&self.folder));
    }

    /// A command to the socket.
    #[track_caller]
    fn tell(&self, command: &str) -> String {
        said(&format!("echo '{command}' | socat -t 5 - unix-connect:{}/admin.sock", self.folder.display()))
    }

    /// A column of a row of `show stat`.
    #[track_caller]
    fn stat(&self, proxy: &str, row: &str, column: &str) -> String {
        let shown = self.tell("show stat");
        let head = shown.lines().next().unwrap().trim_start_matches("# ");
        let at = head.split(',').position(|name| name == column).unwrap();
        let row = shown.lines().find(|line| line.starts_with(&format!("{proxy},{row},")));
        row.unwrap_or_else(|| panic!("{shown}")).split(',').nth(at).unwrap().to_owned()
    }
}

/// All services as `ipvsadm` would set them again, sorted.
#[track_caller]
fn dump() -> Vec<String> {
    let mut lines: Vec<String> = said("ipvsadm -Sn").lines().map(|line| line.trim_end().to_owned()).collect();
    lines.sort();
    lines
}

/// The weight of a server of the web in the kernel.
#[track_caller]
fn weight(server: u8) -> Option<u32> {
    let lines = dump();
    let line = lines.iter().find(|line| line.contains(&format!("-r 192.168.121.1{server}:80 ")))?;
    line.split_once("-w ").map(|(_, weight)| weight.split(' ').next().unwrap().parse().unwrap())
}

/// Who serves so many new clients.
fn shares(connections: usize) -> BTreeMap<u8, usize> {
    within("client", move || share(VIP, connections)).join().unwrap()
}

/// How long a download pauses between its pieces: others need the slow processor too.
const PAUSE: Duration = Duration::from_millis(20);

/// A download that is under way until it is ended.
struct Long {
    stop: Sender<()>,
    pieces: Receiver<u8>,
    thread: JoinHandle<()>,
}

impl Long {
    /// Begins one; gives it with who serves it.
    fn begin() -> (u8, Long) {
        let (stop, stopped) = channel();
        let (sender, pieces) = channel();
        let thread = within("client", move || {
            let mut download = Download::begin(VIP);
            while stopped.recv_timeout(PAUSE) == Err(RecvTimeoutError::Timeout) {
                let by = download.next(PIECE).expect("a download goes on");
                if sender.send(by).is_err() {
                    return;
                }
            }
        });
        let by = pieces.recv().expect("it begins");
        (by, Long { stop, pieces, thread })
    }

    /// That it goes on from now, with the same server.
    #[track_caller]
    fn goes_on(&self, by: u8) {
        // What came before now is no news; two pieces after that are.
        while self.pieces.try_recv().is_ok() {}
        for _ in 0..2 {
            assert_eq!(self.pieces.recv().expect("a download goes on"), by);
        }
    }

    /// Its end, after a last piece.
    #[track_caller]
    fn end(self) {
        // One that failed hears nothing, and says so when it is joined.
        let _ = self.stop.send(());
        self.thread.join().expect("a download went on to its end");
    }
}

/// One long download of each of the first two servers.
fn downloads() -> [Long; 2] {
    [1, 2].map(|server| {
        let mut begun = (0..10).map(|_| Long::begin());
        begun.find(|(by, _)| *by == server).expect("it has a share").1
    })
}

/// Makes the network, and is in the director's namespace from now on.
fn begin() {
    network("director");
    enter("director");
}
