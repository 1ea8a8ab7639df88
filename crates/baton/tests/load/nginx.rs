//! An nginx of the test's own: one process in the foreground, a folder for everything it writes, ended when dropped.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::support::{free_address, until};

pub struct Nginx {
    pub folder: TempDir,
    pub address: SocketAddr,
    child: Child,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Serves `locations`, and `/status`, on a port of its own; `FOLDER` in them becomes its folder.
    #[track_caller]
    pub fn start(locations: &str) -> Nginx {
        Nginx::with("", locations, |_| {})
    }

    /// Starts nginx with options of `listen` (`ssl`), in a folder that `prepare` has filled.
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
        let mut command = Command::new("nginx");
        command.arg("-c").arg(file).arg("-e").arg(log).stdin(Stdio::null());
        let child = command.spawn().expect("nginx is installed by scripts/setup test");
        let mut nginx = Nginx { folder, address, child };
        until("nginx serves", || {
            let ended = nginx.child.try_wait().expect("it is our child");
            assert!(ended.is_none(), "{ended:?}: see what it said");
            TcpStream::connect(address).is_ok()
        });
        nginx
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
