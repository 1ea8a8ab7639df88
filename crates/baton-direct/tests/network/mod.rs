//! A client, a director and three real servers in namespaces on a bridge, in the lab; and who gets connections there.
//!
//! Real servers have the virtual addresses on loopback and say nothing of them. Each serves its number, by TCP and UDP.
//!
//! This file uses no other of its folder, so that tests of other crates may include it by its path.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

pub const VIP: &str = "192.168.121.2:80";
pub const VIP6: &str = "[fd21::2]:80";
pub const SERVERS: [&str; 3] = ["192.168.121.11:80", "192.168.121.12:80", "192.168.121.13:80"];
pub const SERVERS6: [&str; 3] = ["[fd21::11]:80", "[fd21::12]:80", "[fd21::13]:80"];
/// How much of a download is asked for at a time.
pub const PIECE: u32 = 50_000;
/// How long something is waited for before a test fails. It is never slept through.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a command line and gives what it prints.
#[track_caller]
pub fn said(words: &str) -> String {
    let done = Command::new("sh").args(["-c", words]).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Makes everybody, and puts the calling thread where it says, such as `client`.
pub fn network(place: &str) {
    said(NETWORK);
    (1..=3).for_each(serve);
    enter(place);
}

/// Puts the calling thread into a namespace, and what it starts from now on.
pub fn enter(place: &str) {
    setns(File::open(format!("/run/netns/{place}")).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
}

/// Everybody on one bridge; the servers have the virtual addresses, and say nothing of them.
///
/// A program takes long to start in the lab: `ip` does all of a namespace in one go.
const NETWORK: &str = "set -e
    each='client director s1 s2 s3'
    {
        echo link add br0 type bridge
        echo link set br0 up
        for name in $each; do
            echo netns add $name
            echo link add v-$name type veth peer name eth0 netns $name
            echo link set v-$name master br0 up
        done
    } | ip -batch -
    quiet='net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2'
    for name in $each; do
        case $name in s?) settings=$quiet ;; *) settings= ;; esac
        ip netns exec $name sysctl -qw net.ipv6.conf.eth0.accept_dad=0 $settings
        {
            echo link set lo up
            echo link set eth0 up
            case $name in
            client) own=100 virtual= ;;
            director) own=1 virtual=eth0 ;;
            s?) own=1${name#s} virtual=lo ;;
            esac
            echo address add 192.168.121.$own/24 dev eth0
            echo address add fd21::$own/64 dev eth0 nodad
            if [ $virtual ]; then
                echo address add 192.168.121.2/32 dev $virtual
                echo address add fd21::2/128 dev $virtual nodad
            fi
        } | ip -n $name -batch -
    done";

/// Runs something on a thread in a namespace. Threads and programs that it starts are in there too.
pub fn within<T: Send + 'static>(name: &str, run: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let name = name.to_owned();
    thread::spawn(move || {
        enter(&name);
        run()
    })
}

/// A server that gives its number as often as it is asked for, by TCP and UDP; it ends with the lab.
fn serve(number: u8) {
    within(&format!("s{number}"), move || {
        let udp = UdpSocket::bind("0.0.0.0:80").unwrap();
        thread::spawn(move || {
            let mut question = [0; 64];
            while let Ok((_, from)) = udp.recv_from(&mut question) {
                udp.send_to(&[number], from).unwrap();
            }
        });
        let listener = TcpListener::bind("[::]:80").unwrap();
        thread::spawn(move || {
            for mut client in listener.incoming().map(Result::unwrap) {
                thread::spawn(move || -> io::Result<()> {
                    let mut wanted = [0; 4];
                    loop {
                        client.read_exact(&mut wanted)?;
                        client.write_all(&vec![number; u32::from_be_bytes(wanted) as usize])?;
                    }
                });
            }
        });
    })
    .join()
    .unwrap();
}

/// A download in progress.
pub struct Download(pub TcpStream);

impl Download {
    #[track_caller]
    pub fn begin(to: &str) -> Download {
        let stream = TcpStream::connect_timeout(&to.parse().unwrap(), PATIENCE).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Download(stream)
    }

    /// The next piece; gives who sent it.
    pub fn next(&mut self, bytes: u32) -> io::Result<u8> {
        let mut piece = vec![0; bytes as usize];
        self.0.write_all(&bytes.to_be_bytes())?;
        self.0.read_exact(&mut piece)?;
        assert!(piece.iter().all(|byte| *byte == piece[0]), "one server alone");
        Ok(piece[0])
    }

    #[track_caller]
    pub fn goes_on(&mut self, server: u8) {
        assert_eq!(self.next(PIECE).unwrap(), server);
    }
}

/// Who serves so many new connections.
#[track_caller]
pub fn share(to: &str, connections: usize) -> BTreeMap<u8, usize> {
    let mut share = BTreeMap::new();
    for _ in 0..connections {
        *share.entry(Download::begin(to).next(1).unwrap()).or_default() += 1;
    }
    share
}
