//! Name servers: Debian's knot, whose records change while it runs, and one that does what no good name server does.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use crate::support::{free_address, until};

/// knot with a zone `test.`; it is ended with this.
pub struct Knot {
    child: Option<Child>,
    folder: TempDir,
    pub address: SocketAddr,
}

impl Knot {
    /// With these records, each as in a zone file.
    #[track_caller]
    pub fn start(records: &str) -> Knot {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let (place, address) = (folder.path().display(), free_address());
        let config = format!(
            "server:\n  listen: {}@{}\n  rundir: {place}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
             database:\n  storage: {place}/db\n\
             log:\n  - target: stderr\n    any: error\n\
             zone:\n  - domain: test\n    storage: {place}\n    file: test.zone\n    zonefile-load: whole\n    zonefile-sync: -1\n",
            address.ip(),
            address.port()
        );
        fs::write(folder.path().join("knot.conf"), config).expect("the folder is ours");
        let mut knot = Knot { child: None, folder, address };
        knot.write(records);
        knot.serve();
        knot
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, records: &str) {
        let zone = format!("$ORIGIN test.\n$TTL 1\n@ SOA ns root 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n{records}\n");
        fs::write(self.path("test.zone"), zone).expect("the folder is ours");
    }

    /// Starts it, again after [`Knot::stop`].
    #[track_caller]
    pub fn serve(&mut self) {
        let child = Command::new("knotd")
            .arg("-c")
            .arg(self.path("knot.conf"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("knot is installed by scripts/setup test");
        self.child = Some(child);
        until("knot serves", || self.control(&["zone-read", "test", "@", "SOA"]));
    }

    /// It responds no more.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Has it serve these records.
    #[track_caller]
    pub fn change(&self, records: &str) {
        self.write(records);
        assert!(self.control(&["-b", "zone-reload", "test"]), "knot reads its zone");
    }

    fn control(&self, words: &[&str]) -> bool {
        let mut command = Command::new("knotc");
        command.arg("-c").arg(self.path("knot.conf")).args(words).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Knot {
    fn drop(&mut self) {
        self.stop();
    }
}

/// What a name server does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Manner {
    Good,
    /// Nothing.
    Silent,
    /// Bytes that are no message.
    Garbage,
    /// A response of another id, that names another address.
    OtherId,
    /// A response to another question.
    OtherQuestion,
    /// A response from another port.
    OtherPort,
    /// By UDP a response without records that says so; by TCP all of them.
    Truncated,
    /// A datagram or a message without bytes.
    Empty,
    /// More than is accepted of a datagram.
    Huge,
    /// A header that says that there are more records than there are.
    CutOff,
    /// An owner that points to itself.
    Loop,
    /// A name that leads to another one, of which there is nothing.
    Alias,
    /// No records.
    NoRecords,
    /// By TCP half of a message, and then nothing.
    Half,
    /// By TCP a message that is no response, and then the response.
    LateByTcp,
    /// SERVFAIL.
    Fails,
    Nx,
    Refuses,
}

/// What a hostile name server does, each with the counter of `show resolvers` that has it.
pub const HOSTILE: [(Manner, &str); 8] = [
    (Manner::Silent, "timeout"),
    (Manner::Garbage, "invalid"),
    (Manner::OtherId, "outdated"),
    (Manner::OtherQuestion, "invalid"),
    (Manner::OtherPort, "timeout"),
    (Manner::Fails, "other"),
    (Manner::Refuses, "refused"),
    (Manner::Nx, "nx"),
];

/// A name server of one zone whose records are tables, by UDP and TCP.
pub struct Scripted {
    pub address: SocketAddr,
    state: Arc<Mutex<State>>,
    is_over: Arc<AtomicBool>,
}

struct State {
    manner: Manner,
    addresses: HashMap<String, Vec<IpAddr>>,
    services: HashMap<String, Vec<(u16, u16, String)>>,
    /// The names of all queries.
    asked: Vec<String>,
}

/// The address that hostile responses name.
const POISON: [u8; 4] = [127, 66, 66, 66];

impl Scripted {
    #[track_caller]
    pub fn start() -> Scripted {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let address = udp.local_addr().expect("it is bound");
            if let Ok(tcp) = TcpListener::bind(address) {
                break (udp, tcp);
            }
        };
        let address = udp.local_addr().expect("it is bound");
        let (addresses, services) = (HashMap::new(), HashMap::new());
        let state = State { manner: Manner::Good, addresses, services, asked: Vec::new() };
        let (state, is_over) = (Arc::new(Mutex::new(state)), Arc::new(AtomicBool::new(false)));
        udp.set_read_timeout(Some(Duration::from_millis(50))).expect("a time limit");
        thread::spawn({
            let (state, is_over) = (state.clone(), is_over.clone());
            move || {
                let other = UdpSocket::bind("127.0.0.1:0").expect("a port");
                let mut buffer = [0; 2048];
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((length, peer)) = udp.recv_from(&mut buffer) else { continue };
                    let mut state = state.lock().expect("nobody panics with it");
                    let Some(response) = state.respond(&buffer[..length], false) else { continue };
                    let socket = if state.manner == Manner::OtherPort { &other } else { &udp };
                    let _ = socket.send_to(&response, peer);
                }
            }
        });
        tcp.set_nonblocking(true).expect("it can");
        thread::spawn({
            let (state, is_over) = (state.clone(), is_over.clone());
            move || {
                while !is_over.load(Ordering::Relaxed) {
                    let Ok((mut stream, _)) = tcp.accept() else {
                        thread::sleep(Duration::from_millis(5));
                        continue;
                    };
                    let state = state.clone();
                    thread::spawn(move || {
                        let _ = stream.set_nonblocking(false);
                        let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                        let mut length = [0; 2];
                        while stream.read_exact(&mut length).is_ok() {
                            let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
                            if stream.read_exact(&mut query).is_err() {
                                return;
                            }
                            let response = state.lock().expect("nobody panics with it").respond(&query, true);
                            let Some(response) = response else { return };
                            let length = u16::try_from(response.len()).expect("it fits").to_be_bytes();
                            let manner = state.lock().expect("nobody panics with it").manner;
                            if manner == Manner::Half {
                                let _ = stream.write_all(&[&length[..], &response[..response.len() / 2]].concat());
                                // Until the other side gives up.
                                let _ = stream.read(&mut [0]);
                                return;
                            }
                            if manner == Manner::LateByTcp && stream.write_all(&[0, 3, 1, 2, 3, 0, 0]).is_err() {
                                return;
                            }
                            if stream.write_all(&[&length[..], &response].concat()).is_err() {
                                return;
                            }
                        }
                    });
                }
            }
        });
        Scripted { address, state, is_over }
    }

    pub fn behave(&self, manner: Manner) {
        self.state.lock().expect("nobody panics with it").manner = manner;
    }

    /// The names of all queries so far.
    pub fn asked(&self) -> Vec<String> {
        self.state.lock().expect("nobody panics with it").asked.clone()
    }

    pub fn addresses(&self, name: &str, list: &[&str]) {
        let list = list.iter().map(|text| text.parse().expect("an address")).collect();
        self.state.lock().expect("nobody panics with it").addresses.insert(name.into(), list);
    }

    /// Services as weight, port and host.
    pub fn services(&self, name: &str, list: Vec<(u16, u16, String)>) {
        self.state.lock().expect("nobody panics with it").services.insert(name.into(), list);
    }
}

impl Drop for Scripted {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl State {
    fn respond(&mut self, query: &[u8], is_tcp: bool) -> Option<Vec<u8>> {
        let mut at = 12;
        let mut labels = Vec::new();
        while let Some(length) = query.get(at).copied().filter(|length| *length > 0) {
            let label = query.get(at + 1..at + 1 + usize::from(length))?;
            labels.push(String::from_utf8_lossy(label).to_lowercase());
            at += 1 + usize::from(length);
        }
        let kind = u16::from_be_bytes([*query.get(at + 1)?, *query.get(at + 2)?]);
        let (name, question) = (labels.join("."), query.get(12..at + 5)?);
        let mut id = [query[0], query[1]];
        let (mut code, mut flags, mut question) = (0, 0x81, question.to_vec());
        self.asked.push(name.clone());
        let mut records = self.records(&name, kind);
        let poison = || vec![record(&[0xc0, 12], 1, &POISON)];
        match self.manner {
            Manner::Good | Manner::OtherPort | Manner::LateByTcp | Manner::Half => {}
            Manner::Empty => return Some(Vec::new()),
            Manner::Huge if !is_tcp => records = vec![record(&[0xc0, 12], 1, &POISON); 3000],
            Manner::Huge => {}
            Manner::CutOff => {
                let mut response = [&id[..], &[0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0], &question[..]].concat();
                records.iter().for_each(|record| response.extend_from_slice(record));
                return Some(response);
            }
            Manner::Loop => {
                let at = u16::try_from(12 + question.len()).ok()? | 0xc000;
                records = vec![record(&at.to_be_bytes(), 1, &POISON)];
            }
            Manner::Alias => records = vec![record(&[0xc0, 12], 5, b"\x05other\0")],
            Manner::NoRecords => records = Vec::new(),
            Manner::Silent => return None,
            Manner::Garbage => return Some([&id[..], &[0x81, 0x80, 0, 1, 0, 9, 0, 0, 0, 0, 0xff, 0xff, 1]].concat()),
            Manner::OtherId => (id[0], records) = (id[0] ^ 0x55, poison()),
            Manner::OtherQuestion => (question[1], records) = (b'~', poison()),
            Manner::Truncated if !is_tcp => (flags, records) = (0x83, Vec::new()),
            Manner::Truncated => {}
            Manner::Fails => (code, records) = (2, Vec::new()),
            Manner::Nx => (code, records) = (3, Vec::new()),
            Manner::Refuses => (code, records) = (5, Vec::new()),
        }
        if self.manner == Manner::OtherPort {
            records = poison();
        }
        let mut response = [&id[..], &[flags, 0x80 | code, 0, 1]].concat();
        response.extend_from_slice(&u16::try_from(records.len()).ok()?.to_be_bytes());
        response.extend_from_slice(&[0; 4]);
        response.append(&mut question);
        records.iter().for_each(|record| response.extend_from_slice(record));
        Some(response)
    }

    fn records(&self, name: &str, kind: u16) -> Vec<Vec<u8>> {
        let own = [0xc0, 12];
        let of_address = |address: &IpAddr| match (address, kind) {
            (IpAddr::V4(four), 1) => Some(record(&own, 1, &four.octets())),
            (IpAddr::V6(six), 28) => Some(record(&own, 28, &six.octets())),
            _ => None,
        };
        let of_service = |(weight, port, host): &(u16, u16, String)| {
            let mut data = vec![0, 1];
            data.extend_from_slice(&weight.to_be_bytes());
            data.extend_from_slice(&port.to_be_bytes());
            for label in host.split('.') {
                data.push(u8::try_from(label.len()).expect("short"));
                data.extend_from_slice(label.as_bytes());
            }
            data.push(0);
            record(&own, 33, &data)
        };
        match kind {
            33 => self.services.get(name).into_iter().flatten().map(of_service).collect(),
            _ => self.addresses.get(name).into_iter().flatten().filter_map(of_address).collect(),
        }
    }
}

fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut bytes = owner.to_vec();
    for number in [kind, 1, 0, 1, u16::try_from(data.len()).expect("short")] {
        bytes.extend_from_slice(&number.to_be_bytes());
    }
    bytes.extend_from_slice(data);
    bytes
}
