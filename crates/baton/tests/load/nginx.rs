//! An nginx of the test's own: one process in the foreground, a folder for everything it writes, ended when dropped.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take before a test gives it up. Far more than it ever takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A port that was free a moment ago. The kernel hands out others before it comes back to this one.
pub fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback has a free port");
    listener.local_addr().expect("a bound socket has an address")
}

/// A server process; killed when dropped.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts it and waits until it accepts connections at `address`.
    #[track_caller]
    pub fn start(command: &mut Command, address: SocketAddr) -> Process {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn();
        let mut process = Process(child.unwrap_or_else(|error| panic!("{command:?}: {error}; see scripts/setup")));
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect(address).is_err() {
            let ended = process.0.try_wait().expect("it is our child");
            assert!(ended.is_none() && Instant::now() < end, "{command:?} does not serve: {ended:?}");
            std::thread::sleep(Duration::from_millis(2));
        }
        process
    }
}

pub struct Nginx {
    pub folder: TempDir,
    pub address: SocketAddr,
    /// Held until the end; dropped before the folder goes would be too early for what nginx still writes.
    _process: Process,
}

impl Nginx {
    /// Serves `locations`, and `/status`, on a port of its own; `FOLDER` in them becomes its folder.
    #[track_caller]
    pub fn start(locations: &str) -> Nginx {
        Nginx::with("", locations, |_| {})
    }

    /// The same with words after the address (`ssl`), and a folder that was prepared before.
    #[track_caller]
    pub fn with(listen: &str, locations: &str, prepare: impl FnOnce(&std::path::Path)) -> Nginx {
        let folder = tempfile::tempdir().expect("a folder for the test");
        prepare(folder.path());
        let address = free_address();
        let at = folder.path().display();
        let locations = locations.replace("FOLDER", &at.to_string());
        let config = format!(
            "daemon off; master_process off; pid {at}/pid; error_log {at}/error.log;\n\
             events {{ worker_connections 512; }}\n\
             http {{ access_log off; keepalive_requests 1000000;\n\
             client_body_temp_path {at}/t1; proxy_temp_path {at}/t2; fastcgi_temp_path {at}/t3;\n\
             uwsgi_temp_path {at}/t4; scgi_temp_path {at}/t5;\n\
             server {{ listen {address} {listen}; location /status {{ stub_status; }}\n{locations}\n}} }}\n"
        );
        let file = folder.path().join("nginx.conf");
        fs::write(&file, config).expect("the folder is ours");
        let log = folder.path().join("error.log");
        let process = Process::start(Command::new("nginx").arg("-c").arg(file).arg("-e").arg(log), address);
        Nginx { folder, address, _process: process }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Connections accepted, and requests seen, before this question.
    #[track_caller]
    pub fn seen(&self) -> (u64, u64) {
        let mut stream = TcpStream::connect(self.address).expect("it serves");
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n").expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        let numbers = text.lines().skip_while(|line| !line.contains("accepts")).nth(1);
        let numbers: Vec<u64> =
            numbers.expect("the counters").split_whitespace().map(|word| word.parse().expect("a number")).collect();
        (numbers[0] - 1, numbers[2] - 1)
    }
}
